"""Journals as files: saved from a test or a database, and replayed against the code by every build.

A file is JSON: the instance, its version, and the rows of one execution as they are stored. Sealed rows stay sealed;
they are opened by the keys of the application that replays them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from ..errors import HoldfastError, UsageError
from ..settings import Settings
from .checking import replayed
from .declared import Program
from .journal import decode
from .leaving import journal_text
from .messages import Pen
from .outcome import Overrun

FORMAT = 1
ENDING = ".journal.json"


class SavedRow(msgspec.Struct, frozen=True):
    turn: int
    part: int
    body: str


class SavedJournal(msgspec.Struct, frozen=True):
    """One execution of an instance, as a file holds it."""

    holdfast_journal: int
    id: str
    queue: str
    execution: int
    rows: tuple[SavedRow, ...]

    def save(self, path: Path | str) -> Path:
        """Write it: to this file, or into this folder under a name made of its version and its id."""
        target = Path(path)
        if target.is_dir():
            target /= self.name
        target.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")
        return target

    @property
    def name(self) -> str:
        """A file name that is safe everywhere."""
        plain = "".join(
            each if each.isalnum() or each in "-_." else "_" for each in f"{self.queue}-{self.id}"
        )
        return f"{plain[:150]}-{self.execution}{ENDING}"


class JournalDiffers(HoldfastError):
    """The code here does not do what a saved journal has."""

    category = "application"


def saved(id: str, queue: str, execution: int, rows: Iterable[tuple[int, int, str]]) -> SavedJournal:
    return SavedJournal(FORMAT, id, queue, execution, tuple(SavedRow(*each) for each in rows))


def opened(journal: SavedJournal, pen: Pen) -> SavedJournal:
    """The same with its rows opened, or BodySealed."""
    return saved(
        journal.id, journal.queue, journal.execution,
        ((each.turn, each.part, _plain(journal, each, pen)) for each in journal.rows),
    )  # fmt: skip


def load(path: Path | str) -> SavedJournal:
    """A saved journal, or UsageError if the file is not one."""
    try:
        found = msgspec.json.decode(Path(path).read_bytes(), type=SavedJournal)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UsageError(f"{path} is not a saved journal: {error}.") from error
    if found.holdfast_journal != FORMAT:
        raise UsageError(f"{path} has format {found.holdfast_journal}, and this release reads {FORMAT}.")
    return found


def check(
    journal: SavedJournal, programs: Sequence[Program], pen: Pen, limits: Settings | None = None
) -> None:
    """Replay it against the code with its version; JournalDiffers if that does something else, or is not there."""
    what = f"The journal of instance {journal.id!r} ({journal.queue}, execution {journal.execution})"
    program = next((each for each in programs if each.queue == journal.queue), None)
    if program is None:
        known = ", ".join(sorted(each.queue for each in programs)) or "none"
        raise JournalDiffers(
            f"{what} cannot be replayed: the code here has no {journal.queue}; there are: {known}. Keep the old "
            "version until no instance has it, then delete this file."
        )
    rows = [
        decode(journal.id, journal.execution, each.turn, each.part, _plain(journal, each, pen))
        for each in journal.rows
    ]
    found = replayed(program, journal.id, journal.execution, rows, limits)
    if isinstance(found, Overrun):
        raise JournalDiffers(f"{what} cannot be replayed: {found.why}")
    if found is not None:
        raise JournalDiffers("\n".join([f"{what} differs from the code: {found}", *found.diff]))


def _plain(journal: SavedJournal, row: SavedRow, pen: Pen) -> str:
    return pen.open(journal_text(journal.id, journal.execution, row.turn, row.part), row.body)
