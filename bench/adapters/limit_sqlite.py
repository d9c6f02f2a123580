"""The limit on SQLite: as on PostgreSQL, in one write transaction, synchronous=FULL and our pragmas."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from bench.adapters import contest

TABLE = """
create table message (id integer primary key, taken integer not null default 0, body text not null);
create index message_free on message (id) where not taken;
"""
CLAIM = """
update message set taken = 1
 where id in (select id from message where not taken order by id limit 500) returning id, body
"""
PRAGMAS = (
    "journal_mode=wal",
    "synchronous=full",
    "wal_autocheckpoint=4000",
    "cache_size=-65536",
    "mmap_size=268435456",
)


def connect() -> sqlite3.Connection:
    connection = sqlite3.connect(contest.URL, timeout=30, isolation_level=None)
    for pragma in PRAGMAS:
        connection.execute(f"pragma {pragma}")
    return connection


def prepare(_: SimpleNamespace) -> None:
    connect().executescript(TABLE)


def publish(params: SimpleNamespace) -> dict[str, Any]:
    connection = connect()

    def many(bodies: Sequence[dict[str, Any]]) -> None:
        connection.execute("begin immediate")
        connection.executemany(
            "insert into message (body) values (?)", [(json.dumps(body),) for body in bodies]
        )
        connection.execute("commit")

    return contest.publish(params, lambda body: many([body]), many)


def work(_: SimpleNamespace) -> None:
    connection, tally, done, running = connect(), contest.tally(), [], [True]
    contest.on_stop(lambda: running.clear())
    version = None
    contest.gate()
    while running:
        if not done and connection.execute("pragma data_version").fetchone() == version:
            time.sleep(0.001)  # nobody has committed since the last look
            continue
        version = connection.execute("pragma data_version").fetchone()
        connection.execute("begin immediate")
        connection.executemany("delete from message where id = ?", done)
        rows = connection.execute(CLAIM).fetchall()
        connection.execute("commit")
        done = [(row[0],) for row in rows]
        for _, body in rows:
            tally.saw(json.loads(body)["n"])


if __name__ == "__main__":
    contest.main(prepare=prepare, publish=publish, work=work)
