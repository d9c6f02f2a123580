"""Publishing one by one: BEGIN, a business insert, publish, COMMIT, beside a bare insert of the same row and indexes.

All kinds take turns on one connection, a few transactions at a time, so that noise hits them alike; of each the turn in
the middle counts, so that one slow fsync is nobody's. The bare insert has ids and JSON made as ours are.
"""

from __future__ import annotations

import sqlite3
import statistics
import time
from collections.abc import Callable
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import psycopg

from bench.adapters import contest
from bench.adapters.holdfast import app
from holdfast.model.ids import new_id

POSTGRES = contest.URL.startswith("postgresql")
MARK, STREAMS = "%s" if POSTGRES else "?", 1000
BUSINESS = f"insert into business (n) values ({MARK})"
for number in range(5):
    app.handler("five", name=f"five{number}")(lambda body: None)


def prepare(_: SimpleNamespace) -> None:
    app.migrate()
    connection = connect()
    key = "bigserial" if POSTGRES else "integer"
    connection.execute(f"create table business (id {key} primary key, n integer)")
    if POSTGRES:
        connection.execute("create table bare (like holdfast.message including all)")
    else:
        ours = "tbl_name = 'holdfast_message' and type in ('table', 'index') and sql is not null"
        for (sql,) in connection.execute(f"select sql from sqlite_master where {ours}").fetchall():
            connection.execute(sql.replace("holdfast_message", "bare"))
    connection.commit()


def connect() -> Any:
    if POSTGRES:
        return psycopg.connect(contest.URL)
    connection = sqlite3.connect(contest.URL, isolation_level=None)
    connection.execute("pragma synchronous=full")
    return connection


@contextmanager
def transaction(connection: Any) -> Any:
    if POSTGRES:
        with connection.transaction():
            yield
    else:
        connection.execute("begin immediate")
        yield
        connection.execute("commit")


def publish(params: SimpleNamespace) -> dict[str, Any]:
    connection = connect()
    columns = ("id", "type", "body", "stream", "queue", "head", "position")
    bare = f"insert into bare ({', '.join(columns)}) values ({', '.join([MARK] * len(columns))})"

    def plain(n: int, stream: str | None) -> None:
        id = new_id() if POSTGRES else str(new_id())
        body = msgspec.json.encode(contest.body(n)).decode()
        # As in ours, the first of each stream is its head, and so in more indexes.
        row = (id, "work", body, stream, "work0", stream is None or n < STREAMS, n if stream else None)
        connection.execute(bare, row)

    def ours(n: int, stream: str | None, type: str = "work") -> None:
        app.publish(type, contest.body(n), on=connection, stream=stream)

    kinds: dict[str, Callable[[int], None]] = {
        "bare": lambda n: plain(n, None),
        "ours": lambda n: ours(n, None),
        "bare_stream": lambda n: plain(n, f"s{n % STREAMS}"),
        "ours_stream": lambda n: ours(n, f"s{n % STREAMS}"),
        "ours_five": lambda n: ours(n, None, "five"),
    }
    spent: dict[str, list[float]] = {kind: [] for kind in kinds}
    for block in range(-3, params.blocks):
        for kind, write in kinds.items():
            begun = time.monotonic()
            for n in range(params.block):
                with transaction(connection):
                    connection.execute(BUSINESS, (n,))
                    write((block + 3) * params.block + n)
            if block >= 0:  # those before warm up
                spent[kind].append(time.monotonic() - begun)
    return {kind: params.block / statistics.median(seconds) for kind, seconds in spent.items()}


if __name__ == "__main__":
    contest.main(prepare=prepare, publish=publish)
