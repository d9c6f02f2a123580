"""From a publisher over RabbitMQ into another store: hostile values and names arrive equal, or are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from holdfast import Holdfast
from holdfast.errors import InvalidMessage
from holdfast.model.message import NewMessage
from holdfast.transports import RabbitMQ
from tests.inboxes.conftest import until
from tests.inboxes.test_rabbitmq import broker_of
from tests.store import state
from tests.transports.test_hazards import hostile_values

OWN = {"holdfast-inbox", "holdfast-source", "holdfast-id"}


class Pair:
    """Two services: one publishes and sends, the other receives."""

    def __init__(self, folder: Path, url: str) -> None:
        name = f"hostile-{uuid4().hex[:8]}"
        broker: RabbitMQ = broker_of(url, name)
        self.shop = Holdfast(f"sqlite:///{folder / 'shop.db'}")
        self.billing = Holdfast(f"sqlite:///{folder / 'billing.db'}")
        self.shop.destination("out", broker, types=["order.*"], to=name, key="k")
        self.billing.inbox("in", broker, queue=name, stream="{partitionkey}")
        for app in (self.shop, self.billing):
            app.migrate()

    def publish(self, made: list[Callable[[], NewMessage]]) -> int:
        """Those that are not refused; how many are."""
        refused, messages = 0, []
        for make in made:
            try:
                messages.append(make())
            except InvalidMessage:
                refused += 1
        self.shop.publish_many(messages)
        return refused

    async def passed(self, count: int) -> tuple[dict[int, Any], int]:
        """What has arrived, by the number in its body, and how many became dead letters on the way."""
        async with self.shop.running(), self.billing.running():
            await until(lambda: len(self.rows("message")) + len(self.rows("dead")) + self.lost() >= count)
        assert [
            (each.errors[0]["text"], each.body[-700:]) for each in self.rows("dead")
        ] == []  # what was sent can be read
        return {json.loads(each.body)["n"]: each for each in self.rows("message")}, self.lost()

    def rows(self, table: str) -> list[Any]:
        return state.read(self.billing.store, table)

    def lost(self) -> int:
        return len(state.read(self.shop.store, "dead"))

    def close(self) -> None:
        self.shop.close()
        self.billing.close()


@pytest.fixture
def pair(tmp_path: Path, rabbitmq: str) -> Any:
    made = Pair(tmp_path, rabbitmq)
    yield made
    made.close()


async def test_500_hostile_header_values_arrive_equal_or_are_refused(pair: Pair) -> None:
    hostile, harmless = hostile_values(), [f"value {n}" for n in range(500)]
    values = [*hostile, *harmless]
    refused = pair.publish(
        [
            lambda n=n, value=value: pair.shop.message("order.placed", {"n": n}, headers={"x-value": value})  # type: ignore[misc]
            for n, value in enumerate(values)
        ]
    )
    arrived, dead = await pair.passed(len(values) - refused)
    assert refused + dead + len(arrived) == 1000
    assert {n: json.loads(each.headers)["x-value"] for n, each in arrived.items()} == {
        n: values[n] for n in arrived
    }
    assert set(range(500, 1000)) <= set(arrived)
    assert refused < 400  # most of them are ordinary for us


async def test_200_hostile_names_arrive_equal_or_are_refused(pair: Pair) -> None:
    """As stream, subject and name of a header, each of them alone."""
    names = [text for text in hostile_values() if text][:192]
    names += ["x" * 255, "é" * 300, "Cc", "x-death", "content-type", "traceparent", "partitionkey", "subject"]
    names += [f"name-{n}" for n in range(200)]
    made: list[Callable[[], NewMessage]] = []
    for n, name in enumerate(names):
        made += [
            lambda n=n, name=name: pair.shop.message("order.placed", {"n": 3 * n}, stream=name),  # type: ignore[misc]
            lambda n=n, name=name: pair.shop.message("order.placed", {"n": 3 * n + 1}, subject=name),  # type: ignore[misc]
            lambda n=n, name=name: pair.shop.message("order.placed", {"n": 3 * n + 2}, headers={name: "v"}),  # type: ignore[misc]
        ]
    refused = pair.publish(made)
    arrived, dead = await pair.passed(len(made) - refused)
    assert refused + dead + len(arrived) == 3 * len(names)
    for n, each in arrived.items():
        name, headers = names[n // 3], {k: v for k, v in json.loads(each.headers).items() if k not in OWN}
        expected = [(name, None, {}), (None, name, {}), (None, None, {name: "v"})][n % 3]
        assert (each.stream, each.subject, headers) == expected
    assert set(range(3 * 200, 3 * 400)) <= set(arrived)
