"""How handlers are called: async ones on the loop, `def` ones in threads, some with one message, some with many.

A handler that never suspends runs without a task of its own. Its coroutine is stepped once inside a runner; if it
suspends, that runner stays with it and another one takes the next lane. Each message has its own context (contextvars)
in any case.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any

from ..clock import Clock
from ..handlers.consumer import Consumer, SingleConsumer
from ..handlers.context import Context
from ..model.work import Leased
from ..rules import delivery
from ..rules.delivery import Ending, Returned
from ..rules.lanes import Lane, Stop
from ..rules.overrides import timeout_of
from ..rules.pacing import Pacing
from ..telemetry import Watch
from ..telemetry.logs import Log
from .around import Around, called
from .batches import BatchCalls
from .board import Board
from .endings import Endings
from .interrupts import is_ctrl_c
from .lateness import named
from .runs import RunCalls
from .serving import ByCall
from .stepping import Suspended, answered, first_step, forget_cancellation

log = Log("holdfast.worker")

CLOSE_SECONDS = 1.0  # for handlers that do not end when they are cancelled


class Calls:
    """The handlers that run in one worker."""

    def __init__(
        self,
        consumers: Mapping[str, Consumer],
        by_call: ByCall,
        pacing: Pacing,
        endings: Endings,
        clock: Clock,
        changed: asyncio.Event,
        board: Board | None,
        watch: Watch | None = None,
        around: Sequence[Around] = (),
    ) -> None:
        self.around = around
        self.consumers, self.by_call, self.pacing, self.endings = consumers, by_call, pacing, endings
        self.clock, self.changed, self.board, self.watch = clock, changed, board, watch
        self.stuck: set[Lane] = set()  # lanes whose threads have not come back in time
        self.broken: BaseException | None = None  # an error of ours, not of a handler
        self._batches = BatchCalls(self, pacing, endings)
        self._runs = RunCalls(self, pacing, endings)
        self._lanes: deque[Lane] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self.task_of: dict[Lane, asyncio.Task[None]] = {}
        self.in_thread: set[Lane] = set()
        self._threads: ThreadPoolExecutor | None = None

    # -- runners

    def start(self) -> None:
        """Start a runner for every lane that may begin."""
        self.endings.is_logging = log.is_enabled(logging.INFO)
        self.unpack()
        batches: dict[str, list[Lane]] = {}
        for lane in self.pacing.starts(self.clock.monotonic()):
            if lane.queue in self.by_call.singles:
                self._lanes.append(lane)
            else:
                batches.setdefault(lane.queue, []).append(lane)
        if self._lanes:
            self.spawn(self._run())
        for queue, lanes in batches.items():
            if queue in self.by_call.runs:
                taker = self.by_call.runs[queue]
                for part in self._runs.parts(lanes, taker.batch):
                    self.spawn(self._runs.run(queue, taker, part))
                continue
            consumer = self.by_call.batches[queue]
            size = consumer.batch
            for first in range(0, len(lanes), size):
                self.spawn(self._batches.run(queue, consumer, lanes[first : first + size]))

    def unpack(self) -> None:
        """Make lanes of what has arrived. The user's key functions are called here."""
        self.pacing.unpack({each.token: self._key_of(each) for each in self.pacing.arrived()})

    def _key_of(self, leased: Leased) -> Hashable:
        queue = leased.message.queue
        key_of = self.consumers[queue].limits(queue).key_of
        return None if key_of is None else key_of(leased)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a runner."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._runner_ended)
        return task

    def _runner_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.broken = task.exception()
            self.changed.set()

    async def _run(self) -> None:
        """A runner: takes one lane after another, until a handler suspends; then it waits for that handler."""
        pacing, endings, clock = self.pacing, self.endings, self.clock
        while self._lanes:
            queue = self._lanes[0].queue
            lane: Lane | None = self._lanes.popleft()
            consumer = self.by_call.singles[queue]
            steps = consumer.is_async and not consumer.takes_context
            while lane is not None:
                while (leased := pacing.begin(lane, now := clock.monotonic())) is not None:
                    if self.board is not None:
                        self.board.began(leased.message.seq)
                    ending = endings.before(lane, leased, consumer)
                    if ending is None and steps:
                        # Mostly it runs to its end: no await, no task.
                        step = self._step(lane, leased, consumer, None)
                        if isinstance(step, Suspended):
                            step = await self._stay(lane, consumer, None, step)
                        ending = step
                    elif ending is None:
                        ending = await self._call(lane, leased, consumer)
                    if ending is not None:
                        endings.end(lane, leased, ending)
                lane = pacing.next_lane(queue, now)  # the handler can take the next lane
                if lane is not None and self._lanes:  # it came after those that wait here: oldest first
                    self._lanes.append(lane)
                    lane = self._lanes.popleft()
                if lane is not None and lane.queue != queue:
                    self._lanes.appendleft(lane)
                    lane = None
        self.changed.set()

    def _runner_stays(self) -> None:
        """This runner waits for a handler: another runner takes the other lanes."""
        if self._lanes:
            self.spawn(self._run())

    # -- one message

    def begin(self, lane: Lane, now: float) -> Leased | None:
        leased = self.pacing.begin(lane, now)
        if leased is not None and self.board is not None:
            self.board.began(leased.message.seq)
        return leased

    async def _call(self, lane: Lane, leased: Leased, consumer: SingleConsumer) -> Ending | None:
        """The handler's ending; None if that is decided already: settled in the handler's transaction, or given up."""
        context: Context | None = None
        if consumer.takes_context:
            context = Context(leased, lane, consumer.steps, self.endings.completions, lane.started_at)
        ending: Ending | None
        if consumer.is_async:
            step = self._step(lane, leased, consumer, context)
            ending = await self._stay(lane, consumer, context, step) if isinstance(step, Suspended) else step
        else:
            ending = await self._call_in_thread(lane, leased, consumer, context)
        if context is None or ending is None:
            return ending
        if context.completed:
            return await self.endings.settled(lane, leased, context, ending)
        if context._foresee is not None and isinstance(ending, Returned):
            return await self.endings.foreseen(lane, leased, consumer, context, ending)
        return ending

    def _step(
        self, lane: Lane, leased: Leased, consumer: SingleConsumer, context: Context | None
    ) -> Ending | Suspended:
        """Run a handler to its end or to where it suspends."""
        try:
            variables = copy_context() if self.watch is None else self.watch.begin(leased)
            coroutine, yielded = variables.run(first_step, consumer, leased, context)
        except BaseException as error:
            return self._fell(lane, consumer, context, error)
        if coroutine is None:
            return self.endings.returned(lane, yielded, context)
        return Suspended(coroutine, yielded, variables)

    async def _stay(
        self, lane: Lane, consumer: Consumer, context: Context | None, suspended: Suspended
    ) -> Ending:
        """Continue a handler that has suspended."""
        task = asyncio.current_task()
        assert task is not None
        self.task_of[lane] = task
        self._runner_stays()
        try:
            return self.endings.returned(lane, await suspended, context)
        except BaseException as error:
            return self._fell(lane, consumer, context, error)
        finally:
            del self.task_of[lane]
            self.changed.set()
            forget_cancellation(task)

    def _fell(self, lane: Lane, consumer: Consumer, context: Context | None, error: BaseException) -> Ending:
        """The ending for an exception of an async handler.

        SystemExit, too, is its failure and does not end the worker.
        """
        if is_ctrl_c(error):
            raise error
        if isinstance(error, asyncio.CancelledError):
            return self.endings.cancelled(lane, consumer, context, error)
        return self.endings.raised(lane, error, context)

    async def _call_in_thread(
        self, lane: Lane, leased: Leased, consumer: SingleConsumer, context: Context | None
    ) -> Ending | None:
        self.in_thread.add(lane)
        self._runner_stays()
        loop = asyncio.get_running_loop()
        try:
            ending = await loop.run_in_executor(
                self.pool(), self._call_blocking, lane, leased, consumer, context
            )
        finally:
            self.in_thread.discard(lane)
            self.changed.set()
        if lane in self.stuck:  # it was settled when its time was over
            self.stuck.discard(lane)
            return None
        return ending

    def _call_blocking(
        self, lane: Lane, leased: Leased, consumer: SingleConsumer, context: Context | None
    ) -> Ending:
        try:
            call = partial(consumer.call, leased, context)
            if self.watch is None:
                value = called(call, self.around)
            else:
                value = self.watch.begin(leased).run(called, call, self.around)
            return self.endings.returned(lane, answered(value), context)
        except BaseException as error:  # SystemExit in a handler's thread must not end silently
            return self.endings.raised(lane, error, context)

    def pool(self) -> ThreadPoolExecutor:
        if self._threads is None:
            # One thread for each call that may run at once: otherwise a message that waits for a thread would count
            # as started.
            consumers = {each.queue: each for each in self.consumers.values() if not each.is_async}.values()
            threads = sum(each.limits(each.queue).concurrency for each in consumers)
            self._threads = ThreadPoolExecutor(max(1, threads), thread_name_prefix="holdfast-handler")
        return self._threads

    # -- stopping

    def stop(self, lane: Lane, why: Stop) -> None:
        """Cancel the running handler of a lane, if that is possible."""
        lane.stop = why
        task = self.task_of.get(lane)
        if task is None:
            return
        together = [each for each, its in self.task_of.items() if its is task]
        if why in (Stop.LOST, Stop.CANCELLED) and any(each.stop is None for each in together):
            return  # other messages are in the same call, and nothing is wrong with them
        task.cancel()

    def out_of_time(self, lane: Lane) -> bool:
        """Stop a handler whose time is up. True: it runs in a thread and cannot be stopped."""
        self.stop(lane, Stop.TIMEOUT)
        if lane not in self.in_thread or lane.completing or lane.running is None:
            return False
        timeout = timeout_of(
            self.consumers[lane.queue].limits(lane.queue).timeout, lane.running.message.headers
        )
        log.error(
            "handler.stuck",
            "A handler of %(queue)s has run for more than %(seconds)g s in a thread that cannot be stopped",
            **named(lane.running),
            seconds=timeout,
        )
        self._abandon(lane, delivery.TimedOut(timeout, 0, lane.ran(self.clock.monotonic())))
        return True

    def _abandon(self, lane: Lane, ending: Ending) -> None:
        """Settle without waiting for the thread. It uses up concurrency until it returns."""
        assert lane.running is not None
        self.stuck.add(lane)
        self.pacing.close(lane)
        self.endings.end(lane, lane.running, ending)
        self.changed.set()

    def stop_all(self) -> None:
        """The grace is over: cancel what runs on the loop, and do not wait for threads."""
        for lane in list(self.task_of):
            self.stop(lane, Stop.GRACE)
        for lane in list(self.in_thread - self.stuck):
            if lane.running is not None and not lane.completing:
                self._abandon(lane, delivery.Interrupted(0, lane.ran(self.clock.monotonic())))

    async def quiet(self, seconds: float) -> None:
        """Wait until no async handler runs any more, at most so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.task_of:
                    self.changed.clear()
                    await self.changed.wait()

    async def close(self) -> None:
        """Cancel what still runs. Threads that do not return are left behind."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
