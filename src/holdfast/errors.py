"""Every exception that Holdfast raises, as a tree.

HoldfastError
├── UsageError               the call is wrong; nothing was stored
│   ├── InvalidMessage       a type, body, header, stream or key that cannot be stored exactly
│   ├── NotInTransaction     a publish on a connection that has no open transaction
│   ├── WrongHandle          a handle this call cannot use (async given to sync, unknown kind)
│   ├── CommitRefused        a commit or rollback inside ctx.transaction(), where only the engine commits
│   ├── InstanceExists       an orchestration's instance with this id was started before
│   └── InvalidSettings      a URL, policy or setting that cannot work
├── NotMigrated              the database has no tables of ours, or those of another version; a migration was refused
├── StoreUnavailable         the database did not answer, or refuses for the moment; the call may be repeated
│   └── StoreTooSlow         a statement took longer than allowed; a smaller one may succeed
├── BodySealed               a stored body is encrypted, and the keys here do not open it
├── LeaseLost                another worker holds the message now; roll back what you did
├── VersionConflict          the event stream is not at the version you expected
├── IdTaken                  another message has the id that was given, in the same queue
├── Refused                  an operator's command that would break a guarantee, with the reason
├── NotFound                 no such message, queue or stream
├── NotEnded                 an orchestration's instance has not ended within the time that was given; a TimeoutError
├── ArchiveFailed            an archive cannot be written or read, or is incomplete; nothing was deleted
├── CircuitOpen              a breaker refused the call; nothing was called
├── CallFailed               a call of an orchestration failed; in holdfast.orchestrations, like those below
│   ├── ActivityFailed       an activity failed for good
│   └── OrchestrationFailed  an orchestration failed or was cancelled
├── UndoFailed               some of what a saga had to undo could not be undone
├── JournalUnreadable        a row of an orchestration's journal cannot be read
├── TurnOverrun              a turn of an orchestration ran too long or in an endless loop
└── PoisonError              a message that cannot be handled: attempts spent or vanished alone

`category` and `retryable` say what a caller may do about it; the one-line text of an error
never contains a payload.
"""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

import msgspec


class HoldfastError(Exception):
    """Something in Holdfast went wrong. `details`: lines after its text, such as the candidates for an id."""

    details: tuple[str, ...] = ()
    category: ClassVar[str] = "infrastructure"
    retryable: bool = False

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


class UsageError(HoldfastError):
    """The call is wrong; nothing was stored."""

    category = "configuration"


class InvalidMessage(UsageError):
    """The message cannot be stored exactly as given."""


class InstanceExists(UsageError):
    """An orchestration's instance with this id was started before; nothing was stored."""


class NotInTransaction(UsageError):
    """The connection has no open transaction, so the message would not be stored with your own writes."""


class WrongHandle(UsageError):
    """This call cannot use that connection or session."""


class CommitRefused(UsageError):
    """Inside ctx.transaction() only the engine commits; nothing in the block is stored.

    `during` is your exception that was being handled at that moment; it is the one that leaves the block.
    """

    def __init__(self, message: str | None = None, during: BaseException | None = None) -> None:
        super().__init__(message)
        self.during = during


class InvalidSettings(UsageError):
    """A setting cannot work."""


class NotMigrated(HoldfastError):
    """The database has no Holdfast tables of this version: run `holdfast migrate`."""

    category = "configuration"


class NotPermitted(HoldfastError):
    """The role of the connection may not do this; `holdfast grants` prints what each kind of role needs."""


class StoreUnavailable(HoldfastError):
    """The database did not answer, or refuses the request for the moment."""

    retryable = True


class StoreTooSlow(StoreUnavailable):
    """The database ended a statement because it took too long. None of it was done."""


class BodySealed(HoldfastError):
    """A stored body is encrypted, and the keys of this process do not open it."""

    category = "configuration"
    retryable = True


class LeaseLost(HoldfastError):
    """Another worker holds this message now; everything written for it must be rolled back."""


class VersionConflict(HoldfastError):
    """The event stream is not at the version that was expected."""

    category = "application"

    def __init__(self, stream: str, expected: int | None, actual: int | None) -> None:
        self.stream, self.expected, self.actual = stream, expected, actual
        found = "another version" if actual is None else f"version {actual}"
        super().__init__(
            f"Event stream {stream!r} was expected at version {expected} and is at {found}: "
            "read it again and decide again."
        )


