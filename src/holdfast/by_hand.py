"""A worker written by hand (`app.process_work_batch`): its needs besides the exchange itself.

It is often the only kind of worker that a database has, so this module does what our own worker does besides its loop.
Expired leases are ended, at most once a second. A message whose last worker vanished is handed out alone: in
a batch of its own, while this process holds nothing else, and until it ends nothing else is handed out. A message that
was started as often as its policy allows becomes a dead letter before the user's code sees it.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from .bodies.keys import Keys
from .clock import Clock, wall_clock
from .errors import BodySealed
from .handlers.consumer import ends_more
from .handlers.registry import Handlers
from .model import names
from .model.message import NewMessage, Reason
from .model.work import Batch, Leased, Report, Settlement, TurnItem, Want
from .orchestrations.leaving import journal_text
from .orchestrations.messages import Pen
from .rules import delivery
from .rules.aftermath import HOOK_QUEUE, AfterDeath
from .rules.numbers import raised
from .rules.overrides import policy_of
from .rules.policy import HandlerPolicy
from .rules.redact import Masking
from .settings import Settings
from .store import Store
from .store.plans import engine, instances, sequences
from .telemetry.logs import Log
from .worker.endings import concluded, with_left
from .worker.ticking import Step, Ticking
from .worker.traces import Traces
from .worker.trouble import log_mended

log = Log("holdfast.worker")

RECOVERS_EVERY = 1.0  # seconds between two searches for expired leases, at least
Lease = tuple[int, int]


class Reported(Exception):
    """A failure that a worker written by hand reports as text."""


class ByHand:
    """The worker of one process: the leases it holds, and whether one of them is that of a suspect."""

    def __init__(
        self,
        store: Store,
        handlers: Handlers,
        settings: Settings,
        clock: Clock,
        masking: Masking,
        keys: Keys | None,
        prepare: Callable[[], None],
        steps: Callable[[], Mapping[str, Step]],
    ) -> None:
        self.store, self.handlers, self.settings, self.clock = store, handlers, settings, clock
        self.masking, self.keys, self.prepare = masking, keys, prepare
        self.steps = steps
        self._ticking: Ticking | None = None  # made at the first look
        self.traces = Traces()
        self.number: int | None = None  # the worker's number; it has one after it has asked for work
        self._lock, self._ticks = threading.Lock(), threading.Lock()
        self._held: dict[Lease, float] = {}  # leases and when they expire; monotonic
        self._asking = 0  # exchanges in flight that may bring ordinary work
        self._alone: Lease | bool = (
            False  # the lease of the suspect that is held, or True while one is asked for
        )
        self._suspects = False  # a suspect waits to be handed out
        self._had_suspect = False  # the last message handed out was a suspect: ordinary work is next
        self._looked_at = float("-inf")

    def process(
        self,
        settlements: Sequence[Settlement],
        want: Mapping[str, int],
        lease: float | None,
        wait: float,
        run: int | None,
    ) -> Batch:
        """Hand in results and get work; while there is none, look again for up to `wait` seconds."""
        report = Report(
            worker=self._registered(),
            settlements=settlements,
            want=[Want(queue, count) for queue, count in want.items()],
            total=self.settings.claim,
            lease=lease or self.settings.lease,
            run=run or self.settings.run,
            bytes_max=self.settings.claim_bytes,
        )
        end = self.clock.monotonic() + wait
        pause = self.settings.poll_min
        batch = self._turn(report)
        while report.want and not batch.work and self.clock.monotonic() < end:
            threading.Event().wait(min(pause, max(0.0, end - self.clock.monotonic())))
            pause = min(pause * 1.5, self.settings.poll_max)
            batch = replace(self._turn(asking(report)), lost=batch.lost)
        if batch.work and any(names.is_versioned(queue) for queue in want):
            batch = replace(batch, turns=self._turns(batch.work))
        return batch

    def _turns(self, work: Sequence[Leased]) -> list[TurnItem]:
        """The runs of instances in this work, each with the journal of its instance."""
        runs: dict[str, list[Leased]] = {}
        for leased in work:
            if leased.message.stream is not None and names.is_versioned(leased.message.queue):
                runs.setdefault(leased.message.stream, []).append(leased)
        pen, found = Pen(self.keys), self.store.run(instances.stands(list(runs)))
        journals = self.store.run(instances.journals(list(found)))
        items = []
        for id, run in runs.items():
            name, _, version = run[0].message.queue.rpartition("@")
            execution = found[id].execution if id in found else 0
            history = tuple(
                _opened(pen, journal_text(id, execution, turn, part), text)
                for turn, part, text in journals.get(id, ())
            )
            items.append(TurnItem(id, name, version, execution, history, tuple(run)))
        return items

    def conclude(self, leased: Leased, ending: delivery.Ending) -> Settlement:
        """How an attempt ended, ready to be handed in."""
        policy = self._policy(leased)
        settlement = concluded(
            leased,
            self.traces.placed(ending),
            policy,
            self.masking,
            self.keys,
            self.traces,
            wall_clock(),
            self.clock.roll(),
        )
        consumer = self.handlers.get(leased.message.queue)
        if (
            consumer is not None
            and ends_more(consumer)
            and (left := consumer.left_now(leased, ending)) is not None
        ):
            settlement = with_left(settlement, left)
        assert settlement is not None
        return settlement

    def done(self, leased: Leased, emits: tuple[NewMessage, ...]) -> Settlement:
        return self.conclude(leased, delivery.Returned(0, emits))

    def failed(
        self, leased: Leased, completed: int, error: str | BaseException, reason: Reason | None
    ) -> Settlement:
        raised = error if isinstance(error, BaseException) else Reported(error)
        return self.conclude(leased, delivery.Raised(raised, completed, reason=reason))

    def release(self, leased: Leased) -> Settlement:
        return delivery.release(leased)

    def give_back(self, leased: Leased, delay: float, refund: bool) -> Settlement:
        return delivery.give_back(leased, delay, refund)

    def _policy(self, leased: Leased) -> HandlerPolicy:
        consumer = self.handlers.get(leased.message.queue)
        if consumer is not None:
            return policy_of(consumer.policy, leased.message.headers)
        after_death = AfterDeath(has_hook=HOOK_QUEUE in self.handlers)
        return HandlerPolicy(
            redact=self.masking.known, after_death=after_death, tracebacks=self.settings.tracebacks
        )

    def _registered(self) -> int:
        if self.number is None:
            self.prepare()
            log_mended(self.store.run(sequences.mend(raised, quick=True)))
            name = f"{socket.gethostname()}:{os.getpid()}:by-hand"
            self.number = self.store.run(engine.register_worker(name, []))
        return self.number

    def _turn(self, report: Report) -> Batch:
        """Look once: for ordinary work, for suspects, or for both, until something is found."""
        if not report.want:
            return self._exchange(replace(report, total=0))
        self._tick()
        self._look(report.want)
        batch: Batch | None = None
        for alone in (False, True) if self._had_suspect else (True, False):
            if alone and not self._suspects:
                continue
            if not self._may_ask(report, alone):
                continue
            if batch is None:
                batch = self._ask(report, alone)
            else:  # results are handed in
                batch = replace(self._ask(asking(report), alone), lost=batch.lost)
            if batch.work:
                return batch
        # A suspect is held: nothing else is handed out.
        return batch or self._exchange(replace(report, want=(), total=0))

    def _tick(self) -> None:
        """Do what falls due by the clock. Of several threads one does it, and the others continue."""
        if not self._ticks.acquire(blocking=False):
            return
        try:
            if self._ticking is None:
                self._ticking = Ticking(self.steps(), self.clock, lambda queues: None)
            if self._ticking.is_due:
                self._ticking.tick_here()
        finally:
            self._ticks.release()

    def _look(self, want: Sequence[Want]) -> None:
        """End expired leases, and find out whether a suspect waits."""
        now = self.clock.monotonic()
        if now - self._looked_at < RECOVERS_EVERY:
            return
        self._looked_at, queues = now, [each.queue for each in want]
        count = self.store.run(engine.recover())
        if count:
            log.warning(
                "leases.recovered",
                "%(count)d leases had expired: their messages are handed out again, alone",
                count=count,
            )
        self._suspects = self.store.run(engine.suspects_wait(queues))

    def _may_ask(self, report: Report, alone: bool) -> bool:
        """Whether this process may ask for work of this kind now; if so, the request counts as in flight."""
        ended = leases_of(report) if report.settlements else set()
        with self._lock:
            if self._held:
                now = self.clock.monotonic()
                self._held = {lease: until for lease, until in self._held.items() if until > now}
            if isinstance(self._alone, tuple) and (self._alone in ended or self._alone not in self._held):
                self._alone = False
            if self._alone:
                return False
            if not alone:
                self._asking += 1
                return True
            if not self._suspects or self._asking or self._held.keys() - ended:
                return False
            self._alone = True
            return True

    def _ask(self, report: Report, alone: bool) -> Batch:
        work: Sequence[Leased] = ()
        asked_at = self.clock.monotonic()
        try:
            if alone:
                report = replace(report, suspects=True)
            batch = self._exchange(report)
            while batch.shares and not batch.work:  # all that came was settled here: there may be more
                batch = replace(self._exchange(asking(report)), lost=batch.lost)
            work = batch.work
        finally:
            with self._lock:
                if work:
                    self._held.update(((each.run, each.run_epoch), asked_at + report.lease) for each in work)
                if alone:
                    self._alone = (work[0].run, work[0].run_epoch) if work else False
                    self._suspects = bool(work)
                else:
                    self._asking -= 1
        if work:
            self._had_suspect = alone
        return batch

    def _exchange(self, report: Report) -> Batch:
        """One exchange. Messages that must not be started are settled, and not handed out."""
        batch = self.store.run(engine.exchange(report))
        if report.settlements:
            with self._lock:
                for lease in leases_of(report):
                    self._held.pop(lease, None)
                    if self._alone == lease:
                        self._alone = False
        if not batch.work:
            return batch
        work, spent = self._judged(batch.work)
        if spent:
            self._settle(spent)
        return replace(batch, work=work)

    def _settle(self, spent: list[Settlement]) -> None:
        last = Report(self._registered(), settlements=spent)
        try:
            self.store.run(engine.exchange(last))
        except (
            Exception
        ) as error:  # the rest of the batch is more important; these leases expire and are checked again
            for message in (each.leased.message for each in spent):
                log.error(
                    "settlement.refused",
                    "The database refused to settle message %(message_id)s, which must not be started: %(error)s",
                    message_id=message.id, type=message.type, queue=message.queue, error=type(error).__name__,
                )  # fmt: skip

    def _judged(self, work: Sequence[Leased]) -> tuple[list[Leased], list[Settlement]]:
        """The messages that may be handed out, and the endings of those that may not.

        The rest of such a message's run is given back: it is handed out again, with the next message as its head.
        """
        if not any(delivery.is_doubtful(each) for each in work):
            return list(work), []
        fit: list[Leased] = []
        spent: list[Settlement] = []
        closed: set[int] = set()  # runs of which no more is handed out
        for each in work:
            if each.run in closed:
                continue
            ending = delivery.unfit(each, self._policy(each))
            if ending is None:
                fit.append(each)
                continue
            closed.add(each.run)
            if each.run == each.message.seq:
                spent.append(self.conclude(each, ending))
        return fit, spent


def _opened(pen: Pen, what: str, text: str) -> str:
    """A row of a journal; as it is stored if the keys here do not open it, because the work is handed out already."""
    try:
        return pen.open(what, text)
    except BodySealed:
        return text


def asking(report: Report) -> Report:
    """The same report without what has ended. Copied only if needed: a report that asks for nothing must be cheap."""
    return replace(report, settlements=()) if report.settlements else report


def leases_of(report: Report) -> set[Lease]:
    """The leases that a report ends."""
    return {(each.leased.run, each.leased.run_epoch) for each in report.settlements}
