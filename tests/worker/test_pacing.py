"""What a worker asks for, holds and hands in: tables and properties. The simulation puts it all together."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.message import Message
from holdfast.model.work import Batch, Found, Leased, Look, Outcome, Report, Share
from holdfast.rules import delivery, holding
from holdfast.rules import pacing as rule
from holdfast.rules.asking import FAIR_MIN
from holdfast.rules.families import ASKED_MAX, PASSED_MAX, QUIET_KEPT
from holdfast.rules.lanes import HORIZON, Lane, Limit, Stop
from holdfast.rules.policy import HandlerPolicy
from holdfast.rules.rhythm import BUSY_TURNS, IDLE_AFTER, IDLE_POLL, Rhythm
from holdfast.settings import Settings
from tests.rules.purity import watched

NOW = datetime(2026, 1, 1, tzinfo=UTC)
Pacing = watched(rule.Pacing)  # it looks at nothing but its arguments


def leased(
    seq: int, *, queue: str = "q", run: int | None = None, epoch: int = 1, body: str = "{}", **more: Any
) -> Leased:
    """A message of its own, or one that follows `run` in a stream."""
    stream = "s" if run is not None or more.pop("ordered", False) else None
    fields: dict[str, Any] = {
        "seq": seq, "id": UUID(int=seq), "queue": queue, "type": "t", "body": body, "stream": stream,
        "position": seq if stream else None, "subject": None, "headers": None, "status": 1, "attempts": 0,
        "failures": 0, "vanished": 0, "refunds": 0, "created_raw": 0, "due_raw": None,
        "deadline_raw": None, **more,
    }  # fmt: skip
    return Leased(Message(**fields), epoch, fields["attempts"] + 1, run or seq, epoch)


def pacing(concurrency: int = 10, **settings: Any) -> Pacing:
    return Pacing({"q": Limit(concurrency, timeout=100.0)}, Settings(**settings))


def batch_of(work: Sequence[Leased] = (), **more: Any) -> Batch:
    """A batch as a store makes it."""
    found: dict[str, list[Leased]] = {}
    for each in work:
        found.setdefault(each.message.queue, []).append(each)
    shares = {
        queue: Share(
            messages=len(its),
            heads=sum(each.run == each.message.seq for each in its),
            ordered=any(each.message.position is not None for each in its),
            bytes=sum(len(each.message.body) for each in its),
        )
        for queue, its in found.items()
    }
    return Batch(NOW, work, shares, **more)


def take(p: Pacing, *work: Leased, now: float = 0.0, **batch: Any) -> Report:
    report = p.report(1, now)
    p.receive(report, batch_of(work, **batch), now)
    return report


def start(p: Pacing, now: float = 0.0) -> list[Lane]:
    lanes = list(p.starts(0.0))
    for lane in lanes:
        p.begin(lane, now)
    return lanes


def finish(p: Pacing, lane: Lane, ending: delivery.Ending | None = None) -> None:
    assert lane.running is not None
    ending = ending or delivery.Returned()
    p.end(lane, delivery.conclude(lane.running, ending, HandlerPolicy(), NOW, 0.5))


def run_through(p: Pacing, now: float = 0.0, ran: float = 0.0) -> int:
    """Let everything that may start run to its end; answers how many messages that were."""
    ended = 0
    for lane in list(p.starts(0.0)):
        while p.begin(lane, now) is not None:
            finish(p, lane, delivery.Returned(ran=ran))
            ended += 1
    return ended


def run_of(*seqs: int) -> list[Leased]:
    return [leased(seq, run=seqs[0]) for seq in seqs]


# --- Asking -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("concurrency", "held", "asked"),
    [(10, 0, 10), (10, 4, 6), (10, 10, None), (1, 0, 1), (1, 1, None), (5000, 0, 500)],
)
def test_it_asks_for_what_it_can_run_at_once(concurrency: int, held: int, asked: int | None) -> None:
    p = pacing(concurrency)
    take(p, *(leased(n) for n in range(held)))
    report = p.report(1, 0.0)
    assert [want.heads for want in report.want] == ([] if asked is None else [asked])


def test_it_asks_for_nothing_beyond_its_bytes() -> None:
    p = pacing(100, claim_bytes=1000)
    take(p, leased(1, body="x" * 600))
    assert p.report(1, 0.0).bytes_max == 400
    take(p, leased(2, body="x" * 400))
    assert p.report(1, 0.0).want == []
    for lane in start(p):
        finish(p, lane)
    assert p.report(1, 0.0).bytes_max == 1000


def test_it_never_holds_more_than_two_claims() -> None:
    p = pacing(5000, claim=50)
    for first in range(0, 200, 50):
        report = p.report(1, 0.0)
        p.receive(report, batch_of([leased(n) for n in range(first, first + report.total)]), 0.0)
    assert p.held == 100
    assert p.report(1, 0.0).want == []


def test_a_fast_handler_holds_what_it_needs_for_a_moment() -> None:
    p = pacing(10)
    for n in range(1000):
        take(p, leased(n), now=n / 1000)
        run_through(p, n / 1000, ran=0.001)
    (want,) = p.report(1, 1.0).want
    assert want.heads == pytest.approx(10 + 1000 * HORIZON, rel=0.2)


def test_a_slow_handler_hoards_nothing() -> None:
    p = pacing(10)
    for n in range(20):
        take(p, leased(n), now=n * 5.0)
        run_through(p, n * 5.0, ran=5.0)
    report = p.report(1, 100.0)
    assert [(want.heads, want.run) for want in report.want] == [(11, 1)]


@pytest.mark.parametrize(
    ("seconds", "run"), [(None, 1), (0.0, 50), (0.001, 50), (0.025, 11), (0.1, 3), (10.0, 1)]
)
def test_runs_are_as_long_as_a_moment(seconds: float | None, run: int) -> None:
    p = pacing()
    if seconds is not None:
        take(p, leased(1))
        (lane,) = start(p)
        finish(p, lane, delivery.Returned(ran=seconds))
    assert [want.run for want in p.report(1, 0.0).want] == [run]


def test_a_queue_whose_calls_take_whole_runs_asks_for_long_ones_from_the_start() -> None:
    p = Pacing({"q": Limit(10, ahead=False, run=500)}, Settings(run=20))
    assert [want.run for want in p.report(1, 0.0).want] == [50]


@pytest.mark.parametrize("takes", [1, 2, 4])
def test_what_such_a_call_leaves_of_its_run_goes_back(takes: int) -> None:
    """It needs what the call has stored, so it is not called before that is stored: it is claimed again."""
    p = Pacing({"q": Limit(10, ahead=False, run=500)}, Settings())
    take(p, *run_of(1, 2, 3, 4))
    (lane,) = p.starts(0.0)
    run = p.begin_run(lane, 0.0, takes, 1_000_000)
    assert len(run) == takes
    for _ in run:
        finish(p, lane)
    assert p.begin_run(lane, 0.0, 100, 1_000_000) == []
    report = p.report(1, 1.0)
    assert [each.leased.message.seq for each in report.settlements] == [1, 2, 3, 4][:takes]
    assert report.moves == [], "without a move the rest is given back"
    assert p.held == 0


def test_heads_are_fewer_where_each_brings_a_run() -> None:
    p = pacing(100)
    take(p, leased(0))
    run_through(p, ran=0.0025)
    work = [each for head in range(1, 100, 10) for each in run_of(*range(head, head + 10))]
    take(p, *work)
    assert run_through(p, ran=0.0025) == 100
    assert [want.heads for want in p.report(1, 0.0).want] == [100], "as many as can run at once"
    p.paces["q"].busy = 1.0
    assert [want.heads for want in p.report(1, 0.0).want] == [20], "200 messages, 10 for each head"
    p.paces["q"].busy = 30.0
    assert [want.heads for want in p.report(1, 0.0).want] == [60], (
        "they wait for something: more at once help"
    )


def test_a_few_streams_share_all_there_is_room_for() -> None:
    p = pacing(100)
    take(p, leased(0))
    run_through(p, ran=0.0001)
    p.paces["q"].busy = 1.0
    assert p.report(1, 0.0).want[0].run == 50, "of many streams each gets a share"
    take(p, *run_of(*range(1, 51)), *run_of(*range(51, 101)))
    run_through(p, ran=0.0001)
    assert p.report(1, 0.0).want[0].run == 250, "two streams had work: they share 500"
    take(p, *(leased(n, position=n) for n in range(200, 700)))
    assert p.report(1, 0.0).want[0].run == 50


@pytest.mark.parametrize("run", [1, 5, 500])
def test_the_setting_bounds_a_run_whatever_there_is_room_for(run: int) -> None:
    """Found by review: few streams brought as many as fit."""
    p = pacing(100, run=run)
    take(p, leased(0))
    run_through(p, ran=0.0001)
    take(p, *run_of(*range(1, 51)))
    run_through(p, ran=0.0001)
    assert p.report(1, 0.0).want[0].run == run


def test_one_queue_does_not_lengthen_the_runs_of_another() -> None:
    """Found by review: a slow handler held hundreds because a fast one could use them."""
    p = Pacing({"fast": Limit(10), "slow": Limit(10)}, Settings())
    take(p, leased(1, queue="fast"), leased(2, queue="slow"))
    for lane in start(p):
        finish(p, lane, delivery.Returned(ran=0.0001 if lane.queue == "fast" else 3.0))
    assert {want.queue: want.run for want in p.report(1, 0.0).want} == {"fast": 50, "slow": 1}


def test_what_may_start_once_is_not_held_before_it_starts() -> None:
    """A crash would spend the only start of what has not started yet."""
    p = Pacing({"q": Limit(10, ahead=False)}, Settings())
    for n in range(1000):
        take(p, leased(n), now=n / 1000)
        run_through(p, n / 1000, ran=0.0001)
    assert [(want.heads, want.run) for want in p.report(1, 1.0).want] == [(10, 1)]


# --- Asking where handlers settle their messages themselves: there is nothing to hand in ---------------------------


def provided(concurrency: int = 10) -> Pacing:
    """One that ends 1,000 messages a second, whose handlers are busy, with work for a moment more in its hands."""
    p = pacing(concurrency)
    for n in range(1000):
        take(p, leased(n), now=n / 1000)
        run_through(p, n / 1000, ran=0.001)
    numbers = itertools.count(1000)
    while (report := p.report(1, 1.0)).want:
        p.receive(report, batch_of([leased(next(numbers)) for _ in range(report.want[0].heads)]), 1.0)
        start(p, 1.0)
    return p


def complete(p: Pacing, count: int, now: float = 1.0) -> None:
    """So many are settled in their handlers' transactions, and others begin."""
    for lane in [lane for lane in p.lanes.values() if lane.running][:count]:
        p.complete(lane, p.open_completion(lane), 0.001)
        assert p.begin(lane, now) is None
    start(p, now)


