"""THE loop: exchange, run what came, exchange.

One asyncio loop does everything but two things: the heartbeat has a thread and a connection of its own, so that code
that blocks the loop does not lose its leases; `def` handlers run in threads. What to ask for and hand in is decided
by `rules.pacing`, how an attempt ends by `rules.delivery`; here is only the doing.

A handler that never suspends is run without a task of its own. Its coroutine is stepped once inside a runner; if it
suspends, that runner stays with it and another one takes the next lane.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from .board import Board
from .clock import Clock
from .codec import Unreadable as BodyUnreadable
from .errors import LeaseLost, StoreUnavailable
from .handlers import Context, Dead, Handler, Handlers, Snooze
from .rules import delivery
from .rules.delivery import Ending, conclude, verdict
from .rules.pacing import Lane, Pacing
from .settings import Settings
from .store import Store, plans
from .transactions import Completion
from .work import Batch, Leased, Report, Settlement

log = logging.getLogger("holdfast.worker")

BUSY_TURNS = 20  # turns with work in a row after which publishers need not wake us
IDLE_POLL = 1.0  # how far polling slows down while hints arrive
IDLE_AFTER = 10.0  # seconds without work until then
RECONNECT_MAX = 2.0
STUCK_EXIT = 75  # a thread that cannot be stopped: the supervisor starts another process


class Worker:
    """Drains queues until it is told to stop."""

    def __init__(
        self,
        store: Store,
        handlers: Handlers,
        settings: Settings,
        clock: Clock,
        *,
        completion: Completion,
        queues: Iterable[str] | None = None,
        name: str | None = None,
        board: Board | None = None,
        quarantine: bool = False,
        embedded: bool = True,
        until_idle: bool = False,
        housekeeping: Callable[[], object] | None = None,
    ) -> None:
        self.store, self.settings, self.clock, self.completion = store, settings, clock, completion
        wanted = set(queues) if queues is not None else None
        self.handlers = {h.queue: h for h in handlers if wanted is None or h.queue in wanted}
        self.name = name or f"{socket.gethostname()}:{os.getpid()}"
        self.board, self.quarantine, self.embedded = board, quarantine, embedded
        self.until_idle = until_idle
        self.pacing = Pacing({q: h.concurrency for q, h in self.handlers.items()}, settings, quarantine=quarantine)
        self.timeouts = {q: h.timeout for q, h in self.handlers.items()}
        self.number = 0
        self.stuck: list[Lane] = []
        self._housekeeping = housekeeping
        self._lanes: deque[Lane] = deque()
        self._batches: dict[str, list[Lane]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._task_of: dict[int, asyncio.Task[None]] = {}
        self._contexts: dict[int, Context] = {}
        self._cancelled: set[int] = set()
        self._changed = asyncio.Event()
        self._quit = threading.Event()
        self._threads: ThreadPoolExecutor | None = None
        self._database_now: tuple[datetime, float] | None = None
        self._stop_at: float | None = None
        self._in_flight: set[int] = set()
        self._landed = asyncio.Event()
        self._landed.set()
        self._alone_at = float("-inf")
        self.started = asyncio.Event()

    # -- life

    async def run(self) -> None:
        """Work until `stop` is called and everything in hand has ended or been given back."""
        self._loop = asyncio.get_running_loop()
        await self._register()
        heartbeat = threading.Thread(target=self._beat, name="holdfast-heartbeat", daemon=True)
        heartbeat.start()
        watch = asyncio.create_task(self._watch())
        listen = asyncio.create_task(self.store.listen(self._changed))
        self.started.set()
        try:
            await self._turn_until_stopped()
        finally:
            self._quit.set()
            for task in (watch, listen):
                task.cancel()
            await asyncio.gather(watch, listen, return_exceptions=True)
            await asyncio.to_thread(heartbeat.join)
            if self._threads is not None:
                self._threads.shutdown(wait=False, cancel_futures=True)
        with suppress(StoreUnavailable):
            await self.store.arun(lambda _: plans.retire_worker(self.store.plans, self.number))

    async def _register(self) -> None:
        pause = 0.05
        while True:
            try:
                self.number = await self.store.arun(
                    lambda now: plans.register_worker(self.store.plans, self.name, list(self.handlers), now)
                )
                break
            except StoreUnavailable as error:
                if self.pacing.stopping:
                    raise
                log.warning("The database is not there yet: %s", error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, RECONNECT_MAX)
        if self.board is not None:
            self.board.wipe(self.number)

    def stop(self) -> None:
        """Ask for nothing more, give back what has not started, let the rest end within the grace."""
        if self._stop_at is not None:
            return
        self._stop_at = self.clock.monotonic() + self.settings.grace
        self.pacing.stop()
        self._changed.set()

    # -- the loop

    async def _turn_until_stopped(self) -> None:
        pause, busy, asleep, idle_since = self.settings.poll_min, 0, False, self.clock.monotonic()
        while True:
            now = self.clock.monotonic()
            self._start_lanes()
            if self.pacing.stopping and self._nothing_left():
                await self._settle_stuck()
                return
            if self.embedded and not self.quarantine:
                await self._take_suspect_alone(now)
            idle = self.pacing.idle
            want_asleep = (True if busy == 0 else False if busy >= BUSY_TURNS else None) if not self.quarantine else None
            report = self.pacing.report(
                self.number, now, peek=idle and pause >= self.settings.poll_max,
                asleep=want_asleep if want_asleep is not asleep else None,
            )  # fmt: skip
            self._changed.clear()
            if not report.settlements and not report.want and report.asleep is None:
                await self.store.wait(0.05, self._changed)
                continue
            batch = await self._exchange(report, now)
            if report.asleep is not None:
                asleep = report.asleep
            if batch.work:
                pause, idle_since = self.settings.poll_min, now
                busy = min(busy + 1, BUSY_TURNS)
                await asyncio.sleep(0)
                continue
            if report.settlements:
                # Handlers that ended meanwhile have their results taken at once.
                await asyncio.sleep(0)
                if self.pacing.has_results:
                    continue
            if self.until_idle and self.pacing.idle:
                return
            busy = 0 if idle else busy
            await self._rest(pause, batch, idle and now - idle_since > IDLE_AFTER)
            pause = min(pause * 1.5, self.settings.poll_max)

    async def _rest(self, pause: float, batch: Batch, long_idle: bool) -> None:
        """Sleep until the next look: shorter when something falls due, longer when nothing has come for a while."""
        seconds = IDLE_POLL if long_idle else pause
        if batch.next_due is not None:
            seconds = min(seconds, max(0.0, (batch.next_due - batch.now).total_seconds()) + 0.0005)
        if not self.pacing.has_results:
            await self.store.wait(seconds, self._changed)

    def _nothing_left(self) -> bool:
        lanes = [lane for lane in self.pacing.lanes.values() if lane not in self.stuck]
        return not lanes and not self.pacing.has_results

    async def _exchange(self, report: Report, asked_at: float) -> Batch:
        """One round trip. A database that does not answer is waited for; what it refuses is found by halving."""
        self._in_flight = {s.leased.run for s in report.settlements}
        self._landed.clear()
        pause = 0.05
        try:
            while True:
                try:
                    batch = await self._once(report)
                    break
                except StoreUnavailable as error:
                    log.warning("The database did not answer; trying again in %.2f s: %s", pause, error)
                    self._give_up_after_grace()
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, RECONNECT_MAX)
                    report = await self._reconcile(report)
                    asked_at = self.clock.monotonic()
                except Exception as error:
                    if _is_conflict(error):
                        continue
                    if not report.settlements:
                        raise
                    batch = await self._find_culprit(report, error)
                    break
        finally:
            self._in_flight = set()
            self._landed.set()
        self._received(report, batch, asked_at)
        return batch

    async def _once(self, report: Report) -> Batch:
        return await self.store.arun(lambda now: self.store.plans.exchange(report, now), one=True)

    def _received(self, report: Report, batch: Batch, asked_at: float) -> None:
        self._database_now = (batch.now, asked_at)
        for settlement in report.settlements:
            self._forget(settlement.leased.message.seq)
        if batch.lost:
            self._lose(batch.lost)
        self.pacing.receive(report, batch, asked_at)
        self._start_lanes()

    def _forget(self, seq: int) -> None:
        self._contexts.pop(seq, None)
        if self.board is not None:
            self.board.settled(seq)

    async def _reconcile(self, report: Report) -> Report:
        """After an answer that never came: what still stands was not settled; what we do not know goes back."""
        try:
            standing = await self.store.arun(lambda _: plans.standing(self.store.plans, self.number))
            unsettled = [s for s in report.settlements if (s.leased.run, s.leased.run_epoch) in standing]
            runs = {s.leased.run for s in unsettled}
            for lane in list(self.pacing.lanes.values()):
                if lane.fence not in standing and lane.fence[0] not in {to for run, to in report.moves if run in runs}:
                    self._stop_lane(lane)
                    self.pacing.lose(lane)
            known = [lane.fence[0] for lane in self.pacing.lanes.values()] + list(runs)
            await self.store.arun(lambda now: self.store.plans.recover(now, worker=self.number, known=known))
        except StoreUnavailable:
            return report
        return replace(report, settlements=unsettled, moves=[m for m in report.moves if m[0] in runs])

    async def _find_culprit(self, report: Report, error: Exception) -> Batch:
        """The database refuses a settlement, say for what it emits: hand them in run by run, and fail the one."""
        runs: dict[int, list[Settlement]] = {}
        for settlement in report.settlements:
            runs.setdefault(settlement.leased.run, []).append(settlement)
        lost: set[int] = set()
        now: datetime | None = None
        for run, members in runs.items():
            moves = [move for move in report.moves if move[0] == run]
            part = Report(report.worker, settlements=members, moves=moves, lease=report.lease)
            try:
                batch = await self._once(part)
            except StoreUnavailable:
                raise
            except Exception as refusal:
                log.error("The database refused to settle message %s: %s", members[0].leased.message.id, refusal)
                failed = self._concluded(members[0].leased, delivery.Raised(refusal))
                batch = await self._once(Report(report.worker, settlements=[failed] if failed else []))
                lost.update(s.leased.message.seq for s in members)
            lost |= batch.lost
            now = batch.now
        if now is None:
            raise error
        return Batch(now=now, lost=frozenset(lost))

    # -- lanes and runners

    def _start_lanes(self) -> None:
        for lane in self.pacing.starts():
            handler = self.handlers[lane.queue]
            if handler.batch:
                self._batches.setdefault(handler.queue, []).append(lane)
            elif handler.is_async:
                self._lanes.append(lane)
            else:
                self._spawn(self._run_in_thread(lane, handler))
        self._flush_batches()
        if self._lanes:
            self._spawn(self._run_lanes())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_lanes(self) -> None:
        """A runner: takes one lane after another, until it must stay with a handler that suspends."""
        while self._lanes:
            lane = self._lanes.popleft()
            handler = self.handlers[lane.queue]
            while (leased := self._begin(lane)) is not None:
                ending = self._before(leased, handler)
                if ending is None:
                    ending = await self._call(lane, leased, handler)
                self._end(lane, leased, ending)
        self._changed.set()

    async def _call(self, lane: Lane, leased: Leased, handler: Handler[Any, Any]) -> Ending:
        try:
            arguments, context = self._arguments(leased, handler)
        except BodyUnreadable as error:
            return delivery.Unreadable(error)
        try:
            coroutine = handler.function(**arguments[1]) if not arguments[0] else handler.function(*arguments[0], **arguments[1])
            try:
                yielded = coroutine.send(None)
            except StopIteration as end:
                return self._returned(end.value, context, lane)
            return self._returned(await self._stay(lane, coroutine, yielded), context, lane)
        except asyncio.CancelledError:
            return self._interrupted(lane, leased, handler, context)
        except Exception as error:
            return self._raised(error, context, lane)

    async def _stay(self, lane: Lane, coroutine: Any, yielded: Any) -> Any:
        """Go on with a handler that has suspended; the other lanes get a runner of their own."""
        task = asyncio.current_task()
        assert task is not None
        self._task_of[lane.claimed] = task
        if self._lanes:
            self._spawn(self._run_lanes())
        try:
            return await _Resumed(coroutine, yielded)
        finally:
            del self._task_of[lane.claimed]

    async def _run_in_thread(self, lane: Lane, handler: Handler[Any, Any]) -> None:
        while (leased := self._begin(lane)) is not None:
            ending = self._before(leased, handler)
            if ending is None:
                ending = await self._loop.run_in_executor(self._pool(), self._call_blocking, lane, leased, handler)
            if lane in self.stuck:
                return
            self._end(lane, leased, ending)
        self._changed.set()

    def _call_blocking(self, lane: Lane, leased: Leased, handler: Handler[Any, Any]) -> Ending:
        context: Context | None = None
        try:
            arguments, context = self._arguments(leased, handler)
            return self._returned(handler.function(*arguments[0], **arguments[1]), context, lane)
        except BodyUnreadable as error:
            return delivery.Unreadable(error)
        except Exception as error:
            return self._raised(error, context, lane)
        except BaseException as error:  # SystemExit in a handler's thread must not end silently
            return delivery.Raised(error, _flags(context))

    def _pool(self) -> ThreadPoolExecutor:
        if self._threads is None:
            threads = sum(h.concurrency for h in self.handlers.values() if not h.is_async)
            self._threads = ThreadPoolExecutor(max(1, min(threads, 256)), thread_name_prefix="holdfast-handler")
        return self._threads

    # -- batch handlers

    def _flush_batches(self) -> None:
        for queue, lanes in list(self._batches.items()):
            handler = self.handlers[queue]
            while lanes:
                part, lanes = lanes[: handler.batch], lanes[handler.batch :]
                self._spawn(self._run_batch(part, handler))
            del self._batches[queue]

    async def _run_batch(self, lanes: list[Lane], handler: Handler[Any, Any]) -> None:
        """One message of each lane in one call; the handler answers for all at once, or for each in a list."""
        while lanes:
            started: list[tuple[Lane, Leased, Any, Context]] = []
            for lane in lanes:
                leased = self._begin(lane)
                if leased is None:
                    continue
                ending = self._before(leased, handler)
                if ending is None:
                    try:
                        context = Context(leased, handler.steps, self.completion.bound(self, lane))
                        started.append((lane, leased, handler.decode(leased.message.body), context))
                        continue
                    except BodyUnreadable as error:
                        ending = delivery.Unreadable(error)
                self._end(lane, leased, ending)
            if started:
                endings = await self._call_batch(handler, [s[2] for s in started], [s[3] for s in started], lanes)
                for (lane, leased, _, _), ending in zip(started, endings, strict=True):
                    self._end(lane, leased, ending)
            lanes = [lane for lane, *_ in started]
        self._changed.set()

    async def _call_batch(
        self, handler: Handler[Any, Any], bodies: list[Any], contexts: list[Context], lanes: list[Lane]
    ) -> list[Ending]:
        keywords = {handler.context: contexts} if handler.context else {}
        task = asyncio.current_task()
        assert task is not None
        for lane in lanes:
            self._task_of[lane.claimed] = task
        try:
            if handler.is_async:
                answer = await handler.function(bodies, **keywords)
            else:
                answer = await self._loop.run_in_executor(self._pool(), lambda: handler.function(bodies, **keywords))
        except asyncio.CancelledError:
            return [self._interrupted(lane, c.leased, handler, c) for lane, c in zip(lanes, contexts, strict=False)]
        except Exception as error:
            return [delivery.Raised(error, _flags(context)) for context in contexts]
        finally:
            for lane in lanes:
                self._task_of.pop(lane.claimed, None)
        answers = answer if isinstance(answer, list) and len(answer) == len(bodies) else [answer] * len(bodies)
        return [
            delivery.Raised(each, _flags(context))
            if isinstance(each, Exception) and not isinstance(each, Snooze | Dead)
            else _wish(each, context)
            for each, context in zip(answers, contexts, strict=True)
        ]

    # -- one message

    def _begin(self, lane: Lane) -> Leased | None:
        leased = self.pacing.begin(lane, self.clock.monotonic())
        if leased is not None and self.board is not None:
            self.board.began(leased.message.seq)
        return leased

    def _before(self, leased: Leased, handler: Handler[Any, Any]) -> Ending | None:
        """What is decided before any code of the user runs: poison, a deadline that has passed."""
        message = leased.message
        if leased.attempt > 1 and verdict(leased, handler.policy) is not None:
            log.warning("Message %s is poison: attempt %d of %s", message.id, leased.attempt, handler.queue)
            return delivery.StartsSpent()
        if message.deadline is not None and self._now() > message.deadline:
            return delivery.Expired()
        if log.isEnabledFor(logging.INFO):
            log.info("Handling message %s of type %s in %s", message.id, message.type, handler.queue)
        return None

    def _arguments(self, leased: Leased, handler: Handler[Any, Any]) -> tuple[tuple[tuple[Any, ...], dict[str, Any]], Context | None]:
        positional = (handler.decode(leased.message.body),) if handler.takes_body else ()
        if handler.context is None:
            return (positional, {}), None
        lane = self.pacing.lanes.get(leased.run)
        context = Context(leased, handler.steps, self.completion.bound(self, lane))
        self._contexts[leased.message.seq] = context
        return (positional, {handler.context: context}), context

    def _end(self, lane: Lane, leased: Leased, ending: Ending) -> None:
        if self.board is not None:
            self.board.ended(leased.message.seq)
        settlement = self._concluded(leased, ending)
        if settlement is not None and settlement.error is not None:
            log.warning(
                "Message %s of type %s failed in %s at attempt %d: %s (reason %s)",
                leased.message.id, leased.message.type, lane.queue, leased.attempt, settlement.outcome, settlement.reason,
            )  # fmt: skip
        if isinstance(ending, _Completed):
            self.pacing.end_completed(lane)
            self._forget(leased.message.seq)
        else:
            self.pacing.end(lane, settlement)
        if settlement is None:
            self._forget(leased.message.seq)

    def _concluded(self, leased: Leased, ending: Ending) -> Settlement | None:
        if isinstance(ending, _Completed):
            return None
        return conclude(leased, ending, self.handlers[leased.message.queue].policy, self._now(), self.clock.roll())

    def _returned(self, value: Any, context: Context | None, lane: Lane) -> Ending:
        if context is not None and context.completed:
            return _Completed()
        return _wish(value, context)

    def _raised(self, error: Exception, context: Context | None, lane: Lane) -> Ending:
        if context is not None and context.completed:
            log.error("The handler of message %s raised after it had completed it", context.id, exc_info=error)
            return _Completed()
        if isinstance(error, Snooze | Dead):
            return _wish(error, context)
        if isinstance(error, LeaseLost):
            return delivery.Lost()
        return delivery.Raised(error, _flags(context), self.clock.monotonic() - lane.started_at)

    def _interrupted(self, lane: Lane, leased: Leased, handler: Handler[Any, Any], context: Context | None) -> Ending:
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
        if context is not None and context.completed:
            return _Completed()
        ran = self.clock.monotonic() - lane.started_at
        if lane.lost:
            return delivery.Lost()
        if leased.message.seq in self._cancelled:
            self._cancelled.discard(leased.message.seq)
            return delivery.Cancelled(_flags(context), ran)
        if lane.timeout_told:
            return delivery.TimedOut(handler.timeout, _flags(context), ran)
        return delivery.Interrupted(_flags(context), ran)

    def _now(self) -> datetime:
        assert self._database_now is not None
        instant, at = self._database_now
        return instant + timedelta(seconds=self.clock.monotonic() - at)

    # -- leases

    def _beat(self) -> None:
        """The heartbeat's thread: renew what is held, learn what is lost, and tell the loop."""
        while not self._quit.wait(self.settings.heartbeat):
            self._beat_once()

    def _beat_once(self) -> None:
        asked_at = self.clock.monotonic()
        leases = self.pacing.leases(asked_at, self.timeouts)
        try:
            lost, cancelled = self.store.run(
                lambda now: self.store.plans.renew(self.number, leases, self.settings.lease, now), one=True
            )
        except Exception as error:  # the loop stops what lapses; the next beat tries again
            log.warning("The heartbeat of %s failed: %s", self.name, error)
            return
        with suppress(RuntimeError):  # the loop may have ended meanwhile
            self._loop.call_soon_threadsafe(self._renewed, [f for f in leases if f[0] not in lost], asked_at, lost, cancelled)

    def _renewed(self, kept: list[tuple[int, int]], asked_at: float, lost: set[int], cancelled: set[int]) -> None:
        self.pacing.renewed(kept, asked_at)
        # What the exchange has settled since the heartbeat looked is not lost.
        self._lose({seq for seq in lost if any(lane.fence[0] == seq for lane in self.pacing.lanes.values())})
        for lane in list(self.pacing.lanes.values()):
            if lane.fence[0] in cancelled and lane.running is not None and lane.running.message.seq == lane.fence[0]:
                self._cancelled.add(lane.running.message.seq)
                self._stop_lane(lane)

    def _lose(self, seqs: Iterable[int]) -> None:
        for lane in self.pacing.lost(seqs):
            log.warning("The lease of a message of %s was lost to another worker", lane.queue)
            self._stop_lane(lane)

    def _stop_lane(self, lane: Lane) -> None:
        task = self._task_of.get(lane.claimed)
        if task is not None:
            task.cancel()

    async def _watch(self) -> None:
        """What goes by the clock: timeouts, our own lapses, leases that others let lapse, housekeeping."""
        recover_at = housekeeping_at = self.clock.monotonic()
        step = min(1.0, min(self.timeouts.values(), default=1.0) / 4, self.settings.lease / 4)
        while True:
            await asyncio.sleep(step)
            now = self.clock.monotonic()
            for lane in self.pacing.overdue(now, self.timeouts):
                self._out_of_time(lane)
            for lane in self.pacing.lapsed(now):
                log.warning("A lease of %s could not be renewed in time: its handler is stopped", lane.queue)
                self._stop_lane(lane)
            self._give_up_after_grace()
            if now >= recover_at and not self.quarantine:
                recover_at = await self._recover(now)
            if now >= housekeeping_at and self._housekeeping is not None and not self.quarantine:
                housekeeping_at = now + 60.0
                self._spawn(self._keep_house(self._housekeeping))

    async def _recover(self, now: float) -> float:
        with suppress(StoreUnavailable):
            count = await self.store.arun(lambda at: self.store.plans.recover(at), one=True)
            if count:
                log.warning("%d leases had lapsed: their messages are handed out again, alone", count)
        took = self.clock.monotonic() - now
        return now + max(1.0, 50 * took)

    async def _keep_house(self, housekeeping: Callable[[], object]) -> None:
        try:
            await asyncio.to_thread(housekeeping)
        except Exception as error:  # tried again in a minute; work goes on
            log.warning("Housekeeping failed: %s", error)

    def _out_of_time(self, lane: Lane) -> None:
        if lane.claimed in self._task_of:
            self._stop_lane(lane)
            return
        # A thread cannot be stopped: this worker ends the rest and is replaced.
        log.error("A handler of %s has run for more than %g s in a thread that cannot be stopped", lane.queue, self.timeouts[lane.queue])
        self.stuck.append(lane)
        if not self.embedded:
            self.stop()
            return
        leased = lane.running
        if leased is not None:
            self._end(lane, leased, delivery.TimedOut(self.timeouts[lane.queue], 0, self.timeouts[lane.queue]))
            self.pacing.paces[lane.queue].running -= 1
        self._changed.set()

    async def _settle_stuck(self) -> None:
        settlements = []
        for lane in self.stuck:
            if lane.running is not None:
                ending = delivery.TimedOut(self.timeouts[lane.queue], 0, self.clock.monotonic() - lane.started_at)
                settlement = self._concluded(lane.running, ending)
                if settlement is not None:
                    settlements.append(settlement)
        if settlements:
            await self._once(Report(self.number, settlements=settlements))

    def _give_up_after_grace(self) -> None:
        if self._stop_at is not None and self.clock.monotonic() > self._stop_at:
            for task in list(self._task_of.values()):
                task.cancel()

    async def _take_suspect_alone(self, now: float) -> None:
        """Inside somebody's application there is no quarantine child: at most once a lease, one suspect, alone."""
        if now - self._alone_at < self.settings.lease or self.pacing.stopping or not self.pacing.idle:
            return
        self._alone_at = now
        self.pacing.quarantine = True
        try:
            report = self.pacing.report(self.number, now)
            batch = await self._exchange(report, now)
            while batch.work and not self.pacing.idle:
                await self.store.wait(0.05, self._changed)
                self._changed.clear()
                if self.pacing.has_results:
                    report = replace(self.pacing.report(self.number, self.clock.monotonic()), want=[], total=0)
                    await self._exchange(report, now)
        finally:
            self.pacing.quarantine = False


