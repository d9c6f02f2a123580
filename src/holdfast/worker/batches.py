"""Calls with many messages at once: one of each lane, in one call. A message that has failed before is called alone."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

from ..bodies.codec import Unreadable as BodyUnreadable
from ..bodies.keys import SEALED, Unopened, opened
from ..handlers.consumer import BatchConsumer
from ..handlers.context import Context
from ..model.work import Leased
from ..rules import delivery
from ..rules.delivery import goes_alone
from ..rules.lanes import Lane
from ..rules.pacing import Pacing
from .around import called
from .endings import Endings, flags_of
from .interrupts import acontained, contained, is_ctrl_c
from .stepping import answered, forget_cancellation

if TYPE_CHECKING:
    from .calls import Calls


class BatchCalls:
    """The calls of one worker that take many messages."""

    def __init__(self, calls: Calls, pacing: Pacing, endings: Endings) -> None:
        self.calls, self.pacing, self.endings = calls, pacing, endings

    async def run(self, queue: str, consumer: BatchConsumer, lanes: list[Lane]) -> None:
        """One message of each lane in one call, as long as there are any.

        Those that have failed before are called alone.
        """
        while lanes:
            started: list[tuple[Lane, Context, Any]] = []
            alone = next((lane for lane in lanes if lane.waiting and goes_alone(lane.waiting[0])), None)
            together = lanes if alone is None else [alone]
            lanes = [] if alone is None else [lane for lane in lanes if lane is not alone]
            for lane in together:
                if (leased := self.calls.begin(lane, self.calls.clock.monotonic())) is None:
                    continue
                ending = self.endings.before(lane, leased, consumer)
                if ending is None:
                    try:
                        body = _body(consumer, leased)
                        started.append(
                            (
                                lane,
                                Context(
                                    leased, lane, consumer.steps, self.endings.completions, lane.started_at
                                ),
                                body,
                            )
                        )
                        continue
                    except BodyUnreadable as error:
                        ending = delivery.Unreadable(error)
                    except Unopened as error:
                        ending = delivery.Sealed(error)
                self.endings.end(lane, leased, ending)
            if started:
                await self._call(queue, consumer, started)
            lanes += [lane for lane, *_ in started]
            now = self.calls.clock.monotonic()
            while len(lanes) < consumer.batch and (more := self.pacing.start(queue, now)) is not None:
                lanes.append(more)
        self.calls.changed.set()

    async def _call(
        self, queue: str, consumer: BatchConsumer, started: list[tuple[Lane, Context, Any]]
    ) -> None:
        """The handler returns one result for all, or a list with one result for each message."""
        bodies = [body for *_, body in started]
        contexts = [context for _, context, _ in started]
        task = asyncio.current_task()
        assert task is not None
        if consumer.is_async:
            self.calls.task_of.update((lane, task) for lane, *_ in started)
        else:
            self.calls.in_thread.update(lane for lane, *_ in started)
        answers: list[Any]
        is_shared = False
        try:
            call = partial(consumer.call_batch, queue, bodies, contexts)
            leased = [context.leased for context in contexts]
            variables = copy_context() if self.calls.watch is None else self.calls.watch.begin(*leased)
            loop = asyncio.get_running_loop()
            if not consumer.is_async:
                around = self.calls.around
                answer = await loop.run_in_executor(
                    self.calls.pool(),
                    lambda: contained(lambda: answered(variables.run(called, call, around))),
                )
            elif self.calls.watch is None:
                answer = await call()
            else:
                answer = await loop.create_task(acontained(call), context=variables)
            each = isinstance(answer, list) and len(answer) == len(bodies)
            answers = answer if each else [answer] * len(bodies)
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            answers = [error] * len(bodies)
            is_shared = len(bodies) > 1
        finally:
            forget_cancellation(task)
        for (lane, context, _), value in zip(started, answers, strict=True):
            self.calls.task_of.pop(lane, None)
            self.calls.in_thread.discard(lane)
            await self._end(consumer, lane, context, value, is_shared)

    async def _end(
        self, consumer: BatchConsumer, lane: Lane, context: Context, value: Any, is_shared: bool
    ) -> None:
        if lane in self.calls.stuck:
            self.calls.stuck.discard(lane)
            return
        if isinstance(value, asyncio.CancelledError):
            ending = self.endings.cancelled(lane, consumer, context, value)
        elif isinstance(value, BaseException):
            ending = self.endings.raised(lane, value, context)
        else:
            ending = self.endings.returned(lane, value, context)
        left = (
            await self.endings.settled(lane, context.leased, context, ending) if context.completed else ending
        )
        # A body that the handler itself could not read.
        if is_shared and isinstance(left, delivery.Unreadable):
            left = delivery.Raised(left.error, flags_of(context), 0.0)
        if is_shared and isinstance(left, delivery.Raised | delivery.TimedOut):
            left = delivery.BatchFailed(left)
        if left is not None:
            self.endings.end(lane, context.leased, left)


def _body(consumer: BatchConsumer, leased: Leased) -> Any:
    text = leased.message.body
    if text.startswith(SEALED):
        text = opened(leased.message, consumer.keys)
    return consumer.decode(text)
