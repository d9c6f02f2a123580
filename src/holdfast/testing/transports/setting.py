"""What the tests of a transport need to know about a broker, and how they use it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from ...transports.contract import (
    CONFIRMED,
    Connector,
    Fate,
    Incoming,
    Outgoing,
    Receiver,
    Sender,
    Source,
    TransportBroken,
)

PATIENCE = 20.0  # seconds that anything may take on a busy machine


@dataclass(frozen=True, slots=True)
class Setting:
    """A broker with an address and an empty queue of the test's own."""

    connector: Connector
    to: str  # an address whose messages with `key` go to `queue`
    key: str
    queue: str
    nowhere: str  # a key of `to` that no queue takes
    everything: str  # an address whose messages go to `queue` whatever their key
    missing: str  # an address that does not exist

    def message(self, body: bytes = b"{}", **changes: Any) -> Outgoing:
        return replace(Outgoing(self.to, body, str(uuid4()), "test.happened", self.key), **changes)

    def messages(self, count: int) -> list[Outgoing]:
        return [self.message(b'{"n":%d}' % number) for number in range(count)]


class Fates(dict[int, Fate]):
    """The fates of one send. A fate that comes twice, or after the send has returned, fails the test."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count, self.is_over = count, False

    def __call__(self, index: int, fate: Fate) -> None:
        assert not self.is_over, f"the fate of {index} was reported after send had returned: {fate}"
        assert index not in self, f"the fate of {index} was reported twice: {self[index]}, then {fate}"
        assert 0 <= index < self._count, f"a fate was reported for {index}, and the batch had {self._count}"
        self[index] = fate

    @property
    def confirmed(self) -> list[int]:
        return sorted(index for index, fate in self.items() if fate == CONFIRMED)


async def send(sender: Sender, batch: Sequence[Outgoing]) -> Fates:
    fates = Fates(len(batch))
    async with asyncio.timeout(PATIENCE):
        await sender.send(batch, fates)
    fates.is_over = True
    return fates


async def send_until_answered(sender: Sender, batch: Sequence[Outgoing], rounds: int = 20) -> dict[int, Fate]:
    """Sends messages with an unknown fate again, as a relay does, and opens the transport again when it broke."""
    fates: dict[int, Fate] = {}
    for _ in range(rounds):
        left = [index for index in range(len(batch)) if index not in fates]
        if not left:
            return fates
        if sender.broken() is not None:
            with suppress(TransportBroken):
                await sender.open()
        answered = await send(sender, [batch[index] for index in left])
        fates |= {left[index]: fate for index, fate in answered.items()}
    raise AssertionError(f"after {rounds} rounds {len(batch) - len(fates)} messages are still unknown")


async def receive(receiver: Receiver, count: int) -> list[Incoming]:
    """Exactly so many, not settled."""
    found: list[Incoming] = []
    async with asyncio.timeout(PATIENCE):
        while len(found) < count:
            found += await receiver.receive(count - len(found))
    return found


async def read_all(setting: Setting, sender: Sender | None = None) -> list[Incoming]:
    """Everything in the queue, in order, settled: up to a last message that is sent now."""
    last = setting.message(b"last")
    async with opened(sender or setting.connector.sender()) as sending, listening(setting) as receiver:
        assert await send(sending, [last]) == {0: CONFIRMED}
        found: list[Incoming] = []
        async with asyncio.timeout(PATIENCE):
            while not found or found[-1].id != last.id:
                new = await receiver.receive(500)
                receiver.settle(new)
                found += new
    return found[:-1]


@asynccontextmanager
async def opened(sender: Sender) -> AsyncIterator[Sender]:
    if sender.broken() is None:
        yield sender
        return
    async with asyncio.timeout(PATIENCE):
        await sender.open()
    try:
        yield sender
    finally:
        await sender.close()


@asynccontextmanager
async def listening(setting: Setting, **source: Any) -> AsyncIterator[Receiver]:
    receiver = setting.connector.receiver(Source(setting.queue, **source))
    async with asyncio.timeout(PATIENCE):
        await receiver.open()
    try:
        yield receiver
    finally:
        await receiver.close()


async def is_silent(receiver: Receiver, seconds: float = 0.3) -> bool:
    """Whether nothing comes for a while."""
    try:
        async with asyncio.timeout(seconds):
            await receiver.receive(1)
    except TimeoutError:
        return True
    return False


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - anything may make it hold
            await asyncio.sleep(0.01)


_numbers = itertools.count(1)


class Harness:
    """What the class of a third party provides: a setting for each test, and what its broker can be made to do.

    Tests of an ability that `abilities` does not name are skipped, and say so.
    """

    abilities: frozenset[str] = frozenset()  # of: cut, block, down, password

    def setting(self, name: str) -> Setting:
        """A broker with addresses and a queue under names that no other test has; `name` is one."""
        raise NotImplementedError("give your tests a setting(name)")

    async def cut(self) -> None:
        """Cuts every connection of the transports, and lets new ones through."""
        raise NotImplementedError

    async def block(self) -> None:
        """Makes the broker refuse to take messages for now; `unblock` ends that."""
        raise NotImplementedError

    async def unblock(self) -> None:
        raise NotImplementedError

    async def go_down(self) -> None:
        """Nobody answers at the broker's address; `come_up` ends that, with what was stored."""
        raise NotImplementedError

    async def come_up(self) -> None:
        raise NotImplementedError

    def refused_connector(self, password: str) -> Connector:
        """A connector whose password, this one, the broker refuses."""
        raise NotImplementedError


Test = Callable[[Any, Setting], Coroutine[Any, Any, None]]


def conformance(*needed: str) -> Callable[[Test], Callable[[Any], None]]:
    """A test that runs in a loop of its own, with a setting of its own, if the broker has the abilities."""

    def decorate(test: Test) -> Callable[[Any], None]:
        def run(self: Any) -> None:
            if missing := set(needed) - self.abilities:
                pytest.skip(f"this broker's tests cannot {' or '.join(sorted(missing))}")
            setting = self.setting(f"holdfast-{uuid4().hex[:8]}-{next(_numbers)}")
            asyncio.run(test(self, setting))

        run.__name__, run.__qualname__, run.__doc__ = test.__name__, test.__qualname__, test.__doc__
        return run  # not functools.wraps: pytest would take the test's second argument for a fixture

    return decorate
