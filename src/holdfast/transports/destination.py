"""A destination: a queue whose messages go to a message broker, by their types.

    app.destination("orders", RabbitMQ(url), types=["order.*"], to="shop.events", key="{type}")

It is a queue like any other, with its own attempts, order, breaker, rate and dead letters; a slow or missing broker
delays no other queue. Here it is declared, and a stored message becomes one for the wire; `relay.py` sends it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypedDict

import msgspec

from ..bodies.keys import SEALED, Keys, Unopened, opened
from ..clock import Clock
from ..errors import InvalidMessage, InvalidSettings
from ..handlers.consumer import Limits
from ..handlers.declare import AnyHandler, Handler
from ..limits.breakers import Breakers
from ..model import names
from ..model.endpoint import Endpoint
from ..model.limits import Breaker, Door, SharedRate
from ..model.message import Message, Reason
from ..model.work import Leased
from ..rules.aftermath import CopyTo, after_death
from ..rules.catchup import catch_up as read_catch_up
from ..rules.delivery import Died, Ending, Sealed
from ..rules.policy import HandlerPolicy, OnDead, Ordering
from ..rules.rate import rate as read_rate
from ..rules.reconnect import Attempts
from ..rules.recovery import Recovery
from ..rules.redact import DEFAULT, Masking
from ..rules.retry import RetryPolicy, policy
from ..settings import RetryProfile, Settings
from . import cloudevents
from .attempts import Brokers
from .cloudevents import Event, Unreadable
from .contract import Outgoing, Sender, SendingConnector
from .relay import SKIPPED, NotRouted, Refused, Relay
from .templates import Addresses, Template, Values

Mode = Literal["binary", "structured", "plain"]

INBOX, INBOX_SOURCE, INBOX_ID = names.RECEIVED  # headers of a stored message that came through an inbox
STREAM = "partitionkey"  # the extension in which a stream travels; a header of that name stays a header
BATCH = BATCH_MAX = 500
SOURCE = "/holdfast"
CALLS = 2  # the next batch is written while the last one waits for its answers

# An unroutable or refused message: 2 s, 4 s, ... 5 min apart, for about an hour (X52). Unsent ones are not counted.
SENDING = RetryPolicy(
    attempts_max=20,
    base=1.0,
    factor=2.0,
    cap=300.0,
    jitter=0.2,
    per_reason={Reason.WORKER_VANISHED: RetryPolicy(attempts_max=10, base=1.0, cap=300.0, jitter=0.2)},
)
FAILURES: Mapping[type[BaseException], Reason] = {
    Refused: Reason.DEPENDENCY_FAILURE,
    NotRouted: Reason.DEPENDENCY_FAILURE,
}


@dataclass(frozen=True)
class Destination:
    """A declared destination. A worker makes a `Relay` of it, with connections of its own."""

    queue: str
    connector: SendingConnector
    patterns: tuple[str, ...]
    to: Template
    key: Template
    bounds: Limits
    policy: HandlerPolicy
    source: str
    mode: Mode = "binary"
    forward: bool = False
    batch: int = BATCH
    masking: Masking = DEFAULT
    keys: Keys | None = None
    # Shared by all at this broker.
    attempts: Attempts = field(default_factory=Attempts, compare=False, repr=False)
    steps: Mapping[str, int] = field(default_factory=dict)
    is_family: bool = False
    is_ordered: bool = True
    is_async: bool = True
    takes_context: bool = False
    addresses: Addresses = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "addresses", Addresses(self.to, self.key))

    def __repr__(self) -> str:
        return f"Destination({self.queue!r}, {self.connector.name}, to={self.to.text!r})"

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint that operators see."""
        to = self.to.text or "(default exchange)"
        return Endpoint("destination", self.queue, self.connector.name, f"{to}, key {self.key.text}")

    def for_worker(self, clock: Clock) -> Relay:
        return Relay(self, clock)

    def sender(self) -> Sender:
        """A connection of its own; an exchange that every message goes to is checked when it is opened."""
        return self.connector.sender([self.to.fill(Values(""))] if self.to.is_fixed else [])

    def but(self, policy: HandlerPolicy) -> Destination:
        return replace(self, policy=policy)

    def limits(self, queue: str) -> Limits:
        return self.bounds

    def limits_with(self, door: Door) -> Limits:
        return replace(self.bounds, door=door)

    # -- a message for the wire

    def outgoing(self, leased: Leased) -> Outgoing | Ending:
        """The message as it is sent; or its ending, if it cannot or must not be sent."""
        message = leased.message
        headers = {} if message.headers is None else texts(message.headers)
        if INBOX in headers and not self.forward:
            return SKIPPED
        try:
            text = opened(message, self.keys) if message.body.startswith(SEALED) else message.body
        except Unopened as error:
            return Sealed(error)
        try:
            return self._made(message, headers, text.encode())
        except (InvalidMessage, Unreadable, UnicodeEncodeError) as error:
            return Died(f"it cannot be sent to {self.queue}: {error}")

    def _made(self, message: Message, headers: dict[str, str], body: bytes) -> Outgoing:
        id, source, time = str(message.id), self.source, message.created_at
        to, key = self.addresses.of(message, id, headers)
        extensions = {}
        if headers:
            id, source = headers.pop(INBOX_ID, id), headers.pop(INBOX_SOURCE, source)
            headers.pop(INBOX, None)
            if self.mode != "plain":
                for name in [each for each in headers if each != STREAM and cloudevents.is_extension(each)]:
                    extensions[name] = headers.pop(name)
            self._check_plain(headers)
        if self.mode == "plain":
            return Outgoing(to, body, id, message.type, key, headers, time=time)
        if message.stream is not None:
            extensions[STREAM] = message.stream
        event = Event(
            id, source, message.type, body, message.subject, time, "application/json", extensions=extensions
        )
        wire = cloudevents.write(event, self.connector.binding, self.mode)
        if headers:
            headers.update(wire.headers)
        return Outgoing(
            to, wire.body, id, message.type, key, headers or wire.headers, wire.content_type, time
        )

    def _check_plain(self, headers: Mapping[str, str]) -> None:
        """A receiver would read a header as an attribute of the event because of its prefix."""
        prefixes = self.connector.binding.prefixes
        for name in headers:
            if name.startswith(prefixes) or name[:3].lower() == "ce-":
                raise InvalidMessage(
                    f"its header {name!r} would be read as an attribute of the CloudEvent: give it another name."
                )


