"""`holdfast demo --scenario downtime`: a day without workers, and what happens when they are back.

Greetings are scheduled over a day: single messages, a schedule that occurs every quarter of an hour, and birthdays in
many time zones. All worker processes are killed with -9, as if the machine had lost its power. A day later (the clock
of the new processes is a day ahead) workers start again. Missed messages are caught up, oldest first, at a bounded
rate, and the outage gets a summary. At the end it is proved by counting.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from .. import Holdfast, every, yearly
from ..clock import SystemClock, wall_clock
from ..model.outage import Outage
from . import till
from .greeter import AHEAD, CATCH_UP_DOUBLES, CATCH_UP_PER_SECOND, ClockAhead
from .outage import STEP
from .picture import Counts, Picture
from .playing import Failed, played
from .proof import Row
from .stage import workers
from .story import DATABASE, diary_of

if TYPE_CHECKING:
    from rich.console import Console

TARGET = "holdfast.demo.greeter:app"
DAY = timedelta(days=1)
GREETINGS = 240
QUARTER = timedelta(minutes=15)
ZONES = (
    "Pacific/Auckland",
    "Asia/Tokyo",
    "Asia/Kolkata",
    "Europe/Berlin",
    "America/New_York",
    "America/Los_Angeles",
)
CALM = 0.3  # seconds


@dataclass(frozen=True, slots=True)
class Begun:
    """A greeting that was begun, as the log of the handlers has it. Times are seconds since 1970."""

    message: str
    process: int
    at: float  # by the machine's clock
    due: float
    late: float


@dataclass
class Day:
    """What happened, for the proof: facts that no table holds."""

    folder: Path
    set_at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    greetings: list[str] = field(default_factory=list)
    killed_at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    back_at: datetime = datetime(1970, 1, 1, tzinfo=UTC)  # by the clock that is ahead

    @property
    def database(self) -> str:
        return str(self.folder / "greetings.db")


def run(console: Console, *, processes: int = 2, limit: float = 60.0, target: str = TARGET) -> int:
    """Play the day: 0 if every promise was kept, 1 if one was not."""
    day = Day(Path(tempfile.mkdtemp(prefix="holdfast-demo-")))
    console.print(f"[bold]Holdfast demo, a day of downtime[/], database {day.database}", soft_wrap=True)
    till.open_shop(day.database)

    def play() -> list[Row]:
        with Picture(console, GREETINGS + int(DAY / QUARTER) + len(ZONES)) as picture:
            Play(day, picture, processes, target, SystemClock().monotonic() + limit).all()
        evidence = gather(day)
        show_outage(console, evidence.outages)
        return prove(evidence)

    return played(console, day.folder, play)


@dataclass
class Play:
    """The acts, one after another."""

    day: Day
    picture: Picture
    processes: int
    target: str
    end: float

    def all(self) -> None:
        with self.application(0.0) as app:
            app.prepare()
            with self.deployed(0.0) as kill:
                self.schedule(app)
                self.until(lambda: self.done() > 0, "nothing was handled while workers ran")
                kill()
                self.day.killed_at = wall_clock()
                self.picture.say(
                    "kill -9: all worker processes are gone, and none is started again for a day"
                )
        with self.application(DAY.total_seconds()) as app, self.deployed(DAY.total_seconds()):
            self.day.back_at = wall_clock() + DAY
            self.picture.say("a day later: workers start, and find the missed messages")
            self.until(
                lambda: not app.operations.messages.stuck(older=0) and self.idle(), "it was not caught up"
            )
            self.picture.say(f"nothing is due any more: {self.done()} greetings were sent")
            self.until(lambda: self.is_over(app), "the outage did not end")

    def schedule(self, app: Holdfast) -> None:
        """A day full of greetings. The first is due at once."""
        self.day.set_at = now = wall_clock()
        messages = [
            app.message("greeting.due", {"who": f"guest {n}"}, at=now + n * DAY / GREETINGS)
            for n in range(GREETINGS)
        ]
        self.day.greetings = [str(each.id) for each in app.publish_many(messages)]
        app.set_schedule(
            "quarters", every(minutes=15), "greeting.due", {"who": "the house"}, misfire="all", cap=None
        )
        for n, zone in enumerate(ZONES):
            local = (now + (n + 1) * timedelta(hours=3)).astimezone(ZoneInfo(zone))
            rule = yearly(f"1990-{local:%m-%d}", f"{local:%H:%M}", zone=zone)
            app.set_schedule(f"birthday/{n}", rule, "greeting.due", {"who": zone}, misfire="all", cap=None)
        self.picture.say(
            f"{GREETINGS} greetings, {len(ZONES)} birthdays and a schedule are stored for the next 24 hours"
        )

    def is_over(self, app: Holdfast) -> bool:
        app.operations.outages.look(now=True)
        return all(each.is_over for each in app.operations.outages.list())

    @contextmanager
    def application(self, ahead: float) -> Iterator[Holdfast]:
        with closing(
            Holdfast(f"sqlite:///{self.day.database}", clock=ClockAhead(ahead), alert_calm=CALM)
        ) as app:
            yield app

    @contextmanager
    def deployed(self, ahead: float) -> Iterator[Callable[[], None]]:
        """Worker processes whose clock is so many seconds ahead; yields a function that kills them all."""
        environment = {DATABASE: self.day.database, AHEAD: str(ahead)}
        before = till.workers_seen(self.day.database)
        with workers(self.day.folder, self.target, self.processes, environment) as process:
            self.until(
                lambda: (
                    till.workers_seen(self.day.database) >= before + self.processes
                    or process.poll() is not None
                ),
                "the worker processes did not start",
            )
            if process.poll() is not None:
                raise Failed("the worker processes did not start")
            yield lambda: os.killpg(process.pid, signal.SIGKILL)

    # -- looking

    def until(self, done: Callable[[], bool], otherwise: str) -> None:
        pause = threading.Event()
        while not done():
            if SystemClock().monotonic() > self.end:
                raise Failed(otherwise)
            self.picture.update(Counts(committed=GREETINGS, done=self.done()), "")
            pause.wait(STEP)

    def done(self) -> int:
        return len(ledger(self.day.database))

    def idle(self) -> bool:
        with closing(sqlite3.connect(f"file:{self.day.database}?mode=ro", uri=True, timeout=10)) as db:
            leases: int = db.execute("select count(*) from holdfast_lease").fetchone()[0]
        return leases == 0


def ledger(database: str) -> list[tuple[str, str]]:
    """What was sent: message and name."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)) as db:
        return db.execute("select message, entry from ledger order by n").fetchall()


