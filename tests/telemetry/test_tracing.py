"""OpenTelemetry: one trace from the publisher through the handler to what that publishes, and no payload in it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from holdfast import Context, Holdfast, InvalidMessage, RetryPolicy, VersionConflict
from tests.docs.blocks import text_of
from tests.worker.lab import PATIENCE, Lab, until

SECRET = "PAYLOADOFSOMEBODY"
TWICE = RetryPolicy(attempts_max=2, base=0.0, factor=1.0, cap=0.0)


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [each for each in spans.get_finished_spans() if each.name == name]


def one(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    (found,) = named(spans, name)
    return found


async def drain(app: Holdfast) -> None:
    app.prepare()
    await app.worker(until_idle=True).run()


def ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "def"])
async def test_one_trace_from_publisher_to_the_last_handler(
    lab: Lab, spans: InMemorySpanExporter, is_async: bool
) -> None:
    app = lab.app(otel=True)
    inside: list[Any] = []

    def handle(ctx: Context) -> None:
        inside.append(trace.get_current_span().get_span_context())
        ctx.publish("receipt.sent", {"card": SECRET})

    if is_async:

        @app.handler("order.placed")
        async def receipt(order: dict, ctx: Context) -> None:
            await asyncio.sleep(0)
            handle(ctx)
    else:

        @app.handler("order.placed", name="receipt")
        def blocking(order: dict, ctx: Context) -> None:
            handle(ctx)

    @app.handler("receipt.sent")
    async def archive(body: dict) -> None: ...

    with trace.get_tracer("shop").start_as_current_span("checkout") as checkout:
        sent = app.publish("order.placed", {"card": SECRET}, stream="order-1", headers={"x-card": SECRET})
    await drain(app)

    create, send = one(spans, "create order.placed"), one(spans, "send order.placed")
    process, emitted = one(spans, "process order.placed"), one(spans, "create receipt.sent")
    last = one(spans, "process receipt.sent")
    assert {ids(each)[0] for each in (create, send, process, emitted, last)} == {
        checkout.get_span_context().trace_id
    }
    for child, parent in ((process, create), (emitted, process), (last, emitted)):
        assert child.parent is not None
        assert child.parent.span_id == ids(parent)[1]
    assert inside[0].span_id == ids(process)[1]
    assert (create.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert [link.context.span_id for link in send.links] == [ids(create)[1]]
    assert dict(process.attributes or {}) == {
        "messaging.system": "holdfast",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "order.placed",
        "messaging.destination.subscription.name": "receipt",
        "messaging.consumer.group.name": "receipt",
        "messaging.destination.partition.id": "order-1",
        "messaging.message.id": str(sent.id),
        "holdfast.attempt": 1,
        "holdfast.outcome": "done",
    }
    assert process.status.status_code is StatusCode.UNSET


@pytest.mark.covers("X38")
async def test_a_failure_is_an_error_without_its_text(lab: Lab, spans: InMemorySpanExporter) -> None:
    app = lab.app(otel=True)

    @app.handler("order", retry=TWICE)
    async def order(body: dict) -> None:
        raise ConnectionError(f"cannot send {body}")

    @app.handler("in.transaction")
    async def in_transaction(body: dict, ctx: Context) -> None:
        async with ctx.transaction():
            pass

    app.publish("order", {"card": SECRET}, headers={"x": SECRET}, dedupe=SECRET)
    app.publish("in.transaction", {"card": SECRET})
    await drain(app)
    first, second = named(spans, "process order")
    assert first.status.status_code is StatusCode.ERROR
    assert (first.attributes or {})["error.type"] == "ConnectionError"
    assert [(each.attributes or {})["holdfast.outcome"] for each in (first, second)] == ["again", "dead"]
    assert (first.attributes or {})["holdfast.reason"] == "transport_unavailable"
    assert (second.attributes or {})["holdfast.attempt"] == 2
    assert (one(spans, "process in.transaction").attributes or {})["holdfast.outcome"] == "done"
    assert all(SECRET not in each.to_json() for each in spans.get_finished_spans())


async def test_a_batch_is_linked_to_all_its_messages(lab: Lab, spans: InMemorySpanExporter) -> None:
    app = lab.app(otel=True, metrics=True)
    inside = []

    @app.handler("many", batch=10)
    async def many(bodies: list[dict]) -> None:
        await asyncio.sleep(0)
        inside.append((len(bodies), trace.get_current_span().get_span_context().span_id))

    app.publish_many(app.message("many", {"n": n}) for n in range(5))
    await drain(app)
    process, send = one(spans, "process many"), one(spans, "send many")
    created = {ids(each)[1] for each in named(spans, "create many")}
    assert len(created) == 5
    assert {link.context.span_id for link in process.links} == created
    assert {link.context.span_id for link in send.links} == created
    assert (process.attributes or {})["messaging.batch.message_count"] == 5
    assert inside == [(5, ids(process)[1])]
    assert 'holdfast_attempts_total{queue="many",type="many",outcome="done"} 5' in app.metrics_text()


async def test_every_name_is_documented(
    lab: Lab, spans: InMemorySpanExporter, reader: InMemoryMetricReader
) -> None:
    app = lab.app(otel=True)

    @app.handler("order", retry=TWICE)
    async def order(body: dict) -> None:
        raise ConnectionError

    @app.handler("many", batch=5)
    async def many(bodies: list[dict]) -> None: ...

    app.publish("order", {}, stream="s")
    app.publish_many([app.message("many", {}), app.message("many", {})])
    await drain(app)
    text = text_of("docs/telemetry.md")
    told = {name for each in spans.get_finished_spans() for name in each.attributes or {}}
    told |= {each.name.split()[0] for each in spans.get_finished_spans()}
    documented = set(re.findall(r"^\| `([a-z_.]+)(?: TYPE)?` \|", text, re.M))
    assert told <= documented
    otel = {name for name in documented if name.startswith(("messaging.", "holdfast."))}
    numbers = {"messaging.client.sent.messages", "messaging.client.consumed.messages",
               "messaging.client.operation.duration", "messaging.process.duration"}  # fmt: skip
    assert otel - told == numbers


async def test_numbers_after_the_conventions(
    lab: Lab, spans: InMemorySpanExporter, reader: InMemoryMetricReader
) -> None:
    app = lab.app(otel=True)

    @app.handler("measured", retry=TWICE)
    async def measured(body: dict) -> None:
        raise TimeoutError

    app.publish("measured", {})
    with pytest.raises(VersionConflict):
        app.publish("measured", {}, stream="e", event=True, expect=5)
    await drain(app)
    data = reader.get_metrics_data()
    assert data is not None
    found = {
        metric.name: [dict(point.attributes or {}) for point in metric.data.data_points]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert set(found) == {
        "messaging.client.sent.messages",
        "messaging.client.consumed.messages",
        "messaging.client.operation.duration",
        "messaging.process.duration",
    }
    ours = [
        each
        for each in found["messaging.process.duration"]
        if each["messaging.destination.name"] == "measured"
    ]
    assert [each["error.type"] for each in ours] == ["TimeoutError"]
    sent = [
        each for each in found["messaging.client.sent.messages"] if each["messaging.system"] == "holdfast"
    ]
    failed = [each for each in sent if "error.type" in each]
    assert [each["error.type"] for each in failed] == ["VersionConflict"]
    for points in found.values():
        for attributes in points:
            assert not {"messaging.message.id", "messaging.destination.partition.id"} & attributes.keys()


def test_a_context_that_is_given_is_kept(lab: Lab, spans: InMemorySpanExporter) -> None:
    app = lab.app(otel=True)
    given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    app.publish("order", {}, headers={"Traceparent": given})
    (row,) = lab.rows("message")
    assert json.loads(row["headers"]) == {"Traceparent": given}


def test_headers_that_fill_their_room_are_stored_without_a_context(
    lab: Lab, spans: InMemorySpanExporter
) -> None:
    app = lab.app(otel=True, headers_bytes=100)
    app.publish("order", {}, headers={"x": "y" * 80})
    assert "traceparent" not in str(lab.rows("message")[0]["headers"])
    app.publish("order", {}, headers={"x": "y"})
    assert "traceparent" in str(lab.rows("message")[1]["headers"])
    with pytest.raises(InvalidMessage):
        app.publish("order", {}, headers={"x": object()})


async def test_what_was_published_without_a_context_begins_a_trace(
    lab: Lab, spans: InMemorySpanExporter
) -> None:
    plain = lab.app()

    @plain.handler("order")
    async def order(body: dict) -> None: ...

    plain.publish("order", {}, headers={"traceparent": "nonsense"})
    assert spans.get_finished_spans() == ()
    app = lab.app(otel=True)
    app.handler("order")(order.function)
    await drain(app)
    assert one(spans, "process order").parent is None


WORKER = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from holdfast import Holdfast

provider = TracerProvider()
spans = ConsoleSpanExporter(out=open("spans", "a"))
provider.add_span_processor(BatchSpanProcessor(spans, schedule_delay_millis=60_000))
trace.set_tracer_provider(provider)
app = Holdfast("sqlite:///shop.db")

@app.handler("order")
async def order(body: dict) -> None:
    open("handled", "a").close()
"""


