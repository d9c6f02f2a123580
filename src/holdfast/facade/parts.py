"""The parts of an application that its methods use. `app.py` makes each of these.

What every application needs is made with it. The rest is made when it is first used, and its code is loaded then: most
processes publish and never work, and few use all that there is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar, overload

from ..bodies.keys import Keys
from ..clock import Clock
from ..handlers.registry import Handlers
from ..model.message import Reason
from ..model.schedule import Definition, Fired
from ..publishing import Publishing
from ..rules.recovery import Recovery
from ..rules.redact import Masking
from ..settings import Settings
from ..store import Store
from ..telemetry.sheet import Sheet
from ..worker.around import Around

if TYPE_CHECKING:
    from ..alerting.sinks import Sink
    from ..by_hand import ByHand
    from ..inboxes import Inbox
    from ..limits.breakers import Breakers
    from ..operations import Operations
    from ..orchestrations.declaring import Declaring
    from ..orchestrations.outside import Orchestrations
    from ..requests.outside import Requests
    from ..schedules.outside import Schedules
    from ..telemetry.tracing import Tracing
    from ..transports.attempts import Brokers

A = TypeVar("A")
T = TypeVar("T")


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
    publishing: Publishing
    sheet: Sheet | None
    tracing: Tracing | None
    _schedules: dict[str, Definition]
    _hear_fired: Callable[[Fired], None] | None
    _sinks: list[Sink]
    _around: list[Around]

    # -- made when they are first used

    @property
    def operations(self) -> Operations: ...
    @property
    def orchestrations(self) -> Orchestrations: ...
    @property
    def requests(self) -> Requests: ...
    @property
    def breakers(self) -> Breakers: ...
    @property
    def brokers(self) -> Brokers: ...
    @property
    def _declaring(self) -> Declaring: ...
    @property
    def _recurring(self) -> Schedules: ...
    @property
    def _by_hand(self) -> ByHand: ...


class Late(Generic[A, T]):
    """Makes a part of an application when it is first used: a decorator of the method that makes it.

    The part is kept among the attributes of the application, where Python finds it from then on. Two threads may make
    one at the same time; `setdefault` gives both the one that was there first.
    """

    def __init__(self, make: Callable[[A], T]) -> None:
        self._make, self._name, self.__doc__ = make, make.__name__, make.__doc__

    @overload
    def __get__(self, app: None, kind: type[A]) -> Self: ...
    @overload
    def __get__(self, app: A, kind: type[A]) -> T: ...
    def __get__(self, app: A | None, kind: type[A]) -> Any:
        return self if app is None else vars(app).setdefault(self._name, self._make(app))
