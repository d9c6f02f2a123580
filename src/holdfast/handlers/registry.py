"""What a user declares: a function for a type of message, with its queue, retry policy, timeout and order.

A handler is called with the decoded body and, where it asks for one by annotation, a `Context`. It may return or
raise its wish: `Snooze` to be called again later, `Dead` to give the message up.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Generic, Literal, ParamSpec, Protocol, TypeVar, Unpack, get_type_hints, overload
from uuid import UUID

from ..bodies import codec
from ..bodies.drafts import Draft, MessageOptions
from ..bodies.keys import SEALED, Keys, opened
from ..errors import InvalidSettings, UsageError
from ..model import names
from ..model.limits import Breaker, SharedRate, SharedSlots, slots_count
from ..model.message import STEP_BITS, NewMessage, Published, Reason
from ..model.work import Leased
from ..rules.aftermath import HOLD, AfterDeath
from ..rules.catchup import CatchUp
from ..rules.catchup import catch_up as read_catch_up
from ..rules.delivery import HandlerPolicy, OnDead, Ordering
from ..rules.rate import rate as read_rate
from ..rules.recovery import Recovery
from ..rules.redact import DEFAULT, Masking
from ..rules.retry import RetryPolicy, policy
from ..settings import RetryProfile, Settings
from ..telemetry.logs import Log

log = Log("holdfast.handlers")

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")
Body = TypeVar("Body", contravariant=True)
Kind = type[C]  # a Context has a `type` of its own
Key = Literal["stream", "subject"] | Callable[[Any], Hashable]


class Snooze(Exception):
    """Call me again later; the attempt is not counted. `return Snooze(minutes=5)` or raise it."""

    def __init__(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        self.delay = timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days).total_seconds()
        if self.delay < 0:
            raise UsageError(f"Snooze needs a time that is not negative, not {self.delay} s.")
        super().__init__(f"again in {self.delay} s")


class Dead(Exception):
    """This message can never be handled: `return Dead("no such customer")` or raise it."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(why)


class Publisher(Protocol):
    """The part of an application that a handler publishes through."""

    def publish(
        self, type: str, body: object, *, on: object, queue: str, **options: Unpack[MessageOptions]
    ) -> Published: ...
    async def apublish(
        self, type: str, body: object, *, on: object, queue: str, **options: Unpack[MessageOptions]
    ) -> Published: ...


class Settling(Protocol):
    """The part of a worker that a handler reaches through its context."""

    @property
    def draft(self) -> Draft: ...
    def complete(self, ctx: Context, on: object) -> None: ...
    async def acomplete(self, ctx: Context, on: object) -> None: ...
    def transaction(self, ctx: Context, kind: Kind[Any] | None) -> Transaction[Any]: ...


class TransactionConnection(Protocol):
    """What `ctx.transaction()` yields, as far as it is the same on both databases. It is committed by the block's end.

    It is a `sqlite3.Connection` on SQLite, and on PostgreSQL a `psycopg.Connection` or, for `async with`, a
    `psycopg.AsyncConnection`, whose answers are awaited. `ctx.transaction(sqlite3.Connection)` says which you expect.
    """

    def execute(
        self, query: str, parameters: Sequence[Any] | Mapping[str, Any] = ..., /
    ) -> Any: ...  # a cursor; AsyncConnection: await it
    def cursor(self) -> Any: ...


class Transaction(AbstractContextManager[C], AbstractAsyncContextManager[C]):
    """A transaction of the engine's database that settles the message when it commits: `with` or `async with`."""


