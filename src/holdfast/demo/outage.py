"""`holdfast demo --scenario outage`: a bad day. A bank is down for a while, then a deploy breaks every invoice.

First the bank goes down while payments come in: the breaker opens on all workers, and nothing is lost or becomes a
dead letter. It is up again, the breaker closes, and the backlog drains at a bounded, rising rate. Then a broken
version is deployed: a thousand dead letters of one cause. A canary of ten dies again, so the others stay; the fix is
deployed, the canary is well, and all follow. At the end the day is proved by counting.
"""

from __future__ import annotations

import sqlite3
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from .. import Holdfast
from ..clock import SystemClock, wall_clock
from ..operations.results import Filter, Redriven
from . import bank, till
from .picture import Counts, Picture
from .playing import Failed, played
from .proof import Row
from .stage import workers
from .story import DATABASE, diary_of

if TYPE_CHECKING:
    from rich.console import Console

TARGET = "holdfast.demo.bank:app"
PAYMENTS_PER_SECOND = 40
BEFORE, OUTAGE, AFTER = 2.0, 6.0, 1.0  # seconds in which payments come in: bank up, down, up again
INVOICES = 1000
CANARY = 10
STEP = 0.05
BATCH = 100
NOTICE = 1.5  # seconds after which every process knows that the breaker has opened


@dataclass(frozen=True, slots=True)
class Call:
    """A call that reached the bank."""

    message: str
    process: int
    at: float
    is_down: bool


@dataclass
class Day:
    """What happened, for the proof: facts that no table holds."""

    folder: Path
    payments: int = 0
    invoices: int = 0
    opened_at: float = 0.0
    up_at: float = 0.0
    closed_at: float = 0.0
    causes: list[int] = field(default_factory=list)
    canary_broken: Redriven | None = None
    left_after_canary: int = 0
    redriven: Redriven | None = None

    @property
    def database(self) -> str:
        return str(self.folder / "bank.db")


def run(console: Console, *, processes: int = 2, limit: float = 100.0, target: str = TARGET) -> int:
    """Play the day: 0 if every promise was kept, 1 if one was not."""
    day = Day(Path(tempfile.mkdtemp(prefix="holdfast-demo-")))
    console.print(f"[bold]Holdfast demo, a bad day[/], database {day.database}", soft_wrap=True)
    total = int(PAYMENTS_PER_SECOND * (BEFORE + OUTAGE + AFTER)) + INVOICES
    till.open_shop(day.database)
    app = Holdfast(f"sqlite:///{day.database}")
    app.prepare()

    def play() -> list[Row]:
        with closing(app), Picture(console, total) as picture:
            Play(day, app, picture, processes, target, SystemClock().monotonic() + limit).all()
        return prove(gather(day))

    return played(console, day.folder, play)


