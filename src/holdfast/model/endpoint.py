"""A destination or an inbox, and the state of one worker's connection to its broker: values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

EndpointKind = Literal["destination", "inbox"]
Connected = Literal["open", "broken", "held"]  # held: an inbox that receives nothing for now

# Before the name of an inbox: the queue of its dead letters, which is paused with it.
INBOX_QUEUES = "inbox/"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What is known of a destination or an inbox without a connection. The address is never a URL."""

    kind: EndpointKind
    queue: str
    transport: str
    address: str


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a connection. Ages are seconds before now."""

    state: Connected
    age: float  # in this state
    why: str | None = None
    tries: int = 0  # to connect, since it broke
    last_age: float | None = None  # since a message was last confirmed by the broker, or stored

    @property
    def reported(self) -> tuple[object, ...]:
        """The part that is reported to operators at once when it changes."""
        return self.state, self.why, self.tries > 0


@runtime_checkable
class Connection(Protocol):
    """A worker's connection to a broker."""

    @property
    def endpoint(self) -> Endpoint: ...
    def standing(self) -> Standing: ...