def show_outage(console: Console, outages: list[Outage]) -> None:
    for each in outages:
        console.print(
            f"\nOutage {each.number}: no worker ran from {each.down_since:%d %b %H:%M:%S} to "
            f"{each.back_at:%d %b %H:%M:%S} UTC. {each.handled} messages were late, by {each.late_mean / 3600:.1f} h "
            f"on average and {each.late_max / 3600:.1f} h at most; handled in {each.catch_up_seconds:.1f} s, "
            f"{each.per_second:.1f} a second.",
            highlight=False,
            soft_wrap=True,
        )


# --- The proof --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Evidence:
    """All counts."""

    day: Day
    begun: list[Begun]
    sent: list[tuple[str, str]]  # message and name
    outages: list[Outage]
    dead: int

    @property
    def late(self) -> list[Begun]:
        """The messages that were due while no worker ran, as the handlers saw them."""
        return [
            each for each in self.begun if each.due < self.day.back_at.timestamp() and each.late > DAY_SHORT
        ]


DAY_SHORT = 10.0  # seconds: messages later than this were missed; the first workers were quicker


def gather(day: Day) -> Evidence:
    """Read everything: the ledger by plain SQL, the diary of the handlers, and the outages as an operator would."""
    with closing(Holdfast(f"sqlite:///{day.database}", clock=ClockAhead(DAY.total_seconds()))) as app:
        outages = app.operations.outages.list()
    with closing(sqlite3.connect(f"file:{day.database}?mode=ro", uri=True)) as db:
        dead = db.execute("select count(*) from holdfast_dead").fetchone()[0]
    lines = [line.split() for line in Path(diary_of(day.database)).read_text().splitlines()]
    begun = [Begun(id, int(pid), float(at), float(due), float(late)) for id, pid, at, due, late in lines]
    return Evidence(day, begun, ledger(day.database), outages, dead)


