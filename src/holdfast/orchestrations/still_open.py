"""What an instance waits for, by the commands whose answers it has not had."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .journal import Call, Timer
from .outcome import Ask

FEW_TIMERS = 16

Open = Mapping[int, tuple[Ask, Any]]  # by their numbers


def awaits_only(open: Open, number: int) -> bool:
    """Whether this is a call by queue, and all others are timers."""
    found = open.get(number)
    if found is None or type(found[0].command) is not Call:
        return False
    others = (ask for n, (ask, _) in open.items() if n != number)
    return len(open) == 1 or all(isinstance(each.command, Timer) for each in others)


def sleeps_for(open: Open, now: int) -> int:
    """Microseconds until the first of a few timers is due; 0 if there are others, or something else."""
    if not 0 < len(open) <= FEW_TIMERS:
        return 0
    dues = [ask.command.due for ask, _ in open.values() if isinstance(ask.command, Timer)]
    return max(0, min(dues) - now) if len(dues) == len(open) else 0
