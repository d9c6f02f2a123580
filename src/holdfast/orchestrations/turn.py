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

from msgspec import structs

from ..clock import micros
from ..errors import UsageError
from ..settings import Settings
from .budget import Budget, OverBudget, Unlimited
from .code import Code
from .declared import Program
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
    encode,
)
from .loop import Circles
from .outcome import End, Overrun, Turn, Waits
from .replay import CodeChanged

DEFAULTS = Settings()


class Instance:
    """A live orchestration. See the module; not for use from two threads at once."""

    __slots__ = (
        "_budget", "_code", "_halfway", "_next", "_overrun", "_part", "_rewound", "_rows", "_seen",
        "entries", "execution", "id", "mark", "size", "turns",
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
        self._rewound: Rewound | None = None  # that no turn has followed yet
        self._overrun: Overrun | None = None

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

    def close(self) -> None:
        """Drop it: cancel its tasks with commands switched off, so that nothing is left to the garbage collector."""
        self._forget_rows()
        self._code.close(self._budget)

    # --- Replay ---

    def load(self, rows: Iterable[Row], size: int = 0) -> None:
        """Take the journal of this execution, in its order. `catch_up` replays it."""
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
            self._rewound = row.rewound
            self._rows.extend((entry, row.python) for entry in row.entries)
            self._count(row)
        self.size += size

    def catch_up(self, pause: Callable[[], bool] | None = None) -> bool:
        """Replay what was loaded; False: `pause` said to make room for others, call it again."""
        if not self._rows and not self._halfway:
            return True
        self._code.loop.enter()
        try:
            while self._rows or self._halfway:
                if not self._halfway:
                    entry, python = self._rows[self._next]
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
        self._rows, self._next = [], 0

    # --- Turns ---

    def turn(
        self, arrivals: Sequence[Arrival], now: datetime, *, more: bool = False
    ) -> Turn | CodeChanged | Overrun:
        """Give new arrivals to the code. `more`: the turn goes on (inline activities), so this is one part of it.

        After anything but a Turn the instance is of no use: close it.
        """
        if self._rows or self._halfway:
            raise UsageError(
                f"Instance {self.id!r} has a journal that is not replayed yet: call catch_up first."
            )
        if (broken := self.trouble) is not None:
            return broken
        self._code.begin_turn()
        taken = _Taken()
        self._code.loop.enter()
        try:
            self._budget.begin()
            try:
                self._take(arrivals, taken)
            finally:
                self._budget.end()
        except OverBudget:
            self._budget.end()
        except Circles as error:
            self._overrun = Overrun(str(error))
        finally:
            self._code.loop.leave()
        if self._budget.spent:
            self._overrun = Overrun(
                "The code of the turn ran longer than its budget allows; move what takes long to activities."
            )
        return self._code.script.changed or self._overrun or self._result(taken, micros(now), not more)

    def _take(self, arrivals: Sequence[Arrival], taken: _Taken) -> None:
        rewound = () if self._rewound is None else self._rewound.arrivals
        if self._rewound is not None:  # before anything new is asked for
            self._code.ask_again({each.number for each in rewound if isinstance(each, Answered | Fired)})
            self._rewound = None
        if self._code.begin is not None:
            self._take_one(Begun("", self._code.begin.at), taken)
        self._take_again(rewound, taken)
        for place, arrival in enumerate(arrivals):
            if self._code.script.changed is not None or self._budget.spent:
                return
            if arrival.message and arrival.message in self._seen:
                taken.duplicates.append(arrival.message)
            elif self.ended is not None and self.ended.state == "continued":
                taken.unread = tuple(arrivals[place:])
                return
            elif not self._code.is_wanted(arrival):
                if arrival.message:
                    taken.late.append(arrival.message)
                    self._seen.add(arrival.message)
            else:
                self._take_one(arrival, taken)

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
        self._code.deliver(arrival, None, PYTHON)
        self._code.loop.drain(None, self._budget)
        self._code.finish()
        taken.entries.append(Entry(arrival, tuple(self._code.script.asked)))
        self._seen.add(arrival.message)

    def _result(self, taken: _Taken, now: int, final: bool) -> Turn:
        row = Row(
            id=self.id, execution=self.execution, turn=self.turns + 1, part=self._part, at=now,
            entries=tuple(taken.entries), late=tuple(taken.late), final=final,
        )  # fmt: skip
        self._count(row)
        text = encode(row)
        self.size += len(text)
        gone = {each.number for each in self._code.withdrawn}
        asked = {each.number for each in self._code.asks}
        end = taken.carrying(self.ended) if taken.entries else None
        return Turn(
            row=row, text=text,
            asks=tuple(each for each in self._code.asks if each.is_sent and each.number not in gone),
            withdrawn=tuple(each for each in self._code.withdrawn if each.number not in asked),
            end=end, status=self._code.status_text,
            attributes=self._code.attributes_text, unread=taken.unread, duplicates=tuple(taken.duplicates),
            entries=self.entries, size=self.size, used_once=self._code.used_once, swallowed=self._code.swallowed,
        )  # fmt: skip

    def _count(self, row: Row) -> None:
        self.entries += len(row.entries)
        self._seen.update(row.consumed)
        if row.final:
            self.turns, self._part = row.turn, 0
        else:
            self._part = row.part + 1


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
