"""The application of the worker processes in tests of poison: its inputs say what goes wrong, and where.

Every start of a turn and of an activity that goes wrong is written to a file past every transaction.
"""

from __future__ import annotations

import os
from typing import Any

from holdfast import ActivityFailed, Flow, Holdfast, OrchestrationFailed, RetryPolicy
from tests.worker.trouble import FOLDER, act, setting

app = Holdfast(os.environ.get("LAB_URL", "sqlite:///:memory:"), **setting("SETTINGS", {}))
STARTS_MAX = setting("STARTS_MAX", 3)
AT_ONCE = RetryPolicy(attempts_max=STARTS_MAX, base=0.0, factor=1.0, cap=0.0)


def note(who: str) -> None:
    # Not open(): a turn may not write files. A file that is opened by its number is not seen by the audit hook.
    os.write(NOTES, f"{who}\n".encode())


NOTES = os.open(FOLDER / "notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


@app.activity(retry=AT_ONCE)
async def work(body: dict[str, Any]) -> str:
    if "act" in body:
        note(f"work {body['n']}")
        act(body["act"])
    return f"worked {body['n']}"


@app.orchestration(max_attempts=STARTS_MAX)
async def child(body: dict[str, Any], flow: Flow) -> str:
    if "turn" in body:
        note(f"turn {flow.id}")
        act(body["turn"])
    return await work(body)


@app.orchestration(max_attempts=STARTS_MAX)
async def second(body: dict[str, Any], flow: Flow) -> str:
    """Its turn after the first activity goes wrong."""
    await work({"n": body["n"]})
    if "turn" in body:
        note(f"turn {flow.id}")
        act(body["turn"])
    return await work({"n": body["n"]})


@app.orchestration()
async def parent(body: dict[str, Any], flow: Flow) -> dict[str, Any]:
    """Waits for a child and says how it failed."""
    try:
        return {"answer": await child.using(id=f"{flow.id}/child")(body)}
    except OrchestrationFailed as error:
        return told(error)


@app.activity(inline=True, retry=AT_ONCE)
async def inside(body: dict[str, Any]) -> str:
    note(f"inside {body['n']}")
    if "act" in body:
        act(body["act"])
    return f"inside {body['n']}"


@app.orchestration(max_attempts=STARTS_MAX)
async def inlines(body: dict[str, Any]) -> dict[str, Any]:
    """Two inline activities; the second one may go wrong."""
    first = await inside({"n": f"first of {body['n']}"})
    return {"answer": [first, await inside(body)]}


@app.orchestration()
async def caller(body: dict[str, Any]) -> dict[str, Any]:
    """Waits for an activity and says how it failed."""
    try:
        return {"answer": await work(body)}
    except ActivityFailed as error:
        return told(error)


def told(error: ActivityFailed | OrchestrationFailed) -> dict[str, Any]:
    poison = error.poison
    return {
        "category": error.category,
        "text": str(error),
        "poison": None if poison is None else {**poison.to_dict(), "message_type": str(poison.message_type)},
    }
