"""The watches of a worker: metrics and traces. Chosen once, when a worker is made; without a watch nothing is done.

The worker calls its watch once for each call of a handler, once at its end, and once for each exchange. A watch never
uses more than ids, names and times: the body is in `Leased`, and no watch of ours reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import Context as Variables
from contextvars import copy_context
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..model.drain import DrainSummary
    from ..model.endpoint import EndpointKind
    from ..model.work import Batch, Leased, Report, Settlement
    from .wire import ReceivedBatch, SentBatch


class Watch(Protocol):
    """The events that a worker reports. Called from its loop and from the threads of `def` handlers."""

    def begin(self, *leased: Leased) -> Variables:
        """A handler is about to be called with these; returns the context to call it in."""
        ...

    def end(self, leased: Leased, settlement: Settlement | None) -> None:
        """An attempt has ended like this; None: its lease is another worker's. The handler may not have been called."""
        ...

    def completed(self, leased: Leased, ran: float) -> None:
        """An attempt has succeeded, settled in its handler's own transaction."""
        ...

    def exchanged(self, report: Report, batch: Batch, seconds: float) -> None:
        """Results were handed in, and work was handed out."""
        ...

    def sent(self, batch: SentBatch) -> None:
        """A relay has given a batch to its broker, and knows the outcome."""
        ...

    def received(self, batch: ReceivedBatch) -> None:
        """An inbox has stored a batch."""
        ...

    def connected(self, kind: EndpointKind, name: str, *, is_open: bool) -> None:
        """A try to connect to a broker has ended."""
        ...

    def drained(self, drained: DrainSummary) -> None:
        """Nothing is due any more, after this drain."""
        ...


class Several:
    """Several watches as one."""

    def __init__(self, watches: Sequence[Watch]) -> None:
        self.watches = watches

    def begin(self, *leased: Leased) -> Variables:
        variables = copy_context()
        for watch in self.watches:
            variables = variables.run(watch.begin, *leased)
        return variables

    def end(self, leased: Leased, settlement: Settlement | None) -> None:
        for watch in self.watches:
            watch.end(leased, settlement)

    def completed(self, leased: Leased, ran: float) -> None:
        for watch in self.watches:
            watch.completed(leased, ran)

    def exchanged(self, report: Report, batch: Batch, seconds: float) -> None:
        for watch in self.watches:
            watch.exchanged(report, batch, seconds)

    def drained(self, drained: DrainSummary) -> None:
        for watch in self.watches:
            watch.drained(drained)

    def sent(self, batch: SentBatch) -> None:
        for watch in self.watches:
            watch.sent(batch)

    def received(self, batch: ReceivedBatch) -> None:
        for watch in self.watches:
            watch.received(batch)

    def connected(self, kind: EndpointKind, name: str, *, is_open: bool) -> None:
        for watch in self.watches:
            watch.connected(kind, name, is_open=is_open)


def together(watches: Sequence[Watch]) -> Watch | None:
    """The watch of a worker; None: there is none."""
    if not watches:
        return None
    return watches[0] if len(watches) == 1 else Several(watches)
