"""What travels into the stream of an instance, as messages; and how texts of orchestrations are sealed and opened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import assert_never
from uuid import UUID, uuid5

import msgspec

from ..bodies.keys import SEALED, Keys, Unopened, opened
from ..clock import micros
from ..errors import BodySealed
from ..model import names
from ..model.ids import new_id
from ..model.message import Message, NewMessage
from ..model.replies import ANSWER, Reply
from .failures import Failure
from .journal import (
    NAMESPACE,
    Answered,
    Arrival,
    Cancelled,
    Child,
    Fired,
    JournalUnreadable,
    Signalled,
    Started,
    Woken,
)

START, TIMER, SIGNAL, CANCEL, WAKE = (
    f"holdfast.{each}" for each in ("start", "timer", "signal", "cancel", "wake")
)
TEXT = "holdfast.text"  # the type under which texts beside messages are sealed
EARLY = "holdfast/signals"  # the queue of signals to instances that have not started
RESUME = "holdfast.resume"  # a message there: paused instances, by their ids, are to try again


KNOWN = frozenset((START, TIMER, SIGNAL, CANCEL, WAKE, ANSWER))  # what may stand in the stream of an instance


class StartBody(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    input: str | None = None
    parent: str | None = None
    deadline: int | None = None
    reply: str | None = None
    attributes: dict[str, str] | None = None


class AnswerBody(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    execution: int
    number: int
    value: str | None = None
    failure: Failure | None = None


class TimerBody(msgspec.Struct, frozen=True, gc=False):
    execution: int
    number: int


class SignalBody(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    name: str
    body: str | None = None


class CancelBody(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`start`: only for the instance that this message started."""

    why: str = ""
    start: str = ""


Body = StartBody | AnswerBody | TimerBody | SignalBody | CancelBody


def bound(what: str) -> UUID:
    """What a text that is stored beside messages is bound to when it is sealed, by its name: `result/order-7`."""
    return uuid5(NAMESPACE, what)


class Pen:
    """Writes messages and texts of orchestrations, and reads them; sealed where the application has keys."""

    def __init__(self, keys: Keys | None) -> None:
        self.keys = keys

    def message(
        self, type: str, text: str, *, queue: str, stream: str | None = None, id: UUID | None = None,
        headers: str | None = None, due_at: datetime | None = None, deadline: datetime | None = None,
    ) -> NewMessage:  # fmt: skip
        """A message whose body is this JSON text."""
        id = id or new_id()
        if self.keys is not None:
            text = self.keys.seal(id, type, text)
        return NewMessage(
            id, type, text, stream=stream, headers=headers, due_at=due_at, deadline=deadline, queue=queue
        )

    def into(self, reply: Reply, value: str | None, failure: Failure | None = None) -> NewMessage:
        """The answer to a call."""
        body = AnswerBody(reply.execution, reply.number, value, failure)
        return self.message(ANSWER, written(body), queue=reply.queue, stream=reply.instance)

    def seal(self, what: str, text: str) -> str:
        """A text that is stored beside the messages. `what` names it: `journal/order-7/0/3/0`."""
        return text if self.keys is None else self.keys.seal(bound(what), TEXT, text)

    def open(self, what: str, text: str) -> str:
        """The reverse, or BodySealed."""
        if not text.startswith(SEALED):
            return text
        if self.keys is None:
            raise BodySealed(
                f"The text {what} is sealed and this process has no keys: set HOLDFAST_KEYS or keys=."
            )
        return self.keys.open(bound(what), TEXT, text)

    def open_in_turn(self, what: str, text: str) -> str:
        """The same inside a worker: a key that is missing is waited for."""
        try:
            return self.open(what, text)
        except BodySealed as error:
            raise Unopened(str(error)) from error

    def text(self, message: Message) -> str:
        """The body of a message in a worker."""
        return opened(message, self.keys) if message.body.startswith(SEALED) else message.body

    def reply_in(self, message: Message) -> str | None:
        """Who waits for the end of the instance that this message would start."""
        return msgspec.json.decode(self.text(message), type=StartBody).reply

    def is_for(self, message: Message, start: UUID) -> bool:
        """Whether a cancellation is for the instance that was started by this message."""
        meant = msgspec.json.decode(self.text(message), type=CancelBody).start
        return not meant or meant == str(start)

    def arrival(self, message: Message) -> Arrival:
        """What a message means to the code; or JournalUnreadable."""
        text = self.text(message)
        try:
            return _arrival(message, text)
        except (msgspec.DecodeError, UnicodeError, KeyError) as error:
            raise JournalUnreadable(
                f"Message {message.id} of type {message.type} cannot be read by an orchestration "
                f"({type(error).__name__}): discard it, or run the release that wrote it."
            ) from error


