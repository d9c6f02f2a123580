"""An application on a database of the test, with a clock that is moved by hand, and what has been fired there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from holdfast import Context, Holdfast, Occurrence
from holdfast.clock import MovableClock
from holdfast.model.schedule import Stored
from holdfast.model.work import Ticked
from holdfast.schedules import zones
from holdfast.schedules.ticker import Ticker
from holdfast.store.plans import schedules

BEGIN = "2026-03-01 00:00 UTC"


@dataclass
class Seen:
    """A handler's call: which message, and which occurrence."""

    id: UUID
    body: Any
    occurrence: Occurrence | None


@dataclass
class Desk:
    """`desk.run()` works until nothing is due; `desk.later(days=1)` moves the clock."""

    url: str
    at: str = BEGIN
    seen: list[Seen] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = MovableClock(zones.moment(self.at))
        self.app = self.another()

    def another(self, **options: Any) -> Holdfast:
        """Another application on the same database, with the same handler."""
        app = Holdfast(self.url, clock=self.clock, **options)

        @app.handler("due", name="due", concurrency=1)
        def handle(body: Any, ctx: Context) -> None:
            self.seen.append(Seen(ctx.id, body, ctx.occurrence))

        return app

    def run(self, app: Holdfast | None = None) -> None:
        app = app or self.app
        app.prepare()
        asyncio.run(app.worker(until_idle=True).run())

    def tick(self, app: Holdfast | None = None) -> Ticked:
        """One tick, of a worker that has just started."""
        return self.ticker(app)()

    def ticker(self, app: Holdfast | None = None) -> Ticker:
        found = (app or self.app)._working.steps()["schedules"]
        assert isinstance(found, Ticker)
        return found

    def later(self, **passed: float) -> None:
        self.clock.instant += timedelta(**passed)

    def row(self, name: str) -> Stored:
        found = self.app.store.read(schedules.get(name))
        assert found is not None
        return found

    @property
    def keys(self) -> list[str]:
        return [each.occurrence.key for each in self.seen if each.occurrence is not None]

    def notes(self, name: str) -> list[tuple[str, str, int, str]]:
        found = self.app.store.read(schedules.notes(name, 100))
        return [(each.first_key, each.last_key, each.count, each.why) for each in reversed(found)]

    def messages(self) -> list[Mapping[str, Any]]:
        """What is pending, oldest first."""
        found = self.app.operations.messages.find(newest=False, limit=1000)
        return [{"id": each.id, "due": each.due_at, "claimable": each.claimable_at} for each in found]

    def close(self) -> None:
        self.app.close()


def at(text: str) -> datetime:
    return zones.moment(text)
