"""What a turn gives back: values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

import msgspec

from .failures import Failure
from .host import NO_OPTIONS, Options
from .journal import Arrival, Call, Child, Inline, Numbered, Row, Start, Timer, Tried, message_id

SENT = (Call, Timer, Child, Start)


class Ask(msgspec.Struct, frozen=True, gc=False):
    """A command with what the journal does not hold: its input (JSON text) and how to carry it out."""

    number: int
    command: Numbered
    input: str | None = None
    options: Options = NO_OPTIONS

    def message_id(self, instance: str, execution: int) -> UUID:
        """The id of the message that carries it: the same however often the turn is run."""
        return message_id(instance, execution, self.number)

    @property
    def is_sent(self) -> bool:
        """Whether a message must be stored for it; flow.once and flow.patched are only recorded."""
        return isinstance(self.command, SENT) and not self.is_inline

    @property
    def is_inline(self) -> bool:
        return isinstance(self.command, Inline)


@dataclass(frozen=True, slots=True)
class End:
    """How an execution ended. `begin`: row 0 of the next one, to be stored with it (continue-as-new)."""

    state: Literal["completed", "failed", "cancelled", "continued"]
    result: str | None = None
    failure: Failure | None = None
    begin: Row | None = None


class Turn(msgspec.Struct, frozen=True, gc=False):
    """What one turn leaves behind. All of it is stored in one commit, fenced by (execution, turn), or none of it."""

    row: Row
    text: str  # the row as it is stored
    asks: tuple[Ask, ...]  # messages to store; what the same turn withdrew is not among them
    withdrawn: tuple[Ask, ...]  # earlier commands whose messages are to be cancelled
    end: End | None = None
    status: str | None = None  # JSON; None: not set in this turn
    attributes: str | None = None  # the same
    unread: tuple[Arrival, ...] = ()  # behind a continue-as-new: for the next execution
    duplicates: tuple[str, ...] = ()  # messages that an earlier row had consumed: end them
    entries: int = 0  # of the execution so far
    size: int = 0  # bytes of its journal so far
    used_once: bool = False  # a side effect was run: this turn must not be run on a guess
    swallowed: int = 0  # cancellations that the code caught and did not follow, so far
    parked: tuple[Tried, ...] = ()  # inline activities that wait for their next attempt since this turn
    unparked: tuple[UUID, ...] = ()  # messages of attempts that are not waited for any more
    goes_on: bool = False  # inline activities are left to run: the instance must be woken


@dataclass(frozen=True, slots=True)
class Overrun:
    """The turn was stopped: its code ran too long or in circles. Nothing of it may be stored; the attempt counts."""

    why: str


@dataclass(frozen=True, slots=True)
class Waits:
    """What an instance waits for, for people."""

    asks: tuple[Ask, ...]
    signals: tuple[str, ...]
