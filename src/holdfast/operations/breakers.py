"""Circuit breakers for operators: which are open and why; open, close or reset them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..errors import NotFound, UsageError
from ..limits import breakers as limits
from ..limits.circuits import DecideSwitch, as_switch
from ..rules.breaker import Policy, State
from ..store.plans import breakers
from ..store.plans.audit import Entry
from ..store.plans.breakers import BreakerRow, Change
from ..store.statement import Plan
from .desk import Desk, log, said

LISTED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class BreakerState:
    """A breaker as an operator sees it."""

    name: str
    state: State
    forced: bool  # by an operator
    calls: int  # the last ones that were reported
    failures: int  # of those calls
    trials_left: int
    successes: int  # of trials
    opened_at: datetime | None
    until: datetime | None
    changed_at: datetime | None
    retry_in: float | None  # seconds until a trial is let through; None: closed, or forced
    why: str | None


class Breakers:
    """Questions and commands about breakers.

    `here` are the breakers of this process: they see a command at once, other processes within a second.
    """

    def __init__(self, desk: Desk, here: limits.Breakers | None = None) -> None:
        self._desk = desk
        self.here = here or limits.Breakers(desk.store)

    def list(self) -> Sequence[BreakerState]:
        """Every breaker that has been used, by name."""
        return [_state(row, now) for row, now in self._desk.ask(breakers.known(LISTED_MAX))]

    def show(self, name: str) -> BreakerState:
        row, now = self._desk.ask(breakers.look(name))
        if row.version == 0:
            there = ", ".join(each.name for each in self.list()) or "none"
            raise NotFound(f"There is no breaker {name}; there are: {there}.")
        return _state(row, now)

    def trip(self, name: str, *, why: str | None = None, seconds: float | None = None) -> BreakerState:
        """Open a breaker for some seconds, after which trials begin; without a time, until it is closed or reset."""
        if seconds is not None and not seconds > 0:
            raise UsageError(
                f"Breaker {name} cannot be opened for {seconds!r} s: give a positive time, or none."
            )
        text = said(why, limits.WHY_CHARS)
        return self._order(name, "open", text, lambda switch, now: switch.trip(now, seconds, text))

    def force_closed(self, name: str, *, why: str | None = None) -> BreakerState:
        """Let every call through, even if calls fail, until it is reset."""
        text = said(why, limits.WHY_CHARS)
        return self._order(name, "close", text, lambda switch, _: switch.force_closed(text))

    def reset(self, name: str, *, why: str | None = None) -> BreakerState:
        """Close it, set its counters to 0, and return it to automatic operation."""
        return self._order(name, "reset", said(why, limits.WHY_CHARS), lambda switch, _: switch.reset())

    def _order(self, name: str, what: str, why: str | None, decide: DecideSwitch) -> BreakerState:
        if name not in self.here:
            self.show(name)

        def note(change: Change) -> Plan[None]:
            entry = Entry(f"breakers.{what}", target=name, why=why)
            yield from self._desk.note(entry, _facts(change.before), _facts(change.after))

        change = self.here.command(name, decide, note)
        log.info(
            "breaker.ordered",
            "breaker %(breaker)s: %(what)s, by %(who)s",
            breaker=name,
            what=what,
            who=self._desk.who,
        )
        return _state(change.after, change.now)


def _facts(row: BreakerRow) -> dict[str, Any]:
    return {"state": row.state, "forced": row.forced, "until": row.until, "why": row.why}


def _state(row: BreakerRow, now: datetime) -> BreakerState:
    switch = as_switch(row, Policy())
    waits = switch.state is not State.CLOSED and not switch.forced
    return BreakerState(
        name=row.name,
        state=switch.state,
        forced=row.forced,
        calls=len(row.calls),
        failures=switch.failures,
        trials_left=row.trials_left,
        successes=row.successes,
        opened_at=row.opened_at,
        until=row.until,
        changed_at=row.changed_at,
        retry_in=switch.retry_in(now) if waits else None,
        why=row.why,
    )