def test_a_worker_process_hands_its_spans_in_before_it_leaves(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(WORKER)
    options: dict[str, Any] = {"cwd": tmp_path, "env": {**os.environ, "HOLDFAST_OTEL": "1"}}
    publish = "import shop; shop.app.publish('order', {})"
    subprocess.run([sys.executable, "-c", publish], check=True, timeout=PATIENCE, **options)
    worker = subprocess.Popen(
        [sys.executable, "-c", "from holdfast.cli import main; main()", "worker", "shop:app"], **options
    )
    try:
        until(lambda: (tmp_path / "handled").exists())
    finally:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE) == 0
    written = (tmp_path / "spans").read_text()
    assert '"name": "create order"' in written
    assert '"name": "process order"' in written


def test_nothing_watches_unless_it_is_asked_for(tmp_path: Path) -> None:
    app = Holdfast(f"sqlite:///{tmp_path / 'shop.db'}")
    worker = app.worker()
    assert worker.watch is None
    assert worker.calls.watch is None
    assert app.tracing is None


WITHOUT = """
import sys
sys.modules["opentelemetry"] = None
sys.modules["cryptography"] = None
from holdfast import Holdfast, InvalidSettings
app = Holdfast("sqlite:///:memory:")
for extra, options in (("otel", {"otel": True}), ("crypto", {"keys": {"k": bytes(32)}})):
    try:
        Holdfast("sqlite:///:memory:", **options)
    except InvalidSettings as refusal:
        assert f"holdfast[{extra}]" in str(refusal), refusal
    else:
        raise AssertionError(extra)
"""


def test_the_extras_are_not_needed_and_their_absence_is_explained() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr


@pytest.mark.covers("X60")
@pytest.mark.parametrize("tracebacks", [True, False])
async def test_a_failure_has_its_traceback_as_the_conventions_say(
    lab: Lab, spans: InMemorySpanExporter, tracebacks: bool
) -> None:
    app = lab.app(otel=True, tracebacks=tracebacks)

    @app.handler("order.placed", retry="patient")
    async def receipt(order: dict) -> None:
        raise ValueError("cannot reach https://shop:hunter2hunter2@bank/")

    app.publish("order.placed", {})
    await drain(app)
    events = one(spans, "process order.placed").events
    assert [event.name for event in events] == (["exception"] if tracebacks else [])
    for event in events:
        told = dict(event.attributes or {})
        assert told["exception.type"] == "ValueError"
        assert "in test_a_failure_has_its_traceback" in str(told["exception.stacktrace"])
        assert str(told["exception.stacktrace"]).endswith("\nValueError: cannot reach https://shop:***@bank/")
