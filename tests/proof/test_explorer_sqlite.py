"""Pairs of storage operations on SQLite, where writers are serial: every order of their transactions.

The operations are the verbs of the kill points, and a take-over of three transactions; what must hold is the same.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.errors import NotFound, Refused
from holdfast.model.work import Report, Want
from holdfast.settings import Settings
from holdfast.store import SqliteStore
from holdfast.store.plans import engine
from holdfast.store.plans.operator import TargetChanged
from tests.proof.contents import Contents, fill
from tests.proof.counts import COUNTS
from tests.proof.invariants import ID_TAKEN
from tests.proof.kill.killing import PROOF_TABLES
from tests.proof.kill.verbs import Hands, NothingToDo, verbs
from tests.store import state
from tests.store.box import Box, done

Step = Callable[[Hands], Any]
TABLES = ("message", "scheduled", "stream", "lease", "dead", "dedupe", "history")
CORE = (
    "publish", "publish_keys", "publish_in_transaction", "claim", "done_run", "done_move", "done_emit", "again",
    "aside", "dead_halt", "complete", "bring", "recover", "report_death", "take_over", "subscribe",
    "order_cancel_lapsed", "order_set_aside", "order_resume", "redrive_many", "prune_streams",
)  # fmt: skip


def take_over() -> list[Step]:
    """Another worker takes the lapsed head over, alone, and handles it."""
    work: list[Any] = []

    def claim(h: Hands) -> None:
        report = Report(h.contents.workers["two"], suspects=True, want=[Want("q", 1)], total=1)
        work.extend(h.run(engine.exchange(report)).work)

    def settle(h: Hands) -> None:
        h.exchange(*(done(each) for each in work), worker="two")

    return [lambda h: h.run(engine.recover(count=1)), claim, settle]


def operations() -> dict[str, Callable[[], list[Step]]]:
    found: dict[str, Callable[[], list[Step]]] = {
        name: lambda verb=verb: [verb] for name, verb in verbs().items()
    }
    return {**found, "take_over": take_over}


def orders(first: int, second: int) -> Iterator[list[int]]:
    """All ways to merge two sequences, as a list of whose turn it is."""
    for places in combinations(range(first + second), first):
        yield [0 if n in places else 1 for n in range(first + second)]


class Serial:
    """A file that is put back to its beginning for every order."""

    def __init__(self, folder: Path) -> None:
        self.template, self.path = folder / "template.db", folder / "store.db"
        clock = MovableClock()
        store = SqliteStore(str(self.template), Settings(), clock)
        store.migrate()
        self.contents: Contents = fill(Box(store, clock))
        for statement in PROOF_TABLES:
            state.query(store, statement)
        self.before = state.read_all(store, *TABLES)
        store.close()

    def check(self, pair: Sequence[str]) -> None:
        known = operations()
        count = 0
        first, second = (len(known[name]()) for name in pair)
        for order in orders(first, second):
            faults = self.play([known[name]() for name in pair], order)
            if "prune_history" in pair:  # what has ended may be forgotten then
                faults = [fault for fault in faults if "is lost" not in fault]
            count += 1
            assert not faults, f"{pair} in the order {order}:\n" + "\n".join(faults)
        COUNTS.add("explorer", "pairs on SQLite")
        COUNTS.add("explorer", "orders on SQLite", count)

    def play(self, steps: list[list[Step]], order: list[int]) -> list[str]:
        for left in self.path.parent.glob("store.db*"):
            left.unlink()
        shutil.copy(self.template, self.path)
        store = SqliteStore(str(self.path), Settings(), MovableClock(self.contents.now))
        hands = Hands(store, self.contents)
        try:
            for whose in order:
                try:
                    steps[whose].pop(0)(hands)
                except (Refused, NotFound, TargetChanged, NothingToDo):
                    pass  # about something that is not there any more
            after = state.read_all(store, *TABLES)
            return [*state.broken_invariants(after), *self.broken(after)]
        finally:
            store.close()

    def broken(self, after: dict[str, list[state.Row]]) -> Iterator[str]:
        rows = [row for name in ("message", "scheduled", "dead", "history") for row in after[name]]
        # Another message that came in with the same id is kept as a dead letter beside it (X61).
        where = Counter((row.id, row.queue) for row in rows if getattr(row, "reason", None) != ID_TAKEN)
        ids = {row.id for row in rows}
        yield from (f"{key} is in {count} places" for key, count in where.items() if count > 1)
        then = {
            (row.id, row.queue): row.epoch
            for name in ("message", "scheduled", "dead")
            for row in self.before[name]
        }
        yield from (f"{self.contents.names[id]} is lost" for id, _ in then if id not in ids)
        for row in (*after["message"], *after["scheduled"], *after["dead"]):
            if row.epoch < then.get((row.id, row.queue), 0):
                yield f"the epoch of {self.contents.names[row.id]} fell"


@pytest.fixture(scope="module")
def serial() -> Iterator[Serial]:
    fast = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="holdfast-", dir=fast if fast.is_dir() else None) as folder:
        yield Serial(Path(folder))


@pytest.mark.parametrize("name", CORE)
def test_pairs_in_every_order(serial: Serial, name: str) -> None:
    for other in CORE[CORE.index(name) :]:
        serial.check((name, other))


@pytest.mark.faults("explorer")
@pytest.mark.parametrize("name", list(operations()))
def test_all_pairs_in_every_order(serial: Serial, name: str) -> None:
    for other in operations():
        serial.check((name, other))
