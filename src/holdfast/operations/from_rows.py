"""Makes the results that an operator sees from the rows of the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any, TypeVar
from uuid import NAMESPACE_URL, UUID, uuid5

from ..model.failure import FailureDescription, of_letter
from ..model.message import Death, Reason, Trouble
from ..model.names import SCOPED, shown_key
from .results import Action, Content, Delivery, Ended, EndedMessage, Group, Letter
from .states import StreamState

T = TypeVar("T")


def reason_of(value: int | None) -> Reason | None:
    if value is None:
        return None
    try:
        return Reason(value)
    except ValueError:  # written by a newer release
        return Reason.UNKNOWN


def delivery(row: Mapping[str, Any]) -> Delivery:
    return _made(Delivery, {**row, "reason": reason_of(row["reason"])})


def letter(row: Mapping[str, Any]) -> Letter:
    reasons = {"reason": reason_of(row["reason"]), "last_reason": reason_of(row["last_reason"])}
    return _made(Letter, {**row, **reasons})


def content(row: Mapping[str, Any]) -> Content:
    errors = tuple(
        Trouble(datetime.fromisoformat(each["at"]), reason_of(each.get("reason")), each["text"])
        for each in row["errors"] or ()
    )
    deaths = tuple(map(death, row["deaths"]))
    return Content(row["body"], row["headers"], shown_key(row["dedupe"]), errors, deaths, row["traceback"])


def death(row: Mapping[str, Any]) -> Death:
    reasons = {"reason": reason_of(row["reason"]), "last_reason": reason_of(row["last_reason"])}
    return _made(Death, {**row, **reasons})


def group(row: Mapping[str, Any]) -> Group:
    return _made(Group, {**row, "reason": reason_of(row["reason"])})


def failure(letter: Letter, content: Content) -> FailureDescription:
    """The errors of a dead letter, as hooks and programs get them."""
    message = {field.name: getattr(letter, field.name) for field in fields(letter)}
    message |= {"body": content.body, "headers": content.headers, "dedupe": content.dedupe}
    return of_letter(
        reason=letter.reason,
        last_reason=letter.last_reason,
        error=letter.error,
        attempts=letter.attempts,
        type=letter.type,
        id=letter.id,
        queue=letter.queue,
        message=message,
    )


def stream_state(row: Mapping[str, Any]) -> StreamState:
    failed = row["failed_at"]
    return _made(
        StreamState,
        {
            **row,
            "head": row["head_id"],
            "attempts": row["attempts"] or 0,
            "failures": row["failures"] or 0,
            "reason": reason_of(row["reason"]),
            "failed_at": None if failed is None else datetime.fromisoformat(failed),
        },
    )


def action(row: Mapping[str, Any]) -> Action:
    return _made(
        Action, {**row, "before": row["was"], "after": row["became"], "ids": tuple(row["ids"] or ())}
    )


def ended(row: Mapping[str, Any], id: UUID) -> Ended:
    return _made(Ended, {**row, "origin": origin(id, row["origin"])})


def ended_message(row: Mapping[str, Any]) -> EndedMessage:
    return _made(EndedMessage, {**row, "lateness": None, "outage": None})  # operations/late.py adds them


def origin(id: UUID, stored: str | None) -> str | None:
    """Who sent a message that came through an inbox: `4711 of /shop`. A dedupe key that callers gave has no origin."""
    if stored is None:
        return None
    source, _, theirs = stored.removeprefix(SCOPED).partition(SCOPED)
    is_received = id == uuid5(uuid5(NAMESPACE_URL, source), theirs)
    return f"{theirs} of {source}" if is_received else None


def _made(kind: type[T], row: Mapping[str, Any]) -> T:
    return kind(**{field.name: row[field.name] for field in fields(kind)})  # type: ignore[arg-type]
