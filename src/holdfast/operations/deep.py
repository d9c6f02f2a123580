"""`holdfast doctor --deep`: reads and checks everything that is stored. It changes nothing.

The engine's own statements cannot cause what it finds. The causes are foreign writes to the tables, data that a disk or
a restore has lost, or a bug.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from ..store.plans import verify
from ..store.plans.verify import Held, Key, Order, Stored
from ..store.statement import Runnable
from .desk import Desk
from .results import Finding

T = TypeVar("T")
PIECES_MAX = 10_000_000
SHOWN = 5

BUG = "Unless you know who wrote to the tables, report it as a bug, with `holdfast messages show ID --json`."
CANCEL = "Retry, cancel or poison each with `holdfast messages`, or correct the row. " + BUG

# Impossible states: the name of the finding, its text, what to do.
MESSAGES = {
    "marked": ("message-marked", "are heads and still have no place in their stream", CANCEL),
    "misplaced": ("message-misplaced", "have a place in an order and no stream or no queue", CANCEL),
    "unplaced": ("message-unplaced", "have no place in their stream and are not heads: no worker claims them", CANCEL),
    "streamless": ("message-streamless", "are in the order of a stream that has no row", "`holdfast repair`. " + BUG),
    "counted": ("message-counter", "have a counter below zero or unknown flags", CANCEL),
    "timed": ("message-time", "have a time that is out of range", CANCEL),
    "keyless": ("message-key", "have a dedupe key that is not held for them: another could be stored with it", BUG),
    "unreadable": (
        "message-unreadable",
        "cannot be read: the body is not JSON, or the headers are not an object of texts, numbers and booleans",
        "A worker makes each a dead letter with reason 5; repair it there (`holdfast dead edit ID`). " + BUG,
    ),
}  # fmt: skip
LEASES = {
    "orphaned": (
        "lease-orphaned",
        "belong to no message",
        "They end by themselves when they lapse, if a worker runs. " + BUG,
    ),
    "headless": ("lease-headless", "are on a message that is not the head of its stream", BUG),
    "fenced": ("lease-epoch", "have another epoch than their message: their workers can settle nothing", BUG),
    "ended": ("lease-run", "cover a run that ends before it begins", BUG),
}


@dataclass(slots=True)
class Seen:
    """How often something was found, and the first examples."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, example: str) -> None:
        self.count += 1
        if self.count <= SHOWN:
            self.examples.append(example)


def examine(desk: Desk) -> Iterator[Finding]:
    """All findings, each kind once, with a few examples."""
    yield from _findings("messages", MESSAGES, _flaws(_pieces(desk, verify.messages)), "message")
    yield from _findings("dead letters", MESSAGES, _flaws(_pieces(desk, verify.letters)), "letter")
    yield from _findings("leases", LEASES, _broken(_pieces(desk, verify.leases)), "lease")
    yield from _streams(_pieces(desk, verify.streams))
    yield from _functions(*desk.ask(verify.functions()))


def _pieces(desk: Desk, read: Callable[[Key], Runnable[tuple[list[T], Key]]]) -> Iterator[T]:
    """All rows of a table, read in parts."""
    after: Key = ()
    for _ in range(PIECES_MAX):
        found, after = desk.ask(read(after))
        if not found:
            return
        yield from found


def _flaws(rows: Iterable[Stored]) -> Iterator[tuple[str, str]]:
    for row in rows:
        flaw = row.flaw or (None if is_readable(row.body, row.headers) else "unreadable")
        if flaw is not None:
            yield flaw, f"{row.id} in {row.queue or 'no queue'} (number {row.number})"


def _broken(rows: Iterable[Held]) -> Iterator[tuple[str, str]]:
    for row in rows:
        if row.flaw is not None:
            where = f"{row.id} in {row.queue}" if row.id is not None else "no message"
            yield row.flaw, f"{where} (number {row.number})"


_HEADERS = msgspec.json.Decoder(dict[str, str | int | float | bool])


def is_readable(body: object, headers: object) -> bool:
    """Whether a worker can read them. Whether the handler can is not checked."""
    if not isinstance(body, str) or not isinstance(headers, str | None):
        return False
    try:
        msgspec.json.decode(body)
        if headers is not None:
            _HEADERS.decode(headers)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return False
    return True


def _findings(
    what: str, kinds: dict[str, tuple[str, str, str]], flaws: Iterable[tuple[str, str]], prefix: str
) -> Iterator[Finding]:
    seen: dict[str, Seen] = {}
    for flaw, example in flaws:
        seen.setdefault(flaw, Seen()).add(example)
    for flaw, found in seen.items():
        name, text, remedy = kinds[flaw]
        yield Finding(
            "error",
            f"{prefix}-{name.partition('-')[2]}",
            f"{found.count} {what} {text}: {_listed(found)}.",
            remedy,
        )


def _listed(found: Seen) -> str:
    more = f" and {found.count - len(found.examples)} more" if found.count > len(found.examples) else ""
    return ", ".join(found.examples) + more


def _streams(rows: Iterable[Order]) -> Iterator[Finding]:
    seen: dict[str, Seen] = {}
    for row in rows:
        for name, text in wrong_with(row):
            seen.setdefault(name, Seen()).add(f"{row.name} of queue {row.queue} {text}")
    remedies = {
        "stranded-stream": "`holdfast repair` makes the first message of one without a head its head. " + BUG,
        "stream-head": "`holdfast repair` puts what stands before the head behind the others. " + BUG,
    }
    for name, found in seen.items():
        yield Finding(
            "error",
            name,
            f"{found.count} streams have wrong counts or places: {_listed(found)}.",
            remedies.get(name, "Pause the queue until the cause is known. " + BUG),
        )


def wrong_with(row: Order) -> Iterator[tuple[str, str]]:
    """Impossible states of a stream: the name of the finding, and its text."""
    if row.open != row.found:
        yield "stream-count", f"counts {row.open} in its order and has {row.found}"
    if row.is_halted and row.head is not None:
        yield "stranded-stream", "has a head, although it is halted"
    elif row.found and not row.is_halted and row.head is None:
        yield "stranded-stream", "has no head, although it is not halted"
    elif row.head is not None and row.head != row.lowest:
        yield "stream-head", f"has a head at place {row.head} and a message before it, at {row.lowest}"
    if row.last is not None and row.highest is not None and row.highest > row.last:
        yield "stream-last", f"says that its last place is {row.last}, and {row.highest} is in it"


def _functions(is_super: bool, open_to_all: list[str]) -> Iterator[Finding]:
    if is_super:
        yield Finding(
            "warning",
            "superuser-functions",
            "Functions for producers run with the rights of their owner, who is a superuser.",
            "Make a role without other rights the owner of the tables and functions: `holdfast grants --owner ROLE`.",
        )
    if open_to_all:
        yield Finding(
            "warning",
            "public-functions",
            f"Every role that may use the schema may call {', '.join(open_to_all[:SHOWN])}.",
            "Run the script of `holdfast grants`.",
        )
