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
from ..model.schedule import Fired, Step, Stored
from ..model.work import Ticked
from ..rules import tick
from ..rules.classify import storable
from ..rules.tick import LIMIT, Last, Misfire, Tick
from ..rules.timeline import Timeline
from ..store import Store
from ..store.plans import operator, schedules
from ..store.plans.operator import OrderMoved
from ..store.plans.schedules import Fire
from ..telemetry.logs import Log
from . import zones
from .firing import Texts, messages
from .setting import data_of, notes_of, timeline_of

log = Log("holdfast.schedules")

AT_ONCE = 500  # schedules and occurrences
SHARE_MIN = 4  # occurrences of one schedule that are looked at, if many schedules are due
BYTES = 8 * 1024 * 1024  # of bodies
TELLS_EVERY = 30.0  # seconds between two words that this process runs, and with which zone data
LIVE = 120.0  # seconds for which such a word counts
LASTS = {None: Last.ENDED, 1: Last.WAITING, 2: Last.STARTED}
ERROR_MAX = 500
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
        self.hear = hear  # told of each message that was fired: in tests
        self._told_at = float("-inf")
        self._refused: dict[str, int] = {}  # how often the database refused to fire a schedule
        self._zoned = True  # whether this process may fire rules that depend on a zone
        self._stale = False  # whether times may have been computed with older zone data

    def __call__(self) -> Ticked:
        self._tell()
        if self._stale:
            self._renew()
        at, now = self.store.read(schedules.first(self.mine(), self._zoned))
        if at is None or at > now:
            return Ticked(0, now, at)
        done = self._tick()
        for name, what in done.told:
            log.warning("schedule.left_out", "Schedule %(schedule)s: %(what)s", schedule=name, what=what)
        if self.hear is not None:
            for each in done.fires:
                self.hear(each)
        if done.moved:
            # Its messages are handed out first. When the next falls due, the next turn asks, which comes at once.
            return Ticked(done.moved, now, now, done.queues)
        at, now = self.store.read(schedules.first(self.mine(), self._zoned))
        return Ticked(0, now, at)

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
            steps = self._decide(self.store.read(schedules.due(mine, self._zoned, AT_ONCE, BYTES)))
            return self.store.run(schedules.apply(steps)) if steps else Fire()
        return self.store.run(schedules.locked(mine, self._zoned, AT_ONCE, BYTES, self._decide))

    def _singly(self) -> Fire:
        """Fire each schedule alone, so that one which the database refuses does not hold up the others.

        One that is refused again and again gets its error and no next time.
        """
        done = Fire()
        for row in self.store.run(schedules.due(list(self.mine()), self._zoned, FEW, BYTES)):
            try:
                one = self.store.run(schedules.apply(self._decide([row])))
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
                (*done.told, *one.told),
            )
        return done

    # -- deciding

    def _decide(self, rows: list[Stored]) -> list[Step]:
        """What these schedules do, at most so many occurrences, the oldest of all of them first."""
        # Of each not many more than its share: what does not fit is computed again at the next tick.
        share = max(SHARE_MIN, min(LIMIT, 2 * AT_ONCE // max(1, len(rows))))
        known: dict[tuple[object, ...], Tick] = {}
        texts: Texts = {}
        decided = [(row, *self._of(row, share, known)) for row in rows]
        horizon = _horizon(rows, [found for _, found, _ in decided if isinstance(found, Tick)])
        steps: list[Step] = []
        left, size = AT_ONCE, BYTES
        for row, found, timeline in decided:
            if isinstance(found, Tick) and timeline is not None:
                room = min(left, max(size // len(row.body), 0 if steps else 1))
                step = self._step(row, found, timeline, horizon, room, texts)
            else:
                step = self._failed(row, str(found))
            if step is not None:
                steps.append(step)
                left -= len(step.fires)
                size -= len(step.fires) * len(row.body)
        return steps

    def _of(
        self, row: Stored, limit: int, known: dict[tuple[object, ...], Tick]
    ) -> tuple[Tick | str, Timeline | None]:
        """What one schedule does, or why that cannot be known. Many have the same rule: it is decided once for them."""
        try:
            timeline = timeline_of(row)
            if timeline.rule.jitter:  # its times depend on its name, too
                return self._decided(row, timeline, limit), timeline
            like = (
                row.rule,
                row.next_key,
                row.last_key,
                row.now,
                row.misfire,
                row.overlap,
                row.cap,
                row.max_late,
                row.grace,
                row.last,
            )
            found = known.get(like)
            if found is None:
                found = known[like] = self._decided(row, timeline, limit)
            return found, timeline
        except Exception as error:
            return f"{type(error).__name__}: {error}", None

    def _decided(self, row: Stored, timeline: Timeline, limit: int) -> Tick:
        if row.next_key is None:
            return Tick((), (), row.last_key, None, None)
        missed = Misfire(row.misfire, row.cap, row.max_late, row.grace)  # type: ignore[arg-type]
        return tick.decide(
            timeline,
            row.next_key,
            row.last_key,
            row.now,
            missed,
            row.overlap,  # type: ignore[arg-type]
            LASTS[row.last],
            limit,
        )

    def _step(
        self, row: Stored, found: Tick, timeline: Timeline, horizon: datetime | None, left: int, texts: Texts
    ) -> Step | None:
        """The part of what it does that is not later than the horizon; None: it waits for the next tick."""
        if found.cancels:
            # The one before has not been started: it is cancelled, and when it has ended the next tick fires.
            return None if self._cancel(row) else self._waits(row)
        if found.fires:
            many = len(found.fires)
            if horizon is not None:
                many = sum(each.due <= horizon for each in found.fires)
            if (many := min(many, left)) == 0:
                return None
            if many < len(found.fires):
                found = self._decided(row, timeline, many)
        try:
            fires = messages(row, timeline, found.fires, self.keys, texts)
        except Exception as error:
            return self._failed(row, f"{type(error).__name__}: {error}")
        return Step(
            row=row,
            next_key=found.next.key if found.next else None,
            next_at=found.look_at,
            last_key=found.last_key,
            fires=fires,
            notes=notes_of(found),
            told=tuple(each.sentence for each in found.left_out),
            zones=data_of(timeline.rule),
        )

    def _failed(self, row: Stored, why: str) -> Step:
        log.error(
            "schedule.failed", "Schedule %(schedule)s cannot fire: %(error)s", schedule=row.name, error=why
        )
        return Step(row, row.next_key, None, row.last_key, zones=row.zones, error=storable(why, ERROR_MAX))

    def _fail(self, row: Stored, error: Exception) -> None:
        """The database refuses whatever is decided about this schedule: it gets its error alone."""
        step = self._failed(row, f"{type(error).__name__}: {error}")
        self.store.run(schedules.fail(row.name, row.version, step.error or ""))

    # -- overlap=replace

    def _cancel(self, row: Stored) -> bool:
        """End the message of the last occurrence as cancelled. False: somebody has it by now."""
        assert row.last_id is not None
        for seq in self.store.read(schedules.pending_of(row.last_id)):
            try:
                if not self.store.run(operator.cancel(seq)):
                    return False
            except (HoldfastError, OrderMoved):
                return False
        return True

    def _waits(self, row: Stored) -> Step:
        return Step(row, row.next_key, row.now + tick.WAIT, row.last_key, zones=row.zones)

    # -- zone data

    def _tell(self) -> None:
        """Say that this process runs, and find out whether it may fire rules of zones: not while a newer one runs."""
        now = self.clock.monotonic()
        if now - self._told_at < TELLS_EVERY:
            return
        ours = zones.version()
        live, ever = self.store.run(schedules.tell_zones(ours, list(self.mine()), LIVE))
        may = live is None or live <= ours
        if may is not self._zoned:
            log.warning(
                "schedules.zones",
                "This worker has zone data %(ours)s and another one %(newest)s: %(what)s",
                ours=ours,
                newest=live,
                what="it fires rules of zones again" if may else "it leaves rules of zones to the other",
            )
        self._zoned, self._stale, self._told_at = may, ever is None or ever <= ours, now

    def _renew(self) -> None:
        """Compute the next times again that were computed with older zone data, a part at a time."""
        rows = self.store.read(schedules.stale(zones.version(), AT_ONCE))
        steps = [self._renewed(row) for row in rows]
        try:
            if steps:
                self.store.run(schedules.apply(steps))
        except StoreUnavailable:
            raise
        except Exception:  # the database refused something of it
            for step in steps:
                self._renew_alone(step)
        self._stale = len(rows) == AT_ONCE

    def _renew_alone(self, step: Step) -> None:
        try:
            self.store.run(schedules.apply([step]))
        except StoreUnavailable:
            raise
        except Exception as error:
            self._fail(step.row, error)

    def _renewed(self, row: Stored) -> Step:
        try:
            timeline = timeline_of(row)
            found = tick.changed(timeline, row.next_key, row.last_key, row.now)
        except Exception as error:
            return self._failed(row, f"{type(error).__name__}: {error}")
        key, due = (found.key, found.due) if found else (None, None)
        return Step(row, key, due, row.last_key, zones=data_of(timeline.rule))


def _horizon(rows: Sequence[Stored], found: Sequence[Tick]) -> datetime | None:
    """Nothing later than this fires now, because something older waits: what there was no room for."""
    ends = [
        each.fires[-1].due for each in found if each.fires and each.look_at and each.look_at <= rows[0].now
    ]
    fires = sorted(each.due for tick in found for each in tick.fires)
    if len(fires) > AT_ONCE:
        ends.append(fires[AT_ONCE - 1])
    if len(rows) == AT_ONCE or sum(len(row.body) for row in rows) >= BYTES / 4:
        ends += [row.next_at for row in rows[-1:] if row.next_at is not None]
    return min(ends, default=None)
