"""A worker without asyncio: the real bookkeeping (`rules.pacing`), the real rules and the real plans, one event after
another. What `worker.py`, `exchanges.py`, `heartbeat.py` and `transactions.py` do with a loop and threads is done here
in turns, so that a seed decides everything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.errors import StoreUnavailable
from holdfast.model.work import Leased, Report, Settlement
from holdfast.rules import delivery, holding
from holdfast.rules.delivery import Ending, conclude, verdict
from holdfast.rules.lanes import Completion, Lane, Limit, Stop, stamped
from holdfast.rules.pacing import Pacing
from holdfast.rules.policy import HandlerPolicy
from holdfast.settings import Settings
from holdfast.store.plans import engine, scheduled
from holdfast.store.statement import Plan, Runnable, Statement
from tests.proof.simulation.world import Died, Process, World

SETTINGS = Settings(lease=30.0, heartbeat=10.0, timeout=60.0, grace=5.0, claim=20, run=5)
TURN, TICK, LOOK, SLEEP = 0.3, 1.0, 5.0, 20.0


@dataclass
class Board:
    """What a supervisor can still read when the worker is dead."""

    running: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)


class Handling:
    """What handlers do; the story decides (see story.py)."""

    policies: dict[str, HandlerPolicy]
    runs: frozenset[str] = frozenset()  # queues whose calls get whole runs

    def started(self, leased: Leased) -> None:
        raise NotImplementedError

    def seconds(self, leased: Leased) -> float:
        raise NotImplementedError

    def kills(self, leased: Leased) -> bool:
        raise NotImplementedError

    def completes(self, leased: Leased) -> bool:
        raise NotImplementedError

    def ending(self, leased: Leased, ran: float) -> Ending:
        raise NotImplementedError

    def went_back(self, leased: Leased) -> None:
        """It was in a call with a run, behind one that failed: that start does not count."""
        raise NotImplementedError

    def settled(self, stood: list[Settlement]) -> None:
        """Settlements that stood and are committed."""
        raise NotImplementedError


class SimulatedWorker:
    """One process that drains queues, or the quarantine."""

    def __init__(self, world: World, name: str, handling: Handling, *, quarantine: bool = False) -> None:
        self.world, self.handling, self.quarantine = world, handling, quarantine
        self.process = Process(name)
        self.queues = sorted(handling.policies)
        self.board = Board()
        self.number = self.planned = 0
        self.up = False
        self.on_death: Callable[[SimulatedWorker], None] = lambda _: None

    def __str__(self) -> str:
        return f"{self.process.name}/{self.number}"

    # -- life

    def start(self) -> None:
        self.board, self.number = Board(), 0
        self.calls: dict[int, Lane] = {}  # running, by seq
        self.ends_of: dict[int, list[Leased]] = {}  # the runs that are in a call, by the seq of their first
        self.unheard: Report | None = None  # handed in, and nobody knows what became of it
        self.stopping_at: float | None = None
        limits = {queue: Limit(2, SETTINGS.timeout) for queue in self.queues}
        self.pacing = Pacing(limits, SETTINGS, quarantine=self.quarantine)
        try:
            self.number = self.transact(engine.register_worker(self.process.name, self.queues))
        except StoreUnavailable:
            self.later(1.0, self.start)
            return
        self.up = True
        self.world.tell(f"{self} starts")
        self.turn_soon()
        self.later(SETTINGS.heartbeat, self.beat)
        self.later(LOOK, self.watch)
        if not self.quarantine:
            self.later(TICK, self.tick)

    def transact(self, plan: Runnable[Any], *, hint: bool = False) -> Any:
        try:
            return self.world.transact(str(self), plan, hint=hint)
        except Died:
            self.die()
            raise

    def die(self) -> None:
        self.process.life += 1
        self.up = False
        self.on_death(self)

    def later(self, seconds: float, do: Callable[[], None]) -> None:
        self.world.after(seconds, self.process, do)

    @property
    def clock(self) -> float:
        return self.world.time

    def stop(self) -> None:
        """A deploy: finish what runs, give the rest back."""
        if self.up and self.stopping_at is None:
            self.world.tell(f"{self} is told to stop")
            self.stopping_at = self.clock
            self.pacing.stop()
            if self.unheard is None:
                self.turn_soon()

    # -- the exchange

    def turn_soon(self) -> None:
        self.turn_in(self.world.dice.uniform(0.01, TURN))

    def turn_in(self, seconds: float) -> None:
        """The next turn; one that was planned before is void."""
        self.planned += 1
        self.later(seconds, lambda planned=self.planned: self.turn() if planned == self.planned else None)

    def sleep(self, batch: Any) -> None:
        """Until something falls due, or somebody commits something: only a hint, and hints get lost."""
        seconds = SLEEP
        if batch.next_due is not None:
            seconds = min(SLEEP, max(0.01, (batch.next_due - batch.now).total_seconds()))
        self.turn_in(seconds)
        if self.world.dice.random() < 0.9:
            life, planned = self.process.life, self.planned
            self.world.sleepers.append(
                lambda: self.turn_soon() if (life, planned) == (self.process.life, self.planned) else None
            )

    def turn(self) -> None:
        if self.stopping_at is not None and self.pacing.idle and self.unheard is None:
            self.retire()
            return
        asked_at = self.clock
        if self.unheard is None:
            report = self.pacing.report(self.number, asked_at, peek=True)
        else:
            try:
                report = self.reconciled(self.unheard)
            except StoreUnavailable:
                self.turn_in(0.2)
                return
        try:
            batch = self.transact(self.exchange(report), hint=bool(report.settlements))
        except StoreUnavailable:
            self.unheard = report
            self.turn_in(0.1)
            return
        self.unheard = None
        for settlement in report.settlements:
            seq = settlement.leased.message.seq
            self.board.ended.discard(seq)
            if seq in batch.lost:
                self.world.hits["a settlement is fenced off"] += 1
                self.world.tell(f"{self} has lost {seq}")
        self.lose(self.pacing.receive(report, batch, asked_at))
        if batch.work:
            self.world.hits["a run of three or more"] += any(
                sum(each.run == other.run for other in batch.work) > 2 for each in batch.work
            )
            self.world.tell(
                f"{self} gets {[(each.message.seq, each.epoch, each.attempt) for each in batch.work]}"
            )
        self.start_lanes()
        if batch.work or report.settlements or self.pacing.has_results:
            self.turn_soon()
        else:
            self.sleep(batch)

    def exchange(self, report: Report) -> Plan[Any]:
        """As a plan, with what the checker wants to know of it before it is committed."""
        batch = yield from engine.exchange(report)
        stood = [s for s in report.settlements if s.leased.message.seq not in batch.lost]
        yield from check_order(self.world, stood)
        self.world.on_commit.append(lambda: self.handling.settled(stood))
        return batch

    def reconciled(self, report: Report) -> Report:
        """Mirrors Exchanges._reconcile."""
        standing = self.transact(engine.standing(self.number))
        settlements, moves, lost = holding.reconcile(self.pacing, standing)
        self.world.hits["an unheard report was done" if len(settlements) < len(report.settlements) else
                        "an unheard report was not done"] += bool(report.settlements)  # fmt: skip
        self.world.hits["a move was unheard of"] += bool(report.moves)
        self.lose(lost)
        known = holding.known(self.pacing, standing)
        self.transact(engine.recover(worker=self.number, known=known))
        return replace(report, settlements=settlements, moves=moves)

    def lose(self, lanes: list[Lane]) -> None:
        for lane in lanes:
            self.world.hits["a lane is lost"] += 1
            self.halt(lane, Stop.LOST)

    def halt(self, lane: Lane, why: Stop) -> None:
        """Tell a running handler to stop; it ends at once."""
        if lane.running is None or lane.stop is not None or lane.completing:
            return
        lane.stop = why
        self.later(0.0, lambda leased=lane.running: self.end(lane, leased))

    # -- lanes

    def start_lanes(self) -> None:
        for lane in list(self.pacing.starts(self.clock)):
            self.next_of(lane)

    def next_of(self, lane: Lane) -> None:
        if lane.queue in self.handling.runs and not self.quarantine:
            self.next_run(lane)
            return
        leased = self.pacing.begin(lane, self.clock)
        if leased is None:
            return
        policy = self.handling.policies[lane.queue]
        seq = leased.message.seq
        if leased.attempt > 1 and verdict(leased, policy) is not None:
            self.world.hits["starts are spent"] += 1
            self.settle(lane, leased, delivery.StartsSpent())
            return
        self.board.running.add(seq)
        self.calls[seq] = lane
        self.handling.started(leased)
        self.world.tell(f"{self} starts {seq} under {leased.epoch}")
        if self.handling.kills(leased):
            self.later(0.05, lambda: self.killed(leased))
            return
        self.later(self.handling.seconds(leased), lambda: self.end(lane, leased))

    def next_run(self, lane: Lane) -> None:
        """Mirrors RunCalls: the head of a lane and what is behind it in one call."""
        run = self.pacing.begin_run(lane, self.clock, 4, 1_000_000)
        if not run:
            return
        for place, leased in enumerate(run):
            if leased.attempt > 1 and verdict(leased, self.handling.policies[lane.queue]) is not None:
                lane.shorten(max(1, place))
                run = run[:place]
                if not run:
                    self.settle(lane, leased, delivery.StartsSpent())
                    return
                break
            seq = leased.message.seq
            self.board.running.add(seq)
            self.handling.started(leased)
        self.world.hits["a call with a run"] += len(run) > 1
        self.world.tell(f"{self} starts {[leased.message.seq for leased in run]} under {run[0].epoch}")
        self.calls[run[0].message.seq] = lane
        culprit = next((leased for leased in run if self.handling.kills(leased)), None)
        if culprit is not None:
            self.later(0.05, lambda: self.killed(culprit))
            return
        seconds = max(self.handling.seconds(leased) for leased in run)
        self.ends_of[run[0].message.seq] = run
        self.later(seconds, lambda: self.end(lane, run[0]))

    def end_run(self, lane: Lane, run: list[Leased]) -> None:
        """Each has its own answer; those behind the first that stays in the order are not looked at."""
        ran, stopped = self.clock - lane.started_at, lane.stop is not None
        policy = self.handling.policies[lane.queue]
        endings = [self.stopped(lane, ran)] * len(run) if stopped else None
        self.calls.pop(run[0].message.seq, None)
        for place, leased in enumerate(run):
            seq = leased.message.seq
            self.board.running.discard(seq)
            if lane.running is not leased:
                self.world.hits["an answer behind a failure is not looked at"] += 1
                self.handling.went_back(leased)
                continue
            ending = self.handling.ending(leased, ran) if endings is None else endings[place]
            settlement = conclude(leased, ending, policy, self.world.database_now(), self.world.dice.random())
            if settlement is not None:
                self.board.ended.add(seq)
            self.pacing.end(lane, settlement, ran / len(run))
        if self.unheard is None:
            self.turn_soon()
        self.next_of(lane)
        self.start_lanes()

    def killed(self, leased: Leased) -> None:
        self.world.tell(f"{self} is killed by {leased.message.seq}")
        self.world.hits["a message kills its worker"] += 1
        self.die()

    def end(self, lane: Lane, leased: Leased) -> None:
        if lane.running is not leased:
            return  # it was stopped before
        if (run := self.ends_of.pop(leased.message.seq, None)) is not None:
            self.end_run(lane, run)
            return
        ran = self.clock - lane.started_at
        if lane.stop is not None:
            self.settle(lane, leased, self.stopped(lane, ran))
        elif self.handling.completes(leased):
            self.complete(lane, leased, ran)
        else:
            self.settle(lane, leased, self.handling.ending(leased, ran))

    def stopped(self, lane: Lane, ran: float) -> Ending:
        self.world.hits[f"a handler is stopped: {lane.stop.value}"] += 1  # type: ignore[union-attr]
        match lane.stop:
            case Stop.LOST:
                return delivery.Lost()
            case Stop.TIMEOUT:
                return delivery.TimedOut(SETTINGS.timeout, 0, ran)
            case Stop.CANCELLED:
                return delivery.Cancelled(0, ran)
            case _:
                return delivery.Interrupted(0, ran)

    def settle(self, lane: Lane, leased: Leased, ending: Ending) -> None:
        seq = leased.message.seq
        self.board.running.discard(seq)
        self.calls.pop(seq, None)
        policy = self.handling.policies[lane.queue]
        settlement = conclude(leased, ending, policy, self.world.database_now(), self.world.dice.random())
        if settlement is not None:
            self.board.ended.add(seq)
        self.pacing.end(lane, settlement)
        if self.unheard is None:
            self.turn_soon()
        self.next_of(lane)
        self.start_lanes()

    # -- a handler that settles its message itself

    def complete(self, lane: Lane, leased: Leased, ran: float) -> None:
        if lane.handed and not lane.lost:  # an exchange on its way moves the lease when it lands
            self.world.hits["a completion waits for an exchange"] += 1
            self.later(0.1, lambda: self.end(lane, leased))
            return
        if lane.lost:
            self.settle(lane, leased, delivery.Lost())
            return
        completion = self.pacing.open_completion(lane)
        policy = self.handling.policies[lane.queue]
        ending = delivery.Returned(0, (), ran)
        settlement = conclude(leased, ending, policy, self.world.database_now(), 0.0)
        assert settlement is not None
        try:
            committed = self.transact(self.completing(completion, settlement), hint=True)
        except StoreUnavailable:
            self.verify(lane, leased, completion)
            return
        if not committed:
            self.world.hits["a completion is fenced off"] += 1
            self.pacing.undo_completion(lane, completion)
            self.settle(lane, leased, delivery.Lost())
            return
        self.completed(lane, leased, completion)

    def completing(self, completion: Completion, settlement: Settlement) -> Plan[bool]:
        """Mirrors Completions._plan: an effect of the handler's, and the settlement under whichever lease stands."""
        message = settlement.leased.message
        for fence, before in completion.ways:
            moves = [] if completion.after is None else [(fence[0], completion.after[0])]
            settlements = [*before, *stamped(fence, [settlement])]
            held = yield from engine.settle(settlements, moves)
            if message.seq in held:
                yield Statement(
                    "insert into effect values (:id, :queue)", {"id": str(message.id), "queue": message.queue}
                )
                stood = [s for s in settlements if s.leased.message.seq in held]
                yield from check_order(self.world, stood)
                self.world.on_commit.append(lambda stood=stood: self.handling.settled(stood))
                self.world.hits["a message is completed with its effect"] += 1
                return True
        return False

    def verify(self, lane: Lane, leased: Leased, completion: Completion) -> None:
        """Mirrors Completions._was_committed: where the lease stands tells what became of the transaction."""
        self.world.hits["a completion without an answer"] += 1
        try:
            standing, _ = self.transact(engine.look_at_leases([seq for seq, _ in lane.fences]))
        except StoreUnavailable:
            self.later(0.2, lambda: self.verify(lane, leased, completion))
            return
        before = standing.intersection(fence for fence, _ in completion.ways)
        if before:
            self.pacing.undo_completion(lane, completion)
            self.settle(
                lane, leased, delivery.Raised(ConnectionError("lost"), 0, self.clock - lane.started_at)
            )
            return
        if completion.after is not None and completion.after not in standing:
            self.pacing.lose(lane)
        self.completed(lane, leased, completion)

    def completed(self, lane: Lane, leased: Leased, completion: Completion) -> None:
        seq = leased.message.seq
        self.board.running.discard(seq)
        self.calls.pop(seq, None)
        for each in completion.taken:
            self.board.ended.discard(each.leased.message.seq)
        self.pacing.complete(lane, completion, self.clock - lane.started_at)
        self.next_of(lane)
        self.start_lanes()

    # -- the clock

    def beat(self) -> None:
        asked_at = self.clock
        asked = holding.leases(self.pacing, asked_at)
        fences = [fence for _, each in asked for fence in each]
        try:
            lost, cancelled = self.transact(engine.renew(self.number, fences, SETTINGS.lease))
        except StoreUnavailable:
            self.later(SETTINGS.heartbeat / 10, self.beat)
            return
        self.lose(holding.renewed(self.pacing, asked, lost, asked_at))
        for lane, _ in asked:
            following = lane.following
            if following is not None and following.message.seq in cancelled:
                self.halt(lane, Stop.CANCELLED)
        self.later(SETTINGS.heartbeat, self.beat)

    def watch(self) -> None:
        for lane in holding.overdue(self.pacing, self.clock):
            self.halt(lane, Stop.TIMEOUT)
        for lane in holding.lapsed(self.pacing, self.clock):
            self.halt(lane, Stop.LAPSED)
        if self.stopping_at is not None and self.clock > self.stopping_at + SETTINGS.grace:
            for lane in list(self.calls.values()):
                self.halt(lane, Stop.GRACE)
        if not self.quarantine:
            try:
                if self.transact(engine.recover()):
                    self.world.hits["a lapsed lease is taken over"] += 1
                    self.world.tell(f"{self} ends lapsed leases")
            except StoreUnavailable:
                pass
        self.later(LOOK, self.watch)

    def tick(self) -> None:
        """Bring over scheduled messages that are due."""
        try:
            brought = self.transact(scheduled.bring(500, 1 << 20))
            if brought.did:
                self.world.hits["a scheduled message is brought over"] += 1
                self.pacing.asking.look_anew(brought.queues)
                if self.unheard is None:
                    self.turn_soon()
        except StoreUnavailable:
            pass
        self.later(TICK, self.tick)

    def retire(self) -> None:
        try:
            self.transact(engine.retire_worker(self.number))
        except StoreUnavailable:
            self.turn_in(0.2)
            return
        self.world.hits["a worker stops as it should"] += 1
        self.process.life += 1
        self.up = False
        self.later(1.0, self.start)


def check_order(world: World, stood: list[Settlement]) -> Plan[None]:
    """Nothing is done while an earlier one of its stream is in the order. Asked before the commit."""
    for s in stood:
        m = s.leased.message
        if s.outcome == "done" and m.position is not None:
            rows = yield Statement(
                "select count(*) from holdfast_message"
                " where queue = :queue and stream = :stream and position < :position",
                {"queue": m.queue, "stream": m.stream, "position": m.position},
            )
            if rows[0][0]:
                world.wrong.append(f"{m.seq} of stream {m.stream} is done before {rows[0][0]} earlier ones")
