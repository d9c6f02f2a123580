"""How a handler settles its message together with its own writes: both are committed, or neither is.

A message that follows others in a run is covered by the lease of the run's head. So what has ended before it in the
lane is settled in the same transaction, and the lease moves on to the message behind it.

Whether the user's own transaction was committed is known only to the user. So when the handler has ended, the store
is asked for the lease: if it moved on or is gone, the transaction was committed; if unchanged, it was rolled back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Never, TypeVar

from ..bodies.drafts import Draft
from ..clock import Clock, DatabaseTime
from ..errors import CommitRefused, HoldfastError, LeaseLost, StoreUnavailable, UsageError
from ..handlers.consumer import Consumer, ReportsProgress
from ..handlers.context import Context, Transaction
from ..model.progress import Progress
from ..rules import delivery
from ..rules.delivery import Ending, conclude
from ..rules.lanes import Completion, Lane, stamped
from ..rules.pacing import Pacing
from ..store import Store
from ..store.plans import engine
from ..store.recognise import recognise
from ..store.statement import Plan
from ..telemetry.logs import Log
from .progress import ProgressNotes

log = Log("holdfast.worker")

T = TypeVar("T")

LOOK_AGAIN = (
    0.05  # seconds between looks at a transaction that is still open, or a database that does not answer
)


class RolledBack(HoldfastError):
    """The message was completed in a transaction that was then rolled back, and the handler raised no error."""


@dataclass(slots=True)
class Note:
    """What the worker keeps on a context whose message its handler completes."""

    completion: Completion
    committed: bool = False  # otherwise it is not known
    lost: bool = False  # there was no lease under which it could be settled


class Completions:
    """Settling by a handler through its context, for one worker."""

    def __init__(
        self,
        store: Store,
        pacing: Pacing,
        consumers: Mapping[str, Consumer],
        clock: Clock,
        time: DatabaseTime,
        draft: Draft,
        landed: asyncio.Event,
    ) -> None:
        self.store, self.pacing, self.consumers = store, pacing, consumers
        self.clock, self.time, self.draft = clock, time, draft
        self.landed = landed  # no exchange is on its way
        self.loop: asyncio.AbstractEventLoop | None = None
        self.progress = ProgressNotes()

    def progressed(self, ctx: Context, progress: Progress) -> None:
        consumer, message = self.consumers[ctx.queue], ctx.leased.message
        if not isinstance(consumer, ReportsProgress):
            raise UsageError(f"Handler {ctx.queue!r} is not an activity: nobody would see its progress.")
        self.progress.report(
            (message.seq, ctx.leased.epoch), lambda: consumer.progress_text(message.id, progress)
        )

    # -- in the user's transaction

    def complete(self, ctx: Context, on: object) -> None:
        handle = recognise(on)
        if self._on_loop() and not self.store.has_one_writer:
            raise UsageError(
                "ctx.complete(...) blocks: in an async handler write `await ctx.acomplete(...)` with an async "
                "connection or session, or make it a def handler."
            )
        # SQLite has one writer, which may be the user's open transaction: then no exchange in flight can finish.
        note = self._open_from_anywhere(ctx, wait=not self.store.has_one_writer)
        try:
            handle.run(self.store.bound(self._plan(ctx, note)), verb="complete")
        except BaseException as error:
            self._call(self._undo, ctx, note)
            raise _in_our_words(ctx, note, error) from error

    async def acomplete(self, ctx: Context, on: object) -> None:
        handle = recognise(on)
        note = await self._open(ctx, wait=not self.store.has_one_writer)
        try:
            await handle.arun(self.store.bound(self._plan(ctx, note)), verb="acomplete")
        except BaseException as error:
            self._undo(ctx, note)
            raise _in_our_words(ctx, note, error) from error

    # -- in the engine's own

    def transaction(self, ctx: Context, kind: type[Any] | None) -> Transaction[Any]:
        return _Transaction(lambda: self._transaction(ctx, kind), lambda: self._atransaction(ctx, kind))

    @contextmanager
    def _transaction(self, ctx: Context, kind: type[Any] | None) -> Iterator[Any]:
        if self._on_loop():
            raise UsageError("In an async handler write `async with ctx.transaction() as connection:`.")
        with ExitStack() as held:
            with self._waiting(ctx):
                held.enter_context(self.store.turn())
            note = self._open_from_anywhere(ctx, wait=True)
            settled = False
            try:
                with ExitStack() as transaction:
                    with self._waiting(ctx):
                        connection, run = transaction.enter_context(self.store.transaction())
                    yield _expected(connection, kind)
                    run(self._plan(ctx, note))
                    settled = True
            except BaseException as error:
                if not settled:  # otherwise it may have been committed, and only the answer was lost
                    self._call(self._undo, ctx, note)
                self._raise(ctx, note, error, settled)
            note.committed = True

    @asynccontextmanager
    async def _atransaction(self, ctx: Context, kind: type[Any] | None) -> AsyncIterator[Any]:
        async with AsyncExitStack() as held:
            with self._waiting(ctx):
                await held.enter_async_context(self.store.aturn())
            note = await self._open(ctx, wait=True)
            settled = False
            try:
                async with AsyncExitStack() as transaction:
                    with self._waiting(ctx):
                        connection, run = await transaction.enter_async_context(self.store.atransaction())
                    yield _expected(connection, kind)
                    await run(self._plan(ctx, note))
                    settled = True
            except BaseException as error:
                if not settled:
                    self._undo(ctx, note)
                self._raise(ctx, note, error, settled)
            note.committed = True

    def _raise(self, ctx: Context, note: Note, error: BaseException, settled: bool) -> Never:
        """The error that leaves the block. A user's error is never hidden by one of ours."""
        if isinstance(error, CommitRefused) and (own := error.during) is not None:
            error.__context__ = None  # our error is now a note on theirs
            own.add_note(f"While it was handled: {error}")
            raise own
        lane = _lane(ctx)
        is_lapsed = lane.lost or self.clock.monotonic() > lane.leased_until
        if isinstance(error, StoreUnavailable) and not settled and is_lapsed:
            # This process was stopped for longer than its lease, and the server has ended its transaction.
            raise _lease_lost(ctx) from error
        ours = _in_our_words(ctx, note, error)
        if ours is error:
            raise error
        raise ours from error

    @contextmanager
    def _waiting(self, ctx: Context) -> Iterator[None]:
        """The handler's time limit does not run while it waits for others to end their transactions."""
        lane = _lane(ctx)
        lane.waits_since = since = self.clock.monotonic()
        try:
            yield
        finally:
            if lane.waits_since == since:
                lane.started_at += self.clock.monotonic() - since
                lane.waits_since = None

    # -- opening and undoing, on the worker's loop

    async def _open(self, ctx: Context, *, wait: bool) -> Note:
        lane = _lane(ctx)
        while wait and lane.handed and not lane.lost:
            # An exchange in flight settles the messages before this one: their lease moves when it is done.
            await self.landed.wait()
        return self._open_now(ctx)

    def _open_now(self, ctx: Context) -> Note:
        lane = _lane(ctx)
        ctx._refuse_when_completed("complete")
        if lane.lost or lane.running is not ctx.leased:
            raise _lease_lost(ctx)
        note = Note(self.pacing.open_completion(lane))
        ctx._completion = note
        return note

    def _undo(self, ctx: Context, note: Note) -> None:
        ctx._completion, ctx._is_settled = None, False
        self.pacing.undo_completion(_lane(ctx), note.completion)

    def _open_from_anywhere(self, ctx: Context, *, wait: bool) -> Note:
        if self._on_loop():
            return self._open_now(ctx)
        return self._result(self._open(ctx, wait=wait))

    def _on_loop(self) -> bool:
        try:
            return asyncio.get_running_loop() is self.loop
        except RuntimeError:
            return False

    def _result(self, coroutine: Coroutine[Any, Any, T]) -> T:
        assert self.loop is not None
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        if self._on_loop():
            function(*arguments)
        elif self.loop is not None:
            # The thread continues only when that is done: its next steps depend on it.
            self._result(_as_coroutine(function, *arguments))

    # -- settling

    def _plan(self, ctx: Context, note: Note) -> Plan[None]:
        """Settle under the lease that is valid. If there is none, the transaction must not be committed."""
        ctx._settle()
        lane, leased, completion = _lane(ctx), ctx.leased, note.completion
        ran = lane.ran(self.clock.monotonic())
        ending = delivery.Returned(ctx._flags, tuple(ctx._emits), ran, ctx._delta)
        settlement = conclude(
            leased, ending, self.consumers[leased.message.queue].policy, self.time.now(), 0.0
        )
        assert settlement is not None
        for fence, before in completion.ways:
            moves = [] if completion.after is None else [(fence[0], completion.after[0])]
            settlements = [*before, *stamped(fence, [settlement])]
            held = yield from engine.settle(settlements, moves)
            if leased.message.seq in held:
                return
        note.lost = True
        yield from engine.refuse()
        raise _lease_lost(ctx)

    # -- when the handler has ended

    async def verify(self, ctx: Context, ending: Ending) -> Ending | None:
        """How the attempt ended, if it was not settled by the handler; None if it was."""
        note, lane = ctx._completion, _lane(ctx)
        if not isinstance(note, Note):
            return ending
        try:
            committed = note.committed or await self._was_committed(lane, note.completion)
        except asyncio.CancelledError:
            # The worker has no more time; the lease shows the next worker what happened.
            self.pacing.lose(lane)
            return delivery.Lost()
        if committed:
            self.pacing.complete(lane, note.completion, lane.ran(self.clock.monotonic()))
            return None
        self._undo(ctx, note)
        if isinstance(ending, delivery.Returned):
            error = RolledBack(
                f"Message {ctx.id} was completed in a transaction that was rolled back, or has not been committed yet "
                "although the handler has returned: commit it, or raise."
            )
            return delivery.Raised(error, ctx._flags, ending.ran)
        return ending

    async def _was_committed(self, lane: Lane, completion: Completion) -> bool:
        seqs = [seq for seq, _ in lane.fences]
        while True:
            try:
                standing, open_ = await self.store.arun(engine.look_at_leases(seqs))
            except StoreUnavailable:
                standing, open_ = set(lane.fences), True
            if not open_:
                before = standing.intersection(fence for fence, _ in completion.ways)
                if not before and completion.after is not None and completion.after not in standing:
                    self.pacing.lose(lane)
                return not before
            if lane.lost or self.clock.monotonic() > lane.leased_until:
                log.error(
                    "transaction.left_open",
                    "The transaction in which a message of %(queue)s was completed is still open",
                    queue=lane.queue,
                )
                self.pacing.lose(lane)
                return True
            await asyncio.sleep(LOOK_AGAIN)


