"""What an operator asks of schedules, and orders."""

from __future__ import annotations

from uuid import uuid5

import pytest

from holdfast import NotFound, Refused, UsageError, cron, daily, every
from tests.schedules.desk import Desk, at


def test_paused_ones_fire_nothing_and_what_they_missed_is_noted(desk: Desk) -> None:
    plans = desk.app.operations.schedules
    desk.app.set_schedule("x", daily("06:00"), "due")
    plans.pause("x", why="the printer is broken")
    with pytest.raises(Refused, match="paused already"):
        plans.pause("x")
    desk.later(days=3)
    desk.run()
    assert desk.seen == []
    assert plans.list()[0].state == "paused"
    assert "the printer is broken" in plans.why("x")[0]
    (left,) = plans.resume("x")
    assert (left.first, left.last, left.count) == ("2026-03-01", "2026-03-03", 3)
    with pytest.raises(Refused, match="not paused"):
        plans.resume("x")
    desk.later(days=1)
    desk.run()
    assert desk.keys == ["2026-03-04"]
    assert "the schedule was paused" in plans.why("x", "2026-03-02")[1]
    actions = [each.action for each in desk.app.operations.audit(action="schedules")]
    assert actions == ["schedules.resume", "schedules.pause"]


def test_setting_a_paused_one_leaves_it_paused(desk: Desk) -> None:
    plans = desk.app.operations.schedules
    desk.app.set_schedule("x", daily("06:00"), "due")
    plans.pause("x")
    desk.app.set_schedule("x", daily("07:00"), "due")
    desk.later(days=1)
    desk.run()
    assert desk.seen == []


def test_the_next_one_is_skipped(desk: Desk) -> None:
    plans = desk.app.operations.schedules
    desk.app.set_schedule("x", daily("06:00"), "due")
    assert plans.skip("x", why="a holiday") == "2026-03-01"
    desk.later(days=2)
    desk.run()
    assert desk.keys == ["2026-03-02"]
    assert plans.why("x", "2026-03-01")[1] == "Occurrence 2026-03-01 was left out: skipped by an operator."


def test_what_became_of_an_occurrence(desk: Desk) -> None:
    """Those of before it was set, and those that its rule does not have, were said to have not come yet."""
    plans = desk.app.operations.schedules
    desk.later(hours=12)
    desk.app.set_schedule("x", daily("06:00"), "due")
    desk.later(days=2)
    desk.run()
    desk.later(days=1)

    def fate(key: str) -> str:
        return plans.why("x", key)[1]

    assert fate("2026-02-27") == (
        "Occurrence 2026-02-27 fell due at 2026-02-27 06:00:00 UTC, before the schedule was set at "
        "2026-03-01 12:00:00 UTC."
    )
    assert fate("2026-03-02").startswith("Occurrence 2026-03-02 is message ")
    assert fate("2026-03-04") == "Occurrence 2026-03-04 fell due at 06:00:00 UTC and has not been fired."
    assert fate("2026-03-05") == (
        "Occurrence 2026-03-05 has not come yet: it falls due at 2026-03-05 06:00:00 UTC."
    )
    assert fate("2026-03-05T06:00:00") == (
        "Its rule has no occurrence 2026-03-05T06:00:00; the nearest are 2026-03-05 and 2026-03-06."
    )
    for key in ("yesterday", "2026-02-30", "2026-03-4", ""):
        with pytest.raises(
            UsageError, match=r"Nothing was looked up: .* is not the key of an occurrence of schedule 'x'"
        ):
            plans.why("x", key)


def test_an_occurrence_that_was_left_out_and_published_later(desk: Desk) -> None:
    plans = desk.app.operations.schedules
    desk.app.set_schedule("x", daily("06:00"), "due")
    plans.skip("x")
    desk.later(days=1)
    plans.backfill("x", at("2026-03-01 00:00"), at("2026-03-01 07:00"))
    told = plans.why("x", "2026-03-01")
    assert told[1] == "Occurrence 2026-03-01 was left out: skipped by an operator."
    assert told[2].startswith("Occurrence 2026-03-01 is message ")


def test_an_occurrence_for_which_a_changed_rule_did_not_wait(desk: Desk) -> None:
    desk.app.set_schedule("x", daily("06:00"), "due")
    desk.later(days=1)
    desk.run()
    desk.later(hours=12)
    desk.app.set_schedule("x", every(hours=1), "due")
    assert (
        "the schedule was not waiting for it: what it waits for was decided when"
        in (desk.app.operations.schedules.why("x", "2026-03-02T01:00:00Z")[1])
    )


