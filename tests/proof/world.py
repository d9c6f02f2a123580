"""An instrumented PostgreSQL database that can be put back to its beginning (contents.py) in a millisecond or two."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg

from holdfast.clock import MovableClock
from holdfast.message import NewMessage
from holdfast.settings import Settings
from holdfast.store.plans_postgres import PostgresPlans
from holdfast.store.postgres import PostgresStore
from holdfast.work import Leased
from tests.proof import instrument
from tests.proof.contents import fill
from tests.store.box import Box

VACUUM_EVERY = 150  # restorations


class World:
    """The database, and what is in it at the beginning."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        clock = MovableClock()
        self.store = PostgresStore(dsn, Settings(), clock)
        self.store.migrate()
        self.plans: PostgresPlans = self.store.plans
        self.connection = psycopg.connect(dsn, autocommit=True)
        instrument.install(self.connection)
        self.contents = fill(Box(self.store, clock, dsn))
        self.restored = 0
        self._remember()

    def close(self) -> None:
        self.connection.close()
        self.store.close()

    # -- by name

    @property
    def now(self) -> datetime:
        return self.contents.now

    @property
    def ids(self) -> dict[str, UUID]:
        return self.contents.ids

    @property
    def names(self) -> dict[UUID, str]:
        return self.contents.names

    @property
    def workers(self) -> dict[str, int]:
        return self.contents.workers

    def seq(self, name: str, queue: str = "q") -> int:
        return self.contents.seq(name, queue)

    def new(self, name: str, **fields: Any) -> NewMessage:
        return self.contents.new(name, **fields)

    def leased(self, name: str, queue: str = "q", *, run: str | None = None) -> Leased:
        return self.contents.leased(name, queue, run=run)

    # -- remembering and restoring

    def _remember(self) -> None:
        run = self.connection.execute
        run("insert into proof.business values ('one', 0), ('two', 0)")
        found = run(
            "select tablename from pg_tables where schemaname = 'holdfast' and tablename <> 'schema_version'"
        )
        self.tables = sorted(name for (name,) in found)
        for table in self.tables:
            run(f"create table proof.{table} as table holdfast.{table}".encode())
        run("set session_replication_role = replica")  # rows come back as they were, without triggers
        statements = [f"delete from holdfast.{table}" for table in self.tables]
        statements += [f"insert into holdfast.{table} select * from proof.{table}" for table in self.tables]
        statements += ["delete from proof.effect", "delete from proof.business"]
        statements += ["insert into proof.business values ('one', 0), ('two', 0)"]
        statements += [f"select setval('proof.pause_{n}', 1, false)" for n in (1, 2, 3)]
        self._restoring = "; ".join(statements).encode()

    def restore(self) -> None:
        """Everything as it was. The ids of what operations publish are new each time."""
        self.connection.execute(self._restoring)
        self.restored += 1
        if self.restored % VACUUM_EVERY == 0:
            tables = ", ".join(f"holdfast.{table}" for table in self.tables)
            self.connection.execute(f"vacuum (analyze) {tables}".encode())

    def read(self) -> dict[str, list[dict[str, Any]]]:
        """All tables in one round trip."""
        columns = ", ".join(
            f"(select coalesce(json_agg(t), '[]') from holdfast.{table} t)" for table in self.tables
        )
        extra = "(select coalesce(json_agg(t), '[]') from proof.effect t), (select json_agg(t) from proof.business t)"
        (row,) = self.connection.execute(f"select {columns}, {extra}".encode()).fetchall()
        return dict(zip((*self.tables, "effect", "business"), row, strict=True))


def later(moment: datetime, seconds: float) -> datetime:
    return moment + timedelta(seconds=seconds)
