"""Scheduled messages are moved and cancelled until they fall due."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID, uuid4

import pytest

from holdfast import InvalidMessage, NotFound, Refused
from tests.schedules.desk import Desk, at


@pytest.fixture(params=["loose", "in a stream"])
def id(request: pytest.FixtureRequest, desk: Desk) -> UUID:
    stream = "s" if request.param == "in a stream" else None
    return desk.app.publish("due", {"n": 1}, delay=3600, stream=stream).id


def test_one_that_is_moved_falls_due_then(desk: Desk, id: UUID) -> None:
    moved = desk.app.move(id, at=at("2026-03-01 05:00"))
    assert moved == at("2026-03-01 05:00")
    desk.later(hours=2)
    desk.run()
    assert desk.seen == []
    desk.later(hours=3)
    desk.run()
    assert [each.id for each in desk.seen] == [id]


def test_it_may_be_moved_to_an_earlier_time(desk: Desk, id: UUID) -> None:
    assert desk.app.move(id, delay=timedelta(minutes=1)) == at("2026-03-01 00:01")
    desk.later(minutes=1)
    desk.run()
    assert [each.id for each in desk.seen] == [id]
    other = desk.app.publish("due", delay=3600).id
    desk.app.move(other, at=at("2020-01-01 00:00"))  # has passed: it is due now
    desk.run()
    assert [each.id for each in desk.seen] == [id, other]


def test_one_that_is_cancelled_is_not_handled(desk: Desk, id: UUID) -> None:
    desk.app.cancel(id)
    desk.later(hours=2)
    desk.run()
    assert desk.seen == []
    assert [each.outcome for each in desk.app.operations.messages.show(id).ended] == ["cancelled"]
    with pytest.raises(NotFound, match="is scheduled"):
        desk.app.cancel(id)
    with pytest.raises(NotFound, match="is scheduled"):
        desk.app.move(id, delay=60)


def test_what_has_fallen_due_is_refused(desk: Desk, id: UUID) -> None:
    desk.later(hours=2)
    with pytest.raises(Refused, match="has fallen due"):
        desk.app.move(id, delay=60)
    (leased,) = desk.app.process_work_batch(want={"due": 1}).work
    for refused in (lambda: desk.app.move(id, delay=60), lambda: desk.app.cancel(id)):
        with pytest.raises(Refused, match="handed out to a worker"):
            refused()
    desk.app.process_work_batch([desk.app.failed(leased, 0, "no")])
    with pytest.raises(Refused, match="has been tried"):
        desk.app.cancel(id)


@pytest.mark.one_postgres
def test_what_is_no_time_is_refused(desk: Desk, id: UUID) -> None:
    with pytest.raises(InvalidMessage, match="at= or delay="):
        desk.app.move(id)
    with pytest.raises(InvalidMessage, match="not both"):
        desk.app.move(id, at=at("2026-03-01"), delay=5)
    with pytest.raises(InvalidMessage, match="time zone"):
        desk.app.move(id, at=datetime(2026, 3, 1))
    with pytest.raises(InvalidMessage, match="is not a UUID"):
        desk.app.cancel("x")  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        desk.app.cancel(uuid4())
    desk.app.operations.messages.park(id)
    with pytest.raises(Refused, match="is parked"):
        desk.app.cancel(id)


@pytest.mark.one_postgres
def test_an_operator_moves_one_too(desk: Desk, id: UUID) -> None:
    desk.app.operations.messages.move(id, delay=120.0, why="earlier")
    desk.later(minutes=2)
    desk.run()
    assert [each.id for each in desk.seen] == [id]
    (line,) = desk.app.operations.audit(action="messages.move")
    assert (line.target, line.why) == (str(id), "earlier")
