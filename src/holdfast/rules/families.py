"""A family of queues, as one worker knows it: which of them have work, which is next, and which may be forgotten.

There may be many thousands, most of them empty. A look at the store finds those that have work; they are *awake* and
asked like any other queue, until they are empty. Then they are *quiet*: remembered for a while, and not asked.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import islice
from math import inf

ASKED_MAX = 100  # queues of one family in one exchange
AWAKE_MAX = 2000  # with this many awake, the worker looks for no more
PASSED_MAX = 500  # awake queues that one exchange considers, and empty queues that one look passes
QUIET_KEPT = 200
LOOK_SHARE, LOOK_PAUSE_MAX = 0.05, 5.0  # a slow look is made less often


@dataclass(slots=True)
class Family:
    """The queues below one name. They share the limit of calls that one process makes at once."""

    concurrency: int
    running: int = 0
    awake: dict[str, None] = field(default_factory=dict)
    quiet: dict[str, None] = field(default_factory=dict)  # the one that was asked longest ago comes first
    turns: deque[str] = field(default_factory=deque)  # queues with something that waits for a handler
    after: str | None = None  # where the next look begins; None: at the first queue
    looked_at: float = -inf
    took: float = 0.0  # seconds that the last look took

    def wants_look(self, now: float) -> bool:
        """Whether to look for queues with work now."""
        pause = min(self.took / LOOK_SHARE, LOOK_PAUSE_MAX)
        return now - self.looked_at >= pause and len(self.awake) < AWAKE_MAX

    def learn(self, found: tuple[str, ...], last: str | None, took: float, looked_at: float) -> None:
        """What a look found: queues with work, and where it stopped before it had seen all."""
        self.after, self.took, self.looked_at = last, took, looked_at
        for queue in found:
            self.wake(queue)

    def wake(self, queue: str) -> None:
        self.quiet.pop(queue, None)
        self.awake.setdefault(queue)

    def rest(self, queue: str) -> None:
        """This queue is empty, here and in the store."""
        del self.awake[queue]
        self.quiet[queue] = None

    def next_awake(self) -> list[str]:
        """The queues to consider for the next exchange. Each one comes first at some time."""
        found = list(islice(self.awake, PASSED_MAX))
        for queue in found if len(self.awake) > PASSED_MAX else found[:1]:
            del self.awake[queue]
            self.awake[queue] = None
        return found

    def too_many(self) -> list[str]:
        """Quiet queues beyond the number that is remembered, to be forgotten."""
        return list(islice(self.quiet, max(0, len(self.quiet) - QUIET_KEPT)))
