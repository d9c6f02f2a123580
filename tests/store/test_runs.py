"""A run: a head and the next messages of its stream under one lease, settled from the front."""

from __future__ import annotations

import pytest

from holdfast.model.work import Leased
from tests.store.box import QUEUE, Box, dead, done, failed, given_back, moved, names, released


def run_of(box: Box, count: int = 4, **report: object) -> list[Leased]:
    box.send_all(*range(count), stream="s")
    work = box.claim(**report)  # type: ignore[arg-type]
    assert names(work) == list(range(min(count, int(report.get("run", 50)))))  # type: ignore[call-overload]
    return work


@pytest.mark.covers("D22", "W45", "W49")
def test_a_run_is_one_lease_and_nobody_else_gets_any_of_the_stream(box: Box) -> None:
    run = run_of(box)
    assert {(each.run, each.run_epoch) for each in run} == {(run[0].message.seq, 1)}
    (lease,) = box.read("lease")
    assert (lease.seq, lease.run_end) == (run[0].message.seq, run[-1].message.position)
    box.send("new", stream="s")
    assert box.claim(worker="two") == []


@pytest.mark.covers("W45", "W49")
def test_behind_a_leased_head_nothing_is_claimable(box: Box) -> None:
    run_of(box, 3, run=1)
    assert box.claim(worker="two") == []


def test_followers_have_their_own_attempts(box: Box) -> None:
    run = run_of(box, 3)
    box.settle(done(run[0]), failed(run[1], retry="immediate"))
    run = box.claim()
    assert [(n, each.attempt, each.epoch) for n, each in zip(names(run), run, strict=True)] == [
        (1, 2, 2),
        (2, 1, 1),
    ]


def test_a_run_done_at_once_leaves_an_empty_stream(box: Box) -> None:
    run = run_of(box)
    assert box.settle(*map(done, run)) == set()
    assert (box.messages(), box.read("lease"), box.stream("s").open) == ([], [], 0)


def test_the_rest_goes_on_under_the_same_lease(box: Box) -> None:
    run = run_of(box)
    (before,) = box.read("lease")
    box.pass_time(seconds=5)
    assert box.settle(*map(done, run[:2]), moves=[(run[0].run, run[2].message.seq)]) == set()
    (lease,) = box.read("lease")
    assert (lease.seq, lease.epoch) == (run[2].message.seq, run[2].epoch)
    assert (lease.until, lease.run_end, lease.worker) == (before.until, before.run_end, before.worker)
    assert box.claim(worker="two") == []
    rest = moved(run[2:])
    assert box.renew(*rest) == (set(), set())
    assert box.settle(*map(done, rest)) == set()
    assert [h.attempts for h in box.read("history")] == [1, 1, 1, 1]


def test_without_a_move_the_rest_is_given_back_untouched(box: Box) -> None:
    run = run_of(box)
    box.settle(done(run[0]))
    assert [(m.attempts, m.vanished, m.refunds, m.head) for m in box.messages()] == [
        (0, 0, 0, True),
        (0, 0, 0, False),
        (0, 0, 0, False),
    ]
    again = box.claim(worker="two")
    assert names(again) == [1, 2, 3]
    assert [each.attempt for each in again] == [1, 1, 1]


def test_what_was_given_back_cannot_be_settled_under_the_old_lease(box: Box) -> None:
    run = run_of(box)
    box.settle(done(run[0]))
    again = box.claim(worker="two")
    assert box.settle(*map(done, run[1:])) == {each.message.seq for each in run[1:]}
    assert box.settle(*map(done, again), worker="two") == set()


@pytest.mark.covers("W46", "W108")
def test_the_first_failure_of_a_strict_stream_ends_the_run(box: Box) -> None:
    run = run_of(box)
    box.settle(done(run[0]), failed(run[1]))
    assert box.claim() == []
    box.pass_time(seconds=60)
    assert names(box.claim()) == [1, 2, 3]


