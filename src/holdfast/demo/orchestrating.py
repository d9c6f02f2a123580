"""`holdfast demo --scenario workflow`: 200 orchestrations while their workers are killed with -9, and the proof.

Each order is charged, waits, is packed in parallel and shipped; some wait for a person, some fail and undo their
steps. Worker processes die in the middle of it. At the end everything is counted with plain SQL, and every journal is
replayed against the code.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import tempfile
import threading
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .. import Holdfast
from ..clock import SystemClock
from ..model.text import counted
from ..orchestrations.checking import replayed
from ..orchestrations.declared import Program
from ..orchestrations.journal import JournalUnreadable, decode
from . import flows, till
from .picture import Counts, Picture, show_calls
from .playing import Failed, played
from .proof import Row
from .stage import workers
from .story import DATABASE

if TYPE_CHECKING:
    from rich.console import Console

TARGET = "holdfast.demo.flows:app"
ORDERS = 200
KILL_EVERY = 1.5  # seconds
KILLS_MAX = 8
STEP = 0.1

TABLES = "create table effect (instance text not null, step text not null)"


@dataclass
class Play:
    """One run: its folder, and facts that no table holds."""

    folder: Path
    orders: int = ORDERS
    killed: int = 0

    @property
    def database(self) -> str:
        return str(self.folder / "flows.db")

    def read(self, text: str) -> list[tuple[str, ...]]:
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=10)) as db:
            return db.execute(text).fetchall()


def run(
    console: Console, *, processes: int = 2, orders: int = ORDERS, limit: float = 120.0, target: str = TARGET
) -> int:
    """Play it: 0 if every promise was kept, 1 if one was not. The database is kept, so that you can look into it."""
    play = Play(Path(tempfile.mkdtemp(prefix="holdfast-demo-")), orders)
    console.print(f"[bold]Holdfast demo, a workflow[/], database {play.database}", soft_wrap=True)
    with closing(sqlite3.connect(play.database)) as db:
        db.execute(TABLES)
        db.commit()
    app = flows.make(play.database)
    app.prepare()

    def all_of_it() -> list[Row]:
        with closing(app), Picture(console, orders) as picture:
            _play(play, app, picture, processes, target, limit)
            return prove(play, app.orchestrations.declared["fulfil@1"].program)

    def afterwards() -> None:
        console.print("\nThe database is still there. Look into it:")
        commands = ("orchestrations list", "orchestrations show order-10", "orchestrations journal order-7")
        show_calls(console, str(play.database), *commands)

    return played(console, play.folder, all_of_it, afterwards)


def _play(play: Play, app: Holdfast, picture: Picture, processes: int, target: str, limit: float) -> None:
    """Run until the last instance has ended."""
    pause, clock = threading.Event(), SystemClock()
    with workers(play.folder, target, processes, {DATABASE: play.database}) as process:
        end = clock.monotonic() + limit
        while till.workers_seen(play.database) < processes:
            if process.poll() is not None or clock.monotonic() > end:
                raise Failed("the worker processes did not start")
            pause.wait(STEP)
        fulfil = app.orchestrations.declared["fulfil@1"]
        for order in range(1, play.orders + 1):
            app.orchestrations.start(fulfil, order, id=f"order-{order}")
        asked = [order for order in range(1, play.orders + 1) if order % flows.APPROVED_EVERY == 0]
        next_kill = clock.monotonic()
        while True:
            if asked and (play.killed or len(asked) > 1):  # no instance ends before the first kill
                app.orchestrations.signal(f"order-{asked.pop()}", "approved", "Ann")
            if play.killed < KILLS_MAX and clock.monotonic() >= next_kill and _kill(play, picture):
                next_kill = clock.monotonic() + KILL_EVERY
            ended = _ended(play)
            picture.update(Counts(play.orders, ended), f"{play.killed} worker processes were killed")
            if ended == play.orders and not asked:
                return
            if process.poll() is not None:
                raise Failed(f"the worker's parent process ended with {process.returncode}")
            if clock.monotonic() > end:
                return  # the proof will show what is missing
            pause.wait(STEP)


def _ended(play: Play) -> int:
    ((count,),) = play.read("select count(*) from holdfast_instance where ended_at is not null")
    return int(count)


def _kill(play: Play, picture: Picture) -> bool:
    """kill -9 the worker process that holds the most messages; False: none holds any at this moment."""
    held, pid = till.busiest_worker(play.database)
    try:
        if pid:
            os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    if not pid:
        return False
    play.killed += 1
    picture.say(f"kill -9 {pid}: a worker process that holds {counted(held, 'message')}")
    return True


# --- The proof --------------------------------------------------------------------------------------------------------


def prove(play: Play, program: Program) -> list[Row]:
    """Every promise with its numbers. Each row can fail, and none depends on another."""
    return [
        killed(play),
        all_ended(play),
        effects_once(play),
        undone(play),
        no_gaps(play),
        replays(play, program),
    ]


def failing(play: Play) -> set[str]:
    return {f"order-{order}" for order in range(1, play.orders + 1) if order % flows.FAILS_EVERY == 0}


def killed(play: Play) -> Row:
    return Row("Workers were killed in the middle of it", f"{play.killed} with kill -9", play.killed > 0)


def all_ended(play: Play) -> Row:
    """Orders that can be shipped completed, the others failed, and nothing is left."""
    states = Counter(state for (state,) in play.read("select state from holdfast_instance"))
    ((waiting,),) = play.read("select count(*) from holdfast_message where queue <> 'holdfast/timer'")
    bad = len(failing(play))
    kept = states == Counter(completed=play.orders - bad, failed=bad) and not int(waiting)
    ends = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    return Row(
        "Every orchestration ended as it must", f"{ends} of {play.orders}; {waiting} messages wait", kept
    )


def effects_once(play: Play) -> Row:
    """Every step of every order has one row in the shop's table."""
    found = Counter((instance, step) for instance, step in play.read("select instance, step from effect"))
    steps = {"charge", *(f"pack-{number}" for number in range(flows.PARCELS))}
    wanted = {(f"order-{order}", step) for order in range(1, play.orders + 1) for step in steps}
    wanted |= {(f"order-{n}", "ship") for n in range(1, play.orders + 1)} - {
        (each, "ship") for each in failing(play)
    }
    wanted |= {(each, "refund") for each in failing(play)}
    twice = sum(count > 1 for count in found.values())
    missing, stray = len(wanted - set(found)), len(set(found) - wanted)
    return Row(
        "The effect of each step once",
        f"{len(wanted):,} steps: {twice} twice, {missing} missing, {stray} unexpected",
        not (twice or missing or stray),
    )


