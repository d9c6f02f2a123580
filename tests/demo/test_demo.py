"""`holdfast demo` as a person runs it: from a wheel, to its end, and the proof checked once more from here."""

from __future__ import annotations

import os
import re
import shlex
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.demo import picture

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

PLAY = """
import sys
from rich.console import Console
from holdfast.demo import run
sys.exit(run(Console(width=200), seed=7, seconds=4.0, target=sys.argv[1]))
"""


@dataclass
class Played:
    code: int
    output: str
    folder: Path

    @property
    def database(self) -> Path:
        (found,) = self.folder.glob("holdfast-demo-*/shop.db")
        return found

    @contextmanager
    def opened(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.database)) as db:
            yield db

    @property
    def verdicts(self) -> dict[str, str]:
        """The table as {promise: verdict}; it is wide enough that no cell is broken."""
        lines = [line.split("│")[1:-1] for line in self.output.splitlines() if "│" in line]
        return {promise.strip(): verdict.strip() for promise, _, verdict in lines}


def play(folder: Path, target: str, *paths: Path) -> Played:
    path = os.pathsep.join([*map(str, paths), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", PLAY, target],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=150,
    )
    return Played(done.returncode, done.stdout, folder)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what a wheel of this tree holds, and nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (made,) = folder.glob("*.whl")
    with zipfile.ZipFile(made) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Played:
    return play(tmp_path_factory.mktemp("demo"), "holdfast.demo.shop:app", wheel)


def test_it_ends_by_itself_with_every_promise_proved(played: Played) -> None:
    assert played.code == 0, played.output
    assert "seed 7" in played.output
    assert len(played.verdicts) == 9
    assert set(played.verdicts.values()) == {"ok"}
    assert len(re.findall(r"kill -9 \d+: a worker process", played.output)) == 4


def test_nothing_is_left_over(played: Played) -> None:
    with played.opened() as db:
        assert db.execute("select count(*) from holdfast_message").fetchone() == (0,)
        assert db.execute("select count(*) from holdfast_lease").fetchone() == (0,)


@pytest.mark.covers("W105")
def test_what_was_rolled_back_is_not_there(played: Played) -> None:
    """An order that was given up has a negative number; its row and its messages went with its transaction."""
    with played.opened() as db:
        assert db.execute("select count(*), min(id) from orders").fetchone() == (72, 1)
        assert db.execute("select count(*) from promise").fetchone() == (288,)
        assert db.execute("select count(*) from holdfast_history").fetchone() == (286,)


def test_every_order_went_through_its_states_in_order(played: Played) -> None:
    with played.opened() as db:
        states = db.execute(
            "select group_concat(substr(entry, instr(entry, ' cents, order.') + 14)) from"
            " (select * from ledger order by n) where stream like 'order-%' group by stream"
        ).fetchall()
    assert states.count(("placed,paid,shipped",)) == 70
    assert states.count(("placed,shipped",)) == 2  # the cursed one and the invalid one


@pytest.mark.covers("D1", "D13", "D17")
def test_the_cursed_message_was_started_as_often_as_it_may_and_no_more(played: Played) -> None:
    with played.opened() as db:
        dead = db.execute("select id, reason, last_reason from holdfast_dead order by reason desc").fetchall()
    cursed, reason, last_reason = dead[0]
    assert (len(dead), reason, last_reason) == (2, 7, 8)
    assert dead[1][1] in (3, 5)
    starts = played.database.with_name("shop.db.starts").read_text().splitlines()
    assert [line.split()[1] for line in starts if line.startswith(cursed)] == ["1", "2", "3", "4", "5", "6"]


def test_the_commands_at_its_end_can_be_run(played: Played) -> None:
    named = [line.strip() for line in played.output.splitlines() if re.match(r"  \S*holdfast ", line)]
    listed, why, again = map(shlex.split, named)
    letters = subprocess.run(listed, capture_output=True, text=True, check=True).stdout
    assert "poison message" in letters
    assert "dead since" in subprocess.run(why, capture_output=True, text=True, check=True).stdout
    assert again[1:4] == ["demo", "--seed", "7"]
    assert again[4::2] == ["--seconds", "--processes"]  # the same story needs the same stage


def test_the_commands_name_this_installation_and_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ours = Path(sys.executable).with_name("holdfast")
    other = tmp_path / "holdfast"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(ours.parent))
    assert picture._command() == "holdfast"
    monkeypatch.setenv("UV_RUN_RECURSION_DEPTH", "1")  # `uv run` has lent us a PATH
    assert shlex.split(picture._command()) == [str(ours)]
    monkeypatch.delenv("UV_RUN_RECURSION_DEPTH")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shlex.split(picture._command()) == [str(ours)]


def test_a_shop_that_writes_without_a_transaction_fails_the_proof(tmp_path: Path) -> None:
    played = play(tmp_path, "broken_shop:app", HERE)
    assert played.code == 1, played.output
    assert played.verdicts["effects once"] == "FAILED"
    assert played.verdicts["nothing lost"] == "ok"


def test_workers_that_cannot_start_are_told(tmp_path: Path) -> None:
    played = play(tmp_path, "no_such_module:app")
    assert played.code == 1
    assert "FAILED" in played.output
    assert "no_such_module" in played.output