class _Completed:
    """The handler settled its message itself, in its own transaction."""


class _Resumed:
    """Awaits a coroutine that has been stepped once already and has yielded `yielded`."""

    __slots__ = ("coroutine", "yielded")

    def __init__(self, coroutine: Any, yielded: Any) -> None:
        self.coroutine, self.yielded = coroutine, yielded

    def __await__(self) -> Generator[Any, Any, Any]:
        step: Callable[..., Any]
        value = self.yielded
        while True:
            try:
                sent = yield value
            except BaseException as error:
                step, argument = self.coroutine.throw, error
            else:
                step, argument = self.coroutine.send, sent
            try:
                value = step(argument)
            except StopIteration as end:
                return end.value


def _wish(value: Any, context: Context | None) -> Ending:
    """What a handler's answer means: a wish, or simply done."""
    if isinstance(value, Snooze):
        return delivery.Snoozed(value.delay, _flags(context))
    if isinstance(value, Dead):
        return delivery.Died(value.why, _flags(context))
    if context is None:
        return delivery.Returned()
    return delivery.Returned(context._flags, tuple(context._emits))


def _flags(context: Context | None) -> int:
    return 0 if context is None else context._flags


def _is_conflict(error: Exception) -> bool:
    """A serialization failure or a deadlock: nothing was done, and doing it again is the cure."""
    return getattr(error, "sqlstate", None) in ("40001", "40P01")