def prove(evidence: Evidence) -> list[Row]:
    """Every promise of the day with its numbers. Each row can fail, and none depends on another."""
    return [
        nothing_lost(evidence),
        every_occurrence(evidence),
        sent_once(evidence),
        oldest_first(evidence),
        bounded_rate(evidence),
        one_outage(evidence),
        summed_up(evidence),
    ]


def nothing_lost(e: Evidence) -> Row:
    sent = {message for message, _ in e.sent}
    found = len(sent & set(e.day.greetings))
    numbers = f"{len(e.day.greetings)} greetings due = {found} sent, {e.dead} dead letters"
    return Row("nothing lost", numbers, found == len(e.day.greetings) == GREETINGS and e.dead == 0)


def every_occurrence(e: Evidence) -> Row:
    """By arithmetic that does not know the schedules' code: quarters of an hour since 1970, and one birthday a zone."""
    names = dict(e.sent)
    found = {round(each.due) for each in e.begun if names.get(each.message) == "the house"}
    step = int(QUARTER.total_seconds())
    first, last = int(e.day.set_at.timestamp()) // step + 1, int(e.day.back_at.timestamp()) // step
    wanted = {n * step for n in range(first, last + 1)}
    birthdays = sorted(name for _, name in e.sent if name in ZONES)
    numbers = (
        f"{len(wanted)} quarters of an hour = {len(found & wanted)} fired; {len(birthdays)} birthdays in "
    )
    numbers += f"{len(ZONES)} zones"
    return Row("every occurrence fired", numbers, wanted <= found and birthdays == sorted(ZONES))


def sent_once(e: Evidence) -> Row:
    twice = sum(count > 1 for count in Counter(message for message, _ in e.sent).values())
    return Row(
        "effects once", f"{len(e.sent)} in the ledger, {twice} of them twice", twice == 0 and bool(e.sent)
    )


def oldest_first(e: Evidence) -> Row:
    """In each process: a message that it begins is never due before one that it began earlier."""
    wrong, pairs = 0, 0
    for process in {each.process for each in e.late}:
        dues = [each.due for each in e.late if each.process == process]
        pairs += len(dues) - 1
        wrong += sum(later < earlier for earlier, later in pairwise(dues))
    processes = len({each.process for each in e.late})
    numbers = f"{pairs} pairs in {processes} processes, {wrong} in the wrong order"
    return Row("oldest first", numbers, wrong == 0 and pairs > GREETINGS)


def bounded_rate(e: Evidence) -> Row:
    """In every second after the first: no more than the catch-up allows."""
    first = min((each.at for each in e.late), default=0.0)
    seconds = Counter(int(each.at - first) for each in e.late)
    found = [seconds[second] for second in range(max(seconds, default=0) + 1)]
    bounds = [int(2 * CATCH_UP_PER_SECOND * 2 ** ((n + 1) / CATCH_UP_DOUBLES)) for n in range(len(found))]
    counts = ", ".join(f"{count} (at most {bound})" for count, bound in zip(found, bounds, strict=True))
    kept = all(count <= bound for count, bound in zip(found, bounds, strict=True)) and len(found) > 1
    return Row("at a bounded, rising rate", f"begun in each second: {counts}", kept)


def one_outage(e: Evidence) -> Row:
    """Since the last sign of a worker: a heartbeat at most before the kill."""
    if len(e.outages) != 1 or (down := e.outages[0].down_since) is None:
        return Row("one outage", f"{len(e.outages)} outages", False)
    before = (e.day.killed_at - down).total_seconds()
    numbers = f"1 outage ({e.outages[0].cause}), no worker since {before:.1f} s before the kill"
    return Row("one outage", numbers, e.outages[0].cause == "absent" and -1.0 <= before <= 10.0)


def summed_up(e: Evidence) -> Row:
    """The summary agrees with what the handlers saw."""
    late = [each.late for each in e.late]
    if not e.outages or not late:
        return Row("its summary", "nothing was late", False)
    each, mean, most = e.outages[0], sum(late) / len(late), max(late)
    numbers = f"{each.handled} late = {len(late)} seen by handlers; {each.late_mean:.0f} s = {mean:.0f} s on average"
    agree = abs(each.late_mean - mean) < 1.0 and abs(each.late_max - most) < 1.0
    return Row("its summary", numbers, each.handled == len(late) and agree)
