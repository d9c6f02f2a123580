"""Breakers and rates in the store, for both databases. What a breaker does is decided by whoever asks for a change."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from ...clock import micros
from ..statement import Plan
from .engine import Plans, sql
from .engine_postgres import PostgresPlans

TRIES = 50  # of a change: each one that fails is one that somebody else made


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
    """What a breaker was and is, by the database's time. `done` is false when the others never let us."""

    before: BreakerRow
    after: BreakerRow
    now: datetime
    done: bool = True


Decide = Callable[[BreakerRow, datetime], BreakerRow | None]


def look(plans: Plans, name: str, now: Any) -> Plan[tuple[BreakerRow, datetime]]:
    """One breaker and the time; a breaker that nobody has stored is a fresh one."""
    (row,) = yield sql(plans, "breaker_look", name=name, now=now)
    return BreakerRow(name) if row[1] is None else _row(plans, row), plans.moment(row[0])


def known(plans: Plans, limit: int, now: Any) -> Plan[list[tuple[BreakerRow, datetime]]]:
    """All breakers by name, each with the time."""
    rows = yield sql(plans, "breaker_list", limit=limit, now=now)
    return [(_row(plans, row), plans.moment(row[0])) for row in rows]


def change(plans: Plans, name: str, decide: Decide, now: Any) -> Plan[Change]:
    """Compare and swap: what `decide` makes of the row is written if nobody was faster, else decided anew.

    None or the same row: nothing is written, unless it is the first. Each statement may be a transaction of its own.
    """
    tries = 0
    while True:
        before, moment = yield from look(plans, name, now)
        after = decide(before, moment)
        if after is None or (after == before and before.version):
            return Change(before, before, moment)
        tries += 1
        if tries > TRIES:
            return Change(before, before, moment, done=False)
        changed_at = moment if after.state != before.state or before.version == 0 else before.changed_at
        after = after._replace(changed_at=changed_at)
        if (yield from swap(plans, after._replace(version=before.version))):
            return Change(before, after._replace(version=before.version + 1), moment)


def swap(plans: Plans, row: BreakerRow) -> Plan[bool]:
    """Write a row if its version is still the one that was read."""
    return bool((yield sql(plans, "breaker_swap", **_values(plans, row))))


def take(plans: Plans, name: str, wanted: int, per_second: float, burst: int, now: Any) -> Plan[int]:
    """Take up to so many tokens from the bucket of this name; the answer says how many there were."""
    rows = yield sql(
        plans, "rate_take", name=name, wanted=wanted, per_second=per_second, burst=burst, now=now
    )
    return int(rows[0][0]) if rows else 0


def tokens(plans: Plans, name: str) -> Plan[tuple[float, datetime] | None]:
    """How many tokens a bucket had, and when; None: nobody has taken from it."""
    rows = yield sql(plans, "rate_look", name=name)
    return (float(rows[0][0]), plans.moment(rows[0][1])) if rows else None


def _row(plans: Plans, row: tuple[Any, ...]) -> BreakerRow:
    _, name, version, era, state, forced, calls, trials_left, successes, *times, why = row
    opened_at, until, changed_at = (None if each is None else plans.moment(each) for each in times)
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


def _values(plans: Plans, row: BreakerRow) -> dict[str, object]:
    values: dict[str, object] = row._asdict()
    values["forced"] = plans.boolean(row.forced)
    if not isinstance(plans, PostgresPlans):
        for name in ("opened_at", "until", "changed_at"):
            at = getattr(row, name)
            values[name] = None if at is None else micros(at)
    return values
