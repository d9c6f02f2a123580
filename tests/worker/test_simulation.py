"""Two workers' bookkeeping over the real SQL, in memory, with everything that can go wrong between them, by chance.

What is drawn: messages come, exchanges are sent, arrive, are lost before or after their commit; handlers begin and
end in every way, or settle themselves and commit or roll back; heartbeats, lapses, pauses, workers that stop. What
must hold: nobody holds more than allowed, every message ends once, streams keep their order, no lease is left behind.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pytest

from holdfast.clock import MovableClock
from holdfast.model.message import NewMessage
from holdfast.model.work import Batch, Report, Settlement
from holdfast.rules import delivery, holding
from holdfast.rules.lanes import Completion, Lane, Limit, stamped
from holdfast.rules.pacing import Pacing
from holdfast.rules.policy import HandlerPolicy
from holdfast.rules.retry import RetryPolicy
from holdfast.settings import Settings
from holdfast.store.connecting_sqlite import execute
from holdfast.store.migrate import migrate
from holdfast.store.plans import engine
from holdfast.store.plans.engine_sqlite import SqliteEngine
from holdfast.store.statement import Runnable, bound, drive

QUEUES = {"strict": "strict", "loose": "available"}
SETTINGS = Settings(claim=20, claim_bytes=600, run=5, lease=30.0)
LIMITS = {
    "strict": Limit(4, timeout=100.0),
    "loose": Limit(3, timeout=100.0, per_key=1),
}


class World:
    """The database, its clock, and what users see of it."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.clock = MovableClock()
        self.engine = SqliteEngine()
        self.db = sqlite3.connect(":memory:", isolation_level=None)
        self.run(migrate("sqlite"))
        self.run(engine.subscribe({queue: (f"{queue}.*",) for queue in QUEUES}))
        self.published = 0

    @property
    def now(self) -> int:
        from holdfast.clock import micros

        return micros(self.clock.instant)

    def run(self, plan: Runnable[Any]) -> Any:
        self.db.execute("begin immediate")
        try:
            result = drive(bound(plan, self.engine, self.now), lambda statement: execute(self.db, statement))
        except BaseException:
            self.db.execute("rollback")
            raise
        self.db.execute("commit")
        return result

    def publish(self) -> None:
        messages = []
        for _ in range(self.dice.randint(1, 6)):
            self.published += 1
            stream = self.dice.choice([None, "a", "b", "c"])
            queue = self.dice.choice(list(QUEUES))
            body = '"' + "x" * self.dice.randint(0, 80) + '"'
            subject = self.dice.choice([None, "k", "l"])
            id = UUID(int=self.published)
            messages.append(NewMessage(id, f"{queue}.m", body, stream=stream, subject=subject))
        self.run(engine.append(messages))

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.db.execute(sql).fetchall()


@dataclass
class Opened:
    """A handler that has settled its message in a transaction which is not over: seen as a savepoint would be."""

    completion: Completion
    settlement: Settlement
    committed: bool


