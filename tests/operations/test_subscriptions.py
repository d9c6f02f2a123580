"""Handlers that were renamed or removed: their subscriptions, and what waits under the old names."""

from __future__ import annotations

import json

import pytest

from holdfast import Holdfast
from holdfast.cli.root import app as commands
from holdfast.clock import MovableClock
from holdfast.errors import InvalidSettings, NotFound, Refused
from holdfast.store.plans import engine
from holdfast.testing import Drained
from tests.cli.runner import CliRunner


def cli(*words: str) -> str:
    done = CliRunner().invoke(commands, words)
    assert done.exit_code == 0, done.output
    return done.stdout


class Service:
    """One deploy of a service: an application with one handler."""

    def __init__(self, url: str, clock: MovableClock, name: str, renamed_from: str | None = None) -> None:
        self.app = Holdfast(url, clock=clock)
        self.clock, self.seen = clock, list[int]()

        @self.app.handler("order.placed", name=name, renamed_from=renamed_from)
        async def handle(order: dict) -> None:
            self.seen.append(order["id"])

        self.handler = handle

    def publish(self, *ids: int) -> None:
        for each in ids:
            self.app.publish("order.placed", {"id": each})

    async def drain(self) -> list[int]:
        await Drained(self.app, self.clock).adrain()
        return self.seen

    def depth(self) -> dict[str, int]:
        return {each.name: each.depth for each in self.app.operations.queues.list()}


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


async def test_what_waits_under_the_old_name_is_handled_under_the_new_one(
    url: str, clock: MovableClock
) -> None:
    old = Service(url, clock, "receipt")
    old.publish(1, 2)
    new = Service(url, clock, "send_receipt", renamed_from="receipt")
    new.publish(3)
    assert new.depth() == {"receipt": 2, "send_receipt": 1}, "one delivery of each, none for both names"
    new.app.operations.housekeeping()
    assert new.depth() == {"receipt": 0, "send_receipt": 3}
    assert sorted(await new.drain()) == [1, 2, 3]
    (moved,) = new.app.operations.audit(action="queues.move")
    assert moved.why == "handler receipt was renamed to send_receipt"


async def test_an_old_process_that_restarts_does_not_undo_it(url: str, clock: MovableClock) -> None:
    Service(url, clock, "receipt").publish(1)
    new = Service(url, clock, "send_receipt", renamed_from="receipt")
    new.publish(2)
    again = Service(url, clock, "receipt")
    again.app.prepare()
    again.app.migrate()
    again.publish(3)
    assert new.depth() == {"receipt": 1, "send_receipt": 2}
    assert await again.drain() == [1], "it still handles what is left in its queue"
    again.handler.publish({"id": 4})  # to the old name itself
    new.app.operations.housekeeping()
    assert new.depth() == {"receipt": 0, "send_receipt": 3}


def test_nothing_moves_while_a_live_worker_takes_from_it_or_it_is_paused(
    url: str, clock: MovableClock
) -> None:
    old = Service(url, clock, "receipt")
    old.publish(1)
    old.app.store.run(engine.register_worker("machine:1", ["receipt"]))
    new = Service(url, clock, "send_receipt", renamed_from="receipt")
    new.app.prepare()
    new.app.operations.housekeeping()
    assert new.depth() == {"receipt": 1, "send_receipt": 0}
    clock.advance(minutes=5)  # it is silent
    new.app.operations.queues.pause("receipt", "look at it first")
    new.app.operations.housekeeping()
    assert new.depth() == {"receipt": 1, "send_receipt": 0}
    new.app.operations.queues.resume("receipt")
    new.app.operations.housekeeping()
    assert new.depth() == {"receipt": 0, "send_receipt": 1}


