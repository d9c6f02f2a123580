"""Metrics and traces of sending to brokers and receiving from them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from holdfast import Holdfast
from holdfast.transports import Fault, MemoryBroker
from holdfast.transports.contract import Outgoing
from tests.inboxes.test_intake import send
from tests.telemetry.test_metrics import of, read
from tests.telemetry.test_tracing import named, one
from tests.worker.lab import Lab, auntil

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def shop(app: Holdfast, **options: Any) -> MemoryBroker:
    broker = MemoryBroker()
    broker.bind("shop", "#", queue="q")
    app.destination("orders", broker, types=["order.*"], to="shop", **options)
    return broker


def out(id: str, body: bytes = b"{}", **headers: str) -> Outgoing:
    return Outgoing("shop", body, id, "invoice.sent", "k", headers)


# --- Metrics --------------------------------------------------------------------------------------------------------


async def test_what_becomes_of_sent_messages_is_counted(lab: Lab) -> None:
    app = lab.app(metrics=True)
    broker = shop(app)
    for fault, n in ((Fault.REFUSE, 1), (Fault.NO_ROUTE, 2), (Fault.TOO_LARGE, 3), (Fault.CUT_AFTER, 4)):
        broker.fail(fault, only=lambda message, n=n: json.loads(message.body)["n"] == n)  # type: ignore[misc]
    app.publish_many(app.message("order.placed", {"n": n}) for n in range(10))
    async with lab.working(app):
        await auntil(lambda: len(lab.rows("history")) == 7 and len(lab.rows("dead")) == 1)
    numbers = read(app.metrics_text())

    def sends(fate: str) -> float:
        return of(numbers, "holdfast_sends_total", destination="orders", fate=fate) or 0

    assert sends("refused") == 1
    assert sends("unroutable") == 1
    assert sends("too_large") == 1
    assert sends("confirmed") == 7
    assert sends("unanswered") >= 1  # the cut took those along that were behind it
    assert of(numbers, "holdfast_confirm_seconds_count", destination="orders") == 7
    assert (of(numbers, "holdfast_confirm_seconds_sum", destination="orders") or 0) > 0


async def test_connects_are_counted_and_connections_looked_up(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.worker.standings.LOOKS_EVERY", 0.02)
    monkeypatch.setattr("holdfast.operations.gauges.KEPT_SECONDS", 0.0)
    monkeypatch.setattr("holdfast.operations.gauges.SHARE", 0)  # else a slow look is kept 50 times as long
    app = lab.app(metrics=True)
    broker = shop(app)
    app.inbox("billing", broker, queue="q")

    def connects(kind: str, name: str, result: str) -> float:
        return (
            of(read(app.metrics_text()), "holdfast_connects_total", kind=kind, endpoint=name, result=result)
            or 0
        )

    def connections(state: str) -> float | None:
        return of(
            read(app.metrics_text()),
            "holdfast_connections",
            kind="destination",
            endpoint="orders",
            state=state,
        )

    async with lab.working(app):
        await auntil(
            lambda: connects("destination", "orders", "opened") == connects("inbox", "billing", "opened") == 1
        )
        await auntil(lambda: connections("open") == 1)
        broker.go_down()
        await auntil(
            lambda: connects("destination", "orders", "failed") >= 1 <= connects("inbox", "billing", "failed")
        )
        await auntil(lambda: (connections("open"), connections("broken")) == (0, 1))
        broker.come_up()
        await auntil(lambda: connects("destination", "orders", "opened") == 2)


async def test_what_an_inbox_receives_is_counted(lab: Lab) -> None:
    app = lab.app(metrics=True)
    broker = MemoryBroker()
    broker.bind("shop", "#", queue="q")
    app.inbox("billing", broker, queue="q")
    await send(broker, out("1"), out("2"), out("1"), out("3", b"\xff"), out("3", b"\xff"))

    def received(result: str) -> float:
        return of(read(app.metrics_text()), "holdfast_received_total", inbox="billing", result=result) or 0

    async with lab.working(app):
        await auntil(lambda: received("stored") + received("duplicate") + received("refused") == 5)
    assert (received("stored"), received("duplicate"), received("refused")) == (2, 2, 1)
    refused = of(
        read(app.metrics_text()),
        "holdfast_receive_refused_total",
        inbox="billing",
        reason="serialization_error",
    )
    assert refused == 1


def test_without_a_watch_nothing_is_told(lab: Lab) -> None:
    app = lab.app()
    shop(app)
    worker = app.worker()
    assert [each.watch for each in worker._attended] == [None]  # type: ignore[attr-defined]


# --- Traces ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["binary", "structured", "plain"])
async def test_a_trace_goes_over_the_broker_and_back(
    lab: Lab, spans: InMemorySpanExporter, mode: str
) -> None:
    """From the publisher into the message on the wire, and from there as a link to the handler of another service."""
    app = lab.app(otel=True)
    broker = shop(app, mode=mode)
    app.inbox("billing", broker, queue="q")

    @app.handler("order.placed", name="bill")
    async def bill(body: dict) -> None: ...

    app.publish("order.placed", {"n": 1})
    async with lab.working(app):
        # Sent, billed here, billed as received, not sent on.
        await auntil(lambda: len(lab.rows("history")) == 4)
    created = one(spans, "create order.placed").get_span_context()
    published = one(spans, "publish shop")
    assert published.kind is SpanKind.CLIENT
    assert [each.context.span_id for each in published.links] == [created.span_id]
    assert dict(published.attributes or {}) == {
        "messaging.system": "memory",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.destination.name": "shop",
        "holdfast.queue": "orders",
        "messaging.batch.message_count": 1,
    }
    assert published.end_time is not None
    assert published.start_time is not None
    assert published.end_time >= published.start_time
    received = one(spans, "receive q")
    assert [each.context.trace_id for each in received.links] == [created.trace_id]
    processed = [
        each for each in named(spans, "process order.placed") if (each.attributes or {})[QUEUE] == "bill"
    ]
    ours, theirs = sorted(processed, key=lambda each: len(each.links))
    assert ours.parent is not None
    assert (ours.parent.span_id, ours.context.trace_id) == (created.span_id, created.trace_id)
    assert theirs.parent is None  # what came from outside is linked, and does not decide here
    assert theirs.context.trace_id != created.trace_id
    assert [each.context.span_id for each in theirs.links] == [created.span_id]


QUEUE = "messaging.destination.subscription.name"


async def test_what_fails_is_an_error_and_no_payload_is_told(lab: Lab, spans: InMemorySpanExporter) -> None:
    app = lab.app(otel=True)
    broker = shop(app)
    broker.fail(Fault.TOO_LARGE)
    app.publish("order.placed", {"name": "PAYLOADOFSOMEBODY"}, headers={"secret": "PAYLOADOFSOMEBODY"})
    async with lab.working(app):
        await auntil(lambda: len(lab.rows("dead")) == 1)
    span = one(spans, "publish shop")
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "too_large")
    assert "PAYLOADOFSOMEBODY" not in "".join(each.to_json() for each in spans.get_finished_spans())


async def test_a_context_of_a_stranger_is_kept_and_sent_on(lab: Lab, spans: InMemorySpanExporter) -> None:
    app = lab.app(otel=True)
    broker = MemoryBroker()
    broker.bind("in", "#", queue="q")
    broker.bind("out", "#", queue="r")
    app.inbox("billing", broker, queue="q")
    app.destination("on", broker, types=["invoice.*"], to="out", forward=True)
    await send(broker, Outgoing("in", b"{}", "1", "invoice.sent", "k", {"traceparent": PARENT}))
    async with lab.working(app):
        await auntil(lambda: len(broker.waiting("r")) == 1)
    (sent,) = broker.waiting("r")
    assert sent.headers["cloudEvents:traceparent"] == PARENT
    (link,) = one(spans, "receive q").links
    assert f"{link.context.trace_id:032x}" == PARENT.split("-")[1]


async def test_numbers_of_brokers_have_their_own_system(
    lab: Lab, spans: InMemorySpanExporter, reader: InMemoryMetricReader
) -> None:
    app = lab.app(otel=True)
    shop(app)
    app.publish("order.placed", {})
    async with lab.working(app):
        await auntil(lambda: len(lab.rows("history")) == 1)
    told = json.loads(reader.get_metrics_data().to_json())  # type: ignore[union-attr]
    points = [
        point["attributes"]
        for scope in told["resource_metrics"][0]["scope_metrics"]
        for metric in scope["metrics"]
        if metric["name"] == "messaging.client.sent.messages"
        for point in metric["data"]["data_points"]
    ]
    assert any(
        each["messaging.system"] == "memory" and each["messaging.operation.name"] == "publish"
        for each in points
    )
