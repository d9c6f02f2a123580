"""The metrics of a worker."""

from __future__ import annotations

from bisect import bisect_left
from contextvars import Context as Variables
from contextvars import copy_context
from dataclasses import dataclass

from ..clock import Clock, DatabaseTime
from ..errors import PoisonedActivity
from ..model.drain import DrainSummary
from ..model.endpoint import EndpointKind
from ..model.failure import Category, category_of
from ..model.message import Reason
from ..model.replies import kind_of
from ..model.work import Batch, Delta, Leased, Outcome, Report, Settlement
from .families import LONG, SECONDS, SIZES
from .sheet import Sheet
from .wire import ReceivedBatch, SentBatch

TYPES_MAX = 300  # pairs of queue and type that are counted separately, in one process
OTHER = "(other)"

Change = tuple[int, float]


@dataclass(frozen=True, slots=True)
class Places:
    """The places of the numbers of a queue and a type that change with every message."""

    labels: tuple[str, str]
    started: int
    done: int
    seconds: int
    wait: int
    late: int


class Meter:
    """A watch that counts on a sheet."""

    def __init__(self, sheet: Sheet, clock: Clock, late: float = 300.0) -> None:
        self.sheet, self.clock, self.late = sheet, clock, late
        self._time = DatabaseTime(clock)
        self._places: dict[tuple[str, str], Places] = {}
        self._exchange = sheet.place("holdfast_exchange_seconds")
        self._claimed = sheet.place("holdfast_claimed_messages")
        self._lost = sheet.place("holdfast_leases_lost_total")
        self._drain = sheet.place("holdfast_drain_seconds")

    def begin(self, *leased: Leased) -> Variables:
        changes: list[Change] = []
        for each in leased:
            places = self._of(each)
            changes.append((places.started, 1.0))
            if each.attempt == 1 and self._time.is_known:
                waited = self._time.since(each.message.due_at or each.message.created_at)
                changes += observed(places.wait, LONG, max(0.0, waited))
                if waited > self.late:
                    changes.append((places.late, 1.0))
        self.sheet.add(changes)
        return copy_context()

    def end(self, leased: Leased, settlement: Settlement | None) -> None:
        places = self._of(leased)
        if settlement is not None and settlement.outcome is Outcome.DONE:
            changes = [(places.done, 1.0), *observed(places.seconds, SECONDS, settlement.ran)]
            if settlement.delta is not None:
                changes += self._instance(settlement.delta)
            self.sheet.add(changes)
            return
        outcome = "lost" if settlement is None else settlement.outcome.value
        changes = [(self.sheet.place("holdfast_attempts_total", *places.labels, outcome), 1.0)]
        if settlement is not None:
            changes += self._failed(places, settlement)
        self.sheet.add(changes)

    def _failed(self, places: Places, settlement: Settlement) -> list[Change]:
        changes: list[Change] = []
        if settlement.started:
            changes += observed(places.seconds, SECONDS, settlement.ran)
        if settlement.reason is not None and settlement.outcome is not Outcome.CANCELLED:
            last = reason_name(settlement.last_reason or settlement.reason)
            changes.append((self.sheet.place("holdfast_failures_total", *places.labels, last), 1.0))
        if settlement.outcome is Outcome.DEAD:
            reason = reason_name(settlement.reason or Reason.UNKNOWN)
            changes.append((self.sheet.place("holdfast_deaths_total", *places.labels, reason), 1.0))
            changes += self._poison(settlement)
        return changes

    def _poison(self, settlement: Settlement) -> list[Change]:
        """The metrics of a death for orchestrations, and for poison."""
        message, place = settlement.leased.message, self.sheet.place
        if settlement.delta is not None:
            detected = place("holdfast_poison_detected_total", "orchestration")
            return [(detected, 1.0), *self._instance(settlement.delta)]
        is_activity = isinstance(kind_of(message.type, message.headers), PoisonedActivity)
        changes: list[Change] = []
        if settlement.poison:
            kind = "activity" if is_activity else "message"
            changes.append((place("holdfast_poison_detected_total", kind), 1.0))
        if is_activity:
            category = category_of(settlement.last_reason or settlement.reason or Reason.UNKNOWN)
            if settlement.poison:
                category = Category.POISON
            changes.append((place("holdfast_activity_failures_total", category), 1.0))
        return changes

    def _instance(self, delta: Delta) -> list[Change]:
        """Instances of orchestrations that failed with this settlement, and inline activities of its turn."""
        failed = [
            ("holdfast_orchestration_failures_total", row["category"])
            for row in delta.rows
            if "category" in row
        ]
        for row in delta.rows:
            inline = row.get("failed_inline")
            if isinstance(inline, list):
                failed += [("holdfast_activity_failures_total", each) for each in inline]
        return [(self.sheet.place(name, str(each)), 1.0) for name, each in failed]

    def completed(self, leased: Leased, ran: float) -> None:
        places = self._of(leased)
        self.sheet.add([(places.done, 1.0), *observed(places.seconds, SECONDS, ran)])

    def exchanged(self, report: Report, batch: Batch, seconds: float) -> None:
        self._time.hear(batch.now, self.clock.monotonic())
        changes = observed(self._exchange, SECONDS, seconds)
        if report.want:
            changes += observed(self._claimed, SIZES, len(batch.work))
        if batch.lost:
            changes.append((self._lost, len(batch.lost)))
        self.sheet.add(changes)

    def drained(self, drained: DrainSummary) -> None:
        if drained.processed or drained.failed:
            self.sheet.add(observed(self._drain, LONG, drained.seconds))

    # -- brokers

    def sent(self, batch: SentBatch) -> None:
        place = self.sheet.place
        changes: list[Change] = [
            (place("holdfast_sends_total", batch.destination, fate), float(count))
            for fate, count in batch.fates.items()
        ]
        if batch.confirmed:
            seconds = place("holdfast_confirm_seconds", batch.destination)
            for each in batch.confirmed:
                changes += observed(seconds, SECONDS, each)
        self.sheet.add(changes)

    def received(self, batch: ReceivedBatch) -> None:
        place = self.sheet.place
        refused = sum(batch.refused.values())
        counts = {"stored": batch.stored, "duplicate": batch.duplicates, "refused": refused}
        changes: list[Change] = [
            (place("holdfast_received_total", batch.inbox, result), float(count))
            for result, count in counts.items()
            if count
        ]
        changes += [
            (place("holdfast_receive_refused_total", batch.inbox, reason), float(count))
            for reason, count in batch.refused.items()
        ]
        self.sheet.add(changes)

    def connected(self, kind: EndpointKind, name: str, *, is_open: bool) -> None:
        result = "opened" if is_open else "failed"
        self.sheet.add([(self.sheet.place("holdfast_connects_total", kind, name, result), 1.0)])

    def _of(self, leased: Leased) -> Places:
        """After this many types only the queue is counted, since publishers may invent any number of types."""
        pair = (leased.message.queue, leased.message.type)
        found = self._places.get(pair)
        if found is None:
            if len(self._places) >= TYPES_MAX:
                return self._made((pair[0], OTHER))
            found = self._places[pair] = self._made(pair)
        return found

    def _made(self, labels: tuple[str, str]) -> Places:
        place = self.sheet.place
        return Places(
            labels,
            started=place("holdfast_attempts_started_total", *labels),
            done=place("holdfast_attempts_total", *labels, Outcome.DONE.value),
            seconds=place("holdfast_handler_seconds", *labels),
            wait=place("holdfast_wait_seconds", labels[0]),
            late=place("holdfast_late_total", labels[0]),
        )


def observed(place: int, buckets: tuple[float, ...], value: float) -> list[Change]:
    """Count a value in its bucket, and add it to the sum after the buckets."""
    return [(place + bisect_left(buckets, value), 1.0), (place + len(buckets) + 1, value)]


def reason_name(reason: Reason) -> str:
    return reason.name.lower()
