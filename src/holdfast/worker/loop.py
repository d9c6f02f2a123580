"""The worker's loop: exchange, run what came, exchange.

One asyncio loop does everything but two things: the heartbeat has its own thread and connection, so that code that
blocks the loop does not lose its leases; `def` handlers run in threads. `rules.pacing` decides what to ask for and hand
in, `rules.delivery` how an attempt ends; this module only carries it out.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any

from ..bodies.drafts import Draft
from ..clock import Clock, DatabaseTime
from ..errors import StoreUnavailable
from ..handlers.consumer import Attended
from ..handlers.registry import Handlers
from ..limits.gate import Gate
from ..model.work import Batch, Report
from ..rules import holding
from ..rules.lanes import Pace, Stop
from ..rules.numbers import raised
from ..rules.pacing import Pacing
from ..rules.rhythm import Rhythm
from ..settings import Settings
from ..store import Store
from ..store.plans import engine, sequences
from ..telemetry import Watch
from ..telemetry.logs import Log
from .around import Around
from .attendance import Attendance
from .board import Board
from .calls import Calls
from .drains import Drains
from .endings import Endings
from .exchanges import PAUSE_MAX, PAUSE_MIN, Exchanges
from .heartbeat import Asked, Heartbeat
from .periodic import every, keeping, until
from .role import Duties, Role
from .serving import Serving, served_by
from .standings import reporting, watched
from .suspects import Suspects
from .ticking import Ticking
from .transactions import Completions
from .trouble import Trouble, log_mended

log = Log("holdfast.worker")

FEW = 64  # messages that are started before the next exchange is sent
ASKS_EVERY = 1.0  # seconds after which a busy worker asks in any case: queues may have been paused
HOUSEKEEPING = 60.0
LAST_WORDS = 1.0  # seconds beyond the grace for handing in the last results


class Worker:
    """Drains queues until it is stopped."""

    def __init__(
        self,
        store: Store,
        handlers: Handlers,
        settings: Settings,
        clock: Clock,
        *,
        draft: Draft,
        role: Role,
        duties: Duties,
        queues: Iterable[str] | None = None,
        name: str | None = None,
        board: Board | None = None,
        watch: Watch | None = None,
        around: Sequence[Around] = (),
    ) -> None:
        self.store, self.settings, self.clock = store, settings, clock
        self.name = name or f"{socket.gethostname()}:{os.getpid()}"
        self.board, self.role, self.duties, self.watch = board, role, duties, watch
        self.number = 0
        self.started = asyncio.Event()
        served = served_by(handlers, queues, clock)
        self._attended = [each for each in served if isinstance(each, Attended)]
        watched((*self._attended, *duties.companions), watch)
        paces: dict[str, Pace] = {}
        self.gate = Gate(store, clock, paces, settings.lease, role.quarantine)
        gate = self.gate if any(each.limits(each.queue).is_gated for each in served) else None
        self.pacing = Pacing(
            {}, settings, quarantine=role.quarantine, gate=gate, patient=not role.until_idle, paces=paces
        )
        self.suspects = Suspects(self.pacing, settings.lease, role)
        self.serving = Serving(served, self.gate, self.pacing)
        self.time = DatabaseTime(clock)
        landed = asyncio.Event()
        landed.set()
        consumers = self.serving.consumers
        self.completions = Completions(store, self.pacing, consumers, clock, self.time, draft, landed)
        self.endings = endings = Endings(
            consumers, self.pacing, self.completions, clock, self.time, board, watch
        )
        self.attendance = Attendance(store, settings, self.name, quarantine=role.quarantine)
        endings.lateness.follow(self.attendance, settings.warn_late)
        self.drains = Drains(endings, clock, watch, self.name)
        self._changed, self._stopped = asyncio.Event(), asyncio.Event()
        self.calls = Calls(
            consumers, self.serving.by_call, self.pacing, endings, clock, self._changed, board, watch, around
        )
        self.trouble = Trouble(clock, self.name)
        self._exchanges = Exchanges(
            store, self.pacing, self.calls, endings, clock, self.serving.meet, landed, self._is_patient, self.trouble
        )  # fmt: skip
        self._due = asyncio.Event()  # something was set to a time that the tick does not know
        self.ticking = Ticking({} if role.quarantine else duties.steps, clock, self.pacing.asking.look_anew)
        self._rhythm = Rhythm(settings.poll_min, settings.poll_max, clock.monotonic())
        self._is_hinted = False
        self._has_looked = False  # whether this turn, which may be the last, has looked for what falls due
        self._asked_at = float("-inf")
        self._stop_at: float | None = None
        self._spent: tuple[Report, Batch] | None = None  # freed while the next exchange is in flight

    # -- life

    async def run(self) -> None:
        """Work until `stop` is called and everything in hand has ended or been given back."""
        self.completions.loop = asyncio.get_running_loop()
        await self._register()
        heartbeat = Heartbeat(
            self.store, self.pacing, self.settings, self.clock, self.number, self._on_renewed, self.trouble,
            self.completions.progress,
        )  # fmt: skip
        heartbeat.start()
        beside = [asyncio.create_task(each) for each in self._beside()]
        self.started.set()
        try:
            # Otherwise messages that wait only for a consumer's first connection would be left.
            if self.role.until_idle:
                for each in self._attended:
                    await each.tried.wait()
            await self._turn_until_over()
        except BaseException:
            await self._leave_in_haste()
            raise
        finally:
            heartbeat.stop()
            for task in beside:
                task.cancel()
            await asyncio.wait(beside, timeout=LAST_WORDS / 2)
            await self.calls.close()
            self.ticking.close()
            await asyncio.to_thread(heartbeat.join, LAST_WORDS)
            with suppress(StoreUnavailable, TimeoutError):
                async with asyncio.timeout(LAST_WORDS):
                    await self.attendance.leave(self.number)

    async def _register(self) -> None:
        pause, is_logged = PAUSE_MIN, False
        queues = self.serving.names
        while True:
            try:
                # Before it draws its own number: after a switch-over or a restore, sequences may be behind.
                log_mended(await self.store.arun(sequences.mend(raised, quick=True)))
                self.number = await self.attendance.arrive(queues)
                await self.gate.begin(self.number, queues, self.attendance.back_for)
                break
            except StoreUnavailable as error:
                if self.pacing.stopping:
                    raise
                if not is_logged:
                    log.warning("store.absent", "The database is not there yet: %(error)s", error=error)
                is_logged, self.trouble.error = True, str(error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, PAUSE_MAX)
        if self.board is not None:
            self.board.sign(self.number)
            self.board.turned(self.clock.monotonic())

    def stop(self) -> None:
        """Ask for nothing more, give back what has not started, let the rest end within the grace."""
        if self._stop_at is None:
            self._stop_at = self.clock.monotonic() + self.settings.grace
            self.gate.is_leaving = True
            self.pacing.stop()
            self._changed.set()
            self._stopped.set()

    @property
    def stuck(self) -> bool:
        """Whether a handler runs in a thread that did not end in time."""
        return bool(self.calls.stuck)

    async def announce_stop(self) -> None:
        """Record that this worker stops: its messages do not become suspects, however it ends."""
        with suppress(StoreUnavailable):
            await self.store.arun(engine.announce_stop(self.number))

    async def _leave_in_haste(self) -> None:
        """Cancelled from outside, or after an error: hand in the results once, and give the rest back."""
        self._stop_at = now = self.clock.monotonic()
        self.pacing.stop()
        self.calls.stop_all()
        await self.calls.quiet(LAST_WORDS / 2)
        with suppress(Exception):  # the error that ended the loop is raised instead
            async with asyncio.timeout(LAST_WORDS):
                await self._exchanges.finish()
                await self._exchanges.exchange(self.pacing.report(self.number, now), now)

    # -- the loop

    async def _turn_until_over(self) -> None:
        """Run the loop in a task of its own, so that the wait for its end is bounded."""
        turns, stopped = asyncio.create_task(self._turn()), asyncio.create_task(self._stopped.wait())
        try:
            await asyncio.wait({turns, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not turns.done():
                asyncio.get_running_loop().call_later(self.settings.grace, self.calls.stop_all)
                await asyncio.wait({turns}, timeout=self.settings.grace + LAST_WORDS)
            if not turns.done():
                log.error(
                    "worker.cut_off",
                    "Stopped before everything had ended or been handed in: the remaining leases will expire",
                    worker=self.name,
                )
        finally:
            stopped.cancel()
            if not turns.done():
                turns.cancel()
                await asyncio.wait({turns}, timeout=LAST_WORDS / 2)
        if turns.done() and not turns.cancelled():
            turns.result()

    async def _turn(self) -> None:
        while not (self.pacing.stopping and self.pacing.idle):
            if self.calls.broken is not None:
                raise self.calls.broken
            self._changed.clear()
            await self._tick()
            if self.gate.is_needed:
                self.calls.start()  # a check of slots may take long, and what is not unpacked is not renewed
                await self.gate.look()
                self.calls.start()  # waiting messages may have got a slot or a token
            asked_at = self.clock.monotonic()
            report = self._report(asked_at)
            if report is None:
                self.calls.start()
                await until(self._changed, min(ASKS_EVERY, self.gate.pause, self._ticks_in))
                continue
            try:
                batch = await self._exchange(report, asked_at)
            except StoreUnavailable:
                log.error(
                    "worker.cut_off",
                    "Stopped while the database did not answer: the remaining leases will expire",
                    worker=self.name,
                )
                return
            if self.role.until_idle and self._found_nothing(report, batch):
                return
            await self._rest(report, batch, asked_at)
            self._spent = report, batch
            del report, batch
        await self.ticking.over()

    async def _tick(self) -> None:
        """Run what falls due by the clock, if its time has come. A worker that stops leaves it to others."""
        self._has_looked = self.role.until_idle and self.pacing.idle
        if self._due.is_set() or self._has_looked:
            self._due.clear()
            self.ticking.wake()
        if self.ticking.is_due and not self.pacing.stopping:
            # While handlers run, exchanges go on meanwhile: messages of other queues would wait for what is due.
            is_busy = not self.pacing.idle and (self.pacing.has_arrived or self.pacing.asking.is_running)
            await self.ticking.tick(self._changed.set if is_busy else None)

    @property
    def _ticks_in(self) -> float:
        return ASKS_EVERY if self.pacing.stopping else self.ticking.due_in

    def _found_nothing(self, report: Report, batch: Batch) -> bool:
        if batch.work or not self.pacing.idle or not (self._has_looked and self.ticking.is_quiet):
            return False
        return report.suspects or (self._asked_all(report, batch) and not batch.suspects)

    def _asked_all(self, report: Report, batch: Batch) -> bool:
        """Whether no claimable message can have been missed: every queue was asked, or may not begin anything now."""
        now, asked = self.clock.monotonic(), {want.queue for want in report.want}
        if not all(want.after is None for want in report.want):
            return False
        queues = set(self.serving.own)
        for family in self.serving.families:
            if not any(look.family == family and look.after is None for look in report.looks):
                return False
            queues.update(batch.found[family].queues if family in batch.found else ())
        return all(queue in asked or self.gate.is_shut(queue, now) for queue in queues)

    def _report(self, now: float) -> Report | None:
        """What to hand in and ask for; None if there is neither, and the last exchange was not long ago."""
        claim = self.suspects.may_claim(now, self._asked_at)
        asleep = None if self.role.quarantine else self._rhythm.new_asleep
        last = self.role.until_idle and self.pacing.idle  # the last exchange, if no work comes
        peek = self.role.until_idle or (self.pacing.idle and self._rhythm.peeks)
        report = self.pacing.report(self.number, now, claim=claim, anew=last, peek=peek, asleep=asleep)
        if (
            not report.settlements
            and not report.want
            and not report.looks
            and asleep is None
            and not last  # a step of the tick did something in the last turn: check again for work
            and now - self._asked_at < ASKS_EVERY
        ):
            return None
        return report

    async def _exchange(self, report: Report, asked_at: float) -> Batch:
        self._asked_at = asked_at
        asyncio.get_running_loop().call_soon(self._meanwhile)
        batch = await self._exchanges.exchange(report, asked_at)
        answered_at = self.clock.monotonic()
        self.time.hear(batch.now, answered_at)
        self.endings.lateness.heard(batch.now)
        self.drains.exchanged(report, batch, self.pacing, self.ticking)
        if self.gate.is_needed:
            self.gate.heard_paused(batch.paused)
        if self.watch is not None:
            self.watch.exchanged(report, batch, answered_at - asked_at)
        self._rhythm.stored(report.asleep)
        self.suspects.exchanged(report, batch)
        if self._begins_at_once(batch):
            self.calls.start()
        return batch

    def _begins_at_once(self, batch: Batch) -> bool:
        """Few messages, or all that there are, begin at once. Many begin while the next exchange is in flight.

        That exchange takes as long as they do.
        """
        return len(batch.work) < FEW or self.pacing.asks_in_vain

    def _meanwhile(self) -> None:
        """While an exchange is in flight: begin what has arrived, and free what was handed in before.

        An error here is a bug of the engine, and ends this worker.
        """
        try:
            if self.pacing.has_arrived:
                self.calls.start()
            self._spent = None
        except Exception as error:
            self.calls.broken = error
            self._changed.set()

    async def _rest(self, report: Report, batch: Batch, now: float) -> None:
        if batch.work:
            self._rhythm.work_came(now)
            if self._begins_at_once(batch):
                await asyncio.sleep(0)
            return
        if self._is_hinted:  # something was committed that is no work: perhaps it is due soon
            self._is_hinted = False
            self.ticking.wake()
            return
        if report.settlements:
            # Take the results of handlers that have ended in the meantime.
            await asyncio.sleep(0)
        if self.pacing.has_results:
            return
        due_in = None if batch.next_due is None else (batch.next_due - batch.now).total_seconds() + 0.0005
        seconds = min(self._rhythm.rest(now, self.pacing.idle, due_in), self._ticks_in)
        if report.want or report.looks:
            self._is_hinted = await self.store.wait(seconds, self._changed) or self._is_hinted
        else:  # no free capacity: only the end of a handler matters
            await until(self._changed, seconds)

    # -- leases

    def _on_renewed(self, *news: Any) -> None:
        loop = self.completions.loop
        with suppress(RuntimeError):  # the loop may have ended in the meantime
            assert loop is not None
            loop.call_soon_threadsafe(self._renewed, *news)

    def _renewed(self, asked: Asked, lost: set[int], cancelled: set[int], asked_at: float) -> None:
        self._exchanges.lose(holding.renewed(self.pacing, asked, lost, asked_at))
        for lane, _ in asked:
            following = lane.following
            if following is not None and lane.stop is None and following.message.seq in cancelled:
                self.calls.stop(lane, Stop.CANCELLED)

    # -- periodic work, beside the loop

    def _beside(self) -> list[Coroutine[Any, Any, None]]:
        timeouts = [each.limits(each.queue).timeout for each in self.serving.consumers.values()]
        step = min([ASKS_EVERY, self.settings.lease / 4, *(seconds / 4 for seconds in timeouts)])
        beside = [every(step, self._watch, self.trouble)]
        beside += [each.attend(self._changed) for each in self._attended]
        beside += [each.run(self._stopped) for each in self.duties.companions]
        if not (self.role.quarantine or self.role.until_idle):
            beside += reporting(
                self.store, self.clock, self.number, (*self._attended, *self.duties.companions)
            )
        if not self.role.quarantine:  # the quarantine lives only briefly, and asks all the time
            beside.append(self.store.listen(self._changed, self._due))
            beside.append(every(ASKS_EVERY, self._look_for_lapses, self.trouble))
            if self.duties.housekeeping is not None:
                beside.append(every(HOUSEKEEPING, keeping(self.duties.housekeeping), self.trouble))
        return beside

    async def _watch(self) -> float:
        """Check timeouts, expired leases of our own, and the end of the grace."""
        now = self.clock.monotonic()
        if self.board is not None:
            self.board.turned(now)
        for lane in holding.overdue(self.pacing, now):
            if self.calls.out_of_time(lane) and not self.role.embedded:
                self.stop()  # a process with such a thread is replaced
        for lane in holding.lapsed(self.pacing, now):
            log.warning(
                "lease.lapsed",
                "A lease of %(queue)s could not be renewed in time: its handler is stopped",
                queue=lane.queue,
                worker=self.name,
            )
            self.calls.stop(lane, Stop.LAPSED)
        if self.pacing.has_results:
            self._changed.set()
        if self._stop_at is not None and now > self._stop_at:
            self.calls.stop_all()
        return 0.0

    async def _look_for_lapses(self) -> float:
        """End expired leases of any worker: their messages become suspects."""
        begun, served = self.clock.monotonic(), self.serving
        count = await self.store.arun(engine.recover())
        if count:
            log.warning(
                "leases.recovered",
                "%(count)d leases had expired: their messages are handed out again, alone",
                count=count,
            )
        self.suspects.wait = await self.store.arun(engine.suspects_wait(served.own, list(served.families)))
        if self.board is not None:
            self.board.suspects_wait(self.suspects.wait)
        if (trouble := self.trouble.unreported()) is not None:
            await self.store.arun(engine.note_trouble(self.number, *trouble))
            await self.attendance.back(served.names, self.trouble.waited())
        # A rest of 50 times the duration: this stays a small part of the time.
        return 50 * (self.clock.monotonic() - begun)

    def _is_patient(self) -> bool:
        return self._stop_at is None or self.clock.monotonic() < self._stop_at + LAST_WORDS