@dataclass
class Play:
    """The acts, one after another."""

    day: Day
    app: Holdfast
    picture: Picture
    processes: int
    target: str
    end: float

    def all(self) -> None:
        with self.deployed("1"):
            self.outage()
        with self.deployed(bank.BROKEN):
            self.broken_deploy()
        with self.deployed("3"):
            self.fixed_deploy()

    # -- the bank

    def outage(self) -> None:
        self.trade(BEFORE)
        down = Path(self.day.database + bank.DOWN)
        down.touch()
        self.picture.say("the bank goes down")
        self.trade(OUTAGE / 2, self.notice_open)
        if not self.day.opened_at:
            raise Failed("the breaker did not open")
        self.trade(OUTAGE / 2)
        self.day.up_at = wall_clock().timestamp()
        down.unlink()
        self.picture.say(f"the bank is up again; {self.pending()} payments wait")
        self.until(lambda: self.state() == "closed", "the breaker did not close")
        changed_at = self.app.operations.breakers.show("bank").changed_at
        assert changed_at is not None
        self.day.closed_at = changed_at.timestamp()
        self.picture.say(f"three trials went well and the breaker closed; {self.pending()} payments wait")
        self.trade(AFTER)
        self.until(lambda: self.pending() == 0, "the payments were not all handled")

    def trade(self, seconds: float, look: Callable[[], None] = lambda: None) -> None:
        """Payments come in."""
        pause, begun, made = threading.Event(), SystemClock().monotonic(), 0
        total = int(seconds * PAYMENTS_PER_SECOND)
        while made < total:
            passed = SystemClock().monotonic() - begun
            due = min(int(passed * PAYMENTS_PER_SECOND) + 1, total)
            if due > made:
                self.app.publish_many(self.app.message("payment.due", {"n": n}) for n in range(made, due))
                self.day.payments += due - made
                made = due
            look()
            self.show()
            pause.wait(STEP)

    def notice_open(self) -> None:
        """When the breaker opened the first time; a failed trial opens it again."""
        state = self.app.operations.breakers.show("bank")
        if not self.day.opened_at and state.opened_at is not None:
            self.day.opened_at = state.opened_at.timestamp()
            self.picture.say(f"the breaker opens for all workers: {state.why}")

    def state(self) -> str:
        return str(self.app.operations.breakers.show("bank").state)

    # -- the deploys

    def broken_deploy(self) -> None:
        for first in range(0, INVOICES, BATCH):
            self.app.publish_many(
                self.app.message("invoice.wanted", {"order": n, "net": 100 + n})
                for n in range(first, first + BATCH)
            )
        self.day.invoices = INVOICES
        self.until(lambda: self.letters() == INVOICES, "the invoices did not die")
        groups = self.app.operations.dead.groups()
        self.day.causes = [group.count for group in groups]
        self.picture.say(
            f"version {bank.BROKEN} is deployed: {self.letters()} dead letters, one cause: {groups[0].error}"
        )
        self.day.canary_broken = self.redrive()
        self.day.left_after_canary = self.letters()
        self.picture.say(f"a canary of {CANARY} is redriven and dies again: the others stay where they are")

    def fixed_deploy(self) -> None:
        self.picture.say("version 3 is deployed, with the fix")
        self.day.redriven = self.redrive()
        self.picture.say(f"the canary is well: {self.day.redriven.changed} come back")
        self.until(lambda: self.pending() == 0, "the invoices were not all handled")

    def redrive(self) -> Redriven:
        """The canary first, the others if it was handled, as `holdfast dead redrive --canary` does."""
        (group, *_) = self.app.operations.dead.groups()
        return self.app.operations.dead.redrive_many(
            Filter(fingerprint=group.fingerprint), canary=CANARY, patience=15.0
        )

    @contextmanager
    def deployed(self, version: str) -> Iterator[None]:
        """Worker processes with a version of the code; at the end of the block they stop as in any deploy."""
        environment = {DATABASE: self.day.database, bank.VERSION: version}
        with workers(self.day.folder, self.target, self.processes, environment) as process:
            self.until(
                lambda: till.workers_seen(self.day.database) >= self.processes or process.poll() is not None,
                "the worker processes did not start",
            )
            if process.poll() is not None:
                raise Failed("the worker processes did not start")
            yield

    # -- looking

    def until(self, done: Callable[[], bool], otherwise: str) -> None:
        pause = threading.Event()
        while not done():
            if SystemClock().monotonic() > self.end:
                raise Failed(otherwise)
            self.show()
            pause.wait(STEP)

    def show(self) -> None:
        counts = count(self.day)
        is_down = Path(self.day.database + bank.DOWN).exists()
        self.picture.update(
            counts,
            f"bank: {'DOWN' if is_down else 'up'}, breaker: {self.state_known()}, dead letters: {counts.dead}",
        )

    def state_known(self) -> str:
        return next((str(each.state) for each in self.app.operations.breakers.list()), "closed")

    def pending(self) -> int:
        counts = count(self.day)
        return counts.committed - counts.done - counts.dead

    def letters(self) -> int:
        return count(self.day).dead


def count(day: Day) -> Counts:
    counts = """
        select (select count(*) from holdfast_history where outcome = 'done'), (select count(*) from holdfast_dead)
    """
    with closing(sqlite3.connect(f"file:{day.database}?mode=ro", uri=True, timeout=10)) as db:
        done, dead = db.execute(counts).fetchone()
    return Counts(committed=day.payments + day.invoices, done=done, dead=dead)


# --- The proof --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Evidence:
    """All counts."""

    day: Day
    calls: list[Call]
    done: Counter[str]  # by type
    starts_max: int  # of a payment
    dead: int
    waiting: int
    ledger: Counter[str]  # invoices written, by message


def gather(day: Day) -> Evidence:
    """Read everything, with a connection of our own and plain SQL, and the bank's diary."""
    with closing(sqlite3.connect(f"file:{day.database}?mode=ro", uri=True)) as db:
        done = db.execute("select type, count(*) from holdfast_history where outcome = 'done' group by type")
        spent = "select coalesce(max(attempts), 0) from holdfast_history where type = 'payment.due'"
        return Evidence(
            day,
            read_calls(day.database),
            Counter(dict(done.fetchall())),
            db.execute(spent).fetchone()[0],
            db.execute("select count(*) from holdfast_dead").fetchone()[0],
            db.execute("select count(*) from holdfast_message").fetchone()[0],
            Counter(row[0] for row in db.execute("select message from ledger")),
        )


