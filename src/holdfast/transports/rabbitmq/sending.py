"""Sends to RabbitMQ: batches written at once, confirmed in any order, every message mandatory and persistent.

The broker closes the channel because of one bad message (a missing exchange, one too large) and says nothing about the
others in flight. They are sent again in halves, on channels of their own, until the message at fault is alone. It gets
its fate; the messages behind it stay unknown and come with a later batch.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..confirms import Confirms, Flight, OutOfStep, Returned
from ..contract import (
    NOT_OPEN,
    Broken,
    Fate,
    Limits,
    Outgoing,
    Rejected,
    Sent,
    TooLarge,
    TransportBroken,
    Unroutable,
    refusal,
)
from .link import ChannelClosed, Closed, Link, closed_by
from .topology import Topology

if TYPE_CHECKING:
    from . import RabbitMQ

SHORT_BYTES = 255  # of an AMQP short string
RESERVED = ("CC", "BCC")  # RabbitMQ reads addresses in them, and takes the second one out


class PublishingChannel:
    """A channel with confirms, and the batches that are in flight on it."""

    def __init__(self, channel: Any, publish: Callable[[int, Outgoing], None]) -> None:
        self._channel, self._publish = channel, publish
        self._confirms = Confirms()
        self._waiting: set[asyncio.Future[None]] = set()
        self.closed: Closed | None = None

    @classmethod
    async def open(cls, link: Link) -> PublishingChannel:
        channel = await link.channel()
        new = cls(channel, link.publish)
        channel.add_on_close_callback(new._on_closed)
        channel.add_on_return_callback(new._on_returned)
        await link.call(channel, "confirm_delivery", ack_nack_callback=new._on_answer)
        return new

    def write(self, messages: Sequence[Outgoing], sent: Sent) -> tuple[Flight, asyncio.Future[None]]:
        """Publishes all, without waiting. The future ends with the last answer, or when no more will come."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(done)
        flight = self._confirms.publish(messages, sent, lambda: self._finish(done))
        publish, channel = self._publish, self._channel.channel_number
        for index, message in enumerate(messages):
            if self.closed is not None:
                break
            try:
                publish(channel, message)
            except (
                Exception
            ) as error:  # for any reason of pika's: it was not written, and the numbers are off
                why = f"it cannot be written as AMQP ({type(error).__name__})"
                flight.answer(index, Rejected(why, for_good=True))
                self.end(Closed(0, "a message could not be written"))
        if self.closed is not None:
            self._finish(done)
        return flight, done

    def end(self, why: Closed) -> None:
        """No answer of this channel counts from now on."""
        if self.closed is None:
            self.closed = why
            for each in list(self._waiting):
                self._finish(each)
            with contextlib.suppress(Exception):  # it may be closing, or closed with its connection
                self._channel.close()

    def _finish(self, done: asyncio.Future[None]) -> None:
        self._waiting.discard(done)
        if not done.done():
            done.set_result(None)

    def _on_closed(self, _: Any, error: BaseException) -> None:
        self.end(closed_by(error))

    def _on_answer(self, frame: Any) -> None:
        if self.closed is None:
            method = frame.method
            accepted = method.INDEX == ACCEPTED
            try:
                self._confirms.answer(method.delivery_tag, multiple=method.multiple, accepted=accepted)
            except OutOfStep as error:
                self.end(Closed(0, str(error)))

    def _on_returned(self, _: Any, method: Any, properties: Any, body: bytes) -> None:
        if self.closed is None:
            reason = (
                f"{method.reply_code} {method.reply_text}: {method.exchange!r}, key {method.routing_key!r}"
            )
            returned = Returned(
                method.exchange,
                method.routing_key,
                properties.message_id,
                properties.headers or {},
                body,
                reason[:300],
            )
            try:
                self._confirms.give_back(returned)
            except OutOfStep as error:
                self.end(Closed(0, str(error)))


ACCEPTED = 0x003C0050  # the number of basic.ack; basic.nack has another


