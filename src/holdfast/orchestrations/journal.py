"""The journal of an instance as values: what reached its code, and what the code asked for because of it.

A row is what one turn (or one part of it) adds, with the key (id, execution, turn, part). It holds entries: one arrival
each, and the commands that the code asked for until it waited again. Where rows begin and end means nothing to replay:
only the order of the entries does. Commands hold a fingerprint of their input and not the input, which is in the
message that carries it.

The JSON is compact: arrivals and commands are lists that begin with their kind. New fields come last, with a default.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any
from uuid import UUID, uuid5

import msgspec

from ..bodies.checking import represent
from ..errors import HoldfastError
from ..model.ids import Namespace
from .failures import Failure

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
FORMAT = 1
NAMESPACE = UUID("8c6e1f0a-5d0b-5a38-9f6b-6f0f6a7f2f16")
_IDS = Namespace(NAMESPACE)


class JournalUnreadable(HoldfastError):
    """A stored journal row cannot be read. The instance must end as poison, or wait for the release that wrote it."""


# --- What reaches the code ----------------------------------------------------------------------------------


class Carried(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A signal that nobody had taken when its execution ended: the next one gets it."""

    name: str
    body: str | None


class Started(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="started"):
    """The instance begins. Times are microseconds since 1970; `input` and all other bodies are JSON text.

    `seed` is what uuid(), random and jitter are drawn from. It stays the same when a journal is rewound.
    """

    message: str
    at: int
    input: str | None
    seed: str
    parent: str | None = None
    deadline: int | None = None
    carried: tuple[Carried, ...] = ()
    attributes: dict[str, str] | None = None


class Begun(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="begun"):
    """The start that row 0 of this execution holds (continue-as-new) was played."""

    message: str
    at: int


class Answered(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="answered"):
    """An activity or a child ended: `value` is its result; with `failure` it ended badly.

    `message` is empty for an inline activity, whose answer came in no message.
    """

    message: str
    at: int
    execution: int
    number: int
    value: str | None = None
    failure: Failure | None = None


class Fired(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="fired"):
    """A timer is due."""

    message: str
    at: int
    execution: int
    number: int


class Signalled(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="signalled"):
    """Somebody outside sent a signal."""

    message: str
    at: int
    name: str
    body: str | None = None


class Cancelled(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="cancelled"):
    """Somebody outside wants the instance to end."""

    message: str
    at: int
    why: str = ""


class Woken(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="woken"):
    """Nothing but a reason to run: the message that follows a continue-as-new. It is ended and leaves no entry."""

    message: str
    at: int


Arrival = Started | Begun | Answered | Fired | Signalled | Cancelled | Woken

# --- What the code asks for ---------------------------------------------------------------------------------


class Call(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="call"):
    """Run an activity."""

    name: str
    fingerprint: str


class Inline(Call, frozen=True, array_like=True, gc=False, tag="inline"):
    """Run an activity inside the turn: no message carries it. It stays inline, whatever the code says later."""


class Timer(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="timer"):
    """Wake me at this time."""

    due: int


class Child(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="child"):
    """Start an orchestration and wait for its result."""

    name: str
    id: str
    fingerprint: str


class Start(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="start"):
    """Start an orchestration and forget about it."""

    name: str
    id: str
    fingerprint: str


class Once(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="once"):
    """The result of a side effect that replay must not repeat."""

    name: str
    value: str | None = None
    failure: Failure | None = None


class Patched(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="patched"):
    """This instance runs the new side of a change."""

    name: str


class Withdraw(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="withdraw"):
    """The call, child or timer of this number is not waited for any more."""

    number: int


class Complete(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="complete"):
    """The function returned."""

    fingerprint: str


class Fail(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="fail"):
    """An exception left the function."""

    failure: Failure


class Cancel(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="cancel"):
    """The function ended because it was cancelled."""


class Again(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="again"):
    """Continue as new: this execution ends, the next one begins with a new input and an empty journal."""

    fingerprint: str


Numbered = Call | Inline | Timer | Child | Start | Once | Patched
Ending = Complete | Fail | Cancel | Again
Command = Numbered | Withdraw | Ending

# --- Rows ---------------------------------------------------------------------------------------------------


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One arrival, and what the code asked for until it waited again."""

    arrival: Arrival
    asked: tuple[Command, ...] = ()


class Tried(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An inline activity that has failed and is tried again: how often it has, and when; None: now."""

    number: int
    attempts: int
    due: int | None = None

    def message_id(self, instance: str, execution: int) -> UUID:
        """The id of the message that wakes the instance for the next attempt."""
        return uuid5(message_id(instance, execution, self.number), f"again/{self.due}")


