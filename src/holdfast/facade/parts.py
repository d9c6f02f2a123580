"""The parts of an application that its methods use. `app.py` makes each of these."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from ..alerting.sinks import Sink
from ..bodies.keys import Keys
from ..by_hand import ByHand
from ..clock import Clock
from ..handlers.registry import Handlers
from ..limits.breakers import Breakers
from ..model.message import Reason
from ..model.schedule import Definition, Fired
from ..orchestrations.declaring import Declaring
from ..orchestrations.outside import Orchestrations
from ..publishing import Publishing
from ..requests.outside import Requests
from ..rules.recovery import Recovery
from ..rules.redact import Masking
from ..settings import Settings
from ..store import Store
from ..telemetry.sheet import Sheet
from ..transports.attempts import Brokers
from ..worker.around import Around

if TYPE_CHECKING:
    from ..inboxes import Inbox
    from ..operations import Operations
    from ..telemetry.tracing import Tracing


class Parts(Protocol):
    """The objects that the methods of an application use."""

    settings: Settings
    clock: Clock
    store: Store
    keys: Keys | None
    redact: Masking
    recovery: Mapping[Reason, Recovery]
    handlers: Handlers
    inboxes: dict[str, Inbox]
    _schedules: dict[str, Definition]
    _hear_fired: Callable[[Fired], None] | None
    breakers: Breakers
    brokers: Brokers
    publishing: Publishing
    orchestrations: Orchestrations
    requests: Requests
    sheet: Sheet | None
    tracing: Tracing | None
    _by_hand: ByHand
    _declaring: Declaring
    _sinks: list[Sink]
    _around: list[Around]

    @property
    def operations(self) -> Operations: ...
