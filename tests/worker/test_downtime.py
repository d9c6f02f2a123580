"""After a downtime: what fell due is handled, oldest first, once; how late it was, is kept, logged and counted."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, Holdfast, RetryPolicy, Snooze, every
from holdfast.cli.root import app as command_line
from holdfast.clock import MovableClock
from holdfast.model.drain import DrainSummary
from holdfast.operations import Filter, Outage
from holdfast.store.plans import engine, outages
from tests.cli.runner import CliRunner
from tests.worker.lab import auntil

EIGHT = datetime(2040, 3, 15, 8, 0, tzinfo=UTC)  # later than any clock of the machine
DAY = timedelta(days=1)


class Service:
    """An application with one handler, its clock, and what was handled: when, and how late it was."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.clock = MovableClock(EIGHT)
        self.app = Holdfast(url, clock=self.clock, **settings)
        self.app.migrate()
        self.handled: list[str] = []
        self.late: dict[str, timedelta] = {}

        @self.app.handler("greeting", name="greet")
        async def greet(body: dict[str, Any], ctx: Context) -> None:
            self.handled.append(body["who"])
            self.late[body["who"]] = ctx.lateness

    def greet(self, who: str, at: datetime) -> None:
        self.app.publish("greeting", {"who": who}, subject=f"user-{who}", at=at)

    def work(self) -> DrainSummary:
        """A worker comes, works until nothing is due, and goes."""
        worker = self.app.worker(until_idle=True)
        asyncio.run(worker.run())
        self.app.operations.outages.end()
        return worker.drains.total

    def outages(self) -> list[Outage]:
        return self.app.operations.outages.list()


@pytest.fixture
def service(url: str) -> Iterator[Service]:
    service = Service(url)
    yield service
    service.app.close()


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


@pytest.mark.covers("B12", "B5", "B10", "B11", "B1", "B4")
def test_down_from_eight_to_ten(service: Service) -> None:
    service.work()
    for who, at in (("A", minutes(60)), ("B", minutes(75)), ("C", minutes(90)), ("D", minutes(180))):
        service.greet(who, EIGHT + at)
    service.clock.advance(hours=2)
    assert service.work().processed == 3
    assert service.handled == ["A", "B", "C"]
    assert [service.late[who] for who in "ABC"] == [minutes(60), minutes(45), minutes(30)]
    service.clock.advance(hours=1)
    assert service.work().processed == 1
    assert service.late["D"] == timedelta(0)
    (outage,) = service.outages()
    assert (outage.cause, outage.down_since, outage.back_at) == ("absent", EIGHT, EIGHT + minutes(120))
    assert (outage.began_at, outage.oldest_at) == (EIGHT + minutes(60), EIGHT + minutes(60))
    assert (outage.handled, outage.died) == (3, 0)
    assert (outage.late_mean, outage.late_max) == (45 * 60, 60 * 60)
    assert outage.ended_at == outage.caught_up_at == EIGHT + minutes(120)


@pytest.mark.covers("B36")
def test_five_minutes_are_an_outage_too(service: Service) -> None:
    service.work()
    service.greet("A", EIGHT + minutes(2))
    service.greet("B", EIGHT + minutes(3))
    service.clock.advance(minutes=5)
    service.work()
    assert service.late == {"A": minutes(3), "B": minutes(2)}
    (outage,) = service.outages()
    assert (outage.handled, outage.late_max, outage.seconds) == (2, 180, 180)


