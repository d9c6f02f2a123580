"""One call of an inline activity: the function is run, and its end is judged as that of a queued activity is.

There is no message. What judges and reads calls gets one that is made up for it, with the id that the message would
have. So exceptions mean the same, retries wait as long, and the code gets the same `ActivityFailed`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextvars import copy_context
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NoReturn, cast

import msgspec

from ..bodies.codec import Unreadable as BodyUnreadable
from ..bodies.codec import encode
from ..bodies.drafts import Draft
from ..clock import DatabaseTime, micros
from ..errors import UsageError
from ..handlers.consumer import Ran
from ..handlers.context import Context, Dead, Snooze, Transaction
from ..model.message import Y2000, Message
from ..model.progress import Progress
from ..model.replies import ANSWER, HEADER, Reply
from ..model.work import Leased, Outcome
from ..rules import delivery
from ..rules.delivery import Ending, Raised
from ..rules.retry import policy
from ..telemetry.logs import Log
from ..worker.endings import concluded
from ..worker.interrupts import is_ctrl_c
from ..worker.stepping import Suspended
from ..worker.traces import Traces
from .activities import ActivityConsumer
from .failures import Failure, describe
from .journal import Answered, Call, Tried
from .messages import AnswerBody
from .outcome import Ask
from .place import Place

log = Log("holdfast.orchestrations")

SECONDS = 10.0  # that an inline activity may take, unless it says otherwise
Begun = Suspended | Awaitable[Any]  # a coroutine that waits for something, or a thread
NO_MESSAGE = (
    "runs inline, inside a turn, and has no message of its own: ctx.{what} is not there. Declare it without inline, "
    "or call it with .using(inline=False)."
)


def seconds_max(timeout: float) -> float:
    """The longest timeout of an inline activity: a turn, which may run several, has the timeout of a handler."""
    return timeout / 2


class InlineCalls:
    """Runs the inline activities of one turn."""

    __slots__ = ("_variables", "execution", "instance", "place", "queue", "ran")

    def __init__(self, place: Place, queue: str, instance: str, execution: int, ran: Ran) -> None:
        self.place, self.queue, self.instance, self.execution, self.ran = (
            place,
            queue,
            instance,
            execution,
            ran,
        )
        self._variables = copy_context()  # the worker's: an activity may be begun in that of the code

    def is_quick(self, ask: Ask) -> bool:
        """Whether activities of this name have answered at once until now, without waiting for anything."""
        return self.place.memory.quick.get(_name(ask), False)

    async def run(self, ask: Ask, attempts: int) -> Answered | Tried:
        """Run it once: what the code gets, or when it is tried again. Cancelled if its turn is stopped."""
        begun = self.begin(ask, attempts)
        return begun if isinstance(begun, Answered | Tried) else await self.rest(ask, attempts, begun)

    def begin(self, ask: Ask, attempts: int) -> Answered | Tried | Begun:
        """The same up to where it waits for something. It has a context (contextvars) of its own."""
        consumer = self.place.served.get(name := _name(ask))
        if consumer is None:
            error = UsageError(
                f"Activity {name!r} is to run inline, and this application does not declare it."
            )
            return self._answered(ask, failure=describe(error))
        quick, plain = self.place.memory.quick, consumer.plain
        try:
            if plain is not None and not consumer.fakes:
                coroutine = plain("null" if ask.input is None else ask.input)
            else:
                leased, context = self._given(ask, consumer, attempts)
                if not consumer.is_async:
                    return self.ran.in_thread(lambda: consumer.function(leased, context))
                coroutine = consumer.function(leased, context)
            variables = self._variables.copy()
            yielded = variables.run(coroutine.send, None)
        except StopIteration as end:
            if name not in quick:
                quick[name] = True
            return self._gave(ask, consumer, attempts, end.value)
        except BaseException as error:
            return self._raised(ask, consumer, attempts, error)
        quick[name] = False
        return Suspended(coroutine, yielded, variables)

    async def rest(self, ask: Ask, attempts: int, begun: Begun) -> Answered | Tried:
        """The rest of one that waits."""
        consumer = self.place.served[_name(ask)]
        seconds = min(ask.options.timeout or SECONDS, seconds_max(self.place.settings.timeout))
        try:
            if not isinstance(begun, Suspended):  # a thread cannot be stopped
                begun = asyncio.shield(asyncio.ensure_future(begun))
            return self._gave(ask, consumer, attempts, await _within(begun, seconds))
        except BaseException as error:
            return self._raised(ask, consumer, attempts, error)

    def _given(self, ask: Ask, consumer: ActivityConsumer, attempts: int) -> tuple[Leased, Context | None]:
        leased = self._leased(ask, attempts)
        if not consumer.handler.takes_context:
            return leased, None
        settling = _NoMessage(consumer.queue, self.place.now())
        return leased, Context(leased, None, {}, settling, 0.0)

    def _gave(self, ask: Ask, consumer: ActivityConsumer, attempts: int, value: Any) -> Answered | Tried:
        if isinstance(value, Snooze | Dead):
            return self._judged(ask, consumer, attempts, _wish(value))
        try:
            return self._answered(ask, encode(value, self.place.settings))
        except Exception as error:
            return self._raised(ask, consumer, attempts, error)

    def _raised(
        self, ask: Ask, consumer: ActivityConsumer, attempts: int, error: BaseException
    ) -> Answered | Tried:
        if isinstance(error, GeneratorExit) or is_ctrl_c(error):
            raise error
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise error  # the turn is stopped, or the code does not wait for it any more
        return self._judged(ask, consumer, attempts, _ending(error))

    def _leased(self, ask: Ask, attempts: int) -> Leased:
        """A message as it would be in the queue of the activity: for the function's context, and to judge by."""
        name, now = _name(ask), micros(self.place.now()) - micros(Y2000)
        reply = Reply(self.queue, self.instance, self.execution, ask.number)
        message = Message(
            seq=0, id=ask.message_id(self.instance, self.execution), queue=name, type=name,
            body="null" if ask.input is None else ask.input, stream=None, position=None, subject=None,
            headers=msgspec.json.encode({HEADER: reply.text()}).decode(), status=0, attempts=attempts,
            failures=attempts, vanished=0, refunds=0, created_raw=now, due_raw=None, deadline_raw=None,
        )  # fmt: skip
        return Leased(message, 1, attempts + 1, 0, 1)

    # -- judging

    def _judged(
        self, ask: Ask, consumer: ActivityConsumer, attempts: int, ending: Ending
    ) -> Answered | Tried:
        leased, judged = self._leased(ask, attempts), consumer.policy
        if ask.options.retry is not None:
            judged = replace(judged, retry=policy(ask.options.retry))
        now, roll = self.place.now(), self.place.clock().roll()
        found = concluded(leased, ending, judged, consumer.masking, None, Traces(), now, roll)
        if found is None:  # it raised our own LeaseLost
            return self._answered(ask, failure=Failure("LeaseLost"))
        is_again = found.outcome is Outcome.AGAIN
        if found.error is not None:
            log.warning(
                "activity.failed",
                "Inline activity %(activity)s#%(number)d of instance %(instance)s failed at attempt %(attempt)d: "
                "%(error)s, %(outcome)s",
                activity=_name(ask), number=ask.number, instance=self.instance, attempt=leased.attempt,
                error=found.error.partition(":")[0], outcome="again" if is_again else "for good",
            )  # fmt: skip
        if is_again:
            due = micros(now + timedelta(seconds=found.delay))
            return Tried(ask.number, leased.message.attempts + found.counted, due)
        answer = next(each for each in found.emits if each.type == ANSWER)
        return self._answered(ask, failure=msgspec.json.decode(answer.body, type=AnswerBody).failure)

    def _answered(self, ask: Ask, value: str | None = None, failure: Failure | None = None) -> Answered:
        return Answered("", self.place.now_micros(), self.execution, ask.number, value, failure)


