"""Orchestrations while their workers are killed: all end, each step is done once, replay gives what is stored."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast, StoreUnavailable
from holdfast.clock import wall_clock
from holdfast.orchestrations.journal import Answered, decode, merged
from holdfast.orchestrations.outcome import Turn
from holdfast.orchestrations.turn import Instance, play
from holdfast.store.plans import instances
from tests import servers
from tests.orchestrations import storming
from tests.worker.conftest import lab_at
from tests.worker.lab import Lab, until, with_no_process

KILLS_MAX = 60  # after that it ends in peace, or it may never end on a slow machine


@pytest.fixture
def lab(place: str, tmp_path: Path) -> Iterator[Lab]:
    yield from lab_at(place, tmp_path)


@pytest.fixture
def faulty(postgres_faulty: servers.Server, tmp_path: Path) -> Iterator[tuple[Lab, servers.Server]]:
    dsn = postgres_faulty.create_database()
    Holdfast(dsn).migrate()
    lab = Lab(dsn, tmp_path)
    yield lab, postgres_faulty
    lab.end_processes()
    lab.close()


def storm(lab: Lab, count: int, *, seconds: float, server: servers.Server | None = None) -> int:
    """Start so many instances of ten steps, and kill a worker each second until all have ended: how many kills."""
    lab.make_effects()
    app = lab.app()
    for i in range(count):
        app.orchestrations.start(storming.steps, i * 1000, id=f"storm-{i}")
    process = lab.start(processes=2, target="tests.orchestrations.storming:app")
    killed, deadline, restart_at = 0, time.monotonic() + seconds, time.monotonic() + 10
    while (ended := asked(lab)) != (count, 0):
        assert ended is None or ended[1] == 0, lab.query(
            "select id, result from {instance} where state = 'failed'"
        )
        assert time.monotonic() < deadline, (ended, killed, lab.said())
        time.sleep(1.0 if killed < KILLS_MAX else 5.0)
        if server is not None and time.monotonic() > restart_at and killed < KILLS_MAX:
            server.kill9()
            server.start()
            restart_at = time.monotonic() + 10
        if killed < KILLS_MAX and (children := process.children()):
            victim = children[killed % len(children)]
            with_no_process(lambda pid=victim: os.kill(pid, signal.SIGKILL))
            killed += 1
    return killed


def asked(lab: Lab) -> tuple[int, int] | None:
    """How many have completed and how many have failed; None: the database is away."""
    try:
        rows = lab.query("select state, count(*) from {instance} group by state")
    except StoreUnavailable:
        return None
    counts = dict(rows)
    return counts.get("completed", 0), counts.get("failed", 0)


def check_all(lab: Lab, count: int) -> None:
    wanted = {i * 1000 + step for i in range(count) for step in range(storming.STEPS)}
    effects = lab.effects()
    assert set(effects) == wanted
    assert set(effects.values()) == {1}
    queue, app = storming.steps.program.queue, lab.app()
    until(lambda: not [row for row in lab.rows("message") if row.queue == queue])
    for i in range(count):
        check_journal(lab, f"storm-{i}", app.orchestrations.result(f"storm-{i}"))
    assert lab.query("select count(*) from {dead}") == [(0,)]


@pytest.mark.faults("storms")
def test_every_orchestration_ends_and_each_step_is_done_once(lab: Lab) -> None:
    assert storm(lab, 100, seconds=240) >= 3
    check_all(lab, 100)


@pytest.mark.faults("storms")
@pytest.mark.covers("X58")
def test_inline_activities_are_started_with_what_the_journal_has(lab: Lab) -> None:
    """Each run of an activity gives another result. None was ever started with one that is not in the journal."""
    count = 20  # whoever runs when its process is killed is handed out alone after that: so few of them
    for i in range(count):
        lab.app().orchestrations.start(storming.links, i, id=f"storm-{i}")
    process = lab.start(processes=2, target="tests.orchestrations.storming:app")
    links = lab.folder / "links"
    for some in (count, 4 * count):  # of ten for each
        until(lambda some=some: links.exists() and links.read_text().count("\n") >= some, lab.said, 60)
        for victim in process.children():
            with_no_process(lambda pid=victim: os.kill(pid, signal.SIGKILL))
    until(lambda: asked(lab) == (count, 0), lab.said, 120)
    app = lab.app()
    recorded: dict[str, list[str]] = {}
    for i in range(count):
        id = f"storm-{i}"
        rows = [
            decode(id, 0, turn, part, text) for turn, part, text in lab.store.run(instances.journal(id, 0))
        ]
        answers = [each.arrival for each in merged(rows) if isinstance(each.arrival, Answered)]
        assert [each.number for each in answers] == list(range(1, storming.STEPS + 1))
        recorded[id] = ["", *(json.loads(each.value or "") for each in answers)]
        assert app.orchestrations.result(id) == recorded[id][-1]
    notes = [json.loads(line) for line in links.read_text().splitlines()]
    assert [note for note in notes if recorded[note[0]][note[1]] != note[2]] == []
    assert len(notes) > count * storming.STEPS, "what ran when its process was killed is repeated"
    assert lab.query("select count(*) from {dead}") == [(0,)]


@pytest.mark.faults("storms")
@pytest.mark.timeout(1000)
def test_a_thousand_on_sqlite(tmp_path: Path) -> None:
    """10,000 steps; a worker is killed each second."""
    for lab in lab_at("sqlite", tmp_path):
        assert storm(lab, 1000, seconds=900) >= 10
        check_all(lab, 1000)


@pytest.mark.faults("storms")
@pytest.mark.timeout(1000)
def test_a_thousand_while_postgres_is_restarted(faulty: tuple[Lab, servers.Server]) -> None:
    """10,000 steps; a worker is killed each second, and the server each ten seconds."""
    lab, server = faulty
    assert storm(lab, 1000, seconds=900, server=server) >= 10
    check_all(lab, 1000)


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
