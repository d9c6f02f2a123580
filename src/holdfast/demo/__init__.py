"""`holdfast demo`: a shop on SQLite, in less than a minute, with every kind of failure.

A shop places orders in its own transactions. Two worker processes handle the messages while they are killed with -9,
calls fail, one message is not valid and another kills every worker that handles it. At the end the guarantees are
proved by counting.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ..clock import SystemClock
from . import proof, story
from .picture import Picture, show_commands
from .playing import Failed, played
from .stage import Stage

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["run"]

TARGET = "holdfast.demo.shop:app"


def run(
    console: Console,
    *,
    seconds: float = 12.0,
    seed: int | None = None,
    processes: int = 2,
    limit: float = 40.0,
    target: str = TARGET,
) -> int:
    """Run the demo: 0 if every guarantee held, 1 if one did not. The database is kept, so that you can look into it.

    The shop trades for `seconds`; messages not handled within `limit` seconds after that count as lost.
    """
    seed = int(SystemClock().roll() * 1_000_000) if seed is None else seed
    stage = Stage(
        story.drawn(seed), Path(tempfile.mkdtemp(prefix="holdfast-demo-")), seconds, processes, target
    )
    console.print(f"[bold]Holdfast demo[/], seed {seed}, database {stage.database}", soft_wrap=True)
    console.print(
        f"{stage.story.messages} messages will be committed by {story.TILLS} producers, "
        f"for {processes} worker processes, in about {seconds:g} s.\n",
        soft_wrap=True,
    )

    def all_of_it() -> list[proof.Row]:
        failure = stage.play(Picture(console, stage.story.messages), limit)
        if failure is not None:
            raise Failed(failure)
        return proof.prove(stage.evidence())

    def afterwards() -> None:
        again = f"demo --seed {seed} --seconds {seconds:g} --processes {processes}"
        show_commands(console, stage.database, again, stage.cursed)

    return played(console, stage.folder, all_of_it, afterwards)
