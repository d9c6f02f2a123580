"""New zone data: its version only rises, times are computed again, and an older process leaves zones to a newer one."""

from __future__ import annotations

import pytest

from holdfast import daily
from holdfast.rules.zones import Zone, of_offset
from holdfast.schedules import zones
from tests.schedules.desk import Desk, at


class Data:
    """Zone data of a test: a version, and an hour by which Berlin differs."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.patch, self.real = patch, zones.zone

    def set(self, version: str, hours: int) -> None:
        def zone(name: str) -> Zone:
            return of_offset(name, hours * 3600) if name == "Europe/Berlin" else self.real(name)

        self.patch.setattr(zones, "version", lambda: version)
        self.patch.setattr(zones, "zone", zone)


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch) -> Data:
    made = Data(monkeypatch)
    made.set("2026a", 1)
    return made


def test_times_are_computed_again_when_the_version_rises(desk: Desk, data: Data) -> None:
    desk.app.set_schedule("zoned", daily("06:00", zone="Europe/Berlin"), "due")
    desk.app.set_schedule("utc", daily("06:00"), "due")
    assert (desk.row("zoned").next_at, desk.row("zoned").zones) == (at("2026-03-01 05:00"), "2026a")
    assert desk.row("utc").zones is None
    data.set("2026b", 3)
    desk.tick()
    row = desk.row("zoned")
    assert (row.next_at, row.next_key, row.zones) == (at("2026-03-01 03:00"), "2026-03-01", "2026b")
    desk.later(hours=3)
    desk.run()
    assert desk.keys == ["2026-03-01"]
    data.set("2026c", 1)  # it goes back: the occurrence of this day does not come a second time
    desk.later(hours=4)
    desk.run()
    assert desk.keys == ["2026-03-01", "2026-03-01"]  # the second is of `utc`
    assert desk.row("zoned").next_key == "2026-03-02"


def test_an_older_process_leaves_zones_to_a_newer_one_while_that_runs(desk: Desk, data: Data) -> None:
    desk.app.set_schedule("zoned", daily("06:00", zone="Europe/Berlin"), "due", {"of": "zoned"})
    desk.app.set_schedule("utc", daily("06:00"), "due", {"of": "utc"})
    desk.later(hours=7)
    data.set("2026b", 1)
    newer = desk.ticker()
    newer._note_this_process()
    data.set("2026a", 1)
    older = desk.ticker()
    older()
    assert [each["due"].hour for each in desk.messages()] == [6]  # utc alone
    assert desk.row("zoned").fired == 0
    data.set("2026b", 1)
    newer()
    assert desk.row("zoned").fired == 1


def test_an_older_process_alone_fires_zones(desk: Desk, data: Data) -> None:
    """After a release was taken back nobody has the newer data any more."""
    data.set("2026b", 1)
    desk.app.set_schedule("zoned", daily("06:00", zone="Europe/Berlin"), "due")
    desk.tick()
    data.set("2026a", 1)
    desk.later(days=1)
    desk.tick()
    assert desk.row("zoned").fired == 1