def read_calls(database: str) -> list[Call]:
    diary = Path(diary_of(database))
    lines = [line.split() for line in diary.read_text().splitlines()] if diary.exists() else []
    return [Call(message, int(process), float(at), how == "down") for message, process, at, how in lines]


def prove(evidence: Evidence) -> list[Row]:
    """Every promise of the day with its numbers. Each row can fail, and none depends on another."""
    return [
        breaker_opened(evidence),
        payments_kept(evidence),
        no_dead_letters(evidence),
        drained_at_a_bounded_rate(evidence),
        one_cause(evidence),
        canary_held_back(evidence),
        all_came_back(evidence),
        effects_once(evidence),
    ]


def breaker_opened(e: Evidence) -> Row:
    """After it opened only trials reached the bank, from all processes together."""
    late = [call for call in e.calls if call.is_down and call.at > e.day.opened_at + NOTICE]
    cooldowns = (e.day.up_at - e.day.opened_at) / bank.COOLDOWN + 1
    most = int(cooldowns * bank.TRIALS)
    early = sum(call.is_down for call in e.calls) - len(late)
    processes = len({call.process for call in e.calls})
    numbers = (
        f"{early} calls failed until {processes} processes knew; then {len(late)} trials (at most {most})"
    )
    return Row(
        "the breaker opened on all workers", numbers, len(late) <= most and early > 0 and processes > 1
    )


def payments_kept(e: Evidence) -> Row:
    done = e.done["payment.due"]
    numbers = f"{e.day.payments} payments due = {done} done"
    if e.waiting:
        numbers += f", and {e.waiting} still waiting"
    reached = {call.message for call in e.calls if not call.is_down}
    return Row("nothing lost", numbers, done == e.day.payments == len(reached) and not e.waiting)


def no_dead_letters(e: Evidence) -> Row:
    numbers = f"{e.dead} dead letters; at most {e.starts_max} starts of a payment were counted"
    return Row("no dead letters because of the outage", numbers, e.dead == 0 and e.starts_max <= 3)


def drained_at_a_bounded_rate(e: Evidence) -> Row:
    """In every second after it closed: no more calls than the catch-up allows, and more and more of them."""
    seconds = Counter(int(call.at - e.day.closed_at) for call in e.calls if call.at >= e.day.closed_at)
    last = max(seconds, default=0)
    found = [seconds[second] for second in range(last + 1)]
    bounds = [allowed(second) for second in range(last + 1)]
    counts = ", ".join(
        f"{count} (at most {bound})" for count, bound in list(zip(found, bounds, strict=True))[:5]
    )
    kept = all(count <= bound for count, bound in zip(found, bounds, strict=True))
    return Row("the backlog drained at a bounded rate", f"calls a second: {counts}", kept and sum(found) > 0)


def allowed(second: int) -> int:
    """How many may begin in one second of the catch-up: a second's worth at its end, and as many that were in hand."""
    return int(2 * bank.CATCH_UP_PER_SECOND * 2 ** ((second + 1) / bank.CATCH_UP_DOUBLES))


def one_cause(e: Evidence) -> Row:
    numbers = f"{sum(e.day.causes)} dead letters, {len(e.day.causes)} fingerprint"
    return Row("a broken deploy is one cause", numbers, e.day.causes == [INVOICES])


def canary_held_back(e: Evidence) -> Row:
    bird = None if e.day.canary_broken is None else e.day.canary_broken.canary
    tried = bird.tried if bird else 0
    numbers = f"{tried} of {INVOICES} tried, and {e.day.left_after_canary} are dead letters as before"
    kept = bird is not None and not bird.is_well and tried == CANARY and e.day.left_after_canary == INVOICES
    return Row("a canary that dies holds the others back", numbers, kept)


def all_came_back(e: Evidence) -> Row:
    changed = e.day.redriven.changed if e.day.redriven else 0
    done = e.done["invoice.wanted"]
    numbers = f"{changed} redriven after the fix = {done} done"
    return Row("after the fix all came back", numbers, changed == done == INVOICES and e.dead == 0)


def effects_once(e: Evidence) -> Row:
    twice = sum(count > 1 for count in e.ledger.values())
    numbers = f"{len(e.ledger)} invoices written, {twice} of them twice"
    return Row("effects once", numbers, len(e.ledger) == INVOICES and twice == 0)
