"""Metrics: every one is documented, Prometheus can read them, and the numbers are right, whoever dies."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast import Context, Dead, Holdfast, RetryPolicy, Snooze
from holdfast.clock import MovableClock
from holdfast.model.message import Reason
from holdfast.telemetry import exposition
from holdfast.telemetry.families import FAMILIES, LONG, SECONDS, Sample
from holdfast.telemetry.meter import OTHER, TYPES_MAX, Meter
from holdfast.telemetry.sheet import Sheet, summed
from tests.docs.blocks import text_of
from tests.worker.lab import PATIENCE, ROOT, Lab, children_of, until

Numbers = dict[tuple[str, tuple[tuple[str, str], ...]], float]
CLOCK = MovableClock()
TWICE = RetryPolicy(attempts_max=2, base=0.0, factor=1.0, cap=0.0)


def read(text: str) -> Numbers:
    """What Prometheus makes of it; its own parser is strict about names, labels, buckets and escapes."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(numbers: Numbers, name: str, **labels: str) -> float | None:
    return numbers.get((name, tuple(sorted(labels.items()))))


# --- The table -------------------------------------------------------------------------------------------------


def test_every_metric_is_documented_with_its_labels() -> None:
    rows = re.findall(
        r"^\| `(holdfast_\w+)` \| (\w+) \| ([^|]*) \| ([^|]+) \|$", text_of("docs/telemetry.md"), re.M
    )
    documented = {
        name: (kind, tuple(each.strip() for each in labels.split(",") if each.strip()), help_)
        for name, kind, labels, help_ in rows
    }
    assert documented == {name: (each.kind, each.labels, each.help) for name, each in FAMILIES.items()}


def test_labels_are_few() -> None:
    allowed = {"queue", "type", "reason", "outcome", "state", "where", "breaker", "category"}
    # Names that are declared, and words.
    allowed |= {
        "destination",
        "inbox",
        "fate",
        "result",
        "kind",
        "endpoint",
    }
    assert {label for family in FAMILIES.values() for label in family.labels} <= allowed


# --- Counting ---------------------------------------------------------------------------------------------------


@pytest.mark.covers("W20")
async def test_what_a_worker_counts_and_what_the_database_says(lab: Lab) -> None:
    app = lab.app(metrics=True)

    @app.handler("good")
    async def good(body: dict) -> None: ...

    @app.handler("blocking")
    def blocking(body: dict, ctx: Context) -> None:
        if ctx.attempt == 1:
            with ctx.transaction():
                pass

    @app.handler("bad", retry=TWICE)
    async def bad(body: dict) -> None:
        raise ConnectionError

    @app.handler("never")
    async def never(body: dict) -> Dead:
        return Dead("no")

    @app.handler("later")
    async def later(body: dict) -> Snooze:
        return Snooze(hours=1)

    @app.handler("many", batch=10)
    async def many(bodies: list[dict]) -> None: ...

    for type_ in ("good", "good", "blocking", "bad", "never", "later", "many", "many", "many", "nobody's"):
        app.publish(type_, {}, stream="s" if type_ == "bad" else None)
    app.publish("bad", {}, stream="s", delay=3600)
    app.prepare()
    await app.worker(until_idle=True).run()
    numbers = read(app.metrics_text())

    def attempts(queue: str, outcome: str) -> float | None:
        return of(numbers, "holdfast_attempts_total", queue=queue, type=queue, outcome=outcome)

    assert attempts("good", "done") == 2
    assert attempts("blocking", "done") == 1  # in its own transaction
    assert attempts("many", "done") == 3
    assert (attempts("bad", "again"), attempts("bad", "dead")) == (1, 1)
    assert (attempts("never", "dead"), attempts("later", "again")) == (1, 1)
    assert of(numbers, "holdfast_attempts_started_total", queue="bad", type="bad") == 2
    assert of(numbers, "holdfast_attempts_started_total", queue="many", type="many") == 3
    assert (
        of(numbers, "holdfast_failures_total", queue="bad", type="bad", reason="transport_unavailable") == 2
    )
    assert of(numbers, "holdfast_deaths_total", queue="bad", type="bad", reason="poison_message") == 1
    assert of(numbers, "holdfast_deaths_total", queue="never", type="never", reason="validation_failure") == 1
    assert of(numbers, "holdfast_handler_seconds_count", queue="good", type="good") == 2
    assert of(numbers, "holdfast_wait_seconds_count", queue="many") == 3
    assert of(numbers, "holdfast_wait_seconds_count", queue="bad") == 1
    assert (of(numbers, "holdfast_claimed_messages_sum") or 0) >= 10
    assert (of(numbers, "holdfast_exchange_seconds_count") or 0) >= 2

    assert of(numbers, "holdfast_store_up") == 1
    assert of(numbers, "holdfast_dead_letters", queue="bad") == 1
    assert of(numbers, "holdfast_failed", where="dead", reason="transport_unavailable") == 1
    assert of(numbers, "holdfast_failed", where="dead", reason="validation_failure") == 1
    assert of(numbers, "holdfast_pending", queue="later", state="scheduled") == 1
    assert of(numbers, "holdfast_pending", queue="good", state="ready") == 0
    assert of(numbers, "holdfast_unrouted") == 1


