"""What a tick does about all schedules that it found due: at most so many occurrences, the oldest of all first.

Many schedules have the same rule, wait for the same occurrence and have the same policy. For them it is decided once,
and what their messages have in common is made once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from ..bodies.keys import Keys
from ..model.schedule import Due, DueNow, Fired, Note, Step
from ..rules import tick
from ..rules.describing import storable
from ..rules.tick import LIMIT, Last, Misfire, Tick
from ..rules.timeline import Occurrence, Timeline
from ..telemetry.logs import Log
from .firing import Labelled, labelled, messages
from .setting import data_of, note_of, notes_of, timeline_of

log = Log("holdfast.schedules")

SHARE_MIN = 4  # occurrences of one schedule that are looked at, if many schedules are due
NEAR = timedelta(minutes=10)  # by so much the sequence may be missed, before nothing fires at all
ERROR_MAX = 500
LASTS = {None: Last.ENDED, 1: Last.WAITING, 2: Last.STARTED}
RULE = Due._fields.index("rule")  # from here on: what a decision depends on


@dataclass(frozen=True, slots=True)
class Part:
    """What schedules with the same decision do: what the steps of all of them say, except names and ids."""

    next_key: str | None
    next_at: datetime | None
    last_key: str | None
    zones: str | None
    fires: tuple[Labelled, ...]
    notes: tuple[Note, ...]
    left_out: tuple[str, ...]


@dataclass(slots=True)
class Decision:
    """What is decided about a schedule, and about all others like it."""

    row: Due
    now: datetime
    timeline: Timeline
    whole: Tick
    parts: dict[int, Part] = field(default_factory=dict)  # by how many fire

    @property
    def is_cut(self) -> bool:
        """More of it is due than was looked at."""
        return bool(self.whole.fires and self.whole.look_at and self.whole.look_at <= self.now)

    def is_behind(self, horizon: datetime) -> bool:
        """All that fires of it is later than this."""
        return bool(self.whole.fires) and self.whole.fires[0].due > horizon

    def was_early(self, until: datetime | None) -> bool:
        """It was read too early, and others were not: its next one is left out, or its stored time is wrong."""
        fires = self.whole.fires[0]
        return fires.key != self.row.next_key or (until is not None and fires.due > until)

    def first(self) -> Part:
        """What they do while something older may wait: leave out what is left out, and wait for what fires first."""
        fires = self.whole.fires[0]
        left = tuple(each for each in self.whole.left_out if each.last.key < fires.key)
        return Part(
            fires.key,
            fires.due,
            max((each.last.key for each in left), default=self.row.last_key),
            data_of(self.timeline.rule),
            (),
            tuple(note_of(each) for each in left),
            tuple(each.sentence for each in left),
        )

    def part(self, many: int) -> Part:
        """What they do if so many of the occurrences fire now; the others stay due."""
        if many not in self.parts:
            found = (
                self.whole
                if many == len(self.whole.fires)
                else decided(self.row, self.timeline, self.now, many)
            )
            self.parts[many] = Part(
                found.next.key if found.next else None,
                found.look_at,
                found.last_key,
                data_of(self.timeline.rule),
                tuple(labelled(self.timeline, each) for each in found.fires),
                notes_of(found),
                tuple(each.sentence for each in found.left_out),
            )
        return self.parts[many]


def decided(row: Due, timeline: Timeline, now: datetime, limit: int) -> Tick:
    if row.next_key is None:
        return Tick((), (), row.last_key, None, None)
    missed = Misfire(row.misfire, row.cap, row.max_late, row.grace)
    overlap, last = row.overlap, LASTS[row.last]
    return tick.decide(timeline, row.next_key, row.last_key, now, missed, overlap, last, limit)


@dataclass(slots=True)
class Room:
    """What a tick may still fire: nothing later than the horizon, and of what is due right then only so many."""

    horizon: datetime | None
    at_horizon: int
    until: datetime | None  # when the last that was read is due
    left: int  # occurrences
    size: int  # bytes of bodies

    def take(self, fires: Sequence[Occurrence]) -> int:
        """How many of these occurrences of one schedule fire, the oldest first."""
        if self.horizon is None or fires[-1].due < self.horizon:
            return len(fires)
        older = sum(each.due < self.horizon for each in fires)
        same = min(self.at_horizon, sum(each.due == self.horizon for each in fires))
        self.at_horizon -= same
        return older + same


@dataclass(frozen=True, slots=True)
class Deciding:
    """Decides for one process. `cancel` ends the message before, for overlap=replace; False: somebody has it."""

    keys: Keys | None
    cancel: Callable[[Due], bool]
    at_once: int  # occurrences
    bytes: int  # of bodies

    def steps(self, due: DueNow) -> list[Step]:
        found = self._decisions(due)
        room = self._room(due, [each for each in found if isinstance(each, Decision)])
        steps: list[Step] = []
        for row, decision in zip(due.rows, found, strict=True):
            if isinstance(decision, str):
                steps.append(failed(row, decision))
                continue
            most = min(room.left, max(room.size // len(row.body), 0 if steps else 1))
            step = self._step(row, decision, room, most)
            if step is not None:
                steps.append(step)
                room.left -= len(step.fires)
                room.size -= len(step.fires) * len(row.body)
        return steps

    def _decisions(self, due: DueNow) -> list[Decision | str]:
        """What each schedule does, or why that cannot be known."""
        # Of each not many more than its share: what does not fit is computed again at the next tick.
        share = max(SHARE_MIN, min(LIMIT, 2 * self.at_once // max(1, len(due.rows))))
        known: dict[tuple[object, ...], Decision | str] = {}
        found = []
        for row in due.rows:
            like = row[RULE:]
            decision = known.get(like)
            if decision is None:
                decision = _decision(row, due.now, share)
                # Jitter depends on the name, too.
                if isinstance(decision, str) or not decision.timeline.rule.jitter:
                    known[like] = decision
            found.append(decision)
        return found

    def _room(self, due: DueNow, found: Sequence[Decision]) -> Room:
        fires = [each.due for decision in found for each in decision.whole.fires]
        horizon = self._horizon(due, found, fires)
        fit = self.at_once
        if horizon is not None and len(fires) > self.at_once:
            fit -= sum(each < horizon for each in fires)
        return Room(horizon, fit, due.until, self.at_once, self.bytes)

    def _horizon(self, due: DueNow, found: Sequence[Decision], fires: Sequence[datetime]) -> datetime | None:
        """Nothing later than this fires now, because something older waits: what there was no room for."""
        ends = [each.whole.fires[-1].due for each in found if each.is_cut]
        if len(fires) > self.at_once:
            ends.append(sorted(fires)[self.at_once - 1])
        is_full = len(due.rows) >= self.at_once or sum(len(row.body) for row in due.rows) >= self.bytes / 4
        if is_full and due.until is not None:
            ends.append(due.until)
        horizon = min(ends, default=None)
        if horizon is None or any(each.whole.fires and not each.is_behind(horizon) for each in found):
            return horizon
        # What was read fires later than what was not read may. It makes room, unless all of this is near: rules that
        # occur again before they are looked at again would make room for ever.
        return None if horizon > due.now - NEAR else horizon

    def _step(self, row: Due, decision: Decision, room: Room, most: int) -> Step | None:
        """The part of what it does that is not later than the horizon; None: it waits for the next tick."""
        whole = decision.whole
        if room.horizon is not None and decision.is_behind(room.horizon):
            return _step_of(row, decision.first()) if decision.was_early(room.until) else None
        if whole.cancels:
            # The one before has not been started: it is cancelled, and when it has ended the next tick fires.
            if self.cancel(row):
                return None
            return Step(
                row.name, row.version, row.next_key, decision.now + tick.WAIT, row.last_key, row.zones
            )
        many = len(whole.fires)
        if many and (many := min(room.take(whole.fires), most)) == 0:
            return None
        try:
            part = decision.part(many)
            fires: tuple[Fired, ...] = messages(row, part.fires, self.keys) if many else ()
        except Exception as error:
            return failed(row, f"{type(error).__name__}: {error}")
        return _step_of(row, part, fires)


def _step_of(row: Due, part: Part, fires: tuple[Fired, ...] = ()) -> Step:
    return Step(
        row.name,
        row.version,
        part.next_key,
        part.next_at,
        part.last_key,
        part.zones,
        fires,
        part.notes,
        part.left_out,
    )


def _decision(row: Due, now: datetime, limit: int) -> Decision | str:
    try:
        timeline = timeline_of(row)
        return Decision(row, now, timeline, decided(row, timeline, now, limit))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def failed(row: Due, why: str) -> Step:
    """It gets its error and no next time."""
    log.error("schedule.failed", "Schedule %(schedule)s cannot fire: %(error)s", schedule=row.name, error=why)
    return Step(
        row.name, row.version, row.next_key, None, row.last_key, row.zones, error=storable(why, ERROR_MAX)
    )


def renewed(rows: Iterable[Due], now: datetime) -> list[Step]:
    """The next times of these schedules by the zone data of this process."""
    return [_renewed(row, now) for row in rows]


def _renewed(row: Due, now: datetime) -> Step:
    try:
        timeline = timeline_of(row)
        found = tick.changed(timeline, row.next_key, row.last_key, now)
    except Exception as error:
        return failed(row, f"{type(error).__name__}: {error}")
    key, at = (found.key, found.due) if found else (None, None)
    return Step(row.name, row.version, key, at, row.last_key, data_of(timeline.rule))
