"""A turn with inline activities: they are run one after the other, or several at once, and the code goes on with each.

What an activity gave is stored before the next one starts, as a part of the turn: under the lease of the run, and at
its place (execution, turn, part). All else that the code asks for on the way is stored with the turn's settlement;
whoever goes on after a crash finds it in the parts. With `inline="turn"` the results are stored with the settlement,
too, and a crash repeats all of them. The turn goes on beside the call that began it (`Later`), so nobody waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ..handlers.consumer import Ran
from ..model.work import Leased
from ..rules.delivery import Ending, Snoozed, Unsent
from ..store.plans.instances import Part, Stand
from ..telemetry.logs import Log
from .host import Inlined
from .hosting import Slices, from_callback
from .inline_calls import Begun, InlineCalls
from .journal import Answered, Arrival, Tried
from .leaving import journal_text
from .loop import NESTS
from .outcome import Ask, Overrun
from .replay import CodeChanged
from .turn import Instance

if TYPE_CHECKING:
    from .turns import Turns

log = Log("holdfast.orchestrations")

MOST = 500  # inline activities in one turn, and
SECONDS = 10.0  # after which none is started in it any more: what waits in the stream must have its turn
AT_ONCE_SECONDS = 0.2  # of a call after which none is run at once: the ends of other runs wait for the call's
REFUSED_SECONDS = 1.0  # until a run is tried again whose part was refused


class Refused(Exception):
    """A part was not stored: the lease is lost, or somebody has ended the instance. Nothing behind it counts."""


class InlineRun:
    """A turn with inline activities. What does not answer at once goes on beside the call: then it is a `Later`."""

    __slots__ = (
        "_begun", "_calls", "_done", "_failed", "_is_unsaved", "_running", "_slices", "_started", "_trouble", "count",
        "instance", "ran", "run", "stand", "turns", "was_warm",
    )  # fmt: skip

    def __init__(
        self,
        turns: Turns,
        run: Sequence[Leased],
        stand: Stand,
        instance: Instance,
        count: int,
        was_warm: bool,
        ran: Ran,
        slices: Slices,
    ) -> None:
        self.turns, self.run, self.stand, self.instance = turns, run, stand, instance
        self.count, self.was_warm, self.ran, self._slices = count, was_warm, ran, slices
        self._calls = InlineCalls(turns.place, turns.queue, instance.id, instance.execution, ran)
        # Where a worker may have died before, the journal says what is about to run: poison has a name then.
        self._is_unsaved = run[0].attempt > 1
        self._begun: tuple[Ask, Begun] | None = None  # what was expected to answer at once, and waits
        self._running: dict[asyncio.Task[Answered | Tried], Ask] = {}
        self._done: list[asyncio.Task[Answered | Tried]] = []
        self._failed: list[str] = []  # for good: their categories
        self._started = 0
        self._trouble: CodeChanged | Overrun | None = None

    def drop(self) -> None:
        self.instance.close()

    # -- what answers at once

    async def take(self, arrivals: Sequence[Arrival]) -> CodeChanged | Overrun | None:
        """Give arrivals to the code, and the answers of activities as long as these answer at once."""
        while True:
            take = partial(self.instance.take, arrivals, self._answer if NESTS else None)
            self._trouble = take() if NESTS else await from_callback(take)
            if self._trouble is not None or self._begun is None:
                return self._trouble
            # It has begun in this task, so it ends in it.
            (ask, begun), self._begun = self._begun, None
            arrivals = self._answers((await self._calls.rest(ask, 0, begun),))

    def _answer(self, ask: Ask) -> Answered | None:
        """The answer of an activity whose answers have come at once until now. None: it comes later."""
        calls = self._calls
        if self._is_unsaved or self._begun is not None or self._slices.are_over or not calls.is_quick(ask):
            return None
        if self._started >= MOST:
            return None
        self._started += 1
        ended = calls.begin(ask, 0)
        if isinstance(ended, Answered):
            self._note(ended, ask.options.inline)
            return ended
        if isinstance(ended, Tried):
            self.instance.park(ended)
        else:
            self._begun = ask, ended
        return None

    async def at_once(self) -> bool:
        """Whether the turn is over with what answers at once. Else activities are left, which `endings` runs."""
        instance, calls, slices = self.instance, self._calls, self._slices
        while self._trouble is None and (ask := instance.only_inline) is not None:
            if slices.are_over:
                await slices.pause()
            if self._is_unsaved or self._started >= MOST or self.ran() >= AT_ONCE_SECONDS:
                return False
            if not calls.is_quick(ask):
                return False
            self._started += 1
            if answers := self._answers((await calls.run(ask, 0),)):
                await self.take(answers)
        return self._trouble is not None or not instance.has_inline

    async def over(self) -> Sequence[Ending]:
        """The turn is over."""
        turns, instance = self.turns, self.instance
        try:
            result = self._trouble or instance.part(turns.place.now(), goes_on=instance.has_inline)
        except BaseException:
            instance.close()
            raise
        return await turns.ended(
            self.run, self.stand, instance, self.count, self.was_warm, self.ran, result, self._failed
        )

    # -- what goes on beside the call

    async def endings(self) -> Sequence[Ending]:
        return await self.turns.guarded(self._rest(), self.run, self.ran)

    async def _rest(self) -> Sequence[Ending]:
        is_over = False
        try:
            await self._go_on()
            is_over = True
        except Refused:
            log.warning(
                "orchestration.refused",
                "A part of a turn of instance %(instance)s was refused: another worker has its lease, or it has ended",
                instance=self.instance.id,
            )
            again = Unsent("Refused: a part of its turn could not be stored.", REFUSED_SECONDS, self.ran())
            return [again, *(Snoozed(0.0) for _ in self.run[1:])]
        finally:
            for task in self._running:
                task.cancel()
            if not is_over:
                self.instance.close()
        return await self.over()

    async def _go_on(self) -> None:
        """Run activities and give their results to the code, until none is left or others must have their turn."""
        clock = self.turns.place.clock()
        until = clock.monotonic() + min(SECONDS, self.turns.place.settings.timeout / 4)
        slices = self._slices = Slices(clock)
        while True:
            if slices.are_over:
                await slices.pause()
            asks = self._left()
            may_start = self._started < MOST and clock.monotonic() < until
            if not self._running and not (asks and may_start):
                return
            if self._is_unsaved:
                await self._store()
            ended: Sequence[Answered | Tried]
            if not self._running and len(asks) == 1:
                self._started += 1
                ended = (await self._calls.run(asks[0], self._attempts(asks[0])),)
            else:
                if may_start:
                    self._start(asks)
                ended = await self._first_ended()
            if (answers := self._answers(ended)) and await self.take(answers) is not None:
                return
            if self._running:
                self._stop_unwanted()

    def _left(self) -> list[Ask]:
        if not self._running:
            return self.instance.inline()
        running = {ask.number for ask in self._running.values()}
        return [ask for ask in self.instance.inline() if ask.number not in running]

    def _attempts(self, ask: Ask) -> int:
        tried = self.instance.tried.get(ask.number)
        return 0 if tried is None else tried.attempts

    def _start(self, asks: Sequence[Ask]) -> None:
        for ask in asks:
            task = asyncio.create_task(self._calls.run(ask, self._attempts(ask)))
            task.add_done_callback(self._done.append)
            self._running[task] = ask
        self._started += len(asks)

    async def _first_ended(self) -> list[Answered | Tried]:
        """What has ended, in the order in which it did; at least one."""
        if not any(task in self._running for task in self._done):
            await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
        ended = [task for task in self._done if task in self._running]
        self._done.clear()
        for task in ended:
            del self._running[task]
        return [task.result() for task in ended]

    def _answers(self, ended: Sequence[Answered | Tried]) -> list[Answered]:
        """Those that reach the code; the others wait for their next attempt."""
        answers: list[Answered] = []
        for each in ended:
            if isinstance(each, Tried):
                self.instance.park(each)
            else:
                self._note(each, self.instance.grade(each.number))
                answers.append(each)
        return answers

    def _note(self, answered: Answered, grade: Inlined) -> None:
        if grade != "turn":
            self._is_unsaved = True  # until a part is stored: before the next activity starts
        if answered.failure is not None:
            self._failed.append(answered.failure.category)

    def _stop_unwanted(self) -> None:
        """Stop what the code does not wait for any more."""
        wanted = {ask.number for ask in self.instance.inline()}
        for task, ask in list(self._running.items()):
            if ask.number not in wanted:
                task.cancel()
                del self._running[task]

    async def _store(self) -> None:
        """Store what the code has received and asked for, as a part of the turn."""
        self._is_unsaved = False
        if not self.instance.has_news:
            return
        place, head = self.turns.place, self.run[0]
        turn = self.instance.part(place.now(), final=False)
        row = turn.row
        name = journal_text(row.id, row.execution, row.turn, row.part)
        part = Part(
            head.run,
            head.run_epoch,
            row.id,
            row.execution,
            row.turn,
            row.part,
            place.pen.seal(name, turn.text),
        )
        if not await place.memory.parts(place.store).put(part):
            raise Refused
