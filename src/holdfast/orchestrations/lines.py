"""The journal in words: a line for each event, with what the code asked for because of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from ..clock import from_micros
from .journal import (
    Answered,
    Arrival,
    Begun,
    Call,
    Cancelled,
    Child,
    Command,
    Fired,
    Once,
    Patched,
    Row,
    Signalled,
    Start,
    Started,
    Timer,
    Withdraw,
    Woken,
)
from .replay import words


@dataclass(frozen=True, slots=True)
class JournalLine:
    """An event. `value` is the JSON that it brought: an input, an answer, the body of a signal."""

    execution: int
    turn: int
    at: datetime
    event: str
    asked: tuple[str, ...]
    value: str | None
    message: str


def lines_of(rows: Iterable[Row], is_open: bool) -> Iterator[JournalLine]:
    """`is_open`: with the values, and the texts of failures."""
    names: dict[int, str] = {}
    for row in rows:
        for entry in row.entries:
            event, value = _event(entry.arrival, names, is_open)
            asked = tuple(_asked(command, entry.arrival.at, names) for command in entry.asked)
            at = from_micros(entry.arrival.at)
            yield JournalLine(
                row.execution, row.turn, at, event, asked, value if is_open else None, entry.arrival.message
            )


def _asked(command: Command, now: int, names: dict[int, str]) -> str:
    """A command in words, with its number; the number is remembered for what comes back."""
    match command:
        case Call(name=name) | Child(name=name):
            pass
        case Timer():
            name = "timer"
        case Start() | Once() | Patched():
            name = words(command, now)
        case Withdraw(number=number):
            return f"withdraws {names.get(number, f'#{number}')}"
        case _:
            return words(command, now)
    number = len(names) + 1
    names[number] = f"{name}#{number}"
    return f"{words(command, now)} #{number}"


def _event(arrival: Arrival, names: dict[int, str], is_open: bool) -> tuple[str, str | None]:
    match arrival:
        case Started(input=input):
            return "started", input
        case Begun():
            return "started again", None
        case Answered(number=number, value=value, failure=None):
            return f"{names.get(number, f'#{number}')} answered", value
        case Answered(number=number, failure=failure):
            assert failure is not None
            what = str(failure) if is_open else failure.type
            return f"{names.get(number, f'#{number}')} failed: {what}", None
        case Fired(number=number):
            return f"{names.get(number, f'#{number}')} fired", None
        case Signalled(name=name, body=body):
            return f"signal {name}", body
        case Cancelled(why=why):
            return f"cancelled: {why}" if why else "cancelled", None
        case Woken():
            return "woken", None
        case _:
            assert_never(arrival)
