"""What a tick does about one schedule: which occurrences fire, which are left out and why, and what is next.

However long there was no tick, the answer is computed without a loop over what was missed, and it is bounded: at most
`limit` occurrences fire at a time, the others stay due. What is left out is recorded as a range with its count and one
reason. Keys only rise: `last_key` is that of the last occurrence that was fired or left out.

    all      every missed occurrence, oldest first; of more than `cap` the newest
    latest   the newest one
    skip     those that are not later than `grace` seconds

On top of each, `max_late` leaves out what is later than so many seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import assert_never

from ..errors import InvalidSettings
from ..model.schedule import CAP, GRACE, Overlap, Policy
from .patterns import KeyKind, Rule
from .timeline import Occurrence, Timeline
from .zones import moment_of, seconds_of

LIMIT = 100  # occurrences of one schedule in one tick
# Before a schedule that waits for the end of its last occurrence is looked at again.
WAIT = timedelta(seconds=5)
SECOND = timedelta(seconds=1)


class Why(Enum):
    """Why occurrences were left out; the value is stored."""

    TOO_LATE = "too late"
    OVER_CAP = "over the cap"
    NOT_LATEST = "not the latest"
    MISSED = "missed"
    OVERLAP = "overlap"
    REPLACED = "replaced"
    PAUSED = "paused"
    SKIPPED = "skipped"

    @property
    def sentence(self) -> str:
        return SENTENCES[self]


SENTENCES = {
    Why.TOO_LATE: "later than max_late allows",
    Why.OVER_CAP: "more had been missed than the cap allows, and the newest are kept",
    Why.NOT_LATEST: "only the latest of the missed ones runs (misfire=latest)",
    Why.MISSED: "missed by more than the grace (misfire=skip)",
    Why.OVERLAP: "the one before had not ended (overlap=skip)",
    Why.REPLACED: "a later one has taken its place (overlap=replace)",
    Why.PAUSED: "the schedule was paused",
    Why.SKIPPED: "skipped by an operator",
}


class Last(Enum):
    """The state of the message of the occurrence that fired last. Unrouted, parked and dead count as ended, too."""

    ENDED = "ended"
    WAITING = "waiting"  # no worker has begun it
    STARTED = "started"


@dataclass(frozen=True, slots=True)
class Misfire:
    """What happens to occurrences that were not fired in time. `cap=None`: no limit on their number."""

    policy: Policy
    cap: int | None = CAP
    max_late: float | None = None  # seconds
    grace: float = GRACE


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A range of occurrences, both ends included, that do not fire, for one reason."""

    first: Occurrence
    last: Occurrence
    count: int
    why: Why

    @property
    def sentence(self) -> str:
        """`1,240 occurrences from 2026-03-01 to 2026-03-29 were left out: ...`"""
        if self.count == 1:
            return f"1 occurrence, {self.first.key}, was left out: {self.why.sentence}."
        return (
            f"{self.count:,} occurrences from {self.first.key} to {self.last.key} were left out: "
            f"{self.why.sentence}."
        )


@dataclass(frozen=True, slots=True)
class Tick:
    """`look_at` is when the schedule must be looked at again: now or earlier, while more of it is due.

    `cancels`: the message of the last occurrence is cancelled first; `fires` takes its place.
    """

    fires: tuple[Occurrence, ...]
    left_out: tuple[LeftOut, ...]
    last_key: str | None
    next: Occurrence | None
    look_at: datetime | None
    cancels: bool = False