async def test_gauges_that_tell_trouble(lab: Lab) -> None:
    app = lab.app()

    @app.handler("blocked", retry="patient")
    async def blocked(body: dict) -> None:
        raise ConnectionError

    app.publish("blocked", {}, stream="s")
    app.publish("blocked", {}, stream="s")
    app.prepare()
    await app.worker(until_idle=True).run()
    app.operations.queues.pause("blocked", "the printer is broken")
    app.breaker("llm")
    app.operations.breakers.trip("llm", why="by hand")
    numbers = read(app.metrics_text())
    assert of(numbers, "holdfast_blocked_streams", queue="blocked") == 1
    assert of(numbers, "holdfast_queue_paused", queue="blocked") == 1
    assert of(numbers, "holdfast_breaker_state", breaker="llm", state="open") == 1
    assert of(numbers, "holdfast_breaker_state", breaker="llm", state="closed") == 0
    assert (of(numbers, "holdfast_oldest_due_seconds", queue="blocked") or 0) > 0
    assert of(numbers, "holdfast_pending", queue="blocked", state="retrying") == 1
    assert of(numbers, "holdfast_attempts_total", queue="blocked", type="blocked", outcome="again") is None


def test_a_look_is_kept_and_a_database_that_is_away_is_told(tmp_path: Path) -> None:
    clock = MovableClock()
    app = Holdfast(f"sqlite:///{tmp_path / 'shop.db'}", clock=clock)
    app.prepare()
    looks = []
    survey = app.operations.queues.survey
    assert survey
    first = read(app.metrics_text())
    gauges: Any = app._gauges
    look = gauges._look
    gauges._look = lambda now: (looks.append(now), look(now))
    for _ in range(20):
        app.metrics_text()
    assert looks == []
    clock.advance(seconds=11)
    app.metrics_text()
    assert len(looks) == 1
    assert of(first, "holdfast_survey_age_seconds") is not None
    app.close()

    gone = Holdfast("postgresql://nobody@127.0.0.1:1/none?connect_timeout=1")
    assert read(gone.metrics_text()) == {("holdfast_store_up", ()): 0.0}


def test_a_long_look_makes_the_next_one_late(tmp_path: Path) -> None:
    from holdfast.operations.gauges import Gauges

    clock = MovableClock()

    class Slow:
        def __call__(self) -> Any:
            clock.advance(seconds=3)
            return app.operations

    app = Holdfast(f"sqlite:///{tmp_path / 'shop.db'}", clock=clock)
    app.prepare()
    gauges = Gauges(Slow(), clock)
    gauges.read()
    taken = clock.monotonic()
    for _ in range(14):
        clock.advance(seconds=10)
        gauges.read()
    assert clock.monotonic() - taken == pytest.approx(140)  # no further look took its three seconds
    clock.advance(seconds=11)
    gauges.read()
    assert clock.monotonic() - taken == pytest.approx(154)


# --- The sheet ---------------------------------------------------------------------------------------------------


def leased(queue: str, type_: str) -> Any:
    class Of:
        pass

    found: Any = Of()
    found.message = Of()
    found.message.queue, found.message.type, found.attempt = queue, type_, 1
    return found


def test_what_is_counted_survives_the_one_who_counted() -> None:
    first = Sheet.create()
    Meter(first, CLOCK).begin(leased("q", "t"))
    assert first.fileno is not None
    second = Sheet(os.dup(first.fileno))  # the process that takes its place
    Meter(second, CLOCK).begin(leased("q", "t"))
    Meter(second, CLOCK).begin(leased("q", "new"))
    started = {s.labels: s.values for s in first.read() if s.name == "holdfast_attempts_started_total"}
    assert started == {("q", "t"): (2.0,), ("q", "new"): (1.0,)}
    other = Sheet()
    Meter(other, CLOCK).begin(leased("q", "t"))
    total = {
        s.labels: s.values for s in summed([first, other]) if s.name == "holdfast_attempts_started_total"
    }
    assert total[("q", "t")] == (3.0,)


def test_types_without_end_take_no_room_without_end() -> None:
    sheet = Sheet()
    meter = Meter(sheet, CLOCK)
    for n in range(5 * TYPES_MAX):
        meter.begin(leased("q", f"customer-{n}-" + "x" * 180))
    started = [s for s in sheet.read() if s.name == "holdfast_attempts_started_total"]
    assert len(started) <= TYPES_MAX + 1
    assert sum(s.values[0] for s in started) == 5 * TYPES_MAX
    assert next(s for s in started if s.labels == ("q", OTHER)).values[0] >= 4 * TYPES_MAX


