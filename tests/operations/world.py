"""A store with a clock that stands still, and the few hands that bring it into a known state."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from holdfast.clock import MovableClock
from holdfast.limits.breakers import Breakers
from holdfast.model.message import Flag, NewMessage, Published, Reason
from holdfast.model.work import Leased, Outcome, Report, Settlement, Want
from holdfast.operations import Operations
from holdfast.settings import Settings
from holdfast.store import Store, open_store
from holdfast.store.plans import engine, scheduled
from holdfast.store.statement import Plan, Statement

# Later than any clock of the machine: PostgreSQL's trigger places messages with its own time.
NOON = datetime(2040, 5, 1, 12, 0, tzinfo=UTC)


@dataclass
class World:
    store: Store
    clock: MovableClock
    settings: Settings
    operations: Operations
    workers: dict[str, int] = field(default_factory=dict)

    @property
    def breakers(self) -> Breakers:
        """Those that code calls through."""
        return self.operations.breakers.here

    # -- producers and subscribers

    def subscribe(self, queue: str, *patterns: str) -> None:
        self.store.run(engine.subscribe({queue: patterns}))

    def publish(self, type: str = "order.placed", stream: str | None = None, **options: Any) -> UUID:
        return self.published(type, stream, **options).id

    def published(self, type: str = "order.placed", stream: str | None = None, **options: Any) -> Published:
        options = {"body": '{"n": 1}', **options}
        message = NewMessage(uuid4(), type, stream=stream, **options)
        return self.store.run(engine.append([message]))[0]

    def in_stream(self, count: int, stream: str = "s", queue: str = "q") -> list[UUID]:
        """So many messages in the order of a stream."""
        return [self.publish(stream=stream, queue=queue) for _ in range(count)]

    # -- workers

    def worker(self, name: str = "w1", *queues: str) -> int:
        if name not in self.workers:
            listed = list(queues) or ["q"]
            self.workers[name] = self.store.run(engine.register_worker(name, listed))
        return self.workers[name]

    def claim(self, queue: str = "q", *, name: str = "w1", total: int = 100, run: int = 1) -> list[Leased]:
        report = Report(self.worker(name, queue), want=[Want(queue, total)], total=total, run=run)
        self.store.run(scheduled.bring(500, 10**6))  # as the tick of a worker's turn does
        return list(self.store.run(engine.exchange(report)).work)

    def claim_suspect(self, queue: str = "q", *, name: str = "quarantine") -> list[Leased]:
        report = Report(self.worker(name, queue), want=[Want(queue, 1)], total=1, suspects=True)
        return list(self.store.run(engine.exchange(report)).work)

    def claimed(self, queue: str = "q", **options: Any) -> list[UUID]:
        return [leased.message.id for leased in self.claim(queue, **options)]

    def settle(self, leased: Leased, outcome: Outcome, **options: Any) -> bool:
        """Whether the lease still stood."""
        settlement = Settlement(leased, outcome, **options)
        return bool(self.store.run(engine.settle([settlement], ())))

    def done(self, leased: Leased) -> bool:
        return self.settle(leased, Outcome.DONE)

    def fail(
        self,
        leased: Leased,
        delay: float = 60.0,
        reason: Reason = Reason.HANDLER_EXCEPTION,
        text: str = "boom",
        flags: int = 0,
    ) -> bool:
        return self.settle(
            leased,
            Outcome.AGAIN,
            delay=delay,
            failed=True,
            flags=int(Flag.FAILED) | flags,
            reason=reason,
            error=text,
        )

    def die(
        self,
        leased: Leased,
        *,
        halt: bool = False,
        reason: Reason = Reason.POISON_MESSAGE,
        flags: int = 0,
        last: Reason = Reason.HANDLER_EXCEPTION,
    ) -> bool:
        return self.settle(
            leased,
            Outcome.DEAD,
            failed=True,
            halt=halt,
            flags=int(Flag.FAILED) | flags,
            reason=reason,
            last_reason=last,
            error="the end",
        )

    def fail_often(
        self, id: UUID, times: int, queue: str = "q", reason: Reason = Reason.HANDLER_EXCEPTION
    ) -> None:
        """The message fails so many times, and waits for its next retry."""
        for _ in range(times):
            self.clock.advance(seconds=3600)
            leased = next(each for each in self.claim(queue) if each.message.id == id)
            self.fail(leased, 3600.0, reason)

    # -- looking

    def asked(self, leased: Leased, name: str = "w1") -> bool:
        """Whether the heartbeat tells the holder to cancel."""
        tokens = [(leased.run, leased.run_epoch)]
        _, cancel = self.store.run(engine.renew(self.workers[name], tokens, 30.0))
        return leased.run in cancel

    def states(self) -> dict[UUID, str]:
        return {each.id: each.state for each in self.operations.messages.find(limit=1000)}

    def one(self, id: UUID) -> Any:
        """The only pending delivery of a message."""
        (found,) = self.operations.messages.show(id).pending
        return found[0]

    def order(self, stream: str = "s", queue: str = "q") -> list[UUID]:
        """The messages in the order of a stream."""
        shown = self.operations.streams.show(queue, stream).messages
        return [each.id for each in shown if each.position is not None]

    def outcome(self, id: UUID) -> list[str]:
        return [each.outcome for each in self.operations.messages.show(id).ended]

    def sql(self, postgres: str, **params: object) -> list[tuple[Any, ...]]:
        """A statement on the tables, written for PostgreSQL."""
        sqlite = self.store.engine.dialect == "sqlite"
        text = postgres.replace("holdfast.", "holdfast_") if sqlite else postgres

        def one() -> Plan[list[tuple[Any, ...]]]:
            return (yield Statement(text, params))

        return self.store.run(one())

    def healthy(self) -> None:
        """The tables agree with each other: counts, heads, halts."""
        wrong = {"stream-count", "stranded-stream"}
        assert [each for each in self.operations.doctor() if each.name in wrong] == []


def make(url: str, clock: MovableClock) -> World:
    settings = Settings()
    store = open_store(url, settings, clock)
    store.migrate()
    return World(store, clock, settings, Operations(store, settings))
