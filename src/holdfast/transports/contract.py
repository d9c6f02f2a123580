"""The contract of a transport: the way to a message broker, as narrow as possible.

A **connector** is what users make, once: `RabbitMQ(url)`, `MemoryBroker()`. It holds settings and secrets, and no
connection. It makes a **sender** for each destination and a **receiver** for each inbox of a process. Both are
transports: each has one connection of its own, is used from one asyncio loop, and can be opened again after it broke.

Every transport
---------------
- `await open()` connects, and declares or checks what it needs (exchanges, queues). It raises `TransportBroken` if that
  fails; then nothing stays open. Open again after a pause: transports do not reconnect by themselves. Opening an open
  transport closes it first.
- `await close()` never raises, takes at most a few seconds, and may be called twice, also if it was never open.
- `broken()` says why nothing can be sent or received now, or None. It makes no request, costs nothing, and may be
  called often. `Broken.everyone` is True for a problem of every process (the broker is blocked, the password is
  refused, an exchange is missing) and False for one that may be this process's own (connection lost, no route).
- `limits` says what may be sent. It may change with `open()`, when the broker has reported its own.

Sender
------
- `await send(batch, sent)` writes the whole batch before it waits for anything, in the order of the batch: so two sends
  that were begun one after the other arrive in that order. At most `limits.in_flight` messages may be in flight.
- `sent(i, fate)` is called at most once for each index, as the answers come, in any order, and never after `send` has
  returned. **A message without a fate is unknown**: it may have arrived or not, and must be sent again with the
  same id.
- `send` returns when every fate was reported, or when no more will come: the connection was lost, the broker is blocked
  or has not confirmed in time. It does not raise for that; `broken()` says why. If it is cancelled, messages without a
  fate are unknown as well.
- The fates:
    Confirmed    the broker has stored it. The only proof that it was sent.
    Rejected     the broker refused this message (a full queue, no permission), which may pass; or it cannot be sent
                 as it is, and never will (`for_good`).
    TooLarge     it is larger than the broker allows, and will always be.
    Unroutable   no queue or exchange takes it at this address now; a later binding may mend that.
    Unknown      no answer, and the transport knows why. The same as no fate.
- One bad message must not make its neighbours fail. If it costs them their connection or channel, they are unknown, and
  the transport finds the message at fault itself, so that repeated sends of unknown messages come to an end.
- A sender never sends a confirmed message again. To find the message at fault it may send unanswered ones again, in the
  order of the batch.

Receiver
--------
- After `open()` it receives. `await receive(most)` waits for at least one message and returns up to `most`, in the
  order of the broker. It raises `TransportBroken` when the connection is lost: unsettled messages will come again.
- `settle(stored)` acknowledges messages that are stored and committed: always the oldest unsettled ones, in their
  order. Messages of a former connection are ignored: they come again anyway.
- `await stop()` ends receiving and gives all unsettled messages back to the broker, in their old places; the
  connection stays. `await start()` receives again. A receiver never refuses a message and never requeues it at
  another place: that would break the order.
- What it holds is bounded by count and bytes (`Source`); one message may be larger.

No secret may be in `repr`, errors, logs or `broken()` of any of them. `holdfast.testing.transports` has the tests
that every transport must pass.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol, runtime_checkable

import msgspec

from ..errors import HoldfastError
from .cloudevents import Binding


class TransportBroken(HoldfastError):
    """A broker cannot be used now. Nothing is lost: stored messages stay, and are sent later."""

    retryable = True

    def __init__(self, why: str, *, everyone: bool = False) -> None:
        super().__init__(why)
        self.why, self.everyone = why, everyone


@dataclass(frozen=True, slots=True)
class Broken:
    """Why a transport cannot be used, and whether that is so for every process."""

    why: str
    everyone: bool = False


# --- Fates --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The broker has stored the message."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The broker refused the message; `for_good`: it cannot be sent as it is, now or later."""

    reason: str
    for_good: bool = False


