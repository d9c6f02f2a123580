"""Outages: times without a worker while something was due, or with many late messages, and what was caught up then.

A worker that starts begins an outage if no worker ran before it (`store.plans.outages.arrive`). Everything else is
decided by a check: workers make it in their housekeeping, one process at a time, and so does `holdfast alerts check`.
`--until-idle` checks once more before it ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from ..errors import NotFound
from ..model.names import all_below
from ..model.outage import Began, Due, Ended, Outage, Verdict
from ..rules import outage as rules
from ..store.plans import alerts, outages
from ..store.plans.operator import moment
from ..telemetry.outages import log_began, log_ended
from .desk import Desk

TURN = "outages"
SHARE = 50  # a check that took a second is followed by so many seconds of rest


class Outages:
    """The outages of a store."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    # -- asking

    def list(self, *, limit: int = 20) -> list[Outage]:
        """Outages, the newest first. The summary of an open one is as of now."""
        return [self._summed(each) for each in self._desk.ask(outages.listed(limit))]

    def show(self, number: int) -> Outage:
        """One outage, by its number."""
        found = self._desk.ask(outages.listed(1, number))
        if not found:
            raise NotFound(f"There is no outage {number}: `holdfast outages list` shows those that are kept.")
        return self._summed(found[0])

    def is_open(self) -> bool:
        """Whether an outage is not over."""
        return self._desk.ask(outages.open_outage()) is not None

    def current(self) -> Outage | None:
        """The outage that is not over, if there is one."""
        found = self._desk.ask(outages.open_outage())
        return None if found is None else self._summed(found)

    def _summed(self, each: Outage) -> Outage:
        if each.is_over:
            return each
        desk = self._desk
        found = desk.ask(outages.summed(each, desk.ask(moment()), desk.settings.late))
        return replace(
            each,
            oldest_at=min(each.oldest_at, found.oldest_at or each.oldest_at),
            handled=found.handled,
            died=found.died,
            late_mean=found.late_mean,
            late_max=found.late_max,
            caught_up_at=found.caught_up_at,
        )

    # -- deciding

    def look(self, *, now: bool = False) -> Verdict | None:
        """Check whether an outage begins, continues or is over, if a check is due; with `now` in any case."""
        desk, every = self._desk, self._desk.settings.alert_every
        mine = desk.command("The turn to look for outages", alerts.take_turn, TURN, every)
        if not mine and not now:
            return None
        begun = desk.store.clock.monotonic()
        verdict = self._decided(desk.settings.alert_calm)
        took = desk.store.clock.monotonic() - begun
        if took * SHARE > every:
            desk.command("The turn to look for outages", alerts.put_off, TURN, took * SHARE)
        return verdict

    def end(self) -> Outage | None:
        """For a worker that found nothing due and ends: an outage without late messages is over at once.

        Returns the outage that was open before.
        """
        open = self.current()
        if open is None:
            return None
        served = [all_below(each.queue) if each.is_family else each.queue for each in self._desk.handlers]
        self._decided(0.0, served)
        return self.show(open.number)

    def _decided(self, calm: float, served: Sequence[str] = ()) -> Verdict | None:
        desk, settings = self._desk, self._desk.settings

        def judge(
            open: Outage | None,
            due: Sequence[Due],
            late: int,
            late_since: datetime | None,
            is_attended: bool,
            now: datetime,
        ) -> Verdict | None:
            seen = rules.Seen(due, late, late_since, is_attended)
            return rules.judge(
                open, seen, allowed=settings.alert_late, late=settings.late, after=settings.outage_after,
                calm=calm, now=now,
            )  # fmt: skip

        verdict = desk.command("Outages", outages.look, settings.late, settings.lease, judge, served)
        match verdict:
            case Began():
                begun = self.current()
                if begun is not None:
                    log_began(begun)
            case Ended(outage):
                log_ended(self.show(outage.number))
        return verdict
