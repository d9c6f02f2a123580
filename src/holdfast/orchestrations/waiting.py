"""What an instance waits for, read from its journal alone: operators need not have the code."""

from __future__ import annotations

from collections.abc import Iterable

from .journal import Answered, Call, Child, Entry, Fired, Once, Patched, Start, Timer, Withdraw

Waited = Call | Timer | Child


def open_commands(entries: Iterable[Entry]) -> dict[int, Waited]:
    """The calls, timers and children without an answer, by their number.

    >>> from .journal import Started
    >>> open_commands([Entry(Started("m", 0, None, "s"), (Call("charge", ""), Timer(5)))])
    {1: Call(name='charge', fingerprint=''), 2: Timer(due=5)}
    """
    found: dict[int, Waited] = {}
    number = 0
    for entry in entries:
        if isinstance(entry.arrival, Answered | Fired):
            found.pop(entry.arrival.number, None)
        for command in entry.asked:
            match command:
                case Call() | Timer() | Child():
                    number += 1
                    found[number] = command
                case Start() | Once() | Patched():
                    number += 1
                case Withdraw(number=gone):
                    found.pop(gone, None)
                case _:
                    pass
    return found
