"""A process with an inbox that kills itself at one step: `python -m tests.inboxes.child DATABASE BROKER QUEUE STEP`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from holdfast import Holdfast
from holdfast.inboxes import intake
from holdfast.transports import RabbitMQ
from holdfast.transports.contract import Incoming
from holdfast.transports.rabbitmq.receiving import RabbitReceiver


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def plant(step: str) -> None:
    """Die when a batch is about to be stored, is stored and not acknowledged, or is acknowledged."""
    store, settle = intake.Intake._store, RabbitReceiver.settle

    async def storing(self: intake.Intake, batch: Sequence[intake.Read]) -> None:
        if step == "storing":
            await heard(self.receiver)  # if anything was acknowledged by now, it is lost
            die()
        await store(self, batch)

    async def acknowledged(receiver: RabbitReceiver) -> None:
        await heard(receiver)
        die()

    def stored(self: RabbitReceiver, batch: Sequence[Incoming]) -> None:
        if step == "stored":
            die()
        settle(self, batch)
        if step == "acknowledged":
            tasks.append(asyncio.ensure_future(acknowledged(self)))

    tasks: list[asyncio.Future[None]] = []
    intake.Intake._store = storing  # type: ignore[method-assign]
    RabbitReceiver.settle = stored  # type: ignore[method-assign]


async def heard(receiver: Any) -> None:
    """The broker handles what comes on a channel in its order: when it answers this, it has every acknowledgement."""
    await receiver._link.call(receiver._channel, "basic_qos", prefetch_count=50)


async def main(database: str, broker: str, queue: str, step: str) -> None:
    plant(step)
    app = Holdfast(database)
    app.inbox("billing", RabbitMQ(broker), queue=queue, stream="{partitionkey}", prefetch=50)
    async with app.running():
        await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
