"""An inbox that resolves requests: judged when the message is stored, in the same commit, whatever comes how often."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from holdfast import Answer, Holdfast, InvalidSettings
from holdfast.inboxes.intake import Intake
from holdfast.model.request import RequestState
from holdfast.store.plans import requests
from holdfast.transports import MemoryBroker
from holdfast.transports.contract import Outgoing
from tests.inboxes.conftest import until
from tests.requests.desk import Desk, desk, drained

pytestmark = pytest.mark.one_postgres


def answer(body: dict[str, Any]) -> Answer:
    """As the grader sends it."""
    done = body["status"] == "completed"
    return Answer(body["requestId"], None if done else body["status"], body.get("result"))


@pytest.fixture
def made(url: str) -> Iterator[Desk]:
    found = desk(url)
    found.app.close()
    found = desk(url)
    found.grading = found.app.request_kind("marking", sla=60, answer=answer)
    found.grading.completed(lambda request: found.heard.append(("completed", request)))
    found.grading.failed(lambda request: found.heard.append(("failed", request)))
    found.app.prepare()
    yield found
    found.app.close()


@pytest.fixture
def broker() -> MemoryBroker:
    made = MemoryBroker()
    made.bind("grader", "#", queue="callbacks")
    return made


def callback(request: object, n: int = 1, status: str = "completed", **more: Any) -> Outgoing:
    body = json.dumps({"requestId": str(request), "status": status, "result": {"score": n}, **more})
    return Outgoing("grader", body.encode(), f"c-{n}", "grading.callback", "key", {})


async def send(broker: MemoryBroker, *messages: Outgoing) -> None:
    sender = broker.sender()
    await sender.open()
    await sender.send(messages, lambda *_: None)
    await sender.close()


@asynccontextmanager
async def receiving(made: Desk, broker: MemoryBroker, **options: Any) -> AsyncIterator[Intake]:
    options.setdefault("resolves", made.grading)
    made.app.inbox("callbacks", broker, queue="callbacks", **options)
    made.app.prepare()
    app, stopping = made.app, asyncio.Event()
    intake = Intake(app.inboxes["callbacks"], app.store, app.settings, app.keys, app.clock)
    task = asyncio.create_task(intake.run(stopping))
    yield intake
    stopping.set()
    await task
    await app.store.aclose()


def standings(made: Desk, id: UUID) -> list[str]:
    return [str(each.standing) for each in made.app.store.read(requests.results(id, 100))]


def dead(app: Holdfast) -> list[str]:
    return [each.error or "" for each in app.operations.dead.list()]


@pytest.mark.covers("X57", "V48")
async def test_the_result_is_stored_with_the_message_and_judged_at_its_receipt(
    made: Desk, broker: MemoryBroker
) -> None:
    """Received before the deadline and handled behind it: it was in time."""
    handled: list[Any] = []
    made.app.handler("grading.callback", name="callbacks")(lambda body: handled.append(body["status"]))
    id = made.app.request(made.grading, 1).id
    made.clock.advance(seconds=60)
    received_at = made.clock.instant
    async with receiving(made, broker):
        await send(broker, callback(id, 7))
        await until(lambda: standings(made, id))
    made.clock.advance(hours=1)
    await drained(made)
    found = made.app.requests.get(id)
    assert (found.state, found.result, found.received_at) == (
        RequestState.COMPLETED, {"score": 7}, received_at,
    )  # fmt: skip
    assert (made.told(), handled) == (["completed"], ["completed"])


@pytest.mark.covers("X57", "V41", "V49", "X32")
async def test_late_failing_and_repeated_ones_in_one_queue(made: Desk, broker: MemoryBroker) -> None:
    first, second, slow = (made.app.request(made.grading, n).id for n in range(3))
    async with receiving(made, broker):
        await send(
            broker, callback(first, 1), callback(first, 1), callback(first, 2, "failed"), callback(second, 3, "broken"),
            callback(second, 4),
        )  # fmt: skip
        await until(lambda: len(standings(made, second)) == 2)
        made.clock.advance(seconds=60, microseconds=1)
        await send(broker, callback(slow, 5, "crashed"), callback(slow, 6))
        await until(lambda: len(standings(made, slow)) == 2)
    assert standings(made, first) == ["decisive", "duplicate"]  # the same message came twice
    assert standings(made, second) == ["decisive", "duplicate"]
    assert standings(made, slow) == ["late", "late"]
    await drained(made)
    assert sorted((what, str(r.reason)) for what, r in made.heard) == [
        ("completed", "None"), ("failed", "TIMEOUT"), ("failed", "broken"),
    ]  # fmt: skip
    # Nobody subscribes to the callback: it is kept as a result, and is not left over as a message.
    assert made.app.operations.unrouted() == []
    assert (made.app.operations.status().depth, dead(made.app)) == (0, [])


async def test_one_for_a_request_that_is_not_committed_yet_counts_when_it_is(
    made: Desk, broker: MemoryBroker
) -> None:
    id = uuid4()
    async with receiving(made, broker):
        await send(broker, callback(id, 7), callback(id, 7))
        await until(lambda: standings(made, id) == ["early"])
    made.app.request(made.grading, 1, id=id)
    await drained(made)
    assert [request.result for _, request in made.heard] == [{"score": 7}]


async def test_what_is_no_answer_is_a_dead_letter_and_resolves_when_it_is_one(
    made: Desk, broker: MemoryBroker
) -> None:
    id = made.app.request(made.grading, 1).id
    async with receiving(made, broker):
        await send(
            broker,
            callback("seventeen", 1),
            Outgoing("grader", b'{"status":"completed"}', "c-2", "grading.callback", "key", {}),
        )
        await until(lambda: len(dead(made.app)) == 2)
    assert sorted(dead(made.app)) == [
        "'seventeen' is not the id of a request, which is a UUID.", "It could not be read: KeyError: 'requestId'",
    ]  # fmt: skip
    letter = next(each for each in made.app.operations.dead.list() if "seventeen" in (each.error or ""))
    stored = json.loads(made.app.operations.messages.find_out(letter.id).dead[0][1].body or "")
    mended = {"requestId": str(id), "status": "completed", "result": {"score": 2}}
    stored["data_base64"] = base64.b64encode(json.dumps(mended).encode()).decode()
    made.app.operations.dead.edit(letter.id, json.dumps(stored))
    made.clock.advance(seconds=30)
    made.app.operations.dead.redrive(letter.id)
    await drained(made)
    found = made.app.requests.get(id)
    assert (found.result, found.received_at) == ({"score": 2}, made.clock.instant)


async def test_a_result_for_another_kind_is_kept_as_a_message(made: Desk, broker: MemoryBroker) -> None:
    other = made.app.request(made.app.requests.kinds["grading"], 1, variant="writing").id
    async with receiving(made, broker):
        await send(broker, callback(other, 1))
        await until(made.app.operations.unrouted)
    assert made.app.requests.get(other).state is RequestState.OPEN
    assert standings(made, other) == []


async def test_messages_that_are_no_answers_may_come_too(made: Desk, broker: MemoryBroker) -> None:
    kind = made.app.request_kind(
        "mixed", sla=60, answer=lambda body: Answer(body["request"]) if "request" in body else None
    )
    seen: list[Any] = []
    made.app.handler("grading.callback", name="callbacks")(seen.append)
    id = made.app.request(kind, 1).id
    async with receiving(made, broker, resolves=kind):
        await send(
            broker, Outgoing("grader", b"{}", "a", "grading.callback", "key", {}),
            Outgoing("grader", b'{"request":"%s"}' % str(id).encode(), "b", "grading.callback", "key", {}),
        )  # fmt: skip
        await until(lambda: standings(made, id))
    await drained(made)
    assert len(seen) == 2
    assert made.app.requests.get(id).result == {"request": str(id)}


def test_what_cannot_resolve_is_refused(made: Desk, broker: MemoryBroker) -> None:
    wrong: Any = "marking"
    with pytest.raises(InvalidSettings, match="must be a kind of request"):
        made.app.inbox("a", broker, queue="q", resolves=wrong)
    with pytest.raises(InvalidSettings, match="resolves nothing"):
        made.app.inbox("a", broker, queue="q", resolves=made.grading, dead_letters=True)
    with pytest.raises(InvalidSettings, match="another application"):
        Holdfast("sqlite:///:memory:").inbox("a", broker, queue="q", resolves=made.grading)
    assert timedelta(seconds=60) == made.grading.within(None)
