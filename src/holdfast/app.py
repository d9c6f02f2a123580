"""Holdfast, the facade: the object that an application uses, and the place where everything is wired.

Its methods are in facade/, by what they are for: declares.py, publishes.py, works.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Self, Unpack

from .bodies.keys import Source, keys_for
from .clock import Clock, SystemClock
from .errors import InvalidSettings
from .facade.asks import Asks
from .facade.declares import Declares
from .facade.parts import Late
from .facade.recurs import Recurs
from .facade.works import Works
from .handlers.registry import Handlers
from .model import names
from .model.message import Reason
from .model.schedule import Definition, Fired
from .publishing import Publishing
from .rules.recovery import Recovery, checked
from .rules.redact import Rule, redactor
from .settings import Settings, SettingsOptions
from .store import Store, open_store
from .telemetry import exposition
from .telemetry.families import Sample
from .telemetry.sheet import Sheet, summed
from .worker.around import Around

if TYPE_CHECKING:
    from .alerting.sinks import Sink
    from .by_hand import ByHand
    from .facade.brokering import Brokering
    from .facade.working import Working
    from .inboxes import Inbox
    from .limits.breakers import Breakers
    from .operations import Operations
    from .operations.gauges import Gauges
    from .orchestrations.declaring import Declaring
    from .orchestrations.outside import Orchestrations
    from .requests.outside import Requests
    from .schedules.outside import Schedules
    from .telemetry.tracing import Tracing
    from .testing import Drained
    from .transports.attempts import Brokers


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
        self.recovery: Mapping[Reason, Recovery] = checked(recovery or {})
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
        self.sheet = Sheet() if metrics else None
        self._sinks: list[Sink] = []
        self._around: list[Around] = []
        self.require_on = require_on
        wanted = os.environ.get("HOLDFAST_OTEL", "") not in ("", "0") if otel is None else otel
        self.tracing = tracing_for(self.clock, self.settings.headers_bytes) if wanted else None
        self.publishing = self._publishing_here()

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
        from .facade import configured

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
        found.declare(app)
        return app

    def _publishing_here(self) -> Publishing:
        """Publishing in the database that this application is in now."""
        publishing = Publishing(repr(self), self.store, self.handlers, self.settings, self.keys, self.tracing)
        publishing.require_on = self.require_on
        return publishing

    def __repr__(self) -> str:
        return f"Holdfast({names.display_url(self.url)!r})"

    # -- parts that are loaded when they are first used: when something is declared for them, or a worker is made

    @Late
    def orchestrations(self) -> Orchestrations:
        """Starts instances of orchestrations, signals them, cancels them, and waits for their results."""
        from .orchestrations.messages import Pen
        from .orchestrations.outside import Orchestrations
        from .orchestrations.place import Memory, Place

        place = Place(lambda: self.store, lambda: self.clock, self.settings, Pen(self.keys), Memory())
        return Orchestrations(place, lambda: self.publishing)

    @Late
    def requests(self) -> Requests:
        """Requests with deadlines: reads them, and decides them."""
        from .requests.hooks import Pen
        from .requests.outside import Requests

        return Requests(self, lambda: self.store, lambda: self.publishing, self.settings, Pen(self.keys))

    @Late
    def breakers(self) -> Breakers:
        from .limits.breakers import Breakers

        return Breakers(lambda: self.store)

    @Late
    def brokers(self) -> Brokers:
        from .transports.attempts import Brokers

        return Brokers()

    @Late
    def _declaring(self) -> Declaring:
        from .orchestrations.declaring import Declaring

        return Declaring(self, self.orchestrations)

    @Late
    def _recurring(self) -> Schedules:
        from .schedules.outside import Schedules

        return Schedules(self.settings, self.keys, self._schedules, lambda: self.publishing)

    @Late
    def _brokering(self) -> Brokering:
        from .facade.brokering import Brokering

        return Brokering(self)

    @Late
    def _working(self) -> Working:
        from .facade.working import Working

        return Working(self, self.message, self.prepare)

    @Late
    def _by_hand(self) -> ByHand:
        from .by_hand import ByHand

        return ByHand(
            self.store, self.handlers, self.settings, self.clock, self.redact, self.keys, self.prepare,
            self._working.steps,
        )  # fmt: skip

    @Late
    def _gauges(self) -> Gauges:
        from .operations.gauges import Gauges

        return Gauges(lambda: self.operations, self.clock)

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
        from .testing import testing

        with testing(self, url, elsewhere, at) as drained:
            yield drained

    @contextmanager
    def moved(self, url: str, clock: Clock) -> Iterator[None]:
        """Work on another database, with another clock, inside the block."""
        before = self.store, self.clock, self.url, self.schema
        (self.url, self.schema), self.clock = names.database_url(url), clock
        self.store = open_store(self.url, self.settings, clock, self.schema)
        self._settle()
        try:
            yield
        finally:
            self.store.close()
            self.store, self.clock, self.url, self.schema = before
            self._settle()

    def _settle(self) -> None:
        """After a move: publish there, and hold no leases of messages that are elsewhere."""
        self.publishing = self._publishing_here()
        vars(self).pop("_by_hand", None)

    def close(self) -> None:
        """Close the connections that this process has, and drop instances of orchestrations from its memory."""
        used = vars(self)  # the parts that have been used, among others
        if "orchestrations" in used:
            self.orchestrations.place.memory.forget()
        if "breakers" in used:
            self.breakers.close()
        self.store.close()


def tracing_for(clock: Clock, headers_bytes: int) -> Tracing:
    from .telemetry.tracing import Tracing

    return Tracing(clock, headers_bytes)