class RabbitSender:
    """One connection for one destination."""

    def __init__(self, broker: RabbitMQ, topology: Topology) -> None:
        self._broker, self._topology = broker, topology
        self._link: Link | None = None
        self._channel: PublishingChannel | None = None
        self._broken: Broken | None = NOT_OPEN
        self._turn = asyncio.Lock()  # one search for a message at fault at a time

    def __repr__(self) -> str:
        return f"RabbitSender({self._broker!r})"

    @property
    def limits(self) -> Limits:
        return self._broker.limits

    async def open(self) -> None:
        await self.close()
        link = Link(self._broker, lambda why: self._lose(link, why))
        await link.open(self._topology)
        try:
            channel = await PublishingChannel.open(link)
        except ChannelClosed as ended:
            await link.close()
            raise TransportBroken(f"RabbitMQ opened no channel: {ended.closed.text}.") from None
        self._link, self._channel, self._broken, self._turn = link, channel, None, asyncio.Lock()

    async def close(self) -> None:
        link, self._link, self._channel, self._broken = self._link, None, None, NOT_OPEN
        if link is not None:
            await link.close()

    def broken(self) -> Broken | None:
        if self._broken is None and self._link is not None:
            if self._link.blocked is not None:
                return Broken(f"RabbitMQ is blocked: {self._link.blocked}", everyone=True)
            if self._channel is None or self._channel.closed is not None:
                return Broken("its channel is being opened again")
        return self._broken

    def _lose(self, link: Link, why: Broken) -> None:
        if link is self._link:
            self._broken = why
            if self._channel is not None:
                self._channel.end(Closed(0, why.why))

    async def send(self, batch: Sequence[Outgoing], sent: Sent) -> None:
        if self.broken() is not None or self._link is None or self._channel is None:
            return
        ready: list[int] = []
        for index, message in enumerate(batch):
            refused = self._refusal(message)
            if refused is None:
                ready.append(index)
            else:
                sent(index, refused)
        link, channel = self._link, self._channel
        left = await self._fly(link, channel, batch, ready, sent)
        if left and channel.closed is not None and link.lost is None:
            await self._after_closing(link, channel, batch, left, sent)

    def _refusal(self, message: Outgoing) -> Fate | None:
        refused = refusal(message, self._broker.limits)
        if refused is not None:
            return refused
        for what, text in (
            ("type", message.type),
            ("id", message.id),
            ("content type", message.content_type or ""),
        ):
            if len(text) > SHORT_BYTES // 4 and len(text.encode("utf-8", "replace")) > SHORT_BYTES:
                why = f"its {what} has more than {SHORT_BYTES} bytes, which AMQP does not carry"
                return Rejected(why, for_good=True)
        for name in message.headers:
            if (flaw := _flaw_of(name)) is not None:
                return Rejected(flaw, for_good=True)
        return None

    async def _fly(
        self, link: Link, channel: PublishingChannel, batch: Sequence[Outgoing], chosen: list[int], sent: Sent
    ) -> list[int]:
        """Sends the chosen ones on a channel and waits; gives those back that were not answered."""
        if not chosen:
            return []
        if len(chosen) == len(batch):
            flight, done = channel.write(batch, sent)
        else:
            flight, done = channel.write(
                [batch[each] for each in chosen], lambda i, fate: sent(chosen[i], fate)
            )
        try:
            async with asyncio.timeout(self._broker.confirm_seconds):
                await done
        except TimeoutError:
            link.break_off(Broken(f"RabbitMQ has not confirmed within {self._broker.confirm_seconds:g} s"))
        finally:
            flight.sent = _ignore
        return [chosen[each] for each in flight.unanswered()]

    # When the broker has closed the channel.

    async def _after_closing(
        self, link: Link, closed: PublishingChannel, batch: Sequence[Outgoing], left: list[int], sent: Sent
    ) -> None:
        try:
            async with self._turn:
                if self._channel is closed:
                    # The exchange itself may be gone: then no message is at fault.
                    await link.prepare(self._topology)
                    self._channel = await PublishingChannel.open(link)
                await self._find_culprit(link, batch, left, sent)
        except TransportBroken as broken:
            link.break_off(Broken(broken.why, broken.everyone))
        except ChannelClosed as ended:
            link.break_off(Broken(ended.closed.text))

    async def _find_culprit(self, link: Link, batch: Sequence[Outgoing], left: list[int], sent: Sent) -> None:
        while left and link.lost is None:
            half = left[: max(1, len(left) // 2)]
            channel = await PublishingChannel.open(link)
            unanswered = await self._fly(link, channel, batch, half, sent)
            if not unanswered:
                left = left[len(half) :]
                channel.end(Closed(0, "it has done its work"))
            elif len(half) > 1:
                left = unanswered
            else:
                self._judge(batch, left, channel.closed, sent)
                return

    def _judge(self, batch: Sequence[Outgoing], left: list[int], closed: Closed | None, sent: Sent) -> None:
        """The first of those left has closed a channel on which it was alone."""
        if closed is None or closed.code == 0:
            return
        culprit = batch[left[0]]
        if closed.code == 404:  # messages to the same place have the same fate
            for each in [index for index in left if batch[index].to == culprit.to]:
                sent(each, Unroutable(f"404 {closed.text}"))
        elif closed.code == 406 and "size" in closed.text:
            sent(left[0], TooLarge(f"406 {closed.text}"))
        else:
            sent(left[0], Rejected(f"{closed.code} {closed.text}"))


@lru_cache(maxsize=1024)  # a service has few headers, and each message has several
def _flaw_of(name: str) -> str | None:
    """Why a header cannot have this name."""
    if name in RESERVED:
        return f"its header {name} has a meaning of its own to RabbitMQ: use another name"
    if not name or len(name.encode("utf-8", "replace")) > SHORT_BYTES:
        return f"a header's name has 1 to {SHORT_BYTES} bytes in AMQP"
    return None


def _ignore(_: int, __: Fate) -> None:
    """Answers that come when nothing waits for them any more."""