class Context:
    """The message in hand, and what a handler may do about it."""

    __slots__ = ("_completion", "_emits", "_flags", "_lane", "_settling", "_steps", "leased")

    def __init__(self, leased: Leased, lane: object, steps: Mapping[str, int], settling: Settling) -> None:
        self.leased, self._lane = leased, lane
        self._completion: object = None  # the worker's own note on a settlement in the handler's transaction
        self._steps, self._settling = steps, settling
        self._flags = 0
        self._emits: list[NewMessage] = []

    @property
    def id(self) -> UUID:
        return self.leased.message.id

    @property
    def type(self) -> str:
        return self.leased.message.type

    @property
    def stream(self) -> str | None:
        return self.leased.message.stream

    @property
    def subject(self) -> str | None:
        return self.leased.message.subject

    @property
    def queue(self) -> str:
        return self.leased.message.queue

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self.leased.attempt

    @property
    def created_at(self) -> datetime:
        return self.leased.message.created_at

    @property
    def deadline(self) -> datetime | None:
        return self.leased.message.deadline

    @property
    def headers(self) -> dict[str, Any]:
        return codec.decode_headers(self.leased.message.headers)

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt at this delivery: give it to whoever must not do a thing twice."""
        return f"{self.id}:{self.queue}"

    @property
    def fence(self) -> str:
        """Rises with every hand-over of this message: a receiver can refuse what comes from the past."""
        message = self.leased.message
        return f"{message.position or message.seq}.{self.leased.epoch}"

    @property
    def completed(self) -> bool:
        """Whether this message has been completed in the handler's own transaction."""
        return self._completion is not None

    def publish(
        self, type: str, body: object = None, *,
        stream: str | None = None, subject: str | None = None, headers: Mapping[str, Any] | None = None,
        dedupe: str | None = None, delay: float | timedelta | None = None, at: datetime | None = None,
        deadline: datetime | timedelta | None = None, queue: str | None = None, id: UUID | None = None,
        event: bool = False, expect: int | None = None,
    ) -> Published:  # fmt: skip
        """Publish when this message is settled, or not at all. Takes what `app.publish` takes, but for `on`."""
        self._refuse_when_completed("publish")
        message = self._settling.draft(
            type, body,
            stream=stream, subject=subject, headers=headers, dedupe=dedupe, delay=delay, at=at, deadline=deadline,
            queue=queue, id=id, event=event, expect=expect,
        )  # fmt: skip
        self._emits.append(message)
        return Published(message.id)

    def did(self, step: str) -> bool:
        """Whether an earlier attempt has marked this step."""
        return bool((self.leased.message.status | self._flags) & self._bit(step))

    def mark(self, step: str) -> None:
        """This step is done: a later attempt sees it, whatever becomes of this one."""
        self._refuse_when_completed("mark")
        self._flags |= self._bit(step)

    def _bit(self, step: str) -> int:
        try:
            return self._steps[step]
        except KeyError:
            known = ", ".join(self._steps) or "none"
            raise UsageError(
                f"Handler {self.queue!r} has no step {step!r} (declared: {known}): add it to steps=[...]."
            ) from None

    def _refuse_when_completed(self, verb: str) -> None:
        # It would be stored by nobody: the settlement has been written.
        if self.completed:
            raise UsageError(
                f"Message {self.id} has been completed already: call ctx.{verb}(...) before that."
            )

    def complete(self, *, on: object) -> None:
        """Settle this message in your own transaction `on`: both commit or neither does."""
        self._refuse_when_completed("complete")
        self._settling.complete(self, on)

    async def acomplete(self, *, on: object) -> None:
        """Like `complete`, for an async connection or session."""
        self._refuse_when_completed("acomplete")
        await self._settling.acomplete(self, on)

    @overload
    def transaction(self) -> Transaction[TransactionConnection]: ...
    @overload
    def transaction(self, kind: Kind[C]) -> Transaction[C]: ...
    def transaction(self, kind: Kind[Any] | None = None) -> Transaction[Any]:
        """A transaction that settles this message when its block ends; it yields the connection to write with.

        `with` in a def handler, `async with` in an async one. `kind` is the connection that you expect, for your type
        checker: `sqlite3.Connection`, `psycopg.Connection`, `psycopg.AsyncConnection`. Another one is refused.
        """
        self._refuse_when_completed("transaction")
        return self._settling.transaction(self, kind)


@dataclass(frozen=True)
class Handler(Generic[Body, P, R]):
    """A declared handler of bodies of a type. Calling it calls the function; `publish` sends a message to it alone.

    `Handler[Order, [Order, Context], None]`. With batch= the function takes a list, and a message holds one element.
    A function that takes no body, or nothing but a Context, is published to without one.
    """

    function: Callable[P, R]
    queue: str
    patterns: tuple[str, ...]
    policy: HandlerPolicy
    timeout: float
    concurrency: int
    is_async: bool
    batch: int
    ordered: bool
    steps: Mapping[str, int]
    decode: Callable[[str], Any]
    context: str | None  # the name of the parameter that takes a Context
    takes_body: bool
    per_key: int
    key_of: Callable[[Leased], Hashable] | None
    breaker: Breaker | None
    rate: SharedRate | None
    slots: SharedSlots | None
    catch_up: CatchUp | None
    run: Callable[..., Any]  # the function, behind its breaker
    app: Publisher
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
        """Publish to this handler alone, whoever else may have subscribed to the type."""
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


