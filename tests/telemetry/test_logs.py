"""Logs: every record has an event and fields that docs/telemetry.md lists, and none has a payload."""

from __future__ import annotations

import ast
import asyncio
import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Context, Dead, Holdfast, InvalidSettings, RetryPolicy
from holdfast.telemetry.logs import JsonFormatter, Log, configure
from tests.docs.blocks import text_of
from tests.worker.lab import PATIENCE, Lab, until

ROW = re.compile(r"^\| `([a-z_]+\.[a-z_]+)` \| (info|warning|error|critical) \|([^|]*)\|", re.M)
PACKAGE = Path(__file__).parents[2] / "src" / "holdfast"
SECRET = "PAYLOADOFSOMEBODY"
COMMON = {"exc_info"}


def calls() -> Iterator[tuple[str, ast.Call]]:
    """Every call of a log in the package, with its place."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "log"
                and node.func.attr in ("debug", "info", "warning", "error", "critical", "exception", "log")
            ):
                yield f"{path.relative_to(PACKAGE)}:{node.lineno}", node


def told(node: ast.Call) -> tuple[str | None, str | None]:
    """The event and the level of a call; `log.log` has its level first."""
    attr = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    event = node.args[1 if attr == "log" else 0] if node.args else None
    name = event.value if isinstance(event, ast.Constant) else None
    return name if isinstance(name, str) else None, None if attr == "log" else attr


def documented() -> dict[str, tuple[str, set[str]]]:
    rows = ROW.findall(text_of("docs/telemetry.md"))
    return {
        event: (level, {each.strip() for each in fields.split(",") if each.strip()})
        for event, level, fields in rows
    }


def test_every_event_is_documented_with_its_level_and_fields() -> None:
    """Remedy: `log.info("thing.happened", "text with %(field)s", field=...)`, and a row in docs/telemetry.md."""
    known, faults, seen = documented(), [], set()
    for place, node in calls():
        event, level = told(node)
        if event not in known:
            faults.append(f"{place}: event {event!r} has no row in docs/telemetry.md")
            continue
        seen.add(event)
        fields = {each.arg for each in node.keywords if each.arg is not None} - COMMON
        if level is not None and level != known[event][0]:
            faults.append(f"{place}: {event} is documented as {known[event][0]}")
        if not fields <= known[event][1]:
            faults.append(f"{place}: {event} has fields that are not documented: {fields - known[event][1]}")
    assert faults == []
    assert seen == set(known), "documented and never logged"


RESERVED = {*vars(logging.makeLogRecord({})), "message", "asctime", "event"}


def test_no_field_has_a_name_that_a_record_has_itself() -> None:
    """The standard library raises KeyError for it, and only when somebody listens. Remedy: another name."""
    faults = []
    for place, node in calls():
        names = {each.arg for each in node.keywords} - COMMON
        for each in ast.walk(node):
            if isinstance(each, ast.Dict):
                names |= {key.value for key in each.keys if isinstance(key, ast.Constant)}
        if names & RESERVED:
            faults.append(f"{place}: {sorted(str(each) for each in names & RESERVED)}")
    faults += [f"docs: {event}" for event, (_, fields) in documented().items() if fields & RESERVED]
    assert faults == []


def test_no_module_goes_past_the_log() -> None:
    """Remedy: `log = Log("holdfast....")` from logs.py."""
    found = [
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if path.name != "logs.py" and "getLogger" in path.read_text()
    ]
    assert found == []


def shop(lab: Lab) -> Holdfast:
    """Everything goes wrong here that a handler can do to its message."""
    app = lab.app(error_chars=200)
    once, twice = RetryPolicy(attempts_max=1), RetryPolicy(attempts_max=2, base=0.0, factor=1.0, cap=0.0)

    @app.handler("raises", retry=twice)
    async def raises(body: dict, ctx: Context) -> None:
        raise RuntimeError(f"cannot do {body} {ctx.headers}")

    @app.handler("gives.up")
    async def gives_up(body: dict) -> Dead:
        return Dead(f"never: {body}")

    @app.handler("typed", retry=once)
    def typed(body: list[int]) -> None: ...

    @app.handler("keyed", retry=once, key=lambda body: body["missing"], per_key=1)
    def keyed(body: dict) -> None: ...

    @app.handler("late", retry=once)
    def late(body: dict, ctx: Context) -> None:
        with ctx.transaction():
            pass
        raise RuntimeError(str(body))

    @app.handler("many", retry=once, batch=5)
    async def many(bodies: list[dict]) -> None:
        raise RuntimeError(str(bodies))

    @app.handler("emits", retry=once)
    async def emits(body: dict, ctx: Context) -> None:
        ctx.publish("raises", {"child": body["card"]}, stream="events", event=True, expect=99)  # refused

    return app


@pytest.mark.covers("X38", "C27", "C28", "D3")
async def test_no_payload_is_ever_logged(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "holdfast")
    app = shop(lab)
    types = ["raises", "gives.up", "typed", "keyed", "late", "many", "emits"]
    for n, type_ in enumerate(types):
        app.publish(
            type_,
            {"card": f"{SECRET}-{n}"},
            headers={"x-card": SECRET},
            dedupe=f"{SECRET}-{n}",
            stream=f"s{n}",
        )
    async with lab.working(app):
        async with asyncio.timeout(PATIENCE):
            while lab.rows("message"):  # noqa: ASYNC110 - the database tells
                await asyncio.sleep(0.02)
    for letter in app.operations.dead.list(limit=100):
        app.operations.dead.discard(letter.id, why="seen")
    events = {
        getattr(record, "event", None) for record in caplog.records if record.name.startswith("holdfast")
    }
    assert {
        "message.started",
        "message.failed",
        "message.died",
        "message.raised_late",
        "key.unknown",
        "settlement.refused",
    } <= events
    everything = "\n".join(
        JsonFormatter().format(record) + record.getMessage() + str(vars(record)) for record in caplog.records
    )
    assert SECRET not in everything
    failed = [
        r
        for r in caplog.records
        if getattr(r, "event", "") in ("message.failed", "message.died") and r.queue == "raises"  # type: ignore[attr-defined]
    ]
    assert [(r.levelname, r.attempt, r.queue, r.outcome, r.reason) for r in failed][:2] == [  # type: ignore[attr-defined]
        ("WARNING", 1, "raises", "again", 2),
        ("ERROR", 2, "raises", "dead", 2),
    ]
    assert all(each.message_id and each.stream for each in failed)  # type: ignore[attr-defined]


# --- How it is written ----------------------------------------------------------------------------------------


def test_a_line_of_json_has_the_fields(caplog: pytest.LogCaptureFixture) -> None:
    Log("holdfast.test").warning("store.absent", "no database: %(error)s, %(nothing)s",
                                 error=OSError("postgresql://u:hunter2@db"), nothing=None)  # fmt: skip
    line = json.loads(JsonFormatter().format(caplog.records[-1]))
    assert line["event"] == "store.absent"
    assert line["level"] == "WARNING"
    assert line["error"] == "OSError: postgresql://u:***@db"
    assert line["message"] == "no database: OSError: postgresql://u:***@db, None"
    assert line["time"].endswith("+00:00")
    assert "nothing" not in line


def test_an_exception_in_json_is_masked() -> None:
    try:
        raise OSError("password=hunter2")
    except OSError:
        record = logging.LogRecord("holdfast", logging.ERROR, "x.py", 1, "failed", None, sys.exc_info())
    line = json.loads(JsonFormatter().format(record))
    assert "OSError: password=***" in line["exception"]


@pytest.mark.parametrize(("kind", "level"), [("xml", None), (None, "LOUD")])
def test_what_cannot_be_configured_is_refused(
    kind: str | None, level: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidSettings):
        configure(kind, level)


QUIET = """
import logging, sys
from holdfast.telemetry.logs import configure
if len(sys.argv) > 1:
    logging.getLogger("pika").setLevel(sys.argv[1])
