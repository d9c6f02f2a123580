"""The tests of a sender: what it says was sent was sent, in order, and nothing else is claimed."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from ...transports import cloudevents
from ...transports.contract import (
    CONFIRMED,
    Fate,
    Outgoing,
    Rejected,
    Sender,
    SendingConnector,
    TooLarge,
    TransportBroken,
    Unroutable,
)
from .setting import (
    Fates,
    Harness,
    Setting,
    conformance,
    listening,
    opened,
    read_all,
    receive,
    send,
    send_until_answered,
    until,
)

MIB = 1024 * 1024
HOSTILE_VALUES = [
    "", " ", " leading", "trailing ", "a\tb", "a\r\nb: c", "\r\n\r\n", "\0", "a\0b", "\x7f", "\x1b[31m", "%", "%0D%0A",
    "%zz", '"quoted"', "it's", "back\\slash", "naïve", "日本語", "😀", "\u202etest", "\ufeff", "\u2028", "\x85",
    "=?utf-8?q?x?=", "a,b;c=d", "{}", "${x}", "null", "true", "-1", "1e400", "x" * 5000, "é" * 3000,
]  # fmt: skip
HOSTILE_KEYS = [
    "a", "a.b.c", "order placed", "*", "#", "a.*.b", "a.#", ".", "..", "a..b", "a\tb", "a\r\nb", "a\0b", "%2e",
    "日本語", "😀", "'; drop table x; --", "../../etc", "x" * 255, "é" * 127, "x" * 256, "é" * 128, "\ud800", "a/b?c#d",
    "$JS.API",
]  # fmt: skip


class SendingConformance(Harness):
    """For a class of tests in a file of one's own."""

    # Confirmed means stored, in order.

    @conformance()
    async def test_a_confirmed_message_has_arrived_as_it_was(self, setting: Setting) -> None:
        message = setting.message(
            b'{"n":1}', time=datetime(2026, 11, 17, 12, 3, 4, tzinfo=UTC), headers={"tenant": "a"}
        )
        async with opened(setting.connector.sender([setting.to])) as sender:
            assert await send(sender, [message]) == {0: CONFIRMED}
        (found,) = await read_all(setting)
        assert (found.id, found.type, found.body) == (message.id, message.type, message.body)
        assert (found.content_type, found.time) == (message.content_type, message.time)
        assert found.headers["tenant"] == "a"

    @conformance()
    async def test_connectors_and_transports_are_what_the_contract_says(self, setting: Setting) -> None:
        assert isinstance(setting.connector, SendingConnector)
        sender = setting.connector.sender()
        assert isinstance(sender, Sender)
        assert sender.limits.body_bytes >= 64 * 1024
        assert sender.limits.in_flight >= 1

    @conformance()
    async def test_an_empty_batch_is_no_trouble(self, setting: Setting) -> None:
        async with opened(setting.connector.sender()) as sender:
            assert await send(sender, []) == {}
            assert sender.broken() is None

    @conformance()
    async def test_a_batch_arrives_whole_and_in_its_order(self, setting: Setting) -> None:
        batch = setting.messages(500)
        async with opened(setting.connector.sender()) as sender:
            assert (await send(sender, batch)).confirmed == list(range(500))
        assert [each.id for each in await read_all(setting)] == [each.id for each in batch]

    @conformance()
    async def test_two_batches_at_once_arrive_in_the_order_in_which_they_were_begun(
        self, setting: Setting
    ) -> None:
        batches = [setting.messages(100) for _ in range(6)]
        async with opened(setting.connector.sender()) as sender:
            for first, second in zip(batches[::2], batches[1::2], strict=True):
                fates = await asyncio.gather(send(sender, first), send(sender, second))
                assert [len(each.confirmed) for each in fates] == [100, 100]
        assert [each.id for each in await read_all(setting)] == [
            each.id for batch in batches for each in batch
        ]

    @conformance()
    async def test_two_senders_do_not_disturb_each_other(self, setting: Setting) -> None:
        first, second = setting.connector.sender(), setting.connector.sender()
        async with opened(first), opened(second):
            fates = await asyncio.gather(
                send(first, setting.messages(50)), send(second, setting.messages(50))
            )
            await first.close()
            assert len((await send(second, setting.messages(5))).confirmed) == 5
        assert [len(each.confirmed) for each in fates] == [50, 50]
        assert len(await read_all(setting)) == 105

    # Fates.

    @conformance()
    async def test_an_unroutable_message_is_no_sent_one_wherever_it_stands(self, setting: Setting) -> None:
        async with opened(setting.connector.sender()) as sender:
            for place in range(5):
                batch = setting.messages(5)
                batch[place] = replace(batch[place], key=setting.nowhere)
                fates = await send(sender, batch)
                assert isinstance(fates[place], Unroutable)
                assert fates.confirmed == [each for each in range(5) if each != place]
            assert sender.broken() is None
        assert len(await read_all(setting)) == 20

    @conformance()
    async def test_one_id_sent_to_two_keys_has_two_fates(self, setting: Setting) -> None:
        message = setting.message()
        lost = replace(message, key=setting.nowhere)
        async with opened(setting.connector.sender()) as sender:
            for batch in ([lost, message, message], [message, lost, message], [message, message, lost]) * 3:
                fates = await send(sender, batch)
                assert fates.confirmed == [index for index, each in enumerate(batch) if each is message]
                assert isinstance(fates[batch.index(lost)], Unroutable)
        assert len(await read_all(setting)) == 18

    @conformance()
    async def test_the_same_message_twice_in_a_batch_is_sent_twice(self, setting: Setting) -> None:
        message = setting.message()
        async with opened(setting.connector.sender()) as sender:
            assert (await send(sender, [message, message])).confirmed == [0, 1]
        assert len(await read_all(setting)) == 2

    @conformance()
    async def test_a_body_beyond_the_limit_is_too_large_wherever_it_stands(self, setting: Setting) -> None:
        async with opened(setting.connector.sender()) as sender:
            large = bytes(sender.limits.body_bytes + 1)
            for place in range(3):
                batch = setting.messages(3)
                batch[place] = replace(batch[place], body=large)
                fates = await send(sender, batch)
                assert isinstance(fates[place], TooLarge)
                assert fates.confirmed == [each for each in range(3) if each != place]
            assert sender.broken() is None

    @conformance()
    async def test_headers_beyond_the_limit_are_too_large(self, setting: Setting) -> None:
        async with opened(setting.connector.sender()) as sender:
            value = "x" * (sender.limits.header_bytes + 1)
            fates = await send(sender, [setting.message(headers={"a": value}), setting.message()])
            assert isinstance(fates[0], TooLarge)
            assert fates[1] == CONFIRMED

    @conformance()
    async def test_headers_up_to_the_limit_arrive(self, setting: Setting) -> None:
        async with opened(setting.connector.sender()) as sender:
            headers = {f"h{n}": "x" * 100 for n in range(sender.limits.header_bytes // 120)}
            assert await send(sender, [setting.message(headers=headers)]) == {0: CONFIRMED}
        (found,) = await read_all(setting)
        assert {name: found.headers.get(name) for name in headers} == headers

    @conformance()
    async def test_a_missing_address_in_a_batch_costs_no_neighbour(self, setting: Setting) -> None:
        batch = setting.messages(40)
        bad = {0, 17, 39}
        for index in bad:
            batch[index] = replace(batch[index], to=setting.missing)
        async with opened(setting.connector.sender([setting.to])) as sender:
            fates = await send_until_answered(sender, batch)
        assert {index for index, fate in fates.items() if isinstance(fate, Unroutable | Rejected)} == bad
        assert sorted(index for index, fate in fates.items() if fate == CONFIRMED) == [
            index for index in range(40) if index not in bad
        ]
        arrived = list(dict.fromkeys(each.id for each in await read_all(setting)))
        assert arrived == [each.id for index, each in enumerate(batch) if index not in bad]

    # What is inside.

    @conformance()
    async def test_bodies_are_bytes(self, setting: Setting) -> None:
        bodies = [b"", b"\0", bytes(range(256)), b"\xff\xfe", b"x" * MIB, b"not json", "日本語".encode()]
        async with opened(setting.connector.sender()) as sender:
            allowed = [each for each in bodies if len(each) <= sender.limits.body_bytes]
            assert len((await send(sender, [setting.message(each) for each in allowed])).confirmed) == len(
                allowed
            )
        assert [each.body for each in await read_all(setting)] == allowed

    @conformance()
    async def test_hostile_header_values_arrive_equal_or_are_refused(self, setting: Setting) -> None:
        batch = [setting.message(headers={"x-test": value}) for value in HOSTILE_VALUES]
        async with opened(setting.connector.sender()) as sender:
            fates = await send_until_answered(sender, batch)
        sent = [HOSTILE_VALUES[index] for index in sorted(fates) if fates[index] == CONFIRMED]
        assert [each.headers["x-test"] for each in await read_all(setting)] == sent
        assert all(isinstance(fate, Rejected) for fate in fates.values() if fate != CONFIRMED)

    @conformance()
    async def test_a_lone_surrogate_is_refused(self, setting: Setting) -> None:
        batch = [setting.message(headers={"a": "\ud800"}), setting.message()]
        async with opened(setting.connector.sender()) as sender:
            fates = await send(sender, batch)
        assert isinstance(fates[0], Rejected)
        assert fates[1] == CONFIRMED

    @conformance()
    async def test_hostile_keys_arrive_equal_or_are_refused(self, setting: Setting) -> None:
        batch = [setting.message(to=setting.everything, key=key) for key in HOSTILE_KEYS]
        async with opened(setting.connector.sender()) as sender:
            fates = await send_until_answered(sender, batch)
        sent = [HOSTILE_KEYS[index] for index in sorted(fates) if fates[index] == CONFIRMED]
        assert [each.key for each in await read_all(setting)] == sent
        assert {"a", "a.b.c"} <= set(sent)
        assert all(isinstance(fate, Rejected | Unroutable) for fate in fates.values() if fate != CONFIRMED)

    @conformance()
    async def test_cloudevents_travel_in_both_modes(self, setting: Setting) -> None:
        binding = setting.connector.binding
        event = cloudevents.Event(
            "1", "/shop", "order.placed", b'{"a": 1}', "Straße 1", datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
            "application/json", extensions={"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tenant": "a b%c"},
        )  # fmt: skip
        batch = []
        modes: tuple[cloudevents.Mode, ...] = ("binary", "structured")
        for mode in modes:
            wire = cloudevents.write(event, binding, mode)
            batch.append(setting.message(wire.body, headers=wire.headers, content_type=wire.content_type))
        async with opened(setting.connector.sender()) as sender:
            assert (await send(sender, batch)).confirmed == [0, 1]
        for found in await read_all(setting):
            assert cloudevents.is_event(found.content_type, found.headers, binding)
            assert cloudevents.read(found.content_type, found.headers, found.body, binding) == event

    # Opening, closing, breaking.

    @conformance()
    async def test_what_is_not_open_sends_nothing_and_says_why(self, setting: Setting) -> None:
        sender = setting.connector.sender()
        assert sender.broken() is not None
        assert await send(sender, setting.messages(3)) == {}
        await sender.close()
        await sender.open()
        assert sender.broken() is None
        await sender.close()
        await sender.close()
        assert sender.broken() is not None
        assert await send(sender, setting.messages(3)) == {}
        assert await read_all(setting) == []

    @conformance()
    async def test_it_can_be_opened_again_and_again(self, setting: Setting) -> None:
        sender = setting.connector.sender([setting.to])
        for _ in range(3):
            await sender.open()
            assert await send(sender, [setting.message()]) == {0: CONFIRMED}
        await sender.open()
        await sender.close()
        assert len(await read_all(setting)) == 3

    @conformance()
    async def test_a_missing_address_keeps_it_closed(self, setting: Setting) -> None:
        sender = setting.connector.sender([setting.to, setting.missing])
        for _ in range(2):
            with pytest.raises(TransportBroken) as broken:
                await sender.open()
            assert broken.value.everyone
            assert setting.missing in str(broken.value)
            assert sender.broken() is not None
            assert await send(sender, setting.messages(1)) == {}

    @conformance()
    async def test_a_send_that_is_cancelled_reports_nothing_afterwards(self, setting: Setting) -> None:
        batch = setting.messages(300)
        fates = Fates(len(batch))
        async with opened(setting.connector.sender()) as sender:
            task = asyncio.ensure_future(sender.send(batch, fates))
            await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            fates.is_over = True
            others = await send_until_answered(sender, setting.messages(10))
            assert list(others.values()) == [CONFIRMED] * 10
        arrived = {each.id for each in await read_all(setting)}
        assert {batch[index].id for index in fates.confirmed} <= arrived

    @conformance("cut")
    async def test_a_cut_connection_loses_no_confirmed_message(self, setting: Setting) -> None:
        batch = setting.messages(200)
        async with opened(setting.connector.sender()) as sender:
            task = asyncio.ensure_future(send(sender, batch))
            await asyncio.sleep(0.002)
            await self.cut()
            fates: dict[int, Fate] = {**await task}
            await until(lambda: sender.broken() is not None)
            broken = sender.broken()
            assert broken is not None
            assert not broken.everyone
            left = [index for index in range(200) if index not in fates]
            again = await send_until_answered(sender, [batch[index] for index in left])
            fates |= {left[index]: fate for index, fate in again.items()}
        assert fates == dict.fromkeys(range(200), CONFIRMED)
        ids = [each.id for each in await read_all(setting)]
        assert set(ids) == {each.id for each in batch}
        assert list(dict.fromkeys(ids)) == [each.id for each in batch]

    @conformance("cut")
    async def test_cut_again_and_again_every_message_arrives(self, setting: Setting) -> None:
        sent: list[Outgoing] = []
        async with opened(setting.connector.sender()) as sender:
            for _ in range(5):
                batch = setting.messages(20)
                await self.cut()
                assert set((await send_until_answered(sender, batch)).values()) == {CONFIRMED}
                sent += batch
        assert list(dict.fromkeys(each.id for each in await read_all(setting))) == [each.id for each in sent]

    @conformance("down")
    async def test_a_broker_that_is_down_is_found_when_it_is_back(self, setting: Setting) -> None:
        sender = setting.connector.sender([setting.to])
        await sender.open()
        assert await send(sender, [setting.message(b"before")]) == {0: CONFIRMED}
        await self.go_down()
        await until(lambda: sender.broken() is not None)
        for _ in range(3):
            with pytest.raises(TransportBroken) as broken:
                await sender.open()
            assert not broken.value.everyone
        await self.come_up()
        assert await send_until_answered(sender, [setting.message(b"after")]) == {0: CONFIRMED}
        await sender.close()
        assert [each.body for each in await read_all(setting)] == [b"before", b"after"]

    @conformance("block")
    async def test_a_blocked_broker_is_reported_and_everything_goes_on_afterwards(
        self, setting: Setting
    ) -> None:
        async with opened(setting.connector.sender()) as sender:
            assert await send(sender, [setting.message()]) == {0: CONFIRMED}
            await self.block()
            try:
                # RabbitMQ informs only a connection that publishes.
                first = asyncio.ensure_future(send(sender, [setting.message()]))
                await until(lambda: (found := sender.broken()) is not None and found.everyone)
                assert await send(sender, setting.messages(3)) == {}
            finally:
                await self.unblock()
            assert (await first) in ({}, {0: CONFIRMED})
            await until(lambda: sender.broken() is None)
            assert await send(sender, [setting.message()]) == {0: CONFIRMED}

    @conformance("password")
    async def test_a_secret_is_shown_nowhere(self, setting: Setting) -> None:
        canary = "canary-7f3a-of-the-tests"
        connector = self.refused_connector(canary)
        sender = connector.sender()
        shown = [repr(connector), repr(sender), str(connector)]
        with pytest.raises(TransportBroken) as broken:
            await sender.open()
        assert broken.value.everyone
        seen: BaseException | None = broken.value
        while seen is not None:
            shown += [str(seen), repr(seen)]
            seen = seen.__cause__ or seen.__context__
        shown.append(repr(sender.broken()))
        assert [each for each in shown if canary in each] == []

    @conformance()
    async def test_nothing_is_left_behind_in_the_loop(self, setting: Setting) -> None:
        before = asyncio.all_tasks()
        for _ in range(3):
            async with opened(setting.connector.sender()) as sender, listening(setting) as receiver:
                assert (await send(sender, setting.messages(2))).confirmed == [0, 1]
                receiver.settle(await receive(receiver, 2))
        gc.collect()
        await asyncio.sleep(0.05)
        assert asyncio.all_tasks() <= before
