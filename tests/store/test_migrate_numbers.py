"""Migration 0007 gives dead letters and deaths a longer key, and keeps all that is there."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from holdfast.clock import MovableClock
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.migrate import split, steps
from holdfast.store.text import Dialect
from tests.databases import server
from tests.store import state
from tests.store.box import Box, dead, new

X = UUID(int=61)
TIMES = {
    "sqlite": ("1000000", "2000000"),
    "postgres": ("'epoch'::timestamptz", "'epoch'::timestamptz + interval '1 s'"),
}


def before(dialect: Dialect) -> list[str]:
    """The schema as it was, one dead letter that died twice and was edited, and another one."""
    first, second = TIMES[dialect]
    dot = "_" if dialect == "sqlite" else "."
    columns = "id, queue, seq, type, status, epoch, attempts, failures, vanished, refunds, redrives, reason, created_at"
    letter = f"insert into holdfast{dot}dead ({columns}, died_at, body, held_why, fingerprint) values"
    made = [text for version, step in steps(dialect) if version < 7 for text in split(step)]
    if dialect == "postgres":
        made = ["create schema holdfast", *made]
        made.append("create table holdfast.schema_version (version int not null, functions text not null)")
        made.append("insert into holdfast.schema_version values (6, '')")
        record = "delete from holdfast.death; insert into holdfast.death (id, queue, died_at, type, reason)"
        record += " select id, queue, died_at, type, reason from holdfast.dead"
    else:
        made.append("create table holdfast_schema (version integer primary key, applied_at text not null)")
        made.append("insert into holdfast_schema values (6, 'then')")
        record = "select 1"
    return [
        *made,
        f"{letter} ('{X}', 'q', 7, 't', 1, 2, 3, 4, 5, 6, 7, 2, {first}, {second}, '\"mended\"', 'why', 'abc')",
        f"{letter} ('{UUID(int=62)}', 'r', 8, 't', 1, 2, 3, 4, 5, 6, 7, 2, {first}, {first}, '1', null, null)",
        *record.split(";"),
        f"update holdfast{dot}death set body = '\"first\"' where queue = 'q'",
        f"insert into holdfast{dot}death (id, queue, died_at, type, reason) values ('{X}', 'q', {first}, 't', 3)",
    ]


@pytest.mark.covers("X61")
def test_dead_letters_and_deaths_are_kept(place: str, tmp_path: Path) -> None:
    if place == "sqlite":
        path = tmp_path / "old.db"
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            for text in before("sqlite"):
                db.execute(text)
        look(f"sqlite:///{path}")
    else:
        with server(place).database() as dsn:
            with psycopg.connect(dsn) as connection:
                connection.execute("set check_function_bodies = off")
                for text in before("postgres"):
                    connection.execute(text.encode())
            look(dsn)


def look(url: str) -> None:
    store = open_store(url, Settings(), MovableClock())
    assert store.migrate()[0] == 7
    letters = [(d.id, d.queue, d.seq, d.body, d.held_why, d.fingerprint) for d in state.read(store, "dead")]
    assert letters == [(X, "q", 7, '"mended"', "why", "abc"), (UUID(int=62), "r", 8, "1", None, None)]
    deaths = [(d.id, d.seq, d.reason, d.body) for d in state.read(store, "death")]
    assert deaths == [(X, 0, 3, None), (X, 7, 2, '"first"'), (UUID(int=62), 8, 2, None)]
    box = Box(store, MovableClock(), url)
    box.subscribe("q", "t")
    box.publish(new("again", id=X, type="t"))
    box.settle(dead(box.claim_one("q")))
    assert {d.body for d in state.read(store, "dead") if d.id == X} == {'"again"', '"mended"'}
    assert len(state.read(store, "death")) == 4
    store.close()
