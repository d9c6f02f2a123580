"""The state that every schedule begins with: one of each thing that operations can meet in each other's way.

    stream a: a1 a2 a3 a4    worker 1 holds the run a1..a3, which has lapsed by the time of the operations
    stream b: b1 b2 b3       worker 2 holds the run b1..b2, lapsed too
    stream f: f1 f2          nobody holds it
    stream g: g1 g2          worker 1 holds the run, and its lease lasts
    stream h: h2 h3          halted by h1, a dead letter
    stream p: p1 p2          p1 is parked
    stream e                 an empty row, which housekeeping may take away; stream n has no row at all
    u1 (held by worker 1), u2, u3 (dedupe key), s1 (a suspect): without a stream
    x1 x2 y1                 one delivery each in queue q and in queue r, with dedupe keys, held by worker 1 and worker 2
    old                      done; its dedupe key is still held
    d1, d2                   dead letters of the streams a and e, which went on
    t1, t2                   timers for the streams a and b, due a minute later
    unrouted                 nobody subscribes to its type yet; its stream is a

Time stands still: all operations happen at `now`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
from msgspec.structs import replace

from holdfast.clock import MovableClock
from holdfast.message import NewMessage
from holdfast.settings import Settings
from holdfast.store.plans_postgres import PostgresPlans
from holdfast.store.postgres import PostgresStore
from holdfast.work import Leased

from tests.proof import instrument
from tests.store.box import Box, dead, done, new

TABLES = (
    "message",
    "lease",
    "stream",
    "queue",
    "subscription",
    "dead",
    "history",
    "dedupe",
    "event_stream",
    "event",
    "worker",
)


class World:
    """An instrumented database, and what is in it at the beginning."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.clock = MovableClock()
        self.store = PostgresStore(dsn, Settings(), self.clock)
        self.store.migrate()
        self.plans: PostgresPlans = self.store.plans
        self.connection = psycopg.connect(dsn, autocommit=True)
        instrument.install(self.connection)
        self.ids: dict[str, UUID] = {}
        self.names: dict[UUID, str] = {}
        self.held: dict[str, Leased] = {}
        self.restored = 0
        self._fill(Box(self.store, self.clock, dsn))
        self._remember()

    def close(self) -> None:
        self.connection.close()
        self.store.close()

    @property
    def now(self) -> datetime:
        return self.clock.instant

    def seq(self, name: str, queue: str = "q") -> int:
        return self.seqs[name, queue]

    def new(self, name: str, **fields: Any) -> NewMessage:
        """A message that an operation publishes; its id is remembered under its name."""
        message = new(name, type=fields.pop("type", "t"), id=uuid4(), **fields)
        self.names[message.id] = name
        return message

    # -- filling

    def _fill(self, box: Box) -> None:
        box.subscribe("q", "t", "fan")
        box.subscribe("r", "fan")
        self.workers = {name: box.worker(name) for name in ("one", "two", "three")}
        self._dead_letters(box)
        self._fan_out(box)
        self._streams(box)
        self._loose(box)
        self.clock.advance(seconds=60)

    def _send(self, box: Box, *names: str, **fields: Any) -> None:
        fields.setdefault("type", "t")
        for name in names:
            self.ids[name] = box.send(name, **fields)
            self.names[self.ids[name]] = name

    def _claim(self, box: Box, worker: str, queue: str = "q", **report: Any) -> list[Leased]:
        work = box.claim(queue, worker=worker, **report)
        for leased in work:
            self.held[f"{self.names[leased.message.id]}@{queue}"] = leased
        return work

    def _dead_letters(self, box: Box) -> None:
        for name, stream in (("d1", "a"), ("d2", "e"), ("h1", "h")):
            self._send(box, name, stream=stream)
        for leased in box.claim("q"):
            halt = "halt" if self.names[leased.message.id] == "h1" else "continue"
            box.settle(dead(leased, on_dead=halt))
        self._send(box, "h2", "h3", stream="h")
        self._send(box, "old", dedupe="old")
        (old,) = box.claim("q")
        box.settle(done(old))

    def _fan_out(self, box: Box) -> None:
        """In queue r the first of stream x has ended, so that the runs of both queues differ."""
        for name, stream in (("x1", "x"), ("y1", "y"), ("x2", "x")):
            self._send(box, name, type="fan", stream=stream, dedupe=name)
        (first, *_) = box.claim("r", heads=1, run=1, worker="two")
        box.settle(done(first), worker="two")
        self._claim(box, "one", lease=3600.0)
        self._claim(box, "two", "r", lease=3600.0)

    def _streams(self, box: Box) -> None:
        self._send(box, "a1", "a2", "a3", "a4", stream="a")
        self._claim(box, "one", run=3)
        self._send(box, "b1", "b2", "b3", stream="b")
        self._claim(box, "two", run=2)
        self._send(box, "g1", "g2", stream="g")
        self._claim(box, "one", lease=3600.0)
        self._send(box, "u1")
        self._claim(box, "one")
        self._send(box, "s1")
        box.claim("q", worker="three")
        box.recover("three", running=[m.seq for m in box.messages("q") if m.id == self.ids["s1"]])
        self._send(box, "p1", "p2", stream="p")
        self.connection.execute(
            "update holdfast.message set claimable_at = 'infinity' where id = %s", [self.ids["p1"]]
        )

    def _loose(self, box: Box) -> None:
        self._send(box, "f1", "f2", stream="f")
        self._send(box, "u2")
        self._send(box, "u3", dedupe="u3")
        self._send(box, "t1", stream="a", delay=120)
        self._send(box, "t2", stream="b", delay=120)
        self._send(box, "unrouted", type="new", stream="a")

    # -- remembering and restoring

    def _remember(self) -> None:
        run = self.connection.execute
        run("insert into proof.business values ('one', 0), ('two', 0)")
        for table in TABLES:
            run(f"create table proof.{table} as table holdfast.{table}".encode())
        run("set session_replication_role = replica")  # rows come back as they were, without triggers
        rows = run("select id, queue, seq from holdfast.message").fetchall()
        self.seqs = {(self.names[id], queue): seq for id, queue, seq in rows}
        (self.last_seq,) = run("select max(seq) from holdfast.message").fetchone() or (0,)
        statements = [f"delete from holdfast.{table}" for table in TABLES]
        statements += [f"insert into holdfast.{table} select * from proof.{table}" for table in TABLES]
        statements += ["delete from proof.effect", "update proof.business set version = 0"]
        statements += [f"select setval('proof.pause_{n}', 1, false)" for n in (1, 2, 3)]
        self._restoring = "; ".join(statements).encode()

    def restore(self) -> None:
        """Everything as it was. The ids of what operations publish are new each time."""
        self.connection.execute(self._restoring)
        self.restored += 1
        if self.restored % 150 == 0:
            self.connection.execute("vacuum (analyze) " + ", ".join(f"holdfast.{table}" for table in TABLES))  # type: ignore[arg-type]

    def leased(self, name: str, queue: str = "q", *, run: str | None = None) -> Leased:
        """A message as its holder has it; `run`: after the lease has moved to that message."""
        leased = self.held[f"{name}@{queue}"]
        if run is None:
            return leased
        head = self.held[f"{run}@{queue}"]
        return replace(leased, run=head.message.seq, run_epoch=head.epoch)

    def read(self) -> dict[str, list[dict[str, Any]]]:
        """All tables in one round trip."""
        columns = ", ".join(
            f"(select coalesce(json_agg(t), '[]') from holdfast.{table} t)" for table in TABLES
        )
        extra = "(select coalesce(json_agg(t), '[]') from proof.effect t), (select json_agg(t) from proof.business t)"
        (row,) = self.connection.execute(f"select {columns}, {extra}".encode()).fetchall()
        return dict(zip((*TABLES, "effect", "business"), row, strict=True))


def later(moment: datetime, seconds: float) -> datetime:
    return moment + timedelta(seconds=seconds)


def seqs(leased: Sequence[Leased]) -> list[int]:
    return [each.message.seq for each in leased]
