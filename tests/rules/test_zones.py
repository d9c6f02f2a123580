"""Zones as values: the same offsets as zoneinfo gives for the same bytes, and what is refused."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidSettings
from holdfast.rules.recurrence import daily
from holdfast.rules.zones import EPOCH, FIRST, Zone, build, parse, seconds_of
from holdfast.schedules import zones
from tests.rules import reference
from tests.rules.purity import trapped

SOME = (
    "Europe/Dublin",
    "Africa/Monrovia",
    "Asia/Gaza",
    "Antarctica/Troll",
    "America/Nuuk",
    "Pacific/Apia",
    "UTC",
)
END = round((datetime(2198, 1, 1, tzinfo=UTC) - EPOCH).total_seconds())


@pytest.mark.parametrize("part", range(4))
def test_every_zone_has_the_offsets_that_zoneinfo_has(part: int) -> None:
    for name in sorted(zones.names())[part::4]:
        ours, theirs = zones.zone(name), reference.zone_of(name)
        asked = [t for t in ours.starts if FIRST < t < END][:: 5 if "/" in name else 25]
        for t in (each + second for each in asked for second in (-1, 0)):
            shown = datetime.fromtimestamp(t, theirs).replace(tzinfo=None) if t >= 0 else None
            expected = shown or (EPOCH + timedelta(seconds=t)).astimezone(theirs).replace(tzinfo=None)
            assert ours.local(t) == (expected - datetime(1970, 1, 1)) // timedelta(seconds=1), (name, t)


@pytest.mark.parametrize("name", SOME)
def test_peak_and_resolve_are_what_they_say(name: str) -> None:
    """Watched around changes: in gaps, overlaps and beside them."""
    zone = zones.zone(name)
    for change in [t for t in zone.starts if t > 0][:12]:
        size = 2 * 3600
        moments = range(change - size, change + size, 30)
        highest = zone.peak(moments[0] - 30)
        for t in moments:
            highest = max(highest, zone.local(t - 1), zone.local(t))
            assert zone.peak(t) == highest
            first = zone.resolve(zone.local(t))
            assert first <= t
            assert zone.local(first) >= zone.local(t) > zone.peak(first - 1)


@pytest.mark.parametrize(
    ("tail", "moment", "offset"),
    [
        ("CET-1CEST,M3.5.0,M10.5.0/3", datetime(2100, 3, 28, 1, tzinfo=UTC), 7200),
        ("CET-1CEST,M3.5.0,M10.5.0/3", datetime(2100, 3, 28, 0, 59, 59, tzinfo=UTC), 3600),
        ("IST-1GMT0,M10.5.0,M3.5.0/1", datetime(2050, 1, 1, tzinfo=UTC), 0),  # summer time in winter
        ("IST-1GMT0,M10.5.0,M3.5.0/1", datetime(2050, 7, 1, tzinfo=UTC), 3600),
        ("<-04>4<-03>,M9.1.6/24,M4.1.6/24", datetime(2050, 1, 1, tzinfo=UTC), -10_800),
        ("<+1030>-10:30<+11>-11,M10.1.0,M4.1.0", datetime(2050, 1, 1, tzinfo=UTC), 39_600),
        # Summer time all the year round.
        (
            "XXX3EDT4,0/0,J365/23",
            datetime(2050, 1, 1, 4, tzinfo=UTC),
            -14_400,
        ),
        # J60 is 1 March, leap year or not.
        (
            "EST5EDT,J60,300/-1:30",
            datetime(2052, 3, 1, 7, tzinfo=UTC),
            -14_400,
        ),
        ("EST5EDT,J60,300/-1:30", datetime(2052, 3, 1, 6, 59, 59, tzinfo=UTC), -18_000),
        ("<+03>-3", datetime(2100, 1, 1, tzinfo=UTC), 10_800),
    ],
)
def test_the_rule_for_later_years(tail: str, moment: datetime, offset: int) -> None:
    t = seconds_of(moment)
    assert build("Some/Place", 0, [], tail).local(t) - t == offset


@given(
    st.lists(st.tuples(st.integers(60, 200_000), st.integers(-50_000, 50_000)), max_size=8),
    st.integers(-9, 9),
)
def test_peak_and_resolve_only_rise_whatever_the_clock_does(steps: list[tuple[int, int]], first: int) -> None:
    """Also with changes so close together that one begins inside the other."""
    at, changes = 0, []
    for length, offset in steps:
        at += length
        changes.append((at, offset))
    zone = build("Some/Place", first, changes)
    moments = sorted({t + by for t in zone.starts[1:] for by in (-1, 0, 1, 3600)})
    assert [zone.peak(t) for t in moments] == sorted(zone.peak(t) for t in moments)
    for t in moments:
        assert zone.peak(zone.resolve(zone.peak(t))) >= zone.peak(t)
        assert zone.resolve(zone.peak(t)) <= t < zone.resolve(zone.peak(t) + 1)


# --- Where zones come from ---------------------------------------------------------------------------------------


def test_zones_come_from_the_wheel_and_have_its_version() -> None:
    import tzdata  # type: ignore[import-untyped]

    assert zones.version() == tzdata.IANA_VERSION
    assert len(zones.names()) > 590
    assert zones.zone("Europe/Berlin") is zones.zone("Europe/Berlin")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Berlin", "did you mean 'Europe/Berlin'?"),
        ("europe/berlin", "did you mean 'Europe/Berlin'?"),
        ("America/NewYork", "did you mean 'America/New_York'?"),
        ("right/Europe/Berlin", "write 'Europe/Berlin'"),
        ("posix/Europe/Berlin", "write 'Europe/Berlin'"),
        ("localtime", "something else on every machine"),
        ("posixrules", "name an IANA zone"),
        ("Factory", "nobody has set a zone"),
        ("Moon/Crater", "no such zone in tzdata"),
        ("../../etc/passwd", "no such zone"),
        ("zone.tab", "no such zone"),
        ("", "no such zone"),
    ],
)
def test_names_that_are_refused(name: str, hint: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        zones.zone(name)
    assert hint in str(caught.value)


def test_a_rule_is_bound_to_the_zone_that_it_names() -> None:
    assert zones.timeline(daily("09:00", zone="Asia/Tokyo"), "one").zone is zones.zone("Asia/Tokyo")
    with pytest.raises(InvalidSettings, match="did you mean 'Asia/Tokyo'"):
        zones.timeline(daily("09:00", zone="Asia/Tokio"))


@pytest.mark.parametrize("damage", [b"", b"TZif", b"not a zone", reference.data_of("Europe/Berlin")[:200]])
def test_damaged_data_is_refused(damage: bytes) -> None:
    with pytest.raises(InvalidSettings, match="Install the tzdata package again"):
        parse("Europe/Berlin", damage)


def test_data_with_leap_seconds_is_refused() -> None:
    header = struct.pack(">4sc15x6l", b"TZif", b"2", 0, 0, 1, 0, 1, 4)
    with pytest.raises(InvalidSettings, match="leap seconds"):
        parse("right/UTC", header + bytes(6 + 4 + 8) + header + bytes(6 + 4 + 12) + b"\nUTC0\n")


def test_reading_the_bytes_is_all_that_is_not_pure() -> None:
    data = reference.data_of("Europe/Berlin")
    with trapped():
        found: Zone = parse("Europe/Berlin", data)
    assert found == zones.zone("Europe/Berlin")
