"""Alerts on both databases: measured, decided by one, told at least once, with the all-clear."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Alert, Dead, Holdfast, InvalidSettings, RetryPolicy
from holdfast.alerting.webhook import Webhook
from holdfast.model.message import Reason
from holdfast.model.work import Outcome
from holdfast.operations import Alerts, Operations
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.plans import outages
from holdfast.store.values import instant
from tests.operations.world import NOON, World

FIVE_MINUTES = Settings().alert_scheduler


class Ears:
    """A sink that remembers, and refuses as long as it is told to."""

    def __init__(self, name: str = "ears") -> None:
        self.name, self.heard, self.deaf = name, [], False  # type: ignore[var-annotated]

    def send(self, alert: Alert) -> None:
        if self.deaf:
            raise ConnectionError("nobody is there")
        self.heard.append(alert)

    @property
    def told(self) -> list[tuple[str, str, str]]:
        return [(each.name, each.subject, each.what) for each in self.heard]


def alerts(world: World, *sinks: Ears, **settings: float) -> Alerts:
    settings = {"alert_scheduler": 1e9, **settings}
    return Operations(world.store, Settings().but(**settings), sinks=sinks).alerts


def round_of(each: Alerts) -> None:
    each.look(now=True)
    each.send()


def die(world: World, count: int, last: Reason = Reason.HANDLER_EXCEPTION, queue: str = "q") -> None:
    for _ in range(count):
        world.publish(queue=queue)
    for leased in world.claim(queue, total=count, name=f"of {queue}"):
        world.die(leased, last=last)


# -- once, and the all-clear


@pytest.mark.covers("X20", "V35")
def test_a_hundred_dead_letters_a_day_are_told_once_and_when_it_is_over(world: World) -> None:
    ears = Ears()
    seen = alerts(world, ears, alert_silent=1e9)
    die(world, 99)
    round_of(seen)
    assert ears.told == []
    die(world, 1, Reason.TRANSPORT_UNAVAILABLE, "other")
    round_of(seen)
    assert ears.told == [("dead_letters", "", "raised")]
    raised = ears.heard[0]
    assert (raised.value, raised.threshold, raised.at) == (100.0, 100.0, NOON)
    assert raised.text == "100 deaths within a day, 99 of them in queue q."
    assert raised.details == {
        "count": 100,
        "queues": {"q": 99, "other": 1},
        "reasons": {"handler exception": 99, "transport unavailable": 1},
    }
    die(world, 50)
    world.clock.advance(minutes=5)
    round_of(seen)
    round_of(seen)
    assert len(ears.heard) == 1  # the same episode
    world.clock.advance(days=1)
    round_of(seen)
    assert len(ears.heard) == 1  # calm, but not for long enough
    world.clock.advance(seconds=60)
    round_of(seen)
    assert ears.told[1:] == [("dead_letters", "", "over")]
    over = ears.heard[1]
    assert over.episode == raised.episode == raised.number
    assert (over.value, over.since, over.details) == (0.0, NOON, {"peak": 150.0})
    assert over.text == "Over: dead_letters, after 1.0 d; the highest value was 150."
    assert seen.raised() == []
    die(world, 100)
    round_of(seen)
    assert ears.told[2:] == [("dead_letters", "", "raised")]
    assert ears.heard[2].episode != raised.episode


def test_redriving_does_not_hide_deaths(world: World) -> None:
    ears = Ears()
    seen = alerts(world, ears, alert_dead=2)
    die(world, 1)
    world.operations.dead.redrive(world.operations.dead.list()[0].id)
    world.clock.advance(seconds=1)
    world.die(world.claim(name="of q")[0])
    round_of(seen)
    assert ("dead_letters", "", "raised") in ears.told


@pytest.mark.covers("V24")
async def test_a_network_error_is_tried_three_times_more_and_then_told(url: str) -> None:
    app = Holdfast(url, alert_dead=1)
    app.migrate()
    heard: list[Alert] = []
    starts = 0

    @app.on_alert
    def tell(alert: Alert) -> None:
        heard.append(alert)

    @app.handler("order.placed", retry=RetryPolicy(attempts_max=4, base=0.0))
    async def send() -> None:
        nonlocal starts
        starts += 1
        raise ConnectionRefusedError

    app.publish("order.placed")
    worker = app.worker(until_idle=True)
    await worker.run()
    round_of(app.operations.alerts)
    app.close()
    assert starts == 4
    (alert,) = [each for each in heard if each.name == "dead_letters"]
    assert alert.details["reasons"] == {"transport unavailable": 1}


# -- what is measured


def value(world: World, name: str, subject: str = "", **settings: float) -> float | None:
    found = alerts(world, **settings).measure()[name]
    return next((each.value for each in found if each.subject == subject), None)


def test_late_messages_wait_or_have_begun_late(world: World) -> None:
    for _ in range(3):
        world.publish(queue="q")
    world.publish(queue="q", delay=10_000.0)
    world.clock.advance(seconds=299)
    assert value(world, "late") == 0
    world.clock.advance(seconds=1)
    assert value(world, "late") == 3
    for leased in world.claim(total=2):
        world.done(leased)
    assert value(world, "late") == 3  # one waits, two began late
    world.clock.advance(seconds=61)
    assert value(world, "late") == 1
    for leased in world.claim():
        world.done(leased)
    (late,) = alerts(world).measure()["late"]
    assert late.value == 1
    assert late.details["began_late"] == 1
    assert late.details["oldest_seconds"] == pytest.approx(361.0, abs=1)
    world.clock.advance(seconds=61)
    assert value(world, "late") == 0


@pytest.mark.covers("X20", "B53")
def test_late_messages_are_told(world: World) -> None:
    ears = Ears()
    seen = alerts(world, ears, alert_backlog=1e9, alert_silent=1e9)
    for _ in range(10):
        world.publish(queue="q")
    world.clock.advance(seconds=300)
    round_of(seen)
    assert ears.told == []  # ten are not more than ten
    world.publish(queue="q")
    world.clock.advance(seconds=300)
    round_of(seen)
    assert ears.told == [("late", "", "raised")]
    assert ears.heard[0].text == "11 messages are late: the latest by 10.0 min."
    assert ears.heard[0].details["count"] == 11
    assert ears.heard[0].details["oldest_minutes"] == 10
    round_of(seen)
    assert len(ears.heard) == 1


@pytest.mark.covers("B54", "X16")
def test_nobody_looks_for_what_is_due_for_five_minutes(world: World) -> None:
    """Also when the last worker was stopped in order and its row is gone."""
    ears = Ears()
    outside = alerts(
        world, ears, alert_scheduler=FIVE_MINUTES, alert_backlog=1e9, alert_silent=1e9, alert_late=1e9
    )
    world.store.run(outages.leave(world.worker("w1")))
    last = world.clock.instant
    world.clock.advance(days=1)
    assert value(world, "scheduler_silent") is None  # nothing is due
    world.publish(queue="q")
    world.clock.advance(seconds=1)
    round_of(outside)
    assert ears.told == [("scheduler_silent", "", "raised")]
    assert ears.heard[0].threshold == FIVE_MINUTES == 300
    assert ears.heard[0].details["last_run"] == last.isoformat().replace("+00:00", "Z")
    assert ears.heard[0].details["minutes_since"] == pytest.approx(1440 + 1 / 60)
    world.worker("w2")
    round_of(outside)
    world.clock.advance(seconds=60)
    round_of(outside)
    assert ears.told[1:] == [("scheduler_silent", "", "over")]


@pytest.mark.covers("B54", "X16")
def test_the_age_of_the_last_run_is_compared_with_five_minutes(world: World) -> None:
    ears = Ears()
    outside = alerts(
        world, ears, alert_scheduler=FIVE_MINUTES, alert_backlog=1e9, alert_silent=1e9, alert_late=1e9
    )
    world.worker("w1")
    world.publish(queue="q")
    world.clock.advance(seconds=299)
    round_of(outside)
    assert ears.told == []
    world.clock.advance(seconds=1)
    round_of(outside)
    assert ears.told == [("scheduler_silent", "", "raised")]


@pytest.mark.covers("X20")
def test_silent_workers_are_noticed_from_outside(world: World) -> None:
    ears = Ears()
    outside = alerts(world, ears, alert_backlog=1e9, late=1e9)
    round_of(outside)
    assert ears.told == []  # no worker and nothing to do
    world.worker("w1")
    world.clock.advance(seconds=119)
    round_of(outside)
    assert ears.told == []
    world.clock.advance(seconds=1)
    round_of(outside)
    assert ears.told == [("workers_silent", "", "raised")]
    assert ears.heard[0].text == "No worker has been seen for 2.0 min."
    world.worker("w2")
    round_of(outside)
    world.clock.advance(seconds=60)
    world.worker("w3")
    round_of(outside)
    assert ears.told[1:] == [("workers_silent", "", "over")]


def test_no_worker_at_all_is_silence_as_long_as_something_waits(world: World) -> None:
    assert value(world, "workers_silent") is None
    world.publish(queue="q")
    world.clock.advance(seconds=30)
    assert value(world, "workers_silent") == 30


@pytest.mark.covers("X20", "W68")
def test_an_open_breaker_is_one_episode_with_its_trials(world: World) -> None:
    ears = Ears()
    seen = alerts(world, ears)
    for _ in range(10):
        with pytest.raises(ConnectionError), world.breakers.get("llm"):
            raise ConnectionError
    with world.breakers.get("stt"):
        pass
    round_of(seen)
    assert ears.told == [("breaker_open", "llm", "raised")]
    assert ears.heard[0].details["state"] == "open"
    assert "10 of the last 10 calls failed" in ears.heard[0].text
    for _ in range(3):  # trials fail, and fail again
        world.clock.advance(seconds=31)
        with pytest.raises(ConnectionError), world.breakers.get("llm"):
            raise ConnectionError
        round_of(seen)
    assert len(ears.heard) == 1
    world.operations.breakers.reset("llm")
    round_of(seen)
    world.clock.advance(seconds=60)
    round_of(seen)
    assert ears.told[1:] == [("breaker_open", "llm", "over")]


@pytest.mark.covers("X20", "W64")
def test_streams_that_stand_still_are_told_by_queue(world: World) -> None:
    ears = Ears()
    seen = alerts(world, ears, alert_backlog=1e9, late=1e9, alert_silent=1e9, alert_poison=1e9)
    first, _ = world.in_stream(2)
    world.in_stream(1, "alone")  # nobody waits behind it
    world.in_stream(2, "moving")
    world.in_stream(2, "parked", queue="other")
    for leased in world.claim():
        if leased.message.stream == "moving":
            world.settle(leased, Outcome.AGAIN, counted=False)
        else:
            world.fail(leased, 300.0)
    world.operations.messages.park(world.order("parked", "other")[0])
    for _ in range(2):  # it fails again and again: that is no new beginning
        world.clock.advance(seconds=300)
        for leased in world.claim():
            if leased.message.stream != "moving":
                world.fail(leased, 300.0)
            else:
                world.settle(leased, Outcome.AGAIN, counted=False)
    world.clock.advance(seconds=299)
    round_of(seen)
    assert ears.told == []
    world.clock.advance(seconds=1)
    for leased in world.claim():
        world.fail(leased, 300.0)
    round_of(seen)
    assert ears.told == [("stream_blocked", "other", "raised"), ("stream_blocked", "q", "raised")]
    blocked = ears.heard[1]
    assert blocked.text == f"Stream s of queue q is blocked for 15.0 min by {first}."
    assert [each["stream"] for each in blocked.details["streams"]] == ["s"]
    world.operations.streams.set_aside("q", "s")
    round_of(seen)
    world.clock.advance(seconds=60)
    round_of(seen)
    assert ears.told[2:] == [("stream_blocked", "q", "over")]


def test_a_halted_stream_is_told_even_if_nobody_waits_yet(world: World) -> None:
    (first,) = world.in_stream(1)
    world.die(world.claim()[0], halt=True)
    world.clock.advance(seconds=900)
    (found,) = alerts(world).measure()["stream_blocked"]
    assert (found.subject, found.value) == ("q", 900)
    assert found.text == f"Stream s of queue q is blocked for 15.0 min by {first}."


@pytest.mark.covers("X20")
def test_the_age_of_a_backlog(world: World) -> None:
    ears = Ears()
    seen = alerts(world, ears, late=1e9, alert_silent=1e9)
    world.subscribe("q", "order.placed")
    world.publish()
    world.claim()  # in hands: no backlog
    waits = world.publish()
    world.publish(queue="other", delay=599.0)
    parked = world.publish(queue="parked")
    world.operations.messages.park(parked)
    world.clock.advance(seconds=20)
    failed = world.publish(queue="retrying")
    world.fail(world.claim("retrying", name="w2")[0], 3600.0)
    assert failed
    world.clock.advance(seconds=579)
    assert value(world, "backlog_age", "q") == 599
    assert value(world, "backlog_age", "other") == 0
    assert value(world, "backlog_age", "parked") is None
    assert value(world, "backlog_age", "retrying") is None
    world.operations.queues.pause("q")
    world.clock.advance(seconds=1)
    round_of(seen)
    assert ears.told == [("backlog_age", "q", "raised")]
    assert ears.heard[0].text == "The oldest message of queue q, which is paused, waits for 10.0 min."
    assert ears.heard[0].details["id"] == str(waits)


@pytest.mark.covers("X20", "W64")
def test_poison_candidates(world: World) -> None:
    id = world.publish(queue="q")
    world.fail_often(id, 9)
    assert value(world, "poison_candidates") is None
    world.fail_often(id, 1)
    (found,) = alerts(world).measure()["poison_candidates"]
    assert found.value == 1
    assert found.details["messages"] == [
        {"id": str(id), "queue": "q", "type": "order.placed", "attempts": 10}
    ]


def test_what_cannot_be_measured_leaves_its_episode(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ears = Ears()
    seen = alerts(world, ears, alert_dead=1)
    die(world, 1)
    round_of(seen)

    def broken(*_: object) -> None:
        raise RuntimeError("out of order")

    from holdfast.operations import alerts as module

    monkeypatch.setattr(module, "MEASURES", {**module.MEASURES, "dead_letters": broken})
    world.clock.advance(days=2)
    round_of(seen)
    world.clock.advance(days=2)
    round_of(seen)
    assert [each for each in ears.told if each[0] == "dead_letters"] == [("dead_letters", "", "raised")]
    assert "dead_letters was not measured" in caplog.text


# -- one of many


@pytest.mark.covers("X20")
def test_of_many_who_decide_one_announces(world: World, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several processes look at the same moment, each with what it has measured before."""
    die(world, 5)
    stores = [open_store(url, Settings(), world.clock) for _ in range(6)]
    ears = Ears()
    many = [Operations(each, Settings().but(alert_dead=5), sinks=[ears]).alerts for each in stores]
    if url.startswith("postgresql"):  # on SQLite one decides after another
        from holdfast.operations import alerts as module

        judge, all_have_read = module.rules.judge, threading.Barrier(len(many))

        def judge_together(*facts: Any) -> Any:
            with suppress(threading.BrokenBarrierError):  # by one that tries again, alone
                all_have_read.wait(10)
            return judge(*facts)

        monkeypatch.setattr(module.rules, "judge", judge_together)

    def all_at_once(do: Callable[[Alerts], object]) -> None:
        start = threading.Barrier(len(many))
        threads = [threading.Thread(target=lambda e=each: (start.wait(), do(e))) for each in many]  # type: ignore[misc]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)

    measured = [each.measure() for each in many]
    all_at_once(lambda each: each.decide(measured[many.index(each)]))
    all_at_once(Alerts.send)
    assert [each for each in ears.told if each[0] == "dead_letters"] == [("dead_letters", "", "raised")]
    world.clock.advance(days=2)
    measured = [each.measure() for each in many]
    all_at_once(lambda each: each.decide(measured[many.index(each)]))
    world.clock.advance(seconds=60)
    all_at_once(lambda each: each.decide(measured[many.index(each)]))
    all_at_once(Alerts.send)
    assert [each for each in ears.told if each[0] == "dead_letters"] == [
        ("dead_letters", "", "raised"),
        ("dead_letters", "", "over"),
    ]
    for store in stores:
        store.close()


