"""The shop's side of the demo: its tables, and its transactions on a plain connection of its own.

It knows no handler: subscriptions are stored, so a producer need not know who will handle what it publishes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from uuid import UUID

from .. import Holdfast
from .story import Change

TABLES = """
create table orders (id integer primary key, customer integer, cents integer, state text);
-- what the shop has promised to do, in the order in which it was committed
create table promise (n integer primary key autoincrement, message text, stream text, type text);
-- what the handlers have done, in the order in which they did it
create table ledger (n integer primary key autoincrement, message text, stream text, entry text);
"""


class ChangedMind(Exception):
    """The customer leaves; the transaction is rolled back."""


@contextmanager
def transaction(database: str) -> Iterator[sqlite3.Connection]:
    """A plain connection of the shop's own, committed at the end of the block or rolled back."""
    with closing(sqlite3.connect(database, timeout=30)) as db, db:
        yield db


def open_shop(database: str) -> None:
    with closing(sqlite3.connect(database)) as db:
        db.executescript(TABLES)


def workers_seen(database: str) -> int:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)) as db:
        count: int = db.execute("select count(*) from holdfast_worker").fetchone()[0]
        return count


def carry_out(database: str, app: Holdfast, change: Change) -> list[UUID]:
    """One transaction: the order's row, the messages, and the shop's own note of what it promised."""
    ids: list[UUID] = []
    try:
        with transaction(database) as db:
            order = (change.order, change.customer, change.cents, change.state)
            db.execute("insert or replace into orders values (?, ?, ?, ?)", order)
            for each in change.publishes:
                published = app.publish(each.type, each.body, stream=each.stream, on=db)
                ids.append(published.id)
                row = (str(published.id), each.stream, each.type)
                db.execute("insert into promise (message, stream, type) values (?, ?, ?)", row)
            if change.rolled_back:
                raise ChangedMind
    except ChangedMind:
        pass
    return ids
