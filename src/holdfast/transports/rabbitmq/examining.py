"""Reads the settings of a RabbitMQ's exchanges and queues over AMQP, and reports unsafe ones. Nothing is changed.

AMQP cannot read the settings of a queue. But if a client declares an existing queue with other settings, it is refused,
and the refusal names the first setting that differs and its value. So a queue is declared again and again, each time
with the values learned so far, and always with one value that RabbitMQ accepts for no new queue, so none can be
created. Policies cannot be seen in this way, nor what is bound to an exchange.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ...telemetry.logs import silent
from ..contract import Remark
from .link import ChannelClosed, Link

# Settings of queues with a value that no queue can have.
IMPOSSIBLE: Mapping[str, object] = {
    "x-expires": 0,
    "x-message-ttl": -1,
    "x-max-length": -1,
    "x-max-length-bytes": -1,
    "x-overflow": 7,
    "x-dead-letter-exchange": 7,
    "x-dead-letter-routing-key": 7,
    "x-delivery-limit": "none",
    "x-single-active-consumer": 7,
    "x-queue-type": 7,
}
TEXTS = {"x-queue-type", "x-overflow", "x-dead-letter-exchange", "x-dead-letter-routing-key"}
TRIES = 40
DIFFERS = re.compile(
    r"inequivalent arg '([\w-]+)'.*? current is (?:the value )?(?:'(.*?)'(?: of type '\w+')?|none)$"
)
DEFAULT_LIMIT = 20  # deliveries, of quorum queues of RabbitMQ 4


@dataclass(frozen=True, slots=True)
class SeenQueue:
    """A queue that exists: its settings, if they could be learned."""

    name: str
    durable: bool = True
    auto_delete: bool = False
    arguments: Mapping[str, object] = field(default_factory=dict)
    is_whole: bool = True  # False: the broker did not report all (no permission, an exclusive queue)

    @property
    def kind(self) -> str:
        return str(self.arguments.get("x-queue-type") or "classic")

    @property
    def dead_letters(self) -> str | None:
        found = self.arguments.get("x-dead-letter-exchange")
        return None if found is None else str(found)


def queue_remarks(seen: SeenQueue, server: tuple[int, ...], *, ordered: bool = False) -> Iterator[Remark]:
    """What is unsafe about a queue. `server` is the broker's version, `ordered`: an inbox keeps an order by it."""
    name = f"Queue {seen.name!r}"
    if not seen.durable:
        yield Remark(
            "warning",
            "queue-not-durable",
            f"{name} is not durable: a restart of the broker loses it and its messages.",
            "Delete it and declare it again as a durable quorum queue.",
        )
    elif seen.is_whole and seen.kind == "classic":
        yield Remark(
            "note",
            "classic-queue",
            f"{name} is a classic queue: it is on one node, and lost with that node's disk.",
            "A quorum queue is on several nodes: x-queue-type=quorum.",
        )
    if seen.auto_delete or "x-expires" in seen.arguments:
        yield Remark(
            "warning",
            "queue-goes-away",
            f"{name} is deleted with its messages when nobody reads it for a while.",
            "Declare it again without auto-delete and x-expires.",
        )
    if ordered and seen.is_whole and not seen.arguments.get("x-single-active-consumer"):
        yield Remark(
            "warning",
            "several-consumers",
            f"{name} lets several consumers read at once, and its inbox keeps an order.",
            "Declare it again with x-single-active-consumer, or run one worker process for it.",
        )
    yield from _drops(seen, server)


def _drops(seen: SeenQueue, server: tuple[int, ...]) -> Iterator[Remark]:
    """Ways in which a queue gives messages up. With a dead letter exchange they go there."""
    name, arguments = f"Queue {seen.name!r}", seen.arguments
    ways = []
    if "x-message-ttl" in arguments:
        ways.append(f"after {arguments['x-message-ttl']} ms")
    limited = [each for each in ("x-max-length", "x-max-length-bytes") if each in arguments]
    if limited and arguments.get("x-overflow", "drop-head") == "drop-head":
        ways.append(f"the oldest beyond {' and '.join(f'{each}={arguments[each]}' for each in limited)}")
    limit = arguments.get("x-delivery-limit")
    if seen.kind == "quorum" and seen.is_whole:
        if limit is None and server >= (4,):
            limit = DEFAULT_LIMIT
        if isinstance(limit, int) and limit >= 0:
            ways.append(f"after {limit} deliveries that were not acknowledged")
    if ways and seen.dead_letters is None:
        yield Remark(
            "warning",
            "queue-drops",
            f"{name} drops messages: {', '.join(ways)}; it has no dead letter exchange.",
            "Take the limit off (x-delivery-limit=-1), or give it a dead letter exchange and a queue with an "
            "inbox (dead_letters=True).",
        )
    elif seen.dead_letters is None and seen.is_whole:
        yield Remark(
            "note",
            "no-dead-letters",
            f"{name} has no dead letter exchange: what it gives up is gone.",
            "Queue(..., dead_letters=DeadLetters(exchange, queue)) declares one.",
        )


