"""An inbox that answers requests: `app.inbox("callbacks", rabbit, queue="grading.callback", resolves=grading)`.

The result is judged when the message is stored, and written in the same commit: it does not matter when a handler comes
to it. A message that nobody subscribes to is kept as a result alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from ..bodies import codec
from ..errors import InvalidMessage
from ..model import names
from ..model.ids import new_id
from ..model.message import NewMessage
from ..requests import verbs
from ..requests.hooks import RESULT, Pen
from ..requests.kinds import Answer, RequestKind
from ..requests.outside import failure, request_id
from ..requests.verbs import Arrival
from ..settings import Settings
from ..store.plans import engine, requests
from ..store.plans.requests import Held
from ..store.statement import Plan

Says = tuple[UUID, str | None, str]  # whose result it is, whether it failed, and the result as JSON


class Answering(NewMessage, frozen=True, gc=False):
    """A message that brings the result of a request. Its text is not sealed, but that of the arrival is."""

    arrival: Arrival | None = None


def answering(
    message: NewMessage, value: Any, kind: RequestKind[Any, Any], settings: Settings, pen: Pen
) -> NewMessage:
    """The message with what it says about a request, if it does. What `answer` of the kind raises, this raises."""
    said = kind.answer(value)
    if said is None:
        return message
    if not isinstance(said, Answer):
        raise InvalidMessage(
            f"answer= of the kind {kind.name!r} returned a {type(said).__name__}, not an Answer."
        )
    own = new_id()
    body = message.body if said.result is ... else codec.encode(said.result, settings)
    arrival = Arrival(
        own,
        request_id(said.request),
        None if said.failed is None else failure(said.failed, settings.error_chars),
        pen.sealed(own, RESULT, body),
        message.id if message.id_is_given else None,
        kind.name,
    )
    return Answering(**msgspec.structs.asdict(message), arrival=arrival)


def received(messages: Sequence[NewMessage], pen: Pen) -> Plan[int]:
    """Store messages and the results that they bring; how many of them had come before.

    The rows of requests are locked before dedupe keys are taken.
    """
    brought = {id(each): each.arrival for each in messages if isinstance(each, Answering) and each.arrival}
    held: dict[UUID, Held] = yield from requests.hold(each.request for each in brought.values())
    at = yield from requests.moment()
    patterns = {pattern for pattern, _ in (yield from engine.subscriptions())}

    def is_stored(message: NewMessage) -> bool:
        arrival = brought.get(id(message))
        row = None if arrival is None else held.get(arrival.request)
        is_taken = arrival is not None and (row is None or arrival.kind == row.kind)
        return not is_taken or any(names.matches(each, message.type) for each in patterns)

    kept = [each for each in messages if is_stored(each)]
    again: set[int] = set()
    if kept:
        published = yield from engine.append(kept)
        again = {id(each) for each, answer in zip(kept, published, strict=True) if answer.duplicate}
    arrivals = {key: each for key, each in brought.items() if key not in again}
    if arrivals:
        judged = yield from verbs.judged(list(arrivals.values()), held, at, pen, keeps_early=True)
        stored = {id(each) for each in kept}
        again |= {
            key for key, found in zip(arrivals, judged, strict=True) if found is None and key not in stored
        }
    return len(again)


def returned(message: NewMessage, *, keeps_key: bool) -> NewMessage:
    """A message of a redriven letter: its key is the letter's own, and held under the same id."""
    return message if keeps_key else replace(message, dedupe=None)