@pytest.mark.covers("B37", "B61", "B2", "B3", "B60", "X17", "X19")
@pytest.mark.parametrize("count", [70, 250])
def test_a_day_of_downtime(service: Service, count: int) -> None:
    """All are handled at the start, oldest first, though a claim takes 100 at most."""
    service.app.settings = service.app.settings.but(claim=100)
    service.work()
    wanted = [(f"{n}", EIGHT + n * DAY / count) for n in range(count)]
    for who, at in sorted(wanted, key=lambda each: hash(each[0])):
        service.greet(who, at)
    service.clock.advance(days=1)
    drained = service.work()
    assert (drained.processed, drained.failed, drained.is_first) == (count, 0, True)
    assert service.handled == [who for who, _ in wanted]
    assert service.work().processed == 0  # nothing is handled again
    (outage,) = service.outages()
    assert outage.handled == count
    assert outage.late_max == DAY.total_seconds()
    assert outage.late_mean == pytest.approx(DAY.total_seconds() * (count + 1) / (2 * count))


@pytest.mark.covers("X17")
@pytest.mark.one_postgres
def test_ten_thousand_are_drained_at_the_start(url: str) -> None:
    service = Service(url, warn_late=1e9)
    service.work()
    wanted = [(f"{n}", EIGHT + n * DAY / 10_000) for n in range(10_000)]
    app = service.app
    for first in range(0, 10_000, 1000):
        app.publish_many(
            app.message("greeting", {"who": who}, at=at) for who, at in wanted[first : first + 1000]
        )
    service.clock.advance(days=1)
    assert service.work().processed == 10_000
    assert service.handled == [who for who, _ in wanted]
    (outage,) = service.outages()
    assert outage.handled == 10_000
    app.close()


@pytest.mark.covers("B18")
def test_a_hundred_at_once_is_a_setting(url: str) -> None:
    """`claim=100`: no exchange hands out more."""
    service = Service(url, claim=100, concurrency=1000)
    for n in range(250):
        service.greet(str(n), EIGHT)
    sizes: list[int] = []
    worker = service.app.worker(until_idle=True)
    receive = worker.pacing.receive

    def counted(asked: Any, batch: Any, at: float) -> Any:
        sizes.append(len(batch.work))
        return receive(asked, batch, at)

    worker.pacing.receive = counted  # type: ignore[method-assign]
    asyncio.run(worker.run())
    assert max(sizes) == 100
    assert sum(sizes) == len(service.handled) == 250
    service.app.close()


# -- one row for each outage, none without


def test_no_outage_without_an_absence(service: Service) -> None:
    service.greet("first", EIGHT - DAY)  # before anybody ever worked
    service.work()
    service.clock.advance(days=1)
    service.greet("now", service.clock.instant)  # nobody was there, but nothing was due
    service.work()
    service.clock.advance(seconds=59)
    service.greet("soon", service.clock.instant - minutes(0.9))  # a restart
    service.work()
    assert service.handled == ["first", "now", "soon"]
    assert service.outages() == []


def test_two_outages_are_two_rows(service: Service) -> None:
    for day in (1, 2):
        service.work()
        service.greet(str(day), service.clock.instant + minutes(10))
        service.clock.advance(days=1)
    service.work()
    assert [(each.number, each.handled) for each in service.outages()] == [(2, 1), (1, 1)]


def test_workers_that_start_together_begin_one(service: Service) -> None:
    service.work()
    service.greet("A", EIGHT + minutes(10))
    service.clock.advance(days=1)
    service.app.prepare()

    async def both() -> None:
        await asyncio.gather(*(service.app.worker(until_idle=True).run() for _ in range(3)))

    asyncio.run(both())
    assert len(service.outages()) == 1
    assert service.handled == ["A"]


def test_workers_that_start_together_share_the_bounded_rate(url: str) -> None:
    """Only the first finds nobody; the outage tells the second."""
    service = Service(url, catch_up_doubles=100.0)

    @service.app.handler("slow", name="slow", catch_up="10/s")
    async def slow() -> None: ...

    service.work()
    service.app.publish("slow", at=EIGHT + minutes(10))
    service.clock.advance(hours=1)
    service.app.prepare()
    first, second = service.app.worker(), service.app.worker()

    async def start() -> None:
        await first._register()
        service.clock.advance(seconds=7)
        await second._register()

    asyncio.run(start())
    now = service.clock.monotonic()
    assert [each.gate._since("slow", now) for each in (first, second)] == [7.0, 7.0]
    service.app.close()


