"""Streams: what blocks them, what lets them go on, in the order and out of it."""

from __future__ import annotations

import pytest

from holdfast.model.work import Leased
from holdfast.store.plans import operator
from tests.store.box import QUEUE, Box, cancelled, dead, done, failed, names, new, paused, released

# --- The matrix -------------------------------------------------------------------------------------------------------


def three(box: Box) -> tuple[Leased, Leased, Leased]:
    """M1, M2 and M3 of one stream in a worker's hands."""
    box.send_all("M1", "M2", "M3", stream="s")
    m1, m2, m3 = box.claim()
    return m1, m2, m3


@pytest.mark.covers("W38", "W39", "W40", "W41", "W42", "W43", "W44", "X1", "W37")
def test_a_failure_and_releases_in_one_call(box: Box) -> None:
    m1, m2, m3 = three(box)
    batch = box.turn(failed(m1), released(m2), released(m3))
    assert names(batch.work) == ["M2", "M3"]
    m2, m3 = batch.work
    assert [m.status for m in (m2.message, m3.message)] == [1, 1]
    assert [each.attempt for each in batch.work] == [1, 1]
    assert box.settle(done(m2), done(m3)) == set()
    (left,) = box.messages()
    assert (left.body, left.failures, left.head, left.position is not None) == ('"M1"', 1, True, True)
    assert box.stream("s").open == 1
    box.pass_time(seconds=60)
    assert names(box.claim()) == ["M1"]


@pytest.mark.covers("W38", "W40", "W41", "W42", "X1")
def test_a_release_ends_the_lease_and_changes_nothing_else(box: Box) -> None:
    m1, m2, _ = three(box)
    box.settle(failed(m1), released(m2))
    assert box.read("lease") == []
    stored = box.message(m2.message.id)
    assert (stored.status, stored.attempts, stored.failures, stored.refunds, stored.errors) == (
        1,
        0,
        0,
        0,
        None,
    )
    assert (stored.stream, stored.position, stored.claimable_at) == ("s", None, box.now)
    assert names(box.claim(worker="another")) == ["M2"]


@pytest.mark.covers("W46", "W108", "X1", "W81", "W102")
def test_row_1_a_scheduled_retry_blocks_what_was_not_released(box: Box) -> None:
    m1, _, _ = three(box)
    box.settle(failed(m1))
    box.send("M4", stream="s")
    assert box.claim() == []


@pytest.mark.covers("W109")
def test_the_stream_unblocks_when_the_time_of_the_retry_has_come(box: Box) -> None:
    m1, _, _ = three(box)
    box.settle(failed(m1))
    box.pass_time(seconds=60)
    m1, m2, m3 = box.claim()
    assert names([m1, m2, m3]) == ["M1", "M2", "M3"]
    assert (m1.attempt, m2.attempt) == (2, 1)


@pytest.mark.covers("W47", "X1")
def test_row_2_what_was_released_goes_on_without_the_blocker(box: Box) -> None:
    m1, m2, _ = three(box)
    box.settle(failed(m1), released(m2))
    assert names(box.claim()) == ["M2"]


@pytest.mark.covers("W48", "X1", "X4")
def test_row_3_a_parked_blocker_lets_pass_what_was_released(box: Box) -> None:
    m1, m2, _ = three(box)
    box.settle(failed(m1), released(m2))
    box.park(m1.message.id)
    assert names(box.claim()) == ["M2"]
    box.pass_time(days=1000)
    assert box.claim() == []


@pytest.mark.covers("W49", "W45", "X1")
def test_row_4_a_leased_head_blocks(box: Box) -> None:
    box.send_all("M1", "M2", stream="s")
    box.claim(run=1)
    assert box.claim(worker="two") == []


@pytest.mark.covers("W50", "X1")
def test_row_5_a_completed_head_lets_the_next_one_go(box: Box) -> None:
    box.send_all("M1", "M2", stream="s")
    box.settle(*map(done, box.claim(run=1)))
    assert names(box.claim(worker="two")) == ["M2"]


