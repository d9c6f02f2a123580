"""Schedules in code: stored when a worker starts, fired by those who have them, orphaned when nobody has."""

from __future__ import annotations

import pytest

from holdfast import daily
from tests.schedules.desk import Desk


def test_a_changed_definition_is_stored_and_an_unchanged_one_is_not_written(desk: Desk) -> None:
    desk.app.schedule("nightly", daily("02:00"), "due")
    desk.app.prepare()
    first = desk.row("nightly")
    desk.app.prepare()
    assert desk.row("nightly").version == first.version
    other = desk.another()
    other.schedule("nightly", daily("03:00"), "due", misfire="latest")
    other.prepare()
    changed = desk.row("nightly")
    assert (changed.rule, changed.misfire, changed.version) == (
        "daily 03:00 in UTC",
        "latest",
        first.version + 1,
    )
    assert changed.incarnation == first.incarnation
    other.close()


def test_two_applications_fire_each_its_own(desk: Desk) -> None:
    """The worker of one application neither fires nor loses what another has in its code."""
    desk.app.schedule("a", daily("06:00"), "due", {"of": "a"})
    other = desk.another()
    other.schedule("b", daily("06:00"), "due", {"of": "b"})
    other.prepare()
    desk.app.prepare()
    desk.app.set_schedule("c", daily("06:00"), "due", {"of": "c"})
    desk.later(days=1)
    desk.run(desk.app)
    assert sorted(each.body["of"] for each in desk.seen) == ["a", "c"]
    desk.run(other)
    assert sorted(each.body["of"] for each in desk.seen) == ["a", "b", "c"]
    other.close()


def test_what_is_gone_from_the_code_is_shown_and_not_fired(desk: Desk) -> None:
    old = desk.another()
    old.schedule("gone", daily("06:00"), "due")
    old.schedule("kept", daily("06:00"), "due")
    old.prepare()
    old.close()
    desk.app.schedule("kept", daily("06:00"), "due")
    desk.later(days=1)
    worker = desk.app.store
    from holdfast.store.plans import engine

    desk.run()
    worker.run(engine.register_worker("lives", ["due"]))
    states = {each.name: each.state for each in desk.app.operations.schedules.list()}
    assert states == {"gone": "orphaned", "kept": "waiting"}
    assert [each.occurrence.name for each in desk.seen if each.occurrence] == ["kept"]
    assert "is orphaned" in desk.app.operations.schedules.why("gone")[0]
    again = desk.another()  # and when it comes back it goes on, by its misfire policy
    again.schedule("gone", daily("06:00"), "due")
    desk.run(again)
    assert [each.occurrence.name for each in desk.seen if each.occurrence] == ["kept", "gone"]
    again.close()


@pytest.mark.one_postgres
def test_an_interval_longer_than_the_life_of_a_process_fires(desk: Desk) -> None:
    """A process that is started every hour has a weekly schedule: what is next is stored, not remembered."""
    for _ in range(8 * 24):
        app = desk.another()
        app.schedule("weekly", "weekly MON 06:00 in UTC", "due")
        app.prepare()
        desk.tick(app)
        app.close()
        desk.later(hours=1)
    assert desk.row("weekly").fired == 1
