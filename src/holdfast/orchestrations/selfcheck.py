"""The self-check in production: now and then a turn of an instance in memory is replayed from the journal.

Code that does not do the same each time is then noticed while its instance lives, and not by the crash that makes
another worker replay it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..bodies.keys import Unopened
from ..clock import Monotonic
from ..errors import StoreUnavailable
from ..settings import Settings
from ..store.plans import instances
from ..store.plans.instances import Stand
from ..telemetry.logs import Log
from .declared import Program
from .hosting import catch_up
from .journal import JournalUnreadable, Row
from .leaving import opened
from .outcome import Overrun, Turn
from .replay import CodeChanged
from .turn import Instance

if TYPE_CHECKING:
    from .place import Place

log = Log("holdfast.orchestrations")

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


async def differs(place: Place, program: Program, turn: Turn, stand: Stand) -> bool:
    """Whether this turn of an instance in memory is one to be checked, and replay does something else."""
    sampling, id = place.memory.sampling, turn.row.id
    if not sampling.is_due():
        return False
    try:
        stored = (await place.store().arun(instances.journals([id])))[id]
        rows, _ = opened(place.pen, id, stand.execution, stored)
    except (StoreUnavailable, Unopened, JournalUnreadable):
        return False  # the next turn from the journal says so
    if len(rows) < stand.turn:
        return False
    sampling.checked += 1
    clock = place.clock()
    found = await difference(program, id, stand.execution, [*rows, turn.row], place.settings, clock)
    if found is None:
        return False
    sampling.differed += 1
    log.error(
        "orchestration.differs",
        "Instance %(instance)s of %(queue)s does not do the same when it is replayed, so its next turn will pause "
        "it: %(why)s",
        instance=id, queue=program.queue, why=str(found),
    )  # fmt: skip
    return True


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
