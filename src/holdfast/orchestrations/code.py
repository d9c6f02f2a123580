"""The code of one instance: how arrivals reach it, what it may ask for, how it ends and how it is dropped.

`Code` is what `Flow`, calls and the event loop talk to (`host.Host`). It knows nothing of turns and rows: it takes one
arrival after the other, each new or with what the journal says the code asked for then.
"""

from __future__ import annotations

import asyncio
from asyncio import events
from collections.abc import Callable, Container, Mapping, Sequence
from contextvars import Context
from datetime import datetime
from types import MappingProxyType
from typing import Any, assert_never

from ..bodies.codec import encode as encode_body
from ..clock import from_micros
from ..errors import UsageError
from ..settings import Settings
from .budget import Budget, OverBudget
from .child_ids import child_id
from .declared import Program
from .display import Display
from .endings import ends_with_again, how_it_ended
from .failures import describe
from .flow import Flow
from .host import NO_OPTIONS, Options, Promised
from .journal import (
    Again,
    Answered,
    Arrival,
    Begun,
    Call,
    Cancelled,
    Carried,
    Child,
    Command,
    Fired,
    Inline,
    Numbered,
    Once,
    Patched,
    Row,
    Signalled,
    Start,
    Started,
    Timer,
    Withdraw,
    Woken,
    fingerprint,
    fingerprint_and_size,
)
from .loop import Circles, Loop, NumberedTask
from .outcome import Ask, End, Waits
from .refusals import never_due
from .replay import CodeChanged, Script, Stop
from .room import Room
from .signals import Box
from .still_open import awaits_only, sleeps_for

NEVER = 253_402_300_799_000_000  # the last microseconds that a datetime knows

Waiter = asyncio.Future[Answered] | Callable[[], None]


