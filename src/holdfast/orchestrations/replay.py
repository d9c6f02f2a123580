"""What the code asks for, in order: recorded when it is new, compared with the journal in replay.

In replay each command must be the one that the journal has at its place. Another one, one too many or one too few
means that the code has changed (or that it is not deterministic). That is kept here as a `CodeChanged`, and not only
raised: the code of an orchestration may catch whatever is raised in it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import assert_never

from .journal import (
    PYTHON,
    Again,
    Call,
    Cancel,
    Child,
    Command,
    Complete,
    Fail,
    Inline,
    Once,
    Patched,
    Start,
    Timer,
    Withdraw,
)

ENDINGS = (Complete, Fail, Cancel, Again)
CONTEXT = 3  # commands before the difference that a diff shows
LAST_MAX = 12  # commands that are held until all but those are dropped
OURS = str(Path(__file__).parent)
ASYNCIO = str(Path(sys.modules["asyncio"].__file__ or "").parent)


class Stop(BaseException):
    """Ends the code of an instance that may not go on: its code has changed, or it is dropped from memory.

    Not an Exception, so that `except Exception` in an orchestration does not catch it.
    """


@dataclass(frozen=True, slots=True)
class CodeChanged:
    """Where the code and the journal differ. `expected` is the journal's command, `found` the code's; None: nothing.

    `number` is the place of the command among all that the instance asked for, from 1. `line` is where the code asked.
    """

    number: int
    expected: Command | None
    found: Command | None
    line: str
    before: tuple[Command, ...]
    recorded_on: str
    now: int

    def __str__(self) -> str:
        """One line about it, without payloads."""
        where = f" ({self.line})" if self.line else ""
        if self.found is None:
            what = f"the code no longer asks for {words(self.expected, self.now)}, which the journal has"
        elif self.expected is None:
            what = (
                f"the code asks for {words(self.found, self.now)}{where}, where the journal has nothing more"
            )
        elif only_input_differs(self.expected, self.found):
            what = f"the code asks for {words(self.found, self.now)}{where} with another input than the journal has"
        else:
            found, expected = words(self.found, self.now), words(self.expected, self.now)
            what = f"the code asks for {found}{where}, where the journal has {expected}"
        return f"Command {self.number}: {what}.{self._python()} {REMEDY}"

    def _python(self) -> str:
        if self.recorded_on == PYTHON:
            return ""
        return (
            f" The journal was recorded on Python {self.recorded_on} and this is {PYTHON}: "
            "if the code is the same, that is the difference."
        )

    @property
    def diff(self) -> tuple[str, ...]:
        """The same as lines: what came before, `-` for the journal, `+` for the code."""
        lines = [f"  {words(each, self.now)}" for each in self.before]
        if self.expected is not None:
            lines.append(f"- {words(self.expected, self.now)}{self._input(self.expected)}")
        if self.found is not None:
            where = f"   {self.line}" if self.line else ""
            lines.append(f"+ {words(self.found, self.now)}{self._input(self.found)}{where}")
        return tuple(lines)

    def _input(self, command: Command) -> str:
        if self.expected is None or self.found is None or not only_input_differs(self.expected, self.found):
            return ""
        return f" with input {getattr(command, 'fingerprint', '')}"


REMEDY = "Put the old code back and resume, or give the new code a new version."


def words(command: Command | None, now: int) -> str:
    """A command in plain English.

    >>> words(Call("charge", ""), 0)
    'activity charge'
    """
    match command:
        case Inline(name=name):
            return f"inline activity {name}"
        case Call(name=name):
            return f"activity {name}"
        case Timer(due=due):
            return f"a timer of {_number((due - now) / 1_000_000)} s"
        case Child(name=name, id=id):
            return f"child orchestration {name} with id {id}"
        case Start(name=name, id=id):
            return f"a detached start of {name} with id {id}"
        case Once(name=name):
            return f"flow.once({name})"
        case Patched(name=name):
            return f"flow.patched({name!r})"
        case Withdraw(number=number):
            return f"the withdrawal of command {number}"
        case Complete():
            return "its end with a result"
        case Fail(failure=failure):
            return f"its failure with {failure.type}"
        case Cancel():
            return "its end by cancellation"
        case Again():
            return "flow.again (continue-as-new)"
        case None:
            return "nothing"
        case _:
            assert_never(command)


def _number(value: float) -> str:
    """
    >>> _number(2_592_000.0), _number(0.25)
    ('2,592,000', '0.25')
    """
    return f"{value:,.6f}".rstrip("0").rstrip(".")


def same(expected: Command, found: Command) -> bool:
    """Whether the code asks for what the journal has. Texts of errors and recorded values do not count."""
    if isinstance(expected, Call) and isinstance(found, Call):  # inline or not: it stays as it was recorded
        return (expected.name, expected.fingerprint) == (found.name, found.fingerprint)
    if type(expected) is not type(found):
        return False
    match expected, found:
        case (Once(), Once()):
            return expected.name == found.name
        case (Fail(), Fail()):
            return expected.failure.type == found.failure.type
    return expected == found


def only_input_differs(expected: Command, found: Command) -> bool:
    match expected, found:
        case (Call(), Call()):
            return expected.name == found.name
        case (Child(), Child()):
            return (expected.name, expected.id) == (found.name, found.id)
        case (Start(), Start()):
            return (expected.name, expected.id) == (found.name, found.id)
        case (Again(), Again()):
            return True
    return False


class Script:
    """The commands of one instance. `expected` is what the journal has for the current arrival; None: it is new."""

    __slots__ = ("_last", "_place", "asked", "changed", "count", "expected", "now", "number", "off", "python")

    def __init__(self) -> None:
        self.number = 0  # of the last numbered command
        self.count = 0  # of all commands
        self.asked: list[Command] = []  # for the current arrival
        self.expected: Sequence[Command] | None = None
        self.changed: CodeChanged | None = None
        self.off = False  # the instance is being dropped: nothing is asked for any more
        self.now = 0
        self.python = PYTHON  # that recorded the current arrival
        self._place = 0
        self._last: list[Command] = []

    @property
    def replaying(self) -> bool:
        return self.expected is not None

    def begin(self, expected: Sequence[Command] | None, now: int, python: str = PYTHON) -> None:
        """An arrival is about to reach the code."""
        self.expected, self._place, self.now, self.python = expected, 0, now, python
        self.asked = []

    def ask(self, command: Command) -> int:
        """The code asks for something that gets a number: the number, or Stop if the journal has something else."""
        self.note(command)
        self.number = number = self.number + 1
        return number

    def note(self, command: Command) -> None:
        """The same for what has no number: withdrawals and the end."""
        if self.off or self.changed is not None:
            raise Stop
        if self.expected is not None:
            at_place = self.expected[self._place] if self._place < len(self.expected) else None
            if at_place is None or (at_place != command and not same(at_place, command)):
                self._differs(at_place, command)
                raise Stop
            self._place += 1
        self.asked.append(command)
        self.count += 1
        last = self._last
        last.append(command)
        if len(last) > LAST_MAX:
            del last[:-CONTEXT]

    def recorded(self) -> Command | None:
        """In replay: what the journal has at the current place."""
        if self.expected is None or self._place >= len(self.expected):
            return None
        return self.expected[self._place]

    def finish(self) -> CodeChanged | None:
        """The code waits again, or has ended. In replay everything in the journal must have been asked for."""
        if self.expected is not None and self.changed is None and self._place < len(self.expected):
            self._differs(self.expected[self._place], None)
        return self.changed

    def stray(self, expected: Command | None) -> None:
        """The journal has an arrival for a command that the code does not wait for."""
        if self.changed is None:
            self._differs(expected, None)

    def _differs(self, expected: Command | None, found: Command | None) -> None:
        line = "" if found is None or isinstance(found, ENDINGS) else line_of(sys._getframe(1))
        before = tuple(self._last[-CONTEXT:])
        self.changed = CodeChanged(self.count + 1, expected, found, line, before, self.python, self.now)


def line_of(frame: FrameType | None) -> str:
    """The line of the user's own code that is running: the innermost that is neither ours nor asyncio's."""
    for _ in range(200):
        if frame is None:
            return ""
        name = frame.f_code.co_filename
        if not name.startswith((OURS, ASYNCIO, "<")):
            return f"{Path(name).name}:{frame.f_lineno} in {frame.f_code.co_name}"
        frame = frame.f_back
    return ""
