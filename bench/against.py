"""`--against REVISION`: our own lines at another revision and here, in pairs, and which of them became slower.

Each revision runs its own adapters on its own source in its own environment (revisions.py); the course is ours. In a
pair both are measured right after each other, and who begins changes from pair to pair (turns.py). What counts is the
ratio within a pair, turned so that more than 1 is better. A line is slower when the upper quartile of its ratios is
below 0.97: when three of four pairs lost more than 3 %.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import psycopg
from rich.console import Console
from rich.table import Table

from . import machine
from .course import ROOT, Failed
from .lines import Line
from .report import LINE, RESULTS, number, origin
from .revisions import NoRevision, Revision, check_out
from .servers import Servers, settings
from .turns import COMPARISONS, LEFT_OUT, Comparison, Shown, Side

LEAST_PAIRS = 7
SLOWER, FASTER = 0.97, 1.03
RESULT = RESULTS / "against.json"

Pair = tuple[float, float]  # old, new
Verdict = Literal["slower", "faster", "unclear", "no change", "new", "failed"]
STYLE: dict[Verdict, str] = {
    "slower": "bold red",
    "failed": "bold red",
    "faster": "green",
    "unclear": "yellow",
}


class Fell(Failed):
    """A measurement of one of the two failed."""

    def __init__(self, is_new: bool, why: str) -> None:
        super().__init__(why)
        self.is_new = is_new


# --- From pairs to verdicts ---------------------------------------------------------------------------------


@dataclass
class Compared:
    """One line: what its pairs showed, or why there are none."""

    line: Line
    pairs: list[Pair] = field(default_factory=list)
    is_missing: bool = False  # the old revision does not have it
    why: str = ""  # it failed

    @property
    def ratios(self) -> list[float]:
        return [ratio(self.line, *pair) for pair in self.pairs]

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """Lower quartile, median, upper quartile."""
        lower, median, upper = statistics.quantiles(self.ratios, n=4, method="inclusive")
        return lower, median, upper

    @property
    def verdict(self) -> Verdict:
        if self.is_missing:
            return "new"
        if self.failure:
            return "failed"
        lower, _, upper = self.quartiles
        return judge(lower, upper)

    @property
    def failure(self) -> str:
        if self.why or self.is_missing:
            return self.why
        enough = len(self.pairs) >= LEAST_PAIRS
        return "" if enough else f"{len(self.pairs)} pairs, at least {LEAST_PAIRS} are needed"


def ratio(line: Line, old: float, new: float) -> float:
    """How much better the new one is: above 1, whether more of the figure is better or less."""
    return new / old if line.more_is_better else old / new


def judge(lower: float, upper: float) -> Verdict:
    if upper < SLOWER:
        return "slower"
    if lower > FASTER:
        return "faster"
    # The pairs lie further apart than the difference that is looked for.
    return "unclear" if lower < SLOWER and upper > FASTER else "no change"


# --- Measuring ----------------------------------------------------------------------------------------------


def order(turn: int) -> tuple[bool, bool]:
    """Who is measured first in a pair; False is the old one."""
    return (False, True) if turn % 2 == 0 else (True, False)


def steps(comparison: Comparison, old: Side, new: Side, turn: int) -> Iterator[tuple[Shown, Shown]]:
    """Set both up once and go through their steps in turns: what each measured in a step."""
    measured = 0
    with ExitStack() as opened:
        turns = {
            is_new: opened.enter_context(closing(comparison.turns(side)))
            for is_new, side in ((False, old), (True, new))
        }
        while True:
            shown: dict[bool, Shown | None] = {}
            for is_new in order(turn + measured):
                try:
                    shown[is_new] = next(turns[is_new], None)
                except (Failed, psycopg.Error, subprocess.SubprocessError, OSError, ValueError) as error:
                    raise Fell(is_new, str(error) or repr(error)) from error
            before, after = shown[False], shown[True]
            if before is None or after is None:
                return
            if before or after:
                measured += 1
                yield before, after


class Race:
    """All comparisons of a run and what they have shown so far."""

    def __init__(
        self, servers: Servers, old: Revision, new: Revision, scale: float = 1.0, pairs: int | None = None
    ) -> None:
        self.servers, self.old, self.new, self.scale, self.pairs = servers, old, new, scale, pairs
        self.factor = 1
        self.lines: dict[str, Compared] = {}

    def run(self, comparisons: list[Comparison], console: Console) -> None:
        """All comparisons in turns, a set-up of each: what disturbs the machine for a minute does not hit one line.

        Of forty lines without a difference, chance may make one look slower. Such a line gets as many pairs again
        before it is called so. One that is slower stays so.
        """
        for comparison in comparisons:
            for key in comparison.lines:
                self.lines[key] = Compared(LINE[key])
        self.rounds(comparisons, console)
        if suspected := [each for each in comparisons if self.looks_slower(each)]:
            console.print("once more, with as many pairs again, what looks slower")
            self.factor = 2
            self.rounds(suspected, console)

    def rounds(self, comparisons: list[Comparison], console: Console) -> None:
        for turn in range(max(self.wanted(each) for each in comparisons)):
            for comparison in comparisons:
                if self.is_open(comparison):
                    begun = time.monotonic()
                    self.once(comparison, turn)
                    self.tell(comparison, console, time.monotonic() - begun)

    def wanted(self, comparison: Comparison) -> int:
        return (self.pairs or comparison.pairs) * self.factor

    def looks_slower(self, comparison: Comparison) -> bool:
        return any(self.lines[key].verdict == "slower" for key in comparison.lines)

    def is_open(self, comparison: Comparison) -> bool:
        """Whether a line of it still needs pairs."""
        lines = [self.lines[key] for key in comparison.lines]
        return any(
            not each.why and not each.is_missing and len(each.pairs) < self.wanted(comparison)
            for each in lines
        )

    def once(self, comparison: Comparison, turn: int) -> None:
        """One set-up with its pairs. If it fails, it is tried once more; if it fails again, its lines have failed."""
        old, new = self.side(self.old, comparison), self.side(self.new, comparison)
        for is_last in (False, True):
            try:
                for before, after in steps(comparison, old, new, turn):
                    self.add(before, after)
                return
            except Fell as fell:
                is_first = not any(self.lines[key].pairs for key in comparison.lines)
                if not fell.is_new and is_first and is_lacking(str(fell)):
                    self.end(comparison, is_missing=True)
                    return
                if is_last:
                    whose = (self.new if fell.is_new else self.old).name
                    self.end(comparison, why=f"{whose}: {fell}")

    def side(self, revision: Revision, comparison: Comparison) -> Side:
        return Side(self.servers, revision.contestant(comparison.database), comparison.size(self.scale))

    def add(self, old: Shown, new: Shown) -> None:
        for key in {**old, **new}:
            compared = self.lines[key]
            if key not in old:
                compared.is_missing = True
            elif key not in new:
                compared.why = f"{self.new.name} has no figure for it"
            elif old[key] <= 0 or new[key] <= 0:
                compared.why = f"a figure that has no ratio: {old[key]:g} and {new[key]:g}"
            else:
                compared.pairs.append((old[key], new[key]))

    def end(self, comparison: Comparison, *, why: str = "", is_missing: bool = False) -> None:
        for key in comparison.lines:
            self.lines[key].why, self.lines[key].is_missing = why, is_missing

    def tell(self, comparison: Comparison, console: Console, seconds: float) -> None:
        for key in comparison.lines:
            each = self.lines[key]
            shown = (
                " ".join(f"{one:.3f}" for one in each.ratios[-4:]) or each.why or "not in " + self.old.name
            )
            console.print(
                f"[dim]{key}: {len(each.pairs)} of {self.wanted(comparison)}:[/] {shown}", highlight=False
            )
        console.print(f"[dim]{comparison.lines[0]}: {seconds:.1f} s[/]", highlight=False)


# What an adapter says that does not know a verb, a kind of handler, or is not there at all.
LACKING = re.compile(
    r"(KeyError: '(prepare|publish|work|empty|claim|async|sync|transaction|poison)'"
    r"|No module named '?bench\.adapters\.\w+'?)$"
)


def is_lacking(complaint: str) -> bool:
    """Whether a revision failed because it does not have what was asked for."""
    return LACKING.search(complaint) is not None


# --- The run ------------------------------------------------------------------------------------------------


def main(asked: argparse.Namespace, console: Console) -> int:
    wanted = [part.strip().lower() for part in asked.only.split(",") if part.strip()]
    comparisons = [each for each in COMPARISONS if each.asked_for(wanted, quick=asked.quick)]
    if not comparisons:
        console.print(f"[red]no line that is compared has {asked.only!r} in its name[/]")
        return 2
    source = origin()
    try:
        with console.status(f"setting up revision {asked.against}"):
            old = check_out(asked.against)
    except NoRevision as why:
        console.print(f"[red]{why}[/]", highlight=False, soft_wrap=True)
        return 2
    new = Revision("here", ROOT, Path(sys.executable))
    servers = Servers(asked.postgres)
    begun = time.monotonic()
    try:
        console.print(f"PostgreSQL {servers.postgres.binaries}; load of the machine {os.getloadavg()[0]:.1f}")
        race = Race(servers, old, new, asked.scale or 1.0, asked.rounds)
        try:
            race.run(comparisons, console)
        except KeyboardInterrupt:
            console.print("[yellow]interrupted[/]")
        about = {**source, "against": {"asked": asked.against, "commit": old.commit}, **surroundings(race)}
        about["seconds"] = round(time.monotonic() - begun)
    finally:
        servers.close()
    results = document(list(race.lines.values()), about)
    show(results, old.name, console)
    if not asked.dry:
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(json.dumps(results, indent=1) + "\n")
        console.print(f"Written: {RESULT.relative_to(ROOT)}")
    return exit_code(race)


def exit_code(race: Race) -> int:
    return 1 if any(each.verdict in ("slower", "failed") for each in race.lines.values()) else 0


def surroundings(race: Race) -> dict[str, Any]:
    with psycopg.connect(race.servers.postgres.dsn) as connection:
        ((server,),) = connection.execute("show server_version").fetchall()
    return {
        "scale": race.scale,
        "machine": {**machine.describe(), "load": f"{os.getloadavg()[1]:.1f}"},
        "versions": {
            "postgresql": server,
            "sqlite": sqlite3.sqlite_version,
            "python": platform.python_version(),
        },
        "settings": settings(),
    }


def document(compared: list[Compared], about: dict[str, Any]) -> dict[str, Any]:
    return {**about, "measurements": [result(each) for each in compared], "left_out": LEFT_OUT}


def result(compared: Compared) -> dict[str, Any]:
    """One record of against.json."""
    line = compared.line
    made: dict[str, Any] = {
        "name": line.key,
        "title": line.title,
        "unit": line.unit,
        "more_is_better": line.more_is_better,
        "verdict": compared.verdict,
    }
    if compared.failure:
        made["failure"] = compared.failure
    if compared.verdict not in ("new", "failed"):
        lower, median, upper = compared.quartiles
        made["old"] = statistics.median(old for old, _ in compared.pairs)
        made["new"] = statistics.median(new for _, new in compared.pairs)
        made["ratio"] = {"lower": lower, "median": median, "upper": upper}
    return {**made, "pairs": compared.pairs}


def show(results: dict[str, Any], old: str, console: Console) -> None:
    console.print(table(results, old))
    for each in results["measurements"]:
        if "failure" in each:
            console.print(f"[red]{each['title']}: {each['failure']}[/]", highlight=False)
    if unclear := sum(each["verdict"] == "unclear" for each in results["measurements"]):
        console.print(
            f"[yellow]{unclear} lines are unclear: of them nobody can say that they are not slower.[/]"
        )
    reasons: dict[str, list[str]] = {}
    for line, why in results["left_out"].items():
        reasons.setdefault(why, []).append(line)
    for why, lines in reasons.items():
        console.print(f"[dim]Not compared: {', '.join(lines)}: {why}[/]", highlight=False)


def table(results: dict[str, Any], old: str) -> Table:
    made = Table(
        title=f"{results['commit']} against {old}, {results['date']}",
        caption=f"ratio: above 1 is better. slower: the upper quartile is below {SLOWER}. "
        f"faster: the lower quartile is above {FASTER}. unclear: the pairs differ too much to see 3 %.",
        title_justify="left",
        caption_justify="left",
    )
    made.add_column("line", overflow="fold")
    for column in (old, "here", "ratio", "quartiles", "pairs"):
        made.add_column(column, justify="right", overflow="fold")
    made.add_column("verdict")
    for each in results["measurements"]:
        verdict: Verdict = each["verdict"]
        word = f"not in {old}" if verdict == "new" else verdict
        shown = each.get("ratio")
        made.add_row(
            f"{each['title']} [dim]{each['unit']}[/]",
            number(each["old"]) if shown else "",
            number(each["new"]) if shown else "",
            f"{shown['median']:.3f}" if shown else "",
            f"{shown['lower']:.3f} – {shown['upper']:.3f}" if shown else "",
            str(len(each["pairs"])),
            f"[{STYLE[verdict]}]{word}[/]" if verdict in STYLE else word,
        )
    return made
