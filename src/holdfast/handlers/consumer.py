"""The interface of what serves a queue in a worker: a handler, a relay, or a turn of an orchestration.

A consumer says which queue it serves (or which family of queues), and under which policy and limits. It is called
through one of three protocols: with one message (SingleConsumer), with many (BatchConsumer), or with whole runs of
streams (RunConsumer). A worker knows nothing else about it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeGuard, runtime_checkable
from uuid import UUID

from ..bodies.keys import Keys
from ..clock import Clock
from ..model.limits import Breaker, Door, SharedRate, SharedSlots
from ..model.progress import Progress
from ..model.work import Leased, Left
from ..rules.catchup import CatchUp
from ..rules.policy import HandlerPolicy
from ..rules.redact import Masking
from .context import Context

if TYPE_CHECKING:
    from ..rules.delivery import Ending


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a queue: in one process, and those that all machines share."""

    concurrency: int  # calls at once in one process; a family's queues share them
    timeout: float
    per_key: int = 0  # of one key at once; 0: any number
    key_of: Callable[[Leased], Hashable] | None = None
    breaker: Breaker | None = None
    rate: SharedRate | None = None
    slots: SharedSlots | None = None
    catch_up: CatchUp | None = None
    ahead: bool = True  # a worker may hold more than it runs, and several messages of one stream at once
    run: int = 1  # more: so many messages of one stream whatever the pace, since one call takes them all
    late: bool = False  # it is called after a deadline, too, and decides itself (TooLate)
    door: Door | None = None

    @property
    def is_gated(self) -> bool:
        """Whether something outside this process decides too what may begin."""
        return any(
            each is not None for each in (self.breaker, self.rate, self.slots, self.catch_up, self.door)
        )


class Consumer(Protocol):
    """Serves a queue, or every queue of a family: that of its own name, and those below it (`name/...`)."""

    @property
    def queue(self) -> str: ...
    @property
    def is_family(self) -> bool: ...
    @property
    def patterns(self) -> tuple[str, ...]: ...  # the subscriptions of its queue
    @property
    def is_ordered(self) -> bool: ...  # whether its queue keeps the order of streams
    @property
    def policy(self) -> HandlerPolicy: ...
    @property
    def masking(self) -> Masking: ...  # of secrets in the texts of errors
    @property
    def keys(self) -> Keys | None: ...  # that open sealed bodies
    @property
    def steps(self) -> Mapping[str, int]: ...
    @property
    def is_async(self) -> bool: ...  # the result of a call is awaited; else it is called in a thread
    @property
    def batch(self) -> int: ...  # messages in one call at most; 0: one, and not as a list

    def limits(self, queue: str) -> Limits:
        """The limits of one of its queues. Must be cheap: it is called for each new queue."""
        ...

    def but(self, policy: HandlerPolicy) -> Self:
        """The same under another policy."""
        ...


@runtime_checkable
class SingleConsumer(Consumer, Protocol):
    """A consumer whose calls get one message each. Its `batch` is 0."""

    @property
    def takes_context(self) -> bool: ...

    def call(self, leased: Leased, context: Context | None) -> Any:
        """Handle one message. `context` is None unless it takes one."""
        ...


@runtime_checkable
class Decoding(Consumer, Protocol):
    """A consumer that wants bodies of a certain form."""

    def decode(self, text: str) -> Any:
        """The decoded body, or codec.Unreadable."""
        ...


@runtime_checkable
class BatchConsumer(Decoding, Protocol):
    """A consumer whose calls get many messages of one queue."""

    def call_batch(self, queue: str, bodies: Sequence[Any], contexts: Sequence[Context]) -> Any:
        """`bodies` are decoded; returns one result for all, or a list with one for each."""
        ...


class Later(Protocol):
    """A run that continues beside its call: the other runs do not wait for it. One of the two methods is called."""

    async def endings(self) -> Sequence[Ending]:
        """How its messages ended. Cancelled when the run is stopped."""
        ...

    def drop(self) -> None:
        """The call was stopped before this run could continue."""
        ...


class Ran(Protocol):
    """What a call with runs can ask and report."""

    def __call__(self) -> float:
        """Seconds since it began."""
        ...

    def began(self, run: Sequence[Leased]) -> None:
        """This run begins now.

        For an `EndsMore`, which takes one run after another: a crash counts for that run alone.
        """
        ...

    def over(self, run: Sequence[Leased]) -> None:
        """It is over, and waits for the other runs to be handed in."""
        ...

    def in_thread(self, function: Callable[[], Any]) -> Awaitable[Any]:
        """The result of a function that blocks, called in one of the worker's threads."""
        ...


@runtime_checkable
class RunConsumer(Consumer, Protocol):
    """A consumer whose calls get whole runs: the head of each lane and the messages behind it. It is async."""

    async def call_runs(
        self, queue: str, runs: Sequence[Sequence[Leased]], ran: Ran
    ) -> Sequence[Sequence[Ending] | Later]:
        """Handle many messages of one queue: at most `batch`, and about 4 MiB, in runs that are each in order.

        Returns how each of them ended, in the same shape. The endings of a run count up to the first after which its
        stream cannot continue; the messages behind that go back unchanged. `ran()` is the seconds since the call began.
        A run that takes long may be answered with a `Later`.
        """
        ...


@runtime_checkable
class EndsMore(RunConsumer, Protocol):
    """A consumer whose dead messages end something more: a turn of an orchestration ends its instance."""

    async def left(self, leased: Leased, ending: Ending) -> Left | None:
        """What to store with this death; None: nothing more, or it is no death. No user code is run."""
        ...

    def left_now(self, leased: Leased, ending: Ending) -> Left | None:
        """The same, for workers written by hand."""
        ...


def ends_more(consumer: Consumer) -> TypeGuard[EndsMore]:
    """isinstance(consumer, EndsMore), found out once for each class: of a protocol it costs as much as a send."""
    return _ends_more(type(consumer))


@lru_cache(maxsize=64)
def _ends_more(kind: type[Consumer]) -> bool:
    return all(callable(getattr(kind, name, None)) for name in ("call_runs", "left", "left_now"))


@runtime_checkable
class ReportsProgress(Consumer, Protocol):
    """A consumer whose function may report its progress: an activity."""

    def progress_text(self, message: UUID, progress: Progress) -> str:
        """As it is stored beside the lease; sealed where the application has keys."""
        ...


@runtime_checkable
class Declared(Consumer, Protocol):
    """A consumer that is only declared: each worker makes its own consumer from it, with its own connections."""

    def for_worker(self, clock: Clock) -> Consumer: ...


@runtime_checkable
class Attended(Consumer, Protocol):
    """A consumer that keeps something running besides its calls, as long as its worker runs: a connection."""

    @property
    def tried(self) -> asyncio.Event:
        """Set after its first try to get ready, whether it succeeded or not."""
        ...

    async def attend(self, changed: asyncio.Event) -> None:
        """Runs until it is cancelled. `changed` is set when there may be more to do."""
        ...
