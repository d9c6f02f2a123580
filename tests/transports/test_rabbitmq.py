"""RabbitMQ 3.10 and 4.0 pass the tests of every transport."""

from __future__ import annotations

import contextlib
from urllib.parse import urlsplit

import pika
import pytest

from holdfast.testing.transports import Setting, TransportConformance
from holdfast.transports import Connector, Exchange, Queue, RabbitMQ
from tests import brokers
from tests.transports.wire import Wire


class TestRabbitMQ(TransportConformance):
    abilities = frozenset({"cut", "down", "password"})

    @pytest.fixture(autouse=True)
    def _before_the_broker(self, wire: Wire, rabbitmq: str) -> contextlib.AbstractContextManager[None]:
        self.wire, self.direct = wire, rabbitmq
        yield
        self.clean()

    def setting(self, name: str) -> Setting:
        self.name = name
        connector = RabbitMQ(
            self.wire.url,
            declare=[
                Exchange(f"{name}.ex"),
                Exchange(f"{name}.all"),
                Queue(name, {f"{name}.ex": ["key"], f"{name}.all": ["#"]}),
            ],
        )
        return Setting(
            connector,
            f"{name}.ex",
            "key",
            name,
            nowhere="no",
            everything=f"{name}.all",
            missing=f"{name}.none",
        )

    async def cut(self) -> None:
        self.wire.cut()

    async def go_down(self) -> None:
        self.wire.go_down()

    async def come_up(self) -> None:
        self.wire.come_up()

    def refused_connector(self, password: str) -> Connector:
        return RabbitMQ(f"amqp://guest:{password}@127.0.0.1:{urlsplit(self.direct).port}/")

    def clean(self) -> None:
        """Not on brokers of our own, which end with the run."""
        if not brokers.external_urls():
            return
        with (
            contextlib.suppress(AttributeError),
            pika.BlockingConnection(pika.URLParameters(self.direct)) as connection,
        ):
            channel = connection.channel()
            channel.queue_delete(self.name)
            channel.exchange_delete(f"{self.name}.ex")
            channel.exchange_delete(f"{self.name}.all")
