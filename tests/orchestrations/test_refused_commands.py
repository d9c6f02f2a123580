"""What operators may not do to the messages of an instance, each refusal with the command that does what is meant."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Flow, Holdfast, InvalidSettings, Refused
from tests.orchestrations.shop import Shop

COMMANDS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "cancel": (lambda its, id: its.messages.cancel(id), "holdfast orchestrations cancel"),
    "bury": (lambda its, id: its.messages.poison(id, "why"), "holdfast orchestrations terminate"),
    "release": (lambda its, id: its.streams.release(id), "holdfast orchestrations suspend"),
    "set aside": (lambda its, id: its.streams.set_aside("waits@1", "w"), "holdfast orchestrations terminate"),
    "halt": (lambda its, id: its.streams.halt("waits@1", "w", "why"), "holdfast orchestrations suspend"),
    "resume": (lambda its, id: its.streams.resume("waits@1", "w"), "holdfast orchestrations resume w"),
    "move": (
        lambda its, id: its.queues.move("waits@1", "double"),
        "holdfast orchestrations list --name waits",
    ),
    "drop": (
        lambda its, id: its.queues.drop("waits@1", force=True),
        "holdfast orchestrations list --name waits",
    ),
}


def declared(shop: Shop) -> Any:
    @shop.app.orchestration()
    async def waits(flow: Flow) -> int:
        await asyncio.sleep(60)
        return int(await flow.signal("end", int))

    return waits


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_that_would_take_a_message_from_an_instance_are_refused(shop: Shop, command: str) -> None:
    shop.of.start(declared(shop), id="w")
    shop.drain()
    shop.of.signal("w", "end", 7)
    ((id,),) = shop.query("select id from {message} where queue = 'waits@1'")
    give, instead = COMMANDS[command]
    with pytest.raises(Refused, match=instead):
        give(shop.app.operations, id)
    shop.advance(seconds=61)
    assert shop.of.result("w") == 7, "nothing was changed"


def test_the_timer_of_an_instance_is_not_cancelled(shop: Shop) -> None:
    shop.of.start(declared(shop), id="w")
    shop.drain()
    ((id,),) = shop.query("select id from {scheduled}")
    with pytest.raises(Refused, match="holdfast orchestrations cancel"):
        shop.app.operations.messages.cancel(id)
    shop.of.signal("w", "end", 7)
    shop.advance(seconds=61)
    assert shop.of.result("w") == 7


def test_the_queue_of_a_version_without_open_instances_is_dropped(shop: Shop) -> None:
    shop.of.start(declared(shop), id="w")
    shop.drain()
    shop.of.cancel("w")
    shop.drain()
    shop.app.operations.queues.drop("waits@1", force=True)
    assert "waits@1" not in [each.name for each in shop.app.operations.queues.list()]


def test_a_poisoned_turn_is_not_redriven_past_its_order(shop: Shop) -> None:
    shop.of.start(declared(shop), id="w")
    shop.app.prepare()
    shop.execute(f"update {shop.prefix}message set attempts = 5")
    shop.drain()
    ((id,),) = shop.query("select id from {dead}")
    with pytest.raises(Refused, match="without `--now`"):
        shop.app.operations.dead.redrive(id, now=True)


@pytest.mark.covers("X58")
def test_an_at_sign_is_refused_in_the_names_of_users_queues() -> None:
    app = Holdfast("sqlite:///:memory:")

    async def function(body: dict[str, Any]) -> None: ...

    for declare in (
        lambda: app.handler("t", name="orders@2")(function),
        lambda: app.activity(name="charge@2")(function),
        lambda: app.publish("t", {}, queue="orders@2"),
        lambda: app.orchestration(name="a@b")(function),
        lambda: app.orchestration(version="1@2")(function),
    ):
        with pytest.raises(InvalidSettings, match="@"):
            declare()
