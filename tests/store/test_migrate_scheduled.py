"""Migration 0023 takes what was scheduled out of `message`, loses nothing, and leaves what somebody has tried."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from holdfast.clock import MovableClock, micros
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.migrate import split, steps
from holdfast.store.text import Dialect
from tests.databases import server
from tests.store import state
from tests.store.box import Box, names

STEP = 23
HOUR = timedelta(hours=1)
# name: queue, target, stream, when it is claimable (None: never), failures
ROWS: dict[str, tuple[str | None, str | None, str | None, timedelta | None, int]] = {
    "later": ("q", None, None, HOUR, 0),
    "timer": ("holdfast/timer", None, "s", HOUR, 0),
    "timer for one": ("holdfast/timer", "q", "s", HOUR, 0),
    "timer long due": ("holdfast/timer", "q", "s", -HOUR, 0),
    "parked timer": ("holdfast/timer", "q", "s", None, 0),
    "soon": ("q", None, None, timedelta(seconds=30), 0),
    "now": ("q", None, None, -HOUR, 0),
    "retried": ("q", None, None, HOUR, 1),
    "parked": ("q", None, None, None, 0),
    "unrouted": (None, None, None, HOUR, 0),
}
MOVED = {"later", "timer", "timer for one", "timer long due", "parked timer"}


def before(dialect: Dialect, now: datetime) -> list[str]:
    """The schema as it was, and a row of each kind."""
    made = [text for version, step in steps(dialect) if version < STEP for text in split(step)]
    if dialect == "postgres":
        made.insert(0, "create schema holdfast")
        first = next(n for n, text in enumerate(made) if "schema_version" in text)
        made.insert(first, "insert into holdfast.schema_version values (22, '')")
        made.insert(
            first, "create table holdfast.schema_version (version int not null, functions text not null)"
        )
        made.append(
            "update holdfast.schema_version set made = array(select p.oid::regprocedure::text from pg_proc p"
            " where p.pronamespace = 'holdfast'::regnamespace)"
        )
    else:
        made.append("create table holdfast_schema (version integer primary key, applied_at text not null)")
        made.append("insert into holdfast_schema values (22, 'then')")

    def at(when: datetime | None) -> str:
        if when is None:
            return "'infinity'" if dialect == "postgres" else "9223372036854775807"
        return f"'{when.isoformat()}'" if dialect == "postgres" else str(micros(when))

    table = "holdfast.message" if dialect == "postgres" else "holdfast_message"
    for n, (name, (queue, target, stream, wait, failures)) in enumerate(ROWS.items(), 1):
        claimable, due = at(None if wait is None else now + wait), at(now + (wait or HOUR))
        texts = ", ".join("null" if each is None else f"'{each}'" for each in (queue, target, stream))
        made.append(
            f"insert into {table} (id, type, body, plain, queue, target, stream, claimable_at, created_at, due_at,"
            f" failures, attempts) values ('{UUID(int=n)}', 't', '\"{name}\"', null, {texts}, {claimable},"
            f" {at(now)}, {due}, {failures}, {failures})"
        )
    return made


@pytest.mark.covers("X62")
def test_what_was_scheduled_is_taken_over(place: str, tmp_path: Path) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    if place == "sqlite":
        path = tmp_path / "old.db"
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            for text in before("sqlite", now):
                db.execute(text)
        look(f"sqlite:///{path}", now)
    else:
        with server(place).database() as dsn:
            with psycopg.connect(dsn) as connection:
                connection.execute("set check_function_bodies = off")
                for text in before("postgres", now):
                    connection.execute(text.encode())
            look(dsn, now)


def look(url: str, now: datetime) -> None:
    clock = MovableClock(now)
    store = open_store(url, Settings(), clock)
    assert store.migrate()[0] == STEP
    named = {UUID(int=n): name for n, name in enumerate(ROWS, 1)}
    moved = state.read(store, "scheduled")
    assert {named[row.id] for row in moved} == MOVED
    assert {named[row.id] for row in state.read(store, "message")} == ROWS.keys() - MOVED
    for row in moved:
        queue, target, stream, wait, _ = ROWS[named[row.id]]
        assert (row.queue, row.target, row.stream) == (queue, target, stream)
        assert (row.due_at, row.created_at) == (now + (wait or HOUR), now)
    box = Box(store, clock, url)
    box.subscribe("q", "t")
    first = names(box.claim("q"))
    assert sorted(first) == ["now", "timer long due"]
    clock.advance(hours=2)
    assert sorted(names(box.claim("q", run=10))) == ["later", "retried", "soon", "unrouted"]
    assert sorted(row.body.strip('"') for row in box.messages("q") if row.stream) == [
        "timer", "timer for one", "timer long due",
    ]  # fmt: skip
    assert [row.body for row in state.read(store, "scheduled")] == ['"parked timer"']
    state.check_invariants(store)
    store.close()
