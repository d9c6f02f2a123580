"""Rewind: the beginning of a journal, copied as that of the next execution. Values only.

The code is replayed up to the cut and goes on from there. What it waits for at the cut is asked again by the first turn
of the new execution, because only the code knows the inputs. What had arrived behind the cut and still holds is
delivered again: signals, answers of calls that were open at the cut, timers that had fired. Failures are not: those
calls are asked again. Children that were open at the cut go on and are not started again; they get the new address.
Back to the start, nothing is kept but the input and the signals.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from ..errors import UsageError
from .journal import (
    Again,
    Answered,
    Arrival,
    Begun,
    Cancel,
    Child,
    Complete,
    Entry,
    Fail,
    Fired,
    Numbered,
    Rewound,
    Row,
    Signalled,
    Started,
    encode,
)
from .steps import Step, steps
from .waiting import Waited, open_commands

ENDINGS = (Complete, Fail, Cancel, Again)
EFFECTS = ("call", "child", "detached", "once")  # what code asks for that others notice
RECORDED = ("once", "patched", "detached")  # steps that nobody waits for
POINT = re.compile(r"(?:(?P<name>.*)#)?(?P<number>\d{1,9})")


@dataclass(frozen=True, slots=True)
class Point:
    """Where to go back to. `is_after`: the answer of that command is kept, and reaches the code again."""

    number: int  # 0: the start
    label: str
    is_after: bool = False


class Ended(NamedTuple):
    """A child that has completed: when, in microseconds, and with what, as JSON text."""

    at: int
    value: str | None


@dataclass(frozen=True, slots=True)
class Rewinding:
    """What a rewind would do. `rows` are the journal of the next execution; the last one says what comes again."""

    point: Point
    rows: tuple[Row, ...]
    kept: int  # events
    dropped: int
    asked_again: tuple[Step, ...]
    delivered_again: tuple[Arrival, ...]
    repeats: tuple[Step, ...]  # effects that may happen a second time
    adopted: dict[int, Child]  # children that go on, by their numbers
    given_up: dict[int, Waited]  # open now and asked for behind the cut, or to be asked again

    @property
    def size(self) -> int:
        return sum(len(encode(each)) for each in self.rows)


def point_of(entries: Sequence[Entry], text: str, *, is_after: bool) -> Point:
    """`charge#3`, `3` or `start`; or UsageError."""
    if text == "start" and not is_after:
        return Point(0, "start")
    found = {each.number: each for each in steps(entries) if each.number is not None}
    match = POINT.fullmatch(text)
    step = None if match is None else found.get(int(match["number"]))
    if step is None or match is None or (match["name"] is not None and match["name"] != step.name):
        some = ", ".join(each.label for each in list(found.values())[-5:]) or "none"
        raise UsageError(f"There is no step {text!r} in this execution. Its last steps: {some}; or `start`.")
    assert step.number is not None
    if step.kind in RECORDED and not is_after:
        raise UsageError(
            f"{step.label} was recorded at once, with what came before it, and is not asked for again by itself: "
            f"{_before(entries, step.number, found)}."
        )
    return Point(step.number, step.label, is_after)


def _before(entries: Sequence[Entry], number: int, found: Mapping[int, Step]) -> str:
    """Where to go back to instead, so that a recorded step happens again."""
    count = 0
    for entry in entries:
        count += sum(isinstance(each, Numbered) for each in entry.asked)
        if count >= number:
            arrival = entry.arrival
            if isinstance(arrival, Answered | Fired) and arrival.number in found:
                return f"go back after {found[arrival.number].label}"
            return (
                "go back to the start" if isinstance(arrival, Started | Begun) else "choose an earlier step"
            )
    return "choose an earlier step"


def rewinding(
    rows: Sequence[Row],
    point: Point,
    *,
    keeps_signals: bool = True,
    children: Mapping[str, Ended] | None = None,
) -> Rewinding:
    """The journal of an execution, cut at a point; or UsageError. `children`: the completed ones, by their ids."""
    entries = [entry for row in rows for entry in row.entries]
    cut = _cut(entries, point)
    if cut and any(isinstance(each, ENDINGS) for each in entries[cut - 1].asked):
        raise UsageError(
            f"The code ended right after it asked for {point.label}, without waiting: "
            "choose an earlier step, or the start."
        )
    open_at_cut = open_commands(entries[:cut])
    execution = rows[0].execution + 1
    adopted = {number: each for number, each in open_at_cut.items() if isinstance(each, Child)}
    waiting = [Entry(each) for each in _undelivered(rows)]
    delivered = tuple(_delivered([*entries[cut:], *waiting], open_at_cut, point, execution, keeps_signals))
    answered = {each.number for each in delivered if isinstance(each, Answered | Fired)}
    for number, child in adopted.items():
        if number not in answered and (end := (children or {}).get(child.id)) is not None:
            delivered = (*delivered, Answered("", end.at, execution, number, end.value))
            answered.add(number)
    asked_again = open_at_cut.keys() - answered - adopted.keys()
    all_steps = steps(entries)
    last = max((each.number for each in steps(entries[:cut]) if each.number is not None), default=0)
    repeats = [
        each
        for each in all_steps
        if each.kind in EFFECTS
        and each.number is not None
        and (each.number > last or each.number in asked_again)
    ]
    still_open = open_commands(entries)
    return Rewinding(
        point, _copied(rows, cut, execution, delivered), cut, len(entries) - cut,
        tuple(each for each in all_steps if each.number in asked_again), delivered, tuple(repeats), adopted,
        {number: each for number, each in still_open.items() if number not in adopted},
    )  # fmt: skip


def _undelivered(rows: Sequence[Row]) -> tuple[Arrival, ...]:
    """What an earlier rewind delivers again, if no turn has followed it yet."""
    return () if rows[-1].rewound is None else rows[-1].rewound.arrivals


def _cut(entries: Sequence[Entry], point: Point) -> int:
    """How many entries are kept. Back to the start, none is: the start itself reaches the code again."""
    if point.number == 0:
        return 0
    number = 0
    for place, entry in enumerate(entries):
        arrival = entry.arrival
        if point.is_after and isinstance(arrival, Answered | Fired) and arrival.number == point.number:
            return place
        number += sum(isinstance(each, Numbered) for each in entry.asked)
        if not point.is_after and number >= point.number:
            return place + 1
    raise UsageError(f"{point.label} has no answer that could be kept: go back to it, not after it.")


def _delivered(
    behind: Iterable[Entry], open_at_cut: dict[int, Waited], point: Point, execution: int, keeps_signals: bool
) -> Iterable[Arrival]:
    """What had arrived behind the cut and reaches the code again, in its order. It is in no message any more."""
    for entry in behind:
        match entry.arrival:
            case Signalled() as signal if keeps_signals:
                yield replace(signal, message="")
            case Started() as start:
                yield replace(start, message="")
            case Answered(number=number) | Fired(number=number) as answer if number in open_at_cut:
                is_kept = point.number > 0 and not (
                    isinstance(answer, Answered) and answer.failure is not None
                )
                if point.is_after if number == point.number else is_kept:
                    yield replace(answer, message="", execution=execution)
            case _:
                pass


def _copied(rows: Sequence[Row], cut: int, execution: int, again: tuple[Arrival, ...]) -> tuple[Row, ...]:
    """Rows with the first entries, as turns of their own: where rows begin and end means nothing to replay."""
    found: list[Row] = []
    if rows[0].turn > 0 and cut == 0:
        found.append(Row(id=rows[0].id, execution=execution, turn=0, at=rows[0].at))
    for row in rows:
        kept = row.entries[:cut]
        if not kept and row.begin is None:
            continue
        turn = 0 if row.turn == 0 else max((each.turn for each in found), default=0) + 1
        found.append(
            replace(
                row,
                execution=execution,
                turn=turn,
                part=0,
                entries=kept,
                late=(),
                final=True,
                tried=(),
                rewound=None,
            )
        )
        cut -= len(kept)
    found[-1] = replace(found[-1], rewound=Rewound(rows[0].execution, again))
    return tuple(found)
