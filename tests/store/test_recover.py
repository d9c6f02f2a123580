"""Recovering what a worker left behind: after a lapse, or at once on the word of its supervisor."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.store.plans import engine
from tests.store.box import QUEUE, Box, done, failed, given_back, moved, names


def counters(box: Box) -> list[tuple[int, int]]:
    """(attempts, vanished) of all messages, in their order."""
    return [(m.attempts, m.vanished) for m in box.messages()]


# --- A lapse ----------------------------------------------------------------------------------------------------------


@pytest.mark.covers("D12", "D13", "D14", "X13", "X11")
def test_a_lapsed_lease_counts_as_an_attempt_that_vanished(box: Box) -> None:
    id = box.send("m")
    box.claim_one(lease=30.0)
    box.pass_time(seconds=30)
    assert box.recover() == 0
    box.clock.instant += timedelta(microseconds=1)
    assert box.recover() == 1
    stored = box.message(id)
    assert (stored.attempts, stored.vanished, stored.failures, stored.claimable_at) == (1, 1, 0, box.now)
    assert box.read("lease") == []
    assert box.recover() == 0


@pytest.mark.covers("B38", "D61")
def test_the_work_of_a_crashed_process_is_found_again_and_nothing_else(box: Box) -> None:
    box.send_all(*"ABCDE")
    work = box.claim()
    box.settle(*map(done, work[:2]))
    box.pass_time(minutes=1)
    assert box.recover() == 3
    found = []
    while leased := box.claim_suspect():
        found += names([leased])
        box.settle(done(leased))
    assert found == ["C", "D", "E"]
    assert len(box.read("history")) == 5


def test_a_lapsed_run_counts_for_all_of_it_and_for_no_more(box: Box) -> None:
    """Nobody can know which of them had started."""
    box.send_all(*range(5), stream="s")
    box.claim(run=3)
    box.pass_time(minutes=1)
    assert box.recover() == 1
    assert counters(box) == [(1, 1), (1, 1), (1, 1), (0, 0), (0, 0)]
    assert [m.head for m in box.messages()] == [True, False, False, False, False]


def test_after_a_move_only_the_rest_of_the_run_counts(box: Box) -> None:
    box.send_all(*range(4), stream="s")
    run = box.claim(run=3)
    box.settle(done(run[0]), moves=[(run[0].run, run[1].message.seq)])
    box.pass_time(minutes=1)
    assert box.recover() == 1
    assert counters(box) == [(1, 1), (1, 1), (0, 0)]
    assert box.settle(done(moved(run[1:])[0])) == {run[1].message.seq}


def test_only_what_lapsed_is_recovered(box: Box) -> None:
    box.send_all("a", "b")
    box.claim(heads=1, lease=10.0)
    box.claim(heads=1, lease=100.0)
    box.pass_time(seconds=50)
    assert box.recover() == 1
    assert counters(box) == [(1, 1), (0, 0)]


def test_a_limit_to_what_is_recovered_at_once(box: Box) -> None:
    box.send_all(*range(5))
    box.claim()
    box.pass_time(minutes=1)
    assert [box.recover(count=2) for _ in range(4)] == [2, 2, 1, 0]


def test_the_oldest_are_recovered_first(box: Box) -> None:
    box.send_all(*range(5))
    box.claim()
    box.pass_time(minutes=1)
    box.recover(count=2)
    assert counters(box) == [(1, 1), (1, 1), (0, 0), (0, 0), (0, 0)]


# --- Suspects ---------------------------------------------------------------------------------------------------------


@pytest.mark.covers("X39")
def test_suspects_are_handed_out_one_at_a_time_and_never_among_others(box: Box) -> None:
    box.send_all("a", "b", "c")
    box.send_all("s1", "s2", stream="s")
    box.claim()
    box.pass_time(minutes=1)
    box.recover()
    box.send("innocent")
    assert names(box.claim()) == ["innocent"]
    suspect = box.claim_suspect()
    assert suspect is not None
    assert names([suspect]) == ["a"]
    assert suspect.message.vanished == 1
    second = box.claim_suspect(worker="two")
    assert second is not None
    assert names([second]) == ["b"]


@pytest.mark.covers("X39")
def test_a_suspect_of_a_stream_comes_without_followers(box: Box) -> None:
    box.send_all("s1", "s2", "s3", stream="s")
    box.claim(run=1)
    box.pass_time(minutes=1)
    box.recover()
    assert box.claim() == []
    suspect = box.claim_suspect()
    assert suspect is not None
    assert names([suspect]) == ["s1"]
    (lease,) = box.read("lease")
    assert lease.run_end is None
    box.settle(done(suspect))
    assert names(box.claim()) == ["s2", "s3"]


@pytest.mark.covers("X39")
def test_the_oldest_suspect_comes_first_whatever_its_queue(box: Box) -> None:
    box.subscribe("ledger", "other")
    box.send("old", type="other")
    box.claim("ledger", lease=10.0)
    box.pass_time(seconds=20)
    box.recover()
    box.send("new")
    box.claim(QUEUE, lease=10.0)
    box.pass_time(seconds=20)
    box.recover()
    for expected in ("old", "new"):
        suspect = box.claim_suspect(QUEUE, "ledger")
        assert suspect is not None
        assert names([suspect]) == [expected]


@pytest.mark.covers("X39")
@pytest.mark.parametrize("end", [done, failed])
def test_what_came_back_is_no_suspect_any_more(box: Box, end: object) -> None:
    box.send("m")
    box.claim()
    box.pass_time(minutes=1)
    box.recover()
    suspect = box.claim_suspect()
    assert suspect is not None
    box.settle(end(suspect))  # type: ignore[operator]
    box.pass_time(hours=1)
    assert box.claim_suspect() is None
    assert [m.vanished for m in box.messages()] == ([] if end is done else [0])
    assert len(box.claim()) == (0 if end is done else 1)


@pytest.mark.covers("X39")
def test_a_suspect_given_back_unstarted_stays_one(box: Box) -> None:
    box.send("m")
    box.claim()
    box.pass_time(minutes=1)
    box.recover()
    suspect = box.claim_suspect()
    assert suspect is not None
    box.settle(given_back(suspect, delay=5.0))
    batch = box.turn(peek=True)
    assert (batch.work, batch.suspects, batch.next_due) == ([], False, box.now + timedelta(seconds=5))
    assert box.claim_suspect() is None
    box.pass_time(seconds=5)
    assert box.claim_suspect() is not None


def test_a_peek_tells_that_suspects_wait(box: Box) -> None:
    box.subscribe("ledger", "other")
    box.send("m")
    box.claim()
    assert box.turn(peek=True).suspects is False
    box.pass_time(minutes=1)
    box.recover()
    batch = box.turn(peek=True)
    assert (batch.suspects, batch.next_due) == (True, None)
    assert box.turn(peek=True, queues=("ledger",)).suspects is False
    box.pause()
    assert box.turn(peek=True).suspects is False
    assert box.claim_suspect() is None


@pytest.mark.covers("X39")
def test_vanished_counts_hand_overs_in_a_row(box: Box) -> None:
    id = box.send("m")
    box.claim()
    for n in (1, 2, 3):
        box.pass_time(minutes=1)
        box.recover()
        assert (box.message(id).attempts, box.message(id).vanished) == (n, n)
        suspect = box.claim_suspect()
        assert suspect is not None
        assert suspect.attempt == n + 1


# --- The word of a supervisor -----------------------------------------------------------------------------------------


@pytest.mark.covers("X39", "X44")
def test_a_supervisor_knows_what_had_started(box: Box) -> None:
    box.send_all("running", "ended", "waiting")
    running, ended, _ = box.claim(worker="child")
    box.send("other's")
    box.claim(worker="other")
    assert box.recover("child", running=[running.message.seq], ended=[ended.message.seq]) == 3
    assert counters(box) == [(1, 1), (1, 0), (0, 0), (0, 0)]
    assert names(box.claim(worker="two")) == ["ended", "waiting"]


@pytest.mark.covers("X39")
def test_in_a_run_only_what_was_running_is_a_suspect(box: Box) -> None:
    box.send_all(*range(4), stream="s")
    run = box.claim(worker="child")
    assert box.recover("child", running=[run[1].message.seq], ended=[run[0].message.seq]) == 1
    assert counters(box) == [(1, 0), (1, 1), (0, 0), (0, 0)]
    assert names(box.claim()) == [0]


def test_the_leases_of_others_are_left_alone(box: Box) -> None:
    box.send_all("a", "b")
    box.claim(heads=1, worker="child")
    box.claim(heads=1, worker="other")
    assert box.recover("child") == 1
    (lease,) = box.read("lease")
    assert lease.worker == box.worker("other")


def test_what_a_worker_still_knows_is_kept(box: Box) -> None:
    """After an exchange whose answer was lost a worker gives back all that it has not heard of."""
    box.send_all("known", "lost on the way")
    known, _ = box.claim()
    assert box.recover("one", known=[known.run]) == 1
    assert [lease.seq for lease in box.read("lease")] == [known.run]
    assert counters(box) == [(0, 0), (0, 0)]
    assert names(box.claim(worker="two")) == ["lost on the way"]
    assert box.settle(done(known)) == set()


def test_what_was_handed_back_unstarted_cannot_be_settled_by_the_dead(box: Box) -> None:
    box.send("m")
    leased = box.claim_one(worker="child")
    box.recover("child")
    again = box.claim_one(worker="next")
    assert again.epoch > leased.epoch
    assert again.attempt == 1
    assert box.settle(done(leased), worker="child") == {leased.message.seq}


# --- An announced stop ------------------------------------------------------------------------------------------------


@pytest.mark.covers("X39")
def test_a_worker_that_announced_its_stop_makes_nobody_a_suspect(box: Box) -> None:
    box.send_all(*range(3), stream="s")
    box.claim(worker="stopping")
    box.announce_stop("stopping")
    box.pass_time(minutes=1)
    assert box.recover() == 1
    assert counters(box) == [(1, 0)] * 3
    assert names(box.claim()) == [0, 1, 2]


@pytest.mark.covers("X39")
def test_nor_does_the_word_of_its_supervisor(box: Box) -> None:
    box.send_all("running", "waiting")
    running, _ = box.claim(worker="stopping")
    box.announce_stop("stopping")
    assert box.recover("stopping", running=[running.message.seq]) == 2
    assert counters(box) == [(1, 0), (0, 0)]


def test_a_worker_that_holds_nothing_is_forgotten(box: Box) -> None:
    box.send("m")
    box.claim(worker="busy")
    for name in ("busy", "idle"):
        number = box.worker(name)
        box.store.run(engine.retire_worker(number))
    assert [w.name for w in box.read("worker")] == ["busy"]
