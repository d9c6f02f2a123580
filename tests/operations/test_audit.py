"""What operators do is written down with it: who, what, on what, before, after, why."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from holdfast import Holdfast
from holdfast.bodies.keys import new_key
from holdfast.errors import NotFound, Refused, UsageError
from holdfast.model import names
from holdfast.operations import Action, Filter, Operations
from holdfast.store.plans import audit
from holdfast.store.plans.audit import Entry
from tests.operations.world import NOON, World


def last(world: World) -> Action:
    return world.operations.audit(limit=1)[0]


def lines(world: World) -> list[tuple[str, str | None, str | None, int]]:
    return [(e.action, e.queue, e.target, e.count) for e in reversed(world.operations.audit())]


def changes(action: Action) -> dict[str, tuple[Any, Any]]:
    before, after = action.before or {}, action.after or {}
    return {name: (before[name], after.get(name)) for name in before if before[name] != after.get(name)}


def test_who_when_what_and_why(world: World) -> None:
    id = world.publish(queue="q")
    world.operations.by("anna").messages.park(id, why="  the printer\nis broken ")
    (line,) = world.operations.audit()
    assert (line.at, line.who, line.action) == (NOON, "anna", "messages.park")
    assert (line.queue, line.target, line.count, line.why) == ("q", str(id), 1, "the printer is broken")
    world.operations.messages.retry(id)
    assert last(world).who == names.operator()
    assert "@" in last(world).who


@pytest.mark.parametrize("name", ["", "x" * 201, "evil\x1b[31m", 7])
def test_names_that_cannot_be(world: World, name: Any) -> None:
    with pytest.raises(UsageError):
        world.operations.by(name)


@pytest.mark.covers("X4", "W98", "W92")
def test_messages_before_and_after(world: World) -> None:
    first, second, third = world.in_stream(3)
    world.fail(world.claim()[0], 600.0)
    do = world.operations
    do.messages.park(first)
    soon = (NOON + timedelta(seconds=600)).isoformat().replace("+00:00", "Z")
    assert changes(last(world)) == {"parked": (False, True), "claimable_at": (soon, None)}
    do.messages.retry(first)
    now = NOON.isoformat().replace("+00:00", "Z")
    assert changes(last(world)) == {"parked": (True, False), "claimable_at": (None, now)}
    do.messages.retry(first, reset=True)
    assert changes(last(world)) == {
        "attempts": (1, 0), "failures": (1, 0), "reason": (2, None), "status": (32769, 1),
    }  # fmt: skip
    do.streams.release(second)
    line = last(world)
    assert (line.before or {})["position"] is not None
    assert (line.after or {})["position"] is None
    do.messages.poison(first, "the customer is gone")
    line = last(world)
    assert (line.why, line.after) == ("the customer is gone", {"what": "dead letter"})
    do.messages.cancel(third)
    assert last(world).after == {"what": "cancelled"}
    assert [each[0] for each in lines(world)] == [
        "messages.park", "messages.retry", "messages.reset", "streams.release", "messages.poison", "messages.cancel",
    ]  # fmt: skip


def test_a_worker_that_is_asked(world: World) -> None:
    id = world.publish(queue="q")
    world.claim()
    world.operations.messages.cancel(id)
    assert (last(world).after or {})["what"] == "worker asked to cancel"


def test_each_delivery_has_its_line(world: World) -> None:
    for queue in ("a", "b"):
        world.subscribe(queue, "order.placed")
    id = world.publish()
    world.operations.messages.park(id)
    assert lines(world) == [("messages.park", "a", str(id), 1), ("messages.park", "b", str(id), 1)]


def test_streams_before_and_after(world: World) -> None:
    first, _ = world.in_stream(2)
    do = world.operations.streams
    do.halt("q", "s", "migration")
    line = last(world)
    assert (line.action, line.queue, line.target, line.why) == ("streams.halt", "q", "s", "migration")
    assert changes(line)["halted_by"] == (None, "operator: migration")
    do.resume("q", "s", why="done")
    assert changes(last(world))["halted_by"] == ("operator: migration", None)
    assert last(world).why == "done"
    do.set_aside("q", "s")
    line = last(world)
    assert (line.action, line.ids, changes(line)) == ("streams.set_aside", (str(first),), {"open": (2, 1)})


def test_queues_before_and_after(world: World) -> None:
    world.subscribe("old", "order.placed")
    world.subscribe("new", "other")
    do = world.operations.queues
    do.pause("old", "the printer is broken")
    assert changes(last(world))["paused_why"] == (None, "the printer is broken")
    do.resume("old")
    assert changes(last(world))["paused_why"] == ("the printer is broken", None)
    for _ in range(3):
        world.publish()
    do.move("old", "new", why="renamed")
    line = last(world)
    assert (line.action, line.queue, line.target, line.count) == ("queues.move", "old", "new", 3)
    assert (line.after, line.why) == ({"unsubscribed": ["order.placed"]}, "renamed")
    do.drop("new", force=True)
    line = last(world)
    assert (line.action, line.queue, line.count) == ("queues.drop", "new", 3)
    assert line.after == {"unsubscribed": ["other"]}


def test_breakers_before_and_after(world: World) -> None:
    with world.breakers.get("llm"):
        pass
    world.operations.by("anna").breakers.trip("llm", why="unpaid")
    line = last(world)
    assert (line.who, line.action, line.target, line.why) == ("anna", "breakers.open", "llm", "unpaid")
    assert changes(line) == {"state": ("closed", "open"), "forced": (False, True), "why": (None, "unpaid")}
    world.operations.breakers.force_closed("llm")
    assert last(world).action == "breakers.close"
    world.operations.breakers.reset("llm", why="paid")
    assert (last(world).action, last(world).why) == ("breakers.reset", "paid")
    assert len(world.operations.audit()) == 3  # calls are nobody's orders


def test_what_was_not_done_is_not_written_down(world: World) -> None:
    id = world.publish(queue="q")
    world.in_stream(1)
    world.claim(total=1)
    with pytest.raises(Refused):
        world.operations.messages.park(id)
    with pytest.raises(NotFound):
        world.operations.messages.park(UUID(int=0))
    assert not world.operations.streams.resume("q", "s")
    world.subscribe("q", "order.placed")
    assert not world.operations.queues.resume("q")
    assert world.operations.messages.retry_many(Filter(queue="q")).changed == 0
    assert world.operations.audit() == []


def test_it_is_one_transaction(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the line there is no change."""

    def broken(*_: Any) -> Any:
        raise RuntimeError("no room")
        yield

    id = world.publish(queue="q")
    world.in_stream(1)
    with world.breakers.get("llm"):
        pass
    monkeypatch.setattr(audit, "write", broken)
    for order in (
        lambda: world.operations.messages.park(id),
        lambda: world.operations.streams.halt("q", "s", "x"),
        lambda: world.operations.breakers.trip("llm"),
        lambda: world.operations.messages.retry_many(Filter(state="ready"), reset=True),
    ):
        with pytest.raises(RuntimeError, match="no room"):
            order()
    assert set(world.states().values()) == {"ready"}
    assert world.operations.streams.show("q", "s").state.halted_by is None  # type: ignore[union-attr]
    assert world.operations.breakers.show("llm").state == "closed"


