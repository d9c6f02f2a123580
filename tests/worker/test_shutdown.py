"""Stopping: what runs may end, what has not begun goes back at once, and nobody is a suspect for a stop."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from typing import Any

import pytest

from holdfast import Context, RetryPolicy
from holdfast.processes.supervisor import SAME_WORD
from tests.worker.lab import Lab, auntil, children_of, settled, state_of, until

QUICK = {"lease": 5.0, "heartbeat": 1.0, "grace": 3.0}


# --- Processes --------------------------------------------------------------------------------------------------------


@pytest.mark.covers("X9", "X44", "B16")
def test_a_stop_drains_and_gives_the_rest_back(lab: Lab) -> None:
    """One runs and is let to end. The others of its stream were handed out with it, and go back as they were."""
    lab.publish(*({"n": n, "reach": f"reached-{n}", "until": "go"} for n in range(5)), stream="s")
    worker = lab.start(settings=QUICK)
    lab.reached("reached-0")
    worker.send(signal.SIGTERM)
    until(lambda: any(row.stopping for row in lab.rows("worker")), lab.said)
    assert [row.attempts for row in lab.rows("message")] == [0] * 5
    lab.signal("go")
    assert worker.wait() == 0
    assert len(lab.rows("message")) == 4
    assert lab.rows("lease") == []
    assert {(row.attempts, row.vanished, row.failures) for row in lab.rows("message")} == {(0, 0, 0)}
    assert [(row.outcome, row.attempts) for row in lab.rows("history")] == [("done", 1)]
    assert lab.rows("worker") == [], "a worker that has left is forgotten"
    lab.start(settings=QUICK)
    lab.until_empty()
    assert {row.attempts for row in lab.rows("history")} == {1}


@pytest.mark.covers("X9", "X44")
def test_what_was_handed_out_and_not_begun_is_claimable_at_once(lab: Lab) -> None:
    lab.publish(*({"n": n, "reach": f"reached-{n}", "until": "go"} for n in range(6)))
    worker = lab.start(settings={**QUICK, "claim": 6}, options={"concurrency": 1})
    lab.reached("reached-0")
    until(lambda: len(lab.rows("lease")) >= 1, lab.said)
    worker.send(signal.SIGTERM)
    until(lambda: len(lab.rows("lease")) == 1, lab.said)
    waiting = [row for row in lab.rows("message") if row.seq != lab.rows("lease")[0].seq]
    assert {(row.attempts, row.vanished, row.failures) for row in waiting} == {(0, 0, 0)}
    assert all(row.claimable_at <= row.claimable_at.now(row.claimable_at.tzinfo) for row in waiting)
    lab.signal("go")
    assert worker.wait() == 0


@pytest.mark.alone
@pytest.mark.parametrize("kind", ["trouble", "thread"])
def test_who_does_not_stop_within_the_grace_is_interrupted(lab: Lab, kind: str) -> None:
    queue = "trouble" if kind == "trouble" else "in_thread"
    lab.publish({"n": 1, "reach": "reached", "until": "never"}, type=kind, queue=queue)
    worker = lab.start(settings={**QUICK, "grace": 1.0})
    lab.reached("reached")
    begun = time.monotonic()
    worker.send(signal.SIGTERM)
    worker.wait()
    assert time.monotonic() - begun < 1.0 + 2.0 + 5.0, "5 s are for a machine that has other things to do"
    (row,) = lab.rows("message")
    assert (row.attempts, row.vanished, row.failures) == (1, 0, 0), (
        "it has begun, so it counts; nobody is a suspect"
    )
    assert lab.rows("lease") == []


@pytest.mark.covers("X44")
def test_a_second_signal_ends_it_at_once_and_makes_nobody_a_suspect(lab: Lab) -> None:
    lab.publish(*({"n": n, "reach": f"reached-{n}", "until": "never"} for n in range(3)))
    worker = lab.start(processes=2, settings={**QUICK, "grace": 60.0})
    for n in range(3):
        lab.reached(f"reached-{n}")
    worker.send(signal.SIGTERM)
    until(lambda: lab.rows("worker") and all(row.stopping for row in lab.rows("worker")), lab.said)
    time.sleep(SAME_WORD)
    worker.send(signal.SIGTERM)
    worker.wait()
    assert {(row.attempts, row.vanished) for row in lab.rows("message")} == {(1, 0)}
    assert lab.rows("lease") == []


def test_a_blocked_loop_does_not_keep_the_supervisor(sqlite_lab: Lab) -> None:
    lab = sqlite_lab
    lab.publish({"n": 1, "seconds": 600}, type="sleeper", queue="sleeper")
    worker = lab.start(settings={**QUICK, "grace": 0.5})
    until(lambda: lab.starts(), lab.said)
    worker.send(signal.SIGTERM)
    worker.wait()
    (row,) = lab.rows("message")
    assert (row.attempts, row.vanished) == (1, 0)


def test_a_signal_that_comes_twice_at_once_is_one_stop(sqlite_lab: Lab) -> None:
    """`timeout 60 holdfast worker ...` tells the process, and then its group as well."""
    lab = sqlite_lab
    lab.publish({"n": 1, "reach": "reached", "until": "go"})
    worker = lab.start(settings={**QUICK, "grace": 20.0})
    lab.reached("reached")
    worker.send(signal.SIGTERM)
    worker.send(signal.SIGTERM)
    until(lambda: lab.rows("worker") and all(row.stopping for row in lab.rows("worker")), lab.said)
    lab.signal("go")
    assert worker.wait() == 0
    assert [row.outcome for row in lab.rows("history")] == ["done"]


def test_ctrl_c_in_a_terminal_reaches_all_and_is_one_stop(sqlite_lab: Lab) -> None:
    """The whole group gets the signal; children must not take the supervisor's word for a second one."""
    lab = sqlite_lab
    lab.publish({"n": 1, "reach": "reached", "until": "go"})
    worker = lab.start(settings={**QUICK, "grace": 20.0})
    lab.reached("reached")
    for pid in (worker.pid, *worker.children()):
        os.kill(pid, signal.SIGINT)
    until(lambda: any(row.stopping for row in lab.rows("worker")), lab.said)
    lab.signal("go")
    assert worker.wait() == 0
    assert [row.outcome for row in lab.rows("history")] == ["done"]


