"""Holdfast, the facade: what an application holds in its hands, and the place where everything is wired."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload
from uuid import UUID

from .alerting.sinks import FunctionSink, Listener, Sink, Webhook
from .bodies.keys import Source, keys_for
from .by_hand import ByHand, Reported
from .clock import Clock, SystemClock
from .errors import InvalidSettings, UsageError
from .handlers.context import Context
from .handlers.declare import AnyHandler, Handler, HandlerOptions, Key, declare, is_declared_again
from .handlers.forms import BatchDeclaration, Declaration, HandlerKeywords
from .handlers.registry import Handlers
from .limits.breakers import Breaker, Breakers, Counts
from .model import names
from .model.limits import Breaker as BreakerLike
from .model.limits import SharedRate, SharedSlots, slots_count
from .model.message import Dedupe, Event, NewMessage, Published, Reason
from .model.work import Batch, Leased, Settlement
from .operations.letters import DeadLetter, hook
from .orchestrations.declared import ActivityDeclaration, OrchestrationDeclaration
from .orchestrations.declaring import ActivityKeywords, Declaring
from .orchestrations.failures import Errors
from .orchestrations.messages import Pen
from .orchestrations.outside import Orchestrations
from .orchestrations.turns import Memory, Place
from .publishing import Publishing
from .rules import aftermath, delivery
from .rules.aftermath import CopyTo
from .rules.breaker import BreakerOptions
from .rules.policy import OnDead, Ordering
from .rules.rate import rate as read_rate
from .rules.recovery import Recovery, checked
from .rules.redact import Rule, redactor
from .rules.retry import RetryPolicy
from .settings import RetryProfile, Settings, SettingsOptions
from .store import Store, open_store
from .store.plans import engine
from .telemetry import Watch, exposition, together
from .telemetry.families import Sample
from .telemetry.meter import Meter
from .telemetry.sheet import Sheet, summed
from .testing import Drained, testing
from .transports.contract import SendingConnector
from .transports.destination import Destination, DestinationKeywords, declare_destination
from .worker.around import Around
from .worker.board import Board
from .worker.embedded import Running
from .worker.loop import Companion, Worker

if TYPE_CHECKING:
    from .inboxes import Inbox, InboxOptions
    from .operations import Operations
    from .operations.gauges import Gauges
    from .telemetry.tracing import Tracing
    from .transports.contract import Connector

Hear = TypeVar("Hear", bound=Listener)
Hook = TypeVar("Hook", bound=Callable[[DeadLetter], object] | Callable[[DeadLetter, Context], object])


Surround = TypeVar("Surround", bound=Around)


class Holdfast:
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
        """Settings are in docs/settings.md. `redact`: what else is masked in the errors that are stored.

        `metrics`: workers in this process count, for `metrics_text()`; `holdfast worker --metrics` needs no such word.
        `keys`: bodies are sealed with the first of them when they are stored (docs/security.md); else HOLDFAST_KEYS.
        `recovery`: which dead letters come back by themselves, for handlers that say nothing else about a reason.
        `require_on`: a publish without `on=` is refused, so that none is forgotten (docs/publishing.md).
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
        self.store: Store = open_store(self.url, self.settings, self.clock, self.schema)
        self.breakers = Breakers(lambda: self.store)
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

    def _in_store(self) -> tuple[Publishing, ByHand]:
        """Publishing and working by hand, in the database that this application is in now."""
        publishing = Publishing(repr(self), self.store, self.handlers, self.settings, self.keys, self.tracing)
        publishing.require_on = self.require_on
        by_hand = ByHand(
            self.store, self.handlers, self.settings, self.clock, self.redact, self.keys, self.prepare
        )
        return publishing, by_hand

    def __repr__(self) -> str:
        return f"Holdfast({names.display_url(self.url)!r})"

    # -- handlers

    @overload
    def handler(self, *types: str, **options: Unpack[HandlerKeywords]) -> Declaration: ...
    @overload
    def handler(self, *types: str, batch: int, **options: Unpack[HandlerKeywords]) -> BatchDeclaration: ...
    def handler(
        self,
        *types: str,
        name: str | None = None,
        family: str | None = None,
        renamed_from: str | None = None,
        retry: RetryProfile | RetryPolicy | None = None,
        order: Ordering = "strict",
        on_dead: OnDead = "continue",
        ordered: bool = True,
        timeout: float | None = None,
        concurrency: int | None = None,
        per_key: int | None = None,
        key: Key | None = None,
        batch: int = 0,
        steps: Sequence[str] = (),
        errors: Mapping[type[BaseException], Reason] | None = None,
        breaker: str | BreakerLike | None = None,
        rate: str | SharedRate | None = None,
        cluster_concurrency: int | SharedSlots | None = None,
        catch_up: str | None = None,
        after_death: Literal["hold", "alert"] | CopyTo | AnyHandler = "hold",
        recovery: Mapping[Reason, Recovery] | None = None,
    ) -> Callable[[Callable[..., Any]], AnyHandler]:
        """Declare the function below as the handler of these types (`order.placed`, or a prefix `order.*`).

        Its queue has the function's name unless `name` is given; with `family="customers"` it serves the queue
        `customers` and every queue below it (`customers/17`, docs/handlers.md). `renamed_from` is the name that it had
        before: what waits under that name is handled here. `retry` is a profile or a RetryPolicy;
        `order` says whether a failed message blocks its stream (`strict`) or is set aside (`available`); `on_dead`
        whether the stream goes on after a death or halts; `batch` hands over up to so many messages at once, as a list.
        `concurrency` is how many calls one process makes at once, `per_key` how many for one `key`: "subject",
        "stream", or what a function makes of the body. `cluster_concurrency` is how many run at once on all machines
        together, `rate` how many begin in a second; `catch_up="50/s"` is the rate at which this handler begins again
        after a pause or after nobody was there, and it doubles every few seconds. `after_death`: the dead letter is
        held; besides, somebody is alerted, or a copy goes to a backup handler. `recovery`: which dead letters come back
        by themselves.
        """
        if not types:
            raise UsageError('A handler needs at least one type: @app.handler("order.placed").')

        wish = aftermath.after_death(
            CopyTo(after_death.queue) if isinstance(after_death, Handler) else after_death
        )

        options = HandlerOptions(
            name=name, family=family, renamed_from=renamed_from, retry=retry, order=order, on_dead=on_dead,
            ordered=ordered, timeout=timeout,
            concurrency=concurrency, per_key=per_key, key=key, batch=batch, steps=steps, errors=errors, breaker=breaker,
            rate=rate, cluster_concurrency=cluster_concurrency, catch_up=catch_up, after_death=wish,
            recovery={**self.recovery, **(recovery or {})},
        )  # fmt: skip

        def register(function: Callable[..., Any]) -> AnyHandler:
            tells = replace(wish, tell=aftermath.HOOK_QUEUE in self.handlers)
            handler = declare(self, function, types, replace(options, after_death=tells))
            if is_declared_again(self.handlers.get(handler.queue), handler):
                self.handlers.put(handler)
                self.publishing.forget_subscriptions()
            else:
                self.handlers.add(handler)
            if renamed_from is not None:
                self.handlers.rename(renamed_from, handler.queue)
            return handler

        return register

    # -- orchestrations

    def activity(
        self, *, name: str | None = None, returns: Errors | None = None, **options: Unpack[ActivityKeywords]
    ) -> ActivityDeclaration:
        """Declare the function below as an activity: a handler that orchestrations call and whose result they get.

        It has the queue of its name and takes the options of a handler. `returns` names exceptions that calling code
        gets as themselves: `returns={"CardDeclined": CardDeclined}`; any other is an ActivityFailed.
        """
        return self._declaring.activity(name, returns or {}, options)

    def orchestration(
        self, *, version: str = "1", name: str | None = None, returns: Errors | None = None,
        max_attempts: int = 5, concurrency: int | None = None,
    ) -> OrchestrationDeclaration:  # fmt: skip
        """Declare the `async def` below as an orchestration: it survives restarts by replay (docs/orchestrations.md).

        Its queue is `name@version`. A turn that fails `max_attempts` times is a dead letter, and its instance stops.
        """
        return self._declaring.orchestration(version, name, returns or {}, max_attempts, concurrency)

    # -- destinations

    def destination(
        self, name: str, connector: SendingConnector, *, types: Sequence[str], **options: Unpack[DestinationKeywords]
    ) -> Destination:  # fmt: skip
        """Send messages of these types to a broker: `app.destination("orders", rabbit, types=["order.*"], to="shop")`.

        `to` (exchange) and `key` (routing key) are templates of type, stream, subject, id and headers.x. They travel
        as CloudEvents from `source`, in binary or structured `mode`, or as "plain" messages. `forward`: also those that
        came through an inbox. `batch`: messages in one call at most. The others are those of `handler`; a breaker has
        the destination's name unless another is given (docs/relay.md).
        """
        tells = aftermath.HOOK_QUEUE in self.handlers
        made = declare_destination(self, name, connector, types, options, self.recovery, tells)
        self.handlers.add(made)
        return made

    def on_dead_letter(self, function: Hook) -> Hook:
        """Declare the function below as the hook for dead letters: called at least once for each death.

        It gets a `DeadLetter` and is retried like any handler; opening a ticket is what it is for.
        """
        handler = hook(self, function, lambda: self.operations)
        self.handlers.tell_deaths()
        self.handlers.add(handler)
        return function

    def around_call(self, hook: Surround) -> Surround:
        """Enter the context manager that the function below returns around each call of a `def` handler.

        In the thread of the call: for connections and sessions that a framework binds to threads (docs/handlers.md).
        """
        self._around.append(hook)
        return hook

    def breaker(
        self, name: str, *, counts: Counts | None = None, **options: Unpack[BreakerOptions]
    ) -> Breaker:
        """The breaker of a dependency, shared by all processes: `with app.breaker("llm"):`, or `breaker="llm"`.

        Options, given once: window, calls_min, opens_above, cooldown, trials, closes_above, catch_up,
        catch_up_doubles, counts (what is a failure).
        """
        return self.breakers.get(name, counts=counts, **options)

    def rate(self, name: str, rate: str, *, burst: int | None = None) -> SharedRate:
        """A rate that several handlers share, such as that of a destination: `rate=app.rate("smtp", "100/s")`."""
        return SharedRate(name, read_rate(rate, burst))

    def slots(self, name: str, count: int) -> SharedSlots:
        """How many run at once on all machines, shared by handlers: `cluster_concurrency=app.slots("smtp", 5)`."""
        return SharedSlots(names.own_name(name, "The slots"), slots_count(count, f"Slots {name!r}"))

    def inbox(self, name: str, broker: Connector, *, queue: str, **options: Unpack[InboxOptions]) -> Inbox:
        """Receive what a broker has in a queue: `app.inbox("billing", rabbit, queue="shop.billing")` (docs/inbox.md).

        It is stored, committed and then acknowledged, and handlers of its type get it. `bind`: exchanges and the keys
        that come from there; `stream`: what keeps its order here, "{partitionkey|subject}"; `types`: what bodies must
        look like, by type; `dedupe`: for how long what comes again is known; `dead_letters`: the queue is a dead letter
        queue of the broker; `backlog`: so many messages may wait to be handled before it stops receiving.
        """
        from .inboxes import Reader, declared, returning

        made = declared(name, broker, queue=queue, **options)
        if name in self.inboxes:
            raise InvalidSettings(f"There is already an inbox named {name!r}: give one of them another name.")
        tells = aftermath.AfterDeath(tell=aftermath.HOOK_QUEUE in self.handlers)
        reader = Reader(made, self.settings, self.keys)
        self.handlers.add(returning(self, made, reader, tells))
        self.inboxes[name] = made
        return made

    # -- alerts

    def on_alert(self, function: Hear) -> Hear:
        """Call the function below, async or not, with every `Alert` that begins or is over, in one of the workers."""
        self._add_sink(FunctionSink(function))
        return function

    def alert_webhook(
        self,
        url: str,
        secret: str | Sequence[str],
        *,
        allow_http: bool = False,
        allow_private: bool = False,
        timeout: float = 10.0,
    ) -> None:
        """Send every alert to this address, as JSON, signed (docs/alerts.md).

        `secret`: one, or two while one is replaced, the new one first. `allow_private`: it may be an address of your
        own network. `timeout` is for the whole call.
        """
        self._add_sink(
            Webhook(url, secret, allow_http=allow_http, allow_private=allow_private, timeout=timeout)
        )

    def _add_sink(self, sink: Sink) -> None:
        if any(each.name == sink.name for each in self._sinks):
            raise InvalidSettings(f"Alerts go to {sink.name} already: give each sink once.")
        self._sinks.append(sink)

    # -- publishing

    def publish(
        self, type: str, body: object = None, *, on: object = None,
        stream: str | None = None, subject: str | None = None, headers: Mapping[str, Any] | None = None,
        dedupe: str | Dedupe | None = None, delay: float | timedelta | None = None, at: datetime | None = None,
        deadline: datetime | timedelta | None = None, queue: str | None = None, id: UUID | None = None,
        event: bool = False, expect: int | None = None,
    ) -> Published:  # fmt: skip
        """Store a message, in your own transaction when `on` is your connection or session.

        `delay`: not before so many seconds, or a timedelta, from now; `at`: not before this moment (aware); `deadline`:
        not started after it. `dedupe`: a second message of this type with the same key is not stored. `event` and
        `expect`: docs/publishing.md. `queue`: for that handler alone.
        """
        message = self.message(
            type, body,
            stream=stream, subject=subject, headers=headers, dedupe=dedupe, delay=delay, at=at, deadline=deadline,
            queue=queue, id=id, event=event, expect=expect,
        )  # fmt: skip
        return self.publishing.publish([message], on)[0]

    async def apublish(
        self, type: str, body: object = None, *, on: object = None,
        stream: str | None = None, subject: str | None = None, headers: Mapping[str, Any] | None = None,
        dedupe: str | Dedupe | None = None, delay: float | timedelta | None = None, at: datetime | None = None,
        deadline: datetime | timedelta | None = None, queue: str | None = None, id: UUID | None = None,
        event: bool = False, expect: int | None = None,
    ) -> Published:  # fmt: skip
        """Like `publish`, for async code and async connections or sessions."""
        message = self.message(
            type, body,
            stream=stream, subject=subject, headers=headers, dedupe=dedupe, delay=delay, at=at, deadline=deadline,
            queue=queue, id=id, event=event, expect=expect,
        )  # fmt: skip
        return (await self.publishing.apublish([message], on))[0]

    def publish_many(self, messages: Iterable[NewMessage], *, on: object = None) -> list[Published]:
        """Store many messages, made with `app.message(...)`, in one statement."""
        drafts = list(messages)
        return self.publishing.publish(drafts, on) if drafts else []

    async def apublish_many(self, messages: Iterable[NewMessage], *, on: object = None) -> list[Published]:
        drafts = list(messages)
        return await self.publishing.apublish(drafts, on) if drafts else []

    def message(
        self, type: str, body: object = None, *,
        stream: str | None = None, subject: str | None = None, headers: Mapping[str, Any] | None = None,
        dedupe: str | Dedupe | None = None, delay: float | timedelta | None = None, at: datetime | None = None,
        deadline: datetime | timedelta | None = None, queue: str | None = None, id: UUID | None = None,
        event: bool = False, expect: int | None = None,
    ) -> NewMessage:  # fmt: skip
        """A message for `publish_many`, checked and encoded; takes the options of `publish`."""
        return self.publishing.message(
            type, body,
            stream=stream, subject=subject, headers=headers, dedupe=dedupe, delay=delay, at=at, deadline=deadline,
            queue=queue, id=id, event=event, expect=expect,
        )  # fmt: skip

    def events(self, stream: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """What was published as an event into a stream, behind a version, in order."""
        found = self.store.read(engine.read_events(stream, after, limit))
        reveal = self.operations.reveal
        return [replace(each, body=reveal(each.id, each.type, each.body)) for each in found]

    def revealed(self, id: UUID, type: str, body: str) -> str:
        """A stored body as it was published; BodySealed if it is encrypted and our keys do not open it."""
        return self.operations.reveal(id, type, body)

    # -- working

    def worker(
        self, *, queues: Iterable[str] | None = None, name: str | None = None, until_idle: bool = False,
        board: Board | None = None, sheet: Sheet | None = None, quarantine: bool = False, embedded: bool = True,
    ) -> Worker:  # fmt: skip
        """A worker of this application's handlers; `await worker.run()`. It counts on the sheet, if there is one.

        `queues`: of these alone; `until_idle`: it ends when nothing is claimable. The others are for worker processes.
        """
        from .operations.keeper import Keeper

        self.orchestrations.place.memory.is_embedded = embedded
        sheet = sheet or self.sheet
        watches: list[Watch] = [] if sheet is None else [Meter(sheet, self.clock)]
        if self.tracing is not None:
            watches.append(self.tracing)
        alone = quarantine or until_idle
        return Worker(
            self.store, self.handlers, self.settings, self.clock, draft=self.message, queues=queues, name=name,
            board=board, quarantine=quarantine, embedded=embedded, until_idle=until_idle,
            housekeeping=Keeper(lambda: self.operations), watch=together(watches), around=self._around,
            companions=[] if alone else self._intakes(queues),
        )  # fmt: skip

    def _intakes(self, queues: Iterable[str] | None) -> list[Companion]:
        """What receives for the inboxes of a worker."""
        if not self.inboxes:
            return []
        from .inboxes import Intake

        wanted = [each for each in self.inboxes.values() if queues is None or each.queue in queues]
        return [Intake(each, self.store, self.settings, self.keys, self.clock) for each in wanted]

    @asynccontextmanager
    async def running(
        self, *, queues: Iterable[str] | None = None, name: str | None = None, until_idle: bool = False
    ) -> AsyncIterator[Running]:
        """Work inside this process while the block lasts: `async with app.running() as running:`.

        What goes wrong at the start is raised here. A worker that ends later is started again; `running.health`.
        """
        await asyncio.to_thread(self.prepare)
        running = Running(
            lambda: self.worker(queues=queues, name=name, until_idle=until_idle), self.prepare, self.clock
        )
        task = asyncio.create_task(running.run())
        try:
            await _first(running.started, task)
            yield running
        finally:
            running.stop()
            try:
                await task
            finally:
                await self.store.aclose()

    def prepare(self) -> None:
        """Make sure that the tables are there (SQLite: make them) and that the handlers are subscribed."""
        self.store.check()
        self.publishing.subscribe()

    def migrate(self) -> list[int]:
        """Bring the database to this version; the answer lists the steps taken."""
        steps = self.store.migrate()
        self.publishing.subscribe_anew()
        return steps

    # -- a worker written by hand

    def process_work_batch(
        self,
        settlements: Sequence[Settlement] = (),
        want: Mapping[str, int] | None = None,
        *,
        lease: float | None = None,
        wait: float = 0.0,
        run: int | None = None,
    ) -> Batch:
        """Hand in what ended and get new work, in one round trip: the exchange that our own worker makes.

        `want` maps queues to how many heads to lease, for `lease` seconds; with nothing there it polls for `wait`
        seconds. Settling a part of a run gives the rest of it back. A message whose last worker never came back is
        handed out alone, when everything else has been handed in (docs/handlers.md).
        """
        return self._by_hand.process(settlements, want or {}, lease, wait, run)

    def done(self, leased: Leased, *emits: NewMessage) -> Settlement:
        """The settlement of a message that was handled."""
        return self._by_hand.conclude(leased, delivery.Returned(0, emits))

    def failed(
        self, leased: Leased, completed: int, error: str | BaseException, *, reason: Reason | None = None
    ) -> Settlement:
        """The settlement of a failure: what was accomplished before it (flags), and the error.

        `reason` says what kind of failure it is (docs/failure.md); without it the type of the exception does.
        """
        raised = error if isinstance(error, BaseException) else Reported(error)
        return self._by_hand.conclude(leased, delivery.Raised(raised, completed, reason=reason))

    def release(self, leased: Leased) -> Settlement:
        """Let a message that was not started out of the order of its stream; nothing else changes."""
        return delivery.release(leased)

    def give_back(self, leased: Leased, *, delay: float = 0.0, refund: bool = True) -> Settlement:
        """Hand a message back that was not started."""
        return delivery.give_back(leased, delay, refund)

    # -- operating and testing

    @property
    def operations(self) -> Operations:
        """Everything an operator may ask or order."""
        from .operations import Operations

        return Operations(
            self.store,
            self.settings,
            self.handlers,
            self.keys,
            self._sinks,
            breakers=self.breakers,
            inboxes=self.inboxes,
        )

    def metrics(self, sheets: Sequence[Sheet] = ()) -> list[Sample]:
        """What workers have counted on these sheets and inside this process, and what the database says."""
        from .operations.gauges import Gauges

        if self._gauges is None:
            self._gauges = Gauges(lambda: self.operations, self.clock)
        ours = [] if self.sheet is None else [self.sheet]
        return [*summed([*sheets, *ours]), *self._gauges.read()]

    def metrics_text(self, sheets: Sequence[Sheet] = ()) -> str:
        """The metrics of docs/telemetry.md as Prometheus reads them. What the database says may be some seconds old."""
        return exposition.text(self.metrics(sheets))

    @contextmanager
    def testing(self, url: str | None = None, *, elsewhere: Iterable[str] = ()) -> Iterator[Drained]:
        """Run this application on a database of its own with a clock that is moved by hand (docs/testing.md).

        `with app.testing() as t: ...; t.drain(); t.advance(minutes=5)`. The database is a new SQLite file; on
        PostgreSQL, with `url=`, a new schema that is dropped at the end. A type or queue that no handler of this
        application has is refused, unless `elsewhere` names it (or a prefix, `billing.*`).
        """
        with testing(self, url, elsewhere) as drained:
            yield drained

    @contextmanager
    def moved(self, url: str, clock: Clock) -> Iterator[None]:
        """Work on another database, by another clock, while the block lasts."""
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
        """Close the connections that this process has."""
        self.breakers.close()
        self.store.close()


def tracing_for(clock: Clock, headers_bytes: int) -> Tracing:
    from .telemetry.tracing import Tracing

    return Tracing(clock, headers_bytes)


async def _first(started: asyncio.Event, task: asyncio.Task[None]) -> None:
    waiting = asyncio.create_task(started.wait())
    await asyncio.wait({waiting, task}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if task.done():
        await task
