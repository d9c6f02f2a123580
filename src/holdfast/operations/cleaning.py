"""Removes what has been kept long enough: rows of the history, dedupe keys, rows that are not needed any more.

One process at a time does it, for a share of its time (`rules/housekeeping.py`). Each batch is a transaction of
its own. The kinds take turns, batch by batch, so no kind waits until another one is done.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..rules import housekeeping
from ..rules.housekeeping import Rest
from ..settings import Settings
from ..store.plans import alerts, queues
from ..store.plans.rows import Pruned
from .desk import Desk

BATCH = 1000
ROUNDS_MAX = 100_000  # a limit even if the clock is wrong
WORKER_KEPT = 86_400.0
TURN, TURN_SECONDS = "cleaning", 5.0
NEXT_SECONDS = (
    45.0  # when there is nothing left, another process may begin after this time: workers come once a minute
)


def kept(settings: Settings) -> dict[str, float | None]:
    """What is cleaned up, and for how many seconds it is kept; None: as long as it is needed."""
    return {
        "history": settings.history,
        "dedupe": settings.dedupe,
        "streams": None,
        "workers": WORKER_KEPT,
        "deaths": settings.history,
        "audit": settings.audit,
        "alerts": settings.history,
        "instances": settings.instances,
        "outages": settings.audit,
        "notes": settings.history,
        "requests": settings.requests,
    }


@dataclass
class Cleaning:
    """Removes old rows, and remembers where it stopped, so that the next call need not search for it."""

    marks: dict[str, Any] = field(default_factory=dict)

    def run(self, desk: Desk, seconds: float) -> tuple[dict[str, int], Rest]:
        """Clean for so many seconds; returns how many of each kind were removed. An error with one kind does not stop
        the others.
        """
        begun = desk.store.clock.monotonic()
        counts, left, failure = dict.fromkeys(kept(desk.settings), 0), kept(desk.settings), None
        spent = 0.0
        for _ in range(ROUNDS_MAX):
            for what, age in list(left.items()):
                try:
                    done = self._batch(desk, what, age)
                except Exception as error:  # raised after the others have had their turn
                    failure = failure or error
                    del left[what]
                    continue
                counts[what] += done.count
                if not done.more:
                    del left[what]
            spent = desk.store.clock.monotonic() - begun
            if not left or not housekeeping.goes_on(spent, seconds):
                break
        if failure is not None:
            raise failure
        return counts, housekeeping.rest(spent, bool(left))

    def _batch(self, desk: Desk, what: str, age: float | None) -> Pruned:
        mark = self.marks.pop(what, None)
        done = desk.command(what.capitalize(), queues.prune, what, age, BATCH, mark)
        if done.more:
            self.marks[what] = done.mark
        return done

    def in_turn(self, desk: Desk) -> Rest:
        """Clean for a while, unless another process is cleaning."""
        name = "The turn to clean up"
        if not desk.command(name, alerts.take_turn, TURN, TURN_SECONDS):
            return Rest(0.0, more=False)
        _, rest = self.run(desk, housekeeping.STRETCH_SECONDS)
        until = rest.seconds if rest.more else max(NEXT_SECONDS, rest.seconds)
        desk.command(name, alerts.put_off, TURN, until)
        return rest


def overdue(desk: Desk) -> dict[str, float]:
    """How many seconds cleaning is behind, for the tables that grow with every message."""
    settings = desk.settings

    def late(what: str, age: float) -> float:
        return desk.ask(queues.overdue(what, age))

    return {"history": late("history", settings.history), "dedupe": late("dedupe", settings.dedupe)}
