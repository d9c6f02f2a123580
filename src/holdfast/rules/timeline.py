"""The occurrences of a rule: the next, the previous, how many, and their keys.

The occurrences of a rule are a set of moments. `next(after)` is always later than `after`. Ranges exclude their first
moment and include their last. No search goes through all occurrences or all days: fixed times are searched by the
local clock's peak (see `zones`), elapsed ones within the stretches between clock changes.

Several local times that the clock leaves out in one gap are one occurrence, at the end of the gap. Its key is that of
the last of them, so that keys keep rising.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from hashlib import blake2b, sha1
from itertools import pairwise
from typing import assert_never

from ..errors import InvalidSettings
from .days import LocalTimes
from .patterns import Every, KeyKind, Rule
from .zones import DAY, END, EPOCH, EPOCH_DAY, FIRST, Zone, moment_of, seconds_of, wall

KEY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9]{2}:[0-9]{2}:[0-9]{2}Z?)?")


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One time that something is due. `at` is what the rule says, `due` is up to `jitter` later."""

    key: str
    at: datetime
    due: datetime


def occurrence_id(incarnation: bytes, key: str) -> str:
    """The id of an occurrence's message: the same for a second tick, a backfill and a restored backup.

    It is a UUID of version 5 of the two, as text. A tick makes hundreds of them, so no UUID object is made.
    """
    made = bytearray(sha1(incarnation + key.encode(), usedforsecurity=False).digest()[:16])
    made[6], made[8] = made[6] & 0x0F | 0x50, made[8] & 0x3F | 0x80
    text = made.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


