"""Poison, to the letter: N starts and never N + 1, whatever the message does to the process, and nobody else dies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast import DeadLetter, FailureDescription
from holdfast.model.work import Report, Want
from holdfast.operations.from_rows import failure
from holdfast.store.plans import engine
from tests.worker.lab import Lab, settled

QUICK = {"lease": 2.0, "heartbeat": 0.5}


def starts_of(lab: Lab, n: Any) -> list[int]:
    return [attempt for each, attempt, _ in lab.starts() if each == n]


def letters(lab: Lab) -> list[tuple[Any, int, int, int]]:
    return [
        (json.loads(row.body)["n"], row.reason, row.last_reason, row.attempts) for row in lab.rows("dead")
    ]


@pytest.mark.covers("D1", "D4", "D5", "X7", "X39", "D61")
@pytest.mark.parametrize("how", ["killed for hunger", "deep"])
@pytest.mark.parametrize("handler", ["trouble", "in_thread"])
def test_out_of_memory_and_out_of_stack_start_n_times_and_no_more(lab: Lab, how: str, handler: str) -> None:
    type = {"trouble": "trouble", "in_thread": "thread"}[handler]
    lab.publish({"n": "bad", "act": how}, *({"n": n} for n in range(10)), type=type, queue=handler)
    lab.start(starts_max=2, settings=QUICK)
    lab.until_empty()
    assert starts_of(lab, "bad") == [1, 2]
    assert letters(lab) == [("bad", 7, 8, 3)]
    assert sum(row.outcome == "done" for row in lab.rows("history")) == 10


@pytest.mark.covers("D4", "X7")
@pytest.mark.parametrize("handler", ["trouble", "in_thread"])
def test_memory_that_python_notices_is_a_failure_and_the_process_lives(lab: Lab, handler: str) -> None:
    type = {"trouble": "trouble", "in_thread": "thread"}[handler]
    lab.publish({"n": "bad", "act": "hungry"}, *({"n": n} for n in range(5)), type=type, queue=handler)
    lab.start(starts_max=2, settings=QUICK)
    lab.until_empty()
    assert starts_of(lab, "bad") == [1, 2]
    assert letters(lab) == [("bad", 7, 2, 2)]
    assert len({process for *_, process in lab.starts()}) == 1


@pytest.mark.covers("D4", "D14", "X7", "X26")
def test_an_endless_loop_in_a_thread_starts_n_times_and_no_more(lab: Lab) -> None:
    """A thread cannot be stopped: its message has failed, and its process is replaced."""
    lab.publish(
        {"n": "endless", "act": "block"}, *({"n": n} for n in range(5)), type="thread", queue="in_thread"
    )
    lab.start(starts_max=2, settings={**QUICK, "grace": 0.5}, options={"timeout": 0.5})
    lab.until_empty()
    assert starts_of(lab, "endless") == [1, 2]
    assert [each[0] for each in letters(lab)] == ["endless"]
    assert sum(row.outcome == "done" for row in lab.rows("history")) == 5


@pytest.mark.covers("D3", "D7", "D29", "D36", "X38")
def test_whoever_looks_at_the_dead_letter_gets_the_poison_as_a_value(lab: Lab) -> None:
    lab.publish({"n": "killer", "act": "kill", "card": "4111"})
    lab.start(starts_max=2, settings=QUICK)
    lab.until_empty()
    (dead,) = lab.operations.dead.list()
    ((letter, content),) = lab.operations.dead.show(dead.id)
    told = failure(letter, content)
    assert (told.category, told.retryable, told.attempt_count, told.max_attempts) == ("poison", False, 3, 2)
    assert json.loads(json.loads(told.message)["body"])["card"] == "4111"
    assert "4111" not in str(told)
    assert FailureDescription.from_json(told.to_json()) == told


@pytest.mark.covers("D4", "D8", "D11")
async def test_the_store_only_counts_and_the_worker_judges(lab: Lab) -> None:
    """However often it is handed out, the store hands it out again; a worker condemns it without starting it."""
    app, started = lab.app(), []

    @app.handler("a", retry="brisk")
    async def judged(body: dict) -> None:
        started.append(body)

    app.publish("a", {"n": 1})
    for attempt in range(1, 21):
        asks = Report(1, want=[Want("judged", 1)], total=1)
        (leased,) = app.store.run(engine.exchange(asks)).work
        assert leased.attempt == attempt
        ends = Report(1, [app.give_back(leased, refund=False)])
        app.store.run(engine.exchange(ends))
    async with lab.working(app):
        await settled(lab)
    assert started == []
    ((reason, attempts),) = [(row.reason, row.attempts) for row in lab.rows("dead")]
    assert (reason, attempts) == (7, 21)


@pytest.mark.covers("D29", "X38")
async def test_a_hook_gets_the_poison_as_a_value(lab: Lab) -> None:
    app, told = lab.app(), []

    @app.handler("a", retry="immediate")
    async def charge(card: dict) -> None:
        raise RuntimeError(f"no money on {card['number']}")

    @app.on_dead_letter
    async def ticket(letter: DeadLetter) -> None:
        told.append(letter.failure)

    app.publish("a", {"number": "4111"})
    async with lab.working(app):
        await settled(lab)
    (failure,) = told
    assert (failure.category, failure.retryable, failure.attempt_count, failure.max_attempts) == (
        "poison",
        False,
        5,
        5,
    )
    assert "4111" in failure.message
    assert "4111" not in str(failure)