def test_it_asks_once_in_a_part_of_a_moment_while_what_it_has_lasts() -> None:
    p = provided()
    asked = []
    for n in range(1, 101):
        now = 1.0 + n / 1000
        complete(p, 1, now)
        report = p.report(1, now)
        assert report.settlements == []
        if report.want:
            asked.append((n, report.want[0].heads))
            p.receive(
                report, batch_of([leased(5000 + 100 * n + each) for each in range(report.want[0].heads)]), now
            )
            start(p, now)
    assert asked == [(63, 63)]


def test_it_asks_along_with_what_it_hands_in() -> None:
    p = provided()
    (lane, *_) = (lane for lane in p.lanes.values() if lane.running)
    finish(p, lane)
    assert p.begin(lane, 1.001) is None
    report = p.report(1, 1.001)
    assert [len(report.settlements), [want.heads for want in report.want]] == [1, [1]]


def test_it_asks_at_once_when_what_it_has_does_not_last() -> None:
    p = provided()
    for _ in range(18):
        complete(p, 10)
        assert p.report(1, 1.001).want == []
    complete(p, 10)
    assert p.report(1, 1.001).want[0].heads == 190, "what waits lasts for less than a part of a moment"


def test_it_asks_in_vain_while_it_holds_all_that_there_is() -> None:
    """Behind a run of a stream nothing can be claimed until something of the run is handed in."""
    p = pacing()
    assert not p.asks_in_vain, "nothing is known yet"
    take(p, *run_of(*range(1, 101)))
    assert p.asks_in_vain
    run_through(p)
    assert not p.asks_in_vain, "there is something to hand in"
    take(p, *(leased(n) for n in range(200, 210)))
    assert not p.asks_in_vain, "as many heads came as were asked for"


