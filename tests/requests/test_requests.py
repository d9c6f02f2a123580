"""Requests with deadlines: the first result in time decides, and after the deadline nothing does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from holdfast import Holdfast, InvalidMessage, InvalidSettings, NotFound, Refused, UsageError
from holdfast.clock import MovableClock
from holdfast.model.request import RequestState, Standing
from holdfast.requests import verbs
from holdfast.store.plans import requests
from holdfast.store.statement import Plan, Statement
from tests.requests.desk import Desk, drained

TICK = timedelta(microseconds=1)


def ask(desk: Desk, variant: str = "writing", **options: Any) -> UUID:
    options.setdefault("send", "grading.request")
    return desk.app.request(desk.grading, {"submission": 17}, variant=variant, subject="s-17", **options).id


def results(desk: Desk, id: UUID) -> list[tuple[str, Any]]:
    found = desk.app.store.read(requests.results(id, 100))
    return [(str(each.standing), each.failed or each.body) for each in found]


def accept(desk: Desk, id: UUID, who: str = "anna") -> None:
    desk.app.store.run(verbs.accept(id, None, who, desk.app.requests.pen))


# --- asking


@pytest.mark.covers("V36", "V37", "V38")
async def test_a_request_its_deadline_and_its_message_are_stored_together(desk: Desk) -> None:
    writing = desk.app.request(desk.grading, {"n": 1}, variant="writing", send="grading.request")
    speaking = desk.app.request(desk.grading, {"n": 2}, variant="speaking", send="grading.request")
    created = desk.clock.instant
    assert writing.deadline == created + timedelta(seconds=1200)
    assert speaking.deadline == created + timedelta(seconds=3600)
    await drained(desk)
    assert sorted(desk.sent) == sorted([(writing.id, {"n": 1}), (speaking.id, {"n": 2})])
    found = desk.app.requests.get(writing.id)
    assert (found.state, found.body, found.created_at, found.deadline) == (
        RequestState.OPEN, {"n": 1}, created, writing.deadline,
    )  # fmt: skip
    assert desk.heard == []


async def test_a_deadline_of_its_own(desk: Desk) -> None:
    until = datetime(2026, 1, 1, 5, tzinfo=UTC)
    assert desk.app.request(desk.grading, 1, deadline=until).deadline == until
    assert desk.app.request(desk.grading, 1, within=90).deadline == desk.clock.instant + timedelta(seconds=90)
    assert desk.app.request(desk.grading, 1, within=timedelta(days=2)).deadline == datetime(
        2026, 1, 3, tzinfo=UTC
    )


async def test_the_same_id_asks_once(desk: Desk) -> None:
    own = uuid4()
    first = desk.app.request(desk.grading, {"n": 1}, variant="writing", send="grading.request", id=own)
    desk.clock.advance(minutes=1)
    again = desk.app.request(desk.grading, {"n": 2}, variant="writing", send="grading.request", id=own)
    assert (first.id, first.duplicate, again.id, again.duplicate) == (own, False, own, True)
    await drained(desk)
    assert desk.sent == [(own, {"n": 1})]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, r"no variant has no deadline.*'writing', 'speaking'"),
        ({"variant": "reading"}, r"variant 'reading' has no deadline"),
        ({"within": 5, "deadline": datetime(2026, 1, 2, tzinfo=UTC)}, "not both"),
        ({"within": 0}, "within is 0, and must be seconds"),
        ({"within": -5}, "must be seconds"),
        ({"within": float("nan")}, "must be seconds"),
        ({"within": "soon"}, "must be seconds"),
        ({"within": timedelta(days=9999)}, "ten years"),
        ({"deadline": datetime(2026, 1, 2)}, "must be a datetime with a time zone"),
        ({"deadline": datetime(2025, 12, 31, tzinfo=UTC)}, "not in the future"),
        ({"deadline": datetime(2026, 1, 1, tzinfo=UTC)}, "not in the future"),
        ({"variant": "writing", "stream": "s"}, "give its type too, send="),
        ({"variant": "writing", "send": "x" * 300}, "The message type has 300"),
        ({"variant": "\n"}, "The variant"),
        ({"variant": "writing", "id": "seventeen"}, "not the id of a request"),
    ],
)
def test_what_is_refused_stores_nothing(desk: Desk, options: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        desk.app.request(desk.grading, {"n": 1}, **options)
    assert desk.app.store.read(requests.next_due())[1] is None


def test_a_kind_of_another_application_is_refused(desk: Desk) -> None:
    other = Holdfast("sqlite:///:memory:").request_kind("grading", sla=5)
    with pytest.raises(UsageError, match="not a kind of request of this application"):
        desk.app.request(other, 1)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "has no deadline: a request without one would wait for ever"),
        ({"sla": None}, "would wait for ever"),
        ({"sla": {}}, "would wait for ever"),
        ({"sla": 0}, "must be seconds"),
        ({"sla": {"a": -1}}, r"sla\['a'\]"),
        ({"sla": True}, "must be seconds"),
        ({"sla": 5, "soft": 1}, "between 0 and 1"),
        ({"sla": 5, "soft": 0}, "between 0 and 1"),
        ({"sla": 5, "soft": True}, "between 0 and 1"),
    ],
)
def test_a_kind_without_a_deadline_is_refused(options: dict[str, Any], why: str) -> None:
    app = Holdfast("sqlite:///:memory:")
    with pytest.raises(InvalidSettings, match=why):
        app.request_kind("grading", **options)


def test_kinds_have_names_of_their_own() -> None:
    app = Holdfast("sqlite:///:memory:")
    app.request_kind("grading", sla=5)
    with pytest.raises(InvalidSettings, match="already a kind"):
        app.request_kind("grading", sla=6)
    with pytest.raises(InvalidSettings, match="the engine's own"):
        app.request_kind("holdfast/x", sla=6)


def test_a_hook_takes_the_request_and_is_declared_once() -> None:
    app = Holdfast("sqlite:///:memory:")
    kind = app.request_kind("grading", sla=5)
    kind.completed(lambda request: None)
    with pytest.raises(InvalidSettings, match=r"already a handler named 'grading\.completed'"):
        kind.completed(lambda request: None)
    with pytest.raises(InvalidSettings, match="takes the request"):
        kind.failed(lambda: None)


# --- results


@pytest.mark.covers("V48", "V50")
async def test_the_first_result_completes_it(desk: Desk) -> None:
    id = ask(desk)
    desk.clock.advance(minutes=5)
    answer = desk.app.resolve(id, {"score": 7.5})
    assert (answer.accepted, answer.late, answer.duplicate) == (True, False, False)
    assert (answer.received_at, answer.state) == (desk.clock.instant, RequestState.COMPLETED)
    await drained(desk)
    ((what, request),) = desk.heard
    assert (what, request.id, request.subject, request.variant) == ("completed", id, "s-17", "writing")
    assert (request.body, request.result, request.late) == ({"submission": 17}, {"score": 7.5}, False)
    assert (request.received_at, request.timed_out_at) == (desk.clock.instant, None)


async def test_a_second_result_is_kept_and_changes_nothing(desk: Desk) -> None:
    id = ask(desk)
    desk.app.resolve(id, 1)
    again = desk.app.resolve(str(id), 2)
    failing = desk.app.resolve(id, failed="too late for that")
    assert [(e.accepted, e.duplicate, e.late, e.state) for e in (again, failing)] == [
        (True, True, False, RequestState.COMPLETED)
    ] * 2
    desk.clock.advance(hours=5)
    assert desk.app.resolve(id, 3).duplicate  # it was answered in time: whatever comes is a second one
    await drained(desk)
    assert desk.told() == ["completed"]
    assert desk.app.requests.get(id).result == 1
    assert results(desk, id) == [
        ("decisive", "1"), ("duplicate", "2"), ("duplicate", "too late for that"), ("duplicate", "3"),
    ]  # fmt: skip
    assert desk.app.requests.get(id).results == 4


async def test_a_failing_result_decides_too(desk: Desk) -> None:
    id = ask(desk)
    answer = desk.app.resolve(id, {"detail": 4}, failed="the audio is\nempty")
    assert (answer.late, answer.state) == (False, RequestState.FAILED)
    assert desk.app.resolve(id, 7).duplicate
    desk.clock.advance(hours=1)
    await drained(desk)
    ((what, request),) = desk.heard
    assert (what, request.state, request.reason) == ("failed", RequestState.FAILED, "the audio is empty")
    assert (request.result, request.timed_out_at) == ({"detail": 4}, None)
    with pytest.raises(Refused, match="only a request that has timed out"):
        accept(desk, id)


def test_a_result_of_no_request_is_refused(desk: Desk) -> None:
    with pytest.raises(NotFound, match="its result was not stored"):
        desk.app.resolve(uuid4(), 1)
    with pytest.raises(UsageError, match="not the id of a request"):
        desk.app.resolve("17", 1)
    with pytest.raises(InvalidMessage, match="must be a text"):
        desk.app.resolve(ask(desk), failed="  ")
    with pytest.raises(InvalidMessage):
        desk.app.resolve(ask(desk), object())


# --- the deadline


@pytest.mark.covers("V39", "V40")
async def test_after_the_deadline_it_has_failed(desk: Desk) -> None:
    id = ask(desk)
    desk.clock.advance(seconds=1200)
    await drained(desk)
    assert desk.told() == ["delayed"]  # exactly at the deadline it is still open
    desk.clock.advance(microseconds=1)
    await drained(desk)
    what, request = desk.heard[-1]
    assert (what, request.state, request.reason) == ("failed", RequestState.FAILED, "TIMEOUT")
    assert request.timed_out_at == desk.clock.instant
    assert desk.app.requests.get(id).timed_out_at == desk.clock.instant


@pytest.mark.covers("X31")
async def test_exactly_at_the_deadline_is_in_time(desk: Desk) -> None:
    id = ask(desk)
    desk.clock.advance(seconds=1200)
    assert desk.app.resolve(id, 1).standing is Standing.DECISIVE


@pytest.mark.covers("X31", "V42", "V41")
@pytest.mark.parametrize("swept", [True, False], ids=["after the sweep", "before the sweep"])
async def test_behind_the_deadline_is_late_whoever_was_first(desk: Desk, swept: bool) -> None:
    id = ask(desk)
    desk.clock.advance(seconds=1200, microseconds=1)
    if swept:
        await drained(desk)
    answer = desk.app.resolve(id, {"score": 9})
    assert (answer.accepted, answer.late, answer.duplicate) == (True, True, False)
    assert answer.state is RequestState.FAILED
    await drained(desk)
    assert desk.told() == ["failed"]
    found = desk.app.requests.get(id)
    assert (found.state, found.reason, found.timed_out_at) == (
        RequestState.FAILED, "TIMEOUT", desk.clock.instant,
    )  # fmt: skip


@pytest.mark.covers("V43", "V44", "V45", "X32")
async def test_late_results_are_kept_and_change_nothing(desk: Desk) -> None:
    id = ask(desk)
    desk.clock.advance(hours=1)
    await drained(desk)
    heard = desk.told()
    assert heard == ["failed"]
    for result, failed in (({"score": 9}, None), (None, "out of memory"), ({"score": 4}, None)):
        assert desk.app.resolve(id, result, failed=failed).late
        await drained(desk)
    assert desk.told() == heard
    found = desk.app.requests.get(id)
    assert (found.state, found.reason, found.result, found.late_results) == (
        RequestState.FAILED, "TIMEOUT", None, 3,
    )  # fmt: skip
    assert results(desk, id) == [("late", '{"score":9}'), ("late", "out of memory"), ("late", '{"score":4}')]


@pytest.mark.covers("V47")
async def test_a_late_result_is_accepted_once(desk: Desk) -> None:
    id = ask(desk)
    desk.clock.advance(hours=1)
    desk.app.resolve(id, failed="busy")
    desk.app.resolve(id, {"score": 9})
    received_at = desk.clock.instant
    await drained(desk)
    desk.clock.advance(hours=1)
    accept(desk, id)
    with pytest.raises(Refused, match="accepted already"):
        accept(desk, id, "bert")
    assert desk.app.resolve(id, {"score": 1}).duplicate
    await drained(desk)
    assert desk.told() == ["failed", "completed"]
    request = desk.heard[-1][1]
    assert (request.result, request.late, request.accepted_by) == ({"score": 9}, True, "anna")
    assert (request.received_at, request.accepted_at) == (received_at, desk.clock.instant)
    found = desk.app.requests.get(id)
    assert (found.state, found.accepted_by, found.reason) == (RequestState.COMPLETED, "anna", None)


async def test_only_a_good_late_result_is_accepted(desk: Desk) -> None:
    id, other = ask(desk), ask(desk)
    with pytest.raises(Refused, match="it is open"):
        accept(desk, id)
    desk.clock.advance(hours=1)
    desk.app.resolve(id, failed="busy")
    with pytest.raises(Refused, match="no good result has come late"):
        accept(desk, id)
    desk.app.resolve(id, 1)
    (bad, _) = desk.app.store.read(requests.results(id, 9))
    with pytest.raises(Refused, match="says that it failed"):
        desk.app.store.run(verbs.accept(id, bad.id, "anna", desk.app.requests.pen))
    with pytest.raises(NotFound, match="has no result"):
        desk.app.store.run(verbs.accept(id, other, "anna", desk.app.requests.pen))
    with pytest.raises(NotFound, match="There is no request"):
        accept(desk, uuid4())


async def test_the_delay_is_told_once(desk: Desk) -> None:
    id = ask(desk)
    desk.clock.advance(minutes=15)
    await drained(desk)
    assert desk.heard == []
    desk.clock.advance(microseconds=1)
    await drained(desk)
    _, next_look = desk.app.store.read(requests.next_due())
    assert next_look == desk.clock.instant + timedelta(minutes=5, microseconds=-1), "at its deadline"
    desk.clock.advance(minutes=1)
    await drained(desk)
    assert desk.told() == ["delayed"]
    assert desk.heard[0][1].state is RequestState.OPEN
    desk.app.resolve(id, 1)
    await drained(desk)
    assert desk.told() == ["delayed", "completed"]


# --- more time, and none at all


async def test_more_time(desk: Desk) -> None:
    id = ask(desk)
    desk.clock.advance(seconds=1200)
    assert desk.app.requests.extend(id, 600) == desk.clock.instant + timedelta(seconds=600)
    desk.clock.advance(seconds=600)
    await drained(desk)
    assert desk.told() == ["delayed"]  # as much later as it has more time
    assert desk.app.resolve(id, 1).standing is Standing.DECISIVE


async def test_no_more_time_after_the_deadline_although_nobody_has_swept(desk: Desk) -> None:
    id, ended = ask(desk), ask(desk)
    desk.app.resolve(ended, 1)
    desk.clock.advance(seconds=1200, microseconds=1)
    for verb in (lambda: desk.app.requests.extend(id, 600), lambda: desk.app.requests.cancel(id)):
        with pytest.raises(Refused, match="its deadline passed at 2026-01-01 00:20:00 UTC"):
            verb()
    with pytest.raises(Refused, match="it is completed"):
        desk.app.requests.extend(ended, 600)
    with pytest.raises(InvalidMessage, match="by is -5"):
        desk.app.requests.extend(id, -5)
    with pytest.raises(NotFound):
        desk.app.requests.extend(uuid4(), 5)
    assert desk.app.resolve(id, 1).late


async def test_cancelled(desk: Desk) -> None:
    id, silent = ask(desk), ask(desk)
    desk.app.requests.cancel(id, "the student withdrew")
    desk.app.requests.cancel(silent)
    assert desk.app.resolve(id, 1).duplicate
    desk.clock.advance(hours=1)
    await drained(desk)
    assert sorted((what, r.state, r.reason) for what, r in desk.heard) == [
        ("failed", RequestState.CANCELLED, "CANCELLED"), ("failed", RequestState.CANCELLED, "the student withdrew"),
    ]  # fmt: skip
    with pytest.raises(Refused, match="it is cancelled"):
        desk.app.requests.cancel(id)


# --- sweeping


async def test_many_are_swept_the_oldest_first_in_parts(desk: Desk) -> None:
    desk.app.prepare()
    ids = [desk.app.request(desk.grading, number, within=10 + number).id for number in range(7)]
    desk.clock.advance(seconds=16)
    left = []
    for _ in range(3):
        swept = desk.app.store.run(verbs.sweep(desk.app.requests.pen, 4))
        states = [desk.app.requests.get(id).state for id in ids]
        left.append((swept.ended, [n for n, state in enumerate(states) if state is RequestState.OPEN]))
    assert left == [(4, [4, 5, 6]), (2, [6]), (0, [6])]  # the last one ends exactly now
    await drained(desk)
    assert sorted(r.body for what, r in desk.heard if what == "failed") == [0, 1, 2, 3, 4, 5]


async def test_without_a_hook_nothing_is_sent(url: str) -> None:
    clock = MovableClock()
    plain = Desk(Holdfast(url, clock=clock), clock, None)
    plain.grading = plain.app.request_kind("grading", sla=60, soft=0.5)
    id = plain.app.request(plain.grading, 1).id
    for _ in range(3):
        clock.advance(seconds=31)
        await drained(plain)
    assert plain.app.requests.get(id).reason == "TIMEOUT"
    assert plain.app.operations.unrouted() == []
    assert plain.app.operations.status().depth == 0
    plain.app.close()


# --- what the database itself refuses


def test_the_database_keeps_the_invariants(desk: Desk) -> None:
    id = ask(desk)
    desk.app.resolve(id, 1)
    store, now = desk.app.store, desk.clock.instant
    table = "holdfast_request_result" if store.has_one_writer else "holdfast.request_result"

    def forged() -> Plan[None]:
        yield Statement(f"update {table} set standing = 'late'")

    with pytest.raises(Exception, match="a request ends once"):
        store.run(requests.settle([{"id": str(id), "results": 0, "late": 0, "state": "failed"}]))
    with pytest.raises(Exception, match="a result of a request is never changed"):
        store.run(forged())
    late = {"id": str(ask(desk)), "results": 1, "late": 0, "state": "completed", "result": str(id)}
    late |= {"ended_at": now, "received_at": now + timedelta(hours=1)}
    with pytest.raises(Exception, match=r"(?i)check"):  # completed by what came behind the deadline
        store.run(requests.settle([late]))
