"""Scheduled messages that are due: a step of any worker's turn brings them over into their queues (worker/ticking.py).

With nothing due it reads one entry of an index. What is brought over is the oldest first, a bounded part in one commit.
Two workers get different messages, and a crash before the commit leaves everything as it was. If much is due at once,
parts become smaller when turns take long: messages of other queues wait for a turn.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from ..clock import Clock
from ..model.work import Ticked
from ..rules.rhythm import Portion
from ..store import Store
from ..store.plans import scheduled

AT_ONCE = 500
BYTES = 8 * 1024 * 1024  # of bodies
LOOKS_ANEW = 5.0  # seconds between two looks from the very beginning
# What a transaction stores that commits late is due before what was brought over.
SLACK = timedelta(seconds=5)


class Bringer:
    """Brings over what is due. It remembers how far it came.

    On PostgreSQL rows that are gone stay in the index until they are cleaned up, which an open snapshot may hold up for
    hours: a look that begins where the last one ended does not walk through them.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store, self.clock = store, clock
        self._last: datetime | None = None  # the time of the last that was brought over
        self._anew_at = float("-inf")
        self.portion = Portion(AT_ONCE)

    def __call__(self) -> Ticked:
        since = self._since()
        # After a full portion more is due, mostly: it need not be looked for.
        if since is not None and self.portion.was_full and (brought := self._bring(since)) is not None:
            return brought
        at, now = self.store.read(scheduled.first(since))
        if self._last is not None and self._last > now:  # the database's clock was set back
            self._last, since = None, None
            at, now = self.store.read(scheduled.first(None))
        if at is None or at > now:
            return Ticked(0, now, at)
        return self._bring(since) or Ticked(0, now, at)  # else another worker has it

    def _bring(self, since: datetime | None) -> Ticked | None:
        """The next portion; None if nothing was there to take."""
        done = self.store.run(scheduled.bring(self.portion.begin(self.clock.monotonic()), BYTES, since))
        self.portion.took(done.did)
        if done.last is None:
            return None
        self._last = done.last if self._last is None else max(done.last, self._last)
        # They are handed out first, then it looks again.
        return Ticked(done.did, done.last, done.last, done.queues)

    def _since(self) -> datetime | None:
        """Where to begin; None: at the very beginning."""
        now = self.clock.monotonic()
        if now >= self._anew_at:
            self._anew_at = now + LOOKS_ANEW
            if self.store.read(scheduled.is_left()):
                self.store.run(scheduled.take_in())
            return None
        return None if self._last is None else self._last - SLACK
