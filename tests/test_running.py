"""How the tests run: the phases of tools/run_tests.py, what a run leaves behind, and databases that tests share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.databases import Kept

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
import run_tests

ROOT = Path(__file__).resolve().parents[1]
SOME_TESTS = """
import pytest
from tests.proof.counts import COUNTS

@pytest.mark.parametrize("n", range(6))
def test_something(n):
    COUNTS.add("explorer", "pairs", n)

def test_that_fails():
    COUNTS.add("explorer", "pairs", 100)
    assert False
"""


def pytest_on(*options: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("processes", ["0", "2"])
def test_what_is_counted_in_other_processes_is_reported_by_the_controlling_one(
    tmp_path: Path, processes: str
) -> None:
    (tmp_path / "test_some.py").write_text(SOME_TESTS)
    plugins = ("-p", "tests.databases", "-p", "tests.reporting")
    ran = pytest_on(*plugins, "-n", processes, "--summary-file", "left.json", folder=tmp_path)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    left: dict[str, Any] = json.loads((tmp_path / "left.json").read_text())
    assert (left["passed"], left["failed"]) == (6, 1)
    assert left["counts"] == {"explorer": {"pairs": 115}}
    assert len(left["slowest"]) == 7
    assert "explorer: 115 pairs" in ran.stdout.splitlines()


def test_15_is_for_what_the_version_can_change() -> None:
    listed = pytest_on(
        "--collect-only", "-q", "--pg=mixed", "tests/store/test_emits.py", "tests/breakers/test_rates.py"
    ).stdout
    by_folder = {
        folder: {
            line.split("[")[1].split("-")[0].rstrip("]") for line in listed.splitlines() if folder in line
        }
        for folder in ("tests/store/", "tests/breakers/")
    }
    assert by_folder == {
        "tests/store/": {"sqlite", "pg15", "pg18"},
        "tests/breakers/": {"sqlite", "pg18"},
    }


@pytest.mark.parametrize(
    ("codes", "whole"),
    [([0, 0], 0), ([0, 5], 0), ([5, 0], 0), ([5, 5], 5), ([1, 0], 1), ([0, 1], 1), ([2], 2)],
)
def test_a_phase_without_tests_is_no_failure_unless_all_are(codes: list[int], whole: int) -> None:
    assert run_tests.verdict(codes) == whole


def test_the_last_lines_of_a_run() -> None:
    phases = [
        {"passed": 10, "failed": 1, "slowest": [["tests/a.py::test_a", 2.0], ["tests/b.py::test_b", 1.0]]},
        {"passed": 2, "failed": 0, "slowest": [["tests/c.py::test_c", 90.5]]},
        {},  # it was interrupted and left nothing
    ]
    lines = run_tests.report(phases, seconds=483.4, cpu=59.6).splitlines()
    assert [line.split()[-1] for line in lines[1:4]] == [f"tests/{x}.py::test_{x}" for x in "cab"]
    assert lines[4:] == ["12 passed, 1 failed", "in 8 min 03 s, CPU time 1 min 00 s with all servers"]


# --- A database that tests use one after another ----------------------------------------------------------------------


@pytest.fixture
def kept(postgres_version: str) -> Iterator[Kept]:
    kept = Kept(postgres_version)
    yield kept
    kept.drop()


def ask(dsn: str, sql: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as db:
        cursor = db.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


def test_the_next_test_finds_it_empty(kept: Kept) -> None:
    first = kept.emptied()
    ask(
        first,
        "insert into holdfast.message (queue, type, body) select 'q', 't', '{}' from generate_series(1, 9)",
    )
    ask(first, "create table effect (n int)")
    left_behind = psycopg.connect(first)
    assert kept.emptied() == first
    assert ask(first, "select count(*) from holdfast.message") == [(0,)]
    assert ask(first, "select to_regclass('effect')") == [(None,)]
    with pytest.raises(psycopg.OperationalError):
        left_behind.execute("select 1")


def test_a_large_table_is_emptied_too(kept: Kept) -> None:
    first = kept.emptied()
    many = "select 'q', 't', to_json(repeat('x', 200)) from generate_series(1, 5000)"
    ask(first, f"insert into holdfast.message (queue, type, body) {many}")
    assert kept.emptied() == first
    assert ask(first, "select count(*), pg_relation_size('holdfast.message') from holdfast.message") == [
        (0, 0)
    ]


@pytest.mark.parametrize(
    "change",
    [
        "drop function holdfast.append_one",
        "create or replace function holdfast.mine() returns int language sql as 'select 1'",
        "alter table holdfast.message add column mine int",
        "alter table holdfast.message alter column body drop not null",
        "alter table holdfast.message disable trigger all",
        "create index mine on holdfast.message (type)",
        "update holdfast.schema_version set version = 99",
        "drop schema holdfast cascade",
    ],
)
def test_one_whose_schema_was_changed_is_made_anew(kept: Kept, change: str) -> None:
    first = kept.emptied()
    ask(first, change)
    second = kept.emptied()
    assert second != first
    assert ask(second, "select count(*) from holdfast.message") == [(0,)]
