"""Which messages or dead letters a command is about: ids, and filters as groups of options."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from ..errors import UsageError
from . import completing

if TYPE_CHECKING:
    from ..operations import Filter, Operations

WHOLE_MAX = 2**31 - 1  # of a number that is given: columns and JSON hold it

Reveal = Annotated[bool, typer.Option("--reveal", help="Open bodies that are encrypted, with the keys here.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="How many at most.")]
Number = Annotated[
    int | None,
    typer.Option(
        "--number", min=1, max=2**53, help="Which one, if several messages have the id: see `show`."
    ),
]
ID_HELP = "The id of the message: all of it, its last 8 characters, or an unambiguous beginning."
Id = Annotated[str, typer.Argument(metavar="ID", help=ID_HELP, autocompletion=completing.ids)]
Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", help=f"{ID_HELP} Else a filter.", autocompletion=completing.ids),
]
Queue = Annotated[
    str | None,
    typer.Option("--queue", "-q", help="Only in this queue.", autocompletion=completing.queues),
]
QueueName = Annotated[
    str, typer.Argument(metavar="QUEUE", help="The queue.", autocompletion=completing.queues)
]
Type = Annotated[
    str | None, typer.Option("--type", "-t", help="Only of this type.", autocompletion=completing.types)
]
Stream = Annotated[str | None, typer.Option("--stream", "-s", help="Only of this stream.")]
Subject = Annotated[
    str | None,
    typer.Option(
        "--subject", help="Only about this: the whole subject, or its beginning and *: Submission/*"
    ),
]
Reason = Annotated[
    str | None,
    typer.Option(
        "--reason",
        "-r",
        help="Only those whose last failure had this reason: a number or a name.",
        autocompletion=completing.reasons,
    ),
]
All = Annotated[bool, typer.Option("--all", help="Everything, without a filter.")]
Why = Annotated[str | None, typer.Option("--why", help="Kept in the audit.")]

UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
LENGTH = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d)")


class StateName(StrEnum):
    """The states of `holdfast.operations`, which is not imported for `--help`."""

    READY = "ready"
    LEASED = "leased"
    WAITING = "waiting"
    BLOCKED = "blocked"
    SCHEDULED = "scheduled"
    RETRYING = "retrying"
    PARKED = "parked"
    SUSPECT = "suspect"
    UNROUTED = "unrouted"


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Which pending messages; a field that is None does not filter."""

    queue: Queue = None
    type: Type = None
    stream: Stream = None
    state: Annotated[StateName | None, typer.Option("--state", help="Only in this state.")] = None
    reason: Reason = None
    subject: Subject = None

    @property
    def is_more_than_a_queue(self) -> bool:
        return _is_more_than_a_queue(self)

    def made(self) -> Filter:
        from ..operations import Filter

        state = self.state.value if self.state else None
        return Filter(
            self.queue, self.type, self.stream, state, reason_number(self.reason), subject=self.subject
        )


@dataclass(frozen=True, slots=True)
class DeadFilter:
    """Which dead letters; a field that is None does not filter."""

    queue: Queue = None
    type: Type = None
    stream: Stream = None
    subject: Subject = None
    reason: Reason = None
    died_of: Annotated[
        str | None,
        typer.Option(
            "--died-of",
            help="Only with this reason of the death itself, such as poison-message.",
            autocompletion=completing.reasons,
        ),
    ] = None
    fingerprint: Annotated[
        str | None,
        typer.Option("--fingerprint", "-f", help="Only of this cause: see `holdfast dead groups`."),
    ] = None
    before: Annotated[
        str | None,
        typer.Option("--before", help="Only died before: 2026-11-16T12:00Z, or 2h for two hours ago."),
    ] = None
    after: Annotated[str | None, typer.Option("--after", help="Only died after: a moment, or 2h.")] = None
    text: Annotated[str | None, typer.Option("--text", help="Only with this text in one of the errors.")] = (
        None
    )
    redriven: Annotated[
        bool | None,
        typer.Option("--redriven/--not-redriven", help="Only those that were redriven before, or not."),
    ] = None
    held: Annotated[
        bool | None, typer.Option("--held/--not-held", help="Only those that are held, or not.")
    ] = None

    @property
    def is_more_than_a_queue(self) -> bool:
        return _is_more_than_a_queue(self)

    def made(self, ids: Sequence[UUID] | None = None) -> Filter:
        from ..operations import Filter

        return Filter(
            queue=self.queue,
            type=self.type,
            stream=self.stream,
            subject=self.subject,
            reason=reason_number(self.reason),
            died_of=reason_number(self.died_of),
            fingerprint=self.fingerprint,
            died_before=moment(self.before, "--before"),
            died_after=moment(self.after, "--after"),
            text=self.text,
            redriven=self.redriven,
            held=self.held,
            ids=tuple(ids) if ids else None,
        )


def _is_more_than_a_queue(filter: MessageFilter | DeadFilter) -> bool:
    """A queue goes with an ID; anything else is a filter."""
    return any(getattr(filter, each.name) is not None for each in fields(filter) if each.name != "queue")


def meant(found: Operations, id: str) -> UUID:
    """The message that an id names, given whole or in part."""
    return found.messages.named(id)


def reason_number(text: str | None) -> int | None:
    """1 or transport-unavailable."""
    if text is None:
        return None
    from ..model.message import Reason

    try:
        return Reason(int(text)) if text.isdecimal() else Reason[text.upper().replace("-", "_")]
    except (KeyError, ValueError):
        names = ", ".join(each.name.lower().replace("_", "-") for each in Reason)
        raise UsageError(f"There is no reason {text!r}; there are: {names}.") from None


def seconds(text: str) -> float:
    """`90`, `90s`, `10m`, `10min`, `2h` or `7d`."""
    match = LENGTH.fullmatch(text if not text.replace(".", "", 1).isdigit() else f"{text}s")
    if match is None:
        raise UsageError(f"{text!r} is not a length of time: write 90s, 10m, 2h or 7d.")
    return float(match[1]) * UNITS[match[2]]


def moment(text: str | None, option: str) -> datetime | None:
    """An instant, given as one or as a time before now."""
    if text is None:
        return None
    from datetime import UTC, timedelta

    from ..clock import wall_clock

    try:
        if LENGTH.fullmatch(text.strip()):
            return wall_clock() - timedelta(seconds=seconds(text.strip()))
        found = datetime.fromisoformat(text)
    except (ValueError, OverflowError):  # also a length that ends before the year 1
        raise UsageError(
            f"{option} {text!r} is not a moment: write 2026-11-16T12:00Z, or 2h for two hours ago."
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