def test_it_does_not_ask_in_vain_where_the_bytes_were_spent_or_a_family_has_more() -> None:
    p = pacing(claim_bytes=100)
    take(p, leased(1, body="x" * 100))
    assert not p.asks_in_vain
    p = pacing()
    p.asking.meet_family("f", Limit(1))
    p.asking.meet_member("f/a", Limit(1), "f")
    take(p, leased(1), found={"f": Found(("f/a",))})
    assert not p.asks_in_vain


def test_a_first_message_that_was_slow_by_accident_does_not_keep_runs_short() -> None:
    p = pacing()
    take(p, *run_of(*range(1, 12)))
    (lane,) = start(p)
    finish(p, lane, delivery.Returned(ran=0.1))
    assert p.paces["q"].longest_run == 3
    for _ in range(9):
        p.begin(lane, 0.0)
        finish(p, lane)
    assert p.paces["q"].longest_run == 26, "on average a message took a hundredth of a second"


def test_it_asks_at_once_when_a_handler_is_free() -> None:
    """What waits in a run of a stream is of no use to the other handlers."""
    p = pacing(10)
    take(p, leased(0))
    run_through(p, ran=0.001)
    take(p, *run_of(*range(1, 250)))
    assert len(start(p)) == 1
    (lane,) = p.lanes.values()
    p.complete(lane, p.open_completion(lane), 0.001)
    p.begin(lane, 0.001)
    assert p.report(1, 0.001).want != []


def test_it_asks_at_once_when_another_queue_has_nothing_to_do() -> None:
    p = Pacing({"q": Limit(10), "other": Limit(10)}, Settings())
    take(p, *(leased(n) for n in range(20)))
    start(p)
    complete(p, 1, 0.001)
    assert "other" in {want.queue for want in p.report(1, 0.001).want}


def test_slow_handlers_are_asked_for_one_by_one() -> None:
    p = pacing(10)
    for n in range(20):
        take(p, leased(n), now=n * 5.0)
        run_through(p, n * 5.0, ran=5.0)
    take(p, *(leased(n) for n in range(100, 111)), now=100.0)
    start(p, 100.0)
    complete(p, 1, 100.001)
    assert [want.heads for want in p.report(1, 100.001).want] == [1]


def test_the_watermark_moves_while_there_is_more_than_was_asked_for() -> None:
    p = pacing(2)
    take(p, leased(1), leased(2), now=0.1, marks={"q": (NOW, 2)})
    for lane in start(p, 0.1):
        finish(p, lane)
    (want,) = p.report(1, 0.2).want
    assert want.after == (NOW, 2)
    (want,) = p.report(1, 5.0).want
    assert want.after is None, "now and then all is looked at: something may have been committed late"


def looks_at_all(took: float, *, came: int = 0, rest: float = 0.001) -> list[float]:
    """Seconds between the looks past the watermark of a worker that gets all it asks for, or so many.

    Such a look takes `took`, and between exchanges are `rest` seconds.
    """
    # Thousands of turns: not in the trap, which takes time.
    p = rule.Pacing({"q": Limit(2, timeout=100.0)}, Settings())
    now, looks, numbers = 0.0, list[float](), itertools.count()
    while len(looks) < 10:
        report = p.report(1, now)
        (want,) = report.want
        work = [leased(next(numbers)) for _ in range(came or want.heads)]
        if want.after is None:
            looks.append(now)
        lasted = took if want.after is None else 0.001
        p.receive(report, batch_of(work, marks={"q": (NOW, 2)}, looked=lasted), now)
        run_through(p, now, ran=0.0001)
        now += lasted + rest
    return [after - before for before, after in itertools.pairwise(looks)]


@pytest.mark.parametrize(("took", "pause"), [(0.001, 0.25), (0.02, 0.4), (0.1, 2.0), (0.25, 5.0)])
def test_looking_at_all_is_a_twentieth_of_the_time(took: float, pause: float) -> None:
    """Under a held snapshot such a look walks past all that is dead: 0.1 s for a million."""
    first, *others = looks_at_all(took)
    assert first == pytest.approx(max(0.25, took), abs=0.005), "one look alone may have met a stall"
    assert others == pytest.approx([pause] * 8, abs=0.005)


def test_looks_at_all_are_never_more_than_some_seconds_apart() -> None:
    assert looks_at_all(3.0)[1:] == pytest.approx([5.0] * 8, abs=0.005)


def test_what_happens_between_looks_is_not_taken_for_a_long_look() -> None:
    """Found in review: a worker that had rested for a second took its next look five seconds later."""
    assert looks_at_all(0.001, rest=0.3) == pytest.approx([0.302] * 9, abs=0.005)


def slow_looks(p: Pacing, *queues: str) -> tuple[datetime, int]:
    """Two long looks at queues that were full; answers their mark."""
    mark = (NOW, 100)
    for n in range(2):
        report = p.report(1, 10.0 * n)
        assert [want.after for want in report.want] == [None] * len(queues)
        work = [
            leased(10 * at + n * 100 + k, queue=want.queue)
            for at, want in enumerate(report.want)
            for k in range(want.heads)
        ]
        p.receive(report, batch_of(work, marks=dict.fromkeys(queues, mark), looked=0.1), 10.0 * n)
        run_through(p, 10.0 * n)
    return mark


def test_a_look_that_did_not_reach_a_queue_is_no_look_at_it() -> None:
    """Found in review: the first of many busy queues took all the room, and the others waited for the next time."""
    p = Pacing({"a": Limit(2), "b": Limit(2)}, Settings(claim=4))
    slow_looks(p, "a", "b")
    report = p.report(1, 20.0)
    assert [want.after for want in report.want] == [None, None]
    first = report.want[0].queue
    work = [leased(500 + n, queue=first) for n in range(report.total)]
    p.receive(report, batch_of(work, marks={first: (NOW, 500)}, looked=0.1), 20.0)
    run_through(p, 20.0)
    after = {want.queue: want.after for want in p.report(1, 20.1).want}
    assert after.pop(first) == (NOW, 500)
    assert list(after.values()) == [None]


