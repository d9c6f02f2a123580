"""What schedules cost when there are many: `python -m bench.schedules [--rows 1000000] [--due 100000] [PLACE...]`.

Measured on a durable database beside one without schedules and one with 10,000, in turns: an exchange with nothing
due, the look that a worker takes once a second, a tick of 500, `status`, how many are fired in a second, how many bytes
each takes, how late an idle worker fires; the exchange, the look and the tick also under a snapshot that somebody holds
while many fire. It prints each with its bar, reached or missed, and changes no file. Places are sqlite and postgres.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg

from holdfast import Context, Holdfast, every, yearly
from holdfast.model.work import Report, Want
from holdfast.schedules.ticker import Ticker
from holdfast.store.plans import engine
from holdfast.store.plans.schedules import FIELDS

from .servers import Servers
from .tables import Table

SMALL = 10_000
MICROS = 1_000_000


class Place(Table):
    """A database with so many schedules that are due in half a year."""

    def __init__(self, url: str, rows: int) -> None:
        super().__init__(url, Holdfast(url), "schedule")
        self.app.handler("birthday.due", name="birthday")(lambda body: None)
        self.app.handler("never", name="never")(lambda body: None)
        self.app.migrate()
        self.rows = rows
        worker = self.app.store.run(engine.register_worker("bench", ["never"]))
        self.report = Report(worker, want=[Want("never", 10)], total=10, peek=True)
        if rows == 0:
            return
        before = self.size()
        soon = datetime.now(UTC) + timedelta(days=200)
        rule = yearly(soon.date(), "09:00", zone="Europe/Berlin")
        self.app.set_schedule("birthday/0000000", rule, "birthday.due", {"id": 0})
        self.copy(rows)
        self.bytes = (self.size() - before) / rows

    def copy(self, rows: int) -> None:
        """The others are copies of the first, with names and ids of their own, spread over a month."""
        names = [name for name in FIELDS if name not in ("last", "now")]
        own = {
            "name": "'birthday/' || substr('0000000' || n, -7)",
            "next_at": f"next_at + n * {2_600_000 * MICROS // rows}",
        }
        own["incarnation"] = (
            "lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-' || hex(randomblob(2)) || '-' || "
            "hex(randomblob(2)) || '-' || hex(randomblob(6)))"
        )
        if not self.is_sqlite:
            own = {
                "name": "'birthday/' || lpad(n::text, 7, '0')",
                "incarnation": "gen_random_uuid()",
                "next_at": f"next_at + n * interval '{2_600_000 / rows} seconds'",
            }
        columns = ", ".join(own.get(name, name) for name in names)
        self.sql(f"insert into {{}} ({', '.join(names)}) select {columns} from {{}}, {self.numbers(rows)}")
        self.sql("analyze {}" if self.is_sqlite else "vacuum analyze {}")

    def ticker(self) -> Ticker:
        return Ticker(self.app.store, self.app.clock, None, list)

    def make_due(self, first: int, count: int) -> None:
        """So many, from the n-th on, are due since a minute ago."""
        now = datetime.now(UTC) - timedelta(seconds=60)
        key = f"'{now:%Y-%m-%d}'"
        rule = f"'yearly {now:%m-%d} {now - timedelta(hours=1):%H:%M:%S} in UTC'"
        at = str(int(now.timestamp() * MICROS)) if self.is_sqlite else f"'{now.isoformat()}'"
        self.sql(
            f"update {{}} set next_at = {at}, next_key = {key}, last_key = null, rule = {rule}, zones = null "
            f"where name >= 'birthday/{first:07}' and name < 'birthday/{first + count:07}'"
        )
        if not self.is_sqlite:
            self.sql("vacuum {}")  # of what this update left; nobody makes so many due at once

    def differ(self, first: int, count: int) -> None:
        """So many, from the n-th on, were due yesterday, each at a time of its own: no two rules are the same."""
        day = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
        number = f"(cast(substr(name, 10) as integer) - {first})"
        parts = f"{number} / 3600 % 24, {number} / 60 % 60, {number} % 60"
        text = f"printf('%02d:%02d:%02d', {parts})" if self.is_sqlite else f"make_time({parts})"
        at = str(int(day.timestamp() * MICROS)) if self.is_sqlite else f"'{day.isoformat()}'"
        self.sql(
            f"update {{}} set next_at = {at}, next_key = '{day:%Y-%m-%d}', last_key = null, zones = null, "
            f"rule = 'yearly {day:%m-%d} ' || {text} || ' in UTC' "
            f"where name >= 'birthday/{first:07}' and name < 'birthday/{first + count:07}'"
        )
        if not self.is_sqlite:
            self.sql("vacuum {}")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Somebody holds a snapshot meanwhile."""
        table = "holdfast_schedule" if self.is_sqlite else "holdfast.schedule"
        look = f"select count(*) from (select 1 from {table} limit 1) x"
        if self.is_sqlite:
            with closing(sqlite3.connect(self.app.store.where, isolation_level=None)) as db:
                db.execute("begin")
                db.execute(look).fetchall()
                yield
        else:
            with psycopg.connect(self.url) as db:
                db.execute("set transaction isolation level repeatable read")
                db.execute(look.encode()).fetchall()
                yield

    def exchange(self) -> None:
        """One with nothing to claim."""
        self.app.store.run(engine.exchange(self.report))