def _name(ask: Ask) -> str:
    assert isinstance(ask.command, Call)
    return ask.command.name


def _ending(error: BaseException) -> Ending:
    match error:
        case _TimedOut():
            return delivery.TimedOut(error.seconds)
        case BodyUnreadable():
            return delivery.Unreadable(error)
        case Snooze() | Dead():
            return _wish(error)
    return Raised(error)


def _wish(value: Snooze | Dead) -> Ending:
    return delivery.Snoozed(value.delay) if isinstance(value, Snooze) else delivery.Died(value.why)


class _TimedOut(Exception):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


async def _within(work: Any, seconds: float) -> Any:
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await work
    except TimeoutError:
        if limit.expired():
            raise _TimedOut(seconds) from None
        raise


class _NoMessage:
    """What the context of an inline activity refuses by name: there is no message that could be settled."""

    def __init__(self, name: str, now: datetime) -> None:
        self._name = name
        self.time = cast(DatabaseTime, _Moment(now))

    def _refuse(self, what: str) -> NoReturn:
        raise UsageError(f"Activity {self._name!r} {NO_MESSAGE.format(what=what)}")

    @property
    def draft(self) -> Draft:
        self._refuse("publish")

    def complete(self, ctx: Context, on: object) -> None:
        self._refuse("complete")

    async def acomplete(self, ctx: Context, on: object) -> None:
        self._refuse("acomplete")

    def progressed(self, ctx: Context, progress: Progress) -> None:
        self._refuse("progress")

    def transaction(self, ctx: Context, kind: type[Any] | None) -> Transaction[Any]:
        self._refuse("transaction()")


class _Moment:
    """The time at which the activity was started."""

    def __init__(self, now: datetime) -> None:
        self._now = now

    def at(self, moment: float) -> datetime:
        return self._now