def test_one_late_message_does_not_bring_the_watermark_back() -> None:
    """Found in review: all that is dead between it and the old mark would be walked past at every look."""
    p = Pacing({"q": Limit(2)}, Settings())
    mark = slow_looks(p, "q")
    report = p.report(1, 20.0)
    late = (NOW - timedelta(minutes=5), 7)
    p.receive(report, batch_of([leased(7)], marks={"q": late}, looked=0.1), 20.0)
    run_through(p, 20.0)
    assert p.report(1, 20.1).want[0].after == mark


def test_a_queue_that_keeps_up_does_not_walk_past_the_dead_each_time() -> None:
    assert looks_at_all(0.1, came=1)[1:] == pytest.approx([2.0] * 8, abs=0.005)


def test_where_looks_are_cheap_a_queue_that_keeps_up_looks_at_all_each_time() -> None:
    assert looks_at_all(0.001, came=1) == pytest.approx([0.002] * 9)


def test_who_would_stop_if_nothing_came_goes_by_no_watermark() -> None:
    p = pacing(2)
    take(p, leased(1), leased(2), now=0.1, marks={"q": (NOW, 2)})
    run_through(p)
    assert p.report(1, 0.2).want[0].after == (NOW, 2)
    assert p.report(1, 0.2, anew=True).want[0].after is None


def test_all_queues_get_their_turn_to_be_first() -> None:
    p = Pacing({name: Limit(1) for name in "abc"}, Settings())
    assert {p.report(1, 0.0).want[0].queue for _ in range(3)} == {"a", "b", "c"}


def test_a_queue_in_which_little_comes_is_asked_before_one_that_takes_all_the_room() -> None:
    """A message waited some seconds, for as many exchanges as there were queues, while 100,000 timers were due."""
    names = [f"q{n}" for n in range(10)]
    p = Pacing({name: Limit(5000) for name in names}, Settings())
    seqs = itertools.count(1)
    for _ in range(30):
        report = p.report(1, 0.0)
        many = [leased(next(seqs), queue="q3") for _ in range(report.total - 1)]
        p.receive(report, batch_of([*many, leased(next(seqs), queue="q7")]), 0.0)
        assert run_through(p) == report.total
        assert [want.queue for want in p.report(1, 0.0).want][-2:] == ["q7", "q3"]
    for _ in range(20):
        take(p)
    # Nothing comes: each has its turn again.
    assert {p.report(1, 0.0).want[0].queue for _ in names} == set(names)


def test_queues_that_all_have_enough_are_asked_in_turns() -> None:
    p = Pacing({name: Limit(5000) for name in "abc"}, Settings())
    seqs, came = itertools.count(1), Counter[str]()
    for _ in range(60):
        report = p.report(1, 0.0)
        first = report.want[0].queue  # takes all the room
        came[first] += 1
        p.receive(report, batch_of([leased(next(seqs), queue=first) for _ in range(report.total)]), 0.0)
        run_through(p)
    assert set(came.values()) == {20}


def flooded(few: int, run: int = 50) -> Pacing:
    """A queue `q` of whose messages 200 end in a moment, beside one with so many."""
    p = Pacing({"q": Limit(50_000, ahead=False, run=run), "r": Limit(50_000, ahead=False)}, Settings())
    p.report(1, 0.0)
    work = [leased(n) for n in range(1, 201)] + [leased(n, queue="r") for n in range(201, 201 + few)]
    p.receive(p.report(1, 0.01), batch_of(work), 0.01)
    run_through(p)
    return p


def asked_of(p: Pacing, now: float) -> dict[str, int]:
    return {each.queue: each.heads for each in p.report(1, now).want}


@pytest.mark.parametrize(
    ("few", "run", "heads"), [(0, 50, 500), (2, 50, FAIR_MIN), (100, 50, 500), (2, 1, 500)]
)
def test_a_queue_of_many_turns_is_asked_for_few_while_another_one_has_few(
    few: int, run: int, heads: int
) -> None:
    assert asked_of(flooded(few, run), 0.5) == {"q": heads, "r": 500}


def test_of_such_a_queue_no_more_than_two_parts_are_held_and_what_runs_at_once() -> None:
    p = flooded(2)
    for first in (1000, 2000):
        assert asked_of(p, 0.5)["q"] == FAIR_MIN
        p.receive(p.report(1, 0.5), batch_of([leased(first + n) for n in range(FAIR_MIN)]), 0.5)
    assert asked_of(p, 0.5) == {"r": 500}
    p.paces["q"].busy = 10.0
    assert asked_of(p, 0.5) == {"q": 20, "r": 500}


def test_the_quarantine_asks_for_one_suspect_when_it_has_none() -> None:
    p = Pacing({"q": Limit(50)}, Settings(), quarantine=True)
    report = p.report(1, 0.0)
    assert (report.suspects, report.total, [want.heads for want in report.want]) == (True, 1, [1])
    p.receive(report, batch_of([leased(1, vanished=1)]), 0.0)
    assert p.report(1, 0.0).want == []
    (lane,) = start(p)
    finish(p, lane)
    take(p)
    assert len(p.report(1, 0.0).want) == 1


# --- Lanes and leases -------------------------------------------------------------------------------------------------


def test_a_message_of_its_own_is_handed_in_and_forgotten() -> None:
    p = pacing()
    take(p, leased(1))
    (lane,) = start(p)
    finish(p, lane)
    report = p.report(1, 0.0)
    assert [(s.leased.message.seq, s.outcome) for s in report.settlements] == [(1, Outcome.DONE)]
    assert report.moves == []
    assert p.lanes, "until the store has it, the lease is renewed"
    p.receive(report, batch_of(), 0.0)
    assert p.idle