def _lane(ctx: Context) -> Lane:
    lane = ctx._lane
    assert isinstance(lane, Lane)
    return lane


def _lease_lost(ctx: Context) -> LeaseLost:
    return LeaseLost(
        f"The lease of message {ctx.id} in {ctx.queue} is another worker's now: roll your transaction back."
    )


def _in_our_words(ctx: Context, note: Note, error: BaseException) -> BaseException:
    """Each driver has its own error for a transaction that cannot be committed."""
    return _lease_lost(ctx) if note.lost and isinstance(error, Exception) else error


def _expected(connection: Any, kind: type[Any] | None) -> Any:
    """The connection, if it is of the kind that the handler asked for."""
    if kind is None or isinstance(connection, kind):
        return connection
    drivers = next(each for each in type(connection).__mro__ if not each.__module__.startswith("holdfast."))
    wanted, yields = (f"{each.__module__.partition('.')[0]}.{each.__name__}" for each in (kind, drivers))
    raise UsageError(
        f"ctx.transaction({wanted}) asks for a connection that this block does not yield: it yields a {yields}. "
        f"Write ctx.transaction({yields}), or leave the argument out."
    )


async def _as_coroutine(function: Callable[..., None], *arguments: Any) -> None:
    function(*arguments)


class _Transaction(Transaction[Any]):
    """Supports both forms: `with` blocks, `async with` does not."""

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
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        result: bool | None = await self._entered.__aexit__(kind, error, traceback)
        return result
