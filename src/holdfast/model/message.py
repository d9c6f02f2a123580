"""What is stored and carried: a message, a new one, and the numbers that describe its progress."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum, IntFlag
from typing import NamedTuple
from uuid import UUID

import msgspec

Y2000 = datetime(2000, 1, 1, tzinfo=UTC)


def from_raw(micros: int) -> datetime:
    """A time as PostgreSQL sends it. A time outside Python's range becomes the last or the first that Python has."""
    try:
        return Y2000 + timedelta(0, 0, micros)
    except OverflowError:
        return (datetime.max if micros > 0 else datetime.min).replace(tzinfo=UTC)


class Flag(IntFlag):
    """What was done for a message. Flags are only added; bits 3 to 14 belong to a handler's own steps."""

    STORED = 1
    EVENT_STORED = 2
    PUBLISHED = 4
    FAILED = 32768


STEP_BITS = range(3, 15)


class Reason(IntEnum):
    """Why an attempt failed. 1 to 7 and 99 are fixed by the first design; 8 and above were added later."""

    TRANSPORT_UNAVAILABLE = 1
    HANDLER_EXCEPTION = 2
    VALIDATION_FAILURE = 3
    TIMEOUT_EXCEEDED = 4
    SERIALIZATION_ERROR = 5
    DEPENDENCY_FAILURE = 6
    POISON_MESSAGE = 7
    WORKER_VANISHED = 8
    NO_HANDLER = 9
    CANCELLED = 10
    PAYLOAD_TOO_LARGE = 11
    ID_TAKEN = 12
    UNKNOWN = 99


@dataclass(frozen=True, slots=True)
class Dedupe:
    """A dedupe key with a scope and a window of its own: `publish(..., dedupe=Dedupe("42", scope="/shop"))`.

    Without a scope it counts among the keys of its type. The window, in seconds or as a timedelta, begins when the
    message has ended; without one it is the setting `dedupe`. The least is 300 seconds.
    """

    key: str
    scope: str | None = None
    window: float | timedelta | None = None


class NewMessage(msgspec.Struct, frozen=True, gc=False):
    """A message that is not stored yet. `body` and `headers` are JSON text, already checked by the codec."""

    id: UUID
    type: str
    body: str
    stream: str | None = None
    subject: str | None = None
    headers: str | None = None
    dedupe: str | None = None  # as it is stored: names.stored_key
    due_at: datetime | None = None
    delay: float | None = None
    deadline: datetime | None = None
    queue: str | None = None
    event: bool = False
    expect: int | None = None
    id_is_given: bool = False  # by the publisher: it is looked up before the message is stored
    kept: int | None = None  # seconds that its dedupe key is held after its end; None: by the settings


class Stillborn(msgspec.Struct, frozen=True, gc=False):
    """A message that is stored as a dead letter from the start, because it could not be understood.

    Its dedupe key is taken like that of any message, so one that comes again is stored once.
    """

    id: UUID
    queue: str
    type: str
    body: str
    dedupe: str
    reason: Reason
    error: str
    fingerprint: str
    subject: str | None = None
    headers: str | None = None
    kept: int | None = None


class Published(NamedTuple):
    """The answer to a publish: the id; if the dedupe key had been used before, the id of the first message."""

    id: UUID
    duplicate: bool = False


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message as a worker gets it: one delivery, in one queue. `body` is JSON text.

    Times are kept as PostgreSQL sends them, in microseconds since 2000 (`..._raw`), until code reads
    `created_at`, `due_at` or `deadline`: converting them to datetimes is half the cost of reading a row.
    """

    seq: int
    id: UUID
    queue: str
    type: str
    body: str
    stream: str | None
    position: int | None
    subject: str | None
    headers: str | None
    status: int
    attempts: int
    failures: int
    vanished: int
    refunds: int
    created_raw: int
    due_raw: int | None
    deadline_raw: int | None

    @property
    def created_at(self) -> datetime:
        return from_raw(self.created_raw)

    @property
    def due_at(self) -> datetime | None:
        return None if self.due_raw is None else from_raw(self.due_raw)

    @property
    def deadline(self) -> datetime | None:
        return None if self.deadline_raw is None else from_raw(self.deadline_raw)


@dataclass(frozen=True, slots=True)
class Event:
    """A message as its event stream keeps it. Versions of a stream count from 1 without gaps. `body` is JSON text."""

    stream: str
    version: int
    id: UUID
    type: str
    subject: str | None
    created_at: datetime
    headers: str | None
    body: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """One entry of a message's error history."""

    at: datetime
    reason: Reason | None
    text: str


@dataclass(frozen=True, slots=True)
class Death:
    """One death of a message. `body`: with which it died, if it was edited afterwards."""

    died_at: datetime
    reason: Reason
    last_reason: Reason | None
    fingerprint: str | None
    worker: str | None
    error: str | None
    body: str | None
