"""What a user declares: a function for a type of message, with its queue, retry policy, timeout and order.

A handler is called with the decoded body and, where it asks for one by annotation, a `Context`. It may return or
raise `Snooze` to be called again later, or `Dead` to give the message up.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Generic, Literal, ParamSpec, Protocol, TypeVar, Unpack, overload

from ..bodies.drafts import MessageOptions
from ..bodies.keys import SEALED, Keys, opened
from ..errors import InvalidSettings
from ..model import names
from ..model.limits import Breaker, SharedRate, SharedSlots, slots_count
from ..model.message import STEP_BITS, Published, Reason
from ..model.work import Leased
from ..rules.aftermath import HOLD, AfterDeath
from ..rules.catchup import catch_up as read_catch_up
from ..rules.policy import HandlerPolicy, OnDead, Ordering
from ..rules.rate import rate as read_rate
from ..rules.recovery import Recovery
from ..rules.redact import DEFAULT, Masking
from ..rules.retry import RetryPolicy, policy
from ..settings import RetryProfile, Settings
from ..telemetry.logs import Log
from .consumer import Limits
from .context import Context
from .signature import Signature, signature

log = Log("holdfast.handlers")

P = ParamSpec("P")
R = TypeVar("R")
Body = TypeVar("Body", contravariant=True)
Key = Literal["stream", "subject"] | Callable[[Any], Hashable]
MEMBERS_KEPT = 4096  # queues of a family whose limits are cached; the limits of others are made again


class Application(Protocol):
    """The part of an application that a declaration needs, and through which a handler publishes."""

    @property
    def settings(self) -> Settings: ...
    @property
    def redact(self) -> Masking: ...
    @property
    def keys(self) -> Keys | None: ...
    def breaker(self, name: str, /) -> Breaker: ...

    def publish(
        self, type: str, body: object, *, on: object, queue: str, **options: Unpack[MessageOptions]
    ) -> Published: ...
    async def apublish(
        self, type: str, body: object, *, on: object, queue: str, **options: Unpack[MessageOptions]
    ) -> Published: ...


@dataclass(frozen=True, slots=True)
class HandlerOptions:
    """The options of a handler. Their meaning: `Holdfast.handler`."""

    name: str | None = None
    family: str | None = None
    renamed_from: str | None = None
    retry: RetryProfile | RetryPolicy | None = None
    order: Ordering = "strict"
    on_dead: OnDead = "continue"
    ordered: bool = True
    timeout: float | None = None
    concurrency: int | None = None
    per_key: int | None = None
    key: Key | None = None
    batch: int = 0
    steps: Sequence[str] = ()
    errors: Mapping[type[BaseException], Reason] | None = None
    breaker: str | Breaker | None = None
    rate: str | SharedRate | None = None
    cluster_concurrency: int | SharedSlots | None = None
    catch_up: str | None = None
    after_death: AfterDeath = HOLD
    recovery: Mapping[Reason, Recovery] | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """The parts of one queue: its limits, and the function behind its breaker."""

    limits: Limits
    run: Callable[..., Any]


@dataclass(frozen=True)
class Handler(Generic[Body, P, R]):
    """A declared handler of bodies of a type. Calling it calls the function; `publish` sends a message to it alone.

    `Handler[Order, [Order, Context], None]`. With batch= the function takes a list, and a message holds one element.
    A function that takes no body, or nothing but a Context, is published to without one. A handler is a
    `SingleConsumer`, with `batch=` a `BatchConsumer`.
    """

    function: Callable[P, R]
    queue: str
    patterns: tuple[str, ...]
    policy: HandlerPolicy
    signature: Signature
    batch: int
    is_family: bool
    is_ordered: bool
    steps: Mapping[str, int]
    own: Member  # of its own queue, and of all queues of a family without limits of their own
    members: Callable[[str], Member] | None  # of a family whose queues have limits of their own
    app: Application
    keys: Keys | None = None  # that open sealed bodies
    masking: Masking = DEFAULT  # of secrets in the texts of errors

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    @overload
    def publish(
        self: Handler[None, ..., Any] | Handler[Context, ..., Any], body: None = None, *, on: object = None,
        **options: Unpack[MessageOptions],
    ) -> Published: ...  # fmt: skip
    @overload
    def publish(self, body: Body, *, on: object = None, **options: Unpack[MessageOptions]) -> Published: ...
    def publish(
        self, body: object = None, *, on: object = None, **options: Unpack[MessageOptions]
    ) -> Published:
        """Publish to this handler alone, even if others subscribe to the type."""
        return self.app.publish(self.type, body, on=on, queue=self.queue, **options)

    @overload
    async def apublish(
        self: Handler[None, ..., Any] | Handler[Context, ..., Any], body: None = None, *, on: object = None,
        **options: Unpack[MessageOptions],
    ) -> Published: ...  # fmt: skip
    @overload
    async def apublish(
        self, body: Body, *, on: object = None, **options: Unpack[MessageOptions]
    ) -> Published: ...
    async def apublish(
        self, body: object = None, *, on: object = None, **options: Unpack[MessageOptions]
    ) -> Published:
        """Like `publish`, for async code and async connections or sessions."""
        return await self.app.apublish(self.type, body, on=on, queue=self.queue, **options)

    @property
    def type(self) -> str:
        return next((p for p in self.patterns if not p.endswith("*")), self.queue)

    # -- for the worker

    @property
    def is_async(self) -> bool:
        return self.signature.is_async

    @property
    def takes_context(self) -> bool:
        return self.signature.context is not None

    def limits(self, queue: str) -> Limits:
        return self._member(queue).limits

    def decode(self, text: str) -> Any:
        return self.signature.decode(text)

    def call(self, leased: Leased, context: Context | None) -> Any:
        run = self.own.run if self.members is None else self.members(leased.message.queue).run
        takes = self.signature
        if not takes.takes_body:
            return run() if takes.context is None else run(**{takes.context: context})
        text = leased.message.body
        if text.startswith(SEALED):
            text = opened(leased.message, self.keys)
        if takes.context is None:
            return run(takes.decode(text))
        return run(takes.decode(text), **{takes.context: context})

    def call_batch(self, queue: str, bodies: Sequence[Any], contexts: Sequence[Context]) -> Any:
        name = self.signature.context
        return self._member(queue).run(bodies, **({} if name is None else {name: contexts}))

    def but(self, policy: HandlerPolicy) -> Handler[Body, P, R]:
        return replace(self, policy=policy)

    def _member(self, queue: str) -> Member:
        return self.own if self.members is None else self.members(queue)


AnyHandler = Handler[Any, ..., Any]


def declare(
    app: Application, function: Callable[P, R], types: Sequence[str], options: HandlerOptions
) -> Handler[Any, P, R]:
    """Check a declaration and make a handler of it. Every mistake is reported here, before anything runs."""
    queue = names.queue_name(options.family or options.name or getattr(function, "__name__", ""))
    takes = signature(function, queue, options.batch)
    _check(queue, options)
    settings, masking = app.settings, app.redact

    def member(of: str) -> Member:
        limits = _limits(app, queue, of, options, takes)
        if limits.breaker is None:
            return Member(limits, function)
        guarded = limits.breaker.guard(function, is_async=takes.is_async, timeout=limits.timeout)
        return Member(limits, guarded)

    return Handler(
        function=function,
        queue=queue,
        patterns=tuple(names.pattern(each) for each in types),
        policy=HandlerPolicy(
            retry=policy(options.retry or settings.retry),
            ordering=options.order,
            on_dead=options.on_dead,
            declared=options.errors or {},
            refunds_max=settings.refunds,
            error_chars=settings.error_chars,
            redact=masking.known,
            tracebacks=settings.tracebacks,
            after_death=options.after_death,
            recovery=options.recovery or {},
        ),
        signature=takes,
        batch=options.batch,
        is_family=options.family is not None,
        is_ordered=options.ordered,
        steps={step: 1 << bit for step, bit in zip(options.steps, STEP_BITS, strict=False)},
        own=member(queue),
        members=lru_cache(maxsize=MEMBERS_KEPT)(member) if _has_own_limits(options) else None,
        app=app,
        keys=app.keys,
        masking=masking,
    )


def is_declared_again(before: object, handler: AnyHandler) -> bool:
    """Whether a cell of a notebook, or a line at Python's prompt, was run again: the same function, in `__main__`."""
    return (
        hasattr(sys, "ps1")
        and isinstance(before, Handler)
        and before.queue == handler.queue
        and all(getattr(each.function, "__module__", "") == "__main__" for each in (before, handler))
        and getattr(before.function, "__qualname__", "") == getattr(handler.function, "__qualname__", None)
    )


