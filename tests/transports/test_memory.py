"""The broker in memory passes the tests of every transport, and does what a test asks of it."""

from __future__ import annotations

from holdfast.testing.transports import Setting, TransportConformance
from holdfast.transports import Connector, MemoryBroker


class TestMemory(TransportConformance):
    abilities = frozenset({"cut", "block", "down"})

    def setting(self, name: str) -> Setting:
        self.broker = MemoryBroker()
        self.broker.bind(f"{name}.ex", "key", queue=name)
        self.broker.bind(f"{name}.all", "#", queue=name)
        return Setting(
            self.broker,
            f"{name}.ex",
            "key",
            name,
            nowhere="no",
            everything=f"{name}.all",
            missing=f"{name}.none",
        )

    async def cut(self) -> None:
        self.broker.cut()

    async def block(self) -> None:
        self.broker.block()

    async def unblock(self) -> None:
        self.broker.unblock()

    async def go_down(self) -> None:
        self.broker.go_down()

    async def come_up(self) -> None:
        self.broker.come_up()

    def refused_connector(self, password: str) -> Connector:
        raise NotImplementedError