def test_an_outage_that_nobody_was_left_to_end_ends_with_its_last_worker(service: Service) -> None:
    service.work()
    service.greet("A", EIGHT + minutes(10))
    service.clock.advance(hours=1)
    asyncio.run(service.app.worker(until_idle=True).run())  # it is killed before it can look for the end
    (first,) = service.outages()
    assert not first.is_over
    service.greet("B", service.clock.instant + minutes(10))
    service.clock.advance(days=7)
    service.work()
    second, first = service.outages()
    assert first.ended_at == EIGHT + minutes(60)
    assert (first.handled, second.handled) == (1, 1)
    assert second.down_since == EIGHT + minutes(60)


def test_when_workers_were_last_there_is_kept_when_their_rows_are_gone(service: Service) -> None:
    """A killed worker leaves its row, which is removed after a day; housekeeping may run meanwhile."""
    service.app.prepare()
    service.app.store.run(engine.register_worker("killed", ["greet"]))
    service.greet("A", EIGHT + minutes(10))
    service.clock.advance(days=3)
    assert service.app.operations.housekeeping().workers == 1
    service.work()
    (outage,) = service.outages()
    assert outage.down_since == EIGHT


def test_a_worker_that_died_was_there_until_it_was_last_seen(service: Service) -> None:
    service.app.prepare()
    number = service.app.store.run(engine.register_worker("killed", ["greet"]))
    service.greet("A", EIGHT + minutes(10))
    service.clock.advance(hours=3)
    service.app.store.run(outages.leave(number, died=True))  # as the supervisor tells it, when it can
    service.work()
    assert service.outages()[0].down_since == EIGHT


def test_workers_of_other_queues_are_no_substitute(service: Service) -> None:
    service.work()
    service.greet("A", EIGHT + minutes(10))
    service.clock.advance(hours=3)
    service.app.store.run(engine.register_worker("other service", ["billing"]))
    service.work()
    assert service.outages()[0].down_since == EIGHT


def test_what_others_handled_on_time_meanwhile_is_not_counted(service: Service) -> None:
    """Another service worked through the absence of this one."""
    service.work()
    service.greet("A", EIGHT + minutes(10))
    other = Holdfast(service.app.url, clock=service.clock)

    @other.handler("invoice", name="billing")
    async def bill() -> None: ...

    for _ in range(3):
        service.clock.advance(hours=1)
        other.publish("invoice", at=service.clock.instant - timedelta(seconds=2))
        asyncio.run(other.worker(until_idle=True).run())
    other.close()
    service.clock.advance(minutes=1)
    service.work()
    (outage,) = service.outages()
    assert (outage.handled, outage.late_max) == (1, 171 * 60)


def test_a_queue_that_nobody_serves_does_not_keep_it_open(service: Service) -> None:
    service.work()
    service.greet("A", EIGHT + minutes(10))
    service.app.publish("unknown", queue="of another application", at=EIGHT + minutes(5))
    service.clock.advance(hours=1)
    service.work()
    (outage,) = service.outages()
    assert (outage.is_over, outage.handled, outage.oldest_at) == (True, 1, EIGHT + minutes(10))


def test_a_paused_queue_is_not_an_outage(service: Service) -> None:
    service.work()
    service.greet("A", EIGHT + minutes(10))
    service.app.operations.queues.pause("greet", "a holiday")
    service.clock.advance(hours=3)
    service.work()
    assert service.outages() == []


def test_a_long_time_without_the_database_is_an_absence(service: Service) -> None:
    """The worker lives, and could not work: what it reports when the database is back."""
    service.app.prepare()
    worker = service.app.worker()

    async def came_back() -> None:
        worker.number = await worker.attendance.arrive(["greet"])
        service.greet("A", EIGHT + minutes(10))
        service.clock.advance(hours=1)
        await worker.attendance.back(["greet"], 59.0)
        assert service.outages() == []
        await worker.attendance.back(["greet"], 3600.0)
        await worker.attendance.back(["greet"], 3600.0)

    asyncio.run(came_back())
    (outage,) = service.outages()
    assert (outage.cause, outage.down_since) == ("absent", EIGHT)
    assert worker.attendance.outage == outage


