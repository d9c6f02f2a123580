"""Processes that perform a verb and are killed on the way.

`python -m tests.proof.kill.child` reads orders, one JSON object a line, and forks a process for each: it imports
everything once, so a process costs milliseconds. An order names the verb and the *point* at which the process kills
itself with SIGKILL: before the n-th statement is sent, or after its answer has come, BEGIN, COMMIT and savepoints
included. What is held inside the server is killed by whoever gave the order. Without a point it goes to its end and
writes down the points that it passed.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import signal
import sqlite3
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
from psycopg._connection_base import BaseConnection

from holdfast.clock import MovableClock
from holdfast.settings import Settings
from holdfast.store import SqliteStore, Store
from holdfast.store.postgres import PostgresStore
from holdfast.store.text import compile, load, names
from tests.proof.instrument import NOTICE
from tests.proof.kill.verbs import Hands, finish, verbs


class Points:
    """Counts the moments at which a process may die, and dies at the one it was told."""

    def __init__(self, kill_at: int | None) -> None:
        self.kill_at, self.armed = kill_at, False
        self.passed: list[str] = []
        self.steps: list[str] = []

    def pass_by(self, label: str) -> None:
        if not self.armed:
            return
        if len(self.passed) == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.passed.append(label)

    def around(self, sql: Any, do: Callable[[], Any]) -> Any:
        text = " ".join((sql.decode() if isinstance(sql, bytes) else str(sql)).split())
        self.pass_by(f"before {text}")
        result = do()
        self.pass_by(f"after {text}")
        return result


def watch_sqlite(points: Points) -> None:
    class Watched(sqlite3.Connection):
        def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
            found: sqlite3.Cursor = points.around(sql, lambda: sqlite3.Connection.execute(self, sql, *args))
            return found

    cursor = sqlite3.Cursor

    class WatchedCursor(sqlite3.Cursor):  # for statements on the user's own connection
        def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
            found: sqlite3.Cursor = points.around(sql, lambda: cursor.execute(self, sql, *args))
            return found

    plain = sqlite3.connect
    sqlite3.connect = lambda *args, **options: plain(*args, factory=Watched, **options)  # type: ignore[assignment]
    sqlite3.Cursor = WatchedCursor  # type: ignore[misc]


def watch_postgres(points: Points) -> None:
    """Every statement of psycopg goes through one of these two."""
    execute, command = psycopg.Cursor.execute, BaseConnection._exec_command

    def watched_execute(self: Any, query: Any, *args: Any, **options: Any) -> Any:
        return points.around(query, lambda: execute(self, query, *args, **options))

    def watched_command(self: Any, text: Any, *args: Any, **options: Any) -> Any:
        label = " ".join((text.decode() if isinstance(text, bytes) else str(text)).split())
        points.pass_by(f"before {label}")
        result = yield from command(self, text, *args, **options)
        points.pass_by(f"after {label}")
        return result

    psycopg.Cursor.execute = watched_execute  # type: ignore[method-assign]
    BaseConnection._exec_command = watched_command  # type: ignore[method-assign]
    connect = psycopg.Connection.connect.__func__  # type: ignore[attr-defined]

    def watched_connect(cls: Any, *args: Any, **options: Any) -> Any:
        connection = connect(cls, *args, **options)
        connection.add_notice_handler(
            lambda notice: points.steps.extend(NOTICE.findall(notice.message_primary or "")[:1])
        )
        armed, points.armed = points.armed, False
        connection.execute("set proof.session = '1'")
        if not connection.autocommit:
            connection.commit()
        points.armed = armed
        return connection

    psycopg.Connection.connect = classmethod(watched_connect)  # type: ignore[assignment]
    psycopg.connect = psycopg.Connection.connect


def perform(order: dict[str, Any]) -> dict[str, Any]:
    points = Points(order.get("kill_at"))
    contents = pickle.loads(Path(order["contents"]).read_bytes())
    contents.fixed = True
    store: Store
    if order["dialect"] == "sqlite":
        watch_sqlite(points)
        store = SqliteStore(order["url"], Settings(), MovableClock(contents.now))
    else:
        if order.get("watched", True):
            watch_postgres(points)
        store = PostgresStore(order["url"], Settings(), MovableClock(contents.now))
    hands = Hands(store, contents)
    if order["verb"] == "finish":
        return {"handled": finish(hands)}
    if order["verb"] == "migrate":
        points.armed = True
        store.migrate()
        return {"points": points.passed, "steps": []}
    store.run(iter_nothing())  # connects before anything is counted
    points.armed = True
    verbs()[order["verb"]](hands)
    points.armed = False
    names = {str(id): name for id, name in contents.names.items()}
    return {"points": points.passed, "steps": [name for name, _ in points.steps], "names": names}


def iter_nothing() -> Any:
    return
    yield


def warm_up() -> None:
    """What each process would do first is done once, here: their memory is ours."""
    for dialect, style in (("sqlite", "named"), ("postgres", "pyformat")):
        for name in names(dialect):
            compile(load(dialect, (name,)), style)
    verbs()
    gc.collect()
    gc.freeze()


def main() -> None:
    warm_up()
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            answer = Path(order["answer"])
            code = 0
            try:
                answer.write_text(json.dumps(perform(order)))
            except BaseException:
                answer.write_text(json.dumps({"failed": traceback.format_exc()}))
                code = 1
            os._exit(code)
        print(json.dumps({"pid": pid}), flush=True)
        _, status = os.waitpid(pid, 0)
        print(json.dumps({"status": os.waitstatus_to_exitcode(status)}), flush=True)


if __name__ == "__main__":
    main()
