"""Which of the messages that were published on one AMQP channel are settled, and how. Pure bookkeeping.

The broker numbers what is published on a channel from 1 and answers by number: one at a time or all up to a number
(`multiple`), in any order, and mixed. It returns an unroutable message whole, without its number, before it confirms
it. Returns come in the order of publishing, so the returned message is the first one behind the last returned that is
equal to it and not answered yet. The message id alone is not enough: one event sent to two routing keys has one id.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .contract import CONFIRMED, Fate, Outgoing, Rejected, Sent, Unroutable

REFUSED = Rejected("the broker refused it (its queue is full or not available)")


class OutOfStep(Exception):
    """The broker answered for a message that was not published. The channel cannot be trusted any more."""


@dataclass(frozen=True, slots=True)
class Returned:
    """An unroutable message, as the broker gives it back."""

    to: str
    key: str
    id: str | None
    headers: Mapping[str, object]
    body: bytes
    reason: str

    def is_of(self, message: Outgoing) -> bool:
        return (
            message.key == self.key
            and message.to == self.to
            and message.id == self.id
            and message.body == self.body
            and dict(message.headers) == dict(self.headers)
        )


class Flight:
    """One batch in flight: which of its messages are answered."""

    __slots__ = ("_finished", "answered", "first", "left", "messages", "sent")

    def __init__(
        self, first: int, messages: Sequence[Outgoing], sent: Sent, finished: Callable[[], None]
    ) -> None:
        self.first, self.messages, self.sent = first, messages, sent
        self.left = len(messages)
        self.answered = bytearray(len(messages))
        self._finished = finished

    def answer(self, index: int, fate: Fate) -> None:
        if not self.answered[index]:
            self.answered[index] = 1
            self.left -= 1
            self.sent(index, fate)
            if not self.left:
                self._finished()

    def unanswered(self) -> list[int]:
        return [index for index, done in enumerate(self.answered) if not done]


class Confirms:
    """The answers of one channel."""

    def __init__(self) -> None:
        self._next = 1  # number of the next publish
        self._low = 1  # everything below is answered
        self._flights: deque[Flight] = deque()  # in the order of their numbers, without gaps
        self._returned: dict[int, Unroutable] = {}
        self._last_returned = 0

    @property
    def under_way(self) -> int:
        """How many messages are not answered."""
        return sum(flight.left for flight in self._flights)

    def publish(self, messages: Sequence[Outgoing], sent: Sent, finished: Callable[[], None]) -> Flight:
        """A batch is published now, as it stands. `finished` is called with the last answer of it."""
        flight = Flight(self._next, messages, sent, finished)
        self._next += len(messages)
        if messages:
            self._flights.append(flight)
        return flight

    def answer(self, number: int, *, multiple: bool, accepted: bool) -> None:
        """The broker confirmed or refused one message, or all up to it. 0 with `multiple` means all."""
        if multiple and number == 0:
            number = self._next - 1
        if not self._low <= number < self._next:
            if not 0 < number < self._next:
                raise OutOfStep(f"the broker answered message {number}, and {self._next - 1} were published")
            return  # answered before: nothing new
        fate: Fate = CONFIRMED if accepted else REFUSED
        if multiple:
            self._answer_up_to(number, fate)
        else:
            flight = next(each for each in self._flights if number < each.first + len(each.messages))
            self._answer_one(flight, number - flight.first, fate)
        self._forget()

    def _answer_up_to(self, number: int, fate: Fate) -> None:
        for flight in list(self._flights):
            if flight.first > number:
                break
            for index in range(
                max(0, self._low - flight.first), min(number - flight.first + 1, len(flight.messages))
            ):
                if not flight.answered[index]:
                    self._answer_one(flight, index, fate)
        self._low = max(self._low, number + 1)

    def _answer_one(self, flight: Flight, index: int, fate: Fate) -> None:
        unroutable = self._returned.pop(flight.first + index, None) if self._returned else None
        flight.answer(index, unroutable or fate)

    def _forget(self) -> None:
        while self._flights and not self._flights[0].left:
            flight = self._flights.popleft()
            self._low = max(self._low, flight.first + len(flight.messages))

    def give_back(self, returned: Returned) -> None:
        """The broker returned a message. Its confirm follows and means nothing but that."""
        for flight in self._flights:
            start = max(0, self._last_returned + 1 - flight.first)
            for index in range(start, len(flight.messages)):
                if not flight.answered[index] and returned.is_of(flight.messages[index]):
                    self._last_returned = flight.first + index
                    self._returned[self._last_returned] = Unroutable(returned.reason)
                    return
        raise OutOfStep("the broker returned a message that was not published, or was answered already")
