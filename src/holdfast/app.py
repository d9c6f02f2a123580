"""Holdfast, the facade: the object that an application uses, and the place where everything is wired.

Its methods are in facade/, by what they are for: declares.py, publishes.py, works.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Self, Unpack

from .alerting.sinks import Sink
from .bodies.keys import Source, keys_for
from .by_hand import ByHand
from .clock import Clock, SystemClock
from .errors import InvalidSettings
from .facade import configured
from .facade.asks import Asks
from .facade.declares import Declares
from .facade.recurs import Recurs
from .facade.works import Works
from .handlers.registry import Handlers
from .limits.breakers import Breakers
from .model import names
from .model.message import Reason
from .model.schedule import Definition, Fired
from .orchestrations.declaring import Declaring
from .orchestrations.messages import Pen
from .orchestrations.outside import Orchestrations
from .orchestrations.place import Memory, Place
from .publishing import Publishing
from .requests.hooks import Pen as RequestPen
from .requests.outside import Requests
from .rules.recovery import Recovery, checked
from .rules.redact import Rule, redactor
from .settings import Settings, SettingsOptions
from .store import Store, open_store
from .telemetry import exposition
from .telemetry.families import Sample
from .telemetry.sheet import Sheet, summed
from .testing import Drained, testing
from .transports.attempts import Brokers
from .worker.around import Around

if TYPE_CHECKING:
    from .inboxes import Inbox
    from .operations import Operations
    from .operations.gauges import Gauges
    from .telemetry.tracing import Tracing


class Holdfast(Declares, Asks, Recurs, Works):
    """An application's engine: `app = Holdfast("sqlite:///shop.db")`, later `postgresql://...`."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        redact: Iterable[Rule] = (),
        metrics: bool = False,
        keys: Source | None = None,
        recovery: Mapping[Reason, Recovery] | None = None,
        otel: bool | None = None,
        require_on: bool = False,
        **settings: Unpack[SettingsOptions],
    ) -> None:
        """Settings are in docs/settings.md. `redact`: more patterns to mask in stored errors.

        `metrics`: workers in this process count, for `metrics_text()`; `holdfast worker --metrics` does not need it.
        `keys`: bodies are sealed with the first of them when they are stored (docs/security.md); else HOLDFAST_KEYS.
        `recovery`: which dead letters are redriven automatically, for handlers that declare nothing for a reason.
        `require_on`: a publish without `on=` is refused, so that it cannot be forgotten (docs/publishing.md).
        `otel`: spans and numbers for OpenTelemetry (docs/telemetry.md); else HOLDFAST_OTEL=1.
        """
        self.recovery = checked(recovery or {})
        self.url, self.schema = names.database_url(url)
        self.redact = redactor(redact, names.passwords(self.url))
        self.settings = Settings().but(**settings)
        self.clock: Clock = clock or SystemClock()
        self.keys = keys_for(keys, self.clock)
        self.handlers = Handlers()
        self.inboxes: dict[str, Inbox] = {}
        self._schedules: dict[str, Definition] = {}  # those in code
        self._hear_fired: Callable[[Fired], None] | None = None  # in tests
        self.store: Store = open_store(self.url, self.settings, self.clock, self.schema)
        self.breakers = Breakers(lambda: self.store)
        self.brokers = Brokers()
        self.sheet = Sheet() if metrics else None
        self._gauges: Gauges | None = None
        self._sinks: list[Sink] = []
        self._around: list[Around] = []
        self.require_on = require_on
        wanted = os.environ.get("HOLDFAST_OTEL", "") not in ("", "0") if otel is None else otel
        self.tracing = tracing_for(self.clock, self.settings.headers_bytes) if wanted else None
        self.publishing, self._by_hand = self._in_store()
        place = Place(lambda: self.store, lambda: self.clock, self.settings, Pen(self.keys), Memory())
        self.orchestrations = Orchestrations(place, lambda: self.publishing)
        self._declaring = Declaring(self, self.orchestrations)
        self.requests = Requests(
            self, lambda: self.store, lambda: self.publishing, self.settings, RequestPen(self.keys)
        )

    @classmethod
    def from_config(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        clock: Clock | None = None,
        redact: Iterable[Rule] = (),
        metrics: bool = False,
        keys: Source | None = None,
        recovery: Mapping[Reason, Recovery] | None = None,
        otel: bool | None = None,
        require_on: bool = False,
        **settings: Unpack[SettingsOptions],
    ) -> Self:
        """The application that a file describes: database, settings, brokers, destinations, inboxes (docs/settings.md).

        It is `path`, or the nearest holdfast.toml or pyproject.toml with `[tool.holdfast]`, from here upwards. What is
        given here wins over the file.
        """
        found = configured.find(path)
        if found is None:
            raise InvalidSettings(
                "There is no holdfast.toml, and no pyproject.toml with [tool.holdfast], here or in a folder above."
            )
        wanted: SettingsOptions = {**found.settings, **settings}  # type: ignore[typeddict-item]
        app = cls(
            found.database(), clock=clock, redact=redact, metrics=metrics, keys=keys, recovery=recovery, otel=otel,
            require_on=require_on, **wanted,
        )  # fmt: skip
        app.configure(found)
        return app

    def _in_store(self) -> tuple[Publishing, ByHand]:
        """Publishing and working by hand, in the database that this application is in now."""
        publishing = Publishing(repr(self), self.store, self.handlers, self.settings, self.keys, self.tracing)
        publishing.require_on = self.require_on
        by_hand = ByHand(
            self.store,
            self.handlers,
            self.settings,
            self.clock,
            self.redact,
            self.keys,
            self.prepare,
            self._steps,
        )
        return publishing, by_hand

    def __repr__(self) -> str:
        return f"Holdfast({names.display_url(self.url)!r})"

    # -- operating and testing

    @property
    def operations(self) -> Operations:
        """Everything an operator may ask or order."""
        from .operations import Operations

        return Operations(
            self.store, self.settings, self.handlers, self.keys, self._sinks, breakers=self.breakers,
            inboxes=self.inboxes,
        )  # fmt: skip

    def metrics(self, sheets: Sequence[Sheet] = ()) -> list[Sample]:
        """The counts of workers on these sheets and inside this process, and the numbers read from the database."""
        from .operations.gauges import Gauges

        if self._gauges is None:
            self._gauges = Gauges(lambda: self.operations, self.clock)
        ours = [] if self.sheet is None else [self.sheet]
        return [*summed([*sheets, *ours]), *self._gauges.read()]

    def metrics_text(self, sheets: Sequence[Sheet] = ()) -> str:
        """The metrics of docs/telemetry.md as Prometheus reads them.

        Numbers from the database may be some seconds old.
        """
        return exposition.text(self.metrics(sheets))

    @contextmanager
    def testing(
        self, url: str | None = None, *, elsewhere: Iterable[str] = (), at: datetime | str | None = None
    ) -> Iterator[Drained]:
        """Run this application on a database of its own with a clock that is moved by hand (docs/testing.md).

        `with app.testing() as t: ...; t.drain(); t.advance(minutes=5)`. The database is a new SQLite file; on
        PostgreSQL, with `url=`, a new schema that is dropped at the end. A type or queue that no handler of this
        application has is refused, unless `elsewhere` names it (or a prefix, `billing.*`). `at`: the clock's first
        time, an aware datetime or a text, "2026-03-28 12:00 Europe/Berlin".
        """
        with testing(self, url, elsewhere, at) as drained:
            yield drained

    @contextmanager
    def moved(self, url: str, clock: Clock) -> Iterator[None]:
        """Work on another database, with another clock, inside the block."""
        before = self.store, self.clock, self.url, self.schema
        (self.url, self.schema), self.clock = names.database_url(url), clock
        self.store = open_store(self.url, self.settings, clock, self.schema)
        self.publishing, self._by_hand = self._in_store()
        try:
            yield
        finally:
            self.store.close()
            self.store, self.clock, self.url, self.schema = before
            self.publishing, self._by_hand = self._in_store()

    def close(self) -> None:
        """Close the connections that this process has, and drop instances of orchestrations from its memory."""
        self.orchestrations.place.memory.forget()
        self.breakers.close()
        self.store.close()


def tracing_for(clock: Clock, headers_bytes: int) -> Tracing:
    from .telemetry.tracing import Tracing

    return Tracing(clock, headers_bytes)