def _has_own_limits(options: HandlerOptions) -> bool:
    """Whether each queue of a family has a rate, slots, a catch-up or a breaker for itself."""
    return options.family is not None and (
        isinstance(options.rate, str)
        or isinstance(options.cluster_concurrency, int)
        or options.catch_up is not None
        or (isinstance(options.breaker, str) and "*" in options.breaker)
    )


def _limits(app: Application, name: str, queue: str, options: HandlerOptions, takes: Signature) -> Limits:
    """The limits of one queue of a handler: its own, or one below its name if it is a family."""
    settings, key, rate, breaker = app.settings, options.key, options.rate, options.breaker
    if isinstance(breaker, str):
        rest = queue.removeprefix(name).removeprefix(names.BELOW)
        breaker = app.breaker(breaker.replace("*", rest or name) if options.family else breaker)
    return Limits(
        concurrency=options.concurrency or (settings.concurrency if takes.is_async else settings.threads),
        timeout=options.timeout or settings.timeout,
        per_key=0 if key is None else options.per_key or 1,
        key_of=None if key is None else _key_reader(name, key, takes.decode, app.keys),
        breaker=breaker,
        rate=SharedRate(f"queue/{queue}", read_rate(rate)) if isinstance(rate, str) else rate,
        slots=_slots(queue, options.cluster_concurrency),
        catch_up=read_catch_up(options.catch_up, settings.catch_up_doubles),
    )


