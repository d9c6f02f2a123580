"""What a death stores besides the dead letter: a copy for a backup handler, a message for the application's hook,
an answer for the orchestration that waits for it.

They are messages, stored in the transaction of the death. No death is stored without them, and if a process ends before
they are handled, nothing is lost. Their ids come from the message and the epoch in which it died, so a death that is
reported twice stores them once. The time is part of the id too: an imported dead letter may reach the same epoch again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID, uuid5

from ..errors import InvalidSettings
from ..model import replies
from ..model.failure import FailureDescription
from ..model.message import NewMessage, Reason
from ..model.work import Leased

T = TypeVar("T", dict[str, Any], list[Any])

HOOK_QUEUE = "holdfast/dead-letters"
HOOK_TYPE = "holdfast.dead"
FACTS = (
    "id", "queue", "type", "body", "headers", "stream", "position", "subject", "attempts", "created_at", "died_at",
    "reason", "last_reason", "error", "fingerprint",
)  # fmt: skip
ORIGINAL_ID, DIED_IN = "holdfast-original-id", "holdfast-died-in"  # headers of a copy


@dataclass(frozen=True, slots=True)
class CopyTo:
    """After a death a copy of the message goes to this queue; `type` is the original's unless it is given."""

    queue: str
    type: str | None = None


@dataclass(frozen=True, slots=True)
class AfterDeath:
    """What a handler wants when one of its messages has died. The dead letter is held in any case."""

    alert: bool = False
    copy: CopyTo | None = None
    has_hook: bool = False  # the application has a hook


HOLD = AfterDeath()


def after_death(wish: object) -> AfterDeath:
    """`"hold"`, `"alert"` or a `CopyTo`, as a value."""
    match wish:
        case "hold":
            return HOLD
        case "alert":
            return AfterDeath(alert=True)
        case CopyTo():
            return AfterDeath(copy=wish)
    raise InvalidSettings(f'after_death={wish!r} must be "hold", "alert", a handler or CopyTo("queue").')


def aftermath(
    leased: Leased,
    wish: AfterDeath,
    now: datetime,
    *,
    reason: Reason,
    last_reason: Reason,
    error: str,
    fingerprint: str,
    poison: FailureDescription | None = None,
) -> tuple[UUID | None, tuple[NewMessage, ...]]:
    """The messages that this death stores, and which of them is a copy: its body is that of the original."""
    left = []
    death = f"{leased.message.queue}/{leased.message.seq}/{leased.epoch}/{now.isoformat()}"
    copied = None if wish.copy is None else _copy(leased, wish.copy, death)
    if copied is not None:
        left.append(copied)
    if wish.has_hook:
        message = leased.message
        facts = {
            "id": str(message.id),
            "queue": message.queue,
            "type": message.type,
            "body": message.body,
            "headers": message.headers,
            "stream": message.stream,
            "position": message.position,
            "subject": message.subject,
            "attempts": leased.attempt,
            "created_at": message.created_at.isoformat(),
            "died_at": now.isoformat(),
            "reason": int(reason),
            "last_reason": int(last_reason),
            "error": error,
            "fingerprint": fingerprint,
        }
        left.append(hook_message(message.id, death, facts))
    if not replies.waits_for_letter(leased.message.headers):
        answer = replies.failed(leased.message.id, leased.message.headers, death, error, last_reason, poison)
        if answer is not None:
            left.append(answer)
    return None if copied is None else copied.id, tuple(left)


def hook_message(id: UUID, death: str, facts: dict[str, Any]) -> NewMessage:
    """The message that calls the application's hook. `death` identifies this death among those of the message."""
    return NewMessage(
        uuid5(id, f"{death}/told"), HOOK_TYPE, json.dumps(facts, ensure_ascii=False), queue=HOOK_QUEUE
    )


def _copy(leased: Leased, to: CopyTo, death: str) -> NewMessage | None:
    """None if it has already died there: a copy must not be copied in an endless loop."""
    message = leased.message
    headers = _read(message.headers, dict)
    died_in = [*_read(headers.get(DIED_IN), list), message.queue]
    if to.queue in died_in:
        return None
    headers.setdefault(ORIGINAL_ID, str(message.id))
    headers[DIED_IN] = json.dumps(died_in, ensure_ascii=False)
    return NewMessage(
        uuid5(message.id, f"{death}/copy"),
        to.type or message.type,
        message.body,
        stream=message.stream,
        subject=message.subject,
        headers=json.dumps(headers, ensure_ascii=False),
        deadline=message.deadline,
        queue=to.queue,
    )


def _read(text: object, kind: type[T]) -> T:
    """Parsed JSON, or a default. Headers may come from a plain INSERT: bad ones must not stop a message from dying."""
    try:
        value = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        value = None
    return value if isinstance(value, kind) else kind()
