"""A failure of a message as a value: its category, whether a retry can help, and the message itself.

It is used where a person or a program must decide: dead letters shown as JSON, hooks on a death, callers of
orchestrations. Its text is one line and never contains a payload; `message` contains everything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec

from ..errors import InvalidMessage, PoisonedActivity, PoisonedTurn, PoisonError
from .message import Message, Reason
from .text import counted


class Category(StrEnum):
    """Who must deal with a failure."""

    INFRASTRUCTURE = "infrastructure"  # a network, a dependency, a process that vanished
    CONFIGURATION = "configuration"  # something is missing or wrong in how the system is set up
    APPLICATION = "application"  # the handler or the message
    POISON = "poison"  # handed out as often as allowed without ever being handled


CATEGORIES = {
    Reason.TRANSPORT_UNAVAILABLE: Category.INFRASTRUCTURE,
    Reason.TIMEOUT_EXCEEDED: Category.INFRASTRUCTURE,
    Reason.DEPENDENCY_FAILURE: Category.INFRASTRUCTURE,
    Reason.WORKER_VANISHED: Category.INFRASTRUCTURE,
    Reason.NO_HANDLER: Category.CONFIGURATION,
    Reason.POISON_MESSAGE: Category.POISON,
}
NEVER_RETRYABLE = (Category.CONFIGURATION, Category.POISON)
PERMANENT = frozenset(  # a retry is useless, unless a retry policy says otherwise
    {
        Reason.VALIDATION_FAILURE,
        Reason.SERIALIZATION_ERROR,
        Reason.NO_HANDLER,
        Reason.CANCELLED,
        Reason.PAYLOAD_TOO_LARGE,
        Reason.ID_TAKEN,
    }
)


STARTS_SPENT = "Poison: handed out"  # the beginning of the error of a message that was handed out too often


class FailureDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A failure with all that is known. `message` is the whole message as JSON; `max_attempts` None: not known here.

    `message_type` is the type of a plain message; turns of orchestrations and activities have values of their own.
    """

    category: Category
    retryable: bool
    reason: Reason
    attempt_count: int
    max_attempts: int | None
    message_type: str | PoisonedTurn | PoisonedActivity
    message_id: str
    queue: str
    message: str
    last_reason: Reason | None = None

    def __post_init__(self) -> None:
        if self.retryable and self.category in NEVER_RETRYABLE:
            raise InvalidMessage(f"A failure of category {self.category} is never worth another try.")

    def __str__(self) -> str:
        """One line about it: names, ids and counts, no payload and no text of an exception."""
        tried = counted(self.attempt_count, "attempt")
        if self.max_attempts is not None:  # it may have been handed out once more, to be given up
            tried = f"{min(self.attempt_count, self.max_attempts)} of {counted(self.max_attempts, 'attempt')}"
        last = self.last_reason
        cause = "" if last in (None, self.reason) else f", the last time {_words(last)}"
        return (
            f"{self.category}: message {self.message_id} of type {self.message_type} in queue {self.queue} failed: "
            f"{_words(self.reason)}{cause}; {tried}."
        )

    @property
    def error(self) -> PoisonError | None:
        """The exception for a caller that waits for this message; None: it is not poison."""
        if self.category is not Category.POISON:
            return None
        return PoisonError(
            attempt_count=self.attempt_count,
            max_attempts=self.max_attempts,
            message_type=self.message_type,
            message_id=self.message_id,
            message=self.message,
        )

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> FailureDescription:
        return msgspec.json.decode(text, type=cls)


def of_letter(
    *,
    reason: Reason,
    last_reason: Reason | None,
    error: str | None,
    attempts: int,
    type: str,
    id: UUID,
    queue: str,
    message: Mapping[str, Any],
) -> FailureDescription:
    """The failure of a dead letter, wherever it is stored. `message` becomes JSON."""
    allowed = None
    # By a failure of the last start, or noticed at the hand-over after it.
    if reason is Reason.POISON_MESSAGE:
        allowed = attempts - (error or "").startswith(STARTS_SPENT)
    return FailureDescription(
        category=category_of(reason),
        retryable=is_retryable(reason),
        reason=reason,
        last_reason=last_reason,
        attempt_count=attempts,
        max_attempts=allowed,
        message_type=type,
        message_id=str(id),
        queue=queue,
        message=msgspec.json.encode(message).decode(),
    )


def category_of(reason: Reason) -> Category:
    """The category of a reason. One that is not listed belongs to the handler or the message."""
    return CATEGORIES.get(reason, Category.APPLICATION)


def is_retryable(reason: Reason) -> bool:
    """Whether a failure for this reason may pass by itself."""
    return category_of(reason) not in NEVER_RETRYABLE and reason not in PERMANENT


def serialized(message: Message) -> str:
    """The whole message as JSON text."""
    fields = msgspec.structs.asdict(message)
    for name, at in (("created", "created_at"), ("due", "due_at"), ("deadline", "deadline")):
        del fields[f"{name}_raw"]
        fields[at] = getattr(message, at)
    return json.dumps(fields, default=_plain)


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _words(reason: Reason | None) -> str:
    return "" if reason is None else reason.name.lower().replace("_", " ")
