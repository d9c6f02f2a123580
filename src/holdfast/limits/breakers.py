"""Circuit breakers: while a dependency is broken, no process calls it, on any machine.

    llm = app.breaker("llm")

    with llm: ...            async with llm: ...            @llm            llm.call(ask, "why?")

A call is let through, or `CircuitOpen` is raised at once and nothing is called. Exceptions of the call are passed on.
`rules.breaker` decides what a breaker does, `rules.blame` which exceptions are failures; `circuits` shares the state.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection, Generator
from concurrent.futures import Future, wait
from contextvars import ContextVar
from functools import wraps
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, Unpack, cast

from ..errors import InvalidSettings, StoreUnavailable, UsageError
from ..model import names
from ..model.message import Reason
from ..rules.blame import FAILURES, ending_of, is_ours, mark_trial, result_of
from ..rules.breaker import BAD, VOID, BreakerOptions, Policy
from ..rules.classify import classify
from ..rules.describing import storable
from ..store import Store
from ..store.plans.breakers import Change
from ..telemetry.logs import Log
from .circuits import BELIEVED, PATIENCE, BreakerChanged, Called, Circuit, Circuits, DecideSwitch, Note

__all__ = ["Breaker", "BreakerChanged", "Breakers", "ending_of"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Steps = Generator["Future[Any]", None, T]  # the futures that a caller waits for, blocking or not
Counts = (
    type[BaseException]
    | tuple[type[BaseException], ...]
    | Collection[Reason]
    | Callable[[BaseException], bool]
)

WHY_CHARS = 200

log = Log("holdfast.breakers")


class Permit:
    """One call that was let through, from its beginning to its end."""

    __slots__ = ("began_at", "breaker", "called", "has_failed", "is_over", "outer")

    def __init__(self, breaker: Breaker, called: Called, outer: Permit | None = None) -> None:
        self.breaker, self.called, self.outer = breaker, called, outer
        self.began_at = breaker.circuit.home.monotonic()
        self.has_failed = False  # a call inside this one failed
        self.is_over = False


_inside: ContextVar[tuple[Permit, ...]] = ContextVar("holdfast_breakers", default=())


class Breaker:
    """One dependency's breaker: a context manager and a decorator, for blocking and for async code."""

    def __init__(self, circuit: Circuit, counts: Counts | None) -> None:
        self.circuit, self.counts = circuit, counting(counts)

    def __repr__(self) -> str:
        return f"<Breaker {self.name}: {self.circuit.known.state}>"

    @property
    def name(self) -> str:
        return self.circuit.name

    @property
    def policy(self) -> Policy:
        return self.circuit.policy

    def __enter__(self) -> Breaker:
        _push(_drive(self._entering()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _drive(self._leaving(error))

    async def __aenter__(self) -> Breaker:
        _push(await _adrive(self._entering()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _adrive(self._leaving(error))

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """The same function, behind this breaker: `@llm`."""
        if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
            raise UsageError(f"{function!r} yields: put `with breaker:` around what it calls instead.")
        return self.guard(function, is_async=inspect.iscoroutinefunction(function))

    def call(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function behind this breaker; await the answer of an async one."""
        return self(function)(*args, **kwargs)

    def guard(
        self, function: Callable[P, R], *, is_async: bool, timeout: float | None = None
    ) -> Callable[P, R]:
        """The same function, behind this breaker. A call that is cancelled after `timeout` seconds has failed."""
        if is_async:

            @wraps(function)
            async def aguarded(*args: P.args, **kwargs: P.kwargs) -> Any:
                _push(await _adrive(self._entering()))
                try:
                    answer = await cast(Awaitable[Any], function(*args, **kwargs))
                except BaseException as error:
                    await _adrive(self._leaving(error, timeout))
                    raise
                await _adrive(self._leaving(_wish(answer)))
                return answer

            return cast(Callable[P, R], aguarded)

        @wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
            _push(_drive(self._entering()))
            try:
                answer = function(*args, **kwargs)
            except BaseException as error:
                _drive(self._leaving(error, timeout))
                raise
            _drive(self._leaving(_wish(answer)))
            return answer

        return guarded

    # -- how a call begins and ends

    def _entering(self) -> Steps[Permit]:
        circuit = self.circuit
        outer = _outer(self)
        # A handler with a breaker that also uses it for its call: that counts as one call.
        if outer is not None:
            return Permit(self, Called(outer.called.era, trial=False), outer)
        circuit.home.notice_change()
        age = circuit.age
        if age >= BELIEVED and (looking := circuit.look()) is not None and age >= 2 * BELIEVED:
            yield looking  # frequent callers need not wait: their knowledge is recent
            _raise(looking)
        room = circuit.room(circuit.home.monotonic())
        if room is None:
            return Permit(self, Called(circuit.known.era, trial=False))
        if room == 0:
            raise circuit.refusal()
        called = yield from self._taking()
        if called is None:
            raise circuit.refusal()
        return Permit(self, called)

    def _taking(self) -> Steps[Called | None]:
        taking = self.circuit.take()
        try:
            yield taking
            _raise(taking)
            return taking.result() if taking.done() else None
        finally:
            if not taking.done():  # the caller no longer waits for it
                taking.add_done_callback(self.circuit.give_back)

    def _leaving(self, error: BaseException | None, timeout: float | None = None) -> Steps[None]:
        permit = _pop(self)
        if permit is None:  # entered in another context: it is not known which call this was
            return
        permit.is_over = True
        result = self._result(error, permit, timeout)
        if permit.outer is not None:
            permit.outer.has_failed |= result == BAD
            return
        circuit, seconds, why = self.circuit, None, None
        if error is not None and result == BAD:
            seconds = classify(error, now=circuit.now()).retry_after
            is_timeout = isinstance(error, asyncio.CancelledError)
            why = "out of time" if is_timeout else storable(type(error).__name__, WHY_CHARS)
        writing = circuit.count(permit.called, result, seconds, why)
        if writing is not None:
            yield writing
            if writing.done() and (failure := writing.exception()) is not None:
                log.error(
                    "breaker.unwritten",
                    "Breaker %(breaker)s could not be written: %(error)s",
                    breaker=self.name,
                    error=failure,
                )
        if permit.called.trial and result == BAD and error is not None:
            mark_trial(error, circuit.refusal().retry_in)

    def _result(self, error: BaseException | None, permit: Permit, timeout: float | None) -> str:
        if permit.has_failed:
            return BAD
        if isinstance(error, asyncio.CancelledError) and timeout is not None:
            # The timeout was started a moment before the call.
            is_late = self.circuit.home.monotonic() - permit.began_at >= 0.9 * timeout
            return BAD if is_late else VOID
        counts = error is not None and not is_ours(error) and self.counts(error)
        return result_of(error, counts)


class Breakers:
    """All breakers of an application, for the code that calls. Operators have `operations.breakers`.

    `store` may be a function that returns it, for an application whose store changes (in tests).
    """

    def __init__(self, store: Store | Callable[[], Store]) -> None:
        self._circuits = Circuits(store if callable(store) else lambda: store)
        self._breakers: dict[str, Breaker] = {}

    def get(self, name: str, *, counts: Counts | None = None, **options: Unpack[BreakerOptions]) -> Breaker:
        """The breaker of this name. Options: those of `rules.breaker.Policy`, and `counts`: what is a failure."""
        there = self._breakers.get(name)
        if there is None:
            circuit = Circuit(names.own_name(name, "The breaker"), Policy().but(**options), self._circuits)
            there = self._breakers[name] = Breaker(circuit, counts)
            self._circuits.known[name] = circuit
        elif counts is not None or (options and Policy().but(**options) != there.policy):
            raise InvalidSettings(
                f"Breaker {name!r} is declared already: give its options once, the first time."
            )
        return there

    def listen(self, listener: Callable[[BreakerChanged], None]) -> None:
        """Register a function to call when this process changes a breaker's state: for alerts."""
        self._circuits.listeners.append(listener)

    def close(self) -> None:
        """Hand in what is left, and end the thread that talks to the store."""
        self._circuits.close()

    def __contains__(self, name: str) -> bool:
        return name in self._breakers

    def command(self, name: str, decide: DecideSwitch, note: Note) -> Change:
        """Change a breaker on an operator's command. `note` writes in the same transaction."""
        change = self._circuits.change(name, Policy(), decide, note)
        if not change.done:
            raise StoreUnavailable(
                f"Breaker {name} was not changed: other processes kept changing it. Try again."
            )
        if name in self._breakers:
            self._breakers[name].circuit.learn(change.after, change.now)
        return change


def counting(counts: Any) -> Callable[[BaseException], bool]:
    """Which exceptions count as failures: exception types, reasons, or a function. None: the default."""
    if counts is None:
        return lambda error: classify(error).reason in FAILURES
    kinds = (counts,) if isinstance(counts, type) else counts
    if isinstance(kinds, tuple) and all(
        isinstance(each, type) and issubclass(each, BaseException) for each in kinds
    ):
        return lambda error: isinstance(error, kinds)
    if callable(counts) and not isinstance(counts, type):
        return lambda error: bool(counts(error))
    if isinstance(counts, Collection) and all(isinstance(each, Reason) for each in counts):
        return lambda error: classify(error).reason in counts
    raise InvalidSettings(
        f"counts={counts!r} must be exception types, Reasons, or a function of the exception."
    )


# --- Waiting, blocking or not -----------------------------------------------------------------------------------------


def _drive(steps: Steps[T]) -> T:
    try:
        while True:
            wait([next(steps)], timeout=PATIENCE)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()


async def _adrive(steps: Steps[T]) -> T:
    try:
        while True:
            waited = asyncio.wrap_future(next(steps))
            await asyncio.wait([waited], timeout=PATIENCE)
            if waited.done() and not waited.cancelled():
                waited.exception()  # the result is read from the future itself
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()


def _raise(future: Future[Any]) -> None:
    """Raise errors about the call itself, or about the tables, in the caller."""
    if future.done() and not future.cancelled() and (error := future.exception()) is not None:
        raise error


# --- Calls inside calls -----------------------------------------------------------------------------------------------


def _outer(breaker: Breaker) -> Permit | None:
    return next((each for each in _inside.get() if each.breaker is breaker and not each.is_over), None)


def _push(permit: Permit) -> None:
    _inside.set((*_inside.get(), permit))


def _pop(breaker: Breaker) -> Permit | None:
    """The permit of the call that ends: the last one of this breaker in this context."""
    held = _inside.get()
    for n in range(len(held) - 1, -1, -1):
        if held[n].breaker is breaker:
            _inside.set((*held[:n], *held[n + 1 :]))
            return held[n]
    return None


def _wish(answer: object) -> BaseException | None:
    """A handler that returns Snooze or Dead does not show that its dependency works."""
    return answer if isinstance(answer, Exception) and is_ours(answer) else None
