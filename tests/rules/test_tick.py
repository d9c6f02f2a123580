"""What a tick fires and leaves out, beside a model that looks at every occurrence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InvalidSettings
from holdfast.rules.patterns import Rule
from holdfast.rules.recurrence import cron, daily, every, yearly
from holdfast.rules.tick import (
    WAIT,
    Last,
    LeftOut,
    Misfire,
    Overlap,
    Tick,
    Why,
    changed,
    decide,
    leave_out,
    misfire,
)
from holdfast.rules.timeline import Occurrence, Timeline
from holdfast.schedules import zones
from tests.rules.purity import trapped

BERLIN, NEW_YORK, AUCKLAND = "Europe/Berlin", "America/New_York", "Pacific/Auckland"
START = datetime(2026, 3, 1, tzinfo=UTC)
MINUTE = every(minutes=1)


def on(rule: Rule) -> Timeline:
    return Timeline(rule, zones.zone(rule.zone), "one")


def first_key(timeline: Timeline, after: datetime = START) -> str:
    found = timeline.next(after)
    assert found is not None
    return found.key


def ticked(rule: Rule, late: timedelta, policy: Misfire, **facts: Any) -> Tick:
    """A schedule that was made at the start, and the first tick so much later."""
    timeline = on(rule)
    return decide(timeline, first_key(timeline), None, START + late, policy, **facts)


def summary(tick: Tick) -> tuple[list[str], list[tuple[str, str, int, Why]]]:
    left = [(each.first.key[11:16], each.last.key[11:16], each.count, each.why) for each in tick.left_out]
    return [each.key[11:16] for each in tick.fires], left


# --- One minute at a time, ten minutes late -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "fires", "left"),
    [
        (Misfire("all"), [f"00:{n:02}" for n in range(1, 11)], []),
        (Misfire("all", cap=None), [f"00:{n:02}" for n in range(1, 11)], []),
        (Misfire("all", cap=3), ["00:08", "00:09", "00:10"], [("00:01", "00:07", 7, Why.OVER_CAP)]),
        (Misfire("all", cap=10), [f"00:{n:02}" for n in range(1, 11)], []),
        (Misfire("latest"), ["00:10"], [("00:01", "00:09", 9, Why.NOT_LATEST)]),
        (Misfire("skip"), ["00:09", "00:10"], [("00:01", "00:08", 8, Why.MISSED)]),
        (Misfire("skip", grace=0), ["00:10"], [("00:01", "00:09", 9, Why.MISSED)]),
        (Misfire("all", max_late=120), ["00:08", "00:09", "00:10"], [("00:01", "00:07", 7, Why.TOO_LATE)]),
        (Misfire("all", max_late=119), ["00:09", "00:10"], [("00:01", "00:08", 8, Why.TOO_LATE)]),
        (
            Misfire("all", cap=2, max_late=240),
            ["00:09", "00:10"],
            [("00:01", "00:05", 5, Why.TOO_LATE), ("00:06", "00:08", 3, Why.OVER_CAP)],
        ),
        (
            Misfire("latest", max_late=120),
            ["00:10"],
            [("00:01", "00:07", 7, Why.TOO_LATE), ("00:08", "00:09", 2, Why.NOT_LATEST)],
        ),
        (
            Misfire("skip", max_late=300, cap=1),
            ["00:10"],
            [
                ("00:01", "00:04", 4, Why.TOO_LATE),
                ("00:05", "00:08", 4, Why.MISSED),
                ("00:09", "00:09", 1, Why.OVER_CAP),
            ],
        ),
    ],
)
@pytest.mark.covers("X55")
def test_missed_occurrences(policy: Misfire, fires: list[str], left: list[tuple[str, str, int, Why]]) -> None:
    tick = ticked(MINUTE, timedelta(minutes=10), policy)
    assert summary(tick) == (fires, left)
    assert tick.last_key == "2026-03-01T00:10:00Z"
    assert tick.next is not None
    assert (tick.next.key, tick.look_at) == ("2026-03-01T00:11:00Z", START + timedelta(minutes=11))


@pytest.mark.covers("X55")
@pytest.mark.parametrize(
    "policy", [Misfire("latest", max_late=60), Misfire("skip"), Misfire("all", max_late=60)]
)
def test_what_is_left_out_to_the_last_is_told_too(policy: Misfire) -> None:
    rule = every(hours=1)
    tick = ticked(rule, timedelta(hours=3, minutes=30), policy)
    assert [(each.count, each.last.key) for each in tick.left_out] == [(3, "2026-03-01T03:00:00Z")]
    assert (tick.fires, tick.last_key) == ((), "2026-03-01T03:00:00Z")
    assert tick.next is not None
    assert tick.next.key == "2026-03-01T04:00:00Z"


def test_nothing_is_due_yet() -> None:
    tick = ticked(MINUTE, timedelta(seconds=59), Misfire("all"))
    assert (tick.fires, tick.left_out, tick.last_key) == ((), (), None)
    assert tick.look_at == START + timedelta(minutes=1)


@pytest.mark.covers("B7")
def test_due_is_at_the_very_moment() -> None:
    assert len(ticked(MINUTE, timedelta(seconds=60), Misfire("skip", grace=0)).fires) == 1


def test_a_rule_that_is_over_has_no_next() -> None:
    tick = ticked(every(minutes=1, end=START + timedelta(minutes=2)), timedelta(hours=1), Misfire("all"))
    assert summary(tick) == (["00:01", "00:02"], [])
    assert (tick.next, tick.look_at) == (None, None)


@pytest.mark.covers("X55")
def test_the_default_follows_from_the_rule() -> None:
    assert misfire(every(minutes=5)).policy == "latest"
    assert misfire(cron("*/5 * * * *")).policy == "latest"
    assert misfire(cron("0 9 * * *")).policy == "all"
    assert misfire(daily("09:00")) == Misfire("all", cap=100, max_late=None, grace=60.0)


@pytest.mark.parametrize(
    "given_",
    [
        {"policy": "some"},
        {"cap": 0},
        {"cap": True},
        {"cap": 1.5},
        {"max_late": 0},
        {"max_late": "1 h"},
        {"grace": -1},
        {"grace": True},
    ],
)
def test_policies_that_cannot_work_are_refused(given_: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings):
        misfire(MINUTE, **given_)


# --- Bounded ---------------------------------------------------------------------------------------------------------


@pytest.mark.covers("X55", "X19")
def test_a_tick_is_bounded_and_the_rest_stays_due() -> None:
    """400 days of every minute, all of them wanted: a hundred at a time, oldest first."""
    timeline, now = on(MINUTE), START + timedelta(days=400)
    tick = decide(timeline, first_key(timeline), None, now, Misfire("all", cap=None))
    assert len(tick.fires) == 100
    assert tick.fires[0].key == "2026-03-01T00:01:00Z"
    assert tick.left_out == ()
    assert tick.next is not None
    assert tick.look_at == tick.next.due == START + timedelta(minutes=101)
    again = decide(timeline, tick.next.key, tick.last_key, now, Misfire("all", cap=None), limit=30)
    assert again.fires[0] == tick.next
    assert len(again.fires) == 30


@pytest.mark.covers("X55")
def test_a_cap_larger_than_a_tick_holds_over_several() -> None:
    timeline, now = on(MINUTE), START + timedelta(days=1)
    key, last, fired, left = first_key(timeline), None, [], []
    while True:
        tick = decide(timeline, key, last, now, Misfire("all", cap=250))
        if not tick.fires:
            break
        fired += tick.fires
        left += tick.left_out
        assert tick.next is not None
        key, last = tick.next.key, tick.last_key
    assert len(fired) == 250
    assert [(each.count, each.why) for each in left] == [(1440 - 250, Why.OVER_CAP)]
    assert fired[-1].key == "2026-03-02T00:00:00Z"


@pytest.mark.covers("X55")
def test_a_flood_is_one_line() -> None:
    """Every five seconds for 400 days."""
    tick = ticked(every(seconds=5), timedelta(days=400), Misfire("all"))
    assert len(tick.fires) == 100
    (left,) = tick.left_out
    assert left.count == 400 * 17_280 - 100
    assert left.sentence == (
        "6,911,900 occurrences from 2026-03-01T00:00:05Z to 2027-04-04T23:51:40Z were left out: "
        "more had been missed than the cap allows, and the newest are kept."
    )


# --- Overlap ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overlap", "last", "fires", "left", "cancels"),
    [
        ("allow", Last.STARTED, ["00:01", "00:02", "00:03"], [], False),
        ("queue", Last.WAITING, ["00:01", "00:02", "00:03"], [], False),
        ("skip", Last.ENDED, ["00:01"], [("00:02", "00:03", 2, Why.OVERLAP)], False),
        ("skip", Last.WAITING, [], [("00:01", "00:03", 3, Why.OVERLAP)], False),
        ("skip", Last.STARTED, [], [("00:01", "00:03", 3, Why.OVERLAP)], False),
        ("replace", Last.ENDED, ["00:03"], [("00:01", "00:02", 2, Why.REPLACED)], False),
        ("replace", Last.WAITING, ["00:03"], [("00:01", "00:02", 2, Why.REPLACED)], True),
    ],
)
def test_overlap(
    overlap: Overlap, last: Last, fires: list[str], left: list[tuple[str, str, int, Why]], cancels: bool
) -> None:
    tick = ticked(MINUTE, timedelta(minutes=3), Misfire("all"), overlap=overlap, last=last)
    assert summary(tick) == (fires, left)
    assert tick.cancels is cancels
    assert tick.last_key == "2026-03-01T00:03:00Z"


def test_one_alone_overlaps_with_nothing() -> None:
    tick = ticked(MINUTE, timedelta(minutes=1), Misfire("all"), overlap="skip")
    assert summary(tick) == (["00:01"], [])


def test_replace_waits_for_what_has_started_and_does_not_spin() -> None:
    now = START + timedelta(minutes=3)
    tick = ticked(MINUTE, timedelta(minutes=3), Misfire("all"), overlap="replace", last=Last.STARTED)
    assert (tick.fires, tick.left_out, tick.cancels, tick.last_key) == ((), (), False, None)
    assert tick.next is not None
    assert (tick.next.key, tick.look_at) == ("2026-03-01T00:01:00Z", now + WAIT)


# --- Pause, skip, change ---------------------------------------------------------------------------------------------


def test_what_a_pause_leaves_out_is_one_line() -> None:
    timeline = on(MINUTE)
    tick = leave_out(timeline, first_key(timeline), None, START + timedelta(hours=1), Why.PAUSED)
    assert summary(tick) == ([], [("00:01", "01:00", 60, Why.PAUSED)])
    assert tick.next is not None
    assert tick.next.key == "2026-03-01T01:01:00Z"
    none = leave_out(timeline, tick.next.key, tick.last_key, START + timedelta(hours=1), Why.PAUSED)
    assert (none.left_out, none.next, none.last_key) == ((), tick.next, tick.last_key)


def test_the_next_one_is_skipped() -> None:
    timeline = on(daily("09:00", zone=BERLIN, jitter=600))
    coming = timeline.next(START)
    assert coming is not None
    tick = leave_out(timeline, coming.key, None, coming.due, Why.SKIPPED)
    (left,) = tick.left_out
    assert left.sentence == "1 occurrence, 2026-03-01, was left out: skipped by an operator."
    assert tick.next is not None
    assert tick.next.key == "2026-03-02"


def birthday(zone: str) -> Timeline:
    return on(yearly("03-14", "09:00", zone=zone))


@pytest.mark.covers("X54")
def test_one_greeting_a_year_whatever_the_moves() -> None:
    """West after the greeting, east before it, to and fro: each year is greeted once."""
    moves = {
        "2026-03-14T07:00": AUCKLAND,  # 09:00 has passed there and not yet in Berlin: owed
        "2026-03-14T07:01": BERLIN,  # greeted in Auckland
        "2026-03-14T09:00": NEW_YORK,  # 09:00 is still to come there
        "2027-03-14T12:30": AUCKLAND,
        "2028-03-13T20:30": BERLIN,  # greeted in Auckland at 20:00 UTC of the 13th
        "2028-03-14T08:30": NEW_YORK,
        "2029-03-14T12:59": BERLIN,
        "2029-06-01T00:00": AUCKLAND,
    }
    timeline, last, fired = birthday(BERLIN), None, []
    now = datetime(2026, 1, 1, tzinfo=UTC)
    pending = changed(timeline, None, None, now)
    ticks = {
        f"{year}-{day}T{hour}:{minute}"
        for year in range(2026, 2031)
        for day in ("03-13", "03-14")
        for hour in ("07", "08", "13", "20")
        for minute in ("00", "02")
    }
    moments = sorted({*moves, *ticks})
    for text in moments:
        now = datetime.fromisoformat(text).replace(tzinfo=UTC)
        if text in moves:
            timeline = birthday(moves[text])
            assert pending is not None
            pending = changed(timeline, pending.key, last, now)
        assert pending is not None
        tick = decide(timeline, pending.key, last, now, Misfire("all", cap=None))
        fired += [each.key for each in tick.fires]
        last, pending = tick.last_key, tick.next
    assert fired == [f"{year}-03-14" for year in range(2026, 2031)]


@settings(max_examples=150)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.3, 7.0, 11.5, 26.0, 4000.0, 8760.0, 8766.0]),  # hours
            st.none()
            | st.sampled_from([BERLIN, NEW_YORK, AUCKLAND, "Pacific/Pago_Pago", "Pacific/Kiritimati"]),
        ),
        max_size=25,
    )
)
@pytest.mark.covers("X54")
def test_one_greeting_a_year_whatever_any_moves(steps: list[tuple[float, str | None]]) -> None:
    timeline, last = birthday(BERLIN), None
    now = datetime(2026, 3, 13, 6, tzinfo=UTC)
    pending, fired = changed(timeline, None, None, now), []
    for hours, zone in [*steps, (9000.0, None)]:
        now += timedelta(hours=hours)
        assert pending is not None
        if zone is not None:
            timeline = birthday(zone)
            pending = changed(timeline, pending.key, last, now)
            assert pending is not None
        tick = decide(timeline, pending.key, last, now, Misfire("all", cap=None))
        fired += [each.key for each in tick.fires]
        last, pending = tick.last_key, tick.next
    assert fired == [f"{2026 + n}-03-14" for n in range(len(fired))]
    assert fired[-1] >= f"{(now - timedelta(days=2)).year - 1}-03-14"


def test_a_new_rule_owes_nothing_for_the_time_before_it() -> None:
    """At noon a rule for 18:00 becomes one for 08:00: it begins tomorrow."""
    now = START + timedelta(hours=12)
    found = changed(on(cron("0 8 * * *")), "2026-03-01T18:00:00", "2026-02-28T18:00:00", now)
    assert found is not None
    assert found.key == "2026-03-02T08:00:00"


def test_what_was_missed_before_a_change_is_still_owed() -> None:
    found = changed(on(daily("08:00")), "2026-02-26", "2026-02-25", START)
    assert found is not None
    assert found.key == "2026-02-26"


@pytest.mark.parametrize(
    ("rule", "next_key", "last_key", "expected"),
    [
        # Another kind of key: nothing owed.
        (
            every(minutes=5),
            "2026-03-01",
            "2026-02-28",
            "2026-03-01T00:05:00Z",
        ),
        (daily("09:00"), "2026-03-01T00:05:00Z", "2026-03-01T00:00:00Z", "2026-03-02"),  # and keys only rise
        (daily("09:00"), None, None, "2026-03-01"),
        (cron("0 9 * * *"), "2026-03-05", "2026-03-04", "2026-03-04T09:00:00"),
    ],
)
@pytest.mark.covers("X54")
def test_after_another_kind_of_rule(
    rule: Rule, next_key: str | None, last_key: str | None, expected: str
) -> None:
    found = changed(on(rule), next_key, last_key, START)
    assert found is not None
    assert found.key == expected


# --- Beside a model --------------------------------------------------------------------------------------------------


def modelled(
    every_one: list[Occurrence], now: datetime, policy: Misfire, limit: int
) -> tuple[list[str], dict[Why, int]]:
    """The keys that fire, and how many are left out for what, by looking at each occurrence."""
    due = [each for each in every_one if each.due <= now]
    left: dict[Why, int] = {}

    def keep(kept: list[Occurrence], why: Why) -> list[Occurrence]:
        if len(kept) < len(due):
            left[why] = len(due) - len(kept)
        return kept

    if policy.max_late is not None:
        oldest = now - timedelta(seconds=policy.max_late)
        due = keep([each for each in due if each.due >= oldest], Why.TOO_LATE)
    if policy.policy == "skip":
        oldest = now - timedelta(seconds=policy.grace)
        due = keep([each for each in due if each.due >= oldest], Why.MISSED)
    if policy.policy == "latest":
        due = keep(due[-1:], Why.NOT_LATEST)
    elif policy.cap is not None:
        due = keep(due[-policy.cap :], Why.OVER_CAP)
    return [each.key for each in due[:limit]], left


policies = st.builds(
    Misfire,
    st.sampled_from(["all", "latest", "skip"]),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 400_000),
    st.sampled_from([0, 60, 5000]),
)
RULES = [
    every(minutes=47),
    every(minutes=47, jitter=2000),
    cron("*/30 * * * *", zone="Australia/Lord_Howe", jitter=900),
    cron("0,30 1-3 * * *", zone=NEW_YORK),
    daily("02:30", zone=NEW_YORK, jitter=80_000),
]


@settings(max_examples=300)
@given(st.sampled_from(RULES), st.floats(0, 10 * 86_400), policies, st.integers(1, 100))
@pytest.mark.covers("X55")
def test_a_tick_is_what_the_model_says(rule: Rule, late: float, policy: Misfire, limit: int) -> None:
    timeline, now = on(rule), START + timedelta(seconds=late)
    every_one = list(timeline.occurrences(START, START + timedelta(days=12), 1000))
    with trapped():
        tick = decide(timeline, every_one[0].key, None, now, policy, limit=limit)
    fires, left = modelled(every_one, now, policy, limit)
    assert [each.key for each in tick.fires] == fires
    assert {each.why: each.count for each in tick.left_out} == left
    assert all(spans(each, every_one) for each in tick.left_out)
    keys = [each.key for each in every_one]
    handled = [] if tick.last_key is None else keys[: keys.index(tick.last_key) + 1]
    assert len(handled) == len(fires) + sum(left.values())
    assert tick.next == every_one[len(handled)]
    if len(fires) < limit:
        assert tick.next.due > now


def spans(left: LeftOut, every_one: list[Occurrence]) -> bool:
    return every_one.index(left.last) - every_one.index(left.first) + 1 == left.count
