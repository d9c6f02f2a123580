"""Turns and activities that kill their process or hang it: N starts and no more, and nobody else suffers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import OrchestrationFailed
from tests.orchestrations import troubled
from tests.worker.conftest import lab_at
from tests.worker.lab import Lab, until

QUICK = {"lease": 2.0, "heartbeat": 0.5}
TARGET = "tests.orchestrations.troubled:app"
STARTS_MAX = 2


@pytest.fixture
def lab(place: str, tmp_path: Path) -> Iterator[Lab]:
    yield from lab_at(place, tmp_path)


def notes(lab: Lab) -> Counter[str]:
    return Counter((lab.folder / "notes").read_text().splitlines())


def run(lab: Lab, *started: tuple[Any, dict[str, Any], str]) -> tuple[Any, str]:
    """Start these instances, run a worker until they have ended: the application's side, and what the worker said."""
    of = lab.app().orchestrations
    for orchestration, body, id in started:
        of.start(orchestration, body, id=id)
    worker = lab.start(target=TARGET, starts_max=STARTS_MAX, settings=QUICK)
    ids = [id for *_, id in started]
    until(lambda: all(of.status(id).ended_at is not None for id in ids), lab.said, 60)
    return of, worker.said


@pytest.mark.covers("D1", "D2", "D6", "D12", "D13", "D52", "D55", "D57", "D61", "X12", "X39", "D40", "D41")
@pytest.mark.parametrize("how", ["kill", "killed for hunger", "exit"])
def test_a_turn_that_kills_its_process_ends_its_instance_and_its_parents_call(lab: Lab, how: str) -> None:
    innocent = [(troubled.caller, {"n": n}, f"good-{n}") for n in range(6)]
    bad = {"n": "bad", "turn": how, "card": "4111-SECRET"}
    of, said = run(lab, *innocent[:3], (troubled.parent, bad, "p"), *innocent[3:])
    assert notes(lab) == {"turn p/child": STARTS_MAX}, "N starts, and the next hand-over starts nothing"
    result = of.result("p")
    assert result["category"] == "poison"
    assert result["poison"]["message_type"] == "Orchestration p/child, execution 0,"
    assert (result["poison"]["attempt_count"], result["poison"]["max_attempts"]) == (
        STARTS_MAX + 1,
        STARTS_MAX,
    )
    assert "4111-SECRET" in result["poison"]["message"]
    assert "SECRET" not in result["text"]
    assert "SECRET" not in said
    assert "Instance p/child of child@1 is poison" in said
    assert of.status("p/child").state == "failed"
    assert [of.result(f"good-{n}") for n in range(6)] == [{"answer": f"worked {n}"} for n in range(6)]
    ((queue, reason, last),) = lab.query("select queue, reason, last_reason from {dead}")
    assert (queue, reason, last) == ("child@1", 7, 8)
    ((body,),) = lab.query("select body from {journal} where id = 'p/child'")
    event = json.loads(body)["poison"]  # never started: first that it was to start, then its failure
    assert event[3][0] == "started"
    assert event[2]["category"] == "poison"


@pytest.mark.covers(
    "D9", "D12", "D13", "D31", "D35", "D44", "D45", "D46", "D53", "D55", "D56", "D57", "D59", "X38"
)
@pytest.mark.parametrize("how", ["kill", "killed for hunger", "block"])
def test_an_activity_that_kills_its_process_fails_its_call(lab: Lab, how: str) -> None:
    if how == "block":
        QUICK["timeout"] = 1.0  # its loop stands still; the supervisor sees that
    try:
        bad = {"n": "bad", "act": how, "card": "4111-SECRET"}
        of, said = run(lab, (troubled.caller, bad, "c"), (troubled.caller, {"n": 1}, "good"))
    finally:
        QUICK.pop("timeout", None)
    assert notes(lab) == {"work bad": STARTS_MAX}
    result = of.result("c")
    assert result["category"] == "poison"
    assert result["poison"]["message_type"] == "Activity work#1 of instance c"
    assert (result["poison"]["attempt_count"], result["poison"]["max_attempts"]) == (
        STARTS_MAX + 1,
        STARTS_MAX,
    )
    assert "4111-SECRET" in result["poison"]["message"]
    assert "Activity work#1 of instance c is poison: 2 of 2 attempts are used up." in result["text"]
    assert "SECRET" not in result["text"] + said
    assert "activity work#1 of instance c" in said
    assert of.result("good") == {"answer": "worked 1"}


@pytest.mark.covers("D55", "D57", "X12", "X58")
def test_an_inline_activity_that_kills_its_process_ends_its_instance_by_name(lab: Lab) -> None:
    """It counts for the turn: N starts of it, and what had a result before is not run again."""
    bad = {"n": "bad", "act": "kill"}
    of, _ = run(
        lab, (troubled.inlines, bad, "i"), *((troubled.inlines, {"n": n}, f"good-{n}") for n in range(4))
    )
    counted = notes(lab)
    assert counted["inside bad"] == STARTS_MAX
    assert counted["inside first of bad"] == 1
    with pytest.raises(OrchestrationFailed) as failed:
        of.result("i")
    assert failed.value.error.category == "poison"
    assert "Inline activities that it was running: inside#2." in str(failed.value)
    assert [of.result(f"good-{n}")["answer"][1] for n in range(4)] == [f"inside {n}" for n in range(4)]


@pytest.mark.covers("D14", "D54", "D58", "X39")
def test_an_endless_turn_is_stopped_by_its_budget_and_costs_no_process(sqlite_lab: Lab) -> None:
    """The alarm ends it after a second of its own code. Nobody is killed, and the others go on."""
    good = [(troubled.caller, {"n": n}, f"good-{n}") for n in range(5)]
    of, said = run(sqlite_lab, (troubled.parent, {"n": "bad", "turn": "block"}, "p"), *good)
    assert notes(sqlite_lab) == {"turn p/child": STARTS_MAX}
    assert of.result("p")["category"] == "poison"
    assert "ended with" not in said
    assert [of.result(f"good-{n}")["answer"] for n in range(5)] == [f"worked {n}" for n in range(5)]


@pytest.fixture
def sqlite_lab(tmp_path: Path) -> Iterator[Lab]:
    yield from lab_at("sqlite", tmp_path)


@pytest.mark.faults("storms")
@pytest.mark.parametrize("how", ["kill", "exit"])
def test_a_turn_that_is_run_ahead_costs_its_activity_one_start_and_never_its_death(
    lab: Lab, how: str
) -> None:
    """It kills its process when it is run ahead, and again at each of its own starts; others are not harmed."""
    good = [(troubled.second, {"n": n}, f"good-{n}") for n in range(4)]
    of, _ = run(lab, *good[:2], (troubled.second, {"n": "bad", "turn": how}, "bad"), *good[2:])
    assert notes(lab) == {"turn bad": 1 + STARTS_MAX}
    with pytest.raises(OrchestrationFailed) as raised:
        of.result("bad")
    assert raised.value.category == "poison"
    app = lab.app()
    assert {each.queue for each in app.operations.dead.list()} == {"second@1"}
    assert [of.result(f"good-{n}") for n in range(4)] == [f"worked {n}" for n in range(4)]
