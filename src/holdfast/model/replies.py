"""Who waits for the end of a message: the address that a call of an orchestration carries, and the answer to it.

An activity that succeeds sends the answer itself. Code that ends its message otherwise (a death, a cancellation, an
operator) makes the answer here and stores it in the same transaction, so no orchestration waits for ever.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from uuid import UUID, uuid5

import msgspec

from .failure import category_of
from .message import NewMessage, Reason

HEADER = "holdfast-reply"
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
    # A row of somebody's plain SQL may hold bytes here (X62): nobody waits for such a message.
    if not isinstance(headers, str) or HEADER not in headers:
        return None
    try:
        found = msgspec.json.decode(headers)
    except (msgspec.DecodeError, UnicodeError):
        return None
    told = found.get(HEADER) if isinstance(found, dict) else None
    return reply_of(told) if isinstance(told, str) else None


def headers_for(reply: Reply) -> str:
    return msgspec.json.encode({HEADER: reply.text()}).decode()


def failed(id: UUID, headers: str | None, end: str, error: str, reason: Reason) -> NewMessage | None:
    """The answer that this message has failed; None: nobody waits for one. `end` identifies this end among others."""
    reply = address_of(headers)
    if reply is None:
        return None
    name, separator, text = error.partition(": ")
    if not separator or not _CLASS.fullmatch(name):
        name, text = reason.name.replace("_", " ").title().replace(" ", ""), error
    failure = {
        "type": name,
        "text": text,
        "reason": int(reason),
        "category": str(category_of(reason)),
        "message_id": str(id),
    }
    body = {"execution": reply.execution, "number": reply.number, "failure": failure}
    return NewMessage(
        uuid5(id, f"{end}/answer"),
        ANSWER,
        msgspec.json.encode(body).decode(),
        stream=reply.instance,
        queue=reply.queue,
    )