def texts(headers: str) -> dict[str, str]:
    """Headers as text: values that are not text stay JSON."""
    found: dict[str, Any] = msgspec.json.decode(headers)
    return {
        name: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for name, value in found.items()
    }


class Application(Protocol):
    """The part of an application that a destination needs."""

    @property
    def settings(self) -> Settings: ...
    @property
    def redact(self) -> Masking: ...
    @property
    def keys(self) -> Keys | None: ...
    @property
    def breakers(self) -> Breakers: ...
    @property
    def brokers(self) -> Brokers: ...


class DestinationKeywords(TypedDict, total=False):
    """The keywords of `app.destination(...)`. What they mean: `Holdfast.destination`."""

    to: str
    key: str
    source: str
    mode: Mode
    forward: bool
    batch: int
    retry: RetryProfile | RetryPolicy | None
    order: Ordering
    on_dead: OnDead
    timeout: float | None
    breaker: str | Breaker | None
    rate: str | SharedRate | None
    catch_up: str | None
    after_death: Literal["hold", "alert"] | CopyTo | AnyHandler
    recovery: Mapping[Reason, Recovery] | None


def declare_destination(
    app: Application,
    name: str,
    connector: object,
    types: Sequence[str],
    options: DestinationKeywords,
    recovery: Mapping[Reason, Recovery],
    has_hook: bool,
) -> Destination:
    """Check a declaration and make a destination of it. Every mistake is reported here, before anything runs.

    `recovery` is the application's own; `has_hook`: deaths are reported to its hook.
    """
    queue, settings = names.queue_name(name), app.settings
    _check(queue, types, options)
    if not isinstance(connector, SendingConnector):
        raise InvalidSettings(
            f"Destination {queue!r}: {type(connector).__name__} is no transport. Give one of "
            "holdfast.transports: RabbitMQ(url), MemoryBroker()."
        )
    retry, after = options.get("retry"), options.get("after_death", "hold")
    wish = after_death(CopyTo(after.queue) if isinstance(after, Handler) else after)
    return Destination(
        queue=queue,
        connector=connector,
        patterns=tuple(names.pattern(each) for each in types),
        to=Template.of(options.get("to", ""), "address"),
        key=Template.of(options.get("key", "{type}"), "routing key"),
        bounds=_bounds(app, queue, options),
        policy=HandlerPolicy(
            retry=SENDING if retry is None else policy(retry),
            ordering=options.get("order", "strict"),
            on_dead=options.get("on_dead", "continue"),
            declared=FAILURES,
            refunds_max=settings.refunds,
            error_chars=settings.error_chars,
            redact=app.redact.known,
            after_death=replace(wish, has_hook=has_hook),
            recovery={**recovery, **(options.get("recovery") or {})},
        ),
        source=options.get("source", SOURCE),
        mode=options.get("mode", "binary"),
        forward=options.get("forward", False),
        batch=options.get("batch", BATCH),
        keys=app.keys,
        masking=app.redact,
        attempts=app.brokers.attempts(connector),
    )