AnyHandler = Handler[Any, ..., Any]


def declare(
    app: Publisher,
    function: Callable[P, R],
    patterns: Sequence[str],
    settings: Settings,
    *,
    name: str | None,
    retry: RetryProfile | RetryPolicy | None,
    order: Ordering,
    on_dead: OnDead,
    ordered: bool,
    timeout: float | None,
    concurrency: int | None,
    per_key: int | None,
    key: Key | None,
    batch: int,
    steps: Sequence[str],
    errors: Mapping[type[BaseException], Reason] | None,
    breaker: Breaker | None = None,
    rate: str | SharedRate | None = None,
    cluster_concurrency: int | SharedSlots | None = None,
    catch_up: str | None = None,
    redact: Masking = DEFAULT,
    keys: Keys | None = None,
    after_death: AfterDeath = HOLD,
    recovery: Mapping[Reason, Recovery] | None = None,
) -> Handler[Any, P, R]:
    """Check a declaration and make a handler of it; every mistake is told here, before anything runs."""
    queue = names.queue_name(name or getattr(function, "__name__", ""))
    is_async = _is_async(function)
    body, context = _parameters(function, queue, batch > 0)
    _check(
        queue, steps, after_death, batch, per_key is not None and key is None,
        timeout=timeout, concurrency=concurrency, per_key=per_key,
    )  # fmt: skip
    decode = codec.decoder_for(Any if body is _NOTHING else _element(body) if batch else body)
    return Handler(
        function=function,
        queue=queue,
        patterns=tuple(names.pattern(p) for p in patterns),
        policy=HandlerPolicy(
            retry=policy(retry or settings.retry),
            ordering=order,
            on_dead=on_dead,
            declared=errors or {},
            refunds_max=settings.refunds,
            error_chars=settings.error_chars,
            redact=redact.known,
            after_death=after_death,
            recovery=recovery or {},
        ),
        timeout=timeout or settings.timeout,
        concurrency=concurrency or (settings.concurrency if is_async else settings.threads),
        is_async=is_async,
        batch=batch,
        ordered=ordered,
        steps={step: 1 << bit for step, bit in zip(steps, STEP_BITS, strict=False)},
        decode=decode,
        context=context,
        takes_body=body is not _NOTHING,
        per_key=0 if key is None else per_key or 1,
        key_of=None if key is None else _key_reader(queue, key, decode, keys),
        breaker=breaker,
        rate=SharedRate(f"queue/{queue}", read_rate(rate)) if isinstance(rate, str) else rate,
        slots=_slots(queue, cluster_concurrency),
        catch_up=read_catch_up(catch_up, settings.catch_up_doubles),
        run=function
        if breaker is None
        else breaker.guard(function, is_async=is_async, timeout=timeout or settings.timeout),
        app=app,
        keys=keys,
        masking=redact,
    )


def _check(
    queue: str,
    steps: Sequence[str],
    after_death: AfterDeath,
    batch: int,
    lacks_key: bool,
    **numbers: float | None,
) -> None:
    if len(steps) > len(STEP_BITS) or len(set(steps)) != len(steps):
        raise InvalidSettings(f"Handler {queue!r}: steps must be at most {len(STEP_BITS)} different names.")
    for setting, value in numbers.items():
        if value is not None and value <= 0:
            raise InvalidSettings(f"Handler {queue!r}: {setting}={value!r} must be positive.")
    if after_death.copy is not None and names.queue_name(after_death.copy.queue) == queue:
        raise InvalidSettings(f"Handler {queue!r}: a copy of its dead letters must go to another queue.")
    if batch < 0:
        raise InvalidSettings(f"Handler {queue!r}: batch={batch!r} must be positive.")
    if lacks_key:
        raise InvalidSettings(
            f'Handler {queue!r}: per_key needs key="stream", key="subject" or a function of the body.'
        )


