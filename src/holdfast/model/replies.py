"""Who waits for the end of a message: the address in a call of an orchestration, and the answer to it.

An activity that succeeds sends the answer itself. Code that ends its message in another way (a death, a cancellation,
an operator) makes the answer here and stores it in the same transaction, so no orchestration waits for ever.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from uuid import UUID, uuid5

import msgspec

from ..errors import PoisonedActivity
from .failure import FailureDescription, category_of
from .message import NewMessage, Reason

HEADER = "holdfast-reply"
ON_DEAD = "holdfast-on-dead"  # "wait": a dead letter is no answer; redriving it lets the instance continue
ANSWER = "holdfast.answer"
_CLASS = re.compile(r"[A-Za-z_]\w{0,199}")


class Reply(NamedTuple):
    """An instance, its queue, and which of its calls waits."""

    queue: str
    instance: str
    execution: int
    number: int

    def text(self) -> str:
        return msgspec.json.encode(self).decode()


_reader = msgspec.json.Decoder(Reply)


def reply_of(text: str | None) -> Reply | None:
    """A stored address, parsed. Headers may come from a plain INSERT: an invalid address counts as none."""
    try:
        return None if text is None else _reader.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return None


def address_of(headers: str | None) -> Reply | None:
    """Who waits for the message with these headers; None: nobody."""
    text = _read(headers).get(HEADER)
    return reply_of(text) if isinstance(text, str) else None


def waits_for_letter(headers: str | None) -> bool:
    """Whether the instance that made this call keeps waiting when its message becomes a dead letter."""
    return _read(headers).get(ON_DEAD) == "wait"


def _read(headers: str | None) -> dict[str, object]:
    # A row from plain SQL may hold bytes here (X62): nobody waits for such a message.
    if not isinstance(headers, str) or HEADER not in headers:
        return {}
    try:
        found = msgspec.json.decode(headers)
    except (msgspec.DecodeError, UnicodeError):
        return {}
    return found if isinstance(found, dict) else {}


def kind_of(type: str, headers: str | None) -> str | PoisonedActivity:
    """The type of a message, for a `PoisonError`: a call of an activity names its instance and its number."""
    reply = address_of(headers)
    if reply is None:
        return type
    return PoisonedActivity(reply.instance, reply.execution, type, reply.number)


def failed(
    id: UUID,
    headers: str | None,
    end: str,
    error: str,
    reason: Reason,
    poison: FailureDescription | None = None,
) -> NewMessage | None:
    """The answer that this message has failed; None: nobody waits for one. `end` identifies this end among others.

    `poison`: it was started as often as allowed, or cannot be read; the answer then carries the whole message.
    """
    reply = address_of(headers)
    if reply is None:
        return None
    name, _, text = error.partition(": ")
    if not _CLASS.fullmatch(name):  # an exception without a text is stored as the name of its class alone
        name, text = reason.name.replace("_", " ").title().replace(" ", ""), error
    failure: dict[str, object] = {
        "type": name,
        "text": text,
        "reason": int(reason),
        "category": str(category_of(reason)),
        "message_id": str(id),
    }
    if poison is not None:
        failure |= {"category": str(poison.category), "poison": poison.to_json()}
        if (known := poison.error) is not None and known.attempt_count > (known.max_attempts or 0):
            failure |= {"type": "PoisonError", "text": str(known)}
    body = {"execution": reply.execution, "number": reply.number, "failure": failure}
    return NewMessage(
        uuid5(id, f"{end}/answer"),
        ANSWER,
        msgspec.json.encode(body).decode(),
        stream=reply.instance,
        queue=reply.queue,
    )