@dataclass(frozen=True, slots=True)
class Timeline:
    """A rule in its zone. `identity` decides the jitter: two schedules with the same rule do not run together."""

    rule: Rule
    zone: Zone
    identity: str = ""
    _times: LocalTimes | None = field(init=False, repr=False, compare=False)
    _kind: KeyKind = field(init=False, repr=False, compare=False)
    _left_out: frozenset[int] = field(init=False, repr=False, compare=False)
    _lowest: int = field(init=False, repr=False, compare=False)
    _highest: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.zone.name != self.rule.zone:
            raise InvalidSettings(
                f"The rule {self.rule.text!r} was given the zone {self.zone.name!r}: give it the zone that it names."
            )
        start, end = self.rule.start, self.rule.end
        lowest = FIRST if start is None else seconds_of(start) + (1 if start.microsecond else 0)
        times = self.rule.local_times()
        object.__setattr__(self, "_times", times)
        object.__setattr__(self, "_kind", self.rule.key_kind)
        object.__setattr__(self, "_left_out", self.rule.left_out if times is None else times.left_out)
        object.__setattr__(self, "_lowest", max(FIRST, lowest))
        object.__setattr__(self, "_highest", END - 1 if end is None else seconds_of(end))

    def next(self, after: datetime) -> Occurrence | None:
        """The first one later than a moment; None: there is no more."""
        return self._occurrence(self._next(seconds_of(after)))

    def previous(self, before: datetime) -> Occurrence | None:
        """The last one earlier than a moment."""
        whole = seconds_of(before)
        return self._occurrence(self._previous(whole + 1 if before.microsecond else whole))

    def count(self, after: datetime, until: datetime) -> int:
        """How many there are after a moment, up to and including another."""
        first = max(seconds_of(after), self._lowest - 1)
        last = min(seconds_of(until), self._highest)
        return self._count(first, last) if first < last else 0

    def occurrences(self, after: datetime, until: datetime, limit: int) -> tuple[Occurrence, ...]:
        """The first ones after a moment, up to and including another, at most `limit`."""
        found: list[int] = []
        at, last = self._next(seconds_of(after)), seconds_of(until)
        while at is not None and at <= last and len(found) < limit:
            found.append(at)
            at = self._next(at)
        return tuple(self._made(each, behind) for each, behind in pairwise([*found, at]) if each is not None)

    def following(self, key: str) -> Occurrence | None:
        """The first one whose key is greater than this one, whatever kind of rule the key comes from."""
        at, found = self._from_key(key), ""
        while at is not None and (found := self._key(at)) <= key:
            at = self._next(at)
        return self._occurrence(at, found)

    def from_key(self, key: str) -> Occurrence | None:
        """The first one whose key is this one or greater."""
        at, found = self._from_key(key), ""
        while at is not None and (found := self._key(at)) < key:
            at = self._next(at)
        return self._occurrence(at, found)

    def local(self, moment: datetime) -> datetime:
        """What the clock on the wall shows, as a datetime without a zone."""
        return wall(self.zone.local(seconds_of(moment)))

    def meant(self, occurrence: Occurrence) -> tuple[datetime, ...]:
        """The local times of this occurrence: several, if the clock has left them out together."""
        at = seconds_of(occurrence.at)
        if self._times is None or self._kind is KeyKind.INSTANT:
            return (wall(self.zone.local(at)),)
        found: list[datetime] = []
        local = self._times.floor(self.zone.peak(at), self.zone.peak(at - 1) + 1)
        while local is not None and len(found) < 10:
            found.append(wall(local))
            local = self._times.floor(local - 1, self.zone.peak(at - 1) + 1)
        return tuple(reversed(found))

    # --- Keys and jitter --------------------------------------------------------------------------------------

    def _occurrence(self, at: int | None, key: str | None = None) -> Occurrence | None:
        if at is None:
            return None
        return self._made(at, self._next(at) if self.rule.jitter else None, key)

    def _made(self, at: int, behind: int | None, key: str | None = None) -> Occurrence:
        key, moment = key or self._key(at), moment_of(at)
        if not self.rule.jitter:
            return Occurrence(key, moment, moment)
        # Never as late as the next one: occurrences fall due in the order of their keys.
        span = self.rule.jitter if behind is None else min(self.rule.jitter, behind - at)
        drawn = int.from_bytes(blake2b(f"{self.identity} {key}".encode(), digest_size=8).digest(), "big")
        return Occurrence(key, moment, moment + timedelta(microseconds=drawn * span * 1_000_000 >> 64))

    def _key(self, at: int) -> str:
        kind = self._kind
        if kind is KeyKind.INSTANT or self._times is None:
            return wall(at).isoformat() + "Z"
        local = self._times.floor(self.zone.peak(at))
        assert local is not None, "an occurrence has a local time"
        if kind is KeyKind.LOCAL:
            return wall(local).isoformat()
        if kind is KeyKind.DATE:
            return date.fromordinal(local // DAY + EPOCH_DAY).isoformat()
        assert_never(kind)

    def _from_key(self, key: str) -> int | None:
        """The first moment whose key may be this one or greater."""
        time = _seconds_of_key(key)
        if self._kind is KeyKind.INSTANT or self._times is None:
            return self._next(time - 1)
        if self._kind is KeyKind.DATE:
            time -= time % DAY
        return self._next(self.zone.resolve(time) - 1)

    # --- Whole seconds ----------------------------------------------------------------------------------------

    def _next(self, t: int) -> int | None:
        t = max(t, self._lowest - 1)
        if t >= self._highest:
            return None
        at = self._search(t)
        assert at is None or at > t, "the next occurrence is later than the moment asked about"
        return at if at is not None and at <= self._highest else None

    def _search(self, t: int) -> int | None:
        if self._times is None:
            return self._next_interval(t)
        if self._kind is KeyKind.INSTANT:
            return self._next_elapsed(self._times, t)
        local = self._times.ceil(self.zone.peak(t) + 1)
        return None if local is None else self.zone.resolve(local)

    def _previous(self, t: int) -> int | None:
        t = min(t, self._highest + 1)
        if t <= self._lowest:
            return None
        if self._times is None:
            at = self._previous_interval(t)
        elif self._kind is KeyKind.INSTANT:
            at = self._previous_elapsed(self._times, t)
        else:
            local = self._times.floor(self.zone.peak(t - 1))
            at = None if local is None else self.zone.resolve(local)
        assert at is None or at < t, "the previous occurrence is earlier than the moment asked about"
        return at if at is not None and at >= self._lowest else None

    def _count(self, first: int, last: int) -> int:
        times, zone = self._times, self.zone
        if times is None:
            return self._count_intervals(first, last)
        if self._kind is KeyKind.INSTANT:
            number = _between(times, zone.local(first + 1), zone.local(last) + 1)
            for change in zone.changes(first + 1, last):
                number += _between(times, change.ends, change.begins)  # left out or repeated
            return number
        number = times.count(zone.peak(first) + 1, zone.peak(last) + 1)
        for change in zone.changes(first, last):
            if change.forward:  # all that is left out in one gap is one occurrence
                in_gap = times.count(zone.peak(change.at - 1) + 1, zone.peak(change.at) + 1)
                number -= max(0, in_gap - 1)
        return number

    # --- Elapsed cron rules: between two clock changes local time runs like elapsed time -------------------------

    def _next_elapsed(self, times: LocalTimes, t: int) -> int | None:
        starts, offsets = self.zone.starts, self.zone.offsets
        for at in range(self.zone.segment(t + 1), len(starts)):
            end = starts[at + 1] if at + 1 < len(starts) else END
            local = times.ceil(max(t + 1, starts[at]) + offsets[at], end + offsets[at])
            if local is not None:
                return local - offsets[at]
            if end > self._highest:
                return None
        return None

    def _previous_elapsed(self, times: LocalTimes, t: int) -> int | None:
        starts, offsets = self.zone.starts, self.zone.offsets
        for at in range(self.zone.segment(t - 1), -1, -1):
            end = min(t, starts[at + 1]) if at + 1 < len(starts) else t
            local = times.floor(end - 1 + offsets[at], max(FIRST, starts[at] + offsets[at]))
            if local is not None:
                return local - offsets[at]
            if starts[at] < self._lowest:
                return None
        return None

    # --- Intervals ----------------------------------------------------------------------------------------------

    @property
    def _interval(self) -> tuple[int, int]:
        assert isinstance(self.rule.pattern, Every)
        return self.rule.pattern.seconds, (self.rule.pattern.anchor - EPOCH) // timedelta(seconds=1)

    def _next_interval(self, t: int) -> int | None:
        step, anchor = self._interval
        at = t + step - (t - anchor) % step
        while self._is_left_out(at):
            at = at // DAY * DAY + DAY
            at += (anchor - at) % step
        return at if at < END else None

    def _previous_interval(self, t: int) -> int | None:
        step, anchor = self._interval
        at = t - 1 - (t - 1 - anchor) % step
        while self._is_left_out(at):
            at = at // DAY * DAY - 1
            at -= (at - anchor) % step
        return at if at >= FIRST else None

    def _is_left_out(self, at: int) -> bool:
        return at // DAY in self._left_out

    def _count_intervals(self, first: int, last: int) -> int:
        step, anchor = self._interval
        number = (last - anchor) // step - (first - anchor) // step
        for each in self.rule.without:
            begin = (each.toordinal() - EPOCH_DAY) * DAY
            low, high = max(first, begin - 1), min(last, begin + DAY - 1)
            if low < high:
                number -= (high - anchor) // step - (low - anchor) // step
        return number


def is_key(text: str) -> bool:
    """Whether a text can be the key of an occurrence."""
    try:
        _seconds_of_key(text)
    except InvalidSettings:
        return False
    return True


def _seconds_of_key(key: str) -> int:
    """The moment or local time that a key names."""
    try:
        if KEY.fullmatch(key):
            return seconds_of(datetime.fromisoformat(key.removesuffix("Z")).replace(tzinfo=UTC))
    except ValueError:
        pass
    raise InvalidSettings(
        f"{key!r} is not the key of an occurrence: write 2026-03-29, 2026-03-29T02:30:00 or 2026-03-29T00:30:00Z."
    )


def _between(times: LocalTimes, begin: int, end: int) -> int:
    """How many there are from one local time up to another; negative, if the second is the earlier one."""
    return times.count(begin, end) - times.count(end, begin)