def _check(queue: str, options: HandlerOptions) -> None:
    steps, copy = options.steps, options.after_death.copy
    if options.family is not None and options.name is not None:
        raise InvalidSettings(f"Handler {queue!r}: give it a name or a family, not both.")
    if options.renamed_from is not None:
        if options.family is not None:
            raise InvalidSettings(f"Handler {queue!r}: a family of queues cannot be renamed.")
        if names.queue_name(options.renamed_from) == queue:
            raise InvalidSettings(f"Handler {queue!r}: renamed_from must be another name, the old one.")
    if options.family is not None and not options.ordered:
        raise InvalidSettings(
            f"Handler {queue!r}: the queues of a family keep the order of streams. Leave ordered=False out."
        )
    if len(steps) > len(STEP_BITS) or len(set(steps)) != len(steps):
        raise InvalidSettings(f"Handler {queue!r}: steps must be at most {len(STEP_BITS)} different names.")
    for setting in ("timeout", "concurrency", "per_key"):
        value = getattr(options, setting)
        if value is not None and value <= 0:
            raise InvalidSettings(f"Handler {queue!r}: {setting}={value!r} must be positive.")
    if copy is not None and names.queue_name(copy.queue) == queue:
        raise InvalidSettings(f"Handler {queue!r}: a copy of its dead letters must go to another queue.")
    if options.batch < 0:
        raise InvalidSettings(f"Handler {queue!r}: batch={options.batch!r} must be positive.")
    if options.per_key is not None and options.key is None:
        raise InvalidSettings(
            f'Handler {queue!r}: per_key needs key="stream", key="subject" or a function of the body.'
        )


def _slots(queue: str, wanted: int | SharedSlots | None) -> SharedSlots | None:
    if wanted is None or isinstance(wanted, SharedSlots):
        return wanted
    return SharedSlots(f"queue/{queue}", slots_count(wanted, f"Handler {queue!r}: cluster_concurrency"))


def _key_reader(
    queue: str, key: Key, decode: Callable[[str], Any], keys: Keys | None
) -> Callable[[Leased], Hashable]:
    """The function that returns the key of a message; so many of one key may run at once. None: no limit."""
    if key == "stream":
        return lambda leased: leased.message.stream
    if key == "subject":
        return lambda leased: leased.message.subject
    if not callable(key):
        raise InvalidSettings(
            f'Handler {queue!r}: key={key!r} must be "stream", "subject" or a function of the body.'
        )

    def read(leased: Leased) -> Hashable:
        try:
            message = leased.message
            text = opened(message, keys) if message.body.startswith(SEALED) else message.body
            found = key(decode(text))
            hash(found)
            return found
        except Exception as error:  # a body that cannot be read fails later, when the handler is called
            log.warning(
                "key.unknown",
                "The key of message %(message_id)s in %(queue)s cannot be computed: %(error)s",
                message_id=leased.message.id,
                type=leased.message.type,
                queue=queue,
                error=type(error).__name__,
            )
            return None

    return read