class Poisoned(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The turn with this message could not be run, and the instance failed. It adds nothing to what replay sees.

    `started`: the instance had not started before; this is what would have started it.
    """

    message: str
    at: int
    failure: Failure
    started: Started | None = None


class Rewound(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The rows up to this one are copied from an earlier execution.

    The first turn behind them asks again for what is open, and these arrivals reach the code again.
    """

    execution: int
    arrivals: tuple[Arrival, ...] = ()


class _Body(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    format: int
    python: str
    at: int
    entries: tuple[Entry, ...] = ()
    late: tuple[str, ...] = ()
    begin: Started | None = None
    final: bool = True
    poison: Poisoned | None = None
    tried: tuple[Tried, ...] = ()
    rewound: Rewound | None = None


class Row(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One row of the journal. `turn` counts from 1; row 0 holds the start of an execution after continue-as-new.

    `late` names messages that were ended without reaching the code. `final` is False for a part of a turn that goes
    on: the messages of its run are not settled yet, and a run handed out again goes on with the next part. What the
    code asked for in such parts is sent with the turn's settlement. `tried`: inline activities that have failed so far.
    """

    id: str
    execution: int
    turn: int
    part: int = 0
    at: int
    entries: tuple[Entry, ...] = ()
    late: tuple[str, ...] = ()
    begin: Started | None = None
    final: bool = True
    python: str = PYTHON
    poison: Poisoned | None = None
    tried: tuple[Tried, ...] = ()
    rewound: Rewound | None = None

    @property
    def settles(self) -> bool:
        """Whether its turn's settlement was stored with it: what the code asked for until then is sent."""
        return self.final and self.poison is None

    @property
    def key(self) -> tuple[str, int, int, int]:
        return self.id, self.execution, self.turn, self.part

    @property
    def consumed(self) -> tuple[str, ...]:
        """The messages that this row ends."""
        return (*[each.arrival.message for each in self.entries if each.arrival.message], *self.late)


_WRITER = msgspec.json.Encoder()
_READER = msgspec.json.Decoder(_Body)
# Fields, keys and sets are sorted: the fingerprint depends neither on the process nor on the order of declaration.
_STABLE = msgspec.json.Encoder(enc_hook=represent, order="sorted")


def encode(row: Row) -> str:
    """The row without its key, as JSON text."""
    body = _Body(
        FORMAT,
        row.python,
        row.at,
        row.entries,
        row.late,
        row.begin,
        row.final,
        row.poison,
        row.tried,
        row.rewound,
    )
    return _WRITER.encode(body).decode()


def decode(id: str, execution: int, turn: int, part: int, text: str | bytes) -> Row:
    """The reverse, or JournalUnreadable."""
    try:
        body = _READER.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise JournalUnreadable(
            f"The journal of instance {id!r} cannot be read: execution {execution}, turn {turn}, part {part} is not a "
            f"row of format {FORMAT} ({type(error).__name__}). Run the release that wrote it, or "
            "terminate the instance."
        ) from error
    if body.format != FORMAT:
        raise JournalUnreadable(
            f"The journal of instance {id!r} has format {body.format}, and this release reads {FORMAT}: "
            "run the release that wrote it."
        )
    return Row(
        id=id, execution=execution, turn=turn, part=part, at=body.at, entries=body.entries, late=body.late,
        begin=body.begin, final=body.final, python=body.python, poison=body.poison, tried=body.tried,
        rewound=body.rewound,
    )  # fmt: skip


def merged(rows: Iterable[Row]) -> tuple[Entry, ...]:
    """The entries of rows in their order: two journals that are equal here are equal to any code."""
    return tuple(entry for row in rows for entry in row.entries)


def fingerprint(value: Any) -> str:
    """Sixteen hexadecimal digits that differ if the value differs, and not from process to process."""
    return fingerprint_and_size(value)[0]


def fingerprint_and_size(value: Any) -> tuple[str, int]:
    """The fingerprint of a value, and how many bytes it has."""
    if value is None:
        return "", 0
    encoded = _STABLE.encode(value)
    return blake2b(encoded, digest_size=8).hexdigest(), len(encoded)


def message_id(instance: str, execution: int, number: int) -> UUID:
    """The id of the message of a command: the same however often the turn is run."""
    return _IDS.id(f"{execution}/{number}/{instance}")