class IdTaken(HoldfastError):
    """Another message has the id that was given, in the same queue; nothing of this call was stored.

    `state` is that of the other one: pending, scheduled, unrouted or dead. `number` is its own: no other has it.
    """

    category = "application"

    def __init__(
        self, id: UUID, queue: str | None = None, state: str = "pending", number: int | None = None
    ) -> None:
        self.id, self.queue, self.state, self.number = id, queue, state, number
        where = "" if queue is None else f" in queue {queue}"
        which = "another message" if number is None else f"another message, number {number},"
        super().__init__(
            f"A message with id {id} cannot be stored: {which} has this id and is {_STATES[state].format(where=where)} "
            f"Nothing of this call was stored."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return IdTaken, (self.id, self.queue, self.state, self.number)


_STATES = {
    "pending": "pending{where}. Wait until it has ended, cancel it, give another id, or leave id= out.",
    "scheduled": "scheduled{where}. Wait until it has ended, cancel it, give another id, or leave id= out.",
    "unrouted": "kept until somebody subscribes to its type. Cancel it, give another id, or leave id= out.",
    "dead": "a dead letter{where}. Redrive or discard it first, give another id, or leave id= out.",
    "stored": "just being stored{where}. Roll back, and give another id or leave id= out.",
    "given": "given in the same call. Give each message an id of its own, or leave id= out.",
}


class Refused(HoldfastError):
    """The command was refused because it would break a guarantee."""

    category = "application"


class NotFound(HoldfastError):
    """There is no such message, queue or stream."""

    category = "application"


class NotEnded(HoldfastError, TimeoutError):
    """An instance of an orchestration has not ended within the time that was given. It continues; ask again."""


class ArchiveFailed(HoldfastError):
    """An archive cannot be written or read, or is incomplete. Nothing was deleted."""

    retryable = True


class CircuitOpen(HoldfastError):
    """A breaker refused the call before it was made; `retry_in` says in how many seconds to try again."""

    category = "infrastructure"
    retryable = True

    def __init__(self, breaker: str, retry_in: float, why: str | None = None) -> None:
        self.breaker, self.retry_in, self.why = breaker, retry_in, why
        because = f" ({why})" if why else ""
        super().__init__(
            f"Breaker {breaker} is open{because}: nothing was called. Ask again in {retry_in:.1f} s."
        )


class PoisonedTurn(msgspec.Struct, frozen=True, tag="orchestration"):
    """The kind of a poison message: the turn of an orchestration."""

    instance: str
    execution_id: int

    def __str__(self) -> str:
        return f"Orchestration {self.instance}, execution {self.execution_id},"


class PoisonedActivity(msgspec.Struct, frozen=True, tag="activity"):
    """The kind of a poison message: a call of an activity."""

    instance: str
    execution_id: int
    activity_name: str
    activity_id: int

    def __str__(self) -> str:
        return f"Activity {self.activity_name}#{self.activity_id} of instance {self.instance}"


class PoisonError(HoldfastError):
    """A message that was handed out too often without ever being handled.

    The text has ids and counts only; `message` has the full serialized message for people who
    must look into it. `message_type` is the type of a plain message.
    """

    category = "poison"
    retryable = False

    def __init__(
        self,
        *,
        attempt_count: int,
        max_attempts: int | None,
        message_type: str | PoisonedTurn | PoisonedActivity,
        message_id: str,
        message: str,
    ) -> None:
        self.attempt_count, self.max_attempts = attempt_count, max_attempts
        self.message_type, self.message_id, self.message = message_type, message_id, message
        tried = f"{attempt_count} attempts, more than allowed"
        if max_attempts is not None:  # it may have been handed out once more, to be given up
            tried = f"{min(attempt_count, max_attempts)} of {max_attempts} attempts are used up"
        what = str(message_type)
        if isinstance(message_type, str):
            what = f"Message {message_id} of type {message_type}"
        super().__init__(f"{what} is poison: {tried}.")

    def to_dict(self) -> dict[str, object]:
        """Everything about the error as plain values; `PoisonError(**error.to_dict())` gives it back."""
        return {
            "attempt_count": self.attempt_count,
            "max_attempts": self.max_attempts,
            "message_type": self.message_type,
            "message_id": self.message_id,
            "message": self.message,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return _poison, (self.to_dict(),)


def _poison(values: dict[str, Any]) -> PoisonError:
    return PoisonError(**values)
