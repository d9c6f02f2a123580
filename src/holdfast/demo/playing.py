"""How a demo is played: to its end, with the proof printed, or stopped, or failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from .picture import show_proof
from .proof import Row


class Failed(Exception):
    """The demo could not be played to its end."""


def played(
    console: Console,
    folder: Path,
    play: Callable[[], Sequence[Row]],
    afterwards: Callable[[], None] | None = None,
) -> int:
    """Play it and print the proof. 0: every promise was kept; 1: one was not, or it failed; 130: stopped.

    `afterwards`: prints what one may look at next, below the proof.
    """
    try:
        rows = play()
    except KeyboardInterrupt:
        console.print("Stopped before the end; nothing is proved.")
        return 130
    except Failed as failure:
        text = f"FAILED: {failure}\n{last_lines(folder / 'workers.log')}"
        console.print(text, style="red", markup=False, soft_wrap=True)
        return 1
    show_proof(console, rows)
    if afterwards is not None:
        afterwards()
    return 0 if all(row.kept for row in rows) else 1


def last_lines(log: Path) -> str:
    lines = log.read_text().splitlines() if log.exists() else []
    return "\n".join(lines[-20:])
