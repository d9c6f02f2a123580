"""What happens to an occurrence while the one before has not ended."""

from __future__ import annotations

import pytest

from holdfast import daily
from tests.schedules.desk import Desk


def fire(desk: Desk, days: int = 1) -> None:
    desk.later(days=days)
    for _ in range(4):
        desk.tick()


def test_allow_fires_beside_the_one_before(desk: Desk) -> None:
    desk.app.set_schedule("x", daily("06:00"), "due")
    fire(desk)
    fire(desk)
    assert len(desk.messages()) == 2


def test_queue_puts_them_into_a_stream_one_behind_the_other(desk: Desk) -> None:
    desk.app.set_schedule("x", daily("06:00"), "due", overlap="queue")
    fire(desk)
    fire(desk)
    found = desk.app.operations.streams.show("due", "schedule/x")
    assert [each.state for each in found.messages] == ["ready", "waiting"]


def test_skip_leaves_it_out_while_the_one_before_is_there(desk: Desk) -> None:
    desk.app.set_schedule("x", daily("06:00"), "due", overlap="skip")
    fire(desk)
    fire(desk)
    assert len(desk.messages()) == 1
    assert desk.notes("x") == [("2026-03-02", "2026-03-02", 1, "overlap")]
    desk.run()
    fire(desk)
    assert [each["due"].day for each in desk.messages()] == [3]


@pytest.mark.parametrize("state", ["parked", "dead", "unrouted"])
def test_what_is_parked_dead_or_unrouted_is_not_running(desk: Desk, state: str) -> None:
    type = "nobody.has.it" if state == "unrouted" else "due"
    desk.app.set_schedule("x", daily("06:00"), type, overlap="skip")
    fire(desk)
    operations = desk.app.operations
    (first,) = desk.messages()
    if state == "parked":
        operations.messages.park(first["id"])
    elif state == "dead":
        operations.messages.poison(first["id"], "a test")
    fire(desk)
    assert desk.notes("x") == []
    assert desk.row("x").fired == 2


def test_replace_cancels_what_has_not_started(desk: Desk) -> None:
    desk.app.set_schedule("x", daily("06:00"), "due", overlap="replace")
    fire(desk)
    (first,) = desk.messages()
    fire(desk, 2)
    (second,) = desk.messages()
    assert second["due"].day == 3
    assert [each.outcome for each in desk.app.operations.messages.show(first["id"]).ended] == ["cancelled"]
    assert desk.notes("x") == [("2026-03-02", "2026-03-02", 1, "replaced")]


def test_replace_waits_for_what_was_started(desk: Desk) -> None:
    desk.app.set_schedule("x", daily("06:00"), "due", overlap="replace")
    fire(desk)
    (leased,) = desk.app.process_work_batch(want={"due": 1}, lease=7 * 86_400.0).work
    fire(desk)
    assert desk.row("x").fired == 1
    desk.app.process_work_batch([desk.app.done(leased)])
    desk.later(seconds=10)
    desk.tick()
    assert desk.row("x").fired == 2
