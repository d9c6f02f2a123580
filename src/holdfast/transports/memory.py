"""A message broker in memory, for tests: exchanges, queues, and faults that occur when a test asks for them.

    broker = MemoryBroker()
    broker.bind("shop.events", "order.*", queue="billing")
    broker.fail(Fault.REFUSE, times=1)           # the next message is refused, the one after it is not
    ...
    assert [message.type for message in broker.sent] == ["order.placed"]

It is a real transport by the contract, and passes the same tests as RabbitMQ. It is gone with the process.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from ..errors import InvalidSettings
from .cloudevents import AMQP
from .contract import (
    CONFIRMED,
    NOT_OPEN,
    Broken,
    Fate,
    Incoming,
    Limits,
    Outgoing,
    Rejected,
    Sent,
    Source,
    TooLarge,
    TransportBroken,
    Unroutable,
    refusal,
)


class Fault(Enum):
    """What can happen to a message on its way."""

    REFUSE = "the broker refuses it"
    LOSE_CONFIRM = "the broker stores it, and its answer never comes"
    CUT_BEFORE = "the connection is lost before the broker has it"
    CUT_AFTER = "the connection is lost after the broker has stored it and before it says so"
    NO_ROUTE = "no queue takes it"
    TOO_LARGE = "the broker finds it too large"
    TWICE = "the broker stores it twice"


@dataclass(slots=True)
class _Planned:
    fault: Fault
    times: int
    only: Callable[[Outgoing], bool]


@dataclass(slots=True, eq=False)
class _Stored:
    message: Outgoing
    deliveries: int = 0


class _Signal:
    """Wakes all waiters, in any loop: a test may run one loop after another."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def set(self) -> None:
        for each in self._waiting:
            each.get_loop().call_soon_threadsafe(_resolve, each)
        self._waiting.clear()

    async def wait(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


@dataclass(slots=True)
class _Queue:
    waiting: deque[_Stored] = field(default_factory=deque)
    changed: _Signal = field(default_factory=_Signal)  # stored, given back, settled, or a reader lost
    # The first one is active in an ordered source.
    readers: list[MemoryReceiver] = field(default_factory=list)


class MemoryBroker:
    """The broker, and the connector to it."""

    name = "memory"
    binding = AMQP

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.sent: list[Outgoing] = []  # everything stored, in the order of storing
        self._bindings: dict[str, list[tuple[re.Pattern[str], str]]] = {}
        self._queues: dict[str, _Queue] = {}
        self._planned: list[_Planned] = []
        self._connections: set[_Connection] = set()
        self._blocked: str | None = None
        self._is_down = False
        self._order: Callable[[list[int]], Iterable[int]] = list

    def __repr__(self) -> str:
        return f"MemoryBroker({len(self._queues)} queues, {len(self.sent)} messages stored)"

    # What a test says.

    def declare(self, queue: str) -> None:
        """A queue, which takes what is sent to the address "" with its name as the key."""
        self._queues.setdefault(queue, _Queue())

    def bind(self, exchange: str, pattern: str, queue: str) -> None:
        """`order.*` takes one word for the star, `order.#` any number of words, as in RabbitMQ's topic exchanges."""
        self.declare(queue)
        self._bindings.setdefault(exchange, []).append((_topic(pattern), queue))

    def fail(self, fault: Fault, times: int = 1, only: Callable[[Outgoing], bool] = lambda _: True) -> None:
        """The next `times` messages, of those for which `only` is true, meet this fault."""
        self._planned.append(_Planned(fault, times, only))

    def confirm_in(self, order: Callable[[list[int]], Iterable[int]]) -> None:
        """In which order the answers to a batch come: `reversed`, or a function that gives the indices in another."""
        self._order = order

    def block(self, why: str = "low on memory") -> None:
        """The broker takes nothing more, as RabbitMQ without memory or disk space; connections stay."""
        self._blocked = why

    def unblock(self) -> None:
        self._blocked = None

    def cut(self) -> None:
        """Every connection is lost."""
        for each in list(self._connections):
            each.lose(Broken("the connection was lost"))

    def go_down(self) -> None:
        """Nothing answers until `come_up`. What is stored stays."""
        self._is_down = True
        self.cut()

    def come_up(self) -> None:
        self._is_down = False

    def waiting(self, queue: str) -> list[Outgoing]:
        """The messages in a queue that were not handed to a receiver."""
        return [each.message for each in self._of(queue).waiting]

    # The connector.

    def sender(self, addresses: Collection[str] = ()) -> MemorySender:
        return MemorySender(self, tuple(addresses))

    def receiver(self, source: Source) -> MemoryReceiver:
        return MemoryReceiver(self, source)

    # What its connections ask.

    def admit(self, connection: _Connection) -> None:
        if self._is_down:
            raise TransportBroken("The memory broker cannot be reached: it is down.")
        self._connections.add(connection)

    def dismiss(self, connection: _Connection) -> None:
        self._connections.discard(connection)

    def blocked(self) -> str | None:
        return self._blocked

    def knows(self, address: str) -> bool:
        return address in self._bindings or address == ""

    def planned(self, message: Outgoing) -> Fault | None:
        for each in self._planned:
            if each.times > 0 and each.only(message):
                each.times -= 1
                return each.fault
        return None

    def store(self, message: Outgoing) -> bool:
        """Whether any queue took it."""
        if message.to == "":
            queues = {message.key} & set(self._queues)
        else:
            bindings = self._bindings.get(message.to, ())
            queues = {queue for pattern, queue in bindings if pattern.fullmatch(f".{message.key}")}
        for queue in sorted(queues):
            self._queues[queue].waiting.append(_Stored(message))
            self._queues[queue].changed.set()
        if queues:
            self.sent.append(message)
        return bool(queues)

    def in_their_order(self, answers: dict[int, Fate]) -> list[tuple[int, Fate]]:
        return [(index, answers[index]) for index in self._order(list(answers))]

    def queue(self, name: str) -> _Queue:
        if name not in self._queues:
            raise TransportBroken(
                f"The memory broker has no queue {name!r}: declare or bind it.", everyone=True
            )
        return self._queues[name]

    def _of(self, name: str) -> _Queue:
        if name not in self._queues:
            raise InvalidSettings(f"The memory broker has no queue {name!r}; it has {sorted(self._queues)}.")
        return self._queues[name]


def _topic(pattern: str) -> re.Pattern[str]:
    """AMQP: words between dots; * is one word, # is any number of them. Matched with a dot before the key."""
    words = {"#": r"(?:\.[^.]*)*", "*": r"\.[^.]*"}
    return re.compile("".join(words.get(word, r"\." + re.escape(word)) for word in pattern.split(".")), re.S)


class _Connection:
    """The part that sender and receiver have in common."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._broken: Broken | None = NOT_OPEN

    @property
    def limits(self) -> Limits:
        return self._broker.limits

    async def open(self) -> None:
        await self.close()
        self._broker.admit(self)
        self._broken = None

    async def close(self) -> None:
        self.lose(NOT_OPEN)

    def lose(self, why: Broken) -> None:
        self._broken = why
        self._broker.dismiss(self)

    def broken(self) -> Broken | None:
        return self._broken


class MemorySender(_Connection):
    """Sends to the broker in memory."""

    def __init__(self, broker: MemoryBroker, addresses: Sequence[str]) -> None:
        super().__init__(broker)
        self._addresses = addresses

    async def open(self) -> None:
        await super().open()
        for each in self._addresses:
            if not self._broker.knows(each):
                self.lose(NOT_OPEN)
                raise TransportBroken(
                    f"The memory broker has no exchange {each!r}: bind a queue to it.", everyone=True
                )

    def broken(self) -> Broken | None:
        if self._broken is None and (why := self._broker.blocked()):
            return Broken(f"the broker is blocked: {why}", everyone=True)
        return self._broken

    async def send(self, batch: Sequence[Outgoing], sent: Sent) -> None:
        if self.broken() is not None:
            return
        answers: dict[int, Fate] = {}
        lost: Broken | None = None
        for index, message in enumerate(batch):
            fate, lost_now = self._deliver(message)
            lost = lost or lost_now
            if fate is not None:
                answers[index] = fate
            if lost_now is not None and lost_now is not LATE:
                break
        await asyncio.sleep(0)
        if self._broken is None:
            for index, fate in self._broker.in_their_order(answers):
                sent(index, fate)
            if lost is not None:
                self.lose(lost)

    def _deliver(self, message: Outgoing) -> tuple[Fate | None, Broken | None]:
        """The fate of a message, and of the connection."""
        refused: Fate | None = refusal(message, self.limits)
        if refused is not None:
            return refused, None
        match self._broker.planned(message):
            case Fault.REFUSE:
                return Rejected("the broker refused it, as the test asked"), None
            case Fault.TOO_LARGE:
                return TooLarge("the broker finds it too large, as the test asked"), None
            case Fault.NO_ROUTE:
                return Unroutable("no queue takes it, as the test asked"), None
            case Fault.CUT_BEFORE:
                return None, Broken("the connection was lost")
            case Fault.CUT_AFTER:
                self._broker.store(message)
                return None, Broken("the connection was lost")
            case Fault.LOSE_CONFIRM:
                self._broker.store(message)
                return None, LATE
            case Fault.TWICE:
                self._broker.store(message)
            case None:
                pass
        if not self._broker.store(message):
            return Unroutable(f"no queue is bound to {message.to!r} for the key {message.key!r}"), None
        return CONFIRMED, None


LATE = Broken("the broker has not confirmed in time")


class MemoryReceiver(_Connection):
    """Receives from a queue in memory."""

    def __init__(self, broker: MemoryBroker, source: Source) -> None:
        super().__init__(broker)
        self._source = source
        self._unsettled: deque[_Stored] = deque()
        self._is_stopped = False

    async def open(self) -> None:
        for exchange, patterns in self._source.bind.items():
            for pattern in patterns:
                self._broker.bind(exchange, pattern, self._source.queue)
        await super().open()
        try:
            self._queue = self._broker.queue(self._source.queue)
        except TransportBroken:
            self.lose(NOT_OPEN)
            raise
        self._is_stopped = False
        self._queue.readers.append(self)

    def lose(self, why: Broken) -> None:
        super().lose(why)
        if hasattr(self, "_queue"):
            if self in self._queue.readers:
                self._queue.readers.remove(self)
            self._give_back()

    async def receive(self, most: int) -> Sequence[Incoming]:
        while True:
            if self._broken is not None:
                raise TransportBroken(
                    f"Nothing can be received from {self._source.queue}: {self._broken.why}."
                )
            if taken := self._take(most):
                return taken
            await self._queue.changed.wait()

    def _take(self, most: int) -> list[Incoming]:
        may = not self._source.ordered or self._queue.readers[0] is self
        held = sum(each.message.size for each in self._unsettled)
        taken: list[Incoming] = []
        while may and not self._is_stopped and self._queue.waiting and len(taken) < most:
            size = self._queue.waiting[0].message.size
            full = len(self._unsettled) >= self._source.prefetch or held + size > self._source.prefetch_bytes
            if full and self._unsettled:
                break
            stored = self._queue.waiting.popleft()
            stored.deliveries += 1
            held += size
            self._unsettled.append(stored)
            taken.append(_incoming(stored))
        return taken

    def settle(self, stored: Sequence[Incoming]) -> None:
        done = {id(each.receipt) for each in stored}
        self._unsettled = deque(each for each in self._unsettled if id(each) not in done)
        self._queue.changed.set()

    async def stop(self) -> None:
        self._is_stopped = True
        self._give_back()

    async def start(self) -> None:
        self._is_stopped = False
        self._queue.changed.set()

    def _give_back(self) -> None:
        self._queue.waiting.extendleft(reversed(self._unsettled))
        self._unsettled.clear()
        self._queue.changed.set()


def _incoming(stored: _Stored) -> Incoming:
    message = stored.message
    headers: Mapping[str, object] = dict(message.headers)
    return Incoming(
        message.body,
        headers,
        receipt=stored,
        id=message.id,
        type=message.type,
        content_type=message.content_type,
        time=message.time,
        to=message.to,
        key=message.key,
        redelivered=stored.deliveries > 1,
    )
