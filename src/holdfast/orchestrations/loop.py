"""The event loop of one instance: real asyncio Tasks and Futures, no selector, no clock, no threads.

Whatever the code sees is decided by the order of arrivals: callbacks run in the order in which they were scheduled,
tasks hash by their creation number (so the sets in which asyncio keeps them have one order), time is that of the last
arrival, and `call_at` asks for a durable timer. The loop runs until nothing is ready, and then the code waits.

A loop runs inside the thread's own one, from a plain callback of it: `enter` makes ours the running one, `leave`
puts the other back. So nothing here is ever awaited by the host.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import events
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import Context, copy_context
from math import isfinite
from typing import Any, NoReturn, TypeVar

import msgspec

from ..telemetry.logs import Log
from ..worker.interrupts import is_ctrl_c
from .budget import Budget, OverBudget
from .host import Host
from .refusals import METHODS, audit, never_due, refuse_callers
from .replay import Stop

log = Log("holdfast.orchestrations")

T = TypeVar("T")
PASSES_MAX = 100_000  # of the loop for one arrival
TASKS, GENERATORS = 16, 16  # that may be held although they have ended
CHECK_EVERY = 64  # callbacks between two looks at whether replay should make room for others
CLOSING_ROUNDS = 100  # in which tasks may refuse to be cancelled
NESTS = sys.version_info < (3, 14)  # whether a task may run inside a task of another loop


class Circles(Exception):
    """The code goes round in circles: it keeps the loop busy for one arrival without end."""


class Handle(msgspec.Struct, eq=False):
    """A callback that waits to be run. A Struct, since one is made at each step."""

    callback: Callable[..., object]
    args: tuple[Any, ...]
    context: Context
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled


class TimerHandle(Handle, kw_only=True):
    """A callback that waits for a durable timer. Cancelling it withdraws the timer."""

    loop: Loop
    at: float
    number: int = 0

    def __post_init__(self) -> None:
        self.number = self.loop.host.timer(round(self.at * 1_000_000), self._fire)

    def _fire(self) -> None:
        self.loop.ready.append(self)

    def when(self) -> float:
        return self.at

    def cancel(self) -> None:
        if not self.is_cancelled:
            self.is_cancelled = True
            self.loop.host.withdraw(self.number)


class NumberedTask(asyncio.Task[T]):
    """A task that hashes by the number of its creation: sets of tasks have the same order in every run."""

    def __init__(
        self, number: int, coro: Coroutine[Any, Any, T], loop: Loop, name: Any, context: Context | None
    ) -> None:
        # asyncio keeps a set of all tasks of the process, where the first tasks of all instances would have one hash:
        # each would be compared with all others. That set keeps the hash that a task has while it is made.
        self._number = id(self)
        super().__init__(coro, loop=loop, name=name or f"task-{number}", context=context)
        self._number = number

    def __hash__(self) -> int:
        return self._number


def _set_aside(
    host: asyncio.AbstractEventLoop | None, task: asyncio.Task[Any] | None
) -> asyncio.Task[Any] | None:
    """Python 3.14 runs no task inside another: while ours run, the host has no task. Returns the one that it had."""
    if host is None:
        return None
    swap: Callable[..., asyncio.Task[Any] | None] = asyncio.tasks._swap_current_task  # type: ignore[attr-defined]
    return swap(host, task)


class Generators:
    """The hooks of async generators in a thread that runs turns: each generator goes to the loop that runs it.

    They stay in place between turns: Python reports each change of them to every audit hook, which is dear. Those of an
    instance are held by its loop, so the garbage collector never hands one to `dropped`.
    """

    __slots__ = ("others",)

    def __init__(self, others: sys._asyncgen_hooks) -> None:
        self.others = others  # of the loop that the thread had before

    def began(self, generator: AsyncGenerator[Any, Any]) -> None:
        loop = events._get_running_loop()
        if isinstance(loop, Loop):
            loop.generators.append(generator)
        elif self.others.firstiter is not None:
            self.others.firstiter(generator)

    def dropped(self, generator: AsyncGenerator[Any, Any]) -> None:
        if self.others.finalizer is not None:
            self.others.finalizer(generator)

    @classmethod
    def install(cls) -> None:
        """Also after another loop has put its own hooks in their place: a loop does that when it begins to run."""
        hooks = sys.get_asyncgen_hooks()
        if type(getattr(hooks.firstiter, "__self__", None)) is not cls:
            own = cls(hooks)
            sys.set_asyncgen_hooks(own.began, own.dropped)


class Loop(asyncio.AbstractEventLoop):
    """See the module. `now` is in microseconds since 1970."""

    refuses = True  # whether `refusals` looks at what is done while this is the running loop

    def __init__(self, host: Host) -> None:
        audit()
        self.host = host
        self.now = 0
        self.ready: deque[Handle] = deque()
        self.stopped = False  # nothing more is run: the code has changed, or its time is spent
        self.tasks: list[NumberedTask[Any]] = []
        self.generators: list[AsyncGenerator[Any, Any]] = []
        self.created = 0
        self._keep = TASKS
        self._passes = 0
        self._outside: tuple[asyncio.AbstractEventLoop | None, asyncio.Task[Any] | None] | None = None

    # --- Running ---

    def enter(self) -> None:
        """Ours is the running loop of this thread from here on."""
        Generators.install()
        host = events._get_running_loop()
        self._outside = (host, None if NESTS else _set_aside(host, None))
        events._set_running_loop(self)

    def step_out(self) -> None:
        """The other one is for a moment: until `step_in`. Not from Python 3.14 on."""
        assert self._outside is not None
        events._set_running_loop(self._outside[0])

    def step_in(self) -> None:
        events._set_running_loop(self)

    def leave(self) -> None:
        """The other one is again."""
        assert self._outside is not None
        host, task = self._outside
        self._outside = None
        events._set_running_loop(host)
        if not NESTS:
            _set_aside(host, task)

    def drain(self, pause: Callable[[], bool] | None = None, budget: Budget | None = None) -> bool:
        """Run until nothing is ready; False: stopped before, because of `pause`. Raises Circles."""
        ready = self.ready
        until_check = CHECK_EVERY
        while ready:
            for _ in range(len(ready)):
                handle = ready.popleft()
                if handle.is_cancelled:
                    continue
                try:
                    handle.context.run(handle.callback, *handle.args)
                except OverBudget:
                    raise
                except Stop:
                    pass  # it is on the script
                except (SystemExit, KeyboardInterrupt) as error:
                    if is_ctrl_c(error):
                        raise
                    # The task has it, too: whoever awaits it decides.
                except BaseException as error:
                    self.call_exception_handler({"message": "a callback failed", "exception": error})
                if self.stopped or (budget is not None and budget.spent):
                    return True
                until_check -= 1
                if not until_check:
                    until_check = CHECK_EVERY
                    if pause is not None and pause():
                        return False
            self._passes += 1
            if self._passes > PASSES_MAX:
                raise self._circles()
        if len(self.tasks) > self._keep or len(self.generators) > GENERATORS:
            self._forget_done()
        return True

    def arrival(self, at: int) -> None:
        """Time goes on, and never back."""
        self.now = max(self.now, at)
        self._passes = 0

    def _circles(self) -> Circles:
        busy = self.ready[0].callback if self.ready else None
        name = getattr(busy, "__qualname__", None) or type(busy).__name__
        return Circles(
            f"The code goes round in circles: {PASSES_MAX:,} passes of the event loop for one arrival; "
            f"last: {name}. Look for `await asyncio.sleep(0)` in a loop, and for a loop that catches "
            "CancelledError inside a cancel scope of anyio, which cancels again in each pass: use asyncio.timeout."
        )

    def _forget_done(self) -> None:
        self.tasks = [each for each in self.tasks if not each.done()]
        self._keep = max(TASKS, 2 * len(self.tasks))
        self.generators = [each for each in self.generators if getattr(each, "ag_frame", None) is not None]

    # --- The end ---

    @property
    def is_alive(self) -> bool:
        """Whether a task or a generator is left that has not ended."""
        return bool(self.generators) or any(not each.done() for each in self.tasks)

    def cancel_all(self, budget: Budget) -> None:
        """Cancel what is left and run it to its end. Tasks and generators may clean up, but not wait."""
        for _ in range(CLOSING_ROUNDS):
            left = [each for each in self.tasks if not each.done()]
            for each in left:
                each.cancel()
            if not left:
                break
            self.arrival(0)
            self.drain(None, budget)
        self.close_generators()

    def forget_tasks(self) -> None:
        """Nothing is run any more, and no task is left for the garbage collector to wake or to report."""
        self.ready.clear()
        for each in self.tasks:
            if not each.done():
                _undead.append(each)
            elif not each.cancelled():
                each.exception()  # read, so that asyncio does not report it
        self.tasks = []

    # --- What asyncio asks of a loop ---

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        handle = Handle(callback, args, copy_context() if context is None else context)
        self.ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        refuse_callers(sys._getframe(1))
        return self._at(self.time() + delay, callback, args, context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        refuse_callers(sys._getframe(1))
        return self._at(when, callback, args, context)

    def _at(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> Handle:
        if not isfinite(when):
            raise never_due()
        own = copy_context() if context is None else context
        return TimerHandle(callback, args, own, loop=self, at=max(when, self.time()))

    def time(self) -> float:
        return self.now / 1_000_000

    def create_future(self) -> asyncio.Future[Any]:
        caller = sys._getframe(1)
        if caller.f_code.co_filename in _WAITING:
            refuse_callers(caller)
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
        **options: Any,
    ) -> NumberedTask[T]:
        refuse_callers(sys._getframe(1))
        if options.get("eager_start"):
            raise METHODS["set_task_factory"].error()
        self.created += 1
        task = NumberedTask(self.created, coro, self, name, context)
        self.tasks.append(task)
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._outside is not None

    def is_closed(self) -> bool:
        return False

    def get_task_factory(self) -> None:
        return None

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Logged without texts, which may hold payloads; once, so not in replay."""
        if self.host.replaying:
            return
        error = context.get("exception")
        log.warning(
            "orchestration.stray_error",
            "Instance %(instance)s: %(what)s (%(kind)s)",
            instance=self.host.id, what=str(context.get("message", "")), kind=type(error).__name__,
        )  # fmt: skip

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    # --- Async generators: held until the instance ends, so that the garbage collector decides nothing ---

    def close_generators(self) -> None:
        """End the generators that are still open, the youngest first. They may clean up, but not wait."""
        for generator in reversed(self.generators):
            closing = generator.aclose()
            try:
                closing.send(None)
            except BaseException:  # noqa: S112 - StopIteration, mostly; whatever it is, the generator has ended
                continue
            closing.close()
        _undead.extend(each for each in self.generators if getattr(each, "ag_frame", None) is not None)
        self.generators = []


# Tasks and generators that catch every cancellation and cannot be ended: kept, so that the garbage collector does not
# wake them.
_undead: list[NumberedTask[Any] | AsyncGenerator[Any, Any]] = []

_WAITING = frozenset((asyncio.tasks.__file__, asyncio.queues.__file__))


def _refused(name: str) -> Callable[..., NoReturn]:
    def method(self: Loop, *args: Any, **options: Any) -> NoReturn:
        raise METHODS[name].error()

    method.__name__ = name
    return method


for _name in METHODS:
    setattr(Loop, _name, _refused(_name))