def taken(do: Callable[[], object]) -> float:
    """How long it takes, in milliseconds."""
    begun = time.perf_counter()
    do()
    return (time.perf_counter() - begun) * 1000


@contextmanager
def on_one_core() -> Iterator[None]:
    """All threads of this process meanwhile.

    A call to the thread that writes to SQLite costs up to three times as much CPU on another core than on the same one,
    and the system changes its mind about where which of them runs.
    """
    cores = os.sched_getaffinity(0)
    threads = [int(each) for each in os.listdir("/proc/self/task")]
    for thread in threads:
        os.sched_setaffinity(thread, {min(cores)})
    try:
        yield
    finally:
        for thread in threads:
            with suppress(ProcessLookupError):  # it has ended
                os.sched_setaffinity(thread, cores)


def in_turns(times: int, *each: Callable[[], object]) -> list[float]:
    """The middle of each, in milliseconds. They are done in turns, so that a busy machine delays all of them alike."""
    found: list[list[float]] = [[] for _ in each]
    with on_one_core():
        for _ in range(times):
            for do, durations in zip(each, found, strict=True):
                durations.append(taken(do))
    return [statistics.median(durations) for durations in found]


def cpu_ratio(without: Callable[[], object], here: Callable[[], object]) -> float:
    """CPU time of this process for `here` to that for `without`: the middle of 40 pairs of 50 each, on one core."""

    def spent(do: Callable[[], object]) -> float:
        begun = time.process_time()
        for _ in range(50):
            do()
        return time.process_time() - begun

    pairs = []
    with on_one_core():
        for n in range(40):
            if n % 2:
                first, second = spent(without), spent(here)
            else:
                second, first = spent(here), spent(without)
            pairs.append(second / first)
    return statistics.median(pairs)


def drained(ticker: Ticker) -> tuple[int, float, list[float]]:
    """How many were fired, in how many seconds, and how many milliseconds each tick took."""
    fired, ticks, begun = 0, list[float](), time.perf_counter()
    while True:
        start = time.perf_counter()
        if not (did := ticker().did):
            return fired, time.perf_counter() - begun, ticks
        ticks.append((time.perf_counter() - start) * 1000)
        fired += did


@dataclass
class Line:
    """Something that was measured. `most` or `least` is its bar; without one it is only told."""

    what: str
    value: float
    unit: str = ""
    most: float | None = None
    least: float | None = None

    def __str__(self) -> str:
        bar = ""
        if self.most is not None:
            bar = f"at most  {self.most:>8,g}  {'reached' if self.value <= self.most else 'MISSED'}"
        if self.least is not None:
            bar = f"at least {self.least:>8,g}  {'reached' if self.value >= self.least else 'MISSED'}"
        return f"{self.what:<62} {self.value:>12,.2f} {self.unit:<6} {bar}".rstrip()


