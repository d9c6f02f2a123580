"""The shop's side of the demo: its tables, and its transactions on a plain connection of its own.

It does not know the handlers: subscriptions are stored, so a producer need not know who handles its messages.
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


def busiest_worker(database: str) -> tuple[int, int]:
    """How many messages the busiest worker process holds, and its pid. The quarantine is left out: it has suspects."""
    busiest = """
        select count(*), w.name from holdfast_worker w
          join holdfast_lease l on l.worker = w.id
          join holdfast_message m on m.seq = l.seq
         group by w.id having max(m.vanished) = 0 order by count(*) desc limit 1
    """
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)) as db:
        held, name = db.execute(busiest).fetchone() or (0, ":0")
    return held, int(name.rpartition(":")[2])


def carry_out(database: str, app: Holdfast, change: Change) -> list[UUID]:
    """One transaction: the order's row, the messages, and the shop's own record of what it published."""
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