async def test_renamed_twice(url: str, clock: MovableClock) -> None:
    Service(url, clock, "a").publish(1)
    middle = Service(url, clock, "b", renamed_from="a")
    middle.publish(2)
    last = Service(url, clock, "c", renamed_from="b")
    last.publish(3)
    for _ in range(2):
        last.app.operations.housekeeping()
    assert last.depth() == {"a": 0, "b": 0, "c": 3}
    middle.app.migrate()  # its deploy restarts
    assert {
        (each.queue, each.pattern, each.renamed_to) for each in last.app.operations.subscriptions.list()
    } == {
        ("a", None, "b"),
        ("b", None, "c"),
        ("c", "order.placed", None),
    }


def test_a_name_that_was_given_up_comes_back_by_order_only(url: str, clock: MovableClock) -> None:
    Service(url, clock, "a").publish(1)
    Service(url, clock, "b", renamed_from="a").publish(2)
    back = Service(url, clock, "a", renamed_from="b")
    with pytest.raises(InvalidSettings, match="holdfast subscriptions drop a"):
        back.publish(3)
    dropped = back.app.operations.subscriptions.drop("a")
    assert (dropped.patterns, dropped.renamed_to) == ((), "b")
    back.publish(3)
    assert back.depth() == {"a": 2, "b": 1}


def test_declarations_that_cannot_be(tmp_path: object) -> None:
    app = Holdfast("sqlite:///never-opened.db")
    with pytest.raises(InvalidSettings, match="another name, the old one"):
        app.handler("t", name="x", renamed_from="x")(lambda body: None)
    with pytest.raises(InvalidSettings, match="a family of queues cannot be renamed"):
        app.handler("t", family="x", renamed_from="y")(lambda body: None)
    app.handler("t", name="new", renamed_from="old")(lambda body: None)
    with pytest.raises(InvalidSettings, match="say renamed_from='old'"):
        app.handler("t", name="newer", renamed_from="old")(lambda body: None)
    with pytest.raises(InvalidSettings, match=r"was called 'old' before \(renamed_from\)"):
        app.handler("t", name="old")(lambda body: None)
    with pytest.raises(InvalidSettings, match="names another handler of this application"):
        app.handler("t", name="newest", renamed_from="new")(lambda body: None)


def test_a_removed_handler_is_orphaned_until_its_subscription_is_dropped(
    url: str, clock: MovableClock
) -> None:
    Service(url, clock, "receipt").publish(1)
    other = Service(url, clock, "ship")
    other.publish(2)
    operations = other.app.operations
    (orphan,) = operations.subscriptions.orphaned()
    assert (orphan.queue, orphan.pattern, orphan.depth) == ("receipt", "order.placed", 2)
    other.app.store.run(engine.register_worker("machine:1", ["receipt"]))
    with pytest.raises(Refused, match="machine:1, which would subscribe it again"):
        operations.subscriptions.drop("receipt")
    clock.advance(minutes=5)
    assert operations.by("anna").subscriptions.drop("receipt", why="it is gone").patterns == ("order.placed",)
    other.publish(3)
    assert other.depth() == {"receipt": 2, "ship": 2}, "what is in it stays"
    assert operations.subscriptions.orphaned() == []
    (done,) = operations.audit(action="subscriptions.drop")
    assert (done.who, done.queue, done.why) == ("anna", "receipt", "it is gone")
    with pytest.raises(NotFound, match="there are some to: ship"):
        operations.subscriptions.drop("receipt")


def test_on_the_command_line(url: str, clock: MovableClock) -> None:
    Service(url, clock, "receipt").publish(1)
    Service(url, clock, "send_receipt", renamed_from="receipt").publish(2)
    found = json.loads(cli("subscriptions", "list", "--json", "--url", url))
    assert [(each["queue"], each["pattern"], each["renamed_to"]) for each in found] == [
        ("receipt", None, "send_receipt"),
        ("send_receipt", "order.placed", None),
    ]
    assert "send_receipt" in cli("subscriptions", "list", "--url", url)
    told = cli("subscriptions", "drop", "receipt", "--yes", "--url", url)
    assert "no longer renamed to send_receipt" in told
