"""`holdfast demo --scenario outage`: the bad day, to its end; and each row of its proof fails where it should."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.demo.outage import CANARY, INVOICES, Call, Day, Evidence, prove
from holdfast.operations.results import Canary, Redriven

HERE = Path(__file__).parent

PLAY = """
import sys
from rich.console import Console
from holdfast.demo import outage
sys.exit(outage.run(Console(width=200), target=sys.argv[1]))
"""


def play(folder: Path, target: str) -> tuple[int, str, dict[str, str]]:
    done = subprocess.run(
        [sys.executable, "-c", PLAY, target],
        env={**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(HERE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    rows = [line.split("│")[1:-1] for line in done.stdout.splitlines() if "│" in line]
    return done.returncode, done.stdout, {promise.strip(): verdict.strip() for promise, _, verdict in rows}


@pytest.mark.covers("W67", "X30")
def test_the_bad_day_ends_well_with_every_promise_proved(tmp_path: Path) -> None:
    code, output, verdicts = play(tmp_path, "holdfast.demo.bank:app")
    assert code == 0, output
    assert len(verdicts) == 8
    assert set(verdicts.values()) == {"ok"}
    told = (
        "the bank goes down",
        "the breaker opens for all workers",
        "the bank is up again",
        "the breaker closed",
        "version 2 is deployed: 1000 dead letters, one cause: KeyError: 'vat'",
        "a canary of 10 is redriven and dies again",
        "version 3 is deployed",
        "the canary is well: 1000 come back",
    )
    places = [output.index(each) for each in told]
    assert places == sorted(places)


@pytest.mark.faults("storms")
def test_without_a_catch_up_the_proof_fails(tmp_path: Path) -> None:
    code, output, verdicts = play(tmp_path, "greedy_bank:app")
    assert code == 1, output
    assert verdicts["the backlog drained at a bounded rate"] == "FAILED"
    assert verdicts["nothing lost"] == "ok"


def test_workers_that_cannot_start_are_told(tmp_path: Path) -> None:
    code, output, _ = play(tmp_path, "no_such_module:app")
    assert code == 1
    assert "the worker processes did not start" in output
    assert "no_such_module" in output


# --- The proof --------------------------------------------------------------------------------------------------------


def call(message: int, at: float, is_down: bool = False) -> Call:
    return Call(str(message), message % 2, at, is_down)


DAY = Day(
    Path(),
    payments=100,
    invoices=INVOICES,
    opened_at=10.0,
    up_at=16.0,
    closed_at=18.0,
    causes=[INVOICES],
    canary_broken=Redriven(CANARY, Canary(CANARY, 0, 1, 9)),
    left_after_canary=INVOICES,
    redriven=Redriven(INVOICES, Canary(CANARY, CANARY, 0, 0)),
)
GOOD = Evidence(
    day=DAY,
    calls=[
        *(call(n, 9.0 + n / 100, is_down=True) for n in range(10)),
        call(0, 12.5, is_down=True),
        *(call(n, 18.0 + n / 50) for n in range(100)),
    ],
    done=Counter({"payment.due": 100, "invoice.wanted": INVOICES}),
    starts_max=2,
    dead=0,
    waiting=0,
    ledger=Counter(str(n) for n in range(INVOICES)),
)


def on(**changes: object) -> Evidence:
    return replace(GOOD, day=replace(DAY, **changes))  # type: ignore[arg-type]


BROKEN: dict[str, tuple[Evidence, set[str]]] = {
    "calls go on": (
        replace(GOOD, calls=[*GOOD.calls, *(call(n, 12.0 + n / 100, is_down=True) for n in range(100))]),
        {"the breaker opened on all workers"},
    ),
    "one process only": (
        replace(GOOD, calls=[replace(each, process=1) for each in GOOD.calls]),
        {"the breaker opened on all workers"},
    ),
    "a payment lost": (
        replace(GOOD, done=GOOD.done - Counter({"payment.due": 1})),
        {"nothing lost"},
    ),
    "a payment waits": (replace(GOOD, waiting=1), {"nothing lost"}),
    "attempts spent by the outage": (replace(GOOD, starts_max=4), {"no dead letters because of the outage"}),
    "all at once": (
        replace(GOOD, calls=[replace(each, at=18.1) if not each.is_down else each for each in GOOD.calls]),
        {"the backlog drained at a bounded rate"},
    ),
    "two causes": (on(causes=[990, 10]), {"a broken deploy is one cause"}),
    "no canary": (on(canary_broken=Redriven(CANARY)), {"a canary that dies holds the others back"}),
    "a canary that held nobody back": (
        on(left_after_canary=10),
        {"a canary that dies holds the others back"},
    ),
    "one did not come back": (
        replace(GOOD, done=GOOD.done - Counter({"invoice.wanted": 1})),
        {"after the fix all came back"},
    ),
    "one is dead": (
        replace(GOOD, dead=1),
        {"no dead letters because of the outage", "after the fix all came back"},
    ),
    "an invoice twice": (replace(GOOD, ledger=GOOD.ledger + Counter({"1": 1})), {"effects once"}),
}


def test_a_good_day_is_proved() -> None:
    assert [row.promise for row in prove(GOOD) if not row.kept] == []


@pytest.mark.parametrize("how", BROKEN)
def test_each_row_fails_where_it_should(how: str) -> None:
    evidence, rows = BROKEN[how]
    assert {row.promise for row in prove(evidence) if not row.kept} == rows
