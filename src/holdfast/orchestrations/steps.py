"""The steps of an execution, read from its journal: what the code asked for, when, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, assert_never

from ..clock import from_micros
from .journal import (
    Again,
    Answered,
    Begun,
    Call,
    Cancel,
    Cancelled,
    Child,
    Complete,
    Entry,
    Fail,
    Fired,
    Once,
    Patched,
    Signalled,
    Start,
    Started,
    Timer,
    Withdraw,
    Woken,
)

Kind = Literal["start", "call", "timer", "child", "detached", "once", "patched", "signal", "cancel", "end"]
Became = Literal["open", "answered", "failed", "fired", "withdrawn", "recorded"]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that an execution asked for, or that reached it. `number` is that of the command: charge#3.

    `until` is when it ended; None: it is open. `due` is set for timers.
    """

    kind: Kind
    name: str
    since: datetime
    until: datetime | None = None
    became: Became = "recorded"
    number: int | None = None
    due: datetime | None = None
    child: str | None = None

    @property
    def label(self) -> str:
        return self.name if self.number is None else f"{self.name}#{self.number}"


def steps(entries: Iterable[Entry]) -> list[Step]:
    """The steps in the order in which they were asked for or arrived."""
    found: list[Step] = []
    places: dict[int, int] = {}  # number of a command: its place in `found`
    number = 0

    def ends(which: int, at: datetime, became: Became) -> None:
        if (place := places.get(which)) is not None:
            found[place] = replace(found[place], until=at, became=became)

    for entry in entries:
        at = from_micros(entry.arrival.at)
        match entry.arrival:
            case Started() | Begun():
                found.append(Step("start", "start", at, at))
            case Answered(number=which, failure=failure):
                ends(which, at, "answered" if failure is None else "failed")
            case Fired(number=which):
                ends(which, at, "fired")
            case Signalled(name=name):
                found.append(Step("signal", f"signal {name}", at, at))
            case Cancelled():
                found.append(Step("cancel", "cancel", at, at))
            case Woken():
                pass
            case _:
                assert_never(entry.arrival)
        for command in entry.asked:
            match command:
                case Withdraw(number=which):
                    ends(which, at, "withdrawn")
                    continue
                case Complete() | Fail() | Cancel() | Again():
                    found.append(_end(command, at))
                    continue
                case Call(name=name):
                    step = Step("call", name, at, None, "open")
                case Timer(due=due):
                    step = Step("timer", "timer", at, None, "open", due=from_micros(due))
                case Child(name=name, id=id):
                    step = Step("child", name, at, None, "open", child=id)
                case Start(name=name, id=id):
                    step = Step("detached", name, at, at, child=id)
                case Once(name=name):
                    step = Step("once", name, at, at)
                case Patched(name=name):
                    step = Step("patched", name, at, at)
                case _:
                    assert_never(command)
            number += 1
            places[number] = len(found)
            found.append(replace(step, number=number))
    return found


def _end(command: Complete | Fail | Cancel | Again, at: datetime) -> Step:
    match command:
        case Complete():
            return Step("end", "completed", at, at)
        case Fail(failure=failure):
            return Step("end", f"failed: {failure.type}", at, at, "failed")
        case Cancel():
            return Step("end", "cancelled", at, at)
        case Again():
            return Step("end", "continued as new", at, at)
        case _:
            assert_never(command)


@dataclass(frozen=True, slots=True)
class Fan:
    """Calls of one activity, counted: how far a fan-out has come."""

    name: str
    asked: int
    answered: int
    failed: int
    withdrawn: int

    @property
    def ended(self) -> int:
        return self.answered + self.failed + self.withdrawn


def fans(found: Iterable[Step], least: int) -> list[Fan]:
    """Activities and children that were called at least so often, in the order of their first call."""
    counts: dict[str, dict[str, int]] = {}
    for step in found:
        if step.kind in ("call", "child"):
            own = counts.setdefault(step.name, {})
            own[step.became] = own.get(step.became, 0) + 1
    return [
        Fan(name, total, own.get("answered", 0), own.get("failed", 0), own.get("withdrawn", 0))
        for name, own in counts.items()
        if (total := sum(own.values())) >= least
    ]
