"""The `lab` of the worker's tests, on each database; what OpenTelemetry was told, in memory."""

from collections.abc import Iterator

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.worker.conftest import lab, sqlite_lab

__all__ = ["lab", "sqlite_lab"]


@pytest.fixture(scope="session")  # a process has one provider, for good
def exporter() -> InMemorySpanExporter:
    made = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(made))
    trace.set_tracer_provider(provider)
    return made


@pytest.fixture(scope="session")
def reader() -> InMemoryMetricReader:
    made = InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider([made]))
    return made


@pytest.fixture
def spans(exporter: InMemorySpanExporter, reader: InMemoryMetricReader) -> Iterator[InMemorySpanExporter]:
    exporter.clear()
    yield exporter
    exporter.clear()
