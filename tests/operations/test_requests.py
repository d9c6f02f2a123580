"""What operators ask about requests and do about them; each command leaves its line in the audit."""

from __future__ import annotations

import base64
from datetime import timedelta
from threading import Barrier, Thread
from typing import Any
from uuid import UUID, uuid4

import pytest

from holdfast import BodySealed, InvalidSettings, NotFound, Refused, UsageError
from holdfast.operations import Operations
from holdfast.requests.sweeping import catch_early
from holdfast.requests.verbs import decide_early, resolve
from holdfast.store.plans import requests
from tests.requests.desk import Desk, desk, drained


@pytest.fixture
def made(url: str) -> Any:
    found = desk(url)
    found.app.prepare()
    yield found
    found.app.close()


def ask(made: Desk, subject: str = "s-17", **options: Any) -> UUID:
    options.setdefault("variant", "writing")
    return made.app.request(made.grading, {"n": 1}, subject=subject, **options).id


def operations(made: Desk, who: str = "anna") -> Operations:
    return made.app.operations.by(who)


def listed(made: Desk, **options: Any) -> list[str | None]:
    return [each.subject for each in operations(made).requests.list(**options)]


def test_the_list(made: Desk) -> None:
    late, done, early, later = (ask(made, name) for name in ("late", "done", "early", "later"))
    made.app.resolve(done, 1)
    made.app.requests.cancel(ask(made, "cancelled", variant="speaking"))
    made.app.requests.extend(later, 86_400)
    made.app.requests.extend(early, 7200)
    made.clock.advance(hours=1)
    made.app.resolve(late, 1)
    assert listed(made)[:3] == ["early", "later", "late"]
    assert sorted(str(each) for each in listed(made)[3:]) == ["cancelled", "done"]
    assert listed(made, state="open") == ["early", "later"]
    assert listed(made, state="failed") == ["late"]
    assert listed(made, late=True) == ["late"]
    assert listed(made, kind="other") == []
    assert listed(made, subject="done") == ["done"]
    assert listed(made, limit=1) == ["early"]
    with pytest.raises(UsageError, match="no state 'lost'"):
        listed(made, state="lost")
    operations(made).requests.accept(late, why="good work")
    assert listed(made, late=True) == []


@pytest.mark.covers("V46", "V50", "V43")
def test_a_late_result_can_be_looked_at(made: Desk) -> None:
    id = ask(made)
    made.clock.advance(hours=1)
    made.app.resolve(id, {"score": 9})
    made.app.resolve(id, failed="out of memory")
    found = operations(made).requests.show(str(id))
    assert (found.request.id, found.request.subject, found.request.state) == (id, "s-17", "failed")
    assert (found.request.late_results, found.body) == (2, '{"n":1}')
    assert [(e.standing, e.failed, e.body, e.received_at, e.decided) for e in found.results] == [
        ("late", None, '{"score":9}', made.clock.instant, False),
        ("late", "out of memory", "null", made.clock.instant, False),
    ]
    assert operations(made).requests.counts().late == 1
    with pytest.raises(NotFound):
        operations(made).requests.show(uuid4())