configure()
logging.getLogger("pika.adapters").error("a traceback of the client")
logging.getLogger("holdfast.relay").warning("the connection was lost")
"""


@pytest.mark.parametrize("asked", [[], ["INFO"]])
def test_the_client_of_a_broker_does_not_fill_the_log_of_a_worker(asked: list[str]) -> None:
    """pika writes ten lines for each attempt to connect, and an outage has three attempts in a minute, for days."""
    done = subprocess.run([sys.executable, "-c", QUIET, *asked], capture_output=True, text=True, check=True)
    assert "the connection was lost" in done.stderr
    assert ("a traceback of the client" in done.stderr) == bool(asked)


PROGRAM = """
import threading
from holdfast import Holdfast

app = Holdfast("sqlite:///log.db")

@app.handler("order", retry="immediate")
async def failing(order: dict) -> None:
    raise RuntimeError(str(order))

app.publish("order", {"card": "PAYLOADOFSOMEBODY"})
"""
THREAD = "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"


@pytest.mark.parametrize("more", ["", THREAD], ids=["forked", "spawned"])
def test_a_worker_is_heard_however_its_processes_begin(tmp_path: Path, more: str) -> None:
    (tmp_path / "logged.py").write_text(PROGRAM + more)
    log = tmp_path / "log"
    with open(log, "wb") as file:
        worker = subprocess.Popen(
            [sys.executable, "-c", "from holdfast.cli import main; main()", "worker", "logged:app", "--log", "json"],
            cwd=tmp_path,
            env={**os.environ, "HOLDFAST_LOG_LEVEL": "info"},
            stderr=file,
        )  # fmt: skip
    try:
        until(lambda: '"message.failed"' in log.read_text(), lambda: log.read_text())
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(PATIENCE)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {"message.started", "message.failed"} <= {line.get("event") for line in lines}
    assert all(line["pid"] != worker.pid for line in lines if line["event"] == "message.failed")
    assert SECRET not in log.read_text()


OWN = """
import logging
logging.basicConfig(level=logging.INFO, format="OWN %(message)s")
"""


@pytest.mark.parametrize("more", ["", THREAD], ids=["forked", "spawned"])
def test_an_application_that_has_set_logging_up_keeps_its_own(tmp_path: Path, more: str) -> None:
    (tmp_path / "logged.py").write_text(OWN + PROGRAM + more)
    log = tmp_path / "log"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_LOG")}
    with open(log, "wb") as file:
        worker = subprocess.Popen(
            [sys.executable, "-c", "from holdfast.cli import main; main()", "worker", "logged:app"],
            cwd=tmp_path, env=environment, stderr=file,
        )  # fmt: skip
    try:
        until(lambda: "OWN Handling message" in log.read_text(), lambda: log.read_text())
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(PATIENCE)
