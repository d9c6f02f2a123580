"""OpenTelemetry: a trace from the publisher of a message through its handler to what the handler publishes.

Needs only opentelemetry-api; the application's SDK decides where spans and metrics go. Names are those of the semantic
conventions for messaging (destination is the type, subscription the queue). The context of a message travels in its
headers `traceparent` and `tracestate` (W3C). No span holds any part of a body or a header, nor of an error except its
type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Context as Variables
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec

from ..clock import Clock, wall_clock
from ..errors import InvalidSettings
from ..model.drain import DrainSummary
from ..model.endpoint import EndpointKind
from ..model.ids import new_id
from ..model.message import NewMessage
from ..model.work import Batch, Leased, Outcome, Report, Settlement
from .families import SECONDS
from .meter import reason_name
from .wire import ReceivedBatch, SentBatch

SYSTEM = "holdfast"
PARENT, STATE = "traceparent", "tracestate"
RECEIVED = '"holdfast-inbox"'  # a header of what came through an inbox
LINKS_MAX = 128
FLUSH_MILLISECONDS = 1000

Attributes = dict[str, Any]


@dataclass(slots=True)
class Running:
    """The span of a call, which may be about several messages."""

    span: Any
    left: int


class Tracing:
    """Spans and metrics of one application: of what it publishes, and of its workers."""

    def __init__(self, clock: Clock, headers_bytes: int) -> None:
        try:
            from opentelemetry import context, metrics, trace
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError:
            raise InvalidSettings(
                "OpenTelemetry is enabled but not installed: pip install 'holdfast[otel]'."
            ) from None
        self._clock, self._headers_bytes = clock, headers_bytes
        self._trace, self._metrics, self._context = trace, metrics, context
        self._w3c = TraceContextTextMapPropagator()
        self._tracer = trace.get_tracer(SYSTEM)
        self._running: dict[tuple[int, int], Running] = {}
        meter = metrics.get_meter(SYSTEM)
        bounds = list(SECONDS)
        self._sent = meter.create_counter("messaging.client.sent.messages", "{message}")
        self._consumed = meter.create_counter("messaging.client.consumed.messages", "{message}")
        self._operation = meter.create_histogram(
            "messaging.client.operation.duration", "s", explicit_bucket_boundaries_advisory=bounds
        )
        self._process = meter.create_histogram(
            "messaging.process.duration", "s", explicit_bucket_boundaries_advisory=bounds
        )

    # -- publishing

    def created(
        self, type: str, id: UUID | None, stream: str | None, headers: Mapping[str, Any] | None
    ) -> tuple[UUID, Mapping[str, Any] | None]:
        """The id of a message, and its headers with the context of the span in which it was made."""
        there: Any = headers or {}
        id = id or new_id()
        if not isinstance(there, Mapping) or any(str(name).lower() == PARENT for name in there):
            return id, headers
        attributes = _about("create", "create", type)
        attributes["messaging.message.id"] = str(id)
        if isinstance(stream, str):
            attributes["messaging.destination.partition.id"] = stream
        carrier: dict[str, str] = {}
        with self._tracer.start_as_current_span(
            f"create {type}", kind=self._trace.SpanKind.PRODUCER, attributes=attributes
        ):
            self._w3c.inject(carrier)
        if carrier and len(msgspec.json.encode(carrier)) + _size(there) <= self._headers_bytes:
            return id, {**there, **carrier}
        return id, headers

    @contextmanager
    def sending(self, messages: Sequence[NewMessage]) -> Iterator[None]:
        """The span and the metrics of storing messages. An error is passed on."""
        types = {each.type for each in messages}
        attributes = _about("send", "send", types.pop() if len(types) == 1 else None)
        facts = (
            {**attributes, "messaging.batch.message_count": len(messages)}
            if len(messages) > 1
            else attributes
        )
        name = f"send {attributes.get('messaging.destination.name', '')}".rstrip()
        begun = self._clock.monotonic()
        with self._tracer.start_as_current_span(
            name,
            kind=self._trace.SpanKind.CLIENT,
            attributes=facts,
            links=self._links([each.headers for each in messages]),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except BaseException as error:
                attributes["error.type"] = type(error).__name__
                self._fail(span, attributes["error.type"])
                raise
            finally:
                self._sent.add(len(messages), attributes)
                self._operation.record(self._clock.monotonic() - begun, attributes)

    # -- a worker

    def begin(self, *leased: Leased) -> Variables:
        first = leased[0].message
        attributes = _about("process", "process", first.type, first.queue)
        self._consumed.add(len(leased), attributes)
        kind = self._trace.SpanKind.CONSUMER
        if len(leased) == 1:
            attributes["messaging.message.id"] = str(first.id)
            attributes["holdfast.attempt"] = leased[0].attempt
            if first.stream is not None:
                attributes["messaging.destination.partition.id"] = first.stream
            parent, links = self._w3c.extract(_carrier(first.headers), self._context.Context()), []
            if RECEIVED in (first.headers or ""):  # a stranger's: it does not decide what is sampled here
                parent, links = self._context.Context(), self._links([first.headers])
            span = self._tracer.start_span(f"process {first.type}", parent, kind, attributes, links)
        else:
            attributes["messaging.batch.message_count"] = len(leased)
            links = self._links([each.message.headers for each in leased])
            span = self._tracer.start_span(
                f"process {first.type}", self._context.Context(), kind, attributes, links
            )
        running = Running(span, len(leased))
        for each in leased:
            self._running[each.token] = running
        variables = copy_context()
        variables.run(self._context.attach, self._trace.set_span_in_context(span, self._context.Context()))
        return variables

    def end(self, leased: Leased, settlement: Settlement | None) -> None:
        error = None
        if settlement is None:
            error = "LeaseLost"
        elif settlement.error is not None:
            error = settlement.error.partition(":")[0][:100]
            self._add_exception(leased, settlement, error)
        self._ended(leased, settlement, error, 0.0 if settlement is None else settlement.ran)

    def completed(self, leased: Leased, ran: float) -> None:
        self._ended(leased, None, None, ran)

    def _ended(self, leased: Leased, settlement: Settlement | None, error: str | None, ran: float) -> None:
        message = leased.message
        attributes = _about("process", "process", message.type, message.queue)
        if error is not None:
            attributes["error.type"] = error
        if settlement is not None and settlement.emits:
            self._sent.add(len(settlement.emits), _about("send", "send", None))
        running = self._running.pop(leased.token, None)
        if running is None:  # it ended before its handler was called
            return
        self._process.record(ran, attributes)
        if error is not None:
            self._fail(running.span, error)
        if settlement is not None and running.left == 1:
            running.span.set_attribute("holdfast.outcome", settlement.outcome.value)
            if settlement.reason is not None:
                running.span.set_attribute("holdfast.reason", reason_name(settlement.reason))
        elif settlement is None and error is None:
            running.span.set_attribute("holdfast.outcome", Outcome.DONE.value)
        running.left -= 1
        if running.left == 0:
            running.span.end()

    def exchanged(self, report: Report, batch: Batch, seconds: float) -> None:
        self._operation.record(seconds, _about("exchange", "receive", None))

    def drained(self, drained: DrainSummary) -> None:
        """Spans and OpenTelemetry's own metrics have nothing for it."""

    # -- brokers

    def sent(self, batch: SentBatch) -> None:
        """The span of a send to a broker, linked with the messages, and inside of the relay's own."""
        attributes = _wire("publish", "send", batch.transport, batch.address)
        bad = {fate: count for fate, count in batch.fates.items() if fate != "confirmed"}
        error = next(iter(bad), None)
        facts = {
            **attributes,
            "holdfast.queue": batch.destination,
            "messaging.batch.message_count": batch.count,
        }
        self._record(f"publish {batch.address}", facts, batch.headers, batch.began, error)
        for fate, count in batch.fates.items():
            failed = {} if fate == "confirmed" else {"error.type": fate}
            self._sent.add(count, {**attributes, **failed})
        self._operation.record(batch.began, {**attributes, **({"error.type": error} if error else {})})

    def received(self, batch: ReceivedBatch) -> None:
        """The span of a batch that came from a broker: from when it was there until it was committed."""
        attributes = _wire("receive", "receive", batch.transport, batch.queue)
        facts = {**attributes, "holdfast.inbox": batch.inbox, "messaging.batch.message_count": batch.count}
        error = next(iter(batch.refused), None)
        self._record(f"receive {batch.queue}", facts, batch.headers, batch.began, error)
        self._consumed.add(batch.count, attributes)
        self._operation.record(batch.began, attributes)

    def connected(self, kind: EndpointKind, name: str, *, is_open: bool) -> None:
        """Connections are no spans: the metrics of the sheet count them."""

    def _record(
        self,
        name: str,
        attributes: Attributes,
        headers: Sequence[str | None],
        began: float,
        error: str | None,
    ) -> None:
        """A span that has ended just now."""
        now = int(wall_clock().timestamp() * 1e9)
        span = self._tracer.start_span(
            name,
            kind=self._trace.SpanKind.CLIENT,
            attributes=attributes,
            links=self._links(headers),
            start_time=now - int(began * 1e9),
        )
        if error is not None:
            self._fail(span, error)
        span.end(now)

    def flush(self) -> None:
        """Flush the SDK, if there is one, before the process exits without cleanup."""
        for provider in (self._trace.get_tracer_provider(), self._metrics.get_meter_provider()):
            flush = getattr(provider, "force_flush", None)
            if callable(flush):
                flush(timeout_millis=FLUSH_MILLISECONDS)

    # -- parts

    def _fail(self, span: Any, error: str) -> None:
        span.set_attribute("error.type", error)
        span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, error))

    def _add_exception(self, leased: Leased, settlement: Settlement, error: str) -> None:
        """The event that the conventions ask for. Its texts are masked, as those of the log are."""
        running = self._running.get(leased.token)
        if running is None or settlement.traceback is None:
            return
        facts = {"exception.type": error, "exception.stacktrace": settlement.traceback}
        running.span.add_event("exception", facts)

    def _links(self, headers: Sequence[str | None]) -> list[Any]:
        links = []
        for text in headers[:LINKS_MAX]:
            found = self._trace.get_current_span(
                self._w3c.extract(_carrier(text), self._context.Context())
            ).get_span_context()
            if found.is_valid:
                links.append(self._trace.Link(found))
        return links


def _about(name: str, kind: str, type: str | None, queue: str | None = None) -> Attributes:
    attributes: Attributes = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
    }
    if isinstance(type, str):
        attributes["messaging.destination.name"] = type
    if queue is not None:
        attributes["messaging.destination.subscription.name"] = queue
        attributes["messaging.consumer.group.name"] = queue
    return attributes


def _wire(name: str, kind: str, system: str, address: str) -> Attributes:
    return {
        "messaging.system": system,
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": address,
    }


def _carrier(headers: str | None) -> dict[str, str]:
    """The trace headers among the stored headers; none if they cannot be read."""
    if not headers or PARENT not in headers.lower():
        return {}
    try:
        found = msgspec.json.decode(headers, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}
    return {
        name.lower(): value
        for name, value in found.items()
        if name.lower() in (PARENT, STATE) and isinstance(value, str)
    }


def _size(headers: Mapping[str, Any]) -> int:
    try:
        return len(msgspec.json.encode(headers))
    except (TypeError, ValueError):
        return 0  # the codec will refuse it
