"""What a worker counts."""

from __future__ import annotations

from bisect import bisect_left
from contextvars import Context as Variables
from contextvars import copy_context
from dataclasses import dataclass

from ..clock import Clock, DatabaseTime
from ..model.endpoint import EndpointKind
from ..model.message import Reason
from ..model.work import Batch, Leased, Outcome, Report, Settlement
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


class Meter:
    """A watch that counts on a sheet."""

    def __init__(self, sheet: Sheet, clock: Clock) -> None:
        self.sheet, self.clock = sheet, clock
        self._time = DatabaseTime(clock)
        self._places: dict[tuple[str, str], Places] = {}
        self._exchange = sheet.place("holdfast_exchange_seconds")
        self._claimed = sheet.place("holdfast_claimed_messages")
        self._lost = sheet.place("holdfast_leases_lost_total")

    def begin(self, *leased: Leased) -> Variables:
        changes: list[Change] = []
        for each in leased:
            places = self._of(each)
            changes.append((places.started, 1.0))
            if each.attempt == 1 and self._time.is_known:
                waited = self._time.since(each.message.due_at or each.message.created_at)
                changes += observed(places.wait, LONG, max(0.0, waited))
        self.sheet.add(changes)
        return copy_context()

    def end(self, leased: Leased, settlement: Settlement | None) -> None:
        places = self._of(leased)
        if settlement is not None and settlement.outcome is Outcome.DONE:
            self.sheet.add([(places.done, 1.0), *observed(places.seconds, SECONDS, settlement.ran)])
            return
        outcome = "lost" if settlement is None else settlement.outcome.value
        changes: list[Change] = [(self.sheet.place("holdfast_attempts_total", *places.labels, outcome), 1.0)]
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
        return changes

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
        told = {"stored": batch.stored, "duplicate": batch.duplicates, "refused": refused}
        changes: list[Change] = [
            (place("holdfast_received_total", batch.inbox, result), float(count))
            for result, count in told.items()
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
        )


def observed(place: int, buckets: tuple[float, ...], value: float) -> list[Change]:
    """Count a value in its bucket, and add it to the sum after the buckets."""
    return [(place + bisect_left(buckets, value), 1.0), (place + len(buckets) + 1, value)]


def reason_name(reason: Reason) -> str:
    return reason.name.lower()
