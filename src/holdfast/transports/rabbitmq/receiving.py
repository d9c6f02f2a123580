"""Receives from a RabbitMQ queue: one consumer on one channel, bounded by count and by bytes, acknowledged in order.

RabbitMQ limits what it sends ahead by count only. The limit by bytes is kept here: when too much is held, the socket is
not read. Nothing is ever refused with basic.nack, which would give a message a new place in its queue; to give messages
back, the channel is closed and opened again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..contract import NOT_OPEN, Broken, Incoming, Limits, Source, TransportBroken
from .link import ChannelClosed, Link, closed_by
from .topology import Topology

if TYPE_CHECKING:
    from . import RabbitMQ
    from .frames import Delivery


class RabbitReceiver:
    """One connection for one inbox."""

    def __init__(self, broker: RabbitMQ, topology: Topology, source: Source) -> None:
        self._broker, self._topology, self._source = broker, topology, source
        self._link: Link | None = None
        self._broken: Broken | None = NOT_OPEN
        self._channel: Any = None
        self._forget()
        self._arrived: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"RabbitReceiver({self._source.queue!r}, {self._broker!r})"

    @property
    def limits(self) -> Limits:
        return self._broker.limits

    async def open(self) -> None:
        await self.close()
        link = Link(self._broker, lambda why: self._lose(link, why))
        await link.open(self._topology)
        self._link, self._broken = link, None
        try:
            await self.start()
        except TransportBroken:
            await self.close()
            raise

    async def close(self) -> None:
        link, self._link, self._broken = self._link, None, NOT_OPEN
        self._forget()
        _not_cancelled(self._channel)
        self._channel = None
        self._wake()
        if link is not None:
            await link.close()

    def broken(self) -> Broken | None:
        return self._broken

    def _lose(self, link: Link, why: Broken) -> None:
        if link is self._link:
            self._broken = why
            self._forget()
            self._wake()

    def _forget(self) -> None:
        """Unsettled messages will come again."""
        self._buffer: deque[Incoming] = deque()
        self._unsettled: deque[tuple[int, int]] = deque()  # (number, bytes), in order
        self._held_bytes = 0

    # Consuming.

    async def start(self) -> None:
        if self._link is None or self._broken is not None:
            raise self._unusable()
        if self._channel is not None:
            return
        link = self._link
        try:
            channel = await link.channel()
            self._channel = channel
            channel.add_on_close_callback(self._on_channel_closed)
            channel.add_on_cancel_callback(self._on_cancelled)
            await link.call(channel, "basic_qos", prefetch_count=self._source.prefetch)
            link.consume(channel, self._source.queue, lambda came: self._on_message(channel, came))
        except ChannelClosed as ended:
            self._channel = None
            raise TransportBroken(
                f"Queue {self._source.queue!r} of RabbitMQ cannot be read: {ended.closed.code} {ended.closed.text}.",
                everyone=ended.closed.code != 0,
            ) from None

    async def stop(self) -> None:
        """Close the channel: unsettled messages go back to their places."""
        link, channel, self._channel = self._link, self._channel, None
        self._forget()
        if link is None or channel is None:
            return
        link.hold_reading(False)
        with contextlib.suppress(ChannelClosed):
            _not_cancelled(channel)
            await link.close_channel(channel)

    def _on_message(self, channel: Any, came: Delivery) -> None:
        if channel is not self._channel:
            return  # of a channel that was closed: it comes again
        self._buffer.append(_incoming(channel, came))
        self._unsettled.append((came.number, len(came.body)))
        self._held_bytes += len(came.body)
        if self._held_bytes >= self._source.prefetch_bytes and self._link is not None:
            self._link.hold_reading(True)
        self._wake()

    def _on_cancelled(self, _: Any) -> None:
        """The broker ended the consumer: the queue was deleted, or has a new leader."""
        if self._link is not None:
            self._link.break_off(
                Broken(f"RabbitMQ stopped reading queue {self._source.queue!r}: was it deleted?")
            )

    def _on_channel_closed(self, channel: Any, error: BaseException) -> None:
        if channel is self._channel and self._link is not None:
            closed = closed_by(error)
            if closed.code == 0:  # it ended with its connection
                self._link.break_off(Broken("the connection was lost"))
                return
            self._link.break_off(
                Broken(f"RabbitMQ closed the channel ({closed.code} {closed.text})", closed.code == 404)
            )

    # For the inbox.

    async def receive(self, most: int) -> Sequence[Incoming]:
        """At most an eighth of the bytes that may be held: a batch is in memory several times while it is stored."""
        while not self._buffer:
            if self._broken is not None:
                raise self._unusable()
            self._arrived = asyncio.get_running_loop().create_future()
            await self._arrived
        taken: list[Incoming] = []
        room = self._source.prefetch_bytes // 8
        while self._buffer and len(taken) < most and room > 0:
            taken.append(self._buffer.popleft())
            room -= len(taken[-1].body)
        return taken

    def settle(self, stored: Sequence[Incoming]) -> None:
        channel = self._channel
        numbers = (
            receipt[1]
            for each in reversed(stored)
            if isinstance(receipt := each.receipt, tuple) and receipt[0] is channel
        )
        last = next(numbers, None)  # they are in order
        if last is None or not self._unsettled or channel is None or not channel.is_open:
            return
        if last < self._unsettled[0][0]:
            return  # settled before; the broker would close the channel over it
        channel.basic_ack(last, multiple=True)
        while self._unsettled and self._unsettled[0][0] <= last:
            self._held_bytes -= self._unsettled.popleft()[1]
        if self._link is not None and self._held_bytes < max(1, self._source.prefetch_bytes // 2):
            self._link.hold_reading(False)

    def _wake(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)

    def _unusable(self) -> TransportBroken:
        broken = self._broken or NOT_OPEN
        return TransportBroken(
            f"Queue {self._source.queue!r} of RabbitMQ cannot be read: {broken.why}.",
            everyone=broken.everyone,
        )


def _not_cancelled(channel: Any) -> None:
    """A channel is closed without cancelling its consumer, which pika would do first.

    RabbitMQ makes the next consumer active when one is cancelled, and what this one has not settled goes back only when
    the channel is closed: behind what the next one has got by then. Without the cancel both happen at once.
    """
    if channel is not None:
        channel._consumers.clear()


def _incoming(channel: Any, came: Delivery) -> Incoming:
    media, headers, id, time, kind = came.properties
    return Incoming(
        came.body,
        headers,
        (channel, came.number),
        id,
        kind,
        media,
        None if time is None else _moment(time),
        came.to,
        came.key,
        came.redelivered,
        death_reason(headers),
    )


@lru_cache(maxsize=64)  # seconds: many messages have the same
def _moment(value: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(value, UTC)
    except (OverflowError, OSError, ValueError):
        return None


def death_reason(headers: Mapping[str, object]) -> str | None:
    """Why the broker first gave a message up: 'unknown' if it does not say (V29); None: it did not give it up."""
    if isinstance(first := headers.get("x-first-death-reason"), str):
        return first
    deaths = headers.get("x-death")
    if isinstance(deaths, list) and deaths and isinstance(deaths[-1], dict):
        return str(deaths[-1].get("reason") or "unknown")
    return "unknown" if "x-death" in headers else None