def misfire(
    rule: Rule,
    policy: Policy | None = None,
    cap: int | None = CAP,
    max_late: float | None = None,
    grace: float = GRACE,
) -> Misfire:
    """Checked. Without a policy: `latest` for elapsed rules, `all` for the others."""
    if policy is None:
        policy = "latest" if rule.is_elapsed else "all"
    if policy not in ("all", "latest", "skip"):
        raise InvalidSettings(f"misfire={policy!r} is refused: use 'all', 'latest' or 'skip'.")
    if cap is not None and (type(cap) is not int or not 1 <= cap <= 10**9):
        raise InvalidSettings(f"cap={cap!r} is refused: give a number above 0, or None for no cap.")
    for name, value, lowest in (("max_late", max_late, 1), ("grace", grace, 0)):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (is_number and lowest <= value <= 10**9):
            raise InvalidSettings(f"{name}={value!r} is refused: give seconds, {lowest} or more.")
    return Misfire(policy, cap, max_late, grace)


# --- The tick ----------------------------------------------------------------------------------------------------


def decide(
    timeline: Timeline,
    next_key: str,
    last_key: str | None,
    now: datetime,
    misfire: Misfire,
    overlap: Overlap = "allow",
    last: Last = Last.ENDED,
    limit: int = LIMIT,
) -> Tick:
    """`next_key` is the occurrence that the schedule waits for, `last_key` the last that was fired or left out."""
    first = _pending(timeline, next_key, last_key)
    if (
        first is not None
        and overlap in ("allow", "queue")
        and misfire.max_late is None
        and misfire.policy != "skip"
    ):
        behind = timeline.next(first.at)
        # The usual case: one is due, and it fires.
        if first.due <= now and (behind is None or now < behind.at):
            return Tick((first,), (), first.key, behind, behind.due if behind else None)
    newest = _newest_due(timeline, now)
    if first is None or newest is None or newest.at < first.at:
        return Tick((), (), last_key, first, first.due if first else None)
    if overlap == "replace" and last is Last.STARTED:
        return Tick((), (), last_key, first, now + WAIT)
    due = _Due(timeline, first, newest)
    left = due.cut_by(misfire, now)
    if due.first is None:
        fires: tuple[Occurrence, ...] = ()
    else:
        fires, more = _overlapping(due, overlap, last, max(1, limit))
        left += more
    handled = fires[-1] if overlap in ("allow", "queue") and fires else newest
    behind = timeline.next(handled.at)
    return Tick(
        fires,
        tuple(left),
        handled.key,
        behind,
        behind.due if behind else None,
        bool(fires) and overlap == "replace" and last is Last.WAITING,
    )


def leave_out(timeline: Timeline, next_key: str, last_key: str | None, until: datetime, why: Why) -> Tick:
    """Leave out all that is due up to a moment: after a pause, or because an operator skips the next one."""
    first = _pending(timeline, next_key, last_key)
    newest = _newest_due(timeline, until)
    if first is None or newest is None or newest.at < first.at:
        return Tick((), (), last_key, first, first.due if first else None)
    behind = timeline.next(newest.at)
    left = (_Due(timeline, first, newest).all_left_out(why),)
    return Tick((), left, newest.key, behind, behind.due if behind else None)


def changed(
    timeline: Timeline, next_key: str | None, last_key: str | None, now: datetime
) -> Occurrence | None:
    """What a schedule waits for when it is new, or when its rule, its zone or the zone's data has changed.

    The first occurrence later than now. But an occurrence that the old rule was waiting for is still due, if the new
    rule has one with that key or a later one: someone who moves east on the morning of a birthday is greeted late, and
    someone who moves west is not greeted twice, because no key comes again.
    """
    coming = timeline.next(now)
    if last_key is not None and coming is not None and coming.key <= last_key:
        coming = timeline.following(last_key)
    if next_key is None or _kind_of(next_key) is not timeline.rule.key_kind:
        return coming
    owed = _pending(timeline, next_key, last_key)
    return owed if owed is not None and (coming is None or owed.at < coming.at) else coming


def _kind_of(key: str) -> KeyKind:
    return KeyKind.DATE if len(key) == 10 else KeyKind.INSTANT if key.endswith("Z") else KeyKind.LOCAL