def test_the_lease_moves_along_a_run() -> None:
    p = pacing()
    take(p, *run_of(1, 2, 3, 4))
    (lane,) = start(p)
    finish(p, lane)
    p.begin(lane, 0.0)
    finish(p, lane)
    p.begin(lane, 0.0)
    report = p.report(1, 0.0)
    assert [(s.leased.message.seq, s.leased.run, s.leased.run_epoch) for s in report.settlements] == [
        (1, 1, 1),
        (2, 1, 1),
    ]
    assert report.moves == [(1, 3)]
    assert lane.fences == ((1, 1), (3, 1)), "nobody knows yet which of them stands"
    finish(p, lane)
    p.begin(lane, 0.0)
    p.receive(report, batch_of(), 0.0)
    assert lane.fences == ((3, 1),)
    report = p.report(1, 0.0)
    assert [(s.leased.message.seq, s.leased.run) for s in report.settlements] == [(3, 3)]
    assert report.moves == [(3, 4)]


def test_what_ends_under_a_lost_lease_is_dropped() -> None:
    p = pacing()
    take(p, *run_of(1, 2, 3))
    (lane,) = start(p)
    finish(p, lane)
    p.begin(lane, 0.0)
    report = p.report(1, 0.0)
    assert p.receive(report, batch_of(lost=frozenset({1})), 0.0) == [lane]
    assert lane.lost
    assert p.idle
    finish(p, lane)
    assert p.begin(lane, 0.0) is None
    assert p.report(1, 0.0).settlements == []
    assert p.held == 0


@pytest.mark.parametrize(
    ("ending", "policy", "goes_on"),
    [
        (delivery.Returned(), HandlerPolicy(), True),
        (delivery.Raised(RuntimeError()), HandlerPolicy(), False),
        (delivery.Raised(RuntimeError()), HandlerPolicy(ordering="available"), True),
        (delivery.Died("no"), HandlerPolicy(), True),
        (delivery.Died("no"), HandlerPolicy(on_dead="halt"), False),
        (delivery.Snoozed(1.0), HandlerPolicy(), False),
        (delivery.Cancelled(), HandlerPolicy(), True),
    ],
)
def test_the_rest_of_a_run_goes_on_or_back(
    ending: delivery.Ending, policy: HandlerPolicy, goes_on: bool
) -> None:
    p = pacing()
    take(p, *run_of(1, 2, 3))
    (lane,) = start(p)
    assert lane.running is not None
    p.end(lane, delivery.conclude(lane.running, ending, policy, NOW, 0.5))
    following = p.begin(lane, 0.0)
    assert (following is not None) is goes_on
    report = p.report(1, 0.0)
    assert report.moves == ([(1, 2)] if goes_on else [])
    assert p.held == (2 if goes_on else 0)


def test_what_cannot_be_read_is_not_tried_again_and_doubles_nobody() -> None:
    class Unreadable(list[Leased]):
        def __iter__(self) -> Any:
            raise ValueError("unreadable")

    p = pacing()
    take(p, leased(1), leased(2))
    p.receive(p.report(1, 0.0), Batch(NOW, Unreadable([leased(3)]), {"q": Share(1, 1, False, 2)}), 0.0)
    with pytest.raises(ValueError, match="unreadable"):
        p.unpack()
    p.stop()
    assert [len(lane.waiting) for lane in p.lanes.values()] == [0, 0]
    assert len(p.report(1, 0.0).settlements) == 2


def test_what_was_told_of_a_batch_is_forgotten_when_it_is_read() -> None:
    """The store counts bytes, we count characters; and somebody may have cancelled a message between the two looks."""
    p = pacing()
    report = p.report(1, 0.0)
    p.receive(report, Batch(NOW, [leased(1), leased(2)], {"q": Share(3, 3, False, 1000)}), 0.0)
    assert (p.paces["q"].held, p.held_bytes) == (3, 1000)
    p.unpack()
    assert (p.held, p.paces["q"].held, p.held_bytes) == (2, 2, 2 * len(leased(1).message.body))
    run_through(p)
    assert (p.held, p.paces["q"].held, p.held_bytes) == (0, 0, 0)


def test_what_has_arrived_is_held_before_it_is_read_and_given_back_by_whoever_stops() -> None:
    p = pacing()
    take(p, leased(1), *run_of(2, 3))
    assert not p.idle
    assert not p.lanes
    assert (p.held, p.paces["q"].held, p.held_bytes) == (3, 3, 3 * len(leased(1).message.body))
    assert p.report(1, 0.0).bytes_max == Settings().claim_bytes - p.held_bytes
    p.stop()
    assert given_back(p.report(1, 0.0)) == [(1, True), (2, True)]


def test_a_message_handed_out_again_at_once_has_a_lane_of_its_own() -> None:
    """Set aside and claimed again in the same exchange, while its first lane goes on with the run."""
    p = pacing()
    take(p, *run_of(1, 2, 3))
    (lane,) = start(p)
    assert lane.running is not None
    aside = HandlerPolicy(ordering="available")
    p.end(lane, delivery.conclude(lane.running, delivery.Raised(RuntimeError()), aside, NOW, 0.5))
    p.begin(lane, 0.0)
    report = p.report(1, 0.0)
    p.receive(report, batch_of([leased(1, epoch=2)]), 0.0)
    p.unpack()
    assert len(p.lanes) == 2
    assert [each.message.seq for each in lane.waiting] == [3]
    (other,) = start(p)
    assert other.fences == ((1, 2),)


# --- Stopping and pausing ---------------------------------------------------------------------------------------------


def given_back(report: Report) -> list[tuple[int, bool]]:
    return [(s.leased.message.seq, s.refunded) for s in report.settlements if not s.started]


@pytest.mark.covers("X9")
def test_stopping_gives_back_what_has_not_begun() -> None:
    p = pacing(1)
    take(p, leased(1), leased(2), *run_of(3, 4, 5))
    (running,) = start(p)
    p.stop()
    report = p.report(1, 0.0)
    assert given_back(report) == [(2, True), (3, True)]
    assert report.moves == []
    assert report.want == []
    assert p.held == 1
    finish(p, running)
    p.receive(report, batch_of(), 0.0)
    take(p)
    assert p.idle


