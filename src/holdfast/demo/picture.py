"""What the demo shows: bars while it runs (lines, if there is no terminal), then the proof."""

from __future__ import annotations

import os
import shlex
import shutil
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..clock import SystemClock
from .proof import Row

if TYPE_CHECKING:
    from rich.console import Console

LINE_EVERY = 2.0  # seconds, without a terminal


@dataclass(frozen=True, slots=True)
class Counts:
    """The progress of everything."""

    committed: int = 0
    done: int = 0
    dead: int = 0
    failed: int = 0
    killed: int = 0


def read_counts(database: str, killed: int) -> Counts:
    counts = """
        select (select count(*) from promise),
               (select count(*) from holdfast_history where outcome = 'done'),
               (select count(*) from holdfast_dead),
               (select coalesce(sum(failures), 0) from holdfast_history)
               + (select coalesce(sum(failures), 0) from holdfast_message)
    """
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)) as db:
        committed, done, dead, failed = db.execute(counts).fetchone()
    return Counts(committed, done, dead, failed, killed)


class Picture:
    """The progress, as long as the block lasts."""

    def __init__(self, console: Console, total: int) -> None:
        self.console, self.total = console, total
        self.live: Live | None = None
        self._said: tuple[float, Counts] | None = None
        self._clock = SystemClock()

    def __enter__(self) -> Picture:
        if self.console.is_terminal:
            self.live = Live(self.drawn(Counts()), console=self.console, refresh_per_second=10)
            self.live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live is not None:
            self.live.__exit__(kind, error, trace)

    def say(self, line: str) -> None:
        self.console.print(f"  [red]{line}[/]" if self.live else f"  {line}", highlight=False, soft_wrap=True)

    def update(self, counts: Counts, rest: str | None = None) -> None:
        rest = _rest(counts) if rest is None else rest
        if self.live is not None:
            self.live.update(self.drawn(counts, rest))
            return
        now = self._clock.monotonic()
        if self._said is None or (now - self._said[0] >= LINE_EVERY and counts != self._said[1]):
            self._said = now, counts
            self.console.print(
                f"  {counts.committed} of {self.total} committed, {counts.done} done{rest and f'; {rest}'}",
                highlight=False,
                soft_wrap=True,
            )

    def drawn(self, counts: Counts, rest: str = "") -> Table:
        table = Table.grid(padding=(0, 2))
        for what, count, style in (("committed", counts.committed, "cyan"), ("done", counts.done, "green")):
            bar = ProgressBar(total=self.total, completed=count, width=40, complete_style=style)
            table.add_row(what, bar, Text(f"{count} of {self.total}", justify="right"))
        table.add_row("", rest)
        return table


def _rest(counts: Counts) -> str:
    return f"failed attempts: {counts.failed}, dead letters: {counts.dead}, workers killed: {counts.killed}"


def show_proof(console: Console, rows: Sequence[Row]) -> None:
    table = Table(title="The proof, counted from the database", title_justify="left", title_style="bold")
    table.add_column("promise")
    table.add_column("numbers")
    table.add_column("")
    for row in rows:
        table.add_row(
            row.promise, row.numbers, Text("ok", "green") if row.kept else Text("FAILED", "bold red")
        )
    console.print()
    console.print(table)


def show_commands(console: Console, database: str, again: str, cursed: str) -> None:
    """Commands that a reader may try next, on the database that is left."""
    console.print("\nThe database is still there. Look into it, or play the same story again:")
    show_calls(console, database, "dead list", f"why {cursed}")
    console.print(f"  {_command()} {again}", highlight=False, soft_wrap=True, markup=False)


def show_calls(console: Console, database: str, *commands: str) -> None:
    """Commands about this database, as this installation is called from here."""
    url = shlex.quote(f"sqlite:///{database}")
    for each in commands:
        console.print(f"  {_command()} {each} --url {url}", highlight=False, soft_wrap=True, markup=False)


def _command() -> str:
    """How this installation is called from the current folder, in a shell that has only its usual PATH.

    `uv run` puts our folder into the PATH of this process alone, and another holdfast may come first in it.
    """
    beside = Path(sys.executable).with_name("holdfast")
    first = shutil.which("holdfast")
    is_ours = first is not None and beside.exists() and os.path.samefile(first, beside)
    if not beside.exists() or (is_ours and "UV_RUN_RECURSION_DEPTH" not in os.environ):
        return "holdfast"
    try:
        return shlex.quote(str(beside.relative_to(Path.cwd())))
    except ValueError:
        return shlex.quote(str(beside))