def _slots(queue: str, wanted: int | SharedSlots | None) -> SharedSlots | None:
    if wanted is None or isinstance(wanted, SharedSlots):
        return wanted
    return SharedSlots(f"queue/{queue}", slots_count(wanted, f"Handler {queue!r}: cluster_concurrency"))


_NOTHING = object()


def _is_async(function: Callable[..., Any]) -> bool:
    # Either side of a decorator may be the async one; what is called is awaited if any of them is.
    inner = inspect.unwrap(function)
    called = getattr(function, "__call__", None)  # noqa: B004 - an object whose call is async
    return any(inspect.iscoroutinefunction(each) for each in (function, inner, called))


def _parameters(function: Callable[..., Any], queue: str, batch: bool) -> tuple[Any, str | None]:
    """The annotation of the body, and the name of the parameter that takes a context."""
    try:
        hints = get_type_hints(function)
    except Exception as error:  # an annotation that cannot be resolved is the user's to mend
        raise InvalidSettings(f"Handler {queue!r}: its annotations cannot be resolved: {error}") from error
    body: Any = _NOTHING
    context = None
    context_first = False
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name, Any)
        if hint is Context or hint == list[Context]:
            if (hint is Context) is batch:
                wanted = "list[Context]" if batch else "Context"
                raise InvalidSettings(f"Handler {queue!r}: annotate {parameter.name!r} as {wanted}.")
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise InvalidSettings(
                    f"Handler {queue!r}: {parameter.name!r} is given by its name: take the `/` behind it away."
                )
            context = parameter.name
            context_first = body is _NOTHING and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        elif body is _NOTHING and parameter.kind in (
            parameter.POSITIONAL_ONLY,
            parameter.POSITIONAL_OR_KEYWORD,
        ):
            if context_first:
                raise InvalidSettings(
                    f"Handler {queue!r}: the body comes first: put {parameter.name!r} before {context!r}."
                )
            body = hint
        elif parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            raise InvalidSettings(
                f"Handler {queue!r}: parameter {parameter.name!r} would get no value; "
                "a handler takes the body first and, annotated `ctx: Context`, its context."
            )
    if batch and (
        body is _NOTHING or (body is not Any and typing.get_origin(body) is not list and body is not list)
    ):
        raise InvalidSettings(
            f"Handler {queue!r}: with batch= it is called with a list of bodies; annotate it so."
        )
    return body, context


def _element(annotation: Any) -> Any:
    arguments = typing.get_args(annotation)
    return arguments[0] if arguments else Any


def _key_reader(
    queue: str, key: Key, decode: Callable[[str], Any], keys: Keys | None
) -> Callable[[Leased], Hashable]:
    """What tells the key of a message, of which only so many may be handled at once. None: no limit."""
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
        except Exception as error:  # a body that cannot be read is the handler's affair, and it fails there
            log.warning(
                "key.unknown",
                "The key of message %(message_id)s in %(queue)s cannot be told: %(error)s",
                message_id=leased.message.id,
                type=leased.message.type,
                queue=queue,
                error=type(error).__name__,
            )
            return None

    return read


class Handlers:
    """The handlers of an application, by queue."""

    def __init__(self) -> None:
        self._by_queue: dict[str, AnyHandler] = {}

    def add(self, handler: AnyHandler) -> None:
        if handler.queue in self._by_queue:
            raise InvalidSettings(
                f"There is already a handler named {handler.queue!r}: give one of them another name with name=..."
            )
        self._by_queue[handler.queue] = handler

    def tell_deaths(self) -> None:
        """From now on the deaths of these handlers' messages are told to the application's hook."""
        for queue, handler in self._by_queue.items():
            told = replace(handler.policy.after_death, tell=True)
            self._by_queue[queue] = replace(handler, policy=replace(handler.policy, after_death=told))

    def __contains__(self, queue: object) -> bool:
        return queue in self._by_queue

    def __iter__(self) -> Iterator[AnyHandler]:
        return iter(self._by_queue.values())

    def __getitem__(self, queue: str) -> AnyHandler:
        return self._by_queue[queue]

    def __len__(self) -> int:
        return len(self._by_queue)

    def subscriptions(self) -> dict[str, tuple[str, ...]]:
        return {handler.queue: handler.patterns for handler in self}
