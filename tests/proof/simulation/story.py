"""One seed: messages with a fate, workers that handle them, people who interfere, and faults, until calm comes and
everything must end.

Fates: `well` ends at once, maybe with what it emits or in a transaction of its own; `flaky` fails a few times, `slow`
runs into its timeout once, `sleepy` asks for time; `stumbler` kills its first worker. None of these may ever become a
dead letter. `doomed` always fails, `hopeless` says so itself, `killer` kills whoever starts it: these die, nobody else.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from holdfast.errors import NotFound, Refused, StoreUnavailable
from holdfast.model.message import NewMessage
from holdfast.model.work import Leased, Outcome, Settlement
from holdfast.rules import delivery
from holdfast.rules.delivery import Ending
from holdfast.rules.policy import HandlerPolicy
from holdfast.rules.retry import RetryPolicy
from holdfast.store.plans import dead, engine, operator, queues
from holdfast.store.plans.operator import TargetChanged
from holdfast.store.statement import Plan, Statement
from tests.proof.simulation.worker import Handling, SimulatedWorker
from tests.proof.simulation.world import Died, Process, World

STARTS = 16
RETRY = RetryPolicy(attempts_max=STARTS, base=1.0, cap=20.0)
POLICIES = {
    "available": HandlerPolicy(RETRY, ordering="available"),
    "halting": HandlerPolicy(RETRY, on_dead="halt"),
    "loose": HandlerPolicy(RETRY),
    "strict": HandlerPolicy(RETRY),
}
SUBSCRIPTIONS = {
    "available": ["order"],
    "halting": ["payment"],
    "loose": ["note"],
    "strict": ["order", "letter*"],
}
TYPES = ("order", "order", "payment", "note", "letter.a")
FATES = ("well",) * 6 + ("flaky", "flaky", "slow", "sleepy", "stumbler", "doomed", "hopeless", "killer")
MORTAL = {"doomed", "hopeless", "killer"}
TROUBLE = 90.0  # seconds of faults
STEPS_MAX = 60_000


@dataclass
class Fate:
    kind: str
    emits: int = 0
    completes: bool = False
    seconds: float = 0.1


class Story(Handling):
    """A seed from its beginning to its end."""

    policies = POLICIES

    def __init__(self, seed: int, messages: int = 24) -> None:
        self.world = w = World(seed)
        self.runs = frozenset({"strict", "available"} if seed % 2 else ())
        self.fates: dict[UUID, Fate] = {}
        self.published: set[UUID] = set()  # committed
        self.starts: Counter[tuple[UUID, str]] = Counter()
        self.refunds: Counter[tuple[UUID, str]] = Counter()
        self.mended: set[tuple[UUID, str]] = set()  # redriven: they end well now
        self.left = messages
        self.supervised = w.dice.random() < 0.6
        self.people = Process("people")
        self.producer = Process("producer")
        self.workers = [SimulatedWorker(w, f"worker{n}", self) for n in range(w.dice.randrange(2, 4))]
        self.workers.append(SimulatedWorker(w, "quarantine", self, quarantine=True))
        for worker in self.workers:
            worker.on_death = self.mourn
        w.transact("app", engine.subscribe(SUBSCRIPTIONS, ["loose"]), faulty=False)

    # -- the whole

    def play(self) -> World:
        w = self.world
        for worker in self.workers:
            w.after(w.dice.random(), worker.process, worker.start)
        w.after(0.1, self.producer, self.produce)
        w.after(3.0, self.people, self.interfere)
        w.after(TROUBLE, self.people, self.calm_down)
        w.run(self.over, STEPS_MAX)
        if not w.wrong:
            self.check()
        return w

    def calm_down(self) -> None:
        self.world.calm, self.world.skew = True, 0.0
        self.world.tell("calm")

    def over(self) -> bool:
        if not self.world.calm or self.left:
            return False
        return not self.world.query("select 1 from holdfast_pending limit 1")

    # -- producing

    def produce(self) -> None:
        w = self.world
        if not self.left:
            return
        batch = [self.message() for _ in range(min(self.left, w.dice.choice((1, 1, 2, 5))))]
        self.send(batch)
        self.left -= len(batch)
        w.after(w.dice.uniform(0.05, 6.0), self.producer, self.produce)

    def message(self, emits: bool = True) -> NewMessage:
        w, dice = self.world, self.world.dice
        fate = Fate(dice.choice(FATES), seconds=dice.choice((0.01, 0.2, 2.0, 45.0)))
        if fate.kind == "well":
            fate.emits = dice.choice((0, 0, 1, 2)) if emits else 0
            fate.completes = not fate.emits and dice.random() < 0.6
        id = w.id()
        self.fates[id] = fate
        stream = dice.choice((None, "a", "a", "b"))
        delay = dice.choice((None, None, None, None, 5.0, 40.0))
        key = f"key{len(self.fates)}" if dice.random() < 0.5 else None
        return NewMessage(
            id=id,
            type=dice.choice(TYPES),
            body=json.dumps(len(self.fates)),
            stream=stream,
            delay=delay,
            dedupe=key,
        )

    def send(self, batch: list[NewMessage]) -> None:
        """In one transaction with a write of the producer's own; one that does not know tries again with its keys."""
        w = self.world
        keyed = all(m.dedupe is not None for m in batch)
        for attempt in range(10):
            try:
                w.transact("producer", self.storing(batch))
                return
            except StoreUnavailable:
                if not keyed:
                    return  # it would have to look into its own table first
                w.hits["a producer tries again"] += attempt == 0
            except Died:
                return  # a new one goes on with the next message

    def storing(self, batch: list[NewMessage]) -> Plan[None]:
        answers = yield from engine.append(batch)
        for message, answer in zip(batch, answers, strict=True):
            if answer.duplicate:
                self.world.hits["a duplicate is recognised"] += 1
                if answer.id != message.id:
                    self.world.wrong.append(f"{message.id} is taken for {answer.id}")
                continue
            yield Statement("insert into business values (:id)", {"id": str(message.id)})
        new = {message.id for message, answer in zip(batch, answers, strict=True) if not answer.duplicate}
        self.world.on_commit.append(lambda: self.published.update(new))

    # -- handling

    def fate_of(self, leased: Leased) -> tuple[Fate, int]:
        key = (leased.message.id, leased.message.queue)
        fate = self.fates[key[0]]
        return Fate("well") if key in self.mended and fate.kind in MORTAL else fate, self.starts[key]

    def started(self, leased: Leased) -> None:
        message = leased.message
        key = (message.id, message.queue)
        self.starts[key] += 1
        if message.vanished:
            self.world.hits["a suspect is started"] += 1
        counted = self.starts[key] - self.refunds[key]
        if counted > STARTS:
            self.world.wrong.append(f"{message.id} in {message.queue} was started {counted} times that count")

    def kills(self, leased: Leased) -> bool:
        fate, starts = self.fate_of(leased)
        return fate.kind == "killer" or (fate.kind == "stumbler" and starts == 1)

    def seconds(self, leased: Leased) -> float:
        fate, starts = self.fate_of(leased)
        return 200.0 if fate.kind == "slow" and starts == 1 else fate.seconds

    def completes(self, leased: Leased) -> bool:
        return self.fate_of(leased)[0].completes

    def ending(self, leased: Leased, ran: float) -> Ending:
        fate, starts = self.fate_of(leased)
        match fate.kind:
            case "flaky" if starts <= 2:
                return delivery.Raised(RuntimeError("flaky"), 8 * starts, ran)
            case "sleepy" if starts <= 2:
                self.world.hits["a handler asks for time"] += 1
                return delivery.Snoozed(7.0, 0, ran)
            case "doomed":
                return delivery.Raised(RuntimeError("doomed"), 0, ran)
            case "hopeless":
                return delivery.Died("hopeless", 0, ran)
        emits = tuple(self.message(emits=False) for _ in range(fate.emits))
        return delivery.Returned(0, emits, ran)

    def went_back(self, leased: Leased) -> None:
        self.refunds[leased.message.id, leased.message.queue] += 1

    def settled(self, stood: list[Settlement]) -> None:
        for s in stood:
            key = (s.leased.message.id, s.leased.message.queue)
            if not s.counted and s.started:
                self.refunds[key] += 1
            self.published |= {m.id for m in s.emits}
            self.world.hits[f"settled: {s.outcome.value}"] += 1
            self.world.hits["given back unstarted"] += s.outcome is Outcome.AGAIN and not s.started
            self.world.hits["set aside"] += s.aside
            self.world.hits["a stream is halted by a death"] += s.halt

    # -- supervising

    def mourn(self, worker: SimulatedWorker) -> None:
        """The machine or a supervisor starts it again; a supervisor also tells what it had begun."""
        w = self.world
        running, ended, number = sorted(worker.board.running), sorted(worker.board.ended), worker.number
        if self.supervised and number:
            w.after(w.dice.uniform(0.05, 1.0), self.people, lambda: self.report(number, running, ended, 20))
        w.after(w.dice.uniform(0.1, 2.0), worker.process, worker.start)

    def report(self, number: int, running: list[int], ended: list[int], tries: int) -> None:
        w = self.world
        try:
            w.transact("supervisor", engine.recover(worker=number, running=running, ended=ended))
            w.hits["a supervisor reports a death"] += 1
        except (StoreUnavailable, Died):
            if tries:
                w.after(0.5, self.people, lambda: self.report(number, running, ended, tries - 1))

    # -- people

    def interfere(self) -> None:
        w = self.world
        w.disturb([worker.process for worker in self.workers])
        if not w.calm and w.dice.random() < 0.1:
            w.dice.choice(self.workers[:-1]).stop()
        try:
            (
                self.unblock
                if w.calm
                else w.dice.choice((self.cancel, self.set_aside, self.redrive, self.unblock, self.halt))
            )()
        except (StoreUnavailable, TargetChanged, Died):
            w.hits["an order is interrupted"] += 1
        except (Refused, NotFound):
            w.hits["an order is refused"] += 1
        w.after(w.dice.uniform(1.0, 6.0) * (5.0 if w.calm else 1.0), self.people, self.interfere)

    def some(self, sql: str) -> Any:
        rows = self.world.query(sql)
        return self.world.dice.choice(rows) if rows else None

    def cancel(self) -> None:
        w = self.world
        if w.dice.random() < 0.8:
            return
        if found := self.some("select seq from holdfast_pending order by seq"):
            if not w.transact("people", operator.cancel(found[0])):
                w.hits["a leased message is asked to be cancelled"] += 1
            w.hits["cancelled by hand"] += 1

    def set_aside(self) -> None:
        w = self.world
        if found := self.some("select queue, name from holdfast_stream where open > 0 order by 1, 2"):
            w.transact("people", operator.set_aside(*found))
            w.hits["set aside by hand"] += 1

    def halt(self) -> None:
        w = self.world
        if found := self.some("select queue, name from holdfast_stream where open > 0 order by 1, 2"):
            w.transact("people", operator.halt(*found, "people"))
            w.hits["halted by hand"] += 1

    def redrive(self) -> None:
        """A dead letter comes back; what is mortal will die again."""
        w = self.world
        if found := self.some("select id, queue, seq from holdfast_dead order by 1, 2"):
            key = (UUID(found[0]), found[1])
            halts = w.query("select 1 from holdfast_stream where halted_by = ?", found[0])
            out = w.dice.random() < 0.3
            w.transact("people", self.redriving(key, found[2], out, bool(halts)))

    def redriving(self, key: tuple[UUID, str], number: int, out: bool, halts: bool) -> Plan[None]:
        back = yield from dead.redrive([(*key, number)], out)

        def count_anew() -> None:
            self.starts[key] = self.refunds[key] = 0
            self.mended.add(key)
            self.world.hits["redriven at the head" if halts else "redriven at the end"] += 1

        if back:
            self.world.on_commit.append(count_anew)

    def unblock(self) -> None:
        w = self.world
        w.transact("people", queues.prune("streams", None, 100), hint=False)
        if found := self.some(
            "select queue, name from holdfast_stream where halted_by is not null order by 1, 2"
        ):
            w.transact("people", operator.resume(*found))
            w.hits["resumed by hand"] += 1

    # -- the end

    def check(self) -> None:
        w = self.world
        business = {UUID(id) for (id,) in w.query("select id from business")}
        ended = Counter((UUID(id), queue) for id, queue in w.query("select id, queue from holdfast_history"))
        dead = {
            (UUID(id), queue): reason
            for id, queue, reason in w.query("select id, queue, reason from holdfast_dead")
        }
        effects = Counter((UUID(id), queue) for id, queue in w.query("select id, queue from effect"))
        done = {
            (UUID(id), q)
            for id, q in w.query("select id, queue from holdfast_history where outcome = 'done'")
        }
        where = {id for id, _ in (*ended, *dead)}
        w.wrong += [f"{id} was committed and is lost" for id in self.published - where]
        w.wrong += [f"{id} was never committed" for id in where - self.published]
        w.wrong += [f"{id} has a row of the producer's and no message" for id in business - where]
        w.wrong += [f"{key} ended {count} times" for key, count in ended.items() if count > 1]
        w.wrong += [f"{key} is dead and ended" for key in dead.keys() & ended.keys()]
        for key in dead:
            if self.fates[key[0]].kind not in MORTAL or key in self.mended:
                w.wrong.append(
                    f"an innocent was condemned: {key}, {self.fates[key[0]].kind}, reason {dead[key]}"
                )
        for key, count in effects.items():
            if count > 1 or key not in done:
                w.wrong.append(f"{key}: {count} effects, done is {key in done}")
        for key in done:
            if self.fates[key[0]].completes and not effects[key] and key[1] not in self.runs:
                w.wrong.append(f"{key} is done without its effect")
        w.wrong += [
            f"{table} is not empty"
            for table in ("lease", "message")
            if w.query(f"select 1 from holdfast_{table}")
        ]
        w.wrong += [
            f"stream {row} is not empty" for row in w.query("select * from holdfast_stream where open <> 0")
        ]
