"""Calls with whole runs: the head of each lane and the messages behind it, in one call, with a result for each.

With one message of each lane in a call, a stream would wait for a broker's answer at each of its messages. So a
consumer of this kind (`RunConsumer`) gets all of a run at once. The results of a run up to its first failure are
settled; the rest of that run goes back unchanged, whatever its results. It comes again, in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import copy_context
from itertools import repeat
from typing import TYPE_CHECKING, Any

from ..errors import StoreUnavailable, UsageError
from ..handlers.consumer import Later, RunConsumer, ends_more
from ..model.work import Leased, Left
from ..rules import delivery
from ..rules.delivery import Ending, goes_alone
from ..rules.lanes import Lane
from ..rules.pacing import Pacing
from ..telemetry.logs import Log
from .around import called
from .endings import Endings
from .interrupts import contained, is_ctrl_c
from .lateness import named
from .stepping import answered, forget_cancellation

if TYPE_CHECKING:
    from .calls import Calls

log = Log("holdfast.worker")

RUN_BYTES = 4 * 1024 * 1024  # of the bodies in one call; a single one may be larger

Run = tuple[Lane, list[Leased]]
Ended = tuple[Ending, Left | None]  # of a message, and what its death leaves behind


class _Ran:
    """A call, as its consumer sees it."""

    __slots__ = ("begun", "calls")

    def __init__(self, calls: Calls, begun: float) -> None:
        self.calls, self.begun = calls, begun

    def __call__(self) -> float:
        return self.calls.clock.monotonic() - self.begun

    def began(self, run: Sequence[Leased]) -> None:
        if self.calls.board is not None:
            for leased in run:
                self.calls.board.began(leased.message.seq)

    def over(self, run: Sequence[Leased]) -> None:
        if self.calls.board is not None:
            for leased in run:
                self.calls.endings.note_end(leased)

    def in_thread(self, function: Callable[[], Any]) -> Awaitable[Any]:
        variables, around = copy_context(), self.calls.around
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(
            self.calls.pool(), lambda: contained(lambda: answered(variables.run(called, function, around)))
        )


class RunCalls:
    """The calls of one worker that take runs."""

    def __init__(self, calls: Calls, pacing: Pacing, endings: Endings) -> None:
        self.calls, self.pacing, self.endings = calls, pacing, endings

    def parts(self, lanes: Sequence[Lane], size: int) -> list[list[Lane]]:
        """The lanes of each call: as many as make a full one."""
        parts: list[list[Lane]] = []
        held = size
        for lane in lanes:
            if held >= size:
                parts.append([])
                held = 0
            parts[-1].append(lane)
            held += len(lane.waiting)
        return parts

    async def run(self, queue: str, consumer: RunConsumer, lanes: list[Lane]) -> None:
        """Call as long as these lanes have messages, and take more lanes where there is room."""
        while lanes:
            runs, lanes = await self._begin(consumer, lanes)
            if runs:
                going = await self._call(queue, consumer, runs)
                lanes = [lane for lane, _ in runs if lane not in going] + lanes
            now = self.calls.clock.monotonic()
            lanes = self._with_more_to_do(lanes, now)
            room = consumer.batch - sum(len(lane.waiting) for lane in lanes)
            while room > 0 and (more := self.pacing.start(queue, now)) is not None:
                lanes.append(more)
                room -= len(more.waiting)
        self.calls.changed.set()

    def _with_more_to_do(self, lanes: Sequence[Lane], now: float) -> list[Lane]:
        """Those that have messages; the others give up their handlers first, so that others may begin."""
        for lane in lanes:
            if not lane.waiting:
                self.pacing.begin(lane, now)
        return [lane for lane in lanes if lane.waiting]

    # -- beginning

    async def _begin(self, consumer: RunConsumer, lanes: list[Lane]) -> tuple[list[Run], list[Lane]]:
        """The runs of the next call, and the lanes that are not in it. A message that has failed is in it alone."""
        alone = next((lane for lane in lanes if lane.waiting and goes_alone(lane.waiting[0])), None)
        now, room, left = self.calls.clock.monotonic(), consumer.batch, RUN_BYTES
        runs: list[Run] = []
        others: list[Lane] = []
        for lane in lanes:
            size = len(lane.waiting[0].message.body) if lane.waiting else 0
            if room <= 0 or (runs and size > left) or (alone is not None and lane is not alone):
                others.append(lane)
                continue
            run, ended = self._begin_run(consumer, lane, now, room, left)
            if ended is not None:
                ending, more = await self._more(consumer, *ended)
                self.endings.end(lane, ended[0], ending, left=more)
                others.append(lane)
            elif run:
                runs.append((lane, run))
                room -= len(run)
                for leased in run:
                    left -= len(leased.message.body)
        return runs, others

    def _begin_run(
        self, consumer: RunConsumer, lane: Lane, now: float, most: int, bytes_max: int
    ) -> tuple[list[Leased], tuple[Leased, Ending] | None]:
        """A lane's messages for the call, none if it gave up its handler; or its head, if that ended without a call."""
        run, board = self.pacing.begin_run(lane, now, most, bytes_max), self.calls.board
        notes = board is not None and not ends_more(consumer)
        for place, leased in enumerate(run):
            ending = self.endings.before(lane, leased, consumer)
            if ending is not None:
                lane.shorten(max(1, place))
                return run[:place], (leased, ending) if place == 0 else None  # the others: in the next call
            if notes and board is not None:
                board.began(leased.message.seq)
        return run, None

    # -- calling

    async def _call(self, queue: str, consumer: RunConsumer, runs: list[Run]) -> set[Lane]:
        """Make the call; returns the lanes that continue by themselves."""
        task = asyncio.current_task()
        assert task is not None
        self.calls.task_of.update((lane, task) for lane, _ in runs)
        begun, watch = self.calls.clock.monotonic(), self.calls.watch
        answers: Sequence[Sequence[Ending] | Later]
        try:
            call = consumer.call_runs(queue, [run for _, run in runs], _Ran(self.calls, begun))
            if watch is None:
                answers = await call
            else:
                variables = watch.begin(*(leased for _, run in runs for leased in run))
                answers = await asyncio.get_running_loop().create_task(call, context=variables)
            if not _fit(answers, runs):
                raise UsageError(
                    f"The consumer of {queue!r} did not return a result for each message that it got."
                )
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            answers = self._failed(consumer, runs, error)
        finally:
            forget_cancellation(task)
        going: set[Lane] = set()
        whole: list[tuple[Run, Sequence[Ending]]] = []
        for (lane, run), each in zip(runs, answers, strict=True):
            if isinstance(each, Sequence):
                whole.append(((lane, run), each))
            else:
                going.add(lane)
                self.calls.task_of[lane] = self.calls.spawn(
                    self._later(queue, consumer, (lane, run), each, begun)
                )
        took = (self.calls.clock.monotonic() - begun) / sum(len(run) for _, run in runs)
        ended: list[Iterable[Ended]]
        if ends_more(consumer):
            ended = [await self._with_more(consumer, run, each) for (_, run), each in whole]
        else:
            ended = [zip(each, repeat(None)) for _, each in whole]
        forget_cancellation(task)
        # From here on nothing is awaited: what a run leaves behind is handed in together.
        for (one, _), endings in zip(whole, ended, strict=True):
            self._end(one, endings, took)
        self.calls.changed.set()
        return going

    async def _later(self, queue: str, consumer: RunConsumer, run: Run, later: Later, begun: float) -> None:
        """A run that continues beside its call. Its lane then takes what comes next, like any other."""
        lane, messages = run
        task = asyncio.current_task()
        assert task is not None
        answers: Sequence[Ending]
        try:
            answers = await later.endings()
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            (answers,) = self._failed(consumer, [run], error)
        finally:
            forget_cancellation(task)
        took = (self.calls.clock.monotonic() - begun) / len(messages)
        ended = await self._with_more(consumer, messages, answers)
        forget_cancellation(task)
        self._end(run, ended, took)
        self.calls.changed.set()
        await self.run(queue, consumer, [lane])

    def _end(self, run: Run, endings: Iterable[Ended], took: float) -> None:
        lane, messages = run
        self.calls.task_of.pop(lane, None)
        for leased, (ending, more) in zip(messages, endings, strict=True):
            if lane.running is leased:
                self.endings.end(lane, leased, ending, took, more)
            else:  # it went back with the rest of its run
                self.endings.forget([leased.message.seq])

    async def _with_more(
        self, consumer: RunConsumer, run: Sequence[Leased], endings: Sequence[Ending]
    ) -> list[Ended]:
        if all(type(each) is delivery.Returned for each in endings):
            return [(each, None) for each in endings]
        try:
            return [await self._more(consumer, *each) for each in zip(run, endings, strict=True)]
        except asyncio.CancelledError:
            # It is stopped at this moment: it comes again, and its count does not change.
            return [(delivery.Unsent("Stopped: its end was not stored.", 0.0), None) for _ in run]

    async def _more(self, consumer: RunConsumer, leased: Leased, ending: Ending) -> Ended:
        """What a death stores besides the dead letter. If that cannot be found out now, the message comes again."""
        if isinstance(ending, delivery.Returned) or not ends_more(consumer):
            return ending, None
        try:
            return ending, await consumer.left(leased, ending)
        except Exception as error:
            # It must not come again for ever: it becomes a dead letter, without more.
            if not isinstance(error, StoreUnavailable):
                log.error(
                    "death.incomplete",
                    "Message %(message_id)s of %(queue)s dies, and what else must end with it is not known: %(error)s",
                    **named(leased), error=type(error).__name__,
                )  # fmt: skip
                return ending, None
            return delivery.Unsent(
                f"{type(error).__name__}: the end of its instance was not stored.", 1.0
            ), None

    def _failed(self, consumer: RunConsumer, runs: list[Run], error: BaseException) -> list[list[Ending]]:
        """The call itself failed or was stopped: the outcome for its messages is not known."""
        is_shared, answers = sum(len(run) for _, run in runs) > 1, []
        for lane, run in runs:
            ending: Ending
            if isinstance(error, asyncio.CancelledError):
                ending = self.endings.cancelled(lane, consumer, None, error)
            else:
                ending = self.endings.raised(lane, error, None)
            if is_shared and isinstance(ending, delivery.Raised | delivery.TimedOut):
                ending = delivery.BatchFailed(ending)
            answers.append([ending] * len(run))
        return answers


def _fit(answers: Sequence[Sequence[Ending] | Later], runs: Sequence[Run]) -> bool:
    """Whether there is a result for each message."""
    return len(answers) == len(runs) and all(
        len(each) == len(run)
        for each, (_, run) in zip(answers, runs, strict=True)
        if isinstance(each, Sequence)
    )