def test_what_arrives_after_the_stop_goes_back_too() -> None:
    p = pacing()
    report = p.report(1, 0.0)
    p.stop()
    p.receive(report, batch_of([leased(1), *run_of(2, 3)]), 0.0)
    assert list(p.starts(0.0)) == []
    assert given_back(p.report(1, 0.0)) == [(1, True), (2, True)]


def test_a_stopped_run_gives_back_its_rest_with_what_ended() -> None:
    p = pacing()
    take(p, *run_of(1, 2, 3))
    (lane,) = start(p)
    p.stop()
    finish(p, lane)
    assert p.begin(lane, 0.0) is None
    report = p.report(1, 0.0)
    assert [(s.leased.message.seq, s.outcome) for s in report.settlements] == [(1, Outcome.DONE)]
    assert report.moves == []


def test_a_pause_gives_back_one_queue_and_leaves_the_other() -> None:
    p = Pacing({"q": Limit(1), "r": Limit(1)}, Settings())
    take(p, leased(1), leased(2), leased(3, queue="r"), leased(4, queue="r"))
    lanes = start(p)
    take(p, paused=frozenset({"q"}))
    assert given_back(p.report(1, 0.0)) == [(2, True)]
    assert p.held == 3
    for lane in lanes:
        finish(p, lane)
    assert [p.begin(lane, 0.0) for lane in lanes] == [None, None]
    assert [lane.queue for lane in p.starts(0.0)] == ["r"]


# --- Time -------------------------------------------------------------------------------------------------------------


def test_a_lease_that_could_not_be_renewed_is_given_up_by_our_own_clock() -> None:
    p = pacing(lease=30.0)
    take(p, leased(1), *run_of(2, 3), leased(4), now=10.0)
    one, two, four = start(p, 10.0)
    finish(p, four)
    assert holding.lapsed(p, 39.9) == []
    assert holding.lapsed(p, 40.0) == [one, two]
    for lane in (one, two):
        lane.stop = Stop.LAPSED
    assert holding.lapsed(p, 41.0) == []
    for lane in (one, two):
        finish(p, lane, delivery.Interrupted())
    assert [p.begin(lane, 41.0) for lane in (one, two)] == [None, None]
    report = p.report(1, 41.0)
    seqs = [s.leased.message.seq for s in report.settlements]
    assert sorted(seqs) == [1, 2, 4], "what ended is handed in: the fence decides"
    assert report.moves == []


def test_renewals_end_when_the_handlers_time_is_over() -> None:
    p = Pacing({"q": Limit(10, timeout=50.0)}, Settings(lease=30.0))
    take(p, leased(1), now=0.0)
    take(p, leased(2), now=0.0)
    lane, other = start(p, 5.0)
    assert [each for each, _ in holding.leases(p, 54.9)] == [lane, other]
    assert holding.leases(p, 55.0) == []
    assert holding.overdue(p, 54.9) == []
    assert holding.overdue(p, 55.0) == [lane, other]
    lane.stop = Stop.TIMEOUT
    assert holding.overdue(p, 56.0) == [other]


def test_a_renewal_counts_from_when_it_was_asked_for() -> None:
    p = pacing(lease=30.0)
    take(p, leased(1), now=0.0)
    (lane,) = start(p)
    assert holding.renewed(p, holding.leases(p, 20.0), set(), 20.0) == []
    assert holding.lapsed(p, 49.9) == []
    assert holding.lapsed(p, 50.0) == [lane]


def test_the_heartbeat_finds_a_lost_lease() -> None:
    p = pacing()
    take(p, leased(1), leased(2))
    one, two = start(p)
    assert holding.renewed(p, holding.leases(p, 1.0), {2}, 1.0) == [two]
    assert two.lost
    assert not one.lost


def test_a_heartbeat_does_not_mistake_an_end_for_a_loss() -> None:
    """It asked for a lease that was settled before the store looked: nobody has lost anything."""
    p = pacing()
    take(p, leased(1))
    (lane,) = start(p)
    asked = holding.leases(p, 1.0)
    finish(p, lane)
    report = p.report(1, 1.0)
    p.receive(report, batch_of(), 1.0)
    assert holding.renewed(p, asked, {1}, 1.0) == []
    assert not lane.lost


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_a_heartbeat_does_not_mistake_a_move_for_a_loss(when: str) -> None:
    """It asks in a thread of its own while exchanges move leases; only what nobody moved is lost."""
    p = pacing()
    take(p, *run_of(1, 2, 3))
    (lane,) = start(p)
    finish(p, lane)
    p.begin(lane, 0.0)
    if when == "before":
        asked = holding.leases(p, 1.0)
    report = p.report(1, 1.0)
    if when == "during":
        asked = holding.leases(p, 1.0)
        assert asked[0][1] == ((1, 1), (2, 1)), "both are asked for"
    p.receive(report, batch_of(), 1.0)
    if when == "after":
        asked = holding.leases(p, 1.0)
    # The store has moved the lease to 2: of what was asked, 1 is gone.
    gone = {seq for _, fences in asked for seq, _ in fences if seq == 1}
    assert holding.renewed(p, asked, gone, 1.0) == []
    assert not lane.lost


# --- Completion -------------------------------------------------------------------------------------------------------


def test_a_completion_settles_what_ended_before_it() -> None:
    p = pacing()
    take(p, *run_of(1, 2, 3, 4))
    (lane,) = start(p)
    finish(p, lane)
    p.begin(lane, 0.0)
    completion = p.open_completion(lane)
    assert [(fence, [s.leased.message.seq for s in before]) for fence, before in completion.ways] == [
        ((1, 1), [1])
    ]
    assert completion.after == (3, 1)
    assert p.report(1, 0.0).settlements == [], "they are in the handler's transaction now"
    p.complete(lane, completion, 0.0)
    assert lane.fences == ((3, 1),)
    assert p.begin(lane, 0.0) is not None


def test_a_completion_that_came_to_nothing_gives_back_what_it_took() -> None:
    p = pacing()
    take(p, *run_of(1, 2, 3))
    (lane,) = start(p)
    finish(p, lane)
    p.begin(lane, 0.0)
    completion = p.open_completion(lane)
    p.undo_completion(lane, completion)
    finish(p, lane)
    report = p.report(1, 0.0)
    assert [s.leased.message.seq for s in report.settlements] == [1, 2]
    assert lane.fences == ((1, 1), (3, 1))