def test_looks_are_no_more_often_than_the_setting_says(world: World) -> None:
    one, other = alerts(world, alert_silent=1e9), alerts(world, alert_silent=1e9)
    die(world, 100)
    assert [each.episode.name for each in one.look()] == ["dead_letters"]
    world.clock.advance(days=2)
    assert other.look() == []  # its turn: calm now
    looked = one.raised()[0]
    world.clock.advance(seconds=29)
    other.look()
    assert one.raised()[0] == looked
    world.clock.advance(seconds=31)
    assert [each.episode.name for each in other.look()] == ["dead_letters"]


def test_after_a_look_that_took_long_comes_a_long_rest(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = alerts(world)
    measure = seen.measure
    monkeypatch.setattr(seen, "measure", lambda: (world.clock.advance(seconds=10), measure())[1])
    seen.look()
    ((next_at,),) = world.sql("select next_at from holdfast.turn")
    assert instant(next_at) == world.clock.instant + timedelta(seconds=500)


# -- told at least once


@pytest.mark.covers("X20")
def test_a_sink_that_fails_hears_it_later_and_the_others_not_again(world: World) -> None:
    ears, deaf = Ears("ears"), Ears("deaf")
    deaf.deaf = True
    seen = alerts(world, ears, deaf, alert_dead=1, alert_silent=1e9)
    die(world, 1)
    round_of(seen)
    assert (len(ears.heard), len(deaf.heard)) == (1, 0)
    (news,) = seen.news()
    assert (news.sent_to, news.tries, news.ended_at) == (("log", "ears"), 1, None)
    assert news.error == "deaf: ConnectionError: nobody is there"
    assert "alert-unsent" in [each.name for each in world.operations.doctor()]
    seen.send()
    assert seen.news()[0].tries == 1  # not yet
    deaf.deaf = False
    world.clock.advance(seconds=60)
    assert seen.send() == 1
    assert (len(ears.heard), len(deaf.heard)) == (1, 1)
    (news,) = seen.news()
    assert (news.sent_to, news.tries, news.error) == (("log", "ears", "deaf"), 2, None)
    assert "alert-unsent" not in [each.name for each in world.operations.doctor()]
    assert news.ended_at == world.clock.instant


def test_what_is_stored_and_logged_of_a_webhook_has_none_of_its_path(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Chat services put the secret there."""
    sink = Webhook(
        "http://127.0.0.1:1/T000/TOKEN?a=TOKEN",
        "0123456789abcdef01234567",
        allow_http=True,
        allow_private=True,
    )
    seen = Operations(world.store, Settings().but(alert_dead=1, alert_silent=1e9), sinks=[sink]).alerts
    die(world, 1)
    round_of(seen)
    (news,) = seen.news()
    assert news.error == f"{sink.name}: NotTaken: did not answer: ConnectionRefusedError"
    rows = world.sql("select * from holdfast.alert_news")
    shown = (news, rows, seen.try_sinks(), world.operations.doctor(), caplog.text)
    assert "127.0.0.1:1" in str(shown)
    assert "TOKEN" not in str(shown)


def test_the_all_clear_waits_for_what_was_raised(world: World) -> None:
    deaf = Ears()
    deaf.deaf = True
    seen = alerts(world, deaf, alert_dead=1, alert_silent=1e9)
    die(world, 1)
    round_of(seen)
    world.clock.advance(days=1)  # longer ago than a day does not count
    seen.look(now=True)
    world.clock.advance(seconds=60)
    seen.look(now=True)
    assert [each.alert.what for each in seen.news()] == ["over", "raised"]
    deaf.deaf = False
    seen.send()
    assert [each.what for each in deaf.heard] == ["raised", "over"]


def test_news_that_nobody_takes_is_given_up_after_a_day_and_forgotten_after_a_week(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    deaf = Ears()
    deaf.deaf = True
    seen = alerts(world, deaf, alert_dead=1, alert_silent=1e9)
    die(world, 1)
    round_of(seen)
    world.clock.advance(seconds=86_401)
    seen.send()
    (news,) = seen.news()
    assert news.ended_at == world.clock.instant
    assert "is given up" in caplog.text
    world.clock.advance(days=7)
    assert world.operations.housekeeping().alerts == 0
    world.clock.advance(seconds=1)
    assert world.operations.housekeeping().alerts == 1
    assert seen.news() == []


DIES = """
import os, sys
from holdfast.clock import MovableClock
from holdfast.operations import Operations
from holdfast.settings import Settings
from holdfast.alerting.webhook import Webhook
from holdfast.store import open_store
from holdfast.store.plans import outages
from datetime import datetime

class Fatal:
    name = "ears"
    def send(self, alert):
        os._exit(9)  # between the decision and the delivery

store = open_store(sys.argv[1], Settings(), MovableClock(datetime.fromisoformat(sys.argv[2])))
found = Operations(store, Settings().but(alert_dead=1, alert_silent=1e9), sinks=[Fatal()]).alerts
found.look(now=True)
found.send()
"""


@pytest.mark.covers("X20")
def test_a_process_that_dies_between_decision_and_delivery_loses_nothing(world: World, url: str) -> None:
    die(world, 1)
    dead = subprocess.run(
        [sys.executable, "-c", DIES, url, world.clock.instant.isoformat()], env=os.environ, timeout=60
    )
    assert dead.returncode == 9
    ears = Ears()
    seen = alerts(world, ears, alert_dead=1, alert_silent=1e9)
    round_of(seen)
    assert ears.told == []  # it may be about to be told
    world.clock.advance(seconds=60)
    round_of(seen)
    assert ears.told == [("dead_letters", "", "raised")]


# -- the application


async def test_workers_look_with_their_housekeeping(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.worker.loop.HOUSEKEEPING", 0.05)
    app = Holdfast(url, alert_dead=1)
    app.migrate()
    heard = threading.Event()

    @app.on_alert
    async def tell(alert: Alert) -> None:
        assert alert.name == "dead_letters"
        heard.set()

    @app.handler("order.placed")
    async def send() -> None:
        raise Dead("no such customer")

    async with app.running():
        await app.apublish("order.placed")
        assert await asyncio.to_thread(heard.wait, 30)
    app.close()


def test_a_sink_is_given_once() -> None:
    app = Holdfast("sqlite:///:memory:")

    @app.on_alert
    def tell(alert: Alert) -> None: ...

    with pytest.raises(InvalidSettings, match="already"):
        app.on_alert(tell)


@pytest.mark.alone
async def test_a_sink_that_hangs_does_not_hold_up_a_worker_that_stops(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.worker.loop.HOUSEKEEPING", 0.05)
    app = Holdfast(url, alert_dead=1)
    app.migrate()
    called, over = threading.Event(), threading.Event()

    @app.on_alert
    def hang(alert: Alert) -> None:
        called.set()
        over.wait(60)

    @app.handler("order.placed")
    async def send() -> None:
        raise Dead("no such customer")

    async with app.running():
        await app.apublish("order.placed")
        assert await asyncio.to_thread(called.wait, 30)
        begun = time.monotonic()
    assert time.monotonic() - begun < 5
    over.set()
    app.close()