@pytest.mark.parametrize("blocked", [False, True])
def test_children_whose_supervisor_was_killed_stop_by_themselves(sqlite_lab: Lab, blocked: bool) -> None:
    lab = sqlite_lab
    if blocked:
        lab.publish({"n": 1, "seconds": 600}, type="sleeper", queue="sleeper")
    else:
        lab.publish({"n": 1, "reach": "reached", "until": "go"})
    worker = lab.start(settings={**QUICK, "grace": 1.0})
    until(lambda: lab.starts(), lab.said)
    children = children_of(worker.pid)
    assert children
    worker.send(signal.SIGKILL)
    worker.wait()
    lab.signal("go")
    until(lambda: all(state_of(pid) in ("", "Z") for pid in children), lab.said)
    if not blocked:
        until(lambda: [row.outcome for row in lab.rows("history")] == ["done"], lab.said)


def rolling_restarts(lab: Lab, restarts: int, messages: int) -> None:
    """Workers come and go under load, two at a time; nobody's attempt is spent on it."""
    bodies = [{"n": n, "seconds": 0.01} for n in range(messages)]
    lab.publish(*bodies, stream=lambda body: f"s{body['n'] % 20}" if body["n"] % 2 else None)
    workers = [lab.start(settings=QUICK, options={"concurrency": 10}) for _ in range(2)]
    for turn in range(restarts):
        seen = len(lab.starts())
        until(lambda seen=seen: len(lab.starts()) > seen + 5 or lab.is_empty(), lab.said)
        workers.append(lab.start(settings=QUICK, options={"concurrency": 10}))
        old = workers[turn]
        until(old.children, lab.said)
        old.send(signal.SIGTERM)
        assert old.wait() == 0
    lab.until_empty(120)
    assert set(lab.started().values()) == {1}
    assert {(row.attempts, row.failures) for row in lab.rows("history")} == {(1, 0)}
    assert len(lab.rows("history")) == messages


@pytest.mark.covers("X44", "X9")
def test_five_rolling_restarts_under_load(lab: Lab) -> None:
    rolling_restarts(lab, 5, 600)