def _check(queue: str, types: Sequence[str], options: DestinationKeywords) -> None:
    unknown = set(options) - set(DestinationKeywords.__annotations__)
    if unknown:
        raise InvalidSettings(
            f"Destination {queue!r} has no {sorted(unknown)[0]!r}; it has: "
            f"types, {', '.join(DestinationKeywords.__annotations__)}."
        )
    if isinstance(types, str) or not types:
        raise InvalidSettings(f'Destination {queue!r}: types= is a list with a type at least: ["order.*"].')
    mode, batch, timeout = options.get("mode", "binary"), options.get("batch", BATCH), options.get("timeout")
    if mode not in ("binary", "structured", "plain"):
        raise InvalidSettings(
            f'Destination {queue!r}: mode={mode!r} must be "binary", "structured" or "plain".'
        )
    if type(batch) is not int or not 1 <= batch <= BATCH_MAX:
        raise InvalidSettings(f"Destination {queue!r}: batch={batch!r} must be from 1 to {BATCH_MAX}.")
    if timeout is not None and timeout <= 0:
        raise InvalidSettings(f"Destination {queue!r}: timeout={timeout!r} must be positive.")
    source = options.get("source", SOURCE)
    try:
        cloudevents.check("source", source)
    except Unreadable as error:
        raise InvalidSettings(f"Destination {queue!r}: source={source!r} cannot be used. {error}") from None


def _bounds(app: Application, queue: str, options: DestinationKeywords) -> Limits:
    breaker, rate = options.get("breaker"), options.get("rate")
    # After a short outage all messages may be sent at once; a long one has its own catch-up.
    if breaker is None:
        breaker = app.breakers.get(queue, catch_up=None)
    return Limits(
        concurrency=CALLS,
        timeout=options.get("timeout") or app.settings.timeout,
        breaker=app.breakers.get(breaker) if isinstance(breaker, str) else breaker,
        rate=SharedRate(f"queue/{queue}", read_rate(rate)) if isinstance(rate, str) else rate,
        catch_up=read_catch_up(options.get("catch_up"), app.settings.catch_up_doubles),
    )
