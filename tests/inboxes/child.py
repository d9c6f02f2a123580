"""A process with an inbox that kills itself at one step: `python -m tests.inboxes.child DATABASE BROKER QUEUE STEP`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence

from holdfast import Holdfast
from holdfast.inboxes import intake
from holdfast.transports import RabbitMQ
from holdfast.transports.contract import Incoming
from holdfast.transports.rabbitmq.receiving import RabbitReceiver


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def plant(step: str) -> None:
    """Die when a batch is received, stored and not acknowledged, or acknowledged."""
    keep, settle = intake.Intake._keep, RabbitReceiver.settle

    async def received(self: intake.Intake, batch: Sequence[intake.Read]) -> Sequence[intake.Read]:
        if step == "received":
            die()
        return await keep(self, batch)

    def stored(self: RabbitReceiver, batch: Sequence[Incoming]) -> None:
        if step == "stored":
            die()
        settle(self, batch)
        if step == "acknowledged":
            asyncio.get_running_loop().call_soon(die)

    intake.Intake._keep = received  # type: ignore[method-assign]
    RabbitReceiver.settle = stored  # type: ignore[method-assign]


async def main(database: str, broker: str, queue: str, step: str) -> None:
    plant(step)
    app = Holdfast(database)
    app.inbox("billing", RabbitMQ(broker), queue=queue, stream="{partitionkey}", prefetch=50)
    async with app.running():
        await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