@pytest.mark.covers("B1", "B2", "B3", "X18")
def test_occurrences_of_schedules_are_an_outage_too(service: Service) -> None:
    """What was due and not even fired: an hourly schedule, for a day in which nobody worked."""
    app = service.app
    app.set_schedule("hourly", every(hours=1), "greeting", {"who": "hour"}, misfire="all", cap=None)
    service.work()
    service.clock.advance(days=1)
    assert service.work().processed == 24
    (outage,) = service.outages()
    assert (outage.down_since, outage.oldest_at) == (EIGHT, EIGHT + minutes(60))
    # The last one is on time.
    assert (outage.handled, outage.late_max, outage.is_over) == (
        23,
        23 * 3600,
        True,
    )


def test_a_schedule_that_is_gone_from_the_code_is_not_missed(service: Service) -> None:
    service.app.schedule("hourly", every(hours=1), "greeting", {"who": "hour"})
    service.work()
    service.clock.advance(minutes=30)
    changed = Service(service.app.url)  # a deploy without it
    changed.clock = service.clock
    changed.app.clock = changed.app.store.clock = service.clock
    changed.work()
    changed.clock.advance(days=1)
    changed.work()
    assert changed.outages() == []
    changed.app.close()


# -- late while somebody works


@pytest.mark.covers("B53")
def test_more_than_ten_late_are_an_outage_and_its_end_is_calm(service: Service) -> None:
    app = service.app
    app.prepare()
    number = app.store.run(engine.register_worker("busy", ["greet"]))
    for n in range(11):
        service.greet(str(n), EIGHT)
    service.clock.advance(minutes=10)

    def look() -> None:
        app.store.run(engine.renew(number, [], 30.0))  # the worker lives
        app.operations.outages.look(now=True)

    look()
    (outage,) = service.outages()
    assert (outage.cause, outage.began_at, outage.oldest_at) == ("late", EIGHT + minutes(5), EIGHT)
    look()
    assert len(service.outages()) == 1
    service.greet("on time", EIGHT + minutes(10) - timedelta(seconds=1))
    asyncio.run(app.worker(until_idle=True).run())
    look()
    assert not service.outages()[0].is_over  # calm, but not for long enough
    service.clock.advance(seconds=60)
    look()
    (outage,) = service.outages()
    assert (outage.handled, outage.late_mean, outage.late_max) == (11, 600, 600)  # without the one on time
    assert (outage.down_since, outage.back_at) == (None, None)
    assert outage.ended_at == EIGHT + minutes(10)
    look()
    assert len(service.outages()) == 1


def test_from_outside_it_is_open_while_nobody_is_there(service: Service) -> None:
    service.work()
    service.greet("A", EIGHT + minutes(10))
    service.clock.advance(hours=1)
    service.app.operations.outages.look(now=True)
    (outage,) = service.outages()
    assert (outage.down_since, outage.back_at, outage.is_over) == (EIGHT, None, False)
    service.clock.advance(hours=1)
    service.work()
    (outage,) = service.outages()
    assert (outage.back_at, outage.handled, outage.is_over) == (EIGHT + minutes(120), 1, True)


# -- what is logged, and what a handler knows


def records(caplog: pytest.LogCaptureFixture, event: str) -> list[Any]:
    return [each for each in caplog.records if getattr(each, "event", None) == event]