def measure(none: Place, small: Place, large: Place, due: int, cpu: Callable[[], float]) -> Iterator[Line]:
    rows = f"{large.rows:,}"
    ticker = large.ticker()
    ticker()  # the first of a worker also looks for times that were computed with older zone data
    without, here = in_turns(400, none.exchange, large.exchange)
    yield Line("an exchange with nothing due, without schedules", without, "ms")
    yield Line(f"the same with {rows}, as a ratio", here / without, "", most=1.1)
    yield Line("the same in CPU time of this process, as a ratio", cpu_ratio(none.exchange, large.exchange))
    yield Line("a look with nothing due", *in_turns(200, ticker), "ms")
    yield Line("status", *in_turns(11, large.app.operations.status), "ms", most=50)
    yield Line("bytes each", large.bytes, "", most=500)

    for place in (small, large):
        place.make_due(0, SMALL)
    # Workers that have just started: what was made due lies in the past of one that runs.
    few, many = in_turns(SMALL // 500 - 1, small.ticker(), large.ticker())
    yield Line(f"a tick of 500 with {SMALL:,}", few, "ms")
    yield Line(f"the same with {rows}, as a ratio", many / few, "", most=1.25)
    drained(large.ticker())

    large.make_due(SMALL, min(due, 20_000))
    before = cpu()
    fired, seconds, _ = drained(large.ticker())
    yield Line("fired in a second", fired / seconds, "", least=15_000 if large.is_sqlite else 5_000)
    spent = cpu() - before
    yield Line("the same in a second of CPU time, with the server's", fired / spent)
    large.differ(SMALL, min(due, 20_000))
    before = cpu()
    fired, seconds, _ = drained(large.ticker())
    yield Line("fired in a second, each with a rule of its own", fired / seconds)
    yield Line("the same in a second of CPU time, with the server's", fired / (cpu() - before))

    with large.held():
        large.make_due(large.rows // 2, due)
        fired, seconds, ticks = drained(large.ticker())
        third = len(ticks) // 3
        last, first = statistics.median(ticks[-third:]), statistics.median(ticks[:third])
        without, here = in_turns(400, none.exchange, large.exchange)
        yield Line(
            f"under a held snapshot, {fired:,} fired: an exchange, as a ratio", here / without, "", most=1.1
        )
        yield Line(
            "the same in CPU time of this process, as a ratio", cpu_ratio(none.exchange, large.exchange)
        )
        yield Line("a look then", *in_turns(200, ticker), "ms")
        yield Line("the last ticks, to the first of them, as a ratio", last / first)


async def lateness(app: Holdfast, seconds: float) -> float:
    """How late an idle worker starts what falls due once a second: the 99th of a hundred, in milliseconds."""
    late: list[float] = []

    @app.handler("beat", name="beat")
    async def beat(body: object, ctx: Context) -> None:
        assert ctx.occurrence is not None
        late.append((datetime.now(UTC) - ctx.occurrence.at).total_seconds() * 1000)

    async with app.running():
        await asyncio.to_thread(app.set_schedule, "beat", every(seconds=1), "beat", None)
        await asyncio.sleep(seconds)
    late = late[3:]  # the first ones are those of a worker that has just started
    return sorted(late)[int(len(late) * 0.99) - 1] if late else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("places", nargs="*", default=["sqlite", "postgres"])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--due", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    asked = parser.parse_args()
    servers = Servers() if "postgres" in asked.places else None

    def cpu() -> float:
        """CPU seconds of this process and of the server so far."""
        return time.process_time() + (servers.cpu("postgres") if servers else 0.0)

    try:
        for name in asked.places:
            with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
                places = []
                for rows in (0, SMALL, asked.rows):
                    file = f"sqlite:///{Path(folder) / str(rows)}.db"
                    url = file if name == "sqlite" or servers is None else servers.postgres.create_database()
                    places.append(Place(url, rows))
                print(f"\n{name}, {asked.rows:,} schedules, load {os.getloadavg()[0]:.1f}", flush=True)
                for line in measure(*places, asked.due, cpu):
                    print(line, flush=True)
                for place in places:
                    place.app.close()
                late = asyncio.run(lateness(Holdfast(places[-1].url), asked.seconds))
                print(Line("an idle worker starts one late by, p99", late, "ms", most=50), flush=True)
    finally:
        if servers is not None:
            servers.close()


if __name__ == "__main__":
    main()