def undone(play: Play) -> Row:
    """Failed orders were charged and refunded."""
    refunded = {instance for (instance,) in play.read("select instance from effect where step = 'refund'")}
    return Row(
        "What failed is undone, and nothing else",
        f"{len(refunded)} refunded of {len(failing(play))} that failed",
        refunded == failing(play),
    )


def no_gaps(play: Play) -> Row:
    rows = play.read("select id, count(*), min(turn), max(turn) from holdfast_journal group by id")
    turns = {id: int(turn) for id, turn in play.read("select id, turn from holdfast_instance")}
    whole = [
        id
        for id, count, first, last in rows
        if (int(first), int(last), int(count)) == (1, turns[id], turns[id])
    ]
    return Row("Journals without gaps", f"{len(whole)} of {play.orders} whole", len(whole) == play.orders)


def replays(play: Play, program: Program) -> Row:
    """Replay every journal: the code asks for the same, to the same end."""
    rows = play.read("select id, turn, part, body from holdfast_journal order by id, turn, part")
    journals: dict[str, list[tuple[int, int, str]]] = {}
    for id, turn, part, body in rows:
        journals.setdefault(id, []).append((int(turn), int(part), body))
    same = sum(_is_same(program, id, found) for id, found in journals.items())
    return Row("Replaying each journal gives the same", f"{same} of {play.orders}", same == play.orders)


def _is_same(program: Program, id: str, rows: list[tuple[int, int, str]]) -> bool:
    try:
        return (
            replayed(program, id, 0, [decode(id, 0, turn, part, body) for turn, part, body in rows]) is None
        )
    except JournalUnreadable:
        return False
