"""What the codec and the names accept is text that both databases keep to the letter, sort out and find again."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import psycopg

from holdfast.bodies.codec import encode
from holdfast.store.recognise import recognise
from holdfast.store.statement import Plan, Rows, Statement
from tests import hostile
from tests.hostile import LIMITS

TEXTS = [
    *(encode(value, LIMITS) for _, value, accepted in hostile.BODIES if accepted),
    *(value if isinstance(value, str) else value.decode() for _, value, accepted in hostile.RAW if accepted),
]
NAMES = sorted({value for _, value, accepted in hostile.TYPES + hostile.STREAMS if accepted})


def ask(sql: str, **params: object) -> Plan[Rows]:
    return (yield Statement(sql, params))


def test_sqlite(tmp_path: object) -> None:
    with closing(sqlite3.connect(f"{tmp_path}/x.db")) as connection:
        handle = recognise(connection)
        handle.run(ask("create table body (n integer, text text)"))
        handle.run(ask("create table name (name text primary key)"))
        for number, text in enumerate(TEXTS):
            handle.run(ask("insert into body values (:n, :text)", n=number, text=text))
        for name in NAMES:
            handle.run(ask("insert into name values (:name)", name=name))
        connection.commit()
        assert [row[0] for row in handle.run(ask("select text from body order by n"))] == TEXTS
        for name in NAMES:
            assert handle.run(ask("select name from name where name = :name", name=name)) == [(name,)]


def test_postgres(postgres_dsn: str) -> None:
    with psycopg.connect(postgres_dsn) as connection:
        handle = recognise(connection)
        handle.run(ask("create table body (n int, text text)"))
        handle.run(ask("create table name (name text primary key)"))
        handle.run(
            ask(
                "insert into body select n, text from unnest(:texts::text[]) with ordinality as t (text, n)",
                texts=TEXTS,
            )
        )
        handle.run(ask("insert into name select unnest(:names::text[])", names=NAMES))
        connection.commit()
        assert [row[0] for row in handle.run(ask("select text from body order by n"))] == TEXTS
        for name in NAMES:
            assert handle.run(ask("select name from name where name = :name", name=name)) == [(name,)]
        # Whoever asks the database about bodies can: all of it is jsonb too.
        for text in TEXTS:
            if len(text) < 100_000:
                handle.run(ask("select :text::jsonb", text=text))
