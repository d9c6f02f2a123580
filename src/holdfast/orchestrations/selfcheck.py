"""The self-check in production: now and then a turn of an instance in memory is replayed from the journal.

Code that does not do the same each time is then noticed while its instance lives, and not by the crash that makes
another worker replay it.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..clock import Monotonic
from ..settings import Settings
from .declared import Program
from .hosting import catch_up
from .journal import Row
from .outcome import Overrun
from .replay import CodeChanged
from .turn import Instance

EVERY = 100  # turns of instances in memory, of one process


class Sampling:
    """Says which turns are checked: one in so many. 0: none."""

    def __init__(self, every: int = EVERY) -> None:
        self.every = every
        self.checked = self.differed = 0
        self._turns = 0
        self._owed = 0  # turns that were not run ahead, and are to be checked

    def passes(self) -> bool:
        """Whether the next turn may be run ahead, without being checked; else one that comes by a message is."""
        if not self._counts():
            return True
        self._owed += 1
        return False

    def is_due(self) -> bool:
        """Whether this turn is to be checked."""
        if self._owed:
            self._owed -= 1
            return True
        return self._counts()

    def _counts(self) -> bool:
        if self.every <= 0:
            return False
        self._turns += 1
        return self._turns % self.every == 0


async def difference(
    program: Program, id: str, execution: int, rows: Iterable[Row], limits: Settings, clock: Monotonic
) -> CodeChanged | Overrun | None:
    """Replay an execution with its last turn, in slices; None: the code does the same again."""
    instance = Instance(program, id, execution, limits=limits)
    try:
        instance.load(rows)
        await catch_up(instance, clock)
        return instance.trouble
    finally:
        instance.close()
