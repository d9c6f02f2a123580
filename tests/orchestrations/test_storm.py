"""Orchestrations while their workers are killed: all end, each step is done once, replay gives what is stored."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.clock import wall_clock
from holdfast.orchestrations.journal import decode, merged
from holdfast.orchestrations.outcome import Turn
from holdfast.orchestrations.turn import Instance, play
from holdfast.store.plans import instances
from tests.orchestrations import storming
from tests.worker.conftest import lab_at
from tests.worker.lab import Lab, until, with_no_process

COUNT = 100


@pytest.fixture
def lab(place: str, tmp_path: Path) -> Iterator[Lab]:
    yield from lab_at(place, tmp_path)


@pytest.mark.faults("storms")
def test_every_orchestration_ends_and_each_step_is_done_once(lab: Lab) -> None:
    lab.make_effects()
    app = lab.app()
    queue = storming.steps.program.queue
    for i in range(COUNT):
        app.orchestrations.start(storming.steps, i * 1000, id=f"storm-{i}")
    process = lab.start(processes=2, target="tests.orchestrations.storming:app")
    ended = "select count(*) from {instance} where state = 'completed'"
    killed, deadline = 0, time.monotonic() + 240
    while lab.query(ended) != [(COUNT,)]:
        assert lab.query("select count(*) from {instance} where state = 'failed'") == [(0,)]
        assert time.monotonic() < deadline, (lab.query(ended), killed, lab.said())
        time.sleep(1.0 if killed < 30 else 5.0)
        if killed < 30 and (children := process.children()):
            victim = children[killed % len(children)]
            with_no_process(lambda pid=victim: os.kill(pid, signal.SIGKILL))
            killed += 1
    assert killed >= 3
    wanted = {i * 1000 + step for i in range(COUNT) for step in range(storming.STEPS)}
    effects = lab.effects()
    assert set(effects) == wanted
    assert set(effects.values()) == {1}
    until(lambda: not [row for row in lab.rows("message") if row.queue == queue])
    for i in range(COUNT):
        check_journal(lab, f"storm-{i}", app.orchestrations.result(f"storm-{i}"))
    assert lab.query("select count(*) from {dead}") == [(0,)]


def check_journal(lab: Lab, id: str, result: int) -> None:
    """It has no gaps, names no message twice, and the code replayed on it has ended where it did."""
    assert result == storming.STEPS
    rows = [decode(id, 0, turn, part, text) for turn, part, text in lab.store.run(instances.journal(id, 0))]
    assert [row.turn for row in rows] == list(range(1, len(rows) + 1))
    consumed = [each for row in rows for each in row.consumed]
    assert len(consumed) == len(set(consumed))
    *before, last = rows
    arrivals = [each.arrival for each in last.entries]
    played = play(storming.steps.program, id, 0, before, arrivals, wall_clock())
    if arrivals:
        assert isinstance(played, Turn)
        assert merged([played.row]) == merged([last])
    instance = Instance(storming.steps.program, id)
    try:
        instance.load(rows)
        instance.catch_up()
        assert instance.ended is not None
        assert instance.ended.result == str(result)
    finally:
        instance.close()
