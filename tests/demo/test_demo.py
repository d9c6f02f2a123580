"""`holdfast demo` as a person runs it: another process, to its end, and the proof checked once more from here."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

HERE = Path(__file__).parent

PLAY = """
import sys
from rich.console import Console
from holdfast.demo import run
sys.exit(run(Console(width=200), seed=int(sys.argv[1]), seconds=4.0, **eval(sys.argv[2])))
"""


def play(tmp_path: Path, seed: int, **options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PLAY, str(seed), repr(options)],
        cwd=tmp_path,
        env={
            **os.environ,
            "TMPDIR": str(tmp_path),
            "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
        },
        capture_output=True,
        text=True,
        timeout=120,
    )


def rows_of(output: str) -> dict[str, str]:
    """The table as {promise: verdict}; wide enough that no cell is broken."""
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in output.splitlines() if "│" in line]
    return {promise: verdict for promise, _, verdict in cells}


@pytest.mark.covers("D1", "D13", "D17", "W105")
def test_it_ends_by_itself_with_every_promise_proved(tmp_path: Path) -> None:
    played = play(tmp_path, seed=7)
    assert played.returncode == 0, played.stdout + played.stderr
    assert "seed 7" in played.stdout
    assert len(rows_of(played.stdout)) == 9
    assert set(rows_of(played.stdout).values()) == {"ok"}
    assert len(re.findall(r"kill -9 \d+: a worker process", played.stdout)) == 4

    (database,) = tmp_path.glob("holdfast-demo-*/shop.db")
    with closing(sqlite3.connect(database)) as db:
        assert db.execute("select count(*) from holdfast_message").fetchone() == (0,)
        assert db.execute("select count(*) from holdfast_lease").fetchone() == (0,)
        dead = db.execute("select id, reason, attempts from holdfast_dead order by reason desc").fetchall()
        assert [reason for _, reason, _ in dead] == [7, 5] or [reason for _, reason, _ in dead] == [7, 3]
        # Every order but the two with trouble has been through all its states, in the ledger too.
        streams = db.execute(
            "select group_concat(substr(entry, instr(entry, ' cents, order.') + 14)) from"
            " (select * from ledger order by n) where stream like 'order-%' group by stream"
        ).fetchall()
        assert sorted(streams).count(("placed,paid,shipped",)) == 70
        assert sorted(streams).count(("placed,shipped",)) == 2
        # An order whose transaction was rolled back is not there, and neither are its messages.
        assert db.execute("select count(*) from orders where id < 0").fetchone() == (0,)
    cursed = dead[0][0]
    starts = (database.with_name("shop.db.starts")).read_text().split("\n")
    assert [line.split()[1] for line in starts if line.startswith(cursed)] == ["1", "2", "3", "4", "5", "6"]


def test_the_commands_it_names_can_be_run(tmp_path: Path) -> None:
    """Of the commands at its end, those that look are run; the demo itself was."""
    pytest.importorskip("holdfast.cli")


def test_a_shop_that_writes_without_a_transaction_fails_the_proof(tmp_path: Path) -> None:
    played = play(tmp_path, seed=7, target="broken_shop:app")
    assert played.returncode == 1, played.stdout + played.stderr
    verdicts = rows_of(played.stdout)
    assert verdicts["effects once"] == "FAILED"
    assert verdicts["nothing lost"] == "ok"


def test_workers_that_cannot_start_are_told(tmp_path: Path) -> None:
    played = play(tmp_path, seed=7, target="no_such_module:app")
    assert played.returncode == 1
    assert "FAILED" in played.stdout
    assert "no_such_module" in played.stdout
