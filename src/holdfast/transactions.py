"""How a handler settles its message together with its own writes: both are committed, or neither is.

A message that follows others in a run is covered by the lease of the run's head. So what has ended before it in the
lane is settled in the same transaction, and the lease moves on to the message behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import LeaseLost, UsageError
from .handlers import Context, Transaction
from .message import NewMessage
from .rules.delivery import Returned, conclude
from .rules.pacing import Lane
from .store import Store
from .store.runners import recognise
from .store.statement import Plan
from .work import Settlement

if TYPE_CHECKING:
    from .worker import Worker

T = TypeVar("T")
Draft = Callable[[str, object, Mapping[str, Any]], NewMessage]


class Completion:
    """Makes what a context needs to publish and to complete, for each message that a worker runs."""

    def __init__(self, store: Store, draft: Draft) -> None:
        self.store, self.draft = store, draft

    def bound(self, worker: Worker, lane: Lane | None) -> LaneSettling:
        return LaneSettling(self, worker, lane)


class LaneSettling:
    """The settling of one lane's running message."""

    __slots__ = ("completion", "lane", "worker")

    def __init__(self, completion: Completion, worker: Worker, lane: Lane | None) -> None:
        self.completion, self.worker, self.lane = completion, worker, lane

    def draft(self, type: str, body: object, options: Mapping[str, Any]) -> NewMessage:
        return self.completion.draft(type, body, options)

    # -- in the user's transaction

    def complete(self, ctx: Context, on: object) -> None:
        handle = recognise(on)
        self._refuse_twice(ctx)
        prefix = self._prefix_from_thread()
        try:
            held = handle.run(self._plan(ctx, prefix), verb="complete")
            self._completed(ctx, held, prefix)
        except BaseException:
            self._call_on_loop(self._restore, prefix)
            raise

    async def acomplete(self, ctx: Context, on: object) -> None:
        handle = recognise(on)
        self._refuse_twice(ctx)
        prefix = await self._prefix()
        try:
            held = await handle.arun(self._plan(ctx, prefix), verb="acomplete")
            self._completed(ctx, held, prefix)
        except BaseException:
            self._restore(prefix)
            raise

    # -- in the engine's own

    def transaction(self, ctx: Context) -> Transaction:
        return _Transaction(lambda: self._transaction(ctx), lambda: self._atransaction(ctx))

    @contextmanager
    def _transaction(self, ctx: Context) -> Any:
        self._refuse_twice(ctx)
        prefix = self._prefix_from_thread()
        try:
            with self.completion.store.transaction() as (connection, run):
                yield connection
                self._completed(ctx, run(self._plan(ctx, prefix)), prefix)
        except BaseException:
            ctx.completed = False
            self._call_on_loop(self._restore, prefix)
            raise

    @asynccontextmanager
    async def _atransaction(self, ctx: Context) -> Any:
        self._refuse_twice(ctx)
        prefix = await self._prefix()
        try:
            async with self.completion.store.atransaction() as (connection, run):
                yield connection
                self._completed(ctx, await run(self._plan(ctx, prefix)), prefix)
        except BaseException:
            ctx.completed = False
            self._restore(prefix)
            raise

    # -- the lane

    def _plan(self, ctx: Context, prefix: list[Settlement]) -> Plan[set[int]]:
        worker, lane, leased = self.worker, self._lane, ctx.leased
        policy = worker.handlers[leased.message.queue].policy
        ran = worker.clock.monotonic() - lane.started_at
        ending = Returned(ctx._flags, tuple(ctx._emits), ran)
        settlement = conclude(leased, ending, policy, worker._now(), 0.0)
        assert settlement is not None
        settlement = worker.pacing.stamped(lane, settlement)
        following = lane.waiting[0].message.seq if lane.waiting and not worker.pacing.stopping else None
        moves = [(lane.fence[0], following)] if following is not None else []
        store = self.completion.store
        return store.plans.settle([*prefix, settlement], moves, store.now())  # type: ignore[arg-type]

    def _completed(self, ctx: Context, held: set[int], prefix: list[Settlement]) -> None:
        if ctx.leased.message.seq not in held:
            raise LeaseLost(
                f"The lease of message {ctx.id} in {ctx.queue} is another worker's now: your transaction is rolled back."
            )
        ctx.completed = True

    @property
    def _lane(self) -> Lane:
        if self.lane is None:
            raise LeaseLost()
        return self.lane

    async def _prefix(self) -> list[Settlement]:
        # An exchange on its way may carry the messages before this one: their lease moves when it lands.
        await self.worker._landed.wait()
        return self.worker.pacing.take_ended(self._lane)

    def _prefix_from_thread(self) -> list[Settlement]:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run_coroutine_threadsafe(self._prefix(), self.worker._loop).result()
        if self._lane.claimed != self._lane.fence[0] or self._lane.ended or not self.worker._landed.is_set():
            raise UsageError("In an async handler use `async with ctx.transaction()` or `await ctx.acomplete(...)`.")
        return []

    def _restore(self, prefix: list[Settlement]) -> None:
        self.worker.pacing.restore_ended(self._lane, prefix)

    def _call_on_loop(self, function: Callable[[list[Settlement]], None], prefix: list[Settlement]) -> None:
        if prefix:
            self.worker._loop.call_soon_threadsafe(function, prefix)

    @staticmethod
    def _refuse_twice(ctx: Context) -> None:
        if ctx.completed:
            raise UsageError(f"Message {ctx.id} has been completed already.")


class _Transaction(Transaction):
    """Enters whichever form is asked for: `with` blocks, `async with` does not."""

    def __init__(
        self,
        blocking: Callable[[], AbstractContextManager[Any]],
        asynchronous: Callable[[], AbstractAsyncContextManager[Any]],
    ) -> None:
        self._blocking, self._asynchronous = blocking, asynchronous
        self._entered: Any = None

    def __enter__(self) -> Any:
        self._entered = self._blocking()
        return self._entered.__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        result: bool | None = self._entered.__exit__(*error)
        return result

    async def __aenter__(self) -> Any:
        self._entered = self._asynchronous()
        return await self._entered.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        result: bool | None = await self._entered.__aexit__(kind, error, traceback)
        return result
