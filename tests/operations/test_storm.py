"""Operators, workers and producers at once: nothing is lost, no order broken, no count wrong, nobody deadlocked."""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from uuid import UUID

import pytest

from holdfast.clock import SystemClock
from holdfast.errors import NotFound, Refused
from holdfast.model.message import Flag, Reason
from holdfast.model.work import Leased, Outcome, Report, Settlement, Want
from holdfast.operations import Filter, Operations
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.plans import engine
from tests.operations.world import World

STREAMS = ["s0", "s1", "s2"]
QUEUES = ["a", "b"]
LEASE = 0.4


class Storm:
    """What everybody does at random until the time is over, and what they saw."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.seed = world, seed
        self.published: set[tuple[UUID, str]] = set()
        self.places: dict[tuple[UUID, str], dict[int, int | None]] = defaultdict(dict)  # by epoch
        self.done: dict[tuple[UUID, str], list[int]] = defaultdict(list)  # epochs of settlements that stood
        self.refused: Counter[str] = Counter()
        self.failures: list[BaseException] = []
        self.over = threading.Event()
        self.lock = threading.Lock()

    def run(self, seconds: float) -> None:
        roles: list[Callable[[random.Random], None]] = [
            self.produce, self.produce, self.work, self.work, self.work, self.quarantine,
            self.operate, self.operate, self.operate, self.keep_house, self.check,
        ]  # fmt: skip
        threads = [threading.Thread(target=self.repeat, args=(role, n)) for n, role in enumerate(roles)]
        for thread in threads:
            thread.start()
        self.over.wait(seconds)
        self.over.set()
        for thread in threads:
            thread.join(60)
        if self.failures:
            raise self.failures[0]

    def repeat(self, role: Callable[[random.Random], None], number: int) -> None:
        dice = random.Random(self.seed * 1000 + number)
        while not self.over.is_set():
            try:
                role(dice)
            except (Refused, NotFound) as expected:
                self.refused[type(expected).__name__] += 1
            except BaseException as unexpected:
                self.failures.append(unexpected)
                self.over.set()
            self.over.wait(dice.random() * 0.01)

    # -- roles

    def produce(self, dice: random.Random) -> None:
        queue = dice.choice(QUEUES)
        id = self.world.publish(stream=dice.choice([*STREAMS, None]), queue=queue)
        with self.lock:
            self.published.add((id, queue))

    def work(self, dice: random.Random) -> None:
        worker = self.world.worker(f"w{threading.get_ident()}", *QUEUES)
        wants = [Want(queue, 5) for queue in QUEUES]
        report = Report(worker, want=wants, total=10, run=dice.choice([1, 4]), lease=LEASE)
        self.handle(dice, self.exchange(report))

    def quarantine(self, dice: random.Random) -> None:
        worker = self.world.worker(f"w{threading.get_ident()}", *QUEUES)
        report = Report(
            worker, want=[Want(queue, 1) for queue in QUEUES], total=1, suspects=True, lease=LEASE
        )
        self.handle(dice, self.exchange(report))

    def exchange(self, report: Report) -> list[Leased]:
        return list(self.world.store.run(engine.exchange(report)).work)

    def handle(self, dice: random.Random, work: list[Leased]) -> None:
        """Settle each run, up to its first failure, at once."""
        runs: dict[int, list[Leased]] = defaultdict(list)
        for leased in work:
            runs[leased.run].append(leased)
            with self.lock:
                self.places[leased.message.id, leased.message.queue][leased.epoch] = leased.message.position
        for run in runs.values():
            if dice.random() < 0.05:
                continue  # vanished
            self.over.wait(dice.random() * 0.004)
            settlements = []
            for leased in run:
                settlements.append(ending(dice, leased))
                if settlements[-1].outcome is not Outcome.DONE:
                    break
            held = self.settle(settlements)
            with self.lock:
                for each in settlements:
                    if each.outcome is Outcome.DONE and each.leased.message.seq in held:
                        self.done[each.leased.message.id, each.leased.message.queue].append(each.leased.epoch)

    def settle(self, settlements: list[Settlement]) -> set[int]:
        for _ in range(3):
            try:
                return self.world.store.run(engine.settle(settlements, ()))
            except Exception as error:
                # Its lease was taken over at this instant: again.
                if getattr(error, "sqlstate", None) != "40001":
                    raise
        raise AssertionError("a lease cannot be taken over three times")

    def operate(self, dice: random.Random) -> None:
        operations = self.world.operations
        queue, stream = dice.choice(QUEUES), dice.choice(STREAMS)
        orders: list[Callable[[], object]] = [
            lambda: operations.messages.retry(self.pick(dice), reset=dice.random() < 0.5),
            lambda: operations.messages.park(self.pick(dice)),
            lambda: operations.messages.cancel(self.pick(dice)),
            lambda: operations.messages.poison(self.pick(dice), "storm"),
            lambda: operations.streams.release(self.pick(dice)),
            lambda: operations.streams.set_aside(queue, stream),
            lambda: operations.streams.halt(queue, stream, "storm"),
            lambda: operations.streams.resume(queue, stream),
            lambda: operations.messages.retry_many(Filter(queue=queue)),
            lambda: operations.dead.redrive(self.pick_dead(dice), now=dice.random() < 0.3),
            lambda: operations.dead.redrive_many(Filter(queue=queue, stream=stream), now=dice.random() < 0.3),
            lambda: operations.dead.discard(self.pick_dead(dice), "storm"),
        ]
        dice.choice(orders)()

    def pick(self, dice: random.Random) -> UUID:
        found = self.world.operations.messages.find(newest=dice.random() < 0.3, limit=30)
        if not found:
            raise NotFound
        return dice.choice(found).id

    def pick_dead(self, dice: random.Random) -> UUID:
        found = self.world.operations.dead.list(limit=10)
        if not found:
            raise NotFound
        return dice.choice(found).id

    def keep_house(self, dice: random.Random) -> None:
        self.world.operations.housekeeping()
        self.over.wait(0.05)

    def check(self, dice: random.Random) -> None:
        self.world.healthy()
        self.over.wait(0.05)

    # -- the end

    def drain(self) -> None:
        """Operators let everything go, and one worker handles the rest."""
        operations, dice = self.world.operations, random.Random(0)
        ended, in_vain = 0, 0  # a fast machine leaves more behind: what counts is that messages go on ending
        while in_vain < 400:
            self.over.clear()
            operations.dead.redrive_many(Filter())
            for stream in operations.streams.list(limit=1000):
                operations.streams.resume(stream.queue, stream.stream)
            operations.messages.retry_many(Filter(), reset=True)
            operations.messages.retry_many(Filter(state="suspect"), reset=True)
            for role in (self.work, self.quarantine):
                role(dice)
            operations.housekeeping()
            if not operations.messages.find(limit=1) and not operations.dead.list(limit=1):
                return
            before, ended = ended, len(self.history())
            in_vain = 0 if ended > before else in_vain + 1
            self.over.wait(0.01)  # for leases of those that vanished
        raise AssertionError(f"left over: {operations.status().states}")

    def verify(self) -> None:
        ended: Counter[tuple[UUID, str]] = Counter()
        for queue, id, outcome in self.history():
            ended[id, queue] += 1
            if outcome == "done":
                assert len(self.done[id, queue]) == 1, "done once, by whoever held it"
            else:
                assert not self.done[id, queue], "what was settled as done did not end otherwise"
        assert set(ended) == self.published, "every message ended"
        assert set(ended.values()) == {1}, "and only once"

    def history(self) -> list[tuple[str, UUID, str]]:
        rows = self.world.sql("select queue, id, outcome from holdfast.history order by ended_at")
        return [(queue, id if isinstance(id, UUID) else UUID(id), outcome) for queue, id, outcome in rows]

    def verify_order(self) -> None:
        """What was done in the order of a stream was done by rising positions."""
        rows = self.world.sql(
            "select queue, stream, id, ended_at from holdfast.history where outcome = 'done' and stream is not null"
        )
        seen: dict[tuple[str, str], list[tuple[object, int]]] = defaultdict(list)
        for queue, stream, id, at in rows:
            key = (id if isinstance(id, UUID) else UUID(id), queue)
            place = self.places[key][self.done[key][0]]
            if place is not None:
                seen[queue, stream].append((at, place))
        assert seen
        for places in seen.values():
            ordered = [place for _, place in sorted(places)]  # type: ignore[type-var]
            assert ordered == sorted(ordered)


def ending(dice: random.Random, leased: Leased) -> Settlement:
    roll = dice.random()
    if roll < 0.7:
        return Settlement(leased, Outcome.DONE)
    failed = {"failed": True, "flags": int(Flag.FAILED), "reason": Reason.HANDLER_EXCEPTION, "error": "storm"}
    if roll < 0.8:
        return Settlement(leased, Outcome.DEAD, halt=dice.random() < 0.5, **failed)
    return Settlement(leased, Outcome.AGAIN, delay=dice.random() * 0.2, aside=dice.random() < 0.2, **failed)


def storm(url: str, seed: int, seconds: float) -> None:
    settings = Settings(lease=LEASE * 10, heartbeat=1.0)
    store = open_store(url, settings, SystemClock())
    store.migrate()
    world = World(store, None, settings, Operations(store, settings))
    try:
        storm = Storm(world, seed)
        storm.run(seconds)
        storm.drain()
        storm.verify()
        storm.verify_order()
        world.healthy()
        if not url.startswith("sqlite"):
            ((deadlocks,),) = world.sql(
                "select deadlocks from pg_stat_database where datname = current_database()"
            )
            assert deadlocks == 0
    finally:
        store.close()


@pytest.mark.covers("W103")
def test_a_short_storm(url: str) -> None:
    storm(url, seed=1, seconds=2.0)


@pytest.mark.faults("storms")
@pytest.mark.parametrize("seed", range(2, 10))
def test_a_long_storm(url: str, seed: int) -> None:
    storm(url, seed, seconds=30.0)
