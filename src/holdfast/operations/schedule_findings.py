"""What the doctor finds about schedules: those that cannot fire, that nobody fires, and zone data that differs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from ..model.text import counted
from ..schedules import zones
from ..schedules.ticker import LIVE
from ..store.plans import operator, schedules
from .desk import Desk
from .results import Finding
from .schedules import Schedules

COUNTED_MAX, SHOWN = 10_000, 5
LATE = timedelta(minutes=5)


def examine(desk: Desk) -> Iterator[Finding]:
    found, now = desk.ask(schedules.counts(COUNTED_MAX)), desk.ask(operator.moment())
    plans = Schedules(desk)
    if found.failed:
        names = ", ".join(each.name for each in plans.list(state="failed", limit=SHOWN))
        yield Finding(
            "error",
            "schedules-failed",
            f"{counted(found.failed, 'schedule')} cannot fire: {names}.",
            "`holdfast schedules why NAME` shows the reason; set it again, or `holdfast schedules resume NAME`.",
        )
    orphans = plans.list(state="orphaned", limit=SHOWN)
    if orphans:
        yield Finding(
            "warning",
            "schedules-orphaned",
            f"Schedules are in the code of no worker that runs, and nobody fires them: "
            f"{', '.join(each.name for each in orphans)}.",
            "Start the application that has them, or `holdfast schedules drop NAME`.",
        )
    if not orphans and found.next_at is not None and found.next_at < now - LATE:
        yield Finding(
            "warning",
            "schedules-late",
            f"A schedule is due since {found.next_at:%Y-%m-%d %H:%M:%S} UTC and nobody has fired it.",
            "Start a worker, or look at its log: every worker fires what is due.",
        )
    live = desk.ask(schedules.zone_data(LIVE))
    if len(live) > 1:
        yield Finding(
            "note",
            "tzdata-differs",
            f"Workers have different zone data: {', '.join(live)}; here it is {zones.version()}. Those with the oldest "
            "do not fire schedules that use a time zone.",
            "Install the same version of the tzdata package everywhere.",
        )
