"""`holdfast demo --scenario downtime`: the day to its end; and each row of its proof fails where it should."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.demo.downtime import DAY, GREETINGS, QUARTER, ZONES, Begun, Day, Evidence, prove
from holdfast.model.outage import Outage

PLAY = """
import sys
from rich.console import Console
from holdfast.demo import downtime
sys.exit(downtime.run(Console(width=200), limit=90.0))
"""


@pytest.mark.covers("B1", "B2", "B3", "X19")
def test_the_day_ends_well_with_every_promise_proved(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PLAY],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    rows = [line.split("│")[1:-1] for line in done.stdout.splitlines() if "│" in line]
    assert done.returncode == 0, done.stdout
    assert [verdict.strip() for *_, verdict in rows] == ["ok"] * 7
    told = ("kill -9", "a day later", "nothing is due any more", "Outage 1: no worker ran from", "The proof")
    places = [done.stdout.index(each) for each in told]
    assert places == sorted(places)


# -- each row can fail


NOON = datetime(2026, 3, 14, 12, 0, tzinfo=UTC)
BACK = NOON + DAY


def evidence() -> Evidence:
    """A day on which every promise was kept, made up."""
    day = Day(Path(), NOON, [f"g{n}" for n in range(GREETINGS)], NOON, BACK)
    dues = {f"g{n}": NOON + n * DAY / GREETINGS for n in range(GREETINGS)}
    dues |= {f"q{n}": NOON + n * QUARTER for n in range(1, 97)}
    dues |= {f"b{n}": NOON + n * timedelta(hours=1) for n in range(len(ZONES))}
    ordered = sorted(dues.items(), key=lambda each: each[1])
    begun = [
        Begun(id, 1 + n % 2, 50.0 + n / 30, due.timestamp(), (BACK - due).total_seconds())
        for n, (id, due) in enumerate(ordered)
    ]
    names = {id: "the house" if id[0] == "q" else ZONES[int(id[1:])] if id[0] == "b" else id for id in dues}
    late = [each.late for each in begun if each.late > 10 and each.due < BACK.timestamp()]
    outage = Outage(
        1, "absent", NOON, BACK, NOON, BACK, NOON, None, BACK, 2, len(late), 0, sum(late) / len(late), max(late), BACK
    )  # fmt: skip
    return Evidence(day, begun, list(names.items()), [outage], 0)


def failed(found: Evidence) -> list[str]:
    return [row.promise for row in prove(found) if not row.kept]


def test_a_day_on_which_all_is_well() -> None:
    assert failed(evidence()) == []


@pytest.mark.parametrize(
    ("promise", "changed"),
    [
        ("nothing lost", lambda e: replace(e, sent=[each for each in e.sent if each[0] != "g7"])),
        ("nothing lost", lambda e: replace(e, dead=1)),
        (
            "every occurrence fired",
            lambda e: replace(e, begun=[each for each in e.begun if each.message != "q9"]),
        ),
        ("every occurrence fired", lambda e: replace(e, sent=[each for each in e.sent if each[0] != "b1"])),
        ("effects once", lambda e: replace(e, sent=[*e.sent, e.sent[0]])),
        (
            "oldest first",
            lambda e: replace(e, begun=[*e.begun[:5], e.begun[9], *e.begun[5:9], *e.begun[10:]]),
        ),
        (
            "at a bounded, rising rate",
            lambda e: replace(e, begun=[replace(each, at=each.at / 10) for each in e.begun]),
        ),
        ("one outage", lambda e: replace(e, outages=[*e.outages, *e.outages])),
        ("one outage", lambda e: replace(e, outages=[replace(e.outages[0], down_since=NOON - DAY)])),
        ("its summary", lambda e: replace(e, outages=[replace(e.outages[0], handled=3)])),
        ("its summary", lambda e: replace(e, outages=[replace(e.outages[0], late_max=1.0)])),
    ],
)
def test_each_row_fails_where_it_should(promise: str, changed: object) -> None:
    assert promise in failed(changed(evidence()))  # type: ignore[operator]
