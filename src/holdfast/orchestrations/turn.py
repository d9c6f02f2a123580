"""One instance in memory, and its turns: (journal, arrivals, now) in, one journal row and what it asks for out.

Nothing here reads a clock, talks to a store or draws chance. `play` is the whole as one function. `Instance` is the
same in pieces, for an engine that keeps instances in memory between turns: `load` and `catch_up` replay a journal,
`turn` takes new arrivals, `close` drops it. One arrival at a time reaches the code, and the loop is drained after
each, so it makes no difference to the code how arrivals are spread over turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from uuid import UUID

from msgspec import structs

from ..clock import micros
from ..errors import UsageError
from ..settings import Settings
from .budget import Budget, OverBudget, Unlimited
from .code import Code
from .declared import Program
from .host import Inlined
from .journal import (
    PYTHON,
    Answered,
    Arrival,
    Begun,
    Carried,
    Entry,
    Fired,
    JournalUnreadable,
    Rewound,
    Row,
    Signalled,
    Tried,
    encode,
)
from .loop import Circles
from .outcome import Ask, End, Overrun, Turn, Waits
from .replay import CodeChanged

DEFAULTS = Settings()

Answers = Callable[[Ask], Answered | None]  # runs an inline activity, if it answers at once


class Instance:
    """A live orchestration. See the module; not for use from two threads at once."""

    __slots__ = (
        "_budget", "_code", "_current", "_halfway", "_is_settled", "_kept", "_next", "_overrun", "_parked", "_part",
        "_rewound", "_rows", "_seen", "_stopped", "_taken", "_unparked", "entries", "execution", "id", "mark", "size",
        "tried", "turns",
    )  # fmt: skip

    def __init__(
        self,
        program: Program,
        id: str,
        execution: int = 0,
        *,
        limits: Settings | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.id, self.execution = id, execution
        self.turns = 0  # the number of the last turn that is whole
        self.mark = ""  # the engine's: who stored the last turn
        self.entries = 0
        self.size = 0  # bytes of the journal
        self._code = Code(program, id, execution, limits or DEFAULTS)
        self._budget = budget or Unlimited()
        self._seen: set[str] = set()  # messages
        self._part = 0
        self._rows: list[tuple[Entry, str]] = []  # to be replayed
        self._next = 0
        self._halfway = False
        self._rewound: Rewound | None = None  # that no settled turn has followed yet
        self._overrun: Overrun | None = None
        self._stopped: BaseException | None = None  # what stopped a turn from outside
        self._taken = _Taken()  # since the last part
        self._current: Arrival  # what the code has received last
        self._is_settled = True  # the next arrival begins a turn
        self._kept = 0  # entries of the journal whose turns are settled
        self.tried: dict[int, Tried] = {}  # inline activities that failed and are open, by number
        self._parked: dict[int, Tried] = {}  # of those, the ones that wait since this turn
        self._unparked: list[Tried] = []  # that waited, and were withdrawn in this turn

    @property
    def ended(self) -> End | None:
        return self._code.ended

    @property
    def trouble(self) -> CodeChanged | Overrun | None:
        """Why it cannot go on: its code differs from the journal, or runs in circles."""
        return self._code.script.changed or self._overrun

    def waits(self) -> Waits:
        """What the code waits for, for people."""
        return self._code.waits()

    def awaits_only(self, number: int) -> bool:
        """Whether it waits for this call and for nothing else but timers and signals, and no parent waits for it."""
        if self.is_behind or not self._is_settled or self.tried or self._rewound is not None:
            return False
        return self.trouble is None and self._code.awaits_only(number)

    @property
    def queue(self) -> str:
        return self._code.program.queue

    def watched_by(self, budget: Budget) -> None:
        """It is about to run in a thread that has this budget."""
        self._budget = budget

    def ahead(self, arrival: Arrival, now: datetime) -> Turn | None:
        """The turn that this arrival alone makes, run before it is known that it is the next. None: close the instance.

        It is none if something would be done that cannot be taken back: `flow.once` stops it, and inline activities
        are not run.
        """
        self._code.runs_ahead = True
        trouble = self.take((arrival,))
        self._code.runs_ahead = False
        if trouble is not None or self._code.used_once or self.has_inline:
            return None
        return self.part(now)

    @property
    def sleeps_for(self) -> int:
        """Microseconds until it is woken, if it waits for a few timers alone; 0: it may be woken at any time."""
        return self._code.sleeps_for

    def close(self) -> None:
        """Drop it: cancel its tasks with commands switched off, so that nothing is left to the garbage collector."""
        self._forget_rows()
        self._code.close(self._budget)

    # --- Replay ---

    def load(self, rows: Iterable[Row], size: int = 0) -> None:
        """Take the journal of this execution, in its order. `catch_up` replays it."""
        settled = self.tried
        for row in rows:
            whole = row.turn == self.turns + 1 and row.part == self._part
            if row.execution != self.execution or (
                not whole and (row.turn, row.part, self.entries) != (0, 0, 0)
            ):
                raise JournalUnreadable(
                    f"The journal of instance {self.id!r} has a gap: execution {self.execution}, "
                    f"turn {self.turns + 1}, part {self._part} was expected and "
                    f"{row.execution}, {row.turn}, {row.part} found. "
                    "Restore it, or terminate the instance."
                )
            if row.begin is not None:
                self._code.begin = row.begin
            self._rows += [(entry, row.python) for entry in row.entries]
            self._count(row)
            self.tried = {each.number: each for each in row.tried} if row.tried else {}
            if row.settles:
                self._kept, settled, self._rewound = len(self._rows), self.tried, row.rewound
        self.size += size
        self._code.asks_again = self._rewound is not None
        # What parts say of attempts is not sent, as long as their turn is not settled.
        self._parked = {
            n: each for n, each in self.tried.items() if each.due is not None and settled.get(n) != each
        }
        self._unparked = [each for n, each in settled.items() if n not in self.tried]

    @property
    def is_behind(self) -> bool:
        """Whether what was loaded is not replayed yet."""
        return bool(self._rows or self._halfway)

    def catch_up(self, pause: Callable[[], bool] | None = None) -> bool:
        """Replay what was loaded; False: `pause` said to make room for others, call it again."""
        if not self.is_behind:
            return True
        self._code.loop.enter()
        try:
            while self._rows or self._halfway:
                if not self._halfway:
                    entry, python = self._rows[self._next]
                    if self._next == self._kept:
                        self._code.begin_turn()
                        self._code.keeps = True
                        self._ask_again()
                    self._next += 1
                    self._halfway = True
                    self._code.deliver(entry.arrival, entry.asked, python)
                if not self._code.loop.drain(pause):
                    return False
                self._halfway = False
                if self._code.finish() is not None or self._next == len(self._rows):
                    self._forget_rows()
                elif pause is not None and pause():
                    return False
        except Circles as error:
            self._overrun = Overrun(str(error))
            self._forget_rows()
            self._halfway = False
        finally:
            self._code.loop.leave()
        return True

    def _forget_rows(self) -> None:
        self._rows, self._next, self._kept = [], 0, 0
        self._code.keeps = False

    # --- Turns ---

    def turn(
        self, arrivals: Sequence[Arrival], now: datetime, *, more: bool = False
    ) -> Turn | CodeChanged | Overrun:
        """Give new arrivals to the code. `more`: the turn goes on (inline activities), so this is one part of it.

        After anything but a Turn the instance is of no use: close it.
        """
        return self.take(arrivals) or self.part(now, final=not more)

    def take(
        self, arrivals: Sequence[Arrival], answers: Answers | None = None
    ) -> CodeChanged | Overrun | None:
        """Give new arrivals to the code; `part` holds what came of it. Not None: close the instance.

        `answers` runs an inline activity at once, if it can: the code goes on with its answer.
        """
        if self._rows or self._halfway:
            raise UsageError(
                f"Instance {self.id!r} has a journal that is not replayed yet: call catch_up first."
            )
        if (broken := self.trouble) is not None:
            return broken
        code, budget = self._code, self._budget
        if self._is_settled:
            code.begin_turn()
            self._is_settled = False
        if answers is not None:
            code.at_once = partial(self._at_once, answers)
        code.loop.enter()
        try:
            budget.begin()
            try:
                self._take(arrivals, self._taken)
            finally:
                budget.end()
        except OverBudget:
            budget.end()
        except Circles as error:
            self._overrun = Overrun(str(error))
        finally:
            code.loop.leave()
            code.at_once = None
        if self._stopped is not None:
            raise self._stopped
        if budget.spent:
            self._overrun = Overrun(
                "The code of the turn ran longer than its budget allows; move what takes long to activities."
            )
        return code.script.changed or self._overrun

    def _take(self, arrivals: Sequence[Arrival], taken: _Taken) -> None:
        code = self._code
        if self._rewound is not None or code.begin is not None:
            rewound = self._ask_again()  # before anything new is asked for
            if code.begin is not None:
                self._take_one(Begun("", code.begin.at), taken)
            self._take_again(rewound, taken)
        for place, arrival in enumerate(arrivals):
            if code.script.changed is not None or self._budget.spent:
                return
            if arrival.message and arrival.message in self._seen:
                taken.duplicates.append(arrival.message)
            elif code.ended is not None and code.ended.state == "continued":
                taken.unread = tuple(arrivals[place:])
                return
            elif not code.is_wanted(arrival):
                self._try_again(arrival)
                if arrival.message:
                    taken.late.append(arrival.message)
                    self._seen.add(arrival.message)
            else:
                self._take_one(arrival, taken)

    def _ask_again(self) -> Sequence[Arrival]:
        """The first turn after a rewind begins: ask for what is open. Returns what reaches the code again."""
        if self._rewound is None:
            return ()
        arrivals, self._rewound = self._rewound.arrivals, None
        self._code.ask_again({each.number for each in arrivals if isinstance(each, Answered | Fired)})
        return arrivals

    def _take_again(self, arrivals: Sequence[Arrival], taken: _Taken) -> None:
        """After a rewind: what had reached the code before, and still holds."""
        for arrival in arrivals:
            if self._code.script.changed is not None or self._budget.spent:
                return
            if self._code.is_wanted(arrival):
                self._take_one(arrival, taken)
            elif isinstance(arrival, Signalled):  # behind a continue-as-new
                taken.left.append(Carried(arrival.name, arrival.body))

    def _take_one(self, arrival: Arrival, taken: _Taken) -> None:
        code = self._code
        self._current = arrival
        code.deliver(arrival, None, PYTHON)
        code.loop.drain(None, self._budget)
        code.finish()
        taken.entries.append(Entry(self._current, tuple(code.script.asked)))
        self._seen.add(arrival.message)

    def _at_once(self, answers: Answers, ask: Ask) -> Answered | None:
        """The answer of an inline activity while the code waits for it; None: it comes later.

        The activity runs outside the loop and the budget of the code.
        """
        code, budget = self._code, self._budget
        # If the code has caught what was to end it, a new beginning would forget that. That may happen just now, too.
        was_spent = budget.spent
        if not was_spent:
            budget.end()
        if was_spent or budget.spent:
            return None
        code.loop.step_out()
        try:
            answered = answers(ask)
        except BaseException as error:  # it ends the turn, and is not the code's to catch
            self._stopped, code.loop.stopped = error, True
            answered = None
        finally:
            code.loop.step_in()
            budget.begin()
        if answered is not None:
            self._taken.entries.append(Entry(self._current, tuple(code.script.asked)))
            self._current = answered
            code.goes_on(answered)
        return answered

    def part(self, now: datetime, *, final: bool = True, goes_on: bool = False) -> Turn:
        """What came of the arrivals since the last part. `goes_on`: inline activities are left for the next turn."""
        taken, self._taken = self._taken, _Taken()
        parked, unparked = self._tries(final)
        row = Row(
            id=self.id, execution=self.execution, turn=self.turns + 1, part=self._part, at=micros(now),
            entries=tuple(taken.entries), late=tuple(taken.late), final=final,
            tried=tuple(self.tried.values()) if self.tried else (),
        )  # fmt: skip
        self._count(row)
        text = encode(row)
        self.size += len(text)
        if not final:  # all else goes with the end of the turn
            return Turn(row=row, text=text, asks=(), withdrawn=(), entries=self.entries, size=self.size)
        code = self._code
        asks, withdrawn = self._sent()
        return Turn(
            row=row, text=text, asks=asks, withdrawn=withdrawn,
            end=taken.carrying(self.ended) if taken.entries else None, status=code.display.status_text,
            attributes=code.display.attributes_text, unread=taken.unread, duplicates=tuple(taken.duplicates),
            entries=self.entries, size=self.size, used_once=code.used_once, swallowed=code.swallowed,
            parked=parked, unparked=unparked, goes_on=goes_on,
        )  # fmt: skip

    def _sent(self) -> tuple[tuple[Ask, ...], tuple[Ask, ...]]:
        """What the turn asked for and what it withdrew, without what it did both to."""
        code = self._code
        asks = [each for each in code.asks if each.is_sent]
        if not code.withdrawn:
            return tuple(asks), ()
        gone = {each.number for each in code.withdrawn}
        asked = {each.number for each in code.asks}
        return (
            tuple(each for each in asks if each.number not in gone),
            tuple(each for each in code.withdrawn if each.number not in asked),
        )

    def _count(self, row: Row) -> None:
        self.entries += len(row.entries)
        self._seen.update(row.consumed)
        if row.final:
            self.turns, self._part = row.turn, 0
            self._is_settled = row.settles
        else:
            self._part = row.part + 1
            self._is_settled = False

    # --- Inline activities ---

    @property
    def has_inline(self) -> bool:
        """Whether activities are to be run inside the turn, now."""
        return bool(self._code.inline) and bool(self.inline())

    @property
    def only_inline(self) -> Ask | None:
        """The activity that is to be run inside the turn now, if it is the only one and has not failed before."""
        inline = self._code.inline
        return next(iter(inline.values())) if len(inline) == 1 and not self.tried else None

    def inline(self) -> list[Ask]:
        """The activities that are to be run inside the turn, now."""
        if not self.tried:
            return [*self._code.inline.values()]
        waits = [each.number for each in self.tried.values() if each.due is not None]
        return [ask for number, ask in self._code.inline.items() if number not in waits]

    @property
    def has_news(self) -> bool:
        """Whether anything arrived since the last part."""
        return bool(self._taken.entries or self._taken.late)

    def grade(self, number: int) -> Inlined:
        """How the result of an inline activity is recorded: `Options.inline`."""
        ask = self._code.inline.get(number)
        return False if ask is None else ask.options.inline

    def park(self, tried: Tried) -> None:
        """An inline activity waits for its next attempt: a timer wakes the instance, and until then it has no turn."""
        self.tried[tried.number] = tried
        self._parked[tried.number] = tried

    def _try_again(self, arrival: Arrival) -> None:
        """The timer of an attempt is due, which is nothing to the code."""
        if not isinstance(arrival, Fired) or arrival.execution != self.execution:
            return
        if (tried := self.tried.get(arrival.number)) is not None:
            self.tried[tried.number] = Tried(tried.number, tried.attempts)
            self._parked.pop(tried.number, None)

    def _tries(self, final: bool) -> tuple[tuple[Tried, ...], tuple[UUID, ...]]:
        """Which wait for an attempt since this turn; the messages of those that do not wait any more."""
        if not (self.tried or self._parked or self._unparked):
            return (), ()
        gone = [each for number, each in self.tried.items() if number not in self._code.inline]
        for each in gone:
            del self.tried[each.number]
            if self._parked.pop(each.number, None) is None and each.due is not None:
                self._unparked.append(each)
        if not final or not (self._parked or self._unparked):
            return (), ()
        parked, self._parked = tuple(self._parked.values()), {}
        unparked, self._unparked = self._unparked, []
        return parked, tuple(each.message_id(self.id, self.execution) for each in unparked)


class _Taken:
    """What became of the arrivals of one turn."""

    __slots__ = ("duplicates", "entries", "late", "left", "unread")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.late: list[str] = []
        self.duplicates: list[str] = []
        self.unread: tuple[Arrival, ...] = ()
        self.left: list[Carried] = []  # signals of a rewind that nobody has seen

    def carrying(self, end: End | None) -> End | None:
        """The end, if it is a continue-as-new, with the signals that are left for the next execution."""
        if not self.left or end is None or end.begin is None or end.begin.begin is None:
            return end
        begin = end.begin.begin
        carried = structs.replace(begin, carried=(*begin.carried, *self.left))
        return replace(end, begin=structs.replace(end.begin, begin=carried))


def play(
    program: Program,
    id: str,
    execution: int,
    journal: Iterable[Row],
    arrivals: Sequence[Arrival],
    now: datetime,
) -> Turn | CodeChanged | Overrun:
    """One turn from the journal alone: the same whenever and wherever it is run."""
    instance = Instance(program, id, execution)
    try:
        instance.load(journal)
        instance.catch_up()
        return instance.turn(arrivals, now)
    finally:
        instance.close()