def test_a_failure_set_aside_lets_the_run_go_on(box: Box) -> None:
    run = run_of(box)
    box.settle(failed(run[0], ordering="available"), moves=[(run[0].run, run[1].message.seq)])
    rest = moved(run[1:])
    assert box.settle(*map(done, rest)) == set()
    box.pass_time(seconds=60)
    assert names(box.claim()) == [0]


def test_a_death_lets_the_run_go_on(box: Box) -> None:
    run = run_of(box)
    box.settle(done(run[0]), dead(run[1]), moves=[(run[0].run, run[2].message.seq)])
    assert box.settle(*map(done, moved(run[2:]))) == set()
    assert [d.body for d in box.read("dead")] == ["1"]


def test_a_run_can_be_given_back_whole(box: Box) -> None:
    run = run_of(box)
    box.settle(*map(given_back, run))
    assert [(m.attempts, m.refunds) for m in box.messages()] == [(0, 1)] * 4
    assert names(box.claim(worker="two")) == [0, 1, 2, 3]


def test_a_run_moves_several_times(box: Box) -> None:
    run = run_of(box, 5)
    while run:
        rest = run[1:]
        box.settle(done(run[0]), moves=[(run[0].run, rest[0].message.seq)] if rest else [])
        run = moved(rest) if rest else []
    assert box.messages() == []


def test_a_move_of_a_run_that_is_lost_moves_nothing(box: Box) -> None:
    run = run_of(box)
    box.pass_time(minutes=1)
    box.recover()
    lost = box.settle(done(run[0]), moves=[(run[0].run, run[1].message.seq)])
    assert lost == {run[0].message.seq}
    assert box.read("lease") == []


@pytest.mark.parametrize("how", ["later", "parked", "suspect"])
def test_a_follower_that_cannot_be_handed_out_ends_the_run_before_it(box: Box, how: str) -> None:
    ids = box.send_all(*range(4), stream="s")
    if how == "parked":
        box.park(ids[2])
    elif how == "suspect":
        box.query("update {message} set vanished = 1 where id = :id", id=str(ids[2]))
    else:
        run = box.claim()
        box.settle(done(run[0]), given_back(run[1]), given_back(run[2], delay=60.0))
    run = box.claim()
    assert names(run) == ([1] if how == "later" else [0, 1])
    (lease,) = box.read("lease")
    assert lease.run_end == run[-1].message.position


@pytest.mark.covers("W52")
def test_a_message_released_from_the_middle_of_a_run(box: Box) -> None:
    run = run_of(box)
    box.settle(failed(run[0]), released(run[2]))
    assert names(box.claim()) == [2]
    assert [(m.body, m.head, m.position is None) for m in box.messages()] == [
        ("0", True, False),
        ("1", False, False),
        ("2", True, True),
        ("3", False, False),
    ]


def test_several_runs_in_one_batch(box: Box) -> None:
    for stream in "abc":
        box.send_all(*(f"{stream}{n}" for n in range(3)), stream=stream)
    work = box.claim()
    assert names(work) == ["a0", "b0", "c0", "a1", "a2", "b1", "b2", "c1", "c2"]
    runs = {stream: [each for each in work if each.message.stream == stream] for stream in "abc"}
    a, b, c = runs["a"], runs["b"], runs["c"]
    box.settle(*map(done, a), done(b[0]), failed(c[0]), moves=[(b[0].run, b[1].message.seq)])
    assert [(s.name, s.open) for s in box.read("stream") if s.queue == QUEUE] == [
        ("a", 0),
        ("b", 2),
        ("c", 3),
    ]
    assert box.claim(worker="two") == []
    assert box.settle(*map(done, moved(b[1:]))) == set()


def test_a_follower_is_not_settled_without_its_head(box: Box) -> None:
    """The lease stands on the head: whoever settles around it would let the stream overtake itself."""
    run = run_of(box)
    assert box.settle(done(run[1])) == {run[1].message.seq}
    assert box.settle(released(run[3])) == {run[3].message.seq}
    assert box.settle(*map(done, run)) == set()
