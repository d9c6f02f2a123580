"""What the doctor says about schedules."""

from __future__ import annotations

from holdfast import daily
from holdfast.store.plans import engine, schedules
from tests.schedules.desk import Desk
from tests.schedules.test_firing import _execute


def found(desk: Desk) -> dict[str, str]:
    names = ("schedules-failed", "schedules-orphaned", "schedules-late", "tzdata-differs")
    return {each.name: each.text for each in desk.app.operations.doctor() if each.name in names}


def test_the_doctor_tells_what_does_not_fire(desk: Desk) -> None:
    desk.app.set_schedule("bad", daily("06:00"), "due")
    desk.app.set_schedule("good", daily("06:00"), "due")
    assert found(desk) == {}
    _execute(desk, "update {} set rule = 'never' where name = 'bad'")
    desk.later(days=1)
    assert found(desk).keys() == {"schedules-late"}
    desk.run()
    assert found(desk)["schedules-failed"] == "1 schedule cannot fire: bad."
    old = desk.another()
    old.schedule("gone", daily("06:00"), "due")
    old.prepare()
    old.close()
    desk.later(days=1)
    desk.run()
    desk.app.store.run(engine.register_worker("lives", ["due"]))
    assert "gone" in found(desk)["schedules-orphaned"]
    desk.app.store.run(schedules.note_zones("1999a", [], 60.0))
    assert "1999a" in found(desk)["tzdata-differs"]
