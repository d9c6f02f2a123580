"""How the tests run: the phases of tools/run_tests.py, what a run leaves behind, and databases that tests share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.databases import Kept
from tests.reporting import write_down

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
import run_tests
from runs import Ran

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


# Of other plugins only xdist: each process would import Hypothesis for nothing.
OURS = ("-p", "xdist", "-p", "tests.databases", "-p", "tests.reporting")
ALONE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def pytest_on(*options: str, folder: Path = ROOT, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **more}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("processes", ["0", "2"])
def test_what_is_counted_in_other_processes_is_reported_by_the_controlling_one(
    tmp_path: Path, processes: str
) -> None:
    (tmp_path / "test_some.py").write_text(SOME_TESTS)
    ran = pytest_on(*OURS, "-n", processes, "--summary-file", "left.json", folder=tmp_path, **ALONE)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    left: dict[str, Any] = json.loads((tmp_path / "left.json").read_text())
    assert (left["passed"], left["failed"]) == (6, 1)
    assert left["counts"] == {"explorer": {"pairs": 115}}
    assert len(left["slowest"]) == 7
    assert "explorer: 115 pairs" in ran.stdout.splitlines()


def test_a_file_that_cannot_be_read_is_no_whole_run(tmp_path: Path) -> None:
    """xdist runs the others, and the exit code is that of a failed test."""
    (tmp_path / "test_some.py").write_text("def test_well(): pass")
    (tmp_path / "test_broken.py").write_text("import nothing_like_it")
    ran = pytest_on(*OURS, "-n", "1", "--summary-file", "left.json", folder=tmp_path, **ALONE)
    assert ran.returncode == 1
    left: dict[str, Any] = json.loads((tmp_path / "left.json").read_text())
    assert left["broken"] == ["test_broken.py"]


def test_a_server_that_is_missing_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text("def test_well(postgres_dsn): pass")
    nobody = {"HOLDFAST_TEST_POSTGRES": "postgresql://nobody@127.0.0.1:1/x"}
    ran = pytest_on(*OURS, "-n", "2", folder=tmp_path, **ALONE, **nobody)
    assert ran.returncode == pytest.ExitCode.USAGE_ERROR
    assert "Traceback" not in ran.stdout + ran.stderr
    assert "HOLDFAST_TEST_POSTGRES names a server that does not answer" in ran.stdout + ran.stderr


def test_runs_that_end_at_the_same_time_are_all_on_record(tmp_path: Path) -> None:
    names = [f"test-{n}" for n in range(40)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: write_down(tmp_path / "record.json", name, {"of": name}), names))
    record = json.loads((tmp_path / "record.json").read_text())
    assert record == {name: {"of": name} for name in names}


def test_15_is_for_what_the_version_can_change() -> None:
    listed = pytest_on(
        "--collect-only", "-q", "--pg=mixed", "tests/store/test_emits.py", "tests/limits/test_rates.py"
    ).stdout
    by_folder = {
        folder: {
            line.split("[")[1].split("-")[0].rstrip("]") for line in listed.splitlines() if folder in line
        }
        for folder in ("tests/store/", "tests/limits/")
    }
    assert by_folder == {
        "tests/store/": {"sqlite", "pg15", "pg18"},
        "tests/limits/": {"sqlite", "pg18"},
    }


@pytest.mark.parametrize(
    ("codes", "whole"),
    [([0, 0], 0), ([0, 5], 0), ([5, 0], 0), ([5, 5], 5), ([1, 0], 1), ([0, 1], 1), ([2], 2)],
)
def test_a_phase_without_tests_is_no_failure_unless_all_are(codes: list[int], whole: int) -> None:
    assert run_tests.verdict(codes) == whole


def test_the_last_lines_of_a_run() -> None:
    first = {"passed": 10, "failed": 1, "slowest": [["tests/a.py::test_a", 2.0], ["tests/b.py::test_b", 1.0]]}
    second = {"passed": 2, "failed": 0, "slowest": [["tests/c.py::test_c", 90.5]]}
    interrupted = Ran(2, 1.0, 0.5)
    lines = run_tests.report([Ran(1, 480.0, 50.0, first), Ran(0, 2.4, 9.1, second), interrupted]).splitlines()
    assert [line.split()[-1] for line in lines[1:4]] == [f"tests/{x}.py::test_{x}" for x in "cab"]
    assert lines[4:] == ["12 passed, 1 failed", "in 8 min 03 s, CPU time 1 min 00 s with all servers"]


def test_the_time_of_a_killed_grandchild_counts(tmp_path: Path) -> None:
    """It has lost its parent, and is ours then: what servers took that were killed is in the CPU time."""
    burn = (
        "import pathlib, time\nend = time.process_time() + 0.4\nwhile time.process_time() < end: pass\n"
        "pathlib.Path('burnt').touch()"
    )
    look = "import os, time\nwhile not os.path.exists('burnt'): time.sleep(0.01)\ntime.sleep(0.1)"
    parent = f"import os, subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {burn!r}])\nos._exit(0)"
    script = tmp_path / "run.py"
    script.write_text(
        "import pathlib, runs, sys\nruns.ROOT = pathlib.Path.cwd()\nruns.adopt_orphans()\n"
        f"first = runs.run([sys.executable, '-c', {parent!r}])\n"
        f"second = runs.run([sys.executable, '-c', {look!r}])\n"
        "print(first.cpu_seconds + second.cpu_seconds)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tools")}
    ran = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert float(ran.stdout) > 0.4, ran.stderr


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


def test_a_test_may_end_all_connections(kept: Kept) -> None:
    first = kept.emptied()
    here = "datname = current_database() and pid <> pg_backend_pid()"
    ask(first, f"select pg_terminate_backend(pid, 10000) from pg_stat_activity where {here}")
    ask(first, "insert into holdfast.message (queue, type, body) values ('q', 't', '{}')")
    assert kept.emptied() == first
    assert ask(first, "select count(*) from holdfast.message") == [(0,)]


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
        "alter table holdfast.message add constraint mine check (type <> 'mine')",
        "alter table holdfast.message enable row level security",
        "alter table holdfast.message replica identity full",
        "grant select on holdfast.message to public",
        "create rule mine as on delete to holdfast.lease do also nothing",
        "create schema mine",
        "create type public.mine as enum ('one')",
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
