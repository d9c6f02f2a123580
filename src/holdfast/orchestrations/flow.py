"""`Flow`: what an orchestration has besides asyncio. Everything that it gives is the same in replay.

async def fulfil(order: Order, flow: Flow) -> Shipment:
    async with flow.saga() as undo:
        receipt = await charge(order)
        undo(refund, receipt)
        async with asyncio.timeout(3 * 86_400):
            word = await flow.signal("approved", Approval)
        ...
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from asyncio import events
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from random import Random
from types import TracebackType
from typing import Any, Generic, NoReturn, ParamSpec, TypeVar, get_type_hints, overload
from uuid import UUID, uuid5

from ..bodies.codec import Unreadable, decoder_for
from ..clock import from_micros
from ..errors import InvalidMessage, UsageError
from ..model import names
from ..telemetry.logs import Log
from .failures import ActivityFailed, Failure, UndoFailed, describe
from .host import Host
from .journal import NAMESPACE
from .loop import Loop

P = ParamSpec("P")
A = TypeVar("A")
T = TypeVar("T")
AT_ONCE = 100
_LOGGER = Log("holdfast.flow").logger


class ContinueAsNew(BaseException):
    """Leaves the function of an orchestration that called `flow.again(...)`. Not an Exception, so that few catch it."""


@dataclass(frozen=True, slots=True)
class First(Generic[T]):
    """Which of several was ready first, and its value."""

    name: str
    value: T


class Flow:
    """The instance in hand, for its own code."""

    __slots__ = ("_host", "_log", "_loop", "_random", "_sleeps", "_uuids")

    def __init__(self, host: Host, loop: Loop) -> None:
        self._host, self._loop = host, loop
        self._random: Random | None = None
        self._uuids = self._sleeps = 0
        self._log: FlowLog | None = None

    @property
    def id(self) -> str:
        return self._host.id

    @property
    def execution(self) -> int:
        """Rises with each continue-as-new and each rewind, from 0."""
        return self._host.execution

    @property
    def parent(self) -> str | None:
        """The id of the instance that called this one as a child."""
        return self._host.parent

    @property
    def deadline(self) -> datetime | None:
        """When the instance is cancelled if it has not ended."""
        return self._host.deadline

    @property
    def now(self) -> datetime:
        """The time of what the code was last woken by. It stands while the code runs, and never goes back."""
        return from_micros(self._loop.now)

    @property
    def log(self) -> FlowLog:
        """A logger of the standard library that is silent in replay."""
        if self._log is None:
            self._log = FlowLog(self._host)
        return self._log

    def uuid(self) -> UUID:
        """A new UUID, the same in every replay."""
        self._refuse_outside("flow.uuid")
        self._uuids += 1
        return uuid5(NAMESPACE, f"uuid/{self._uuids}/{self._host.seed}")

    @property
    def random(self) -> Random:
        """A random generator with a seed of the instance."""
        self._refuse_outside("flow.random")
        if self._random is None:
            self._random = Random(self._host.seed)
        return self._random

    async def sleep(self, seconds: float, *, jitter: float = 0.0) -> None:
        """A durable timer. With `jitter=0.1` it takes 90 to 110 % of the time, so that many do not wake together."""
        if not 0 <= jitter < 1:
            raise UsageError(f"flow.sleep needs a jitter from 0 to below 1, not {jitter!r}.")
        self._sleeps += 1
        if jitter:
            drawn = blake2b(f"sleep/{self._sleeps}/{self._host.seed}".encode(), digest_size=6).digest()
            seconds *= 1 + jitter * (int.from_bytes(drawn, "big") / 2**47 - 1)
        await asyncio.sleep(seconds)

    @overload
    def signal(self, name: str, type: type[T]) -> Coroutine[Any, Any, T]: ...
    @overload
    def signal(self, name: str) -> Coroutine[Any, Any, Any]: ...
    async def signal(self, name: str, type: Any = Any) -> Any:
        """The next signal of this name, also one that came before anybody waited. Each is taken once, in order."""
        self._refuse_outside("flow.signal")
        body = await self._host.box(names.text(name, "The signal's name", 200)).take()
        try:
            return None if body is None else decoder_for(type)(body)
        except Unreadable as error:
            raise InvalidMessage(
                f"Signal {name!r} to instance {self.id!r} cannot be read as {type!r}: {error}. "
                "Send another, or widen the type."
            ) from None

    async def first(self, **entries: Awaitable[T]) -> First[T]:
        """Whichever is ready first: `await flow.first(post=post(order), late=flow.sleep(60))`. Others are withdrawn.

        They are started in their order; if one is ready at once, those after it are not started.
        """
        self._refuse_outside("flow.first")
        if not entries:
            raise UsageError(
                "flow.first was called with nothing to wait for: give it at least one name=awaitable."
            )
        woken: asyncio.Future[str] = self._loop.create_future()
        started: dict[str, asyncio.Future[T]] = {}
        waiting = deque(entries.items())
        try:
            while waiting and not woken.done():
                name, entry = waiting.popleft()
                started[name] = self._as_task(entry)
                started[name].add_done_callback(_wakes(woken, name))
                await asyncio.sleep(0)  # until it waits for something
                await asyncio.sleep(0)  # its callback runs one pass later
            name = await woken
            return First(name, started[name].result())
        finally:
            for _, entry in waiting:
                if inspect.iscoroutine(entry):
                    entry.close()
            await _withdraw(started.values())

    async def map(
        self, call: Callable[[A], Awaitable[T]], items: Iterable[A], *, at_once: int = AT_ONCE
    ) -> list[T]:
        """`call` for each item, at most `at_once` at a time. Results in the order of the items.

        The first failure ends it: the calls that run are withdrawn, and the others are not made.
        """
        self._refuse_outside("flow.map")
        if at_once < 1:
            raise UsageError(f"flow.map needs at_once of at least 1, not {at_once!r}.")
        everything = list(items)
        results: dict[int, T] = {}
        left = iter(enumerate(everything))

        async def work() -> None:
            for place, item in left:
                results[place] = await call(item)

        tasks = [self._loop.create_task(work()) for _ in range(min(at_once, len(everything)))]
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            await _withdraw(tasks)
            raise
        return [results[place] for place in range(len(everything))]

    async def as_done(self, entries: Iterable[Awaitable[T]]) -> AsyncIterator[T]:
        """The results of several, in the order in which they are ready. The first failure is raised."""
        self._refuse_outside("flow.as_done")
        ready: asyncio.Queue[asyncio.Future[T]] = asyncio.Queue()
        tasks = [self._as_task(entry) for entry in entries]
        for task in tasks:
            task.add_done_callback(ready.put_nowait)
        try:
            for _ in tasks:
                yield (await ready.get()).result()
        finally:
            for task in tasks:
                task.cancel()

    def saga(self) -> Saga:
        """`async with flow.saga() as undo:` and `undo(refund, receipt)` after each thing that can be undone.

        If the block is left by an exception or by cancellation, everything is undone, the last first. Another
        cancellation does not stop that.
        """
        return Saga(self._loop)

    def once(self, function: Callable[[], T], *, name: str | None = None) -> T:
        """The result of a short side effect, recorded: replay gives the same without calling the function again.

        It runs inside the turn and again if the turn is lost; what takes long or must happen once is an activity.
        """
        if name is None:
            called = str(getattr(function, "__qualname__", type(function).__name__))
        else:
            called = names.text(name, "The name of what flow.once calls", 200)
        recorded = self._host.once(called, function)
        if recorded.failure is not None:
            raise ActivityFailed(called, recorded.failure)
        if recorded.value is None:
            return None  # type: ignore[return-value]
        value: T = decoder_for(_returned(function))(recorded.value)
        return value

    def patched(self, name: str) -> bool:
        """True on the new side of a change: for instances that come here for the first time. Recorded by its name.

        Only in the orchestration's own task: in concurrent ones the order would decide.
        """
        return self._host.patched(names.text(name, "The name of the change", 200))

    def again(self, input: Any = None) -> NoReturn:
        """Continue as new: this execution ends and the next begins with `input` and an empty journal.

        Signals that nobody has taken are kept for it.
        """
        self._host.again(input)
        raise ContinueAsNew

    @property
    def status(self) -> Any:
        """Something for people to see, at most 16 KiB of JSON: `flow.status = {"step": "packing"}`."""
        return self._host.status

    @status.setter
    def status(self, value: Any) -> None:
        self._host.status = value

    @property
    def attributes(self) -> Mapping[str, str]:
        """Names and short texts by which people find the instance: `flow.attributes = {"customer": "17"}`.

        The setter replaces all of them. They are stored as they are, never sealed.
        """
        return self._host.attributes

    @attributes.setter
    def attributes(self, value: Mapping[str, str]) -> None:
        self._host.attributes = value

    def _refuse_outside(self, what: str) -> None:
        if events._get_running_loop() is not self._loop:
            raise UsageError(
                f"{what} of instance {self.id!r} was used outside its own code: only its turns may. "
                "Do not keep a Flow, and do not give it to an activity."
            )

    def _as_task(self, entry: Awaitable[T]) -> asyncio.Future[T]:
        if isinstance(entry, asyncio.Future):
            return entry
        if inspect.iscoroutine(entry):
            return self._loop.create_task(entry)

        async def wait() -> T:
            return await entry

        return self._loop.create_task(wait())


class Saga:
    """What must be undone if something goes wrong."""

    __slots__ = ("_loop", "_undo")

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._undo: list[tuple[str, Callable[[], Awaitable[Any]]]] = []

    def __call__(self, undo: Callable[P, Awaitable[Any]], *args: P.args, **kwargs: P.kwargs) -> None:
        """Call this with these arguments if the block does not end well."""
        name = getattr(undo, "name", None) or getattr(undo, "__qualname__", type(undo).__name__)
        self._undo.append((str(name), lambda: undo(*args, **kwargs)))

    async def __aenter__(self) -> Saga:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, ContinueAsNew) or not self._undo:
            return
        undoing = self._loop.create_task(self._undo_all())
        cancelled: asyncio.CancelledError | None = None
        while not undoing.done():
            try:
                await asyncio.shield(undoing)
            except asyncio.CancelledError as again:  # kept for later: what is begun is undone to its end
                cancelled = again
        failures = undoing.result()
        if failures:
            raise UndoFailed(tuple(failures)) from error
        if cancelled is not None and not isinstance(error, asyncio.CancelledError):
            raise cancelled

    async def _undo_all(self) -> list[tuple[str, Failure]]:
        failures = []
        while self._undo:
            name, undo = self._undo.pop()
            try:
                await undo()
            except Exception as failure:
                failures.append((name, describe(failure)))
        return failures


class FlowLog(logging.LoggerAdapter[logging.Logger]):
    """A logger that says which instance it speaks for, and is silent in replay."""

    def __init__(self, host: Host) -> None:
        super().__init__(_LOGGER, {})
        self._host = host

    def isEnabledFor(self, level: int) -> bool:
        return not self._host.replaying and super().isEnabledFor(level)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        fields = {"instance": self._host.id, "execution": self._host.execution, **(kwargs.get("extra") or {})}
        return msg, {**kwargs, "extra": fields}


class _Here(threading.local):
    """Of each thread: where lines of flow.log are held. A filter for each turn would cost a microsecond."""

    lines: list[logging.LogRecord] | None = None


_here = _Here()


class HeldLines:
    """What is logged by flow.log in this thread while the block runs, until it is known whether it counts."""

    __slots__ = ("_lines",)

    def __enter__(self) -> HeldLines:
        self._lines = _here.lines = []
        return self

    def __exit__(self, *_: object) -> None:
        _here.lines = None

    def release(self) -> None:
        """Log them."""
        for each in self._lines:
            _LOGGER.handle(each)


def _is_said(record: logging.LogRecord) -> bool:
    if _here.lines is None:
        return True
    _here.lines.append(record)
    return False


_LOGGER.addFilter(_is_said)


def _wakes(woken: asyncio.Future[str], name: str) -> Callable[[object], None]:
    def wake(_: object) -> None:
        if not woken.done():
            woken.set_result(name)

    return wake


async def _withdraw(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel what still runs, and wait until it has cleaned up."""
    left = [each for each in tasks if not each.done()]
    for each in left:
        each.cancel()
    if left:
        await asyncio.gather(*left, return_exceptions=True)


def _returned(function: Callable[..., Any]) -> Any:
    try:
        return get_type_hints(function).get("return", Any)
    except Exception:  # no annotations, or such as cannot be resolved: plain JSON then
        return Any
