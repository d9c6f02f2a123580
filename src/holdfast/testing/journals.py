"""Journals in tests: saved as files, and replayed against the code."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import Any, Protocol

from ..errors import UsageError
from ..orchestrations import files
from ..orchestrations.files import SavedJournal
from ..orchestrations.outside import Orchestrations


class Orchestrating(Protocol):
    """An application with orchestrations."""

    @property
    def orchestrations(self) -> Orchestrations: ...


def replay_file(app: Orchestrating, path: Path | str) -> None:
    """Replay one saved journal against the application's code; JournalDiffers describes the difference."""
    found = app.orchestrations
    programs = [each.program for each in found.declared.values()]
    files.check(files.load(path), programs, found.place.pen, found.place.settings)


def replay(app: Orchestrating, pattern: str) -> int:
    """Replay all saved journals whose paths match: `replay(app, "tests/journals/*.json")`. How many there were.

    No file is a UsageError: a test that replays nothing would show nothing.
    """
    paths = sorted(glob.glob(pattern, recursive=True))
    if not paths:
        raise UsageError(f"No saved journal matches {pattern!r}: t.journal(id).save(folder) writes one.")
    for each in paths:
        replay_file(app, each)
    return len(paths)


def journal_of(app: Any, id: str, execution: int | None = None) -> SavedJournal:
    """The journal of an instance as a value that can be saved."""
    found: SavedJournal = app.operations.orchestrations.saved(id, execution=execution)
    return found
