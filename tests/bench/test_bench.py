"""The benchmark itself: its check sees what is lost or doubled, its ratios are right, its adapters are short."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from bench.adapters import contest
from bench.course import Failed
from bench.lines import BARS, LINES, Bar, Run, in_turns
from bench.peers import PINS
from bench.report import Record, best_peer, document, fill, judge, origin, table

ADAPTERS = sorted((Path(__file__).resolve().parents[2] / "bench" / "adapters").glob("*.py"))
SHARED = {"__init__", "contest", "flows"}


@pytest.fixture
def tally(tmp_path: Path) -> contest.Tally:
    path = tmp_path / "tally"
    path.touch()
    return contest.Tally(path, 10)


def test_each_once_is_right(tally: contest.Tally) -> None:
    for n in range(10):
        tally.saw(n)
    assert tally.faults() is None
    assert all(tally.started)


def test_a_lost_message_is_seen(tally: contest.Tally) -> None:
    for n in range(9):
        tally.saw(n)
    assert tally.faults() == "of 10 messages 1 were not handled, 0 more than once"
    assert tally.faults(0, 9) is None


def test_a_doubled_message_is_seen(tally: contest.Tally) -> None:
    for n in (*range(10), 3):
        tally.saw(n)
    assert tally.faults() == "of 10 messages 0 were not handled, 1 more than once"


def test_processes_share_a_tally(tmp_path: Path) -> None:
    path = tmp_path / "tally"
    path.touch()
    one, other = contest.Tally(path, 3), contest.Tally(path, 3)
    one.saw(0)
    other.saw(1)
    assert bytes(one.marks) == b"\1\1\0"


@pytest.mark.parametrize("n", [0, 7, 999_999])
def test_the_body_has_its_size(n: int) -> None:
    assert len(json.dumps(contest.body(n))) == contest.BODY_BYTES


@pytest.mark.parametrize("path", ADAPTERS, ids=lambda path: path.stem)
def test_an_adapter_can_be_read_at_a_glance(path: Path) -> None:
    text = path.read_text()
    assert ast.get_docstring(ast.parse(text))
    code = [line for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
    if path.stem not in SHARED:
        assert len(code) <= 60 + 20 * (path.stem == "transaction")


def test_every_peer_has_an_adapter() -> None:
    assert set(PINS) <= {path.stem for path in ADAPTERS}


def test_our_own_adapters_can_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tally"
    path.touch()
    monkeypatch.setenv("BENCH_TALLY", str(path))
    monkeypatch.setenv("BENCH_COUNT", "10")
    monkeypatch.setattr(contest, "URL", str(tmp_path / "messages.db"))
    import bench.adapters.exchange
    import bench.adapters.limit
    import bench.adapters.limit_sqlite

    assert bench.adapters.exchange.app.handlers.subscriptions() == {"work0": ("work",)}
    assert bench.adapters.limit.EXCHANGE
    assert bench.adapters.limit_sqlite.CLAIM


def record() -> Record:
    made = Record()
    for round, (ours, theirs) in enumerate(
        [(40_000.0, 10_000.0), (20_000.0, 10_000.0), (30_000.0, 10_000.0)]
    ):
        made.add(round, "drain", "holdfast", {"value": ours, "megabytes": 40.0})
        made.add(round, "drain", "pgqueuer", {"value": theirs})
    made.add(0, "drain", "dbos", Failed("not measured: no network"))
    return made


def test_ratios_are_taken_within_a_round() -> None:
    judged = judge(record(), Bar("drain", "pgqueuer", at_least=2.5))
    assert judged is not None
    assert (judged["low"], judged["median"], judged["high"], judged["reached"]) == (2.0, 3.0, 4.0, True)


def test_a_line_whose_check_failed_has_no_figure() -> None:
    made = record()
    made.add(2, "drain", "holdfast", Failed("of 10 messages 1 were not handled, 0 more than once"))
    assert judge(made, Bar("drain", "pgqueuer", at_least=2.5)) is None
    (shown,) = document(made, {})["measurements"]
    assert "1 were not handled" in shown["ours"]["not measured"]


def test_nothing_is_divided_by_a_latency_below_zero() -> None:
    made = Record()
    made.add(0, "latency", "holdfast", {"value": 1.0})
    made.add(0, "latency", "celery", {"value": -0.5})
    made.add(0, "latency", "pgqueuer", {"value": 2.0})
    (shown,) = document(made, {})["measurements"]
    assert set(shown["ratios"]) == {"pgqueuer"}
    assert best_peer(shown) == "pgqueuer"


def test_the_document_has_its_shape() -> None:
    results = document(record(), {**origin(), "rounds": 3})
    assert {"date", "commit", "source_sha256", "rounds", "measurements"} <= set(results)
    (shown,) = results["measurements"]
    assert {"name", "title", "unit", "ours", "limit", "peers", "ratios", "bars"} <= set(shown)
    assert shown["ours"]["median"] == 30_000.0
    assert shown["ours"]["facts"] == {"megabytes": 40.0}
    assert shown["peers"]["dbos"] == {"not measured": "no network"}
    assert shown["ratios"]["pgqueuer"]["median"] == 3.0
    assert table(results).row_count == 1
    json.dumps(results)


def test_bars_are_about_lines() -> None:
    known = {line.key for line in LINES}
    assert len(known) == len(LINES)
    for bar in BARS:
        assert bar.line in known
        assert bar.against.rpartition(":")[0] in {"", *known}


def test_the_page_is_filled_between_its_marks() -> None:
    about = {
        **origin(),
        "rounds": 3,
        "machine": {"cpus": "2", "cpu": "", "memory": "", "system": ""},
        "versions": {"postgresql": "15", "sqlite": "3", "python": "3.11"},
    }
    page = "before\n<!-- results:bars -->\nold\n<!-- end -->\nafter\n"
    filled = fill(page, document(record(), about))
    assert "old" not in filled
    assert "at least 2.5 x pgqueuer" in filled
    assert filled.startswith("before\n")
    assert filled.endswith("<!-- end -->\nafter\n")


def test_contests_take_turns_and_the_middle_one_counts() -> None:
    order: list[str] = []
    values = {"a": iter([5.0, 1.0, 9.0]), "b": iter([1.0, 2.0, 3.0])}

    def measure(name: str) -> dict[str, float]:
        order.append(name)
        if name == "b" and order.count("b") == 2:
            raise Failed("fell")
        return {"value": next(values[name])}

    run = Run(None, {})  # type: ignore[arg-type]
    told = list(in_turns(run, [("line", name, lambda name=name: measure(name)) for name in "ab"], turns=3))
    assert order == ["a", "b"] * 3
    assert told[0] == ("line", "a", {"value": 5.0})
    assert isinstance(told[1][2], Failed)
