"""An instrumented PostgreSQL database that can be put back to its beginning (contents.py) in a millisecond.

One call of a function reads the tables and puts back those that have changed; its plans are made once.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import psycopg

from holdfast.clock import MovableClock
from holdfast.model.message import NewMessage
from holdfast.model.work import Leased
from holdfast.settings import Settings
from holdfast.store.postgres import PostgresStore
from holdfast.store.statement import Bound, Runnable, bound
from tests.proof import instrument
from tests.proof.contents import fill
from tests.store.box import Box

Row = dict[str, Any]
Tables = dict[str, list[Row]]
XID = "(txid_current() % 4294967296)::text"  # as rows bear it
VACUUM_EVERY = 400  # turns


class World:
    """The database, and what is in it at the beginning."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        clock = MovableClock()
        self.store = PostgresStore(dsn, Settings(), clock)
        self.store.migrate()
        self.connection = psycopg.connect(dsn, autocommit=True, options="-c synchronous_commit=off")
        instrument.install(self.connection)
        self.contents = fill(Box(self.store, clock, dsn))
        self.turns = 0
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

    def later(self, plan: Runnable[Any], seconds: float) -> Bound[Any]:
        """A plan, so long after what is now."""
        return bound(plan, self.store.engine, later(self.now, seconds))

    # -- remembering and restoring

    def _remember(self) -> None:
        run = self.connection.execute
        run("insert into proof.business values ('one', 0), ('two', 0)")
        run("set session_replication_role = replica")  # rows come back as they were, without triggers
        found = run(
            "select tablename from pg_tables where schemaname = 'holdfast' and tablename <> 'schema_version'"
        )
        self.tables = [*(f"holdfast.{name}" for (name,) in found), "proof.business", "proof.effect"]
        self.keys = {plain(table): self._key(table) for table in self.tables}
        for table in self.tables:
            run(f"create table {copy(table)} as table {table}".encode())
            run(f"alter table {table} set (autovacuum_enabled = off)".encode())
        run(f"vacuum (analyze) {', '.join(self.tables)}".encode())
        self.before, self._names = self.read(), dict(self.names)
        run(self._turn().encode())
        self.connection.pgconn.prepare(
            b"turn", f"select name, changed, gone, {XID} from proof.turn($1)".encode()
        )
        ((self.last_turn,),) = run(f"select {XID}".encode()).fetchall()

    def _key(self, table: str) -> tuple[str, ...]:
        found = self.connection.execute(
            "select a.attname from pg_index i join pg_attribute a on a.attrelid = i.indrelid"
            " and a.attnum = any (i.indkey) where i.indisprimary and i.indrelid = %s::regclass",
            [table],
        )
        return tuple(name for (name,) in found)

    def _turn(self) -> str:
        """A function that answers what has changed in the tables since the last turn, and puts it back.

        What was written since then is younger than that turn. What was removed, or has become another row, is missing
        when the younger ones are gone.
        """
        parts = []
        for table in self.tables:
            key, source = self.keys[plain(table)], copy(table)
            count = len(self.before[plain(table)])
            if key:
                young = "where age(t.xmin) < young"
                missing = f"where not exists (select from {table} t where {same(key)})"
            else:  # a few rows: all of them are put back
                young = missing = ""
            parts.append(f"""
                if (select count(*) filter (where age(t.xmin) < young) > 0 or count(*) <> {count}
                      from {table} t) then
                    name := '{plain(table)}';
                    changed := (select json_agg(t)::text from {table} t {young});
                    delete from {table} t {young};
                    with back as (insert into {table} select * from {source} c {missing} returning *)
                    select json_agg(back)::text into gone from back;
                    return next;
                end if;""")
        return (
            "create or replace function proof.turn(last text) returns table (name text, changed text, gone text)\n"
            "language plpgsql set plan_cache_mode = force_generic_plan as $turn$\n"
            "#variable_conflict use_column\ndeclare young int := age(last::xid);\nbegin\n"
            + "\n".join(parts)
            + "\nend\n$turn$"
        )

    def turn(self) -> Tables:
        """What the tables have in them now; after which everything is as it was in the beginning."""
        answer = self.connection.pgconn.exec_prepared(b"turn", [self.last_turn.encode()])
        assert answer.status == psycopg.pq.ExecStatus.TUPLES_OK, answer.error_message.decode()
        left = dict(self.before)
        for row in range(answer.ntuples):
            table, changed, gone, turn = ((answer.get_value(row, n) or b"").decode() for n in range(4))
            left[table] = self._merged(table, changed, gone)
            self.last_turn = turn
        self.turns += 1
        if self.turns % VACUUM_EVERY == 0:
            self.connection.execute(f"vacuum {', '.join(self.tables)}".encode())
        return left

    def _merged(self, table: str, changed: str, gone: str) -> list[Row]:
        """The rows of the beginning, but for those that were missing, and those that are new or have changed."""
        key = self.keys[table]
        missing = {tuple(row[each] for each in key) for row in rows_of(gone)}
        kept = [row for row in self.before[table] if tuple(row[each] for each in key) not in missing]
        return (kept if key else []) + rows_of(changed)

    def forget_new(self) -> None:
        """The names of what operations have published: there would be more of them with every schedule."""
        self.contents.names = dict(self._names)

    def restore(self) -> None:
        """Everything as it was, and the points at which sessions are held are numbered from one again."""
        self.turn()
        self.connection.execute("select setval('proof.pause_1', 1, false)")

    def read(self) -> Tables:
        """All tables, whole."""
        columns = ", ".join(f"(select coalesce(json_agg(t), '[]') from {table} t)" for table in self.tables)
        (row,) = self.connection.execute(f"select {columns}".encode()).fetchall()
        return dict(zip(map(plain, self.tables), row, strict=True))


def rows_of(text: str) -> list[Row]:
    found: list[Row] = msgspec.json.decode(text) if text else []
    return found


def plain(table: str) -> str:
    return table.split(".")[1]


def same(key: Iterable[str]) -> str:
    return " and ".join(f"t.{each} = c.{each}" for each in key)


def copy(table: str) -> str:
    return f"proof.before_{plain(table)}"


def later(moment: datetime, seconds: float) -> datetime:
    return moment + timedelta(seconds=seconds)
