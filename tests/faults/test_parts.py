"""tools/faults.py: its parts, the sample of pairs that the seed chooses, and the record that a whole run writes."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from itertools import combinations_with_replacement
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.faults.selection import KILLED, SAMPLED, chosen, sampled
from tests.proof.operations import operations

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import faults
from runs import Ran

ROOT = Path(__file__).resolve().parents[2]
NAMES = [f"operation_{n}" for n in range(40)]
PAIRS = list(combinations_with_replacement(NAMES, 2))


def marks() -> list[tuple[str, str]]:
    """Every `faults` mark of the tests: where it stands, and its argument as it is written."""
    found = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text()
        if "mark.faults" not in text:  # to read all of them as Python takes seconds
            continue
        for node in ast.walk(ast.parse(text)):
            is_mark = isinstance(node, ast.Attribute) and node.attr == "faults"
            if is_mark and ast.unparse(node) == "pytest.mark.faults":
                line = text.splitlines()[node.lineno - 1]
                found.append((f"{path.relative_to(ROOT)}:{node.lineno}", line.partition("mark.faults")[2]))
    return found


def test_every_long_test_belongs_to_a_part_that_looks_for_it() -> None:
    wrong, found = [], marks()
    for place, argument in found:
        part = re.fullmatch(r'\("(\w+)"\)', argument)
        known = part and part[1] in faults.PARTS
        if not known or not place.startswith(faults.PARTS[part[1]].paths):
            wrong.append(f"{place}: faults{argument}")
    assert found
    assert wrong == []


def test_a_sample_follows_from_its_seed() -> None:
    first = chosen(PAIRS, 100, seed=7)
    assert first == chosen(reversed(PAIRS), 100, seed=7)
    assert set(first) != set(chosen(PAIRS, 100, seed=8))
    assert len(first) == 100


@pytest.mark.parametrize("seed", range(20))
def test_every_operation_is_in_every_sample(seed: int) -> None:
    every = list(combinations_with_replacement(operations(), 2))
    sample = chosen(every, faults.PAIRS, seed)
    assert {name for pair in sample for name in pair} == set(operations())
    assert len(sample) == faults.PAIRS < len(every)


def test_both_versions_of_postgresql_have_half_of_it() -> None:
    versions = list(chosen(PAIRS, 100, seed=7).values())
    assert (versions.count(0), versions.count(1)) == (50, 50)


class Item:
    """A test of a pair on one PostgreSQL, as the plugin sees it."""

    originalname = SAMPLED

    def __init__(self, pair: tuple[str, ...], version: str) -> None:
        self.version, self.callspec = version, SimpleNamespace(params={"pair": pair})


def test_everything_is_everything() -> None:
    items: list[Any] = [Item(pair, version) for pair in PAIRS for version in ("old", "new")]
    assert list(sampled(items, None, seed=7)) == items
    assert len(list(sampled(items, 100, seed=7))) == 100
    assert "--faults-pairs" in faults.command("explorer", 7, False, None, [])
    assert "--faults-pairs" not in faults.command("explorer", 7, True, None, [])


@pytest.mark.parametrize("full, is_full", [("FULL=1", True), ("FULL=0", False), ("FULL=", False)])
def test_only_full_1_is_everything(full: str, is_full: bool) -> None:
    shown = subprocess.run(
        ["make", "--dry-run", "faults", full], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ("--full" in shown.stdout) is is_full


class Killed:
    """A test of a verb that is killed, as the plugin sees it."""

    originalname = KILLED

    def __init__(self, name: str, place: str) -> None:
        self.callspec = SimpleNamespace(params={"name": name, "place": place})


def test_a_verb_is_killed_on_one_postgresql_in_a_sample_and_always_on_sqlite() -> None:
    items: list[Any] = [Killed(name, place) for place in ("sqlite", "old", "new") for name in NAMES]
    taken: list[Any] = list(sampled(items, 100, seed=7))
    places = Counter(item.callspec.params["place"] for item in taken)
    assert places == {"sqlite": 40, "old": 20, "new": 20}
    assert {
        item.callspec.params["name"] for item in taken if item.callspec.params["place"] != "sqlite"
    } == set(NAMES)
    assert list(sampled(items, None, seed=7)) == items


def test_the_seed_says_on_which_postgresql_the_storms_are() -> None:
    commands = [faults.command("storms", seed, False, None, []) for seed in (1, 2, 3, 4)]
    versions = {word for command in commands for word in command if word.startswith("--pg=")}
    assert versions == {"--pg=new", "--pg=old"}


def test_a_part_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert faults.main(["explorer", "storm"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "no such part: storm; there are explorer, kills, storms" in said


def test_the_record_stands_between_its_marks() -> None:
    whole = faults.Whole("abc123", "2026-11-18", "2 cores (x86_64)", seed=7, full=False)
    counted = {"explorer": {"pairs": 1000, "schedules": 12345}}
    ran = Ran(1, 61.0, 90.0, {"passed": 10, "failed": 1, "counts": counted})
    page = f"before\n{faults.BEGIN}\nold\n{faults.END}\nafter\n"
    text = faults.with_record(page, faults.record(whole, {"explorer": ran}))
    assert text.startswith(f"before\n{faults.BEGIN}\nRun of 2026-11-18, commit abc123, seed 7, ")
    assert text.endswith(f"{faults.END}\nafter\n")
    assert "| explorer | 10 | 1 | 1,000 pairs, 12,345 schedules | 1 min 01 s | 1 min 30 s |" in text
    assert "old" not in text
    assert faults.with_record(text, "new").count(faults.BEGIN) == 1


def test_a_page_without_marks_is_no_place_for_a_record() -> None:
    with pytest.raises(ValueError, match="has no"):
        faults.with_record("nothing", "text")


def test_the_page_has_its_marks() -> None:
    faults.with_record(faults.PAGE.read_text(), "text")


@pytest.mark.parametrize(
    ("ran", "whole"), [(Ran(0, 1, 1, {"passed": 1}), True), (Ran(1, 1, 1, {"failed": 1}), True),
                       (Ran(2, 1, 1, {"passed": 1}), False), (Ran(5, 1, 1, {}), False),
                       (Ran(1, 1, 1, {"passed": 1, "broken": ["tests/a.py"]}), False)],
)  # fmt: skip
def test_what_was_interrupted_is_no_whole_run(ran: Ran, whole: bool) -> None:
    assert faults.is_whole(ran) is whole