class Actor:
    """A worker, step by step."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.number: int = world.run(engine.register_worker("w", list(QUEUES)))
        self.pacing = Pacing(LIMITS, SETTINGS)
        self.flight: tuple[Report, float] | None = None
        self.answer: Batch | None = None
        self.running: list[Lane] = []
        self.opened: dict[Lane, Opened] = {}

    @property
    def mono(self) -> float:
        return self.world.clock.monotonic()

    # -- exchanges, in pieces

    def send(self) -> None:
        if self.flight is None:
            self.flight = (self.pacing.report(self.number, self.mono, peek=True), self.mono)

    def arrive(self) -> None:
        """The store does it, and the answer is on its way back."""
        if self.flight is not None and self.answer is None:
            report, _ = self.flight
            self.answer = self.world.run(engine.exchange(report))

    def receive(self) -> None:
        if self.flight is not None and self.answer is not None:
            report, asked_at = self.flight
            self.flight, answer, self.answer = None, self.answer, None
            self.pacing.receive(report, answer, asked_at)
            self.pacing.unpack({each.token: each.message.subject for each in self.pacing.arrived()})
            self.running += self.pacing.starts(self.mono)

    def lose_answer(self) -> None:
        """The connection broke, before or after the store had done it: look where the leases stand."""
        if self.flight is None:
            return
        report, _ = self.flight
        self.answer = None
        asked = holding.where(self.pacing)
        standing = self.world.run(engine.standing(self.number))
        # The answer finds a worker whose handlers may have gone on meanwhile.
        for _ in range(self.world.dice.choice([0, 0, 3, 10])):
            self.world.dice.choice([self.begin, self.end, self.complete, self.verify])()
        standing |= holding.moved_since(asked)
        settlements, moves, lost = holding.reconcile(self.pacing, standing)
        held = self.world.run(engine.standing(self.number))
        assert not held.intersection(fence for lane in lost for fence in lane.fences), "taken for lost"
        known = holding.known(self.pacing, standing)
        self.world.run(engine.recover(worker=self.number, known=known))
        self.flight = (replace(report, settlements=settlements, moves=moves), self.mono)

    # -- handlers

    def begin(self) -> None:
        for lane in list(self.running):
            if lane.running is None:
                if self.pacing.begin(lane, self.mono) is None:
                    self.running.remove(lane)
                    following = self.pacing.start(lane.queue, self.mono)
                    if following is not None:
                        self.running.append(following)
                return

    def pick(self) -> Lane | None:
        lanes = [lane for lane in self.running if lane.running is not None and lane not in self.opened]
        return self.world.dice.choice(lanes) if lanes else None

    def end(self) -> None:
        lane = self.pick()
        if lane is None or lane.running is None:
            return
        endings: list[delivery.Ending] = [
            delivery.Returned(),
            delivery.Returned(),
            delivery.Returned(),
            delivery.Raised(RuntimeError("no")),
            delivery.Snoozed(5.0),
            delivery.Died("never"),
            delivery.Interrupted(),
            delivery.Cancelled(),
            delivery.Lost() if lane.lost else delivery.Returned(),
        ]
        self.finish(lane, self.world.dice.choice(endings))

    def finish(self, lane: Lane, ending: delivery.Ending) -> None:
        assert lane.running is not None
        how = HandlerPolicy(RetryPolicy(attempts_max=4, base=1.0, cap=5.0), QUEUES[lane.queue])
        self.pacing.end(lane, delivery.conclude(lane.running, ending, how, self.world.clock.instant, 0.5))

    def complete(self) -> None:
        """The handler settles itself, at any moment of an exchange; SQLite does one thing after the other."""
        lane = self.pick()
        if lane is None or lane.lost or lane.running is None:
            return
        completion = self.pacing.open_completion(lane)
        ending = delivery.Returned()
        settlement = delivery.conclude(lane.running, ending, HandlerPolicy(), self.world.clock.instant, 0.5)
        assert settlement is not None
        committed = False
        self.world.db.execute("begin immediate")
        for fence, before in completion.ways:
            moves = [] if completion.after is None else [(fence[0], completion.after[0])]
            plan = engine.settle([*before, *stamped(fence, [settlement])], moves)
            held = drive(
                bound(plan, self.world.engine, self.world.now),
                lambda statement: execute(self.world.db, statement),
            )
            if lane.running.message.seq in held:
                committed = self.world.dice.random() < 0.7
                break
        else:
            self.world.db.execute("rollback")
            self.pacing.undo_completion(lane, completion)
            self.finish(lane, delivery.Lost())
            return
        self.world.db.execute("commit" if committed else "rollback")
        self.opened[lane] = Opened(completion, settlement, committed)

    def verify(self) -> None:
        """The handler that settled itself has ended: where does the lease stand?"""
        if not self.opened:
            return
        lane = self.world.dice.choice(list(self.opened))
        opened = self.opened.pop(lane)
        seqs = [seq for seq, _ in lane.fences]
        standing, _ = self.world.run(engine.look_at_leases(seqs))
        before = standing.intersection(fence for fence, _ in opened.completion.ways)
        if opened.committed:
            assert not before, "what was committed looks as if it were not"
        if not before:
            if opened.completion.after is not None and opened.completion.after not in standing:
                self.pacing.lose(lane)
            self.pacing.complete(lane, opened.completion, 0.0)
        else:
            self.pacing.undo_completion(lane, opened.completion)
            if lane.running is not None:
                self.finish(
                    lane, delivery.Lost() if lane.lost else delivery.Raised(RuntimeError("rolled back"))
                )

    # -- time

    def beat(self) -> None:
        asked = holding.leases(self.pacing, self.mono)
        fences = [fence for _, fences in asked for fence in fences]
        lost, _ = self.world.run(engine.renew(self.number, fences, SETTINGS.lease))
        # The answer finds a worker that may have gone on meanwhile.
        if self.world.dice.random() < 0.5:
            self.send()
        holding.renewed(self.pacing, asked, lost, self.mono)

    def look_at_the_clock(self) -> None:
        holding.lapsed(self.pacing, self.mono)

    # -- what must hold

    def check(self) -> None:
        pacing = self.pacing
        lanes = set(pacing.lanes.values()) | set(self.running)
        held = [each for lane in lanes for each in (*lane.waiting, *([lane.running] if lane.running else []))]
        assert pacing.held == len(held)
        assert pacing.held_bytes == sum(len(each.message.body) for each in held)
        assert pacing.held <= 2 * SETTINGS.claim
        for queue, pace in pacing.paces.items():
            running = [lane for lane in self.running if lane.queue == queue]
            assert pace.running == len(running) <= LIMITS[queue].concurrency
        keys = Counter(lane.key for lane in self.running if lane.running is not None and lane.key is not None)
        assert all(count <= 1 for count in keys.values())
        for lane in lanes:
            assert len(set(lane.fences)) == len(lane.fences)
        for lane in pacing.lanes.values():  # those that are over have no lease
            assert len(lane.fences) == 1 or lane.completing or self.flight is not None


def turn(world: World, actors: list[Actor]) -> None:
    actor = world.dice.choice(actors)
    steps = [
        actor.send, actor.arrive, actor.receive, actor.begin, actor.begin, actor.end, actor.end, actor.complete,
        actor.verify, actor.beat, actor.look_at_the_clock,
    ]  # fmt: skip
    chance = world.dice.random()
    if chance < 0.08:
        world.publish()
    elif chance < 0.11:
        actor.lose_answer()
    elif chance < 0.16:
        world.clock.advance(seconds=world.dice.choice([0.1, 1.0, 6.0]))
    elif chance < 0.17:
        world.clock.advance(seconds=35.0)
    elif chance < 0.19:
        world.run(engine.recover())
    elif chance < 0.20:
        paused = "null" if world.dice.random() < 0.6 else str(world.now)
        world.db.execute(f"update holdfast_queue set paused_at = {paused} where name = 'strict'")
    else:
        world.dice.choice(steps)()
    actor.check()


def settle_down(world: World, actor: Actor) -> None:
    """Told to stop: what runs ends, what has not begun goes back, and nothing is left in its hands."""
    actor.pacing.stop()
    for _ in range(200):
        while actor.opened:
            actor.verify()
        for lane in list(actor.running):
            if lane.running is not None:
                actor.finish(lane, delivery.Lost() if lane.lost else delivery.Returned())
            assert actor.pacing.begin(lane, actor.mono) is None, "something was started after the stop"
            actor.running.remove(lane)
        actor.send()
        actor.arrive()
        actor.receive()
        actor.check()
        if actor.pacing.idle and not actor.running:
            return
    raise AssertionError(f"lanes are left: {actor.pacing.lanes}")


@pytest.mark.covers("X36", "W103")
@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_every_message_ends_once_and_in_order(seed: int) -> None:
    world = World(seed)
    actors = [Actor(world), Actor(world)]
    for _ in range(400):
        turn(world, actors)
    world.db.execute("update holdfast_queue set paused_at = null")
    for actor in actors:
        settle_down(world, actor)
    left = world.rows("select * from holdfast_lease")
    assert not left, "a lease was left behind by workers that stopped in order"
    drain(world)
    ended = world.rows("select id, queue from holdfast_history union all select id, queue from holdfast_dead")
    assert sorted(ended) == sorted(set(ended)), "a message ended twice"
    assert len(ended) == world.published
    assert_order(world)


def drain(world: World) -> None:
    """A last worker, alone, with time to spare, which also takes the suspects."""
    actor = Actor(world)
    for _ in range(4000):
        world.clock.advance(seconds=1.0)
        actor.pacing.quarantine = actor.pacing.idle and world.dice.random() < 0.5
        actor.send()
        actor.arrive()
        actor.receive()
        actor.pacing.quarantine = False
        while actor.running:
            actor.begin()
            for lane in list(actor.running):
                if lane.running is not None:
                    actor.finish(lane, delivery.Returned())
        if not world.rows("select 1 from holdfast_message limit 1"):
            return
    raise AssertionError(f"never ended: {world.rows('select * from holdfast_message')[:3]}")


def assert_order(world: World) -> None:
    """Of a strict stream, what was done was done in the order in which it was published."""
    done = world.rows(
        "select stream, id from holdfast_history where queue = 'strict' and stream is not null and outcome = 'done' "
        "order by rowid"
    )
    for stream in ("a", "b", "c"):
        numbers = [UUID(id).int for name, id in done if name == stream]
        assert numbers == sorted(numbers)