@pytest.mark.covers("W52", "X1")
def test_a_selective_release(box: Box) -> None:
    m1, m2, m3 = three(box)
    box.settle(failed(m1), released(m3))
    assert names(box.claim()) == ["M3"]
    assert box.message(m2.message.id).head is False
    box.pass_time(seconds=60)
    assert names(box.claim()) == ["M1", "M2"]


# --- Strict or available ----------------------------------------------------------------------------------------------


@pytest.mark.covers("X1", "W107", "W51", "W37", "W81")
def test_available_sets_the_failed_head_aside(box: Box) -> None:
    m1, _, _ = three(box)
    box.settle(failed(m1, ordering="available"))
    stored = box.message(m1.message.id)
    assert (stored.head, stored.position, stored.stream) == (True, None, "s")
    assert box.stream("s").open == 2
    box.send("M4", stream="s")
    assert names(box.claim()) == ["M2", "M3", "M4"]
    # It may run beside the head of its stream.
    box.pass_time(seconds=60)
    assert names(box.claim(worker="two")) == ["M1"]


@pytest.mark.covers("X37")
def test_the_death_of_a_message_set_aside_halts_nothing(box: Box) -> None:
    m1, _, _ = three(box)
    box.settle(failed(m1, ordering="available"))
    box.settle(*map(done, box.claim()))
    box.pass_time(seconds=60)
    box.settle(dead(box.claim_one(), on_dead="halt"))
    assert box.stream("s").halted_by is None
    box.send("M4", stream="s")
    assert names(box.claim()) == ["M4"]


def test_a_message_set_aside_is_settled_without_the_stream(box: Box) -> None:
    m1, _, _ = three(box)
    box.settle(failed(m1, ordering="available"))
    box.pass_time(seconds=60)
    work = box.claim()
    assert names(work) == ["M2", "M1", "M3"]
    m1 = work[1]
    assert m1.message.position is None
    assert (m1.run, m1.run_epoch) == (m1.message.seq, m1.epoch)
    assert box.settle(done(m1)) == set()
    assert box.stream("s").open == 2
    assert box.settle(done(work[0]), done(work[2])) == set()


def test_one_that_fails_out_of_the_order_stays_out_of_it(box: Box) -> None:
    m1, _, _ = three(box)
    box.settle(failed(m1, ordering="available"))
    box.settle(*map(done, box.claim()))
    box.pass_time(seconds=60)
    box.settle(failed(box.claim_one()))
    assert box.stream("s").open == 0
    box.send("M4", stream="s")
    assert names(box.claim()) == ["M4"]


# --- Death ------------------------------------------------------------------------------------------------------------


@pytest.mark.covers("X37", "D5")
@pytest.mark.parametrize("end", [dead, cancelled])
def test_a_stream_goes_on_after_the_death_of_its_head(box: Box, end: object) -> None:
    m1, _, _ = three(box)
    box.settle(end(m1))  # type: ignore[operator]
    assert box.stream("s").open == 2
    assert names(box.claim()) == ["M2", "M3"]


@pytest.mark.covers("X37")
def test_a_halted_stream_stops_and_new_messages_wait(box: Box) -> None:
    m1, _, _ = three(box)
    box.pass_time(seconds=5)
    box.settle(dead(m1, on_dead="halt"))
    stream = box.stream("s")
    assert (stream.halted_by, stream.halted_at, stream.open) == (str(m1.message.id), box.now, 2)
    box.send("M4", stream="s")
    box.send("other", stream="t")
    assert names(box.claim()) == ["other"]
    assert box.stream("s").open == 3
    assert [m.head for m in box.messages() if m.stream == "s"] == [False, False, False]


@pytest.mark.covers("X37")
@pytest.mark.parametrize("publish", [Box.publish, Box.publish_deferred])
def test_an_emptied_halted_stream_stays_halted(box: Box, publish: object) -> None:
    box.send("M1", stream="s")
    box.settle(dead(box.claim_one(), on_dead="halt"))
    publish(box, new("M2", stream="s"))  # type: ignore[operator]
    assert box.claim() == []


