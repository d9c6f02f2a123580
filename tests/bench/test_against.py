"""`--against`: ratios, quartiles and verdicts are right, pairs alternate, and each revision runs its own code."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from bench import against, revisions, turns
from bench.__main__ import arguments
from bench.against import Compared, Race, is_lacking, judge, order, ratio
from bench.course import ROOT, Contestant, Drained, Failed
from bench.lines import LINES, Line, as_adapter
from bench.report import LINE
from bench.revisions import NoRevision, Revision, commit_of, extract
from bench.servers import Servers
from bench.turns import COMPARISONS, LEFT_OUT, Comparison, Side, Turns, drains, empty_exchanges

RATE, TIME = Line("drain", "more is better"), Line("latency", "less is better", "ms", False)


class Folders:
    """As `Servers`, for SQLite only."""

    place = Servers.place
    leave = Servers.leave

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def cpu(self, database: str) -> float:
        return 0.0


def compared(line: Line, ratios: list[float]) -> Compared:
    return Compared(line, [(100.0, 100.0 * each) for each in ratios])


# --- From pairs to verdicts ---------------------------------------------------------------------------------


def test_above_one_is_better_whatever_is_measured() -> None:
    assert ratio(RATE, 100.0, 150.0) == 1.5
    assert ratio(TIME, 3.0, 2.0) == 1.5


def test_quartiles_are_those_of_the_pairs() -> None:
    assert compared(RATE, [0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3]).quartiles == pytest.approx((0.85, 1.0, 1.15))
    assert compared(TIME, [0.5, 0.5, 0.5, 1.0, 2.0, 2.0, 2.0]).quartiles == pytest.approx((0.5, 1.0, 2.0))


@pytest.mark.parametrize(
    "lower, upper, verdict",
    [
        (0.90, 0.969, "slower"),
        (0.90, 0.97, "no change"),
        (0.98, 1.02, "no change"),
        (1.03, 1.10, "no change"),
        (1.031, 1.10, "faster"),
        (0.96, 1.04, "unclear"),
    ],
)
def test_verdicts(lower: float, upper: float, verdict: str) -> None:
    assert judge(lower, upper) == verdict


def test_a_line_with_few_pairs_has_failed() -> None:
    assert compared(RATE, [1.0] * 6).verdict == "failed"
    assert compared(RATE, [1.0] * 7).verdict == "no change"


def test_less_is_better_can_be_slower() -> None:
    assert compared(TIME, [1.2] * 7).verdict == "slower"
    assert compared(TIME, [0.8] * 7).verdict == "faster"


def test_every_line_is_compared_once_or_left_out() -> None:
    keys = [key for each in COMPARISONS for key in each.lines]
    assert sorted([*keys, *LEFT_OUT]) == sorted(line.key for line in LINES)
    assert all(each.pairs >= against.LEAST_PAIRS for each in COMPARISONS)


def test_a_quick_run_has_the_quick_lines_and_those_of_sqlite() -> None:
    quick = {key for each in COMPARISONS if each.asked_for([], quick=True) for key in each.lines}
    assert {"publish-one", "drain", "latency", "empty-exchange", "sqlite-publish-one"} <= quick
    assert {key for each in COMPARISONS for key in each.lines if key.startswith("sqlite-")} <= quick
    assert "drain-2" not in quick
    (hot,) = [each for each in COMPARISONS if each.asked_for(["sqlite-drain-hot"], quick=True)]
    assert hot.lines == ("sqlite-drain-hot",)


class Backlog:
    """As a stand in which nothing is measured: a worker takes half as many again before it is stopped."""

    def __init__(self) -> None:
        self.left = self.done = 0

    def publish(self, count: int) -> None:
        self.left += count

    def handled(self) -> int:
        return self.done

    def drain(self, count: int) -> Drained:
        assert count <= self.left, "a worker would wait for messages that never come"
        taken = min(self.left, count * 3 // 2)
        self.left, self.done = self.left - taken, self.done + taken
        return Drained(1.0, 1.0, 1.0, 1.0, 1.0)

    def work(self) -> None: ...
    def open_gate(self) -> None: ...
    def stop(self, workers: None) -> None: ...


@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0, 20.0])
def test_a_backlog_of_a_million_lasts_for_all_turns(monkeypatch: pytest.MonkeyPatch, scale: float) -> None:
    (comparison,) = [each for each in COMPARISONS if each.lines == ("sqlite-backlog-1m",)]
    made = Backlog()
    monkeypatch.setattr(turns, "stand", lambda *_: contextlib.nullcontext(made))
    monkeypatch.setattr(turns, "watch", lambda stand, workers, count, already: stand.drain(count))
    side = Side(None, Contestant("holdfast", "holdfast", "sqlite"), comparison.size(scale))  # type: ignore[arg-type]
    figures = [each for each in comparison.turns(side) if each]
    assert len(figures) == comparison.pairs


def test_the_record_and_the_table_have_all_lines() -> None:
    lines = [
        compared(RATE, [0.9] * 7),
        Compared(TIME, is_missing=True),
        Compared(LINE["idle"], why="it fell"),
    ]
    results = against.document(lines, {"commit": "abc", "date": "today"})
    slower, new, failed = results["measurements"]
    assert (slower["verdict"], slower["ratio"]["median"], slower["old"]) == ("slower", 0.9, 100.0)
    assert (new["verdict"], failed["verdict"], failed["failure"]) == ("new", "failed", "it fell")
    json.dumps(results)
    said = io.StringIO()
    against.show(results, "old1234", Console(file=said, width=120))
    for text in ("slower", "not in old1234", "it fell", "Not compared: idle"):
        assert text in said.getvalue()


# --- Pairs --------------------------------------------------------------------------------------------------

OLD, NEW = (Revision(name, Path(name), Path(sys.executable)) for name in ("old", "new"))


def race_of(
    turns: Callable[[Side], Turns], *lines: str, pairs: int = 8, old: Revision = OLD, new: Revision = NEW
) -> Race:
    made = Race(None, old, new, pairs=pairs)  # type: ignore[arg-type]
    made.run([Comparison("group", lines, turns, 100)], Console(file=io.StringIO()))
    return made


def test_who_begins_changes_from_pair_to_pair() -> None:
    assert [order(turn)[0] for turn in range(4)] == [False, True, False, True]
    begun: list[str] = []

    def turns(side: Side) -> Turns:
        yield {}
        begun.append(side.ours.tree.name)
        yield side.figure("drain", 1.0)

    race_of(turns, "drain", pairs=7)
    assert begun == ["old", "new", "new", "old"] * 3 + ["old", "new"]


def test_it_changes_too_where_pairs_share_a_set_up() -> None:
    begun: list[str] = []

    def turns(side: Side) -> Turns:
        for _ in range(7):
            yield {}
            begun.append(side.ours.tree.name)
            yield side.figure("drain", 1.0)

    race = race_of(turns, "drain", pairs=7)
    assert begun == ["old", "new", "new", "old"] * 3 + ["old", "new"]
    assert len(race.lines["drain"].pairs) == 7


def test_old_and_new_are_not_mixed_up() -> None:
    def turns(side: Side) -> Turns:
        yield side.figure("drain", 100.0 if side.ours.tree.name == "old" else 50.0)

    race = race_of(turns, "drain")
    assert race.lines["drain"].verdict == "slower"
    assert against.exit_code(race) == 1


def test_what_looks_slower_gets_as_many_pairs_again() -> None:
    turned: list[str] = []

    def turns(side: Side) -> Turns:
        turned.append(side.ours.tree.name)
        is_slow = side.ours.tree.name == "new" and turned.count("new") <= 8
        yield side.figure("drain", 50.0 if is_slow else 100.0)

    race = race_of(turns, "drain", pairs=8)
    assert len(race.lines["drain"].pairs) == 16
    assert race.lines["drain"].verdict == "no change"
    assert against.exit_code(race) == 0


def test_a_failed_measurement_is_tried_once_more() -> None:
    tried: list[str] = []

    def turns(side: Side) -> Turns:
        tried.append(side.ours.tree.name)
        if tried.count("new") == 1 and side.ours.tree.name == "new":
            raise Failed("stands still")
        yield side.figure("drain", 1.0)

    race = race_of(turns, "drain", pairs=7)
    assert race.lines["drain"].verdict == "no change"
    assert len(race.lines["drain"].pairs) == 7


def test_one_that_fails_twice_has_failed_with_its_reason() -> None:
    def turns(side: Side) -> Turns:
        yield {}
        raise Failed("stands still")

    race = race_of(turns, "drain")
    assert race.lines["drain"].failure == "old: stands still"
    assert against.exit_code(race) == 1


def test_the_check_after_the_last_figure_is_made_on_both_sides() -> None:
    ended: set[str] = set()

    def turns(side: Side) -> Turns:
        yield side.figure("drain", 1.0)
        ended.add(side.ours.tree.name)

    race_of(turns, "drain")
    assert ended == {"old", "new"}


def test_a_line_that_the_old_one_does_not_have_is_no_failure() -> None:
    def turns(side: Side) -> Turns:
        yield {
            **side.figure("publish-one", 1.0),
            **(side.figure("publish-one-five", 1.0) if side.ours.tree.name == "new" else {}),
        }

    race = race_of(turns, "publish-one", "publish-one-five")
    assert race.lines["publish-one"].verdict == "no change"
    assert race.lines["publish-one-five"].verdict == "new"
    assert against.exit_code(race) == 0


@pytest.mark.parametrize(
    "complaint, lacking",
    [
        ("empty ended with 1: KeyError: 'empty'", True),
        ("a worker ended while it should start: KeyError: 'poison'", True),
        ("prepare ended with 1: python: No module named bench.adapters.exchange", True),
        ("prepare ended with 1: KeyError: 'body'", False),
        ("prepare ended with 1: ModuleNotFoundError: No module named 'msgspec'", False),
        ("stands still at 3 of 10: it said nothing", False),
    ],
)
def test_what_a_revision_says_that_does_not_have_a_line(complaint: str, lacking: bool) -> None:
    assert is_lacking(complaint) is lacking


# --- Revisions ----------------------------------------------------------------------------------------------


def run_git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    folder.mkdir()
    run_git(folder, "init", "-q")
    (folder / "file").write_text("first\n")
    run_git(folder, "add", ".")
    run_git(folder, "commit", "-qm", "first")
    return folder


def test_an_unknown_revision_is_told_in_a_line(clone: Path) -> None:
    with pytest.raises(NoRevision, match=r"^there is no revision 'nonsense' in this clone; .*$"):
        commit_of("nonsense", clone)
    with pytest.raises(NoRevision, match="no revision '--help'"):
        commit_of("--help", clone)


def test_a_tree_that_is_no_clone_is_told_in_a_line(clone: Path) -> None:
    (clone / "unpacked").mkdir()
    with pytest.raises(NoRevision, match="needs a git clone"):
        commit_of("HEAD", clone / "unpacked")


def test_a_run_against_an_unknown_revision_ends_with_that_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(asked: str) -> Revision:
        raise NoRevision(f"there is no revision {asked!r}")

    monkeypatch.setattr(against, "check_out", missing)
    said = io.StringIO()
    assert against.main(arguments(["--against", "nonsense"]), Console(file=said)) == 2
    assert said.getvalue() == "there is no revision 'nonsense'\n"


def test_a_revision_is_extracted_as_it_was_committed(clone: Path, tmp_path: Path) -> None:
    commit = commit_of("HEAD", clone)
    (clone / "file").write_text("changed since\n")
    tree = extract(commit, tmp_path / "revisions", clone)
    assert tree.name == commit
    assert (tree / "file").read_text() == "first\n"
    assert [each.name for each in (tmp_path / "revisions").iterdir()] == [commit]


def test_a_broken_off_extraction_leaves_nothing(clone: Path, tmp_path: Path) -> None:
    with pytest.raises(NoRevision, match="git archive"):
        extract("0" * 40, tmp_path / "revisions", clone)
    assert list((tmp_path / "revisions").iterdir()) == []


def test_a_revision_without_a_benchmark_is_told_in_a_line(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revisions, "commit_of", lambda asked: commit_of(asked, clone))
    monkeypatch.setattr(revisions, "extract", lambda commit, home: extract(commit, tmp_path / "r", clone))
    monkeypatch.setattr(revisions, "make_home", lambda: None)
    with pytest.raises(NoRevision, match=r"it has no tools/bootstrap\.py"):
        revisions.check_out("HEAD")


def test_options_that_do_not_go_with_against(capsys: pytest.CaptureFixture[str]) -> None:
    assert arguments(["--rounds", "3"]).against is None
    assert arguments(["--against", "HEAD", "--rounds", "7"]).rounds == 7
    for wrong in (["--rounds", "6"], ["--peers", "huey"]):
        with pytest.raises(SystemExit):
            arguments(["--against", "HEAD", *wrong])
        assert wrong[0] in capsys.readouterr().err


# --- Whole turns --------------------------------------------------------------------------------------------

# Instead of working it writes moments into the tally, as far apart as its own `holdfast` says.
ADAPTER = """
import signal
from bench.adapters import contest
from holdfast import STEP

