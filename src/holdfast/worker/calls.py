"""How handlers are called: async ones on the loop, `def` ones in threads, some with one message, some with many.

A handler that never suspends is run without a task of its own. Its coroutine is stepped once inside a runner; if it
suspends, that runner stays with it and another one takes the next lane. Each message has a context (contextvars) of
its own all the same.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context as Variables
from contextvars import copy_context
from functools import partial
from inspect import iscoroutine
from typing import Any

from ..bodies.codec import Unreadable as BodyUnreadable
from ..bodies.keys import SEALED, Unopened, opened
from ..clock import EPOCH, Clock, DatabaseTime
from ..errors import LeaseLost, UsageError
from ..handlers.registry import AnyHandler, Context, Dead, Snooze
from ..model.message import Reason
from ..model.work import Leased, Settlement
from ..rules import delivery
from ..rules.blame import ending_of
from ..rules.delivery import Ending, conclude, goes_alone, is_doubtful, unfit
from ..rules.lanes import Lane, Stop
from ..rules.pacing import Pacing
from ..telemetry import Watch
from ..telemetry.logs import Log
from .board import Board
from .endings import concluded, log_failure, named
from .transactions import Completions

log = Log("holdfast.worker")

CLOSE_SECONDS = 1.0  # for handlers that do not listen when they are cancelled


class Calls:
    """The handlers that run in one worker."""

    def __init__(
        self,
        handlers: Mapping[str, AnyHandler],
        pacing: Pacing,
        completions: Completions,
        clock: Clock,
        time: DatabaseTime,
        changed: asyncio.Event,
        board: Board | None,
        watch: Watch | None = None,
    ) -> None:
        self.handlers, self.pacing, self.completions = handlers, pacing, completions
        self.clock, self.time, self.changed, self.board, self.watch = clock, time, changed, board, watch
        self.stuck: set[Lane] = set()  # whose threads have not come back in time
        self.broken: BaseException | None = None  # an error of ours, not of a handler
        self._starts = {queue: _fewest_starts(handler) for queue, handler in handlers.items()}
        self._keys = {each.queue: each.key_of for each in handlers.values() if each.key_of is not None}
        self._lanes: deque[Lane] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._task_of: dict[Lane, asyncio.Task[None]] = {}
        self._in_thread: set[Lane] = set()
        self._threads: ThreadPoolExecutor | None = None

    # -- runners

    def start(self) -> None:
        """Give every lane that may start a runner."""
        if self._keys:
            self.unpack()
        batches: dict[str, list[Lane]] = {}
        for lane in self.pacing.starts(self.clock.monotonic()):
            if self.handlers[lane.queue].batch:
                batches.setdefault(lane.queue, []).append(lane)
            else:
                self._lanes.append(lane)
        if self._lanes:
            self._spawn(self._run())
        for queue, lanes in batches.items():
            size = self.handlers[queue].batch
            for first in range(0, len(lanes), size):
                self._spawn(self._run_batches(lanes[first : first + size], self.handlers[queue]))

    def unpack(self) -> None:
        """Make lanes of what has arrived. The user's functions that tell the keys are called here."""
        if not self._keys:
            self.pacing.unpack()
            return
        keys = {each.token: self._keys[each.message.queue](each) for each in self.pacing.arrived()}
        self.pacing.unpack(keys)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._runner_ended)

    def _runner_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.broken = task.exception()
            self.changed.set()

    async def _run(self) -> None:
        """A runner: takes one lane after another, until it must stay with a handler that suspends."""
        while self._lanes:
            lane: Lane | None = self._lanes.popleft()
            while lane is not None:
                handler = self.handlers[lane.queue]
                while (leased := self._begin(lane, now := self.clock.monotonic())) is not None:
                    ending = self._before(lane, leased, handler)
                    if ending is None and handler.is_async and handler.context is None:
                        step = self._step(lane, leased, handler, None)  # mostly to its end: no await, no task
                        if isinstance(step, Suspended):
                            step = await self._stay(lane, handler, None, step)
                        ending = step
                    elif ending is None:
                        ending = await self._call(lane, leased, handler)
                    if ending is not None:
                        self._end(lane, leased, ending)
                lane = self.pacing.start(lane.queue, now)  # its handler is free for the next
        self.changed.set()

    def _runner_stays(self) -> None:
        """This runner waits for a handler: the other lanes get another."""
        if self._lanes:
            self._spawn(self._run())

    # -- one message

    def _begin(self, lane: Lane, now: float) -> Leased | None:
        leased = self.pacing.begin(lane, now)
        if leased is not None and self.board is not None:
            self.board.began(leased.message.seq)
        return leased

    def _before(self, lane: Lane, leased: Leased, handler: AnyHandler) -> Ending | None:
        """What is decided before any code of the user runs: poison, a deadline that has passed, a cancellation."""
        message = leased.message
        if is_doubtful(leased) and (ending := unfit(leased, handler.policy)) is not None:
            if isinstance(ending, delivery.StartsSpent):
                log.warning(
                    "message.poison", "Message %(message_id)s of type %(type)s is poison in %(queue)s: "
                    "attempt %(attempt)d, %(attempts_max)d allowed",
                    **named(leased), attempts_max=handler.policy.retry.starts_max,
                )  # fmt: skip
            return ending
        if (deadline := message.deadline) is not None and self.time.now() > deadline:
            return delivery.Expired()
        if lane.stop is Stop.CANCELLED:
            return delivery.Cancelled()
        if log.tells(logging.INFO):
            log.info(
                "message.started",
                "Handling message %(message_id)s of type %(type)s in %(queue)s",
                **named(leased),
            )
        return None

    async def _call(self, lane: Lane, leased: Leased, handler: AnyHandler) -> Ending | None:
        """The handler's ending; None if it is over already: settled in the handler's transaction, or given up."""
        context: Context | None = None
        if handler.context is not None:
            context = Context(leased, lane, handler.steps, self.completions)
        ending: Ending | None
        if handler.is_async:
            step = self._step(lane, leased, handler, context)
            ending = await self._stay(lane, handler, context, step) if isinstance(step, Suspended) else step
        else:
            ending = await self._call_in_thread(lane, leased, handler, context)
        if context is not None and context.completed and ending is not None:
            ending = await self._settled(lane, leased, context, ending)
        return ending

    def _step(
        self, lane: Lane, leased: Leased, handler: AnyHandler, context: Context | None
    ) -> Ending | Suspended:
        """Run a handler to its end or to where it suspends."""
        try:
            variables = copy_context() if self.watch is None else self.watch.begin(leased)
            coroutine, yielded = variables.run(_first_step, handler, leased, context)
        except BaseException as error:
            return self._fell(lane, handler, context, error)
        if coroutine is None:
            return self._returned(lane, yielded, context)
        return Suspended(coroutine, yielded, variables)

    async def _stay(
        self, lane: Lane, handler: AnyHandler, context: Context | None, suspended: Suspended
    ) -> Ending:
        """Go on with a handler that has suspended."""
        task = asyncio.current_task()
        assert task is not None
        self._task_of[lane] = task
        self._runner_stays()
        try:
            return self._returned(lane, await suspended, context)
        except BaseException as error:
            return self._fell(lane, handler, context, error)
        finally:
            del self._task_of[lane]
            self.changed.set()
            _forget_cancellation(task)

    def _fell(self, lane: Lane, handler: AnyHandler, context: Context | None, error: BaseException) -> Ending:
        """What an async handler raised. SystemExit, too, is its failure and not the worker's end."""
        if isinstance(error, KeyboardInterrupt):
            raise error
        if isinstance(error, asyncio.CancelledError):
            return self._cancelled(lane, handler, context, error)
        return self._raised(lane, error, context)

    async def _call_in_thread(
        self, lane: Lane, leased: Leased, handler: AnyHandler, context: Context | None
    ) -> Ending | None:
        self._in_thread.add(lane)
        self._runner_stays()
        loop = asyncio.get_running_loop()
        try:
            ending = await loop.run_in_executor(
                self._pool(), self._call_blocking, lane, leased, handler, context
            )
        finally:
            self._in_thread.discard(lane)
            self.changed.set()
        if lane in self.stuck:  # its time was over long ago, and so it was settled
            self.stuck.discard(lane)
            return None
        return ending

    def _call_blocking(
        self, lane: Lane, leased: Leased, handler: AnyHandler, context: Context | None
    ) -> Ending:
        try:
            if self.watch is None:
                value = _invoke(handler, leased, context)
            else:
                value = self.watch.begin(leased).run(_invoke, handler, leased, context)
            return self._returned(lane, _answer(value), context)
        except BaseException as error:  # SystemExit in a handler's thread must not end silently
            return self._raised(lane, error, context)

    def _pool(self) -> ThreadPoolExecutor:
        if self._threads is None:
            # As many as may run at once: a message that waited here for a thread would count as started.
            threads = sum(handler.concurrency for handler in self.handlers.values() if not handler.is_async)
            self._threads = ThreadPoolExecutor(max(1, threads), thread_name_prefix="holdfast-handler")
        return self._threads

    # -- many messages in one call

    async def _run_batches(self, lanes: list[Lane], handler: AnyHandler) -> None:
        """One message of each lane in one call, as long as there are any. What has failed before is called alone."""
        while lanes:
            started: list[tuple[Lane, Context, Any]] = []
            alone = next((lane for lane in lanes if lane.waiting and goes_alone(lane.waiting[0])), None)
            together = lanes if alone is None else [alone]
            lanes = [] if alone is None else [lane for lane in lanes if lane is not alone]
            for lane in together:
                if (leased := self._begin(lane, self.clock.monotonic())) is None:
                    continue
                ending = self._before(lane, leased, handler)
                if ending is None:
                    try:
                        body = _body(handler, leased)
                        started.append((lane, Context(leased, lane, handler.steps, self.completions), body))
                        continue
                    except BodyUnreadable as error:
                        ending = delivery.Unreadable(error)
                    except Unopened as error:
                        ending = delivery.Sealed(error)
                self._end(lane, leased, ending)
            if started:
                await self._call_batch(handler, started)
            lanes += [lane for lane, *_ in started]
            now = self.clock.monotonic()
            while len(lanes) < handler.batch and (more := self.pacing.start(handler.queue, now)) is not None:
                lanes.append(more)
        self.changed.set()

    async def _call_batch(self, handler: AnyHandler, started: list[tuple[Lane, Context, Any]]) -> None:
        """The handler answers for all at once, or for each in a list as long as the one that it got."""
        bodies = [body for *_, body in started]
        contexts = [context for _, context, _ in started]
        keywords = {handler.context: contexts} if handler.context else {}
        task = asyncio.current_task()
        assert task is not None
        if handler.is_async:
            self._task_of.update((lane, task) for lane, *_ in started)
        else:
            self._in_thread.update(lane for lane, *_ in started)
        answers: list[Any]
        is_shared = False
        try:
            call = partial(handler.run, bodies, **keywords)
            leased = [context.leased for context in contexts]
            variables = copy_context() if self.watch is None else self.watch.begin(*leased)
            loop = asyncio.get_running_loop()
            if not handler.is_async:
                answer = await loop.run_in_executor(self._pool(), lambda: _answer(variables.run(call)))
            elif self.watch is None:
                answer = await call()
            else:
                answer = await loop.create_task(_awaited(call), context=variables)
            each = isinstance(answer, list) and len(answer) == len(bodies)
            answers = answer if each else [answer] * len(bodies)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            answers = [error] * len(bodies)
            is_shared = len(bodies) > 1
        finally:
            _forget_cancellation(task)
        for (lane, context, _), value in zip(started, answers, strict=True):
            self._task_of.pop(lane, None)
            self._in_thread.discard(lane)
            await self._end_of_many(handler, lane, context, value, is_shared)

    async def _end_of_many(
        self, handler: AnyHandler, lane: Lane, context: Context, value: Any, is_shared: bool
    ) -> None:
        if lane in self.stuck:
            self.stuck.discard(lane)
            return
        if isinstance(value, asyncio.CancelledError):
            ending = self._cancelled(lane, handler, context, value)
        elif isinstance(value, BaseException):
            ending = self._raised(lane, value, context)
        else:
            ending = self._returned(lane, value, context)
        left = await self._settled(lane, context.leased, context, ending) if context.completed else ending
        if is_shared and isinstance(left, delivery.Unreadable):  # what the handler itself could not read
            left = delivery.Raised(left.error, _flags(context), 0.0)
        if is_shared and isinstance(left, delivery.Raised | delivery.TimedOut):
            left = delivery.BatchFailed(left)
        if left is not None:
            self._end(lane, context.leased, left)

    # -- endings

    def _returned(self, lane: Lane, value: Any, context: Context | None) -> Ending:
        ran = lane.ran(self.clock.monotonic())
        if value is None or not isinstance(value, Snooze | Dead):
            if context is None:
                return delivery.Returned(0, (), ran)
            return delivery.Returned(context._flags, tuple(context._emits), ran)
        return _wish(value, context, ran)

    def _raised(self, lane: Lane, error: BaseException, context: Context | None) -> Ending:
        ran = lane.ran(self.clock.monotonic())
        match error:
            case BodyUnreadable():
                return delivery.Unreadable(error)
            case Unopened():
                return delivery.Sealed(error)
            case Snooze() | Dead():
                return _wish(error, context, ran)
            case LeaseLost():
                log.warning(
                    "lease.lost",
                    "A handler of %(queue)s noticed that its lease is another worker's",
                    queue=lane.queue,
                )
                return delivery.Lost()
        return ending_of(error, _flags(context), ran) or delivery.Raised(error, _flags(context), ran)

    def _cancelled(
        self, lane: Lane, handler: AnyHandler, context: Context | None, error: BaseException
    ) -> Ending:
        flags, ran = _flags(context), lane.ran(self.clock.monotonic())
        match lane.stop:
            case Stop.LOST:
                return delivery.Lost()
            case Stop.TIMEOUT:
                return ending_of(error, flags, ran) or delivery.TimedOut(handler.timeout, flags, ran)
            case Stop.CANCELLED:
                return delivery.Cancelled(flags, ran)
            case Stop.LAPSED | Stop.GRACE:
                return delivery.Interrupted(flags, ran)
            case None:  # nobody here asked for it: something that the handler awaits was cancelled
                return delivery.Raised(error, flags, ran)

    async def _settled(self, lane: Lane, leased: Leased, context: Context, ending: Ending) -> Ending | None:
        """What is left to settle of a message that its handler has settled, if that was committed: nothing."""
        left = await self.completions.verify(context, ending)
        if left is None:
            if isinstance(ending, delivery.Raised):
                log.error(
                    "message.raised_late",
                    "The handler of message %(message_id)s in %(queue)s raised %(error)s after the message had been "
                    "settled, at:\n%(trace)s",
                    **named(leased), error=type(ending.error).__name__,
                    trace="".join(traceback.format_tb(ending.error.__traceback__)),
                )  # fmt: skip
            self.forget([leased.message.seq])
            if self.watch is not None:
                self.watch.completed(leased, lane.ran(self.clock.monotonic()))
        return left

    def _end(self, lane: Lane, leased: Leased, ending: Ending) -> None:
        if self.board is not None:
            self.board.ended(leased.message.seq, leased.attempt + 1 >= self._starts[lane.queue])
        settlement = self.concluded(leased, ending)
        if settlement is None:
            self.forget([leased.message.seq])
        elif settlement.error is not None:
            log_failure(leased, settlement, settlement.error)
        if self.watch is not None:
            self.watch.end(leased, settlement)
        self.pacing.end(lane, settlement)

    def concluded(self, leased: Leased, ending: Ending) -> Settlement | None:
        policy = self.handlers[leased.message.queue].policy
        if type(ending) is delivery.Returned:  # only failures look at the time and roll dice
            return conclude(leased, ending, policy, EPOCH, 0.0)
        handler = self.handlers[leased.message.queue]
        now, roll = self.time.now(), self.clock.roll()
        return concluded(leased, ending, policy, handler.masking, handler.keys, now, roll)

    def forget(self, seqs: Iterable[int]) -> None:
        """The store knows what became of these."""
        if self.board is not None:
            for seq in seqs:
                self.board.settled(seq)

    # -- stopping

    def stop(self, lane: Lane, why: Stop) -> None:
        """Tell the running handler of a lane to stop, if it can be told."""
        lane.stop = why
        task = self._task_of.get(lane)
        if task is None:
            return
        together = [each for each, its in self._task_of.items() if its is task]
        if why in (Stop.LOST, Stop.CANCELLED) and any(each.stop is None for each in together):
            return  # others run in the same call, and nothing is wrong with them
        task.cancel()

    def out_of_time(self, lane: Lane) -> bool:
        """Stop a handler whose time is over. True: it runs in a thread and cannot be stopped."""
        self.stop(lane, Stop.TIMEOUT)
        if lane not in self._in_thread or lane.completing or lane.running is None:
            return False
        timeout = self.handlers[lane.queue].timeout
        log.error(
            "handler.stuck",
            "A handler of %(queue)s has run for more than %(seconds)g s in a thread that cannot be stopped",
            **named(lane.running),
            seconds=timeout,
        )
        self._abandon(lane, delivery.TimedOut(timeout, 0, lane.ran(self.clock.monotonic())))
        return True

    def _abandon(self, lane: Lane, ending: Ending) -> None:
        """Settle without waiting for the thread. Its handler counts as taken until it comes back."""
        assert lane.running is not None
        self.stuck.add(lane)
        self.pacing.close(lane)
        self._end(lane, lane.running, ending)
        self.changed.set()

    def stop_all(self) -> None:
        """The grace is over: what runs is interrupted, and threads are left behind."""
        for lane in list(self._task_of):
            self.stop(lane, Stop.GRACE)
        for lane in list(self._in_thread - self.stuck):
            if lane.running is not None and not lane.completing:
                self._abandon(lane, delivery.Interrupted(0, lane.ran(self.clock.monotonic())))

    async def quiet(self, seconds: float) -> None:
        """Wait until no async handler runs any more, but not longer than so."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._task_of:
                    self.changed.clear()
                    await self.changed.wait()

    async def close(self) -> None:
        """Nothing runs any more, but for threads that do not come back."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