@pytest.mark.covers("V47")
def test_a_late_result_is_accepted_by_one_of_two_operators(made: Desk) -> None:
    id = ask(made)
    made.clock.advance(hours=1)
    made.app.resolve(id, {"score": 9})
    barrier, answers = Barrier(2), []

    def accept(who: str) -> None:
        barrier.wait()
        try:
            answers.append((who, operations(made, who).requests.accept(id, why=f"{who} says so")))
        except Refused as refusal:
            answers.append((who, refusal))

    threads = [Thread(target=accept, args=(who,)) for who in ("anna", "bert")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [who for who, answer in answers if isinstance(answer, UUID)]
    found = made.app.requests.get(id)
    assert (found.accepted_by, found.result) == (winner, {"score": 9})
    (line,) = operations(made).audit(action="requests.accept")
    assert (line.who, line.target, line.why) == (winner, str(id), f"{winner} says so")
    assert line.before is not None
    assert line.after is not None
    assert (line.before["state"], line.after["state"]) == ("failed", "completed")


def test_what_is_ordered_is_audited(made: Desk) -> None:
    first, second, third = ask(made), ask(made), ask(made)
    desk = operations(made).requests
    assert desk.resolve(first, {"score": 1}, why="by telephone") == "decisive"
    assert desk.resolve(first, failed="no") == "duplicate"
    assert desk.extend(second, 600, why="the grader asked") == made.clock.instant + timedelta(seconds=1800)
    desk.cancel(third, why="withdrawn")
    lines = operations(made).audit(action="requests")
    assert [(line.action, line.why) for line in reversed(lines)] == [
        ("requests.resolve", "by telephone"), ("requests.resolve", None), ("requests.extend", "the grader asked"),
        ("requests.cancel", "withdrawn"),
    ]  # fmt: skip
    assert made.app.requests.get(third).reason == "withdrawn"


def test_what_is_refused_is_not_audited(made: Desk) -> None:
    id, desk = ask(made), operations(made).requests
    for call in (
        lambda: desk.accept(id, why="early bird"),
        lambda: desk.extend(id, 600, why=" "),
        lambda: desk.extend(id, 0, why="none"),
        lambda: desk.cancel(uuid4(), why="gone"),
        lambda: desk.resolve(uuid4(), 1),
        lambda: desk.resolve("x", 1),
    ):
        with pytest.raises((Refused, UsageError, NotFound)):
            call()
    with pytest.raises(UsageError, match=f"Request {id} was given no more time: the time to add is 0,"):
        desk.extend(id, 0, why="none")
    assert operations(made).audit(action="requests") == []


# --- housekeeping


async def test_ended_requests_are_removed_with_their_results(made: Desk) -> None:
    old, open_ = ask(made), ask(made, within=90 * 86_400)
    made.app.resolve(old, 1)
    made.app.resolve(old, 2)
    unknown = made.app.requests.arrival(uuid4(), 1, None, source=uuid4())
    made.app.store.run(resolve([unknown], made.app.requests.pen, keeps_early=True))
    made.clock.advance(days=29)
    young = ask(made)
    made.app.resolve(young, 1)
    assert operations(made).housekeeping().requests == 0
    made.clock.advance(days=2)
    assert operations(made).housekeeping().requests == 2
    assert made.app.store.read(requests.results(old, 9)) == []
    assert made.app.store.read(requests.results(unknown.request, 9)) == []
    with pytest.raises(NotFound):
        made.app.requests.get(old)
    assert made.app.requests.get(young).result == 1
    assert made.app.requests.get(open_).state == "open"
    # A hook whose request is gone is a dead letter that says so, not an error without end.
    await drained(made)
    assert made.told() == ["completed"]
    (letter,) = operations(made).dead.list()
    assert "has been removed" in (letter.error or "")


def test_they_are_kept_for_a_day_at_least(url: str) -> None:
    with pytest.raises(InvalidSettings, match="a day: hooks look up"):
        desk(url, requests=3600.0)


async def test_a_result_that_was_there_before_its_request_counts(made: Desk) -> None:
    """Stored while the request was not committed yet: the other side was asked before."""
    id, seen = uuid4(), uuid4()
    pen = made.app.requests.pen
    early = made.app.requests.arrival(id, {"score": 3}, None, source=seen)
    again = made.app.requests.arrival(id, {"score": 3}, None, source=seen)
    (found,) = made.app.store.run(resolve([early], pen, keeps_early=True))
    assert found is not None
    assert found.standing == "early"
    assert made.app.store.run(resolve([again], pen, keeps_early=True)) == [None]  # the same message again
    ask(made, id=id)
    assert made.app.requests.get(id).result == {"score": 3}
    # The same where the two were stored at the same time, and neither saw the other.
    late = uuid4()
    other = made.app.requests.arrival(late, {"score": 4}, None, source=uuid4())
    made.app.store.run(resolve([other], pen, keeps_early=True))
    until = made.clock.instant + timedelta(seconds=60)
    made.app.store.run(
        requests.open_(
            late,
            kind="grading",
            variant=None,
            type=None,
            stream=None,
            subject=None,
            body="1",
            created_at=made.clock.instant,
            deadline=until,
            soft_at=None,
            next_at=until,
        )
    )
    assert catch_early(made.app.store, pen) == 1
    assert catch_early(made.app.store, pen) == 0
    assert made.app.store.run(decide_early([late], pen)) == 0  # of two that do it, one was quicker
    assert made.app.requests.get(late).results == 1
    await drained(made)
    assert sorted(request.result["score"] for _, request in made.heard) == [3, 4]


# --- keys


async def test_bodies_are_sealed_and_sealed_again(url: str) -> None:
    def key(name: str, letter: bytes) -> str:
        return f"{name}:{base64.b64encode(letter * 32).decode()}"

    old = desk(url, keys=key("old", b"o"))
    old.app.prepare()
    id = ask(old)
    waiting = ask(old, "waits")
    old.app.resolve(id, {"score": "secret"})
    whole = old.app.store.read(requests.show(id))
    (result,) = old.app.store.read(requests.results(id, 9))
    assert whole is not None
    assert "holdfast/sealed" in whole.body
    assert "holdfast/sealed" in result.body
    assert "secret" not in result.body
    old.app.close()
    new = desk(url, keys=[key("new", b"n"), key("old", b"o")])
    assert operations(new).keys.rotate().left == 0
    kinds = {(each.kind, each.key, each.count) for each in operations(new).keys.counts()}
    assert ("requests", "new", 2) in kinds
    assert ("results", "new", 1) in kinds
    new.app.close()
    only = desk(url, keys=key("new", b"n"))
    await drained(only)
    assert [request.result for _, request in only.heard] == [{"score": "secret"}]
    assert only.app.requests.get(waiting).body == {"n": 1}
    only.app.close()
    blind = desk(url)
    assert "holdfast/sealed" in operations(blind).requests.show(id).body
    with pytest.raises(BodySealed):
        operations(blind).requests.show(id, reveal=True)
    blind.app.close()


# --- why, status, metrics


def why(made: Desk, id: UUID) -> str:
    return " ".join(operations(made).why(id))


async def test_why_a_request_is_where_it_is(made: Desk) -> None:
    waits = made.app.request(made.grading, 1, variant="writing", send="grading.request").id
    told = operations(made).why(waits)
    assert told[0] == (
        f"Request {waits} (grading, writing) waits for a result until 00:20:00 UTC. It was sent as a "
        "message of type grading.request, with the same id."
    )
    assert told[1].startswith("In queue grade: ")
    made.clock.advance(minutes=16)
    await drained(made)
    assert "; it is delayed since 00:16:00" in why(made, waits)
    made.clock.advance(minutes=6)
    assert "No worker has recorded that yet" in why(made, waits)
    made.app.resolve(waits, 7)
    assert "no result had come by its deadline" in why(made, waits)
    assert f"1 result came late: `holdfast requests show {waits}`" in why(made, waits)
    operations(made).requests.accept(waits, why="good")
    assert "a late result that anna accepted at" in why(made, waits)
    done, failed, cancelled, silent = (ask(made) for _ in range(4))
    made.app.resolve(done, 1)
    made.app.resolve(done, 2)
    made.app.resolve(failed, failed="no audio")
    made.app.requests.cancel(cancelled, "withdrawn")
    made.clock.advance(hours=1)
    await drained(made)
    assert "was completed at" in why(made, done)
    assert "1 more result came and changed nothing." in why(made, done)
    assert "the other side said 'no audio'" in why(made, failed)
    assert "was cancelled at" in why(made, cancelled)
    assert "Unknown" not in why(made, silent)
    assert operations(made).why(uuid4())[0].startswith("Unknown: ")


def test_what_needs_somebody_is_on_the_page_and_in_the_metrics(made: Desk) -> None:
    for _ in range(2):
        ask(made)
    late = ask(made)
    ask(made, within=7200)
    made.clock.advance(minutes=20, seconds=30)
    assert operations(made).status().problems == ()  # a worker may be about to sweep them
    made.clock.advance(minutes=10)
    made.app.resolve(late, 1)
    status = operations(made).status()
    assert (status.overdue_requests, status.late_requests) == (2, 1)
    (overdue,) = [each for each in status.problems if each.name == "requests-overdue"]
    assert "2 requests should have timed out, the first at 00:20:00" in overdue.text
    values = {sample.name: sample.values for sample in made.app.metrics() if "requests" in sample.name}
    assert values == {
        "holdfast_requests_open": (3.0,), "holdfast_requests_overdue": (2.0,), "holdfast_requests_late": (1.0,),
    }  # fmt: skip


def test_a_request_is_found_by_a_part_of_its_id(made: Desk) -> None:
    id = ask(made)
    requests = operations(made).requests
    assert requests.named(str(id)[-8:]) == requests.named(str(id)[:13]) == requests.named(str(id)) == id
    message = made.app.publish("grading.request", {}).id
    with pytest.raises(NotFound, match="No request has an id"):
        requests.named(str(message)[-8:])
    with pytest.raises(UsageError, match="not the id of a request"):
        requests.named("x")
