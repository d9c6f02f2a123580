"""Does the code here still ask for what a journal has? Replay in memory: nothing is stored, no activity runs."""

from __future__ import annotations

from collections.abc import Iterable

from ..settings import Settings
from .declared import Program
from .journal import Row
from .outcome import Overrun
from .replay import CodeChanged
from .turn import Instance


def replayed(
    program: Program, id: str, execution: int, rows: Iterable[Row], limits: Settings | None = None
) -> CodeChanged | Overrun | None:
    """Replay an execution from its beginning to its last row; None: the code does the same.

    flow.once gives what is recorded, so nothing outside is touched. A gap in the journal is a JournalUnreadable.
    """
    instance = Instance(program, id, execution, limits=limits)
    try:
        instance.load(rows)
        instance.catch_up()
        return instance.trouble
    finally:
        instance.close()