class Suspended:
    """A coroutine that has been stepped once already and has yielded `yielded`; awaiting it goes on."""

    __slots__ = ("coroutine", "variables", "yielded")

    def __init__(self, coroutine: Any, yielded: Any, variables: Variables) -> None:
        self.coroutine, self.yielded, self.variables = coroutine, yielded, variables

    def __await__(self) -> Generator[Any, Any, Any]:
        step: Callable[..., Any]
        value = self.yielded
        while True:
            try:
                sent = yield value
            except BaseException as error:
                step, argument = self.coroutine.throw, error
            else:
                step, argument = self.coroutine.send, sent
            try:
                value = self.variables.run(step, argument)
            except StopIteration as end:
                return end.value


def _forget_cancellation(task: asyncio.Task[Any]) -> None:
    """It was meant for the handler that has just ended, not for the next one in this runner."""
    while task.uncancel():
        pass


def _first_step(handler: AnyHandler, leased: Leased, context: Context | None) -> tuple[Any, Any]:
    """The coroutine and what it waits for; or None and what it returned."""
    coroutine = _invoke(handler, leased, context)
    try:
        return coroutine, coroutine.send(None)
    except StopIteration as end:
        return None, end.value


def _invoke(handler: AnyHandler, leased: Leased, context: Context | None) -> Any:
    if not handler.takes_body:
        return handler.run() if handler.context is None else handler.run(**{handler.context: context})
    text = leased.message.body
    if text.startswith(SEALED):
        text = opened(leased.message, handler.keys)
    if handler.context is None:
        return handler.run(handler.decode(text))
    return handler.run(handler.decode(text), **{handler.context: context})


def _body(handler: AnyHandler, leased: Leased) -> Any:
    text = leased.message.body
    if text.startswith(SEALED):
        text = opened(leased.message, handler.keys)
    return handler.decode(text)


async def _awaited(call: Callable[[], Any]) -> Any:
    return await call()


def _answer(value: Any) -> Any:
    if iscoroutine(value):
        value.close()
        raise UsageError(
            "The handler is a def and returned a coroutine: nothing of it was run. Make it async def."
        )
    return value


def _wish(value: Snooze | Dead, context: Context | None, ran: float) -> Ending:
    """What a handler asks for its message."""
    if isinstance(value, Snooze):
        return delivery.Snoozed(value.delay, _flags(context), ran)
    return delivery.Died(value.why, _flags(context), ran)


def _flags(context: Context | None) -> int:
    return 0 if context is None else context._flags


def _fewest_starts(handler: AnyHandler) -> int:
    retry = handler.policy.retry
    return min(retry.starts_max, retry.for_reason(Reason.WORKER_VANISHED).attempts_max)