def _pending(timeline: Timeline, next_key: str, last_key: str | None) -> Occurrence | None:
    found = timeline.from_key(next_key)
    if found is not None and last_key is not None and found.key <= last_key:
        return timeline.following(last_key)
    return found


def _newest_due(timeline: Timeline, now: datetime) -> Occurrence | None:
    """The last one that is due. Only the last one that has begun can be not yet due: jitter never reaches the next."""
    found = timeline.previous(now + timedelta(microseconds=1))
    return timeline.previous(found.at) if found is not None and found.due > now else found


def _overlapping(
    due: _Due, overlap: Overlap, last: Last, limit: int
) -> tuple[tuple[Occurrence, ...], list[LeftOut]]:
    """Which of those that are left fire, if the last one may not have ended."""
    assert due.first is not None
    match overlap:
        case "allow" | "queue":
            return due.timeline.occurrences(due.first.at - SECOND, due.newest.at, limit), []
        case "skip" if last is not Last.ENDED:
            return (), [due.all_left_out(Why.OVERLAP)]
        case "skip":  # the oldest fires, and the others find that it has not ended
            fires = due.first
            behind = due.timeline.next(fires.at)
            if behind is None or behind.at > due.newest.at:
                return (fires,), []
            due.first = behind
            return (fires,), [due.all_left_out(Why.OVERLAP)]
        case "replace":
            return (due.newest,), due.cut(due.newest, Why.REPLACED)
    assert_never(overlap)


@dataclass(slots=True)
class _Due:
    """The occurrences that are due; the oldest parts are cut off step by step. `first` None: none is left."""

    timeline: Timeline
    first: Occurrence | None
    newest: Occurrence

    def cut_by(self, misfire: Misfire, now: datetime) -> list[LeftOut]:
        left: list[LeftOut] = []
        if misfire.max_late is not None:
            left += self.cut(self._first_since(now, misfire.max_late), Why.TOO_LATE)
        if misfire.policy == "skip":
            left += self.cut(self._first_since(now, misfire.grace), Why.MISSED)
        if misfire.policy == "latest":
            left += self.cut(self.newest, Why.NOT_LATEST)
        elif misfire.cap is not None and self.first is not None and self._count() > misfire.cap:
            left += self.cut(self._newest_but(misfire.cap), Why.OVER_CAP)
        return left

    def cut(self, kept: Occurrence | None, why: Why) -> list[LeftOut]:
        """Leave out what is older than this one; None: everything."""
        if self.first is None or (kept is not None and kept.at <= self.first.at):
            return []
        if kept is None:
            return [self.all_left_out(why)]
        last = self.timeline.previous(kept.at)
        assert last is not None, "the first one is older"
        part = _Due(self.timeline, self.first, last)
        self.first = kept
        return [part.all_left_out(why)]

    def all_left_out(self, why: Why) -> LeftOut:
        assert self.first is not None
        found = LeftOut(self.first, self.newest, self._count(), why)
        self.first = None
        return found

    def _count(self) -> int:
        assert self.first is not None
        return self.timeline.count(self.first.at - SECOND, self.newest.at)

    def _first_since(self, now: datetime, seconds: float) -> Occurrence | None:
        """The oldest one that is not later than so many seconds."""
        oldest = now - timedelta(seconds=seconds)
        if self.newest.due < oldest:
            return None
        # Jitter may have put it off until then.
        found = self.timeline.previous(oldest + timedelta(microseconds=1))
        return found if found is not None and found.due >= oldest else self.timeline.next(oldest)

    def _newest_but(self, number: int) -> Occurrence:
        """The oldest of the newest so many, found by halving."""
        assert self.first is not None
        low, high = seconds_of(self.first.at), seconds_of(self.newest.at)
        while low < high:
            middle = (low + high) // 2
            if self.timeline.count(moment_of(middle), self.newest.at) < number:
                high = middle
            else:
                low = middle + 1
        found = self.timeline.next(moment_of(low) - SECOND)
        assert found is not None
        return found