def signal_message(pen: Pen, id: str, name: str, body: str | None, deadline: datetime) -> NewMessage:
    """A signal for an instance. Its queue is that of early signals until somebody knows the instance's own."""
    signal = SignalBody(names.text(name, "The signal's name", 200), body)
    made = pen.message(SIGNAL, written(signal), queue=EARLY, stream=names.instance_id(id))
    return msgspec.structs.replace(made, deadline=deadline)


def cancel_message(pen: Pen, id: str, why: str) -> NewMessage:
    return pen.message(CANCEL, written(CancelBody(why)), queue="", stream=names.instance_id(id))


def child_cancelled(pen: Pen, child: Child, start: UUID, parent: str) -> NewMessage:
    """The cancellation of a child whose parent does not wait for it any more."""
    body = CancelBody(f"its parent {parent} does not wait for it any more", str(start))
    id = uuid5(start, "cancel")
    return pen.message(CANCEL, written(body), queue=child.name, stream=child.id, id=id)


def resume_message(ids: Sequence[str], id: UUID | None = None) -> NewMessage:
    """Lets instances that are paused try again: each has a cancellation, which its code may be able to take."""
    return NewMessage(id or new_id(), RESUME, msgspec.json.encode(ids).decode(), queue=EARLY)


def children_cancelled(pen: Pen, children: Sequence[tuple[Child, UUID]], parent: str) -> list[NewMessage]:
    """The cancellations of children that their parent does not wait for any more; a paused one tries again."""
    if not children:
        return []
    found = [child_cancelled(pen, child, start, parent) for child, start in children]
    return [*found, resume_message([child.id for child, _ in children], uuid5(children[0][1], "resume"))]


def progress_name(message: UUID) -> str:
    """The name under which the progress of a call is sealed."""
    return f"progress/{message}"


def written(body: Body) -> str:
    return msgspec.json.encode(body).decode()


_READ: dict[str, Callable[[str], Body]] = {
    START: msgspec.json.Decoder(StartBody).decode,
    ANSWER: msgspec.json.Decoder(AnswerBody).decode,
    TIMER: msgspec.json.Decoder(TimerBody).decode,
    SIGNAL: msgspec.json.Decoder(SignalBody).decode,
    CANCEL: msgspec.json.Decoder(CancelBody).decode,
}


def _arrival(message: Message, text: str) -> Arrival:
    id, at = str(message.id), micros(message.due_at or message.created_at)
    if message.type == WAKE:
        return Woken(id, at)
    body = _READ[message.type](text)
    match body:
        case StartBody():
            seed = f"{message.stream}/0"
            return Started(id, at, body.input, seed, body.parent, body.deadline, attributes=body.attributes)
        case AnswerBody():
            return Answered(id, at, body.execution, body.number, body.value, body.failure)
        case TimerBody():
            return Fired(id, at, body.execution, body.number)
        case SignalBody():
            return Signalled(id, at, body.name, body.body)
        case CancelBody():
            return Cancelled(id, at, body.why)
        case _:
            assert_never(body)
