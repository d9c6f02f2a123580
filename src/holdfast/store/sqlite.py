"""SQLite: one writer connection for each process, on a thread of its own, with group commit.

All plans that wait when the thread is free run in one transaction with one fsync; each plan has a savepoint, so that
a failed plan undoes only itself. Two copies of SQLite must not open one file in one process, so this is the
interpreter's own `sqlite3` and nothing else.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, contextmanager, nullcontext
from queue import SimpleQueue
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from ..clock import Clock, micros, wall_clock
from ..errors import NotMigrated, UsageError
from ..settings import Settings
from .connecting_sqlite import as_ours, connect, connect_handed_out, execute, is_locked, is_stale
from .giving_way import GivesWay
from .handed import HandedOut
from .migrate import check_not_newer, latest, migrate
from .plans import engine
from .plans.engine_sqlite import SqliteEngine
from .statement import DATABASE, Bound, Plan, Runnable, Statement, bound, drive

T = TypeVar("T")
Ask = tuple[Runnable[Any], "Future[Any]"]

GROUP_MAX = 64  # plans in one transaction: bounds how long other processes wait
WATCH_STEP = 0.001  # seconds between reads of the file's change counter, at least
WATCH_LOOKS = 25  # in one long wait, at most
WATCH_CLOSELY = 0.1  # seconds: a wait that is not longer


class SqliteStore:
    """A SQLite file, or one in memory, as a store."""

    has_one_writer = True
    is_embedded = True

    def __init__(self, path: str, settings: Settings, clock: Clock) -> None:
        # The absolute path: a process that changes its working directory keeps its database.
        self.path, self.clock = path if path == ":memory:" else os.path.abspath(path), clock
        self._realpath = None if path == ":memory:" else os.path.realpath(path)
        self._ours: set[str] = set()  # names under which connections of the caller have this file
        self.engine = SqliteEngine(settings.errors_kept, self.now)
        self.in_memory = path == ":memory:"
        self._asks: SimpleQueue[Ask | None]
        self._thread: threading.Thread | None
        self._begin_anew()
        self._local = threading.local()
        self._seen: int | None = None

    def now(self) -> int:
        return micros(self.clock.now() or wall_clock())

    @property
    def where(self) -> str:
        return self.path

    def bound(self, plan: Runnable[T]) -> Bound[T]:
        return bound(plan, self.engine, self.now())

    # -- writing

    def run(self, plan: Runnable[T]) -> T:
        """Run a plan in a transaction of its own and block until it is committed."""
        return self._submit(plan).result()

    async def arun(self, plan: Runnable[T]) -> T:
        """Run a plan in a transaction of its own."""
        return await asyncio.wrap_future(self._submit(plan))

    def _submit(self, plan: Runnable[T]) -> Future[T]:
        sys.audit(DATABASE)  # in the thread of the caller: another one runs the plan
        future: Future[T] = Future()
        self._notice_fork()
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._write, args=(self._asks,), name="holdfast-sqlite", daemon=True
                )
                self._thread.start()
            self._giving.begin()
            self._asks.put((plan, future))
        return future

    def _notice_fork(self) -> None:
        # Threads, locks and connections are the parent's: a child needs new ones.
        if self._pid != os.getpid():
            self._begin_anew()

    def _begin_anew(self) -> None:
        self._asks = SimpleQueue()
        self._thread = None
        self._lock = threading.Lock()
        # To write in this process: its thread's, or that of a handler's transaction.
        self._turn = threading.Lock()
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
        self._giving = GivesWay()
        self._aside = ThreadPoolExecutor(1, thread_name_prefix="holdfast-transaction")
        self._idle: list[HandedOut] = []  # for handlers' transactions, of which there is one at a time
        self._pid = os.getpid()

    def _write(self, asks: SimpleQueue[Ask | None]) -> None:
        connection: sqlite3.Connection | None = None
        while (ask := asks.get()) is not None:
            group = [ask]
            while len(group) < GROUP_MAX and not asks.empty():
                if (more := asks.get()) is None:
                    asks.put(None)
                    break
                group.append(more)
            # A caller that gave up waiting before the start is left out; from here on its plan runs in any case.
            group = [each for each in group if each[1].set_running_or_notify_cancel()]
            try:
                connection = connection or connect(self.path)
                with self._turn:
                    self._commit(connection, group)
            except Exception as error:  # every waiter gets it; the thread continues with the next group
                failure = as_ours(error, self.path)
                for _, future in group:
                    if not future.done():
                        future.set_exception(failure)
                connection = self._discard(connection, error)
        if connection is not None:
            connection.close()

    def _commit(self, connection: sqlite3.Connection, group: list[Ask]) -> None:
        connection.execute("begin immediate")
        try:
            results = self._driven(connection, group)
        finally:
            self._giving.end(self._asks.empty())
        connection.execute("commit")
        for future, result, failure in results:
            if failure is not None:
                future.set_exception(failure)
            else:
                future.set_result(result)

    def _driven(
        self, connection: sqlite3.Connection, group: list[Ask]
    ) -> list[tuple[Future[Any], Any, BaseException | None]]:
        results: list[tuple[Future[Any], Any, BaseException | None]] = []
        for plan, future in group:
            connection.execute("savepoint holdfast")
            try:
                result = drive(self.bound(plan), lambda s: execute(connection, s))
            except Exception as error:  # raised to its caller; the work of the others stays
                if not connection.in_transaction:
                    raise  # after a full or broken disk SQLite has rolled back everything
                connection.execute("rollback to holdfast")
                results.append((future, None, as_ours(error, self.path)))
            else:
                results.append((future, result, None))
            connection.execute("release holdfast")
        return results

    def _discard(self, connection: sqlite3.Connection | None, error: Exception) -> sqlite3.Connection | None:
        if connection is None:
            return None
        try:
            if connection.in_transaction:
                connection.execute("rollback")
            if self.in_memory or not is_stale(error):
                return connection
        except sqlite3.Error:
            if self.in_memory:
                return connection
        connection.close()
        return None

    # -- reading

    def read(self, plan: Runnable[T]) -> T:
        """Run a plan that only reads, beside the writer."""
        sys.audit(DATABASE)  # before a connection is opened
        if self.in_memory:
            return self.run(plan)
        connection = getattr(self._local, "reader", None)
        if connection is None or self._local.pid != os.getpid():
            connection = connect(self.path, readonly=True)
            self._local.reader, self._local.pid = connection, os.getpid()
        try:
            return drive(self.bound(plan), lambda s: execute(connection, s))
        except sqlite3.Error as error:
            if is_stale(error):
                self._local.reader = None
                connection.close()
            raise as_ours(error, self.path) from error

    async def aread(self, plan: Runnable[T]) -> T:
        """It does not wait for the writer: readers never do."""
        return await self.arun(plan) if self.in_memory else self.read(plan)

    async def give_way(self) -> None:
        await self._giving.wait()

    def changed(self) -> bool:
        """Whether this or another process has committed since the last call. Costs microseconds."""
        if self.in_memory:
            return True
        connection = getattr(self._local, "watch", None)
        if connection is None or self._local.watch_pid != os.getpid():
            connection = connect(self.path, readonly=True)
            self._local.watch, self._local.watch_pid = connection, os.getpid()
        try:
            (version,) = connection.execute("pragma data_version").fetchone()
        except sqlite3.Error:  # only a hint: the next exchange raises the error
            self._local.watch = None
            return False
        before, self._seen = self._seen, version
        return bool(version != before)

    async def wait(self, seconds: float, woken: asyncio.Event) -> bool:
        """Return after so many seconds, or earlier when woken or after a commit (True). This is only a hint.

        In a long wait, without work, the file is read less often.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        step = WATCH_STEP if seconds <= WATCH_CLOSELY else seconds / WATCH_LOOKS
        while not woken.is_set() and (left := end - loop.time()) > 0:
            try:
                async with asyncio.timeout(min(step, left)):
                    await woken.wait()
            except TimeoutError:
                if self.changed():
                    return True
        return False

    async def listen(self, woken: asyncio.Event, due: asyncio.Event) -> None:
        """Nothing announces commits here, so `wait` watches the file."""

    def elsewhere(self) -> Plan[str | None]:
        """The file of the connection that runs this, if it is another database. One in memory is never shared."""
        files = yield Statement("pragma database_list")
        file = next((file for _, name, file in files if name == "main"), "")
        if file in self._ours:  # resolving links costs more than the rest of this
            return None
        if file and os.path.realpath(file) == self._realpath:
            self._ours.add(file)
            return None
        return file or "a database in memory"

    def is_named_by(self, settings: Mapping[str, Any]) -> bool:
        return self._realpath is not None and os.path.realpath(str(settings.get("NAME"))) == self._realpath

    def is_prepared(
        self,
        subscriptions: Mapping[str, Sequence[str]],
        unordered: Collection[str],
        renamed: Mapping[str, str],
    ) -> bool:
        """Whether tables and subscriptions are there and committed."""

        def look() -> Plan[bool]:
            ((reached,),) = yield Statement("select max(version) from holdfast_schema")
            missing = yield from engine.unsubscribed(subscriptions, unordered, renamed)
            return reached == latest("sqlite") and not any(missing)

        try:
            # Not our reader: it waits for locks, and the caller may hold one.
            with closing(sqlite3.connect(self.path, timeout=0, isolation_level=None)) as connection:
                return drive(self.bound(look()), lambda s: execute(connection, s))
        except sqlite3.Error:
            return False

    # -- a handler's own transaction

    turn = staticmethod(nullcontext)  # there is one writer: `transaction` waits for it
    aturn = staticmethod(nullcontext)

    @contextmanager
    def transaction(self) -> Iterator[tuple[sqlite3.Connection, Callable[[Runnable[Any]], Any]]]:
        """A write transaction of a handler. It blocks all other writers: keep it short."""
        connection = self._begin()

        def run(plan: Runnable[Any]) -> Any:
            connection.take_back()
            return drive(self.bound(plan), lambda s: execute(connection, s))

        try:
            connection.guard.hand_out()
            yield connection, run
            connection.end()
        except sqlite3.Error as error:
            raise self._of_block(connection, error) from error
        finally:
            self._end(connection)

    @asynccontextmanager
    async def atransaction(
        self,
    ) -> AsyncIterator[tuple[sqlite3.Connection, Callable[[Runnable[Any]], Awaitable[Any]]]]:
        """The same for async handlers: waiting for the lock and for the disk does not block the loop."""
        self._notice_fork()
        loop = asyncio.get_running_loop()
        async with self._turns.setdefault(loop, asyncio.Lock()):
            begun = loop.run_in_executor(self._aside, self._begin)
            try:
                connection = await asyncio.shield(begun)
            except asyncio.CancelledError:
                begun.add_done_callback(lambda late: None if late.exception() else self._end(late.result()))
                raise
            try:

                async def run(plan: Runnable[Any]) -> Any:
                    connection.take_back()
                    return drive(self.bound(plan), lambda s: execute(connection, s))

                connection.guard.hand_out()
                yield connection, run
                await _to_the_end(loop.run_in_executor(self._aside, connection.end))
            except sqlite3.Error as error:
                raise self._of_block(connection, error) from error
            finally:
                self._end(connection)

    def _of_block(self, connection: HandedOut, error: sqlite3.Error) -> Exception:
        """The error that leaves a handler's block.

        The block holds our lock, so another lock error is the driver's own.
        """
        if not connection.guard.is_ours and is_locked(getattr(error, "sqlite_errorcode", 0)):
            return error
        return as_ours(error, self.path)

    def _begin(self) -> HandedOut:
        if self.in_memory:
            raise UsageError(
                "ctx.transaction() needs a database file: one in memory has a single connection."
            )
        self._notice_fork()
        # Waiting for our own lock is fair and fast; SQLite's waiting for a locked file is neither.
        self._turn.acquire()
        connection: HandedOut | None = None
        try:
            connection = self._idle.pop() if self._idle else connect_handed_out(self.path)
            connection.begin()
            return connection
        except BaseException as error:
            self._turn.release()
            if connection is not None:
                connection.close()
            raise (as_ours(error, self.path) if isinstance(error, sqlite3.Error) else error) from error

    def _end(self, connection: HandedOut) -> None:
        try:
            connection.undo()
            self._idle.append(connection)
        except sqlite3.Error:
            connection.close()
        finally:
            self._turn.release()

    # -- life

    def migration(self) -> Plan[list[int]]:
        return migrate("sqlite")

    def migrate(self) -> list[int]:
        return self.run(self.migration())

    def drop(self) -> None:
        raise UsageError(f"A file is removed, not dropped: {self.where}.")

    def check(self) -> None:
        """Refuse a database without our tables, or with those of another version."""

        def version() -> Plan[int]:
            ((reached,),) = yield Statement("select coalesce(max(version), 0) from holdfast_schema")
            return int(reached)

        try:
            reached = self.run(version())
        except NotMigrated:
            reached = 0
        check_not_newer("sqlite", reached)
        if reached < latest("sqlite"):
            self.migrate()

    def close(self) -> None:
        self._notice_fork()
        with self._lock:
            if self._thread is not None:
                self._asks.put(None)
                self._thread.join()
            self._thread = None
        self._aside.shutdown()
        self._aside = ThreadPoolExecutor(1, thread_name_prefix="holdfast-transaction")
        while self._idle:
            self._idle.pop().close()
        for name in ("reader", "watch"):
            connection = getattr(self._local, name, None)
            if connection is not None:
                connection.close()
                setattr(self._local, name, None)

    async def aclose(self) -> None:
        await asyncio.to_thread(self.close)


async def _to_the_end(doing: asyncio.Future[Any]) -> None:
    """Wait for something that cannot be cancelled, also when the caller is."""
    try:
        await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait([doing])
        raise
