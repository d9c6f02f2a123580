"""Settling: what becomes of a message when an attempt has ended."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.model.message import Flag, Reason
from holdfast.rules.fingerprint import fingerprint
from holdfast.rules.retry import RetryPolicy
from tests.store.box import (
    QUEUE,
    Box,
    cancelled,
    dead,
    done,
    failed,
    given_back,
    names,
    new,
    released,
    snoozed,
)

ENDLESS = RetryPolicy(attempts_max=100_000)

# --- Done -------------------------------------------------------------------------------------------------------------


@pytest.mark.covers("X41", "W34", "C26", "V7", "X21", "B29")
def test_what_is_done_leaves_one_line_of_history_and_nothing_else(box: Box) -> None:
    due = box.now + timedelta(seconds=30)
    id = box.send("m", stream="s", subject="customer 7", due_at=due)
    box.pass_time(minutes=2)
    leased = box.claim_one()
    box.pass_time(seconds=10)
    assert box.settle(done(leased, ran=1.5)) == set()

    assert (box.messages(), box.read("lease"), box.read("dead")) == ([], [], [])
    (line,) = box.read("history")
    assert line == {
        "id": id,
        "queue": QUEUE,
        "type": "order.placed",
        "stream": "s",
        "subject": "customer 7",
        "status": Flag.STORED | Flag.PUBLISHED,
        "attempts": 1,
        "failures": 0,
        "outcome": "done",
        "due_at": due,
        "started_at": box.now - timedelta(seconds=1.5),
        "ended_at": box.now,
        "why": None,
    }


@pytest.mark.covers("X41")
def test_without_a_time_of_its_own_it_was_due_when_it_was_published(box: Box) -> None:
    box.send("m")
    published = box.now
    box.pass_time(seconds=30)
    box.settle(done(box.claim_one()))
    assert [h.due_at for h in box.read("history")] == [published]


@pytest.mark.covers("W35", "W28")
def test_success_after_a_retry_leaves_nothing_in_the_outbox(box: Box) -> None:
    box.send("m")
    box.settle(failed(box.claim_one()))
    box.pass_time(seconds=60)
    box.settle(failed(box.claim_one()))
    box.pass_time(seconds=60)
    assert box.claim() == []
    box.pass_time(seconds=60)
    box.settle(done(box.claim_one()))
    assert box.messages() == []
    (line,) = box.read("history")
    assert (line.attempts, line.failures, line.outcome) == (3, 2, "done")
    assert line.status == Flag.STORED | Flag.PUBLISHED | Flag.FAILED


@pytest.mark.covers("W7", "X41")
def test_the_steps_of_the_last_attempt_are_in_the_history(box: Box) -> None:
    """Found on both: only the steps of the attempts before it were."""
    box.send_all("a", "b", stream="s")
    a, b = box.claim()
    box.settle(done(a, flags=2 | 8), done(b))
    written = {h.id: h.status for h in box.read("history")}
    assert written == {a.message.id: 1 | 2 | 4 | 8, b.message.id: 1 | 4}


# --- Failure ----------------------------------------------------------------------------------------------------------


@pytest.mark.covers(
    "W1", "W5", "W6", "W8", "W25", "W30", "W31", "W32", "W106", "B30", "C2", "C10", "C12", "V8", "C35", "X2"
)
def test_a_failure_is_written_down_and_its_lease_ends(box: Box) -> None:
    id = box.send("m")
    box.pass_time(seconds=5)
    box.settle(failed(box.claim_one(), ConnectionError("no route")))
    stored = box.message(id)
    assert stored.status == 32769
    assert (stored.attempts, stored.failures, stored.vanished, stored.refunds) == (1, 1, 0, 0)
    assert stored.reason == Reason.TRANSPORT_UNAVAILABLE
    assert stored.claimable_at == box.now + timedelta(seconds=60)
    assert stored.errors == [{"at": box.now, "reason": 1, "text": "ConnectionError: no route"}]
    assert box.read("lease") == []


@pytest.mark.covers("W26", "W27", "W33", "C38", "X14", "C5", "B35")
def test_the_retry_goes_to_whoever_asks_when_it_is_due(box: Box) -> None:
    id = box.send("m")
    box.settle(failed(box.claim_one()))
    box.pass_time(seconds=60)
    box.clock.instant -= timedelta(microseconds=1)
    assert box.claim(worker="two") == []
    box.clock.instant += timedelta(microseconds=1)
    leased = box.claim_one(worker="two")
    assert (leased.message.id, leased.attempt, leased.message.failures) == (id, 2, 1)


@pytest.mark.covers("W9", "W70", "W71", "W73")
def test_flags_are_only_ever_added(box: Box) -> None:
    id = box.send("m", event=True, stream="s")
    box.settle(failed(box.claim_one(), flags=8, retry="immediate"))
    assert box.message(id).status == 1 | 2 | 8 | 32768
    leased = box.claim_one()
    assert leased.message.status == 1 | 2 | 8 | 32768
    box.settle(failed(leased, flags=16, retry="immediate"))
    assert box.message(id).status == 1 | 2 | 8 | 16 | 32768
    box.settle(given_back(box.claim_one()))
    assert box.message(id).status == 1 | 2 | 8 | 16 | 32768


def test_the_last_ten_errors_are_kept(box: Box) -> None:
    id = box.send("m")
    for n in range(13):
        leased = box.claim_one()
        box.settle(failed(leased, f"error {n}", retry=ENDLESS))
        box.pass_time(hours=1)
    errors = box.message(id).errors
    assert [error["text"] for error in errors] == [f"RuntimeError: error {n}" for n in range(3, 13)]
    assert errors[0]["at"] < errors[-1]["at"]


@pytest.mark.covers("X6")
@pytest.mark.parametrize("stream", [None, "s"])
def test_ten_thousand_failures_overflow_nothing(box: Box, stream: str | None) -> None:
    id = box.send("m", stream=stream)
    box.query("update {message} set attempts = 9998, failures = 9998, epoch = 20000, refunds = 100")
    for n in (9999, 10_000, 10_001):
        leased = box.claim_one()
        assert (leased.attempt, leased.epoch) == (n, 20_000 + n - 9998)
        assert box.settle(failed(leased, retry=ENDLESS)) == set()
        stored = box.message(id)
        assert (stored.attempts, stored.failures) == (n, n)
        assert stored.claimable_at == box.now + timedelta(hours=1)
        box.pass_time(hours=1)
    box.settle(dead(box.claim_one()))
    assert [d.failures for d in box.read("dead")] == [10_002]


@pytest.mark.parametrize(
    "text", ["", "\N{PILE OF POO}" * 2000, 'quote " and \\ backslash', "line\nline\t\x7f", "\ud800"]
)
def test_an_error_text_comes_back_as_it_was(box: Box, text: str) -> None:
    id = box.send("m")
    settlement = failed(box.claim_one(), text)
    box.settle(settlement)
    assert [error["text"] for error in box.message(id).errors] == [settlement.error]


# --- Given back -------------------------------------------------------------------------------------------------------


@pytest.mark.covers("X9", "D15", "X2", "X44")
def test_what_was_never_started_is_given_back_and_refunded(box: Box) -> None:
    id = box.send("m", stream="s")
    box.settle(given_back(box.claim_one(), delay=5.0))
    stored = box.message(id)
    assert (stored.attempts, stored.failures, stored.refunds, stored.status) == (0, 0, 1, 1)
    assert stored.claimable_at == box.now + timedelta(seconds=5)
    box.pass_time(seconds=5)
    leased = box.claim_one(worker="two")
    assert leased.attempt == 1
    box.settle(given_back(leased, refund=False), worker="two")
    stored = box.message(id)
    assert (stored.attempts, stored.refunds, stored.claimable_at) == (1, 1, box.now)


@pytest.mark.covers("X44")
def test_a_snooze_is_not_counted_and_no_refund_of_the_engine(box: Box) -> None:
    id = box.send("m")
    box.settle(snoozed(box.claim_one(), 5.0))
    stored = box.message(id)
    assert (stored.attempts, stored.refunds, stored.failures) == (0, 0, 0)


# --- Death ------------------------------------------------------------------------------------------------------------


@pytest.mark.covers("X3", "X46", "C9", "C19", "W17")
def test_a_dead_letter_carries_everything_known(box: Box) -> None:
    deadline = box.now + timedelta(days=1)
    id = box.send({"n": 1}, stream="s", subject="x", headers='{"h":1}', dedupe="k", deadline=deadline)
    created = box.now
    seq, position = box.message(id).seq, box.message(id).position
    for _ in range(4):
        box.settle(failed(box.claim_one(), flags=8, retry="immediate"))
    box.pass_time(seconds=3)
    box.settle(failed(box.claim_one(), TimeoutError("slow"), retry="immediate"), worker="one")

    assert box.messages() == []
    (letter,) = box.read("dead")
    errors = letter.pop("errors")
    assert [error["reason"] for error in errors] == [2, 2, 2, 2, 4]
    assert errors[-1]["text"] == "TimeoutError: slow"
    assert letter == {
        "id": id,
        "queue": QUEUE,
        "seq": seq,
        "type": "order.placed",
        "stream": "s",
        "position": position,
        "subject": "x",
        "dedupe": "k",
        "status": 1 | 8 | 32768,
        "epoch": 5,
        "attempts": 5,
        "failures": 5,
        "vanished": 0,
        "refunds": 0,
        "redrives": 0,
        "reason": Reason.POISON_MESSAGE,
        "last_reason": Reason.TIMEOUT_EXCEEDED,
        "worker": "one",
        "headers": '{"h":1}',
        "body": '{"n": 1}',
        "created_at": created,
        "due_at": None,
        "deadline": deadline,
        "died_at": box.now,
        "fingerprint": fingerprint("TimeoutError: slow", Reason.TIMEOUT_EXCEEDED),
        "held_at": None,
        "held_why": None,
        "stored_at": None,
    }


@pytest.mark.covers("W61", "X3", "C3", "C39")
def test_a_dead_letter_is_never_claimed(box: Box) -> None:
    box.send("m")
    leased = box.claim_one()
    assert box.settle(dead(leased)) == set()
    box.pass_time(days=30)
    assert (box.claim(), box.claim_suspect(), box.recover()) == ([], None, 0)
    # Whoever reports its death again changes nothing.
    before = box.read("dead")
    assert box.settle(dead(leased), failed(leased)) == {leased.message.seq}
    assert box.read("dead") == before


@pytest.mark.covers("X42", "X3")
def test_a_death_is_that_of_one_delivery(box: Box) -> None:
    box.subscribe("ledger", "order.placed")
    box.send("m")
    box.settle(dead(box.claim_one(QUEUE)))
    assert names(box.claim("ledger")) == ["m"]
    assert [d.queue for d in box.read("dead")] == [QUEUE]


# --- Cancelled --------------------------------------------------------------------------------------------------------


@pytest.mark.covers("X41")
def test_a_cancelled_message_is_history_and_no_dead_letter(box: Box) -> None:
    box.send_all("a", "b", stream="s")
    leased = box.claim(run=1)[0]
    assert box.settle(cancelled(leased, ran=2.0)) == set()
    (line,) = box.read("history")
    assert (line.id, line.outcome, line.attempts, line.status) == (leased.message.id, "cancelled", 1, 1)
    assert line.started_at == box.now - timedelta(seconds=2)
    assert box.read("dead") == []
    assert names(box.claim()) == ["b"]


# --- One call for all -------------------------------------------------------------------------------------------------


@pytest.mark.covers("W29", "W39", "C25")
def test_one_call_takes_results_of_every_kind_and_returns_new_work(box: Box) -> None:
    box.send_all("done", "failed", "dead", "cancelled", "released", "back", "asleep")
    work = dict(zip(["d", "f", "x", "c", "r", "b", "s"], box.claim(), strict=True))
    box.send("new")
    batch = box.turn(
        done(work["d"]),
        failed(work["f"]),
        dead(work["x"]),
        cancelled(work["c"]),
        released(work["r"]),
        given_back(work["b"]),
        snoozed(work["s"], 60.0),
    )
    assert batch.lost == frozenset()
    assert sorted(names(batch.work)) == ["back", "new", "released"]
    assert [h.outcome for h in sorted(box.read("history"), key=lambda h: h.outcome)] == ["cancelled", "done"]
    assert [d.body for d in box.read("dead")] == ['"dead"']


@pytest.mark.covers("W29")
def test_a_message_settled_in_a_call_can_be_claimed_by_the_same_call(box: Box) -> None:
    box.send_all("a", "b", stream="s")
    (a,) = box.claim(run=1)
    assert names(box.turn(done(a)).work) == ["b"]


@pytest.mark.covers("W73")
def test_reporting_a_result_again_changes_nothing(box: Box) -> None:
    box.send_all("a", "b")
    a, b = box.claim()
    box.settle(done(a), failed(b))
    before = box.messages(), box.read("history")
    assert box.settle(done(a), failed(b, flags=64)) == {a.message.seq, b.message.seq}
    assert (box.messages(), box.read("history")) == before


def test_the_same_result_twice_in_one_call_counts_once(box: Box) -> None:
    """Found on SQLite: two lines of history, and the stream counted out twice."""
    box.send_all("a", "b", stream="s")
    box.send_all("c", "d")
    a, c, d, _ = box.claim()
    box.settle(done(a), done(a), failed(c), failed(c), done(d), failed(d))
    assert box.stream("s").open == 1
    assert [(h.attempts, h.outcome) for h in box.read("history")] == [(1, "done")] * 2
    (again,) = [m for m in box.messages() if m.body == '"c"']
    assert (again.attempts, again.failures, len(again.errors)) == (1, 1, 1)


def test_a_lost_lease_drops_that_settlement_and_nothing_else(box: Box) -> None:
    box.send_all("a", "b", "c")
    a, b, c = box.claim()
    box.query("delete from {lease} where seq = :seq", seq=b.run)
    lost = box.settle(
        done(a, new("from a")), done(b, new("from b", stream="s", dedupe="k")), failed(c, flags=8)
    )
    assert lost == {b.message.seq}
    assert sorted(m.body for m in box.messages()) == ['"b"', '"c"', '"from a"']
    assert box.read("dedupe") == []
