"""The arguments of a publish, checked and encoded: a message that cannot be stored exactly is refused here."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any, Protocol, TypedDict
from uuid import UUID

from ..clock import wall_clock
from ..errors import InvalidMessage
from ..model import names
from ..model.ids import new_id
from ..model.message import Dedupe, NewMessage
from ..settings import Settings
from . import codec


class MessageOptions(TypedDict, total=False):
    """The options of a message besides its type and body, as keywords: for functions that pass them on.

    `def place(order: Order, **options: Unpack[MessageOptions]): app.publish("order.placed", order, **options)`
    """

    stream: str | None
    subject: str | None
    headers: Mapping[str, Any] | None
    dedupe: str | Dedupe | None
    delay: float | timedelta | None
    at: datetime | None
    deadline: datetime | timedelta | None
    id: UUID | None
    event: bool
    expect: int | None


class Draft(Protocol):
    """Makes a draft for a worker: `app.message`."""

    def __call__(
        self, type: str, body: object = None, *,
        stream: str | None = None, subject: str | None = None, headers: Mapping[str, Any] | None = None,
        dedupe: str | Dedupe | None = None, delay: float | timedelta | None = None, at: datetime | None = None,
        deadline: datetime | timedelta | None = None, queue: str | None = None, id: UUID | None = None,
        event: bool = False, expect: int | None = None,
    ) -> NewMessage: ...  # fmt: skip


def draft(
    settings: Settings,
    type: str,
    body: object,
    *,
    stream: str | None = None,
    subject: str | None = None,
    headers: Mapping[str, Any] | None = None,
    dedupe: str | Dedupe | None = None,
    delay: float | timedelta | None = None,
    at: datetime | None = None,
    deadline: datetime | timedelta | None = None,
    queue: str | None = None,
    id: UUID | None = None,
    event: bool = False,
    expect: int | None = None,
) -> NewMessage:
    """A message that can be stored exactly as it is given; or InvalidMessage."""
    if delay is not None and at is not None:
        raise InvalidMessage("Give delay= or at=, not both.")
    if event and stream is None:
        raise InvalidMessage("An event belongs to a stream: give stream= together with event=True.")
    key, kept = None, None
    if dedupe is not None:
        key, kept = deduped(dedupe)
    return NewMessage(
        id=new_id() if id is None else _given(id),
        type=names.type_name(type),
        body=codec.encode(body, settings),
        stream=None if stream is None else names.stream_name(stream),
        subject=None if subject is None else names.subject(subject),
        headers=None if headers is None else codec.encode_headers(_own(headers), settings),
        dedupe=key,
        due_at=None if at is None else _aware(at, "at"),
        delay=None if delay is None else _seconds(delay),
        deadline=None if deadline is None else _deadline(deadline),
        queue=None if queue is None else names.queue_name(queue),
        event=event,
        expect=expect,
        id_is_given=id is not None,
        kept=kept,
    )


def _own(headers: Mapping[str, Any]) -> Mapping[str, Any]:
    """Headers of a message of this application; or InvalidMessage, if they are those of one that was received."""
    for name in names.RECEIVED:
        if name in headers:
            raise InvalidMessage(
                f"The header {name!r} cannot be published: inboxes write it, and with it a destination sends a message "
                "under its sender's id, or not at all. Leave it out when you copy the headers of a received message."
            )
    return headers


WINDOW_MIN = 300.0  # redeliveries can come late
WINDOW_MAX = 10 * 366 * 86_400.0


def deduped(given: str | Dedupe) -> tuple[str, int | None]:
    """A dedupe key as it is stored, and for how many seconds after the end; None: the time of the settings."""
    if not isinstance(given, Dedupe):
        return names.dedupe_key(given), None
    return names.stored_key(given.key, given.scope), window(given.window)


def window(given: float | timedelta | None) -> int | None:
    """How long a dedupe key is held, in whole seconds."""
    if given is None:
        return None
    seconds = given.total_seconds() if isinstance(given, timedelta) else float(given)
    if not WINDOW_MIN <= seconds <= WINDOW_MAX:
        raise InvalidMessage(
            f"The window of a dedupe key is {given!r}, and must be 300 seconds to ten years: a message "
            "that comes again after it is stored as a new one."
        )
    return ceil(seconds)


def when_due(at: datetime | None, delay: float | timedelta | None) -> tuple[datetime | None, float | None]:
    """A moment or a delay in seconds, checked."""
    if delay is not None and at is not None:
        raise InvalidMessage("Give delay= or at=, not both.")
    return None if at is None else _aware(at, "at"), None if delay is None else _seconds(delay)


def given_id(id: object) -> UUID:
    """The id of a message, as a UUID or as its text."""
    return _given(id)


def _given(id: object) -> UUID:
    """The caller's own id. A UUID class of a driver, for example, is converted."""
    if type(id) is UUID:
        return id
    try:
        return UUID(str(id))
    except ValueError:
        raise InvalidMessage(
            f"id={id!r} is not a UUID: leave it out, or derive one from it with uuid.uuid5()."
        ) from None


def _seconds(delay: float | timedelta) -> float:
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else float(delay)
    if not 0 <= seconds <= 100 * 366 * 86_400:
        raise InvalidMessage(f"delay={delay!r} must be between 0 and a hundred years.")
    return seconds


def _deadline(given: datetime | timedelta) -> datetime:
    return _aware(wall_clock() + given if isinstance(given, timedelta) else given, "deadline")


def _aware(instant: Any, name: str) -> datetime:
    if not isinstance(instant, datetime) or instant.tzinfo is None:
        raise InvalidMessage(
            f"{name}={instant!r} must be a datetime with a time zone: datetime.now(UTC) + ..."
        )
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        raise InvalidMessage(f"{name}={instant} is not in the years 1 to 9999 in UTC.") from None