def test_a_completion_while_an_exchange_is_on_its_way_knows_both_leases() -> None:
    p = pacing()
    take(p, *run_of(1, 2, 3))
    (lane,) = start(p)
    finish(p, lane)
    p.begin(lane, 0.0)
    report = p.report(1, 0.0)
    completion = p.open_completion(lane)
    assert [(fence, [s.leased.message.seq for s in before]) for fence, before in completion.ways] == [
        ((2, 1), []),
        ((1, 1), [1]),
    ]
    # It was committed before the exchange arrived, which then finds nothing: that is no loss.
    assert p.receive(report, batch_of(lost=frozenset({1})), 0.0) == []
    p.complete(lane, completion, 0.0)
    assert lane.fences == ((3, 1),)
    assert p.begin(lane, 0.0) is not None


def test_an_exchange_that_lands_after_the_next_completion_moves_nothing() -> None:
    """Found by seed 1214: it was overtaken by two completions, and its landing took the lease of the second."""
    p = pacing()
    take(p, *run_of(1, 2, 3, 4))
    (lane,) = start(p)
    finish(p, lane)
    p.begin(lane, 0.0)
    report = p.report(1, 0.0)
    p.complete(lane, p.open_completion(lane), 0.0)
    p.begin(lane, 0.0)
    completion = p.open_completion(lane)
    assert p.receive(report, batch_of(lost=frozenset({1})), 0.0) == []
    assert lane.fences == ((3, 1), (4, 1))
    p.undo_completion(lane, completion)
    assert lane.fences == ((3, 1),)


def test_a_lane_closed_during_a_completion_gives_back_what_its_lease_moved_to() -> None:
    p = pacing()
    take(p, *run_of(1, 2, 3))
    (lane,) = start(p)
    completion = p.open_completion(lane)
    p.stop()
    p.complete(lane, completion, 0.0)
    report = p.report(1, 0.0)
    assert [(s.leased.message.seq, s.leased.run) for s in report.settlements] == [(2, 2)]
    assert given_back(report) == [(2, True)]
    p.receive(report, batch_of(), 0.0)
    assert p.idle


def test_a_look_does_not_mistake_a_move_for_a_loss() -> None:
    """The store was asked where leases stand, and before its answer was read a handler has committed two messages."""
    p = pacing()
    take(p, *run_of(1, 2, 3, 4))
    (lane,) = start(p)
    completion = p.open_completion(lane)
    asked = holding.where(p)
    standing = {(2, 1)}  # after the first of the two commits
    p.complete(lane, completion, 0.0)
    p.begin(lane, 0.0)
    p.complete(lane, p.open_completion(lane), 0.0)
    p.begin(lane, 0.0)
    standing |= holding.moved_since(asked)
    assert holding.reconcile(p, standing) == ([], [], [])
    assert 3 in holding.known(p, standing)
    assert not lane.lost


def test_a_look_finds_a_lost_lease_although_a_handler_settles_under_it() -> None:
    p = pacing()
    take(p, *run_of(1, 2, 3))
    (lane,) = start(p)
    asked = holding.where(p)
    p.open_completion(lane)
    assert holding.moved_since(asked) == set(), "nothing was committed"
    assert holding.reconcile(p, set()) == ([], [], [lane])


# --- Keys -------------------------------------------------------------------------------------------------------------


@given(
    keys=st.lists(st.sampled_from(["a", "b", None]), min_size=1, max_size=40),
    order=st.randoms(use_true_random=False),
    per_key=st.integers(1, 3),
)
def test_keys_never_run_more_often_at_once_and_all_run(
    keys: Sequence[str | None], order: Any, per_key: int
) -> None:
    p = Pacing({"q": Limit(5, per_key=per_key)}, Settings())
    take(p, *(leased(n, subject=key) for n, key in enumerate(keys)))
    p.unpack({each.token: each.message.subject for each in p.arrived()})
    running: list[Lane] = []
    ended = 0
    for _ in range(10 * len(keys) + 10):
        running += start(p)
        counts = {key: sum(lane.key == key for lane in running) for key in ("a", "b")}
        assert max(counts.values()) <= per_key
        assert len(running) <= 5
        if not running:
            break
        lane = running.pop(order.randrange(len(running)))
        finish(p, lane)
        assert p.begin(lane, 0.0) is None
        ended += 1
    assert ended == len(keys)
    assert p.paces["q"].keys == {}
    assert p.paces["q"].barred == {}
    assert p.paces["q"].waiting_keys == {}


# --- Rhythm -----------------------------------------------------------------------------------------------------------


def test_it_looks_less_and_less_often() -> None:
    r = Rhythm(0.002, 0.1, worked_at=0.0)
    rests = [r.rest(1.0, True, None) for _ in range(15)]
    assert rests[0] == 0.002
    assert rests == sorted(rests)
    assert rests[-1] == 0.1
    assert r.peeks
    assert r.rest(IDLE_AFTER + 1.0, True, None) == IDLE_POLL
    r.work_came(IDLE_AFTER + 1.0)
    assert r.rest(IDLE_AFTER + 1.0, True, None) == 0.002


def test_a_sleeper_that_is_woken_need_not_look_by_itself() -> None:
    """Before the store knows that it sleeps somebody may have published: it looks soon, and then less and less."""
    r = Rhythm(0.002, 0.1, worked_at=0.0)
    r.stored(True)
    rests = [r.rest(1.0, True, None) for _ in range(15)]
    assert (rests[0], rests[-1]) == (0.002, 0.1)
    r.work_came(2.0)
    assert r.rest(2.0, True, None) == 0.1, "whoever published it woke us"
    r.stored(False)
    assert r.rest(2.0, False, None) == 0.002


def test_something_due_cuts_the_rest_short() -> None:
    r = Rhythm(0.002, 0.1, worked_at=0.0)
    assert r.rest(100.0, True, 0.25) == 0.25
    assert r.rest(100.0, True, -1.0) == 0.0


