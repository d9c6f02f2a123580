"""What a handler receives: the message, what it may do with it, and the results that it may return or raise."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar, overload
from uuid import UUID

from ..bodies import codec
from ..bodies.drafts import Draft
from ..clock import DatabaseTime
from ..errors import UsageError
from ..model.message import Dedupe, NewMessage, Published
from ..model.progress import Progress, progress
from ..model.schedule import Occurrence, occurrence_of
from ..model.work import Delta, Guess, Leased

C = TypeVar("C")
Kind = type[C]  # a Context has a `type` of its own


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


class TooLate(Exception):
    """Raised by the engine's own consumers that look at deadlines themselves: it has passed, and nothing was done."""


class Settling(Protocol):
    """The part of a worker that a handler uses through its context."""

    @property
    def draft(self) -> Draft: ...
    @property
    def time(self) -> DatabaseTime: ...
    def complete(self, ctx: Context, on: object) -> None: ...
    async def acomplete(self, ctx: Context, on: object) -> None: ...
    def transaction(self, ctx: Context, kind: Kind[Any] | None) -> Transaction[Any]: ...
    def progressed(self, ctx: Context, progress: Progress) -> None: ...


class TransactionConnection(Protocol):
    """The part of the connection of `ctx.transaction()` that both databases have. The end of the block commits it.

    It is a `sqlite3.Connection` on SQLite, and on PostgreSQL a `psycopg.Connection` or, for `async with`, a
    `psycopg.AsyncConnection`, whose answers are awaited. `ctx.transaction(sqlite3.Connection)` says which you expect.
    """

    def execute(
        self, query: str, parameters: Sequence[Any] | Mapping[str, Any] = ..., /
    ) -> Any: ...  # a cursor; AsyncConnection: await it
    def cursor(self) -> Any: ...


class Transaction(AbstractContextManager[C], AbstractAsyncContextManager[C]):
    """A transaction of the engine's database that settles the message when it commits: `with` or `async with`."""


# The next turn of the instance that called an activity, by its answer, that as JSON, and the database's time.
Foresee = Callable[[NewMessage, str, datetime], Awaitable[Guess | None]]


class Context:
    """The current message, and what a handler may do with it."""

    __slots__ = (
        "_answer",
        "_answer_text",
        "_answered",
        "_completion",
        "_delta",
        "_emits",
        "_flags",
        "_foresee",
        "_has_answered",
        "_is_settled",
        "_lane",
        "_settling",
        "_started",
        "_steps",
        "leased",
    )  # fmt: skip

    def __init__(
        self, leased: Leased, lane: object, steps: Mapping[str, int], settling: Settling, started: float
    ) -> None:
        self.leased, self._lane, self._started = leased, lane, started
        self._completion: object = None  # the worker's record of a settlement in the handler's transaction
        self._steps, self._settling = steps, settling
        self._flags = 0
        self._emits: list[NewMessage] = []
        self._delta: Delta | None = (
            None  # of the engine's own consumers: stored with the settlement or not at all
        )
        self._answer: Callable[[object], NewMessage | None] | None = None  # of an activity
        self._answered: NewMessage | None = None
        self._answer_text = ""
        self._foresee: Foresee | None = None  # of an activity: the next turn of the instance that called it
        self._has_answered = False  # whether ctx.answer was called
        self._is_settled = False

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
    def due_at(self) -> datetime:
        """When it was due: the time given with `at` or `delay`, else when it was stored. A retry does not change it."""
        message = self.leased.message
        return message.due_at or message.created_at

    @property
    def lateness(self) -> timedelta:
        """How much later than due this attempt began, by the database's clock; never negative.

        A retry counts from the same due time as the first attempt, as the history does: the waits between attempts,
        and a Snooze, are in it.
        """
        return max(timedelta(0), self._settling.time.at(self._started) - self.due_at)

    @property
    def deadline(self) -> datetime | None:
        return self.leased.message.deadline

    @property
    def headers(self) -> dict[str, Any]:
        return codec.decode_headers(self.leased.message.headers)

    @property
    def occurrence(self) -> Occurrence | None:
        """The occurrence of a schedule that this message is; None: it does not come from one."""
        return occurrence_of(self.headers)

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt at this delivery: pass it to a service that must not do something twice."""
        return f"{self.id}:{self.queue}"

    @property
    def fence(self) -> str:
        """Rises with every hand-over of this message: a receiver can refuse calls of an older attempt."""
        message = self.leased.message
        return f"{message.position or message.seq}.{self.leased.epoch}"

    @property
    def completed(self) -> bool:
        """Whether this message has been completed in the handler's own transaction."""
        return self._completion is not None

    def publish(
        self, type: str, body: object = None, *,
        stream: str | None = None, subject: str | None = None, headers: Mapping[str, Any] | None = None,
        dedupe: str | Dedupe | None = None, delay: float | timedelta | None = None, at: datetime | None = None,
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
        """Mark this step as done: a later attempt sees it, however this one ends."""
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
        # It would not be stored: the settlement is written already.
        if self.completed:
            raise UsageError(
                f"Message {self.id} has been completed already: call ctx.{verb}(...) before that."
            )

    def answer(self, value: object) -> None:
        """In an activity that settles itself: the result for the orchestration. Call it inside `ctx.transaction()`.

        It is stored with the settlement. An activity that only returns its value needs no such call.
        """
        if self._is_settled:
            raise UsageError(
                f"Message {self.id} has been completed already: call ctx.answer(...) before that."
            )
        if self._answer is None:
            raise UsageError(f"Handler {self.queue!r} is not an activity: nothing waits for its answer.")
        answer = self._answer(value)
        # A block that was rolled back may be tried again: the last answer counts.
        self._emits = [each for each in self._emits if each is not self._answered]
        self._emits += [] if answer is None else [answer]
        self._answered, self._has_answered = answer, True

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """In a long activity: report its progress. `holdfast orchestrations show` and `why` show it as a bar.

        It is stored with the next heartbeat, so a call costs next to nothing; the last one counts.
        """
        self._settling.progressed(self, progress(done, total, note))

    def _settle(self) -> None:
        """Called before it is settled in the handler's transaction."""
        # The block commits before the function returns, so a returned value would come too late to be stored with it.
        if self._answer is not None and not self._has_answered:
            raise UsageError(
                f"Activity {self.queue!r} settles its message in a transaction and gave no answer: call "
                "ctx.answer(value) before the block ends."
            )
        self._is_settled = True

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