def test_a_sheet_that_is_full_counts_no_more_and_breaks_nothing() -> None:
    sheet = Sheet(size=4096)
    meter = Meter(sheet, CLOCK)
    for n in range(100):
        meter.begin(leased("q", f"type-{n}"))
    text = exposition.text(sheet.read())
    assert 0 < text.count("holdfast_attempts_started_total{") < 100


def test_names_are_escaped_and_buckets_add_up() -> None:
    nasty = 'a"b\\c\nd'
    counts = [0.0] * (len(SECONDS) + 2)
    counts[0], counts[3], counts[-2], counts[-1] = 2, 1, 1, 500.25
    numbers = read(
        exposition.text(
            [
                Sample("holdfast_attempts_started_total", (nasty, "é"), (3.0,)),
                Sample("holdfast_handler_seconds", ("q", "t"), tuple(counts)),
            ]
        )
    )
    assert of(numbers, "holdfast_attempts_started_total", queue=nasty, type="é") == 3
    assert of(numbers, "holdfast_handler_seconds_bucket", queue="q", type="t", le="0.005") == 2
    assert of(numbers, "holdfast_handler_seconds_bucket", queue="q", type="t", le="300") == 3
    assert of(numbers, "holdfast_handler_seconds_bucket", queue="q", type="t", le="+Inf") == 4
    assert of(numbers, "holdfast_handler_seconds_sum", queue="q", type="t") == 500.25
    assert LONG[-1] == 86_400


def test_reasons_have_names() -> None:
    assert len({reason.name.lower() for reason in Reason}) == len(Reason)


# --- holdfast worker --metrics ------------------------------------------------------------------------------------

RUN = """
import sys, threading
from holdfast.processes.loading import load_app
from holdfast.processes.supervisor import run_worker
if sys.argv[1] == "spawned":
    threading.Thread(target=threading.Event().wait, daemon=True).start()
sys.exit(run_worker(load_app("tests.worker.trouble:app"), "tests.worker.trouble:app", processes=2,
                    metrics=sys.argv[2]))
"""


def free_port() -> int:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def scrape(port: int) -> Numbers:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return read(answer.read().decode())


def started(port: int) -> float:
    try:
        return of(scrape(port), "holdfast_attempts_started_total", queue="trouble", type="trouble") or 0.0
    except (urllib.error.URLError, ConnectionError):
        return -1.0


@pytest.mark.parametrize("mode", ["forked", "spawned"])
def test_all_processes_give_one_answer_and_a_kill_loses_nothing(sqlite_lab: Lab, mode: str) -> None:
    lab, port = sqlite_lab, free_port()
    environment = {**os.environ, "LAB_URL": lab.url, "LAB_FOLDER": str(lab.folder), "LAB_STARTS_MAX": "3"}
    lab.publish(*({"n": n} for n in range(40)))
    worker = subprocess.Popen(
        [sys.executable, "-c", RUN, mode, f"127.0.0.1:{port}"],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT), "HOLDFAST_LOG_LEVEL": "ERROR"},
    )
    try:
        until(lambda: started(port) == 40)
        lab.publish({"n": "killer", "act": "kill"})  # three starts, each of which ends its process
        until(lambda: len(lab.rows("dead")) == 1)
        assert worker.poll() is None
        until(lambda: started(port) >= 43)
        lab.publish(*({"n": n} for n in range(100, 110)))
        until(lambda: started(port) >= 53)
        numbers = scrape(port)
        done = of(numbers, "holdfast_attempts_total", queue="trouble", type="trouble", outcome="done")
        assert done == 50
        # 50 and three starts of the killer, whose processes could not tell their end.
        assert started(port) == 53
        assert (
            of(numbers, "holdfast_deaths_total", queue="trouble", type="trouble", reason="poison_message")
            == 1
        )
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/secret", timeout=10)
        others = set(children_of(worker.pid))
    finally:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE) == 0
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in others))
    assert started(port) == -1.0


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:99999", "127.0.0.1:x", "256.0.0.1:9464"])
def test_an_address_that_cannot_be_bound_is_refused_at_once(tmp_path: Path, address: str) -> None:
    (tmp_path / "shop.py").write_text("from holdfast import Holdfast\napp = Holdfast('sqlite:///shop.db')\n")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from holdfast.cli import main; main()",
            "worker",
            "shop:app",
            "--metrics",
            address,
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 2
    assert "Metrics cannot be served" in done.stderr
    assert not (tmp_path / "shop.db").exists()


def test_the_command_prints_one_scrape(lab: Lab, tmp_path: Path) -> None:
    lab.publish({"n": 1})
    done = subprocess.run(
        [sys.executable, "-c", "from holdfast.cli import main; main()", "metrics"],
        env={**os.environ, "HOLDFAST_DATABASE_URL": lab.url},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert of(read(done.stdout), "holdfast_pending", queue="trouble", state="ready") == 1
