"""RabbitMQ: settings and connector. Needs pika (`pip install holdfast[rabbitmq]`), from the first connection on.

    rabbit = RabbitMQ("amqp://shop@broker/", password=Secret("RABBIT_PASSWORD"))

Every message is persistent, mandatory and confirmed by the broker; none of that can be switched off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import InvalidSettings
from ..cloudevents import AMQP
from ..contract import Limits, Remark, Source, TransportBroken
from ..secrets import Secret
from .address import Address
from .topology import DeadLetters, Exchange, Queue, Topology

if TYPE_CHECKING:
    from .examining import Thing
    from .receiving import RabbitReceiver
    from .sending import RabbitSender

EXAMINE_SECONDS = 30.0
HEARTBEAT_MAX = 65_535  # seconds; AMQP has 16 bits for them

__all__ = ["DeadLetters", "Exchange", "Queue", "RabbitMQ", "Topology"]


@dataclass(frozen=True, slots=True, repr=False)
class RabbitMQ:
    """A RabbitMQ broker, or a cluster behind one address.

    `url`          amqp://user@host:port/vhost, or amqps:// for TLS; text, or a Secret
    `password`     a Secret; better than one in the URL
    `ca`           a file with the certificates to trust, instead of the system's; verification cannot be switched off
    `certificate`  a file with the client's certificate and its key, if the broker wants one
    `declare`      exchanges and queues to declare when a connection opens: what exists must be equal
    `may_declare`  False: nothing is declared, everything is only checked to be there
    `in_flight`    messages that are sent and not confirmed yet, by one destination of one process
    `body_bytes`   the broker's own `max_message_size`: 16 MiB unless it was changed (RabbitMQ 4; older ones allow more)
    """

    url: str | Secret
    password: Secret | None = None
    ca: str | None = None
    certificate: str | None = None
    declare: Sequence[Exchange | Queue] = ()
    may_declare: bool = True
    heartbeat: int = 30
    connect_seconds: float = 10.0
    confirm_seconds: float = 30.0
    body_bytes: int = 16 * 1024 * 1024
    in_flight: int = 4000

    name = "rabbitmq"
    binding = AMQP

    def __post_init__(self) -> None:
        for what in ("heartbeat", "connect_seconds", "confirm_seconds", "body_bytes", "in_flight"):
            value = getattr(self, what)
            if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                raise InvalidSettings(f"RabbitMQ's setting {what}={value!r} must be a positive number.")
            if isinstance(value, float) and what not in ("connect_seconds", "confirm_seconds"):
                raise InvalidSettings(f"RabbitMQ's setting {what}={value!r} must be a whole number.")
        if self.heartbeat > HEARTBEAT_MAX:
            raise InvalidSettings(
                f"RabbitMQ's setting heartbeat={self.heartbeat!r} must be {HEARTBEAT_MAX} at most."
            )
        if isinstance(self.password, str):
            raise InvalidSettings(
                "RabbitMQ's password is given as a Secret: password=Secret('RABBIT_PASSWORD')."
            )
        if not isinstance(self.url, Secret):
            Address.of(self.url)  # mistakes are reported now, not at the first connection
        Topology(tuple(self.declare))

    def __repr__(self) -> str:
        where = self.url if isinstance(self.url, Secret) else str(Address.of(self.url))
        return f"RabbitMQ({where!r}, password={self.password!r})"

    @property
    def limits(self) -> Limits:
        return Limits(body_bytes=self.body_bytes, in_flight=self.in_flight)

    async def examine(self, addresses: Collection[str], source: Source | None) -> list[Remark]:
        """What is missing or unsafe: the exchanges and queues that this connector declares, and those given."""
        from . import examining
        from .link import ChannelClosed, Link

        link = Link(self, lambda _: None)
        await link.open(Topology())
        try:
            async with asyncio.timeout(EXAMINE_SECONDS):
                return await examining.everything(link, self._things(addresses, source))
        except TimeoutError:
            raise TransportBroken(f"RabbitMQ could not be examined within {EXAMINE_SECONDS:g} s.") from None
        except ChannelClosed as ended:
            raise TransportBroken(f"RabbitMQ could not be examined: {ended.closed.text}.") from None
        finally:
            await link.close()

    def _things(self, addresses: Collection[str], source: Source | None) -> list[Thing]:
        """The exchanges and queues that must exist; those that we declare are created by the first connection."""
        from .examining import Thing

        exchanges = [each.name for each in self.declare if isinstance(each, Exchange)]
        queues = {each.name: each.is_single_active for each in self.declare if isinstance(each, Queue)}
        if source is not None:
            queues[source.queue] = source.ordered
        makes = self.may_declare
        return [
            *(
                Thing("exchange", name, makes and name in exchanges)
                for name in dict.fromkeys([*addresses, *exchanges])
            ),
            *(Thing("queue", name, makes, ordered) for name, ordered in queues.items()),
        ]

    def sender(self, addresses: Collection[str] = ()) -> RabbitSender:
        """For a destination: its exchanges are checked whenever the connection opens."""
        from .sending import RabbitSender

        return RabbitSender(self, Topology(tuple(self.declare), self.may_declare, tuple(addresses)))

    def receiver(self, source: Source) -> RabbitReceiver:
        """For an inbox. Its queue is declared, as `declare` says if it has it, unless nothing may be declared."""
        from .receiving import RabbitReceiver

        return RabbitReceiver(
            self, Topology(tuple(self.declare), self.may_declare).with_source(source), source
        )
