"""The tests of a receiver: nothing is lost before it is settled, order is kept, and what is held is bounded."""

from __future__ import annotations

import asyncio

from ...transports.contract import CONFIRMED, Connector, Incoming, Receiver, Source, TransportBroken
from .setting import (
    PATIENCE,
    Harness,
    Setting,
    conformance,
    is_silent,
    listening,
    opened,
    read_all,
    receive,
    send,
)


class ReceivingConformance(Harness):
    """For a class of tests in a file of one's own."""

    async def fill(self, setting: Setting, count: int, size: int = 10) -> list[str]:
        """Puts messages into the queue and gives their ids."""
        ids: list[str] = []
        async with opened(setting.connector.sender()) as sender:
            while len(ids) < count:
                batch = [setting.message(b"x" * size) for _ in range(min(200, count - len(ids)))]
                assert list((await send(sender, batch)).values()) == [CONFIRMED] * len(batch)
                ids += [each.id for each in batch]
        return ids

    @conformance()
    async def test_receivers_are_what_the_contract_says(self, setting: Setting) -> None:
        assert isinstance(setting.connector, Connector)
        assert isinstance(setting.connector.receiver(Source(setting.queue)), Receiver)

    @conformance()
    async def test_it_waits_for_the_first_message(self, setting: Setting) -> None:
        async with listening(setting) as receiver:
            task = asyncio.ensure_future(receiver.receive(10))
            await asyncio.sleep(0.05)
            assert not task.done()
            ids = await self.fill(setting, 1)
            async with asyncio.timeout(PATIENCE):
                assert [each.id for each in await task] == ids

    @conformance()
    async def test_it_gives_at_most_what_was_asked_for_in_order(self, setting: Setting) -> None:
        ids = await self.fill(setting, 50)
        found: list[str | None] = []
        async with listening(setting) as receiver:
            while len(found) < 50:
                some = await receiver.receive(7)
                assert 1 <= len(some) <= 7
                found += [each.id for each in some]
        assert found == ids

    @conformance()
    async def test_what_was_settled_does_not_come_again(self, setting: Setting) -> None:
        ids = await self.fill(setting, 10)
        async with listening(setting) as receiver:
            found = await receive(receiver, 10)
            receiver.settle(found[:4])
        assert [each.id for each in await read_all(setting)] == ids[4:]

    @conformance()
    async def test_what_was_not_settled_comes_again_in_its_order_and_marked(self, setting: Setting) -> None:
        ids = await self.fill(setting, 10)
        async with listening(setting) as receiver:
            assert [each.redelivered for each in await receive(receiver, 10)] == [False] * 10
        async with listening(setting) as receiver:
            again = await receive(receiver, 10)
            assert [each.id for each in again] == ids
            assert all(each.redelivered for each in again)

    @conformance()
    async def test_many_restarts_lose_nothing(self, setting: Setting) -> None:
        """RabbitMQ 4 drops what was delivered 20 times, unless the queue says otherwise."""
        ids = await self.fill(setting, 5)
        for _ in range(30):
            async with listening(setting) as receiver:
                assert [each.id for each in await receive(receiver, 5)] == ids
        assert [each.id for each in await read_all(setting)] == ids

    @conformance()
    async def test_settling_step_by_step(self, setting: Setting) -> None:
        ids = await self.fill(setting, 30)
        async with listening(setting, prefetch=10) as receiver:
            found: list[str | None] = []
            while len(found) < 30:
                some = await receive(receiver, 5)
                receiver.settle(some)
                found += [each.id for each in some]
        assert found == ids
        assert await read_all(setting) == []

    @conformance()
    async def test_settling_nothing_and_what_is_settled_is_no_trouble(self, setting: Setting) -> None:
        await self.fill(setting, 2)
        async with listening(setting) as receiver:
            found = await receive(receiver, 2)
            receiver.settle([])
            receiver.settle(found)
            receiver.settle(found)
            assert await is_silent(receiver)
            assert receiver.broken() is None

    @conformance()
    async def test_stop_gives_back_and_start_goes_on(self, setting: Setting) -> None:
        ids = await self.fill(setting, 10)
        async with listening(setting) as receiver:
            found = await receive(receiver, 6)
            receiver.settle(found[:3])
            await receiver.stop()
            assert receiver.broken() is None
            async with listening(setting) as other:  # they are there for others
                assert [each.id for each in await receive(other, 7)] == ids[3:]
            await receiver.stop()
            await receiver.start()
            await receiver.start()
            assert [each.id for each in await receive(receiver, 7)] == ids[3:]

    @conformance()
    async def test_stopped_it_receives_nothing(self, setting: Setting) -> None:
        async with listening(setting) as receiver:
            await receiver.stop()
            ids = await self.fill(setting, 3)
            assert await is_silent(receiver)
            await receiver.start()
            assert [each.id for each in await receive(receiver, 3)] == ids

    @conformance()
    async def test_settling_what_was_given_back_changes_nothing(self, setting: Setting) -> None:
        ids = await self.fill(setting, 4)
        async with listening(setting) as receiver:
            old = await receive(receiver, 4)
            await receiver.stop()
            await receiver.start()
            receiver.settle(old)
        assert [each.id for each in await read_all(setting)] == ids

    @conformance()
    async def test_it_holds_no_more_messages_than_it_may(self, setting: Setting) -> None:
        ids = await self.fill(setting, 30)
        async with listening(setting, prefetch=10) as receiver:
            found = await receive(receiver, 10)
            assert await is_silent(receiver)
            receiver.settle(found)
            assert [each.id for each in await receive(receiver, 10)] == ids[10:20]

    @conformance()
    async def test_it_holds_little_more_bytes_than_it_may(self, setting: Setting) -> None:
        size = 50_000
        ids = await self.fill(setting, 200, size)
        async with listening(setting, prefetch_bytes=20 * size) as receiver:
            held: list[Incoming] = []
            while len(held) < 200 and not await is_silent_or(receiver, held):
                pass
            assert 1 <= len(held) < 100
            found = [each.id for each in held]
            receiver.settle(held)
            while len(found) < 200:
                some = await receiver.receive(10)
                receiver.settle(some)
                found += [each.id for each in some]
            assert found == ids

    @conformance()
    async def test_one_message_larger_than_the_bound_still_comes(self, setting: Setting) -> None:
        ids = await self.fill(setting, 3, 60_000)
        async with listening(setting, prefetch_bytes=50_000) as receiver:
            for wanted in ids:
                (found,) = await receive(receiver, 1)
                assert found.id == wanted
                receiver.settle([found])

    @conformance()
    async def test_what_is_not_open_cannot_receive(self, setting: Setting) -> None:
        receiver = setting.connector.receiver(Source(setting.queue))
        assert receiver.broken() is not None
        await receiver.close()
        await self.refused(receiver)
        await receiver.open()
        await receiver.close()
        assert receiver.broken() is not None
        await self.refused(receiver)

    @conformance()
    async def test_closing_ends_a_receive_that_waits(self, setting: Setting) -> None:
        async with listening(setting) as receiver:
            task = asyncio.ensure_future(self.refused(receiver))
            await asyncio.sleep(0.02)
            await receiver.close()
            async with asyncio.timeout(PATIENCE):
                await task

    @conformance("cut")
    async def test_a_cut_connection_is_reported_and_nothing_is_lost(self, setting: Setting) -> None:
        ids = await self.fill(setting, 20)
        async with listening(setting) as receiver:
            found = await receive(receiver, 20)
            receiver.settle(found[:5])
            await asyncio.sleep(0.1)  # an acknowledgement that is under way may be lost with the connection
            await self.cut()
            await self.refused(receiver)
            receiver.settle(found)
            assert receiver.broken() is not None
            await receiver.open()
            again = [each.id for each in await receive(receiver, 15)]
        assert again == ids[5:]

    async def refused(self, receiver: Receiver) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    await receiver.receive(1)
        except TransportBroken:
            return


async def is_silent_or(receiver: Receiver, held: list[Incoming]) -> bool:
    """Receives some more, not settled, or says that no more comes."""
    try:
        async with asyncio.timeout(0.5):
            held += await receiver.receive(10)
    except TimeoutError:
        return True
    return False