class Code:
    """The function of an orchestration, running. `asks` and `withdrawn` are what is new in this turn."""

    __slots__ = (
        "_again", "_boxes", "_cancels", "_flow", "_limits", "_main", "_open", "_patches", "_room",
        "_start", "_too_late", "asks", "asks_again", "at_once", "begin", "display", "ended",
        "execution", "id", "inline", "keeps", "loop", "parent", "program", "runs_ahead", "script", "seed",
        "swallowed", "used_once", "withdrawn",
    )  # fmt: skip

    def __init__(self, program: Program, id: str, execution: int, limits: Settings) -> None:
        self.program, self.id, self.execution = program, id, execution
        self.script = Script()
        self.loop = Loop(self)  # type: ignore[abstract]  # the others are refused
        self.ended: End | None = None
        self.begin: Started | None = None  # that of row 0, until it is played
        self.parent: str | None = None
        self.seed = f"{id}/{execution}"
        self.swallowed = 0
        self._limits = limits
        self._flow = Flow(self, self.loop)
        self._main: NumberedTask[Any] | None = None
        self._open: dict[int, tuple[Ask, Waiter]] = {}
        self._room = Room()
        self.inline: dict[int, Ask] = {}  # of those, the ones to run inside the turn
        self.at_once: Callable[[Ask], Answered | None] | None = None  # runs one while the code waits
        self.asks_again = False  # whether what is open after replay is to be sent: the journal was rewound
        self.runs_ahead = False  # the turn may never be stored, so no side effect is run in it
        self.keeps = False  # whether what is replayed is still to be sent: its turn is not settled
        self._boxes: dict[str, Box] = {}
        self._patches: dict[str, bool] = {}
        self._start: Started | None = None
        self._again: tuple[Any, str | None] | None = None
        self._cancels = 0
        self._too_late = False
        self.display = Display(limits)
        self.begin_turn()

    def begin_turn(self) -> None:
        """Nothing was asked for yet."""
        self.asks: list[Ask] = []
        self.withdrawn: list[Ask] = []
        self.display.begin_turn()
        self.used_once = False

    def is_wanted(self, arrival: Arrival) -> bool:
        """Whether the code can see it. What it cannot see is late: ended, counted, and not delivered."""
        if self.ended is not None:
            return False
        match arrival:
            case Answered() | Fired():
                waiting = self._open.get(arrival.number)
                if waiting is None or arrival.execution != self.execution:
                    return False
                return isinstance(waiting[0].command, Timer) is isinstance(arrival, Fired)
            case Started():
                return self._start is None
            case Signalled() | Cancelled():
                return True
            case Begun() | Woken():
                return False
            case _:
                assert_never(arrival)

    def deliver(self, arrival: Arrival, expected: Sequence[Command] | None, python: str) -> None:
        self.loop.arrival(arrival.at)
        self._room.arrived()
        self.script.begin(expected, self.loop.now, python)
        match arrival:
            case Answered() | Fired():
                self._wake(arrival)
            case Started():
                self._run(arrival)
            case Begun():
                begin, self.begin = self.begin, None
                assert begin is not None
                self._run(begin)
            case Signalled():
                self.box(arrival.name).put(arrival.body)
            case Cancelled():
                self._cancels += 1
                self._cancel(arrival.why or "cancelled from outside")
            case Woken():
                pass
            case _:
                assert_never(arrival)

    def _run(self, start: Started) -> None:
        self._start, self.parent, self.seed = start, start.parent, start.seed
        self.display.attributes = dict(start.attributes or {})
        for each in start.carried:
            self.box(each.name).bodies.append(each.body)
        if start.deadline is not None:
            self.timer(min(start.deadline, NEVER), self._pass_deadline)
        self._main = self.loop.create_task(self._code(start), name=self.program.name, context=Context())
        if self._cancels:  # before it began: none of its code runs
            self._main.cancel("cancelled before it started")

    async def _code(self, start: Started) -> Any:
        return await self.program.code(start.input, self._flow)

    def _wake(self, arrival: Answered | Fired) -> None:
        number = arrival.number
        ask, waiter = self._open.pop(number, (None, None))
        self._room.ended(number)
        self.inline.pop(number, None)
        if waiter is None:
            self.script.stray(None if ask is None else ask.command)
        elif isinstance(waiter, asyncio.Future):
            if isinstance(arrival, Answered) and not waiter.done():
                waiter.set_result(arrival)
        else:
            waiter()

    def _cancel(self, why: str) -> None:
        if self._main is not None:
            if self._cancels > 1:
                self.swallowed = self._cancels - 1
            self._main.cancel(why)

    def _pass_deadline(self) -> None:
        self._too_late = True
        self._cancel("the deadline has passed")

    def finish(self) -> CodeChanged | None:
        """The code waits again, or has ended."""
        main = self._main
        if main is None or not main.done():
            return self._finished() if self.script.replaying else None
        if self.ended is None and self.script.changed is None:
            command, end = self._ending(main)
            try:
                self.script.note(command)
                self.withdrawn += [ask for ask, _ in self._open.values()]
                self.inline.clear()
                self.ended = end
            except Stop:
                pass  # it is on the script
        return self._finished()

    def _finished(self) -> CodeChanged | None:
        changed = self.script.finish()
        if changed is not None:
            self.loop.stopped = True
        return changed

    def _ending(self, main: NumberedTask[Any]) -> tuple[Command, End]:
        if self._again is not None and ends_with_again(main):
            value, text = self._again
            return Again(fingerprint(value)), End("continued", begin=self._next(text))
        late = f"The deadline of the instance, {self.deadline}, has passed." if self._too_late else None
        return how_it_ended(main, self.program.queue, self._limits, late, is_cancelled=self._cancels > 0)

    def _next(self, input: str | None) -> Row:
        """Row 0 of the next execution."""
        assert self._start is not None
        carried = [Carried(name, body) for name, box in self._boxes.items() for body in box.bodies]
        begin = Started(
            "", self.loop.now, input, f"{self.id}/{self.execution + 1}", self.parent, self._start.deadline,
            tuple(carried), self.display.attributes or None,
        )  # fmt: skip
        return Row(id=self.id, execution=self.execution + 1, turn=0, at=self.loop.now, begin=begin)

    # --- What the code asks for (host.Host) ---

    @property
    def deadline(self) -> datetime | None:
        moment = None if self._start is None else self._start.deadline
        return None if moment is None else from_micros(moment)

    @property
    def replaying(self) -> bool:
        return self.script.replaying or self.script.off

    def timer(self, due: int, fire: Callable[[], None]) -> int:
        if not -NEVER <= due <= NEVER:
            raise never_due()
        return self._ask(Timer(due), None, NO_OPTIONS, fire)

    def call(self, name: str, value: Any, options: Options) -> tuple[int, Promised]:
        recorded = self.script.recorded() if self.script.replaying else None
        runs_inline = isinstance(recorded, Inline) if isinstance(recorded, Call) else bool(options.inline)
        # In a long replay most calls were sent long ago: their input is compared by its fingerprint, and not needed.
        is_sent = type(recorded) is Call and not self.keeps and not self.asks_again
        text = None if is_sent else self._text(value)
        digest, size = fingerprint_and_size(value)
        if runs_inline:
            return self._call_inline(Inline(name, digest), text, options, size)
        future: asyncio.Future[Answered] = asyncio.Future(loop=self.loop)
        return self._ask(Call(name, digest), text, options, future, size), future

    def _call_inline(
        self, command: Inline, text: str | None, options: Options, size: int
    ) -> tuple[int, Promised]:
        ask = self._asked(command, text, options, size, waits=True)
        if ask is None:
            return 0, asyncio.Future(loop=self.loop)
        if self.at_once is not None and self._is_drained() and (answered := self.at_once(ask)) is not None:
            return ask.number, answered
        future: asyncio.Future[Answered] = asyncio.Future(loop=self.loop)
        self._room.took(ask.number, size, waits=True)
        self._open[ask.number] = (ask, future)
        self.inline[ask.number] = ask
        return ask.number, future

    def _is_drained(self) -> bool:
        """Whether nothing would run before the next arrival if the code waited now: it may get that without waiting.

        A task that is being cancelled would not get it.
        """
        if self.loop.ready or self.script.replaying or self.loop.stopped:
            return False
        task = asyncio.current_task()
        return task is not None and not task.cancelling()

    def goes_on(self, arrival: Answered) -> None:
        """The code gets this without waiting."""
        self.loop.arrival(arrival.at)
        self._room.arrived()
        self.script.begin(None, self.loop.now)

    def child(
        self, name: str, id: str | None, value: Any, options: Options
    ) -> tuple[int, asyncio.Future[Answered]]:
        text = self._text(value)
        future = self.loop.create_future()
        own = id or self._own_id(is_awaited=True)
        digest, size = fingerprint_and_size(value)
        return self._ask(Child(name, own, digest), text, options, future, size), future

    def start(self, name: str, id: str | None, value: Any, options: Options) -> str:
        text = self._text(value)
        own = id or self._own_id(is_awaited=False)
        digest, size = fingerprint_and_size(value)
        self._ask(Start(name, own, digest), text, options, None, size)
        return own

    def _own_id(self, *, is_awaited: bool) -> str:
        script = self.script
        return child_id(
            self.id, self.execution, script.number + 1, script.recorded(),
            is_awaited=is_awaited, is_new=not script.replaying,
        )  # fmt: skip

    def ask_again(self, answered: Container[int]) -> None:
        """After a rewind: the messages of what is open belong to the execution before, so new ones are needed."""
        self.asks += [ask for ask, _ in self._open.values() if ask.number not in answered]
        self.asks_again = False

    def withdraw(self, number: int) -> None:
        ask, _ = self._open.pop(number, (None, None))
        self._room.ended(number)
        self.inline.pop(number, None)
        if ask is None or self.script.off or self.script.changed is not None:
            return
        if events._get_running_loop() is not self.loop:
            return  # the garbage collector found a coroutine of an instance that nobody closed
        self.script.note(Withdraw(number))
        if self.keeps or not self.script.replaying:
            self.withdrawn.append(ask)

    def box(self, name: str) -> Box:
        box = self._boxes.get(name)
        if box is None:
            box = self._boxes[name] = Box()
        return box

    def once(self, name: str, function: Callable[[], Any]) -> Once:
        self._refuse_outside("flow.once")
        recorded = self.script.recorded()
        if self.script.replaying:
            command = recorded if isinstance(recorded, Once) and recorded.name == name else Once(name)
        elif self.script.off:
            raise Stop
        elif self.runs_ahead:
            self.used_once = self.loop.stopped = True
            raise Stop
        else:
            command = self._run_once(name, function)
        self.script.ask(command)
        return command

    def _run_once(self, name: str, function: Callable[[], Any]) -> Once:
        self.used_once = True
        self.loop.refuses = False  # it may do what the code may not
        try:
            value = function()
            return Once(name, None if value is None else encode_body(value, self._limits))
        except Exception as error:
            return Once(name, None, describe(error))
        finally:
            self.loop.refuses = True

    def patched(self, name: str) -> bool:
        self._refuse_outside("flow.patched")
        if asyncio.current_task() is not self._main:
            raise UsageError(
                f"flow.patched({name!r}) was called in a concurrent task, where the order of tasks would decide. "
                "Call it in the orchestration's own task, and hand the answer over."
            )
        known = self._patches.get(name)
        if known is None:
            known = not self.script.replaying or self.script.recorded() == Patched(name)
            if known:
                self.script.ask(Patched(name))
            self._patches[name] = known
        return known

    def again(self, value: Any) -> None:
        self._refuse_outside("flow.again")
        if asyncio.current_task() is not self._main:
            raise UsageError(
                "flow.again was called in a concurrent task: call it in the orchestration's own task."
            )
        self._again = (value, self._text(value))

    @property
    def status(self) -> Any:
        return self.display.status

    @status.setter
    def status(self, value: Any) -> None:
        self._refuse_outside("flow.status")
        self.display.set_status(value, is_new=self.keeps or not self.replaying)

    @property
    def attributes(self) -> Mapping[str, str]:
        return MappingProxyType(self.display.attributes)

    @attributes.setter
    def attributes(self, value: Mapping[str, str]) -> None:
        self._refuse_outside("flow.attributes")
        self.display.set_attributes(value, is_new=self.keeps or not self.replaying)

    def _text(self, value: Any) -> str | None:
        return None if value is None else encode_body(value, self._limits)

    def _ask(
        self, command: Numbered, input: str | None, options: Options, waiter: Waiter | None, size: int = 0
    ) -> int:
        ask = self._asked(command, input, options, size, waits=waiter is not None)
        if ask is None:
            return 0
        self._room.took(ask.number, size, waits=waiter is not None)
        if waiter is not None:
            self._open[ask.number] = (ask, waiter)
        if self.keeps or not self.script.replaying:
            self.asks.append(ask)
        return ask.number

    def _asked(
        self, command: Numbered, input: str | None, options: Options, size: int, *, waits: bool
    ) -> Ask | None:
        """What the code asks for, with its number. None: it gets a wait that never ends."""
        if events._get_running_loop() is not self.loop:
            self._refuse_outside("A call")
        self._room.check(self.id, len(self._open) if waits else 0, size)
        try:
            return Ask(self.script.ask(command), command, input, options)
        except Stop:
            if not waits:
                raise
            # Code that catches everything would ask again at once and never stop.
            self.loop.stopped = self.script.changed is not None
            return None

    def _refuse_outside(self, what: str) -> None:
        if events._get_running_loop() is not self.loop:
            raise UsageError(
                f"{what} of instance {self.id!r} was used outside its own code: only its turns may."
            )

    # --- For people, and the end ---

    def waits(self) -> Waits:
        """What the code waits for."""
        signals = tuple(name for name, box in self._boxes.items() if box.is_awaited)
        return Waits(tuple(ask for ask, _ in self._open.values()), signals)

    def awaits_only(self, number: int) -> bool:
        """Whether it waits for this call and for nothing else but timers and signals, and no parent waits for it."""
        return self.parent is None and awaits_only(self._open, number)

    @property
    def sleeps_for(self) -> int:
        """Microseconds until it is woken, if it waits for a few timers alone; 0: it may be woken at any time."""
        is_listening = any(box.is_awaited for box in self._boxes.values())
        return 0 if is_listening else sleeps_for(self._open, self.loop.now)

    def close(self, budget: Budget) -> None:
        """Drop it: cancel its tasks with commands switched off, so that nothing is left to the garbage collector."""
        self.script.off = True
        self.script.expected = None
        self.loop.stopped = False
        try:
            if self.loop.is_alive:
                self._cancel_all(budget)
        finally:
            self.loop.forget_tasks()
            self._open.clear()
            self.inline.clear()
            self._boxes.clear()

    def _cancel_all(self, budget: Budget) -> None:
        self.loop.enter()
        try:
            budget.begin()
            try:
                self.loop.cancel_all(budget)
            finally:
                budget.end()
        except (OverBudget, Circles):
            budget.end()
        finally:
            self.loop.leave()