def test_being_asleep_is_told_with_hesitation() -> None:
    r = Rhythm(0.002, 0.1, worked_at=0.0)
    assert r.new_asleep is True
    r.stored(True)
    assert r.new_asleep is None
    for turn in range(BUSY_TURNS):
        assert r.new_asleep is None, turn
        r.work_came(1.0)
    assert r.new_asleep is False
    r.stored(False)
    r.rest(2.0, False, None)
    assert r.new_asleep is None, "handlers still run"
    r.rest(2.0, True, None)
    assert r.new_asleep is True


def test_a_worker_without_handlers_asks_for_nothing() -> None:
    assert Pacing({}, Settings()).report(1, 0.0).want == []


# --- Families of queues -----------------------------------------------------------------------------------------------


def family_of_queues(concurrency: int = 10, kind: type[rule.Pacing] = Pacing, **settings: Any) -> rule.Pacing:
    p = kind({}, Settings(**settings))
    p.asking.meet_family("f", Limit(concurrency, timeout=100.0))
    return p


def find(p: Pacing, *queues: str, now: float = 0.0, last: str | None = None, took: float = 0.0) -> Report:
    """A look finds these, and nothing else comes."""
    report = p.report(1, now)
    for queue in queues:
        if queue not in p.paces:
            p.asking.meet_member(queue, Limit(p.asking.families["f"].concurrency, timeout=100.0), "f")
    p.receive(report, batch_of(found={"f": Found(queues, last, took)}), now)
    return report


def test_a_family_is_looked_through_and_what_is_found_is_asked_in_equal_shares() -> None:
    p = family_of_queues(8)
    report = find(p, "f/1", "f/2")
    assert ([want.queue for want in report.want], report.looks) == (["f"], [Look("f", None, PASSED_MAX)])
    wants = {want.queue: want.heads for want in p.report(1, 0.0).want}
    assert wants == {"f": 8, "f/1": 4, "f/2": 4}


def test_the_queues_of_a_family_take_turns() -> None:
    p = family_of_queues(2)
    find(p, "f/1", "f/2", "f/3")
    take(p, *(leased(n, queue="f/1") for n in range(1, 9)), leased(10, queue="f/2"), leased(11, queue="f/3"))
    served, lanes = list[str](), list(p.starts(0.0))
    assert len(lanes) == 2
    while lanes:
        lane = lanes.pop(0)
        served.append(lane.queue)
        assert p.begin(lane, 0.0) is not None
        finish(p, lane)
        assert p.begin(lane, 0.0) is None
        if (following := p.next_lane(lane.queue, 0.0)) is not None:
            lanes.append(following)
    assert served[:3] == ["f/1", "f/2", "f/3"]
    assert served[3:] == ["f/1"] * 7
    assert p.asking.families["f"].running == 0


def test_a_look_goes_on_where_it_stopped_and_rests_when_it_takes_long() -> None:
    p = family_of_queues()
    find(p, last="f/500", took=0.1)
    assert p.report(1, 1.0).looks == []
    assert p.report(1, 2.5).looks == [Look("f", "f/500", PASSED_MAX)]
    assert p.report(1, 1.0, anew=True).looks == [Look("f")]


def test_what_has_nothing_more_is_not_asked_and_in_the_end_forgotten() -> None:
    p = family_of_queues()
    for turn in range(30):
        find(p, *(f"f/{turn}.{n}" for n in range(50)), now=float(turn))
        for queue in p.forgettable():
            p.asking.forget(queue)
        assert len(p.report(1, turn + 0.5).want) <= ASKED_MAX + 1
        take(p, now=turn + 0.5)  # nothing comes of any of them
    family = p.asking.families["f"]
    assert len(family.awake) <= 200
    assert len(p.paces) <= QUIET_KEPT + 200
    find(p, "f/0.0", now=100.0)
    assert "f/0.0" in {want.queue for want in p.report(1, 101.0).want}


def test_a_paused_queue_of_a_family_is_not_asked_until_a_look_finds_it() -> None:
    p = family_of_queues()
    find(p, "f/1")
    take(p, paused=frozenset({"f/1"}))
    p.report(1, 1.0)
    assert [want.queue for want in p.report(1, 1.0).want] == ["f"]
    find(p, "f/1", now=2.0)
    assert "f/1" in {want.queue for want in p.report(1, 2.0).want}


@pytest.mark.parametrize("seed", range(8))
def test_every_queue_of_a_family_gets_through(seed: int) -> None:
    """Against a store that is only counts: whatever lies in whichever queues, all of it is served."""
    random = Random(seed)
    # Thousands of turns: not in the trap, which takes time.
    p = family_of_queues(random.choice([1, 3, 20]), rule.Pacing, claim=random.choice([5, 50]))
    store = {f"f/{n:03}": random.choice([1, 1, 1, 20]) for n in range(random.choice([3, 150, 700]))}
    total, numbers, now = sum(store.values()), itertools.count(1), 0.0
    served: Counter[str] = Counter()
    for _ in range(20_000):
        if not store and p.idle:
            break
        now += 0.01
        report, work, found = p.report(1, now), list[Leased](), {}
        for look in report.looks:
            live = sorted(queue for queue in store if look.after is None or queue > look.after)
            passed = tuple(live[: look.count])
            found[look.family] = Found(passed, passed[-1] if len(passed) == look.count else None)
            for queue in passed:
                if queue not in p.paces:
                    p.asking.meet_member(queue, Limit(p.asking.families["f"].concurrency), "f")
        for want in report.want:
            come = min(want.heads, store.get(want.queue, 0), report.total - len(work))
            work += [leased(next(numbers), queue=want.queue) for _ in range(come)]
            if come and not store[want.queue] - come:
                del store[want.queue]
            elif come:
                store[want.queue] -= come
        p.receive(report, batch_of(work, found=found), now)
        for lane in list(p.starts(now)):
            assert p.begin(lane, now) is not None
            served[lane.queue] += 1
            finish(p, lane)
            assert p.begin(lane, now) is None
        for queue in p.forgettable():
            p.asking.forget(queue)
    assert sum(served.values()) == total
    assert p.asking.families["f"].running == 0