def work(params):
    tally = contest.tally()
    contest.gate()
    for n in range(tally.n):
        tally.saw(n)
        tally.started[n] = (n + 1) * STEP
    signal.pause()

verbs = {"prepare": lambda params: None, "publish": lambda params: {"seconds": 1.0}, "work": work}
"""


def plant(tree: Path, step: float, adapter: str = ADAPTER) -> Revision:
    """A revision whose drains take `step` seconds a message."""
    adapters = tree / "bench" / "adapters"
    adapters.mkdir(parents=True)
    (tree / "src").mkdir()
    (tree / "src" / "holdfast.py").write_text(f"STEP = {step}\n")
    (tree / "bench" / "__init__.py").touch()
    (adapters / "__init__.py").touch()
    shutil.copy(ROOT / "bench" / "adapters" / "contest.py", adapters)
    (adapters / "holdfast.py").write_text(adapter + "\ncontest.main(**verbs)\n")
    return Revision(tree.name, tree, Path(sys.executable))


def measure(
    turns: Callable[[Side], Turns], lines: tuple[str, ...], old: Revision, new: Revision, folder: Path
) -> Race:
    """One set-up of SQLite lines."""
    race = Race(Folders(folder), old, new)  # type: ignore[arg-type]
    race.lines = {key: Compared(LINE[key]) for key in lines}
    race.once(Comparison("group", lines, turns, 50), 0)
    return race


def test_each_revision_runs_its_own_adapter_on_its_own_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(plant(tmp_path / "callers", 9.0).tree / "src"))
    old, new = plant(tmp_path / "old", 0.01), plant(tmp_path / "new", 0.02)
    race = measure(drains("drain"), ("sqlite-drain",), old, new, tmp_path)
    assert race.lines["sqlite-drain"].pairs == [pytest.approx((100.0, 50.0))]
    assert race.lines["sqlite-drain"].ratios == [pytest.approx(0.5)]


def test_an_adapter_that_is_not_in_the_old_revision(tmp_path: Path) -> None:
    old, new = plant(tmp_path / "old", 0.01), plant(tmp_path / "new", 0.01)
    lines = ("sqlite-empty-exchange", "sqlite-empty-exchange-200")
    race = measure(empty_exchanges, lines, old, new, tmp_path)
    assert [each.verdict for each in race.lines.values()] == ["new", "new"]


def test_a_verb_that_is_not_in_the_old_revision(tmp_path: Path) -> None:
    old = plant(tmp_path / "old", 0.01, ADAPTER.replace(', "work": work', ""))
    new = plant(tmp_path / "new", 0.01)
    race = measure(drains("drain"), ("sqlite-drain",), old, new, tmp_path)
    assert race.lines["sqlite-drain"].verdict == "new"


def test_this_tree_can_be_compared_with_itself(tmp_path: Path) -> None:
    here = Revision("here", ROOT, Path(sys.executable))
    lines = ("sqlite-publish-many", "sqlite-drain")
    race = measure(drains("drain", publish="publish-many"), lines, here, here, tmp_path)
    assert [each.why for each in race.lines.values()] == ["", ""]
    assert [len(each.pairs) for each in race.lines.values()] == [1, 1]


def test_a_contestant_keeps_its_tree() -> None:
    ours = Contestant("holdfast", "holdfast", "sqlite", tree=Path("elsewhere"))
    assert as_adapter(ours.but(BENCH_KIND="sync"), "exchange").tree == Path("elsewhere")
    assert Contestant("holdfast", "holdfast", "sqlite").tree == ROOT
