"""One inbox at work, in one worker process: receive, store, commit, acknowledge; in this order, whatever happens.

Nothing is acknowledged before it is stored, and nothing is ever discarded:
- The database is away: what was received is kept and tried again. After a minute everything goes back to the broker, in
  its old place, and is received again when the database answers.
- The database refuses a batch for good: it is halved until the culprit is alone, which becomes a dead letter. If not
  even that can be stored, nothing is acknowledged, and it begins again after a pause.
- The broker is away: it is tried again at once, then after 0.1 s and up to 30 s.
- The inbox is paused, or too much waits to be handled: everything goes back, and the connection stays.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from ..bodies.codec import decode_headers
from ..bodies.keys import Keys
from ..clock import Clock
from ..errors import NotMigrated, StoreUnavailable
from ..model.endpoint import Connected, Endpoint, Standing
from ..model.message import NewMessage, Reason, Stillborn
from ..requests.hooks import Pen
from ..rules.aftermath import HOOK_QUEUE, hook_message
from ..rules.reconnect import STEADY, Attempts, pause
from ..settings import Settings
from ..store import Store
from ..store.moments import moment_of
from ..store.plans import dead, engine, queries
from ..store.statement import Plan
from ..telemetry import Watch
from ..telemetry.logs import Log
from ..telemetry.meter import reason_name
from ..telemetry.wire import ReceivedBatch
from ..transports.contract import Incoming, Receiver, TransportBroken
from .answers import received
from .declared import Inbox
from .reading import SENDER_ID, Reader, Refused

log = Log("holdfast.inbox")

T = TypeVar("T")
Read = tuple[Incoming, NewMessage | Stillborn]  # what arrived, and what is stored of it

BATCH = 1000  # messages that are stored in one commit, at most
SLICE = 250  # messages that are read without a pause: the loop has other work
GATHERS = 0.002  # seconds for which messages may gather while a batch is stored
AWAY = 60.0  # seconds without the database after which the broker gets everything back
LOOKS_EVERY = 1.0  # seconds between two looks whether it is paused
LOOKS_AGAIN = 0.25  # seconds, whether it is time to connect
STORE_PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)


class Away(Exception):
    """The database has been away for long: everything goes back to the broker."""


class Intake:
    """Receives for one inbox until it is stopped."""

    def __init__(
        self,
        inbox: Inbox,
        store: Store,
        settings: Settings,
        keys: Keys | None,
        clock: Clock,
        attempts: Attempts | None = None,
    ) -> None:
        self.inbox, self.store, self.clock, self.keys = inbox, store, clock, keys
        self.reader = Reader(inbox, settings, keys)
        self.receiver: Receiver = inbox.connector.receiver(inbox.source)
        self._stopping = asyncio.Event()
        # When it was asked whether to rest, and what came since.
        self._looked_at, self._stored = float("-inf"), 0
        self._failures = 0  # of the broker, in a row
        self._attempts = attempts or Attempts()
        self._failed_at: float | None = None  # when the broker could not be reached, if that was the last try
        self._state: Connected = "broken"
        self._why: str | None = "it is not open"
        self._since, self._tries = clock.monotonic(), 0
        self._stored_at: float | None = None
        self.watch: Watch | None = None
        self._duplicates, self._refused = 0, Counter[str]()  # of the batch that is being stored

    # -- for operators

    @property
    def endpoint(self) -> Endpoint:
        return self.inbox.endpoint

    def standing(self) -> Standing:
        now = self.clock.monotonic()
        last = None if self._stored_at is None else now - self._stored_at
        return Standing(self._state, now - self._since, self._why, self._tries, last)

    def _become(self, state: Connected, why: str | None = None) -> None:
        if state != self._state:
            self._since, self._tries = self.clock.monotonic(), 0
        self._state, self._why = state, why

    # -- receiving

    async def run(self, stopping: asyncio.Event) -> None:
        """Receive until `stopping` is set. What is received and not stored then, the broker delivers again."""
        self._stopping = stopping
        try:
            while not stopping.is_set():
                try:
                    await self._connected()
                except TransportBroken as error:
                    self._log_broken(error)
                except Exception as error:  # nothing was acknowledged: it begins again
                    log.error(
                        "inbox.failed",
                        "Inbox %(inbox)s begins again: %(error)s",
                        inbox=self.inbox.name,
                        error=error,
                    )
                    self._failures = max(self._failures, 5)
                    self._become("broken", f"{type(error).__name__}: see the log, event inbox.failed")
                seconds = pause(self._failures, self.clock.roll())
                self._failures += 1
                await self._wait_to_try(seconds)
        finally:
            await self.receiver.close()

    async def _wait_to_try(self, seconds: float) -> None:
        """For so long, and until it is this connection's turn; less, if another one has reached the broker."""
        try_at = self.clock.monotonic() + seconds
        while not self._stopping.is_set():
            now = self.clock.monotonic()
            if self._attempts.may_try(now, try_at, self._failed_at):
                return
            await self._sleep(LOOKS_AGAIN if now >= try_at else min(LOOKS_AGAIN, try_at - now))

    def _log_broken(self, error: TransportBroken) -> None:
        if self._state == "open" and self.clock.monotonic() - self._since >= STEADY:
            self._failures = 0
        self._become("broken", error.why)
        self._tries += 1
        if self._failures in (0, 5):  # once when it is lost, once when it stays away
            log.warning(
                "inbox.broken",
                "Inbox %(inbox)s cannot receive from queue %(broker_queue)s: %(error)s",
                inbox=self.inbox.name,
                broker_queue=self.inbox.source.queue,
                error=error.why,
            )

    async def _connected(self) -> None:
        self._attempts.begin(self.clock.monotonic(), self.clock.roll())
        try:
            await self.receiver.open()
        except TransportBroken as error:
            self._failed_at = None if error.everyone else self.clock.monotonic()
            if error.everyone:
                self._attempts.reached(self.clock.monotonic())
            self._log_connected(is_open=False)
            raise
        self._failed_at = None
        self._attempts.reached(self.clock.monotonic())
        self._log_connected(is_open=True)
        self._become("open")
        ahead: Sequence[Read] = ()  # what arrived while the batch before it was stored
        while not self._stopping.is_set():
            if await self._is_held():
                ahead = ()  # the broker gets it back with the rest
                await self._hold()
            batch = ahead or self._read(await self._receive())
            ahead = ()
            if batch:
                self._failures = 0
                with suppress(Away):
                    ahead = await self._keep(batch)

    def _log_connected(self, *, is_open: bool) -> None:
        if self.watch is not None:
            self.watch.connected("inbox", self.inbox.name, is_open=is_open)

    async def _receive(self) -> Sequence[Incoming]:
        """What has come, or nothing after a while, so that a pause is noticed."""
        task = asyncio.ensure_future(self.receiver.receive(SLICE))
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({task, stopped}, timeout=LOOKS_EVERY, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            if not task.done():
                task.cancel()  # what comes at this very moment is not settled, and stays where it is
        try:
            return await task
        except asyncio.CancelledError:
            if (current := asyncio.current_task()) is not None and current.cancelling():
                raise
            return ()

    # -- holding

    async def _is_held(self) -> bool:
        """Whether it is paused or too much waits. Asked once a second, and when half of the backlog was stored since.

        If the database does not answer it is not held: storing then waits for the database.
        """
        now, limit = self.clock.monotonic(), self.inbox.backlog
        is_much = limit is not None and self._stored * 2 >= limit
        if now - self._looked_at < LOOKS_EVERY and not is_much:
            return False
        self._looked_at, self._stored = now, 0
        try:
            return await self._asks_for_rest()
        except Exception:
            return False

    async def _asks_for_rest(self) -> bool:
        if await self.store.arun(queries.is_paused(self.inbox.queue)):
            return True
        limit = self.inbox.backlog
        return limit is not None and await self.store.arun(queries.waiting(limit)) >= limit

    async def _hold(self) -> None:
        """Everything goes back to the broker, the connection stays, until it may receive again."""
        log.info("inbox.held", "Inbox %(inbox)s receives nothing for now", inbox=self.inbox.name)
        await self.receiver.stop()
        self._become("held", "it is paused, or more messages than its backlog wait to be handled")
        while not self._stopping.is_set():
            await self._sleep(LOOKS_EVERY)
            if (broken := self.receiver.broken()) is not None:
                raise TransportBroken(broken.why, everyone=broken.everyone)
            with suppress(StoreUnavailable):
                if not await self._asks_for_rest():
                    break
        if not self._stopping.is_set():
            log.info("inbox.goes_on", "Inbox %(inbox)s receives again", inbox=self.inbox.name)
            await self.receiver.start()
            self._become("open")

    # -- storing

    def _read(self, batch: Sequence[Incoming]) -> Sequence[Read]:
        return [(each, self.reader.read(each)) for each in batch]

    async def _keep(self, batch: Sequence[Read]) -> Sequence[Read]:
        """Store a batch, commit, acknowledge. What arrives meanwhile is read, and is the answer: the next batch.

        If the batch cannot be stored, what came behind it goes back as well: the broker delivers all of it in order.
        """
        self._duplicates, self._refused, began = 0, Counter(), self.clock.monotonic()
        storing = asyncio.ensure_future(self._store(batch))
        ahead: list[Read] = []
        try:
            await self._read_ahead(storing, ahead)
        except TransportBroken:
            ahead.clear()  # it comes again; what is being stored is stored all the same
        except BaseException:
            storing.cancel()
            raise
        try:
            await storing
        except Away:
            if not self._stopping.is_set():
                await self._give_back()  # with what was read ahead
            raise
        self.receiver.settle([incoming for incoming, _ in batch])
        self._stored += len(batch)
        self._stored_at = self.clock.monotonic()
        if self.watch is not None:
            self.watch.received(self._received([made.headers for _, made in batch], self._stored_at - began))
        return ahead

    def _received(self, headers: Sequence[str | None], began: float) -> ReceivedBatch:
        stored = len(headers) - self._duplicates - self._refused.total()
        name, of, queue = self.inbox.name, self.inbox.connector.name, self.inbox.source.queue
        return ReceivedBatch(name, of, queue, stored, self._duplicates, self._refused, began, headers)

    async def _read_ahead(self, storing: asyncio.Future[None], ahead: list[Read]) -> None:
        """Until the batch before is stored, or a whole one has come."""
        room = self.inbox.source.prefetch_bytes // 8
        while not storing.done() and len(ahead) < BATCH and room > 0:
            task = asyncio.ensure_future(self.receiver.receive(min(SLICE, BATCH - len(ahead))))
            both: set[asyncio.Future[Any]] = {task, storing}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                task.cancel()  # nothing was taken yet
                await asyncio.wait({task})
                return
            came = task.result()
            room -= sum(len(each.body) for each in came)
            ahead.extend(self._read(came))
            await asyncio.wait({storing}, timeout=0 if len(came) == SLICE else GATHERS)

    async def _store(self, read: Sequence[Read]) -> None:
        """In order, and all of it or an exception. What the database refuses for good is found by halving."""
        try:
            await self._patiently(read)
        except (StoreUnavailable, NotMigrated, TransportBroken, Away):
            raise
        except Exception as error:
            if len(read) > 1:
                half = len(read) // 2
                await self._store(read[:half])
                await self._store(read[half:])
                return
            ((incoming, made),) = read
            if isinstance(made, Stillborn):
                raise
            refused = Refused(
                Reason.VALIDATION_FAILURE, f"The database refused it: {type(error).__name__}: {error}"
            )
            await self._patiently([(incoming, self.reader.letter(incoming, refused))])

    async def _patiently(self, read: Sequence[Read]) -> None:
        """As long as the database is away, again and again; after a minute the broker gets everything back."""
        messages = [made for _, made in read if isinstance(made, NewMessage)]
        letters = [made for _, made in read if isinstance(made, Stillborn)]
        tries, since = 0, self.clock.monotonic()
        while True:
            try:
                if letters:
                    born = await self.store.arun(bear(letters))
                    self._log_stillborn(born)
                    self._refused.update(reason_name(each.reason) for each in born)
                    self._duplicates += len(letters) - len(born)
                    letters = []
                if messages:
                    self._duplicates += await self._append(messages)
                return
            except Exception as error:
                if not (isinstance(error, StoreUnavailable | NotMigrated) or moment_of(error) is not None):
                    raise
                if tries == 0:
                    log.warning(
                        "inbox.waits",
                        "Inbox %(inbox)s waits for the database, nothing is acknowledged: %(error)s",
                        inbox=self.inbox.name,
                        error=error,
                    )
            if self.clock.monotonic() - since >= AWAY:
                raise Away
            await self._sleep(STORE_PAUSES[min(tries, len(STORE_PAUSES) - 1)])
            tries += 1
            if self._stopping.is_set():
                raise Away  # it is not settled: the broker delivers it again

    async def _append(self, messages: Sequence[NewMessage]) -> int:
        """Store messages, with the results of requests that they bring; how many of them had come before."""
        if self.inbox.resolves is not None:
            return await self.store.arun(received(messages, Pen(self.keys)))
        published = await self.store.arun(engine.append(messages, place=True))
        return sum(each.duplicate for each in published)

    async def _give_back(self) -> None:
        """Once: a broker counts how often it delivers. Then wait until the database answers."""
        log.warning(
            "inbox.gave_back",
            "Inbox %(inbox)s gave everything back to the broker: the database has been away for %(seconds)d s",
            inbox=self.inbox.name,
            seconds=AWAY,
        )
        await self.receiver.stop()
        self._become("held", "the database has been away")
        while not self._stopping.is_set():
            await self._sleep(STORE_PAUSES[-1])
            with suppress(Exception):  # the database is still away
                await self.store.arun(queries.is_paused(self.inbox.queue))
                break
        if not self._stopping.is_set():
            await self.receiver.start()
            self._become("open")

    def _log_stillborn(self, stored: Sequence[Stillborn]) -> None:
        for each in stored:
            log.error(
                "inbox.dead_letter",
                "Inbox %(inbox)s stored message %(request_id)s as a dead letter: %(error)s",
                inbox=self.inbox.name,
                message_id=each.id,
                request_id=_sender_id(each),
                type=each.type,
                reason=each.reason,
                error=each.error,
            )

    async def _sleep(self, seconds: float) -> None:
        await _within(seconds, self._stopping.wait())


def bear(letters: Sequence[Stillborn]) -> Plan[list[Stillborn]]:
    """Store dead letters from the start, and call the application's hook for them, if there is one."""
    stored = yield from dead.bear(letters)
    first = {each.id: each for each in reversed(letters) if each.id in stored}
    if first and HOOK_QUEUE in (yield from queries.queue_names()):
        yield from engine.append([_news(each, stored[each.id].isoformat()) for each in first.values()])
    return list(first.values())


def _news(letter: Stillborn, at: str) -> NewMessage:
    facts = {
        name: getattr(letter, name)
        for name in ("queue", "type", "body", "headers", "subject", "error", "fingerprint")
    }
    facts |= {
        "id": str(letter.id),
        "stream": None,
        "position": None,
        "attempts": 0,
        "created_at": at,
        "died_at": at,
    }
    facts |= {"reason": int(letter.reason), "last_reason": None}
    return hook_message(letter.id, f"{letter.queue}/0/{at}", facts)


def _sender_id(letter: Stillborn) -> str:
    return str(decode_headers(letter.headers).get(SENDER_ID, letter.id))


async def _within(seconds: float, waits: Awaitable[T]) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await waits
