"""What a user says about an inbox, checked when it is said."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypedDict

from ..bodies import codec
from ..bodies.drafts import window
from ..errors import InvalidMessage, InvalidSettings
from ..model import names
from ..model.endpoint import INBOX_QUEUES, Endpoint
from ..requests.kinds import RequestKind
from ..transports.contract import Connector, Source
from ..transports.templates import Template

PREFETCH = 2000
PREFETCH_BYTES = 8 * 1024 * 1024
PREFETCH_MAX = 65_535  # AMQP counts no further


class InboxOptions(TypedDict, total=False):
    """What can be said about an inbox beside its name, broker and queue. What each means: `Holdfast.inbox`."""

    bind: Mapping[str, str | Sequence[str]] | None
    stream: str | None
    types: Mapping[str, Any] | None
    dedupe: float | timedelta | None
    prefetch: int
    prefetch_bytes: int
    dead_letters: bool
    backlog: int | None
    resolves: RequestKind[Any, Any] | None


@dataclass(frozen=True, slots=True)
class Inbox:
    """A queue of a broker that this application reads. `app.inbox(...)` makes one."""

    name: str
    connector: Connector
    source: Source
    stream: Template | None = None
    types: Mapping[str, Callable[[str], Any]] = field(default_factory=dict)
    window: int | None = None  # seconds that a dedupe key is held; None: as the settings say
    dead_letters: bool = False
    backlog: int | None = None
    resolves: RequestKind[Any, Any] | None = None

    @property
    def queue(self) -> str:
        """Where its dead letters are. Paused, it stops receiving."""
        return INBOX_QUEUES + self.name

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint that operators see."""
        return Endpoint("inbox", self.queue, self.connector.name, self.source.queue)


def declared(
    name: str,
    connector: object,
    *,
    queue: str,
    bind: Mapping[str, str | Sequence[str]] | None = None,
    stream: str | None = None,
    types: Mapping[str, Any] | None = None,
    dedupe: float | timedelta | None = None,
    prefetch: int = PREFETCH,
    prefetch_bytes: int = PREFETCH_BYTES,
    dead_letters: bool = False,
    backlog: int | None = None,
    resolves: RequestKind[Any, Any] | None = None,
) -> Inbox:
    """An inbox, or InvalidSettings with what is wrong about it."""
    names.queue_name(INBOX_QUEUES + names.own_name(name, "The inbox"))
    if not isinstance(connector, Connector):
        raise InvalidSettings(
            f"Inbox {name!r}: {connector!r} cannot be received from. Give a broker, RabbitMQ(url) for one."
        )
    for what, value in (("prefetch", prefetch), ("prefetch_bytes", prefetch_bytes), ("backlog", backlog)):
        if value is not None and (type(value) is not int or value < 1):
            raise InvalidSettings(f"Inbox {name!r}: {what}={value!r} must be a whole number, at least 1.")
    if prefetch > PREFETCH_MAX:
        raise InvalidSettings(f"Inbox {name!r}: prefetch={prefetch!r} must be {PREFETCH_MAX} at most.")
    if resolves is not None and not isinstance(resolves, RequestKind):
        raise InvalidSettings(
            f"Inbox {name!r}: resolves={resolves!r} must be a kind of request: what app.request_kind(...) returned."
        )
    if resolves is not None and dead_letters:
        raise InvalidSettings(
            f"Inbox {name!r}: what a broker has given up resolves nothing: leave resolves= out."
        )
    if not queue:
        raise InvalidSettings(f"Inbox {name!r}: queue={queue!r} must be the name of the broker's queue.")
    try:
        held = window(dedupe)
    except InvalidMessage as error:
        raise InvalidSettings(f"Inbox {name!r}: {error}") from None
    bindings = {
        exchange: (keys,) if isinstance(keys, str) else tuple(keys) for exchange, keys in (bind or {}).items()
    }
    return Inbox(
        name,
        connector,
        Source(queue, bindings, prefetch, prefetch_bytes, ordered=stream is not None),
        None if stream is None else Template.of(stream, "stream", forbidden="", is_address=False),
        {names.type_name(each): codec.decoder_for(shape) for each, shape in (types or {}).items()},
        held,
        dead_letters,
        backlog,
        resolves,
    )
