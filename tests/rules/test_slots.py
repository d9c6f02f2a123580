"""Slots: never more than there are, none lost with a dead worker, none idle while somebody waits."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from holdfast.errors import InvalidSettings
from holdfast.model.limits import slots_count
from holdfast.rules.slots import Holder, SlotHand, share

A, B = ("a",), ("b",)
OVER = object()


def held(worker: int, count: int, queues: tuple[str, ...] = A) -> Holder:
    return Holder(worker, count, 30.0, queues)


AGES = {1: 1.0, 2: 1.0, 3: 1.0}


@pytest.mark.parametrize(
    ("holders", "in_use", "wants", "got", "fair"),
    [
        ([], 0, 1, 1, 1),
        ([], 0, 9, 5, 5),  # no more than there are
        ([held(2, 3)], 0, 5, 2, 2),
        ([held(2, 5)], 0, 1, 0, 0),  # all taken
        ([held(1, 4), held(2, 1)], 2, 2, 2, 2),  # gives back what is not in use
        ([held(1, 2), held(2, 3)], 2, 4, 2, 2),
        ([held(9, 5)], 0, 5, 5, 5),  # nobody has seen 9: its slots are free
        ([held(2, 5)], 3, 3, 3, 0),  # in use although lost meanwhile: the truth, and nothing new begins
        ([held(1, 5), held(2, 0, B)], 5, 5, 5, 2),  # a rival waits: a share each, when what runs has ended
        ([held(1, 5), held(2, 0, A)], 5, 5, 5, 5),  # it drains the same: no rival
    ],
)
def test_shares(holders: list[Holder], in_use: int, wants: int, got: int, fair: int) -> None:
    answer = share(holders, AGES, held(1, in_use), wants, 5)
    assert (answer.held, answer.fair) == (got, fair)
    assert sum(each.held for each in answer.holders if each.worker == 1) == got
    assert all(each.worker in AGES for each in answer.holders)


def test_a_worker_is_alive_within_its_own_lease() -> None:
    other = Holder(2, 5, 10.0, A)
    assert share([other], {2: 9.9}, held(1, 0), 5, 5).held == 0
    assert share([other], {2: 10.0}, held(1, 0), 5, 5).held == 5


def test_who_waits_is_noted_for_those_who_drain_something_else() -> None:
    assert share([held(2, 5)], AGES, held(1, 0), 1, 5).holders == (held(2, 5),)
    assert share([held(2, 5)], AGES, held(1, 0, B), 1, 5).holders == (held(2, 5), held(1, 0, B))
    assert share([held(2, 5), held(1, 0, B)], AGES, held(1, 0, B), 0, 5).holders == (held(2, 5),)


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "5", 100_001])
def test_a_count_that_cannot_work_is_refused(count: object) -> None:
    with pytest.raises(InvalidSettings, match=r"Slots 'smtp': .* must be a whole number"):
        slots_count(count, "Slots 'smtp'")


def test_an_idle_worker_asks_once_a_second_and_keeps_one() -> None:
    hand = SlotHand(5, 5)
    assert hand.is_due(0, 0, 0.0)
    take(hand, 0, 0.0)
    assert (hand.held, hand.at_once(0.1)) == (1, 1)
    assert not hand.is_due(0, 0, 0.9)
    assert hand.is_due(0, 0, 1.0)
    assert hand.at_once(30.0) == 0, "nothing begins when nobody knows whether it is thought alive"


def test_all_in_use_takes_twice_as_many_and_unused_ones_are_kept_for_a_while() -> None:
    hand = SlotHand(8, 6)
    for now, expected in ((0.0, 1), (0.1, 2), (0.2, 4), (0.3, 6)):
        take(hand, hand.held, now)
        assert hand.held == expected
    assert not hand.is_due(6, 6, 0.4), "it has all that it could use"
    assert hand.wants(0, 0, 5.0) == 6
    assert hand.wants(2, 4, 10.4) == 2
    assert hand.wants(0, 0, 10.4) == 1
    hand.rivals = True
    assert (hand.wants(2, 2, 1.5), hand.wants(0, 0, 1.5)) == (2, 0)


def take(hand: SlotHand, used: int, now: float) -> None:
    wants = hand.wants(used, used, now)
    hand.learn(share([], {}, held(1, used), wants, hand.count), wants, 30.0, now)


# --- Many workers -----------------------------------------------------------------------------------------------------


@dataclass
class Sim:
    """A worker: what runs until when."""

    number: int
    queue: str
    hand: SlotHand
    running: list[float] = field(default_factory=list)
    seen_at: float = 0.0
    dead: bool = False
    asking: Iterator[None] | None = None


@dataclass
class Table:
    """The row of the holders, and when each worker was seen."""

    count: int
    lease: float
    workers: list[Sim]
    now: float = 0.0
    holders: tuple[Holder, ...] = ()
    version: int = 0

    def ask(self, me: Sim) -> Iterator[None]:
        """As gate.py does: while a question is on its way the worker goes on, and so do the others."""
        used, asked_at = len(me.running), self.now
        wants = me.hand.wants(used, 4, asked_at)
        me.hand.ask(used, asked_at)
        yield
        while True:
            holders, version = self.holders, self.version
            yield
            ages = {each.number: self.now - each.seen_at for each in self.workers}
            yield
            got = share(holders, ages, Holder(me.number, used, self.lease, (me.queue,)), wants, self.count)
            if version == self.version:
                break
        self.holders, self.version = got.holders, version + 1
        yield
        me.hand.learn(got, wants, self.lease - ages[me.number], asked_at)


@pytest.mark.parametrize("seed", range(20))
def test_never_more_than_there_are_and_all_of_them_used(seed: int) -> None:
    """Workers that die, a backlog in two queues, any count: at most `count` run, and no slot is lost."""
    dice = random.Random(seed)
    count, lease = dice.choice([1, 2, 5, 16]), 10.0
    workers = [Sim(n, dice.choice("ab"), SlotHand(count, 4)) for n in range(1, dice.choice([3, 6, 12]))]
    table = Table(count, lease, workers)
    began = dict.fromkeys("ab", 0)
    busy = ticks = 0
    while table.now < 120.0:
        table.now = now = table.now + 0.01
        for each in dice.sample(workers, len(workers)):
            if each.dead:
                continue
            if now < 60 and dice.random() < 0.0002:
                each.dead = True  # what ran there is over with it
                workers.append(Sim(len(workers) + 1, each.queue, SlotHand(count, 4), seen_at=now))
                continue
            if now - each.seen_at > lease / 3:
                each.seen_at = now
            each.running = [until for until in each.running if until > now]
            if each.asking is None and each.hand.is_due(len(each.running), 4, now):
                each.asking = table.ask(each)
            while each.asking is not None and dice.random() < 0.8:
                if next(each.asking, OVER) is OVER:
                    each.asking = None
            for _ in range(min(4, each.hand.at_once(now)) - len(each.running)):
                began[each.queue] += 1
                each.running.append(now + dice.choice([0.02, 0.1, 0.5]))
        running = sum(len(each.running) for each in workers if not each.dead)
        assert running <= count, f"seed {seed} at {now}"
        if now > 75.0:
            ticks += 1
            busy += running
    capacity = min(count, 4 * sum(not each.dead for each in workers))
    assert busy / ticks > 0.75 * capacity, f"seed {seed}: {busy / ticks} of {capacity} in use"
    queues = {each.queue for each in workers if not each.dead}
    assert all(began[queue] > 100 for queue in queues), f"seed {seed}: {began}"
