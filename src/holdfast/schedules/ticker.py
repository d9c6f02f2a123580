"""The tick: a step of any worker's turn that fires what is due, the oldest occurrence first.

It reads what is due, decides with `rules.tick`, and stores messages and rows in one commit, for rows that are as they
were seen. On PostgreSQL the rows are locked, so that two workers get different ones; on SQLite, where a write
transaction holds up everybody, it is decided outside of it. A schedule that cannot be decided gets its error and no
next time, and the others fire.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from ..bodies.keys import Keys
from ..clock import Clock
from ..errors import HoldfastError, StoreUnavailable
from ..model.schedule import Due, DueNow, Fired, Step
from ..model.work import Ticked
from ..store import Store
from ..store.plans import operator, schedules
from ..store.plans.operator import TargetChanged
from ..store.plans.schedules import FIRST, Cursor, Fire
from ..telemetry.logs import Log
from . import zones
from .deciding import Deciding, failed, renewed

log = Log("holdfast.schedules")

AT_ONCE = 500  # schedules and occurrences
BYTES = 8 * 1024 * 1024  # of bodies
NOTES_EVERY = 30.0  # seconds between two notes that this process runs, and with which zone data
ALL_MIN, ALL_MAX = 0.05, 5.0  # seconds between two looks at everything
ALL_SHARE = 50  # a look at everything rests so many times what it took
LIVE = 120.0  # seconds for which such a note counts
FEW, REFUSED_MAX = 50, 3  # schedules that are fired alone in one tick; times that one may be refused


class Ticker:
    """Fires the schedules that were set at run time, and those in the code of this application."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        keys: Keys | None,
        mine: Callable[[], Sequence[str]],
        hear: Callable[[Fired], None] | None = None,
    ) -> None:
        self.store, self.clock, self.keys, self.mine = store, clock, keys, mine
        self.hear = hear  # called with each message that was fired; for tests
        self._noted_at = float("-inf")
        self._refused: dict[str, int] = {}  # how often the database refused to fire a schedule
        self._zoned = True  # whether this process may fire rules that depend on a zone
        self._since = FIRST  # where the next look begins
        self._was_due = False  # whether the last look found something due
        self._looks_at_all_at = float("-inf")
        self._stale = False  # whether times may have been computed with older zone data

    def __call__(self) -> Ticked:
        self._note_this_process()
        if self._stale:
            self._renew()
        first, now = self._look()
        if first is None or first.at > now:
            return Ticked(0, now, first and first.at)
        done = self._tick()
        for name, what in done.left_out:
            log.warning("schedule.left_out", "Schedule %(schedule)s: %(what)s", schedule=name, what=what)
        if self.hear is not None:
            for each in done.fires:
                self.hear(each)
        if done.moved:
            # Its messages are handed out first. When the next falls due, the next turn asks, which comes at once.
            return Ticked(done.moved, now, now, done.queues)
        first, now = self._look()
        return Ticked(0, now, first and first.at, lost=done.lost)

    def _look(self) -> tuple[Cursor | None, datetime]:
        """Which schedule falls due next, and the time.

        On PostgreSQL the index keeps what has fired as long as somebody holds an old snapshot, and a look from its
        beginning would walk through all of that. So a look begins where the last one ended, unless a look at everything
        costs next to nothing. What was set for an earlier time since then is found by a look at everything: after some
        seconds at most, and before it is said that nothing is due any more.
        """
        begun = self.clock.monotonic()
        if self.store.has_one_writer or not 0 <= self._looks_at_all_at - begun <= ALL_MAX:
            self._since = FIRST
        first, now = self.store.read(schedules.first(self.mine(), self._zoned, self._since))
        if self._since is not FIRST and self._was_due and (first is None or first.at > now):
            self._since = FIRST
            begun = self.clock.monotonic()
            first, now = self.store.read(schedules.first(self.mine(), self._zoned))
        if self._since is FIRST:
            ended = self.clock.monotonic()
            self._looks_at_all_at = ended + min(ALL_MAX, max(ALL_MIN, ALL_SHARE * (ended - begun)))
        self._was_due = first is not None and first.at <= now
        # What is set from now on falls due later than now.
        self._since = first if first is not None and self._was_due else Cursor(now, "")
        return first, now

    def _tick(self) -> Fire:
        try:
            return self._together()
        except StoreUnavailable:
            raise
        except Exception as error:  # the database refused something of it
            log.warning(
                "tick.refused",
                "The database refused a tick; each schedule is fired alone: %(error)s",
                error=error,
            )
            return self._singly()

    def _together(self) -> Fire:
        mine = list(self.mine())
        if self.store.has_one_writer:
            found = self.store.read(schedules.due(mine, self._zoned, AT_ONCE, BYTES))
            steps = self._decide(found) if found else []
            return self.store.run(schedules.apply(steps)) if steps else Fire()
        return self.store.run(schedules.locked(mine, self._zoned, AT_ONCE, BYTES, self._since, self._decide))

    def _singly(self) -> Fire:
        """Fire each schedule alone, so that one which the database refuses does not hold up the others.

        One that is refused again and again gets its error and no next time.
        """
        done = Fire()
        found = self.store.run(schedules.due(list(self.mine()), self._zoned, FEW, BYTES))
        if found is None:
            return done
        for row in found.rows:
            try:
                one = self.store.run(schedules.apply(self._decide(DueNow([row], found.now, found.until))))
            except StoreUnavailable:
                raise
            except Exception as error:
                count = self._refused[row.name] = self._refused.get(row.name, 0) + 1
                if count < REFUSED_MAX:
                    continue
                self._fail(row, error)
                one = Fire(moved=1)
            self._refused.pop(row.name, None)
            done = Fire(
                (*done.fires, *one.fires),
                done.moved + one.moved,
                (*done.queues, *one.queues),
                (*done.left_out, *one.left_out),
            )
        return done

    def _decide(self, found: DueNow) -> list[Step]:
        return Deciding(self.keys, self._cancel, AT_ONCE, BYTES).steps(found)

    def _fail(self, row: Due, error: Exception) -> None:
        """The database refuses whatever is decided about this schedule: it gets its error alone."""
        step = failed(row, f"{type(error).__name__}: {error}")
        self.store.run(schedules.fail(row.name, row.version, step.error or ""))

    # -- overlap=replace

    def _cancel(self, row: Due) -> bool:
        """End the message of the last occurrence as cancelled. False: somebody has it by now."""
        assert row.last_id is not None
        for seq in self.store.read(schedules.pending_of(row.last_id)):
            try:
                if not self.store.run(operator.cancel(seq)):
                    return False
            except (HoldfastError, TargetChanged):
                return False
        return True

    # -- zone data

    def _note_this_process(self) -> None:
        """Note that this process runs. It may fire rules of zones unless a process with newer zone data runs."""
        now = self.clock.monotonic()
        if now - self._noted_at < NOTES_EVERY:
            return
        ours = zones.version()
        live, ever = self.store.run(schedules.note_zones(ours, list(self.mine()), LIVE))
        may = live is None or live <= ours
        if may is not self._zoned:
            log.warning(
                "schedules.zones",
                "This worker has zone data %(ours)s and another one %(newest)s: %(what)s",
                ours=ours,
                newest=live,
                what="it fires rules of zones again" if may else "it leaves rules of zones to the other",
            )
            self._looks_at_all_at = float("-inf")  # what was left to the other may be due
        self._zoned, self._stale, self._noted_at = may, ever is None or ever <= ours, now

    def _renew(self) -> None:
        """Compute the next times again that were computed with older zone data, a part at a time."""
        found = self.store.read(schedules.stale(zones.version(), AT_ONCE))
        steps = renewed(found.rows, found.now) if found else []
        try:
            if steps:
                self.store.run(schedules.apply(steps))
        except StoreUnavailable:
            raise
        except Exception:  # the database refused something of it
            for row, step in zip(found.rows if found else (), steps, strict=True):
                self._renew_alone(row, step)
        self._stale = found is not None and len(found.rows) == AT_ONCE

    def _renew_alone(self, row: Due, step: Step) -> None:
        try:
            self.store.run(schedules.apply([step]))
        except StoreUnavailable:
            raise
        except Exception as error:
            self._fail(row, error)