@pytest.mark.faults("storms")
@pytest.mark.covers("X44", "X9")
def test_twenty_rolling_restarts_under_load(lab: Lab) -> None:
    rolling_restarts(lab, 20, 5000)


# --- Inside an application --------------------------------------------------------------------------------------------


async def test_a_worker_inside_an_application(lab: Lab) -> None:
    app, seen = lab.app(), []

    @app.handler("a")
    async def work(body: dict) -> None:
        seen.append(body["n"])

    async with app.running():
        await app.apublish("a", {"n": 1})
        await settled(lab)
        published = await asyncio.to_thread(app.publish, "a", {"n": 2})
        await settled(lab)
    assert seen == [1, 2]
    assert published.id is not None
    app.publish("a", {"n": 3})  # the application goes on
    async with app.running():
        await settled(lab)
    assert seen == [1, 2, 3]
    assert lab.rows("worker") == []


async def test_an_error_in_the_application_stops_the_worker_in_order(lab: Lab) -> None:
    app, ended = lab.app(), []
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.handler("a")
    async def work(body: dict) -> None:
        begun.set()
        await go_on.wait()
        ended.append(body)

    async def application() -> None:
        async with app.running():
            await asyncio.wait_for(begun.wait(), 30)
            asyncio.get_running_loop().call_later(0.05, go_on.set)
            raise RuntimeError("the application's own")

    app.publish("a", {})
    with pytest.raises(RuntimeError, match="the application's own"):
        await application()
    assert ended == [{}]
    assert [row.attempts for row in lab.rows("history")] == [1]


async def test_a_worker_that_is_cancelled_leaves_nothing_behind(lab: Lab) -> None:
    """A task group that fails cancels it: no time to drain, but time to say so."""
    app = lab.app()
    begun = asyncio.Event()

    @app.handler("a", concurrency=1)
    async def work(body: dict) -> None:
        begun.set()
        await asyncio.sleep(600)

    app.publish_many(app.message("a", {"n": n}) for n in range(3))
    await asyncio.to_thread(app.prepare)
    task = asyncio.create_task(app.worker().run())
    await asyncio.wait_for(begun.wait(), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert lab.rows("lease") == []
    assert sorted((row.attempts, row.vanished) for row in lab.rows("message")) == [(0, 0), (0, 0), (1, 0)]


async def test_threads_that_do_not_come_back_do_not_keep_the_worker(lab: Lab) -> None:
    app, begun, go_on = lab.app(grace=0.3), threading.Event(), threading.Event()

    @app.handler("a")
    def work(body: dict) -> None:
        begun.set()
        go_on.wait(60)

    app.publish("a", {})
    async with app.running():
        await auntil(begun.is_set)
    assert [(row.attempts, row.vanished) for row in lab.rows("message")] == [(1, 0)]
    assert lab.rows("lease") == []
    go_on.set()


@pytest.mark.covers("X39")
async def test_a_worker_inside_an_application_takes_suspects_alone(lab: Lab) -> None:
    """It has no quarantine process: it drains first, and nothing else runs beside the suspect."""
    app = lab.app(lease=2.0, heartbeat=0.5)
    at_once: list[set[Any]] = []
    running: set[Any] = set()

    @app.handler("a", retry=RetryPolicy(attempts_max=3, base=0.0, factor=1.0, cap=0.0))
    async def work(body: dict, ctx: Context) -> None:
        running.add(body["n"])
        at_once.append(set(running))
        await asyncio.sleep(0.01)
        running.discard(body["n"])

    app.publish_many(app.message("a", {"n": f"suspect {n}"}) for n in range(2))
    app.prepare()
    lab.query("update {message} set attempts = 1, vanished = 1")
    stop = False

    async def load() -> None:
        n = 0
        while not stop:
            n += 1
            await app.apublish("a", {"n": n})
            await asyncio.sleep(0.002)

    async with lab.working(app):
        busy = asyncio.create_task(load())
        await auntil(lambda: sum("suspect" in str(each) for each in at_once) >= 2, lab.describe)
        stop = True
        await busy
        await settled(lab)
    together = [each for each in at_once if any("suspect" in str(n) for n in each)]
    assert together == [{"suspect 0"}, {"suspect 1"}]
    assert lab.rows("dead") == []
