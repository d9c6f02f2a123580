"""Exchanges, queues and bindings as values, and the calls that declare or check them.

Queues are quorum queues unless asked otherwise. RabbitMQ 4 drops a message after 20 deliveries by default; a receiver
that is restarted often would lose messages in this way, so queues that we declare have no such limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ...errors import InvalidSettings
from ..contract import Source
from ..templates import harm


@dataclass(frozen=True, slots=True)
class Exchange:
    """An exchange, durable."""

    name: str
    kind: Literal["topic", "direct", "fanout", "headers"] = "topic"
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Where a queue puts what was rejected or has expired: an exchange (direct) and a queue, both declared with it."""

    exchange: str
    queue: str
    key: str | None = None  # default: the queue's name

    @property
    def routing_key(self) -> str:
        return self.queue if self.key is None else self.key


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue, durable, with what is bound to it."""

    name: str
    bind: Mapping[str, Sequence[str]] = field(default_factory=dict)  # exchange to routing keys
    kind: Literal["quorum", "classic"] = "quorum"
    dead_letters: DeadLetters | None = None
    is_single_active: bool = False  # one consumer at a time, so that order is kept
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of AMQP: the channel's method by name and its arguments, and what it is about, for errors."""

    method: str
    arguments: Mapping[str, Any]
    about: str
    may_exist_otherwise: bool = False  # an existing queue with another delivery limit is accepted


@dataclass(frozen=True, slots=True)
class Topology:
    """The exchanges and queues that must exist before anything is sent or received."""

    things: tuple[Exchange | Queue, ...] = ()
    may_declare: bool = True
    checked: tuple[str, ...] = ()  # further exchanges, which must exist

    def __post_init__(self) -> None:
        names: set[tuple[type, str]] = set()
        for each in self.things:
            if not isinstance(each, Exchange | Queue):
                raise InvalidSettings(
                    f"RabbitMQ declares exchanges and queues, and not a {type(each).__name__}."
                )
            if trouble := harm(each.name):
                raise InvalidSettings(
                    f"The {type(each).__name__.lower()} {each.name!r} cannot be used: {trouble}."
                )
            if (type(each), each.name) in names:
                raise InvalidSettings(f"The {type(each).__name__.lower()} {each.name!r} is declared twice.")
            names.add((type(each), each.name))
            if isinstance(each, Queue):
                for keys in each.bind.values():
                    if isinstance(keys, str):
                        raise InvalidSettings(
                            f"The queue {each.name!r} is bound by {keys!r}: give a list of routing keys."
                        )

    def with_source(self, source: Source) -> Topology:
        """With the queue that an inbox reads. One that is among ours stays as it is, and gets its bindings as well."""
        for place, each in enumerate(self.things):
            if isinstance(each, Queue) and each.name == source.queue:
                bound = replace(each, bind=_together(each.bind, source.bind))
                return replace(self, things=(*self.things[:place], bound, *self.things[place + 1 :]))
        queue = Queue(source.queue, dict(source.bind), is_single_active=source.ordered)
        return replace(self, things=(*self.things, queue))

    def calls(self, server: tuple[int, ...]) -> Iterator[Call]:
        """In the order in which they must be made. `server` is the broker's version."""
        exchanges = [each for each in self.things if isinstance(each, Exchange)]
        queues = [each for each in self.things if isinstance(each, Queue)]
        for exchange in exchanges:
            yield self._exchange(exchange)
        for queue in queues:
            if queue.dead_letters is not None:
                yield from self._dead_letters(
                    queue, queue.dead_letters, {each.name for each in exchanges}, server
                )
        declared = {each.name for each in exchanges}
        for name in self.checked:
            if name and name not in declared:  # "" is the default exchange, which is always there
                yield Call("exchange_declare", {"exchange": name, "passive": True}, f"exchange {name!r}")
        for queue in queues:
            yield self._queue(queue, server)
            if self.may_declare:
                yield from _bindings(queue.name, queue.bind)

    def _exchange(self, exchange: Exchange) -> Call:
        about = f"exchange {exchange.name!r}"
        if not self.may_declare:
            return Call("exchange_declare", {"exchange": exchange.name, "passive": True}, about)
        return Call(
            "exchange_declare",
            {
                "exchange": exchange.name,
                "exchange_type": exchange.kind,
                "durable": True,
                "arguments": dict(exchange.arguments),
            },
            about,
        )

    def _queue(self, queue: Queue, server: tuple[int, ...]) -> Call:
        about = f"queue {queue.name!r}"
        if not self.may_declare:
            return Call("queue_declare", {"queue": queue.name, "passive": True}, about)
        arguments: dict[str, Any] = {"x-queue-type": queue.kind}
        if queue.kind == "quorum" and server >= (4,):  # before, there is no limit, and -1 is refused
            arguments["x-delivery-limit"] = -1
        if queue.is_single_active:
            arguments["x-single-active-consumer"] = True
        if queue.dead_letters is not None:
            arguments["x-dead-letter-exchange"] = queue.dead_letters.exchange
            arguments["x-dead-letter-routing-key"] = queue.dead_letters.routing_key
        arguments |= queue.arguments
        call = {"queue": queue.name, "durable": True, "arguments": arguments}
        return Call(
            "queue_declare", call, about, may_exist_otherwise="x-delivery-limit" not in queue.arguments
        )

    def _dead_letters(
        self, queue: Queue, dead: DeadLetters, declared: set[str], server: tuple[int, ...]
    ) -> Iterator[Call]:
        if dead.exchange not in declared:
            yield self._exchange(Exchange(dead.exchange, "direct"))
        if not any(isinstance(each, Queue) and each.name == dead.queue for each in self.things):
            yield self._queue(Queue(dead.queue, kind=queue.kind), server)
            if self.may_declare:
                yield from _bindings(dead.queue, {dead.exchange: [dead.routing_key]})


def _together(
    one: Mapping[str, Sequence[str]], other: Mapping[str, Sequence[str]]
) -> dict[str, Sequence[str]]:
    """Bindings of both, each once."""
    return {
        exchange: tuple(dict.fromkeys([*one.get(exchange, ()), *other.get(exchange, ())]))
        for exchange in dict.fromkeys([*one, *other])
    }


def _bindings(queue: str, bind: Mapping[str, Sequence[str]]) -> Iterator[Call]:
    for exchange, keys in bind.items():
        for key in keys:
            call = {"queue": queue, "exchange": exchange, "routing_key": key}
            yield Call("queue_bind", call, f"binding of queue {queue!r} to exchange {exchange!r}")