@pytest.mark.covers("X37")
def test_a_run_up_to_the_death_that_halts(box: Box) -> None:
    m1, m2, m3 = three(box)
    box.settle(done(m1), dead(m2, on_dead="halt"))
    assert box.stream("s").halted_by == str(m2.message.id)
    assert box.stream("s").open == 1
    assert box.claim() == []
    assert box.message(m3.message.id).attempts == 0


@pytest.mark.covers("X37", "X42")
def test_a_halted_subscriber_does_not_stop_the_others(box: Box) -> None:
    box.subscribe("ledger", "order.placed")
    box.send_all("a", "b", stream="s")
    box.settle(dead(box.claim(QUEUE, run=1)[0], on_dead="halt"))
    assert names(box.claim(QUEUE, "ledger")) == ["a", "b"]
    assert box.stream("s", "ledger").halted_by is None


# --- Emitted ----------------------------------------------------------------------------------------------------------


def test_what_is_emitted_into_the_own_stream_goes_behind_what_waits(box: Box) -> None:
    m1, _, _ = three(box)
    box.settle(done(m1, new("e1", stream="s"), new("e2", stream="s")))
    assert names(box.claim()) == ["M2", "M3", "e1", "e2"]


def test_what_is_emitted_into_an_emptied_stream_becomes_its_head(box: Box) -> None:
    box.send("M1", stream="s")
    box.settle(done(box.claim_one(), new("e1", stream="s"), new("e2", stream="s"), new("f", stream="t")))
    assert names(box.claim(run=1)) == ["e1", "f"]


def test_what_is_emitted_into_a_halted_stream_waits(box: Box) -> None:
    box.send("M1", stream="s")
    box.settle(dead(box.claim_one(), on_dead="halt"))
    box.send("x")
    box.settle(done(box.claim_one(), new("e", stream="s")))
    assert box.claim() == []
    assert box.stream("s").open == 1


# --- A settlement that pauses its stream ------------------------------------------------------------------------------


@pytest.mark.covers("X58")
def test_a_paused_head_keeps_its_place_and_is_no_head(box: Box) -> None:
    """Nothing of the stream is handed out, new messages wait, nothing is counted; resumed, it goes on in its order."""
    box.send_all("1", "2", stream="s")
    (m1,) = box.claim(run=1)
    assert box.settle(paused(m1)) == set()
    assert (box.stream("s").halted_by, box.stream("s").open) == ("instance: paused", 2)
    first, second = sorted(box.messages(), key=lambda each: each.seq)
    assert (first.head, first.position, first.attempts, first.failures, first.refunds) == (
        False, m1.message.position, 0, 0, 0,
    )  # fmt: skip
    assert not second.head
    box.send("3", stream="s")
    assert box.claim() == []
    box.store.run(operator.resume(QUEUE, "s"))
    assert names(box.claim()) == ["1", "2", "3"]


def test_a_pause_in_a_run_ends_what_came_before_it_and_gives_back_the_rest(box: Box) -> None:
    box.send_all("1", "2", "3", stream="s")
    m1, m2, _ = box.claim()
    assert box.settle(done(m1), paused(m2)) == set()
    assert box.read("lease") == []
    assert box.stream("s").open == 2
    assert box.claim() == []
    box.store.run(operator.resume(QUEUE, "s"))
    assert [(each.message.body, each.attempt) for each in box.claim()] == [('"2"', 1), ('"3"', 1)]


def test_a_pause_under_a_lost_lease_changes_nothing(box: Box) -> None:
    box.send("1", stream="s")
    (m1,) = box.claim(lease=1.0)
    box.pass_time(seconds=5)
    box.recover()
    assert box.settle(paused(m1)) == {m1.message.seq}
    assert box.stream("s").halted_by is None
    assert [each.head for each in box.messages()] == [True]


def test_a_message_without_a_stream_that_pauses_is_tried_again_later(box: Box) -> None:
    box.send("1")
    (m1,) = box.claim()
    box.settle(paused(m1))
    assert box.claim() == []
    box.pass_time(seconds=61)
    assert names(box.claim()) == ["1"]
