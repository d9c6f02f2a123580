"""What schedules cost when there are many: `python -m bench.schedules [--rows 1000000] [--due 20000] [PLACE...]`.

Measured on a durable database, beside the same one with 10,000 rows: an exchange with nothing due, the look that a
worker takes once a second, a tick of 500, `status`, how many are fired in a second, how many bytes each takes, and how
late an idle worker fires. It prints a table and changes no file. Places are sqlite and postgres.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg

from holdfast import Context, Holdfast, every, yearly
from holdfast.model.work import Report, Want
from holdfast.schedules.ticker import Ticker
from holdfast.store.plans import engine, schedules
from holdfast.store.plans.schedules import FIELDS

from .servers import Servers

SMALL = 10_000
MICROS = 1_000_000


class Place:
    """A database with so many schedules that are due next year."""

    def __init__(self, url: str, rows: int) -> None:
        self.url, self.app = url, Holdfast(url)
        self.app.handler("birthday.due", name="birthday")(lambda body: None)
        self.app.migrate()
        self.is_sqlite = url.startswith("sqlite")
        self.worker = self.app.store.run(engine.register_worker("bench", ["birthday"]))
        before = self.size()
        soon = datetime.now(UTC) + timedelta(days=200)
        rule = yearly(soon.date(), "09:00", zone="Europe/Berlin")
        self.app.set_schedule("birthday/0000000", rule, "birthday.due", {"id": 0})
        self.copy(rows)
        self.bytes = (self.size() - before) / rows

    def sql(self, text: str) -> Any:
        if self.is_sqlite:
            with sqlite3.connect(self.app.store.where) as db:
                return db.execute(text.replace("{}", "holdfast_schedule")).fetchall()
        with psycopg.connect(self.url, autocommit=True) as db:
            cursor = db.execute(text.replace("{}", "holdfast.schedule").encode())
            return cursor.fetchall() if cursor.description else []

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
        numbers = f"with recursive c (n) as (select 1 union all select n + 1 from c where n < {rows - 1})"
        series = f"({numbers} select n from c)"
        if not self.is_sqlite:
            own = {
                "name": "'birthday/' || lpad(n::text, 7, '0')",
                "incarnation": "gen_random_uuid()",
                "next_at": f"next_at + n * interval '{2_600_000 / rows} seconds'",
            }
            series = f"generate_series(1, {rows - 1}) n"
        columns = ", ".join(own.get(name, name) for name in names)
        self.sql(f"insert into {{}} ({', '.join(names)}) select {columns} from {{}}, {series}")
        self.sql("analyze {}" if self.is_sqlite else "vacuum analyze {}")

    def size(self) -> int:
        if self.is_sqlite:
            ((pages, page),) = self.sql(
                "select p.page_count, s.page_size from pragma_page_count p, pragma_page_size s"
            )
            return int(pages * page)
        ((size,),) = self.sql("select pg_total_relation_size('{}')")
        return int(size)

    def ticker(self) -> Ticker:
        return Ticker(self.app.store, self.app.clock, None, list)

    def make_due(self, count: int) -> None:
        """The first ones are due since a moment ago, one after the other."""
        now = datetime.now(UTC) - timedelta(seconds=60)
        key = f"'{now:%Y-%m-%d}'"
        rule = f"'yearly {now:%m-%d} {now - timedelta(hours=1):%H:%M:%S} in UTC'"
        at = str(int(now.timestamp() * MICROS)) if self.is_sqlite else f"'{now.isoformat()}'"
        self.sql(
            f"update {{}} set next_at = {at}, next_key = {key}, last_key = null, rule = {rule}, zones = null "
            f"where name < 'birthday/{count:07}'"
        )


def middle(do: Callable[[], object], times: int) -> float:
    """The middle of so many, in milliseconds."""
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        do()
        taken.append((time.perf_counter() - begun) * 1000)
    return statistics.median(taken)


def measure(place: Place, due: int) -> dict[str, float]:
    store, ticker = place.app.store, place.ticker()
    report = Report(place.worker, want=[Want("birthday", 10)], total=10, peek=True)
    ticker()
    found = {
        "an exchange with nothing due (ms)": middle(lambda: store.run(engine.exchange(report)), 300),
        "a look with nothing due (ms)": middle(lambda: store.read(schedules.first([], True)), 300),
        "status (ms)": middle(place.app.operations.status, 11),
        "bytes each": place.bytes,
    }
    place.make_due(due)
    ticks, begun, fired = [], time.perf_counter(), 0
    while True:
        start = time.perf_counter()
        done = ticker()
        if not done.did:
            break
        ticks.append((time.perf_counter() - start) * 1000)
        fired += done.did
    found["a tick of 500 (ms)"] = statistics.median(ticks)
    found["fired a second"] = fired / (time.perf_counter() - begun)
    return found


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
    parser.add_argument("--due", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    asked = parser.parse_args()
    servers = Servers() if "postgres" in asked.places else None
    try:
        for name in asked.places:
            with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
                columns = []
                for rows in (SMALL, asked.rows):
                    file = f"sqlite:///{Path(folder) / str(rows)}.db"
                    url = file if name == "sqlite" or servers is None else servers.postgres.create_database()
                    place = Place(url, rows)
                    columns.append(measure(place, min(asked.due, SMALL - 1 if rows == SMALL else rows)))
                    if rows != SMALL:
                        columns[-1]["p99 late, idle (ms)"] = asyncio.run(
                            lateness(Holdfast(url), asked.seconds)
                        )
                    place.app.close()
                print(f"\n{name:<36} {SMALL:>12,} rows {asked.rows:>12,} rows")
                for line in columns[1]:
                    small = columns[0].get(line, float("nan"))
                    print(f"{line:<36} {small:>17,.2f} {columns[1][line]:>17,.2f}")
    finally:
        if servers is not None:
            servers.close()


if __name__ == "__main__":
    main()