@dataclass(frozen=True, slots=True)
class TooLarge:
    """The message is larger than the broker allows."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unroutable:
    """No queue or exchange takes the message at its address."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """It is not known whether the broker has the message."""

    reason: str


Fate = Confirmed | Rejected | TooLarge | Unroutable | Unknown
Sent = Callable[[int, Fate], None]
CONFIRMED = Confirmed()


# --- Messages -----------------------------------------------------------------------------------------------


class Outgoing(msgspec.Struct, frozen=True):
    """A message for a broker. Headers are text; those of CloudEvents are among them."""

    to: str  # exchange, subject, stream or URL
    body: bytes
    id: str
    type: str
    key: str = ""  # routing key, partition key
    headers: Mapping[str, str] = {}  # msgspec makes a new one for each
    content_type: str | None = "application/json"
    time: datetime | None = None

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return len(self.body)


class Incoming(msgspec.Struct, frozen=True):
    """A message from a broker, as it came. Header values are what the broker has: text, numbers, bytes, lists."""

    body: bytes
    headers: Mapping[str, object]
    receipt: object  # the transport's own, for `settle`
    id: str | None = None
    type: str | None = None
    content_type: str | None = None
    time: datetime | None = None
    to: str = ""
    key: str = ""
    redelivered: bool = False
    death: str | None = None  # why the broker gave it up, if it is from a dead letter queue (V29)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of what may be sent."""

    body_bytes: int = 1024 * 1024
    header_bytes: int = 64 * 1024  # names and values of all headers together
    address_bytes: int = 255  # of `to` and of `key`
    in_flight: int = 1000  # messages that are not confirmed yet


@dataclass(frozen=True, slots=True)
class Source:
    """The queue that an inbox reads."""

    queue: str
    bind: Mapping[str, Sequence[str]] = field(default_factory=dict)  # exchange to routing keys
    prefetch: int = 2000
    prefetch_bytes: int = 8 * 1024 * 1024
    ordered: bool = False  # one receiver at a time, in all processes


# --- Protocols ----------------------------------------------------------------------------------------------


@runtime_checkable
class Transport(Protocol):
    """One connection to a broker, which may break and be opened again."""

    @property
    def limits(self) -> Limits: ...
    async def open(self) -> None: ...
    async def close(self) -> None: ...
    def broken(self) -> Broken | None: ...


@runtime_checkable
class Sender(Transport, Protocol):
    """Sends the messages of one destination."""

    async def send(self, batch: Sequence[Outgoing], sent: Sent) -> None: ...


@runtime_checkable
class Receiver(Transport, Protocol):
    """Receives the messages of one inbox."""

    async def receive(self, most: int) -> Sequence[Incoming]: ...
    def settle(self, stored: Sequence[Incoming]) -> None: ...
    async def stop(self) -> None: ...
    async def start(self) -> None: ...


@runtime_checkable
class SendingConnector(Protocol):
    """A broker that messages can be sent to."""

    name: str  # of the kind, for people: `rabbitmq`
    binding: Binding  # how CloudEvents are written there

    def sender(self, addresses: Collection[str] = ()) -> Sender:
        """For a destination. Its fixed addresses are checked by `open()`; addresses made by a template are not."""
        ...


@runtime_checkable
class Connector(SendingConnector, Protocol):
    """A broker that messages can be sent to and received from."""

    def receiver(self, source: Source) -> Receiver: ...


@dataclass(frozen=True, slots=True)
class Remark:
    """A remark about a broker for an operator, and what to do about it."""

    severity: Literal["error", "warning", "note"]
    name: str
    text: str
    remedy: str


@runtime_checkable
class Examined(Protocol):
    """A connector that can look for unsafe settings at its broker. It sends nothing and changes nothing."""

    async def examine(self, addresses: Collection[str], source: Source | None) -> Sequence[Remark]:
        """Remarks about the fixed addresses of a destination, or about the source of an inbox; or TransportBroken."""
        ...


# --- For those who write a transport ------------------------------------------------------------------------

NOT_OPEN = Broken("it is not open")
HEADER_EXTRA = 8  # bytes that a header costs beside its name and value


def refusal(message: Outgoing, limits: Limits) -> Rejected | TooLarge | None:
    """The fate of a message that must not be sent at all. Every sender asks this first."""
    if len(message.body) > limits.body_bytes:
        return TooLarge(f"its body has {len(message.body)} bytes, and the broker takes {limits.body_bytes}")
    headers = message.headers
    if (  # the usual case: text of ASCII that is short in total
        len(message.to) + len(message.key) <= limits.address_bytes
        and (whole := message.to + message.key + "".join(headers.values())).isascii()
        and len(whole) + sum(map(len, headers)) + len(headers) * HEADER_EXTRA <= limits.header_bytes
    ):
        return None
    try:
        for what, text in (("address", message.to), ("key", message.key)):
            if (size := len(text.encode())) > limits.address_bytes:
                why = f"its {what} has {size} bytes, and {limits.address_bytes} are allowed"
                return Rejected(why, for_good=True)
        size = sum(len(name) + len(value.encode()) + HEADER_EXTRA for name, value in headers.items())
    except UnicodeEncodeError:
        why = "its address, key or a header has a lone surrogate, which cannot be sent"
        return Rejected(why, for_good=True)
    if size > limits.header_bytes:
        return TooLarge(f"its headers have {size} bytes, and {limits.header_bytes} can be sent")
    return None