# --- Looking --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Thing:
    """An exchange or a queue to check. `is_made`: created by us, with the first connection of a worker."""

    kind: Literal["exchange", "queue"]
    name: str
    is_made: bool = False
    ordered: bool = False


async def everything(link: Link, things: Sequence[Thing]) -> list[Remark]:
    """What is missing or unsafe."""
    found: list[Remark] = []
    for each in things:
        if not each.name:  # the default exchange, which is always there
            continue
        if not await _is_there(link, f"{each.kind}_declare", **{each.kind: each.name}):
            found.append(_missing(each))
        elif each.kind == "exchange":
            found += await exchange(link, each.name)
        else:
            found += await queue(link, each.name, ordered=each.ordered)
    return found


def _missing(each: Thing) -> Remark:
    if each.is_made:
        return Remark(
            "note",
            f"{each.kind}-not-yet",
            f"There is no {each.kind} {each.name!r} yet.",
            "The first worker that connects declares it.",
        )
    return Remark(
        "error",
        f"{each.kind}-missing",
        f"There is no {each.kind} {each.name!r}.",
        "Create it, or let it be declared: RabbitMQ(..., declare=[...]).",
    )


async def exchange(link: Link, name: str) -> list[Remark]:
    """What is unsafe about an exchange that exists."""
    # The argument is of a type that no exchange can have, so this can create none.
    wrong = {"exchange": name, "durable": True, "arguments": {"alternate-exchange": 7}}
    differs = "type"
    for kind in ("direct", "topic", "fanout", "headers"):
        if differs == "type":
            said = await _refusal(link, "exchange_declare", **wrong, exchange_type=kind)
            found = None if said is None else DIFFERS.search(said)
            differs = "" if found is None else found[1]
    if differs == "durable":
        return [
            Remark(
                "warning",
                "exchange-not-durable",
                f"Exchange {name!r} is not durable: a restart of the broker loses it with its bindings.",
                "Delete it and declare it again, durable.",
            )
        ]
    return []


async def queue(link: Link, name: str, *, ordered: bool = False) -> list[Remark]:
    """What is unsafe about a queue that exists."""
    seen = await look_at(link, name)
    found = list(queue_remarks(seen, link.server, ordered=ordered))
    if not seen.is_whole:
        found.append(
            Remark(
                "note",
                "queue-unseen",
                f"The settings of queue {name!r} could not all be seen.",
                "Its user needs the permission to configure it; an exclusive queue shows them to no other connection.",
            )
        )
    if (dead := seen.dead_letters) and not await _is_there(link, "exchange_declare", exchange=dead):
        found.append(
            Remark(
                "error",
                "dead-letters-missing",
                f"The dead letter exchange {dead!r} of queue {name!r} does "
                "not exist: what the queue gives up is lost.",
                "Create it, with a queue bound to it.",
            )
        )
    return found


async def look_at(link: Link, name: str) -> SeenQueue:
    """The settings of a queue that exists."""
    flags: dict[str, Any] = {"durable": True, "auto_delete": False}
    learned: dict[str, object] = {}
    is_whole = True
    for wrong, value in IMPOSSIBLE.items():
        for _ in range(TRIES):
            arguments = {**learned, wrong: value}
            said = await _refusal(link, "queue_declare", queue=name, **flags, arguments=arguments)
            found = None if said is None else DIFFERS.search(said)
            if found is None:
                is_whole = is_whole and (said is None or "invalid arg" in said)
                break
            what, text = found.groups()
            if what in flags:
                flags[what] = text == "true"
            elif text is None:
                learned.pop(what, None)
            else:
                learned[what] = text if what in TEXTS else _typed(text)
            if what == wrong:
                break
        else:
            is_whole = False
    return SeenQueue(name, flags["durable"], flags["auto_delete"], learned, is_whole)


def _typed(text: str) -> object:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if re.fullmatch(r"-?\d+", text) else text


async def _is_there(link: Link, method: str, **named: str) -> bool:
    said = await _refusal(link, method, passive=True, **named)
    return said is None or "NOT_FOUND" not in said


async def _refusal(link: Link, method: str, **arguments: Any) -> str | None:
    """The broker's objection; None: there is none. A refusal closes the channel, so each call has its own."""
    with silent("pika.channel"):
        channel = await link.channel()
        try:
            await link.call(channel, method, **arguments)
        except ChannelClosed as ended:
            if ended.closed.code == 0:
                raise
            return ended.closed.text
        await link.close_channel(channel)
        return None