def test_many_are_one_line_with_a_count_and_the_first_ids(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.operations.messages.BATCH", 2)
    monkeypatch.setattr(audit, "IDS_MAX", 4)
    ids = [world.publish(queue="q") for _ in range(5)]
    first, second = world.in_stream(2, "t")
    for leased in world.claim():
        world.fail(leased, 600.0)
    world.operations.messages.park(second)  # waits behind the first: it cannot be done as a head
    done = world.operations.by("anna").messages.retry_many(Filter(queue="q"), why="repaired")
    assert done.changed == 7
    (line, _) = world.operations.audit()
    assert (line.who, line.action, line.queue, line.count) == ("anna", "messages.retry", "q", 7)
    assert (line.target, line.filter, line.why) == (None, {"queue": "q"}, "repaired")
    assert line.ids == tuple(str(id) for id in [*ids, first][:4])


def test_filters(world: World) -> None:
    first, second = world.publish(queue="a"), world.publish(queue="b")
    world.operations.by("anna").messages.park(first)
    world.clock.advance(seconds=60)
    world.operations.by("bert").messages.park(second)
    world.operations.by("bert").queues.pause("b")
    find = world.operations.audit
    assert [e.target for e in find(who="anna")] == [str(first)]
    assert [e.action for e in find(who="bert")] == ["queues.pause", "messages.park"]
    assert len(find(action="messages")) == 2
    assert len(find(action="messages.park")) == 2
    assert find(action="message") == []
    assert len(find(queue="b")) == 2
    assert [e.who for e in find(target=str(second))] == ["bert"]
    assert len(find(since=NOON + timedelta(seconds=60))) == 2
    assert len(find(limit=1)) == 1
    world.in_stream(1)
    world.operations.streams.set_aside("q", "s")
    (head,) = (e.ids[0] for e in find(action="streams"))
    assert [e.action for e in find(target=head)] == ["streams.set_aside"]  # among the ids
    with pytest.raises(UsageError, match="time zone"):
        find(since=NOON.replace(tzinfo=None))


def test_it_is_kept_for_ninety_days(world: World) -> None:
    id = world.publish(queue="q")
    world.operations.messages.park(id)
    world.clock.advance(days=90)
    assert world.operations.housekeeping().audit == 0
    world.clock.advance(seconds=1)
    assert world.operations.housekeeping().audit == 1
    assert world.operations.audit() == []
    short = Operations(world.store, replace(world.settings, audit=60.0))
    short.messages.retry(id)
    world.clock.advance(seconds=61)
    assert short.housekeeping().audit == 1


def test_nothing_of_a_body_is_written_down(world: World) -> None:
    id = world.publish(queue="q", body='{"card": "4111 1111"}', headers='{"token": "4111"}')
    world.fail(world.claim()[0], 600.0, text="card 4111 1111 refused")
    world.operations.messages.park(id)
    world.operations.messages.retry(id, reset=True)
    world.operations.messages.poison(id, "why")
    rows = world.sql("select was, became, ids, filter from holdfast.audit")
    assert "4111" not in str(rows)


def test_an_entry_is_bounded(world: World) -> None:
    entry = Entry("test", ids=[str(n) for n in range(1000)])
    world.store.run(audit.write("anna", entry))
    assert len(last(world).ids) == 100


# -- dead letters


def dead(world: World, count: int = 1, queue: str = "q") -> list[UUID]:
    ids = [world.publish(queue=queue) for _ in range(count)]
    for leased in world.claim(queue, name=f"of {queue}"):
        world.die(leased)
    return ids


def test_dead_letters_one_by_one(world: World) -> None:
    (id,) = dead(world)
    do = world.operations.by("anna").dead
    do.hold(id, "look at it")
    assert (last(world).action, last(world).target, last(world).why) == ("dead.hold", str(id), "look at it")
    with pytest.raises(Refused):
        do.redrive(id)
    do.unhold(id)
    do.edit(id, '{"card": "4111"}')
    assert "4111" not in str(last(world))
    do.redrive(id)
    line = last(world)
    assert (line.action, line.target, line.count, line.after) == (
        "dead.redrive", str(id), 1, {"what": "redriven"},
    )  # fmt: skip
    assert (line.before or {})["reason"] == 7
    (other,) = dead(world, queue="other")
    do.discard(other, "a test order")
    line = last(world)
    assert (line.action, line.queue, line.target, line.why) == (
        "dead.discard", "other", str(other), "a test order",
    )  # fmt: skip
    assert [each[0] for each in lines(world)] == [
        "dead.hold", "dead.unhold", "dead.edit", "dead.redrive", "dead.discard",
    ]  # fmt: skip


def test_many_dead_letters_are_one_line(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.operations.dead.BATCH", 2)
    ids = dead(world, 5)
    world.operations.dead.redrive_many(Filter(queue="q", reason=2))
    (line,) = world.operations.audit()
    assert (line.action, line.queue, line.target, line.count) == ("dead.redrive", "q", None, 5)
    assert (line.filter, set(line.ids)) == ({"queue": "q", "reason": 2}, {str(id) for id in ids})


def test_imported_letters(world: World) -> None:
    ids, file = dead(world, 2), io.BytesIO()
    world.operations.files.export(Filter(queue="q"), file)
    for id in ids:
        world.operations.dead.discard(id, "a test order")
    file.seek(0)
    world.operations.by("anna").files.load(file, force=True)
    line = last(world)
    assert (line.who, line.action, line.count, set(line.ids), line.why) == (
        "anna", "dead.import", 2, {str(id) for id in ids}, "--force: also what has ended since",
    )  # fmt: skip


def test_keys_that_are_rotated(url: str, world: World) -> None:
    first, second = new_key("k1"), new_key("k2")
    app = Holdfast(url, keys=first)
    app.publish("order.placed", {"n": 1})
    app.close()
    app = Holdfast(url, keys=[second, first])
    app.operations.by("anna").keys.rotate()
    app.close()
    line = last(world)
    assert (line.who, line.action, line.target, line.count) == ("anna", "keys.rotate", "k2", 1)
