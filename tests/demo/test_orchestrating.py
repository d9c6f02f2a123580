"""The workflow scenario of the demo: it runs to its end, and each line of its proof can fail."""

from __future__ import annotations

import io
import re
import shutil
import sqlite3
from pathlib import Path

import pytest
from rich.console import Console

from holdfast.demo import flows, orchestrating

ORDERS = 60


@pytest.fixture(scope="module")
def played() -> orchestrating.Play:
    """One run, with worker processes that are killed."""
    out = io.StringIO()
    code = orchestrating.run(Console(file=out, width=120), orders=ORDERS)
    assert code == 0, out.getvalue()
    assert "FAILED" not in out.getvalue()
    found = re.search(r"database (\S+)/flows\.db", out.getvalue())
    assert found is not None
    killed = len(re.findall(r"kill -9 \d+", out.getvalue()))
    assert killed > 0
    return orchestrating.Play(Path(found[1]), ORDERS, killed)


def broken(played: orchestrating.Play, folder: Path, change: str) -> list[str]:
    """The promises that the proof does not find kept after a change past the engine."""
    shutil.copy(played.database, folder / "flows.db")
    play = orchestrating.Play(folder, ORDERS, played.killed)
    with sqlite3.connect(play.database) as db:
        db.executescript(change)
    app = flows.make(play.database)
    rows = orchestrating.prove(play, app.orchestrations.declared["fulfil@1"].program)
    app.close()
    return [row.promise for row in rows if not row.kept]


@pytest.mark.parametrize(
    ("change", "promise"),
    [
        ("select 1", None),
        ("update holdfast_instance set state = 'failed' where id = 'order-1'", "ended as it must"),
        ("insert into effect values ('order-1', 'charge')", "each step once"),
        ("delete from effect where instance = 'order-1' and step = 'ship'", "each step once"),
        ("insert into effect values ('order-1', 'refund')", "nothing else"),
        ("delete from holdfast_journal where id = 'order-1' and turn = 2", "without gaps"),
        (
            """update holdfast_journal set body = replace(body, '["call","charge"', '["call","refund"')
                where id = 'order-1' and turn = 1""",
            "gives the same",
        ),
    ],
)
def test_each_promise_can_be_broken(
    played: orchestrating.Play, tmp_path: Path, change: str, promise: str | None
) -> None:
    found = broken(played, tmp_path, change)
    if promise is None:
        assert found == []
    else:
        assert any(promise in each for each in found)


def test_a_run_without_a_kill_proves_nothing(played: orchestrating.Play) -> None:
    assert not orchestrating.killed(orchestrating.Play(played.folder, ORDERS, 0)).kept