@pytest.mark.covers("B21", "B22", "B58")
def test_a_message_an_hour_late_is_a_warning(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    service.work()
    service.greet("hour", EIGHT + minutes(60))
    service.greet("more", EIGHT + minutes(59))
    service.clock.advance(hours=2)
    with caplog.at_level(logging.WARNING, "holdfast"):
        service.work()
    (late,) = records(caplog, "message.late")  # exactly an hour is not more than an hour
    ended = service.app.operations.messages.show(late.message_id).ended[0]
    assert late.levelname == "WARNING"
    assert (late.subject, late.queue, late.type, late.attempt) == ("user-more", "greet", "greeting", 1)
    assert (late.lateness_minutes, late.lateness_hours) == (61, 1.0)
    assert late.due_at == str(EIGHT + minutes(59)) == str(ended.due_at)
    assert late.started_at == str(EIGHT + minutes(120)) == str(ended.started_at)
    assert late.reason == "recovery from downtime"
    (began,) = records(caplog, "outage.began")
    assert (began.number, began.down_since, began.cause) == (1, str(EIGHT), "absent")
    (over,) = records(caplog, "outage.ended")
    assert (over.handled, over.late_max, over.duration_seconds) == (2, 61 * 60, 61 * 60)


def test_the_warning_is_a_setting_and_comes_once(url: str, caplog: pytest.LogCaptureFixture) -> None:
    service = Service(url, warn_late=60.0)
    tries: list[timedelta] = []

    @service.app.handler("poll", name="poll")
    async def poll(ctx: Context) -> Snooze | None:
        tries.append(ctx.lateness)
        return Snooze(hours=2) if len(tries) < 3 else None

    service.app.publish("poll", at=EIGHT - minutes(2))
    with caplog.at_level(logging.WARNING, "holdfast"):
        for _ in range(3):
            service.work()
            service.clock.advance(hours=2)
    assert len(records(caplog, "message.late")) == 1  # the handler itself has put it off
    assert tries == [minutes(2), minutes(122), minutes(242)]  # against the first due time, as in the history
    assert records(caplog, "message.late")[0].reason == "it waited behind others or was held back"
    service.app.close()


def test_a_retry_is_late_against_the_first_due_time(service: Service) -> None:
    tries: list[tuple[int, timedelta]] = []

    @service.app.handler("flaky", name="flaky", retry="brisk")
    async def flaky(ctx: Context) -> None:
        tries.append((ctx.attempt, ctx.lateness))
        if ctx.attempt == 1:
            raise ConnectionError

    service.app.publish("flaky", at=EIGHT)
    service.clock.advance(minutes=1)
    service.work()
    service.clock.advance(minutes=9)
    service.work()
    assert tries == [(1, minutes(1)), (2, minutes(10))]


def test_without_a_due_time_it_is_late_from_when_it_was_stored(service: Service) -> None:
    service.app.publish("greeting", {"who": "A"})
    service.clock.advance(seconds=90)
    service.work()
    assert service.late == {"A": timedelta(seconds=90)}


def test_a_batch_knows_how_late_each_is(service: Service) -> None:
    late: list[timedelta] = []

    @service.app.handler("many", name="many", batch=10)
    async def many(bodies: list[int], contexts: list[Context]) -> None:
        late.extend(each.lateness for each in contexts)

    service.app.publish("many", 1, at=EIGHT + minutes(1))
    service.app.publish("many", 2, at=EIGHT + minutes(2))
    service.clock.advance(minutes=3)
    service.work()
    assert late == [minutes(2), minutes(1)]


@pytest.mark.covers("B17", "B19", "B26", "B27")
def test_the_summary_of_a_drain(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    @service.app.handler("broken", name="broken", retry="steady")
    async def broken() -> None:
        service.clock.advance(seconds=2)
        raise ConnectionError

    for n in range(5):
        service.greet(str(n), EIGHT)
    service.app.publish("broken", at=EIGHT + timedelta(seconds=1))
    service.clock.advance(seconds=1)
    with caplog.at_level(logging.INFO, "holdfast"):
        drained = service.work()
        (told,) = records(caplog, "drain.ended")
        assert (drained.processed, drained.failed) == (told.processed, told.failed) == (5, 1)
        assert (told.duration_ms, told.per_second, told.start) == (2000, 2.5, True)
        assert told.getMessage() == (
            "At its start 5 messages were handled and 1 failed in 2000 ms, 2.50 a second; nothing is due"
        )
        caplog.clear()
        assert service.work().processed == 0
        (told,) = records(caplog, "drain.ended")
        assert (told.processed, told.failed, told.start) == (0, 0, True)
        assert told.getMessage() == "At its start nothing was due"


async def test_each_drain_of_a_worker_that_stays_has_its_summary(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = Holdfast(url)
    app.migrate()

    @app.handler("work", name="work")
    async def work(n: int) -> None: ...

    async def drained(count: int) -> list[Any]:
        await auntil(lambda: len(records(caplog, "drain.ended")) >= count)
        return records(caplog, "drain.ended")

    with caplog.at_level(logging.INFO, "holdfast"):
        async with app.running():
            (first,) = await drained(1)
            assert (first.processed, first.start) == (0, True)
            app.publish_many(app.message("work", n) for n in range(7))
            later = (await drained(2))[1:]
            assert sum(each.processed for each in later) == 7
            assert not any(each.start for each in later)
    app.close()


# -- metrics, and the command


def sample(app: Holdfast, name: str, *labels: str) -> tuple[float, ...]:
    return next(each.values for each in app.metrics() if each.name == name and each.labels == labels)


@pytest.mark.covers("B47", "B48", "B49", "B50", "B51", "B52")
def test_the_metrics_of_a_recovery(url: str) -> None:
    service = Service(url, metrics=True)
    app = service.app

    @app.handler("broken", name="broken", retry="steady")
    async def broken() -> None:
        service.clock.advance(seconds=3)
        raise ConnectionError

    service.work()
    for n, late in enumerate((20, 10, 5, 3)):
        service.greet(str(n), EIGHT + minutes(60 - late))
    app.publish("broken", at=EIGHT + minutes(60))
    service.clock.advance(hours=1)
    asyncio.run(app.worker(until_idle=True).run())
    assert sample(app, "holdfast_attempts_total", "greet", "greeting", "done") == (4.0,)
    assert sample(app, "holdfast_failures_total", "broken", "broken", "transport_unavailable") == (1.0,)
    # Exactly five minutes is not later than that.
    assert sample(app, "holdfast_late_total", "greet") == (2.0,)
    *counts, total = sample(app, "holdfast_wait_seconds", "greet")
    assert total / sum(counts) / 60 == 9.5  # minutes
    *counts, total = sample(app, "holdfast_drain_seconds")
    assert (sum(counts), total) == (1, 3.0)
    assert sample(app, "holdfast_outage") == (1.0,)
    app.operations.outages.end()
    service.clock.advance(minutes=1)  # what the database says is kept for a while
    assert sample(app, "holdfast_outage") == (0.0,)
    app.close()


APP = """
import os
from holdfast import Context, Holdfast

app = Holdfast(os.environ["URL"])

@app.handler("work", name="work", rate="200/s")
async def work(n: int) -> None:
    if n == 3:
        raise ConnectionError

@app.handler("other", name="other")
async def other() -> None: ...
"""


def command(url: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "greetings.py").write_text(APP)
    line = [sys.executable, "-c", "from holdfast.cli import main; main()", "worker", "greetings:app", *words]
    environment = {**os.environ, "URL": url, "HOLDFAST_LOG_LEVEL": "ERROR"}
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.covers("B26", "B27", "B19")
def test_a_worker_until_idle_answers_with_its_summary(url: str, tmp_path: Path) -> None:
    """It waits for the tokens of a rate, leaves a paused queue alone and says so, and ends with 0."""
    app = Holdfast(url)
    app.migrate()
    assert command(url, tmp_path, "--until-idle").stdout.splitlines()[1:] == ["Nothing is due."]
    app.publish_many(app.message("work", n) for n in range(250))
    app.publish("other")
    app.operations.queues.pause("other", "a holiday")
    done = command(url, tmp_path, "--until-idle", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["processed"], told["failed"], told["left"]) == (249, 1, {"other": 1})
    assert told["per_second"] == pytest.approx(249 / told["duration_ms"] * 1000, rel=0.01)
    assert told["outage"] is None
    app.close()


@pytest.mark.parametrize(
    "words", ["--json", "--until-idle --processes 2", "--until-idle --metrics 127.0.0.1:0"]
)
def test_what_does_not_go_together_is_refused(words: str) -> None:
    done = CliRunner().invoke(command_line, ["worker", "greetings:app", *words.split()])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--until-idle" in done.stderr


# -- the states and logs of one event


@pytest.mark.covers("B6", "B32", "B33", "B59", "B34")
def test_an_event_is_pending_then_in_hand_then_completed(service: Service) -> None:
    states: list[str] = []
    app = service.app

    @app.handler("look", name="look")
    def look(ctx: Context) -> None:
        states.extend(each.state for each in app.operations.messages.find(Filter(type="look")))

    app.prepare()
    ids = [app.publish("look", at=EIGHT + minutes(n)).id for n in (1, 2)]
    service.clock.advance(days=2)
    assert [each.state for each in app.operations.messages.find(Filter(type="look"))] == ["ready", "ready"]
    assert service.work().processed == 2
    assert states[0] == "leased"
    ended = [app.operations.messages.show(id).ended[0] for id in ids]
    assert [(each.outcome, each.started_at) for each in ended] == [("done", service.clock.instant)] * 2
    assert app.operations.messages.find(Filter(type="look")) == []


@pytest.mark.covers("B24", "B25", "B30", "B15")
def test_success_and_failure_are_logged_and_the_others_go_on(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    @service.app.handler("send", name="send", concurrency=1, retry="steady")
    async def send(n: int) -> None:
        if n == 2:
            raise ConnectionError("the webhook is down")

    ids = [service.app.publish("send", n, subject=f"user-{n}", at=EIGHT + minutes(n)).id for n in (1, 2, 3)]
    service.clock.advance(minutes=10)
    with caplog.at_level(logging.INFO, "holdfast"):
        assert service.work().processed == 2
    done = [
        (each.message_id, each.subject, each.lateness_minutes) for each in records(caplog, "message.done")
    ]
    assert done == [(str(ids[0]), "user-1", 9), (str(ids[2]), "user-3", 7)]
    (failed,) = records(caplog, "message.failed")
    assert (failed.message_id, failed.attempt, failed.error) == (str(ids[1]), 1, "ConnectionError")
    ((pending, _),) = service.app.operations.messages.show(ids[1]).pending
    assert (pending.attempts, pending.failures, pending.error) == (
        1,
        1,
        "ConnectionError: the webhook is down",
    )


@pytest.mark.covers("B39", "B40", "B41", "X15")
def test_three_failures_a_minute_apart_and_it_is_a_dead_letter(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    starts: list[datetime] = []

    @service.app.handler(
        "send", name="send", retry=RetryPolicy(attempts_max=3, base=60.0, factor=1.0, jitter=0.0)
    )
    async def send() -> None:
        starts.append(service.clock.instant)
        raise ConnectionError("the webhook is down")

    id = service.app.publish("send", at=EIGHT).id
    with caplog.at_level(logging.ERROR, "holdfast"):
        for _ in range(4):
            service.work()
            service.clock.advance(minutes=1)
    assert starts == [EIGHT, EIGHT + minutes(1), EIGHT + minutes(2)]
    (letter,) = service.app.operations.dead.list()
    assert (letter.id, letter.attempts, letter.error) == (id, 3, "ConnectionError: the webhook is down")
    (died,) = records(caplog, "message.died")
    assert (died.message_id, died.attempt, died.error) == (str(id), 3, "ConnectionError")