def test_a_trigger_has_an_id_of_its_own_and_the_rule_goes_on(desk: Desk) -> None:
    plans = desk.app.operations.schedules
    desk.app.set_schedule("x", daily("06:00"), "due", {"n": 1})
    ids = {plans.trigger("x"), plans.trigger("x", why="once more")}
    desk.run()
    assert {each.id for each in desk.seen} == ids
    assert desk.keys == ["trigger", "trigger"]
    assert desk.row("x").next_key == "2026-03-01"
    assert desk.row("x").fired == 0


def test_a_backfill_has_the_ids_of_the_occurrences(desk: Desk) -> None:
    plans = desk.app.operations.schedules
    desk.app.set_schedule("x", daily("06:00"), "due", misfire="skip")
    desk.later(days=10)
    desk.run()
    begin, end = at("2026-03-03 00:00"), at("2026-03-05 23:00")
    told = plans.backfill("x", begin, end, rehearse=True)
    assert (told.count, told.first, told.last, told.published) == (3, "2026-03-03", "2026-03-05", 0)
    assert desk.messages() == []
    done = plans.backfill("x", begin, end)
    assert (done.published, done.in_use) == (3, 0)
    twice = plans.backfill("x", begin, end)
    assert (twice.published, twice.in_use) == (0, 3)
    desk.run()
    incarnation = desk.row("x").incarnation
    assert [each.id for each in desk.seen] == [uuid5(incarnation, key) for key in desk.keys]
    with pytest.raises(UsageError, match="in the future"):
        plans.backfill("x", begin, at("2027-01-01 00:00"))
    with pytest.raises(UsageError, match="swap"):
        plans.backfill("x", end, begin)
    desk.app.set_schedule("many", every(seconds=1), "due")
    with pytest.raises(Refused, match="100,000 are allowed"):
        plans.backfill("many", at("2026-03-01"), at("2026-03-09"))


def test_what_comes_next_tells_of_clock_changes(desk: Desk) -> None:
    plans = desk.app.operations.schedules
    desk.app.set_schedule("x", daily("02:30", zone="Europe/Berlin"), "due")
    desk.clock.instant = at("2026-03-28 12:00 Europe/Berlin")
    desk.run()
    (first, second) = plans.next("x", 2)
    assert (first.key, first.local) == ("2026-03-29", "2026-03-29 03:00 Europe/Berlin")
    assert first.note is not None
    assert "02:30 does not exist" in first.note
    assert second.note is None
    with pytest.raises(UsageError, match="has its own zone: leave out the zone Europe/Berlin"):
        plans.explain("daily 09:00 in UTC", zone="Europe/Berlin")
    text, words, coming = plans.explain("0 9 * * MON-FRI", zone="America/New_York", count=2)
    assert text == "cron 0 9 * * MON-FRI in America/New_York" or text.startswith("cron 0 9 * * ")
    assert words
    assert len(coming) == 2


def test_the_list_can_be_narrowed(desk: Desk) -> None:
    plans = desk.app.operations.schedules
    for name in ("a/1", "a/2", "b/1"):
        desk.app.set_schedule(name, daily("06:00"), "due")
    plans.pause("a/2")
    assert [each.name for each in plans.list(prefix="a/")] == ["a/1", "a/2"]
    assert [each.name for each in plans.list(state="paused")] == ["a/2"]
    assert [each.name for each in plans.list(after="a/1")] == ["a/2", "b/1"]
    assert plans.many("a/", lambda name: plans.pause(name)) == ["a/1"]
    desk.later(days=1)
    assert [each.name for each in plans.list(state="due")] == ["b/1"]
    with pytest.raises(UsageError, match="no state 'late'"):
        plans.list(state="late")


def test_one_that_is_dropped_is_gone_and_what_it_published_stays(desk: Desk) -> None:
    plans = desk.app.operations.schedules
    desk.app.set_schedule("x", cron("0 6 * * *"), "due")
    desk.later(days=1)
    desk.tick()
    plans.drop("x", why="over")
    assert plans.list() == []
    assert len(desk.messages()) == 1
    for ask in (plans.show, plans.drop, plans.pause, plans.resume, plans.skip, plans.trigger):
        with pytest.raises(NotFound, match="holdfast schedules list"):
            ask("x")


def test_one_that_is_over_says_so(desk: Desk) -> None:
    plans = desk.app.operations.schedules
    desk.app.set_schedule("x", daily("06:00", end=at("2026-03-01 12:00")), "due")
    desk.later(days=2)
    desk.run()
    assert desk.keys == ["2026-03-01"]
    assert plans.show("x").state.state == "over"
    assert plans.show("x").next == ()
    with pytest.raises(Refused, match="no next occurrence"):
        plans.skip("x")
