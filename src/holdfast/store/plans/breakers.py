"""Breakers and rates in the store, for both databases. The caller decides how a breaker changes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from ..statement import Plan, single, statements, stepwise
from ..values import instant

sql = statements("breakers")

TRIES = 50  # of a change: a try fails when another process has changed the row


class BreakerRow(NamedTuple):
    """A breaker as it is stored. Version 0: it is not stored yet."""

    name: str
    version: int = 0
    era: int = 0
    state: str = "closed"
    forced: bool = False
    calls: str = ""
    trials_left: int = 0
    successes: int = 0
    opened_at: datetime | None = None
    until: datetime | None = None
    changed_at: datetime | None = None
    why: str | None = None


class Change(NamedTuple):
    """A breaker before and after, by the database's time. `done` is false if others changed it at every try."""

    before: BreakerRow
    after: BreakerRow
    now: datetime
    done: bool = True


DecideBreaker = Callable[[BreakerRow, datetime], BreakerRow | None]


@single
def look(name: str) -> Plan[tuple[BreakerRow, datetime]]:
    """One breaker and the time; a breaker that is not stored yet is new."""
    (row,) = yield sql("breaker_look", name=name)
    return BreakerRow(name) if row[1] is None else _row(row), instant(row[0])


@single
def known(limit: int) -> Plan[list[tuple[BreakerRow, datetime]]]:
    """All breakers by name, each with the time."""
    rows = yield sql("breaker_list", limit=limit)
    return [(_row(row), instant(row[0])) for row in rows]


@stepwise
def change(name: str, decide: DecideBreaker) -> Plan[Change]:
    """Compare and swap: the result of `decide` is written; if another process was faster, it decides again.

    None or the same row: nothing is written, unless it is the first. Each statement may be a transaction of its own.
    """
    tries = 0
    while True:
        before, moment = yield from look(name)
        after = decide(before, moment)
        if after is None or (after == before and before.version):
            return Change(before, before, moment)
        tries += 1
        if tries > TRIES:
            return Change(before, before, moment, done=False)
        changed_at = moment if after.state != before.state or before.version == 0 else before.changed_at
        after = after._replace(changed_at=changed_at)
        if (yield from swap(after._replace(version=before.version))):
            return Change(before, after._replace(version=before.version + 1), moment)


@single
def swap(row: BreakerRow) -> Plan[bool]:
    """Write a row if its version is still the one that was read."""
    return bool((yield sql("breaker_swap", **row._asdict())))


@single
def take(name: str, wanted: int, per_second: float, burst: int) -> Plan[int]:
    """Take up to so many tokens from the bucket of this name; returns how many it got."""
    rows = yield sql("rate_take", name=name, wanted=wanted, per_second=per_second, burst=burst)
    return int(rows[0][0]) if rows else 0


@single
def tokens(name: str) -> Plan[tuple[float, datetime] | None]:
    """How many tokens a bucket had, and when; None: it was never used."""
    rows = yield sql("rate_look", name=name)
    return (float(rows[0][0]), instant(rows[0][1])) if rows else None


def _row(row: tuple[Any, ...]) -> BreakerRow:
    _, name, version, era, state, forced, calls, trials_left, successes, *times, why = row
    opened_at, until, changed_at = (None if each is None else instant(each) for each in times)
    return BreakerRow(
        name,
        version,
        era,
        state,
        bool(forced),
        calls,
        trials_left,
        successes,
        opened_at,
        until,
        changed_at,
        why,
    )
