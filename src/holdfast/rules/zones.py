"""A time zone as a value: when its offset from UTC changes, and to what.

`parse` reads the bytes of a TZif file (RFC 8536) into a `Zone`; whoever calls it has read the file. Times are whole
seconds since 1970: `t` counts UTC, `local` counts what a clock on the wall shows.

Two functions carry all the rules about clock changes:

- `peak(t)`: the latest local time that the clock has shown up to the moment t. When the clock goes back the peak stands
  still until the clock has passed it again.
- `resolve(local)`: the first moment at which the clock shows this local time or a later one. A time that does not exist
  is resolved to the end of its gap, a time that comes twice to the first of the two.

Both only rise, so rules about local times can be searched and counted as if there were no clock changes.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from ..errors import InvalidSettings

DAY = 86_400
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WALL_EPOCH = EPOCH.replace(tzinfo=None)
EPOCH_DAY = EPOCH.toordinal()
FIRST_YEAR, LAST_YEAR = 1900, 2199  # nothing is computed before or after
FIRST = (date(FIRST_YEAR, 1, 1).toordinal() - EPOCH_DAY) * DAY
END = (date(LAST_YEAR + 1, 1, 1).toordinal() - EPOCH_DAY) * DAY
ALWAYS = -(2**62)  # before all changes


@dataclass(frozen=True, slots=True)
class Change:
    """A moment at which the clock of a zone is set, and its offset in seconds before and after."""

    at: int
    before: int
    after: int

    @property
    def forward(self) -> bool:
        """Whether there is a gap: local times from `begins` up to `ends` do not exist."""
        return self.after > self.before

    @property
    def begins(self) -> int:
        """What the clock shows before it is set."""
        return self.at + self.before

    @property
    def ends(self) -> int:
        """What the clock shows when it has been set."""
        return self.at + self.after


@dataclass(frozen=True, slots=True)
class Zone:
    """From `starts[n]` until `starts[n + 1]` the offset is `offsets[n]`; `peaks[n]` is the peak just before."""

    name: str
    starts: tuple[int, ...]
    offsets: tuple[int, ...]
    peaks: tuple[int, ...]

    def segment(self, t: int) -> int:
        """The number of the stretch without changes that the moment lies in."""
        return bisect_right(self.starts, t) - 1

    def local(self, t: int) -> int:
        """What the clock shows."""
        return t + self.offsets[bisect_right(self.starts, t) - 1]

    def peak(self, t: int) -> int:
        """The latest local time that the clock has shown up to this moment."""
        at = bisect_right(self.starts, t) - 1
        return max(self.peaks[at], t + self.offsets[at])

    def resolve(self, local: int) -> int:
        """The first moment at which the clock shows this or a later time."""
        at = bisect_left(self.peaks, local, 1) - 1
        return max(self.starts[at], local - self.offsets[at])

    def changes(self, after: int, until: int) -> Iterator[Change]:
        """Those after a moment, up to and including another."""
        first = bisect_right(self.starts, after)
        for at in range(max(1, first), bisect_right(self.starts, until)):
            yield Change(self.starts[at], self.offsets[at - 1], self.offsets[at])

    def change_before(self, t: int) -> Change | None:
        """The last change at or before a moment."""
        at = bisect_right(self.starts, t) - 1
        return Change(self.starts[at], self.offsets[at - 1], self.offsets[at]) if at else None

    def change_after(self, t: int) -> Change | None:
        """The first change after a moment."""
        return next(self.changes(t, END), None)


def build(name: str, first: int, changes: list[tuple[int, int]], tail: str = "") -> Zone:
    """From the first offset, (moment, new offset) in order, and the POSIX rule for the years behind the last one."""
    if tail:
        last = changes[-1][0] if changes else ALWAYS
        changes = [*changes, *(each for each in _tail(name, tail) if each[0] > last)]
    starts, offsets, peaks = [ALWAYS], [first], [ALWAYS]
    for at, offset in changes:
        if offset != offsets[-1]:
            peaks.append(max(peaks[-1], at - 1 + offsets[-1]))
            starts.append(at)
            offsets.append(offset)
    return Zone(name, tuple(starts), tuple(offsets), tuple(peaks))


def of_offset(name: str, offset: int) -> Zone:
    """A zone whose clock is never set."""
    return build(name, offset, [])


UTC_ZONE = of_offset("UTC", 0)


# --- Moments as people write them -----------------------------------------------------------------------------


def seconds_of(moment: datetime, what: str = "The moment") -> int:
    """Whole seconds since 1970, rounded down."""
    passed = aware(moment, what) - EPOCH
    return passed.days * DAY + passed.seconds


def moment_of(t: int) -> datetime:
    return EPOCH + timedelta(0, t)


def wall(local: int) -> datetime:
    """A local time as a datetime without a zone."""
    return WALL_EPOCH + timedelta(0, local)


def aware(moment: object, what: str) -> datetime:
    """Refuses a datetime that does not say which moment it means."""
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise InvalidSettings(
            f"{what} must be a datetime with a time zone and is {moment!r}: "
            "add one, for example datetime(2026, 1, 1, tzinfo=timezone.utc)."
        )
    return moment


# --- TZif (RFC 8536) ------------------------------------------------------------------------------------------

HEADER = struct.Struct(">4sc15x6l")


def parse(name: str, data: bytes) -> Zone:
    """A zone from the bytes of its TZif file, version 2 or later."""
    try:
        return _parse(name, data)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise _broken(name, f"it is cut off or damaged ({error})") from error


def _parse(name: str, data: bytes) -> Zone:
    magic, version, *counts = HEADER.unpack_from(data)
    if magic != b"TZif" or version < b"2":
        raise _broken(name, "it is no TZif file of version 2 or later")
    isutc, isstd, leap, times, types, chars = counts
    second = HEADER.size + times * 5 + types * 6 + chars + leap * 8 + isstd + isutc
    _, _, isutc, isstd, leap, times, types, chars = HEADER.unpack_from(data, second)
    if leap:
        raise _broken(name, "it counts leap seconds")
    at = second + HEADER.size
    moments = struct.unpack_from(f">{times}q", data, at)
    kinds = data[at + times * 8 : at + times * 9]
    at += times * 9
    offsets = [struct.unpack_from(">l", data, at + kind * 6)[0] for kind in range(types)]
    at += types * 6 + chars + isstd + isutc
    tail = data[at:].decode("ascii").strip("\n")
    changes = [(moment, offsets[kind]) for moment, kind in zip(moments, kinds, strict=True)]
    return build(name, offsets[0], changes, tail)


def _broken(name: str, why: str) -> InvalidSettings:
    return InvalidSettings(
        f"The data of time zone {name!r} cannot be read: {why}. Install the tzdata package again."
    )


# --- The POSIX rule for the years to come ----------------------------------------------------------------------

ABBREVIATION = r"(?:[A-Za-z]{3,}|<[A-Za-z0-9+-]{3,}>)"
CLOCK = r"[+-]?\d{1,3}(?::\d{2}(?::\d{2})?)?"
WHEN = rf"(?:J\d{{1,3}}|\d{{1,3}}|M\d{{1,2}}\.\d\.\d)(?:/{CLOCK})?"
TAIL = re.compile(
    rf"{ABBREVIATION}(?P<standard>{CLOCK})"
    rf"(?:{ABBREVIATION}(?P<summer>{CLOCK})?,(?P<begin>{WHEN}),(?P<end>{WHEN}))?"
)


def _tail(name: str, text: str) -> list[tuple[int, int]]:
    """The changes that a POSIX rule makes, `CET-1CEST,M3.5.0,M10.5.0/3`, in the years that we compute."""
    found = TAIL.fullmatch(text)
    if found is None:
        raise _broken(name, f"its rule for later years is {text!r}")
    standard = -_clock(found["standard"])  # POSIX counts west of Greenwich
    if found["begin"] is None:
        return [(FIRST, standard)]
    summer = standard + 3600 if found["summer"] is None else -_clock(found["summer"])
    changes = []
    for year in range(FIRST_YEAR, LAST_YEAR + 1):
        # If one ends when the next begins (summer time all year round), the beginning comes last and is the one that
        # counts.
        changes.append((_moment(found["end"], year) - summer, 0, standard))
        changes.append((_moment(found["begin"], year) - standard, 1, summer))
    return [(at, offset) for at, _, offset in sorted(changes)]


def _clock(text: str) -> int:
    sign = -1 if text[0] == "-" else 1
    hours, minutes, seconds = ([int(each) for each in text.lstrip("+-").split(":")] + [0, 0])[:3]
    return sign * (hours * 3600 + minutes * 60 + seconds)


def _moment(text: str, year: int) -> int:
    """`M3.5.0/3`, `J60` or `59/-1` in a year, as a local time."""
    day, _, clock = text.partition("/")
    new_year = date(year, 1, 1).toordinal()
    if day[0] == "M":
        month, week, weekday = (int(each) for each in day[1:].split("."))
        first = date(year, month, 1).toordinal()
        found = first + (weekday - first) % 7 + 7 * (week - 1)  # ordinals count from a Monday, weekday 1 here
        length = (date(year + month // 12, month % 12 + 1, 1).toordinal()) - first
        found -= 7 if found >= first + length else 0
    elif day[0] == "J":  # 1 to 365, 29 February is never counted
        found = date(1970, 1, 1).toordinal() + int(day[1:]) - 1
        found = date.fromordinal(found).replace(year=year).toordinal()
    else:
        found = new_year + int(day)
    return (found - EPOCH_DAY) * DAY + (_clock(clock) if clock else 7200)
