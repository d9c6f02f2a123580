"""What scheduled messages cost when there are many: `python -m bench.scheduled [--rows 1000000] [PLACE...]`.

Measured on a durable database, beside the same one with 10,000 rows: an exchange with nothing due, the look that a
worker takes once a second, bringing over 500, `status`, how many are brought over in a second, how many bytes each
takes; then, with all that were due brought over while somebody holds a snapshot, the exchange and the look again; and
how late an idle worker starts what falls due. `none` is a database without any. It prints a table and changes no file.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg

from holdfast import Context, Holdfast
from holdfast.model.work import Report, Want
from holdfast.schedules.bringing import Bringer
from holdfast.store.plans import engine, scheduled

from .schedules import cpu_ratio, in_turns
from .servers import Servers
from .tables import Table

SMALL = 10_000
BODY = {"customer": 17, "text": "x" * 60}
COLUMNS = "created_at, deadline, status, epoch, queue, type, stream, subject, dedupe, target, headers, body"


class Place(Table):
    """A database with so many messages that are due next year."""

    def __init__(self, url: str, rows: int) -> None:
        super().__init__(url, Holdfast(url), "scheduled")
        self.app.handler("reminder.due", name="reminder")(lambda body: None)
        self.app.migrate()
        self.app.prepare()
        worker = self.app.store.run(engine.register_worker("bench", ["nobody"]))
        self.report = Report(worker, want=[Want("nobody", 10)], total=10, peek=True)
        self.bytes = 0.0
        if rows:
            before = self.size()
            self.app.publish("reminder.due", BODY, delay=timedelta(days=200))
            self.copy(rows)
            self.bytes = (self.size() - before) / rows

    def copy(self, rows: int) -> None:
        """The others are copies of the first, with ids and numbers of their own, spread over a month."""
        if self.is_sqlite:
            id = "printf('%08x-0000-7000-8000-', n) || lower(hex(randomblob(6)))"  # ordered, as those of the engine
            at = f"claimable_at + n * {2_600_000_000_000 // rows}"
        else:
            id = (
                "(lpad(to_hex(n), 8, '0') || '-0000-7000-8000-' || substr(gen_random_uuid()::text, 25))::uuid"
            )
            at = f"claimable_at + n * interval '{2_600_000 / rows} seconds'"
        self.sql(
            f"insert into {{}} (seq, id, claimable_at, due_at, {COLUMNS})"
            f" select seq + n, {id}, {at}, {at}, {COLUMNS} from {{}}, {self.numbers(rows)}"
        )
        if self.is_sqlite:
            last = "(select max(seq) from {})"
            self.sql(f"update sqlite_sequence set seq = {last} where name = 'holdfast_message'")
            self.sql("analyze {}")
        else:
            self.sql("select setval('holdfast.message_seq_seq', (select max(seq) from {}))")
            self.sql("vacuum analyze {}")

    def exchange(self) -> object:
        """One with nothing to claim."""
        return self.app.store.run(engine.exchange(self.report))

    def make_due(self, count: int) -> None:
        """The first ones fell due one after the other in the last hour."""
        first = "(select min(seq) from {})"
        if self.is_sqlite:
            begun = int((time.time() - 3600) * 1_000_000)
            at = f"{begun} + (seq - {first}) * {3_500_000_000 // count}"
        else:
            at = f"now() - interval '1 hour' + (seq - {first}) * interval '{3500 / count} seconds'"
        self.sql(f"update {{}} set claimable_at = {at}, due_at = {at} where seq < {first} + {count}")
        if not self.is_sqlite:
            self.sql("vacuum analyze {}")

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Somebody looks at the database for long: what is deleted cannot be cleaned up."""
        if self.is_sqlite:
            yield
            return
        with psycopg.connect(self.url) as db:
            db.execute("set transaction isolation level repeatable read")
            db.execute("select 1 from holdfast.scheduled limit 1")
            yield


def middle(do: Callable[[], object], times: int) -> float:
    """The middle of so many, in milliseconds."""
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        do()
        taken.append((time.perf_counter() - begun) * 1000)
    return statistics.median(taken)


def measure(place: Place, due: int, none: Place) -> dict[str, float]:
    """`none`: a database without any. Exchanges are made in turns with it, so that a busy machine delays both alike."""
    store = place.app.store
    step = Bringer(store, place.app.clock)
    step()
    without, here = in_turns(1000, none.exchange, place.exchange)
    found = {
        "an exchange with nothing due (ms)": here,
        "the same, to one of none, in turns": here / without,
        "the same in CPU time of this process": cpu_ratio(none.exchange, place.exchange),
        "a look with nothing due (ms)": middle(lambda: store.read(scheduled.first(None)), 300),
        "status (ms)": middle(place.app.operations.status, 11),
        "bytes each": place.bytes,
    }
    if not due:
        return found
    place.make_due(due)
    with place.snapshot():
        taken, begun, brought, cpu = [], time.perf_counter(), 0, time.process_time()
        while True:
            start = time.perf_counter()
            done = step()
            if not done.did:
                break
            taken.append((time.perf_counter() - start) * 1000)
            brought += done.did
        found["brought over a second"] = brought / (time.perf_counter() - begun)
        found["CPU of the worker for each (us)"] = (time.process_time() - cpu) / brought * 1_000_000
        found["bringing over 500 (ms)"] = statistics.median(taken)
        without, found["the exchange then (ms)"] = in_turns(1000, none.exchange, place.exchange)
        found["the same, to one of none, in turns (then)"] = found["the exchange then (ms)"] / without
        found["the same in CPU time of this process (then)"] = cpu_ratio(none.exchange, place.exchange)
        found["a look then (ms)"] = middle(step, 300)
        found["a look from the beginning then (ms)"] = middle(lambda: store.read(scheduled.first(None)), 11)
    return found


async def lateness(app: Holdfast, count: int) -> float:
    """How late an idle worker starts what falls due ten times a second: the 99th of a hundred, in milliseconds."""
    late: list[float] = []

    @app.handler("beat", name="beat")
    async def beat(body: object, ctx: Context) -> None:
        assert ctx.due_at is not None
        late.append((datetime.now(UTC) - ctx.due_at).total_seconds() * 1000)

    async with app.running():
        await asyncio.sleep(1)
        begun = datetime.now(UTC) + timedelta(seconds=3)
        for n in range(count):
            at = begun + timedelta(seconds=n / 10)
            await asyncio.to_thread(app.publish, "beat", n, at=at, stream=f"s{n}")
        await asyncio.sleep(count / 10 + 5)
    assert len(late) == count
    return sorted(late)[int(len(late) * 0.99) - 1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("places", nargs="*", default=["sqlite", "postgres"])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--due", type=int, default=100_000)
    parser.add_argument("--late", type=int, default=300)
    asked = parser.parse_args()
    servers = Servers() if "postgres" in asked.places else None
    try:
        for name in asked.places:
            with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
                columns, none = [], None
                for rows in (0, SMALL, asked.rows):
                    file = f"sqlite:///{Path(folder) / str(rows)}.db"
                    url = file if name == "sqlite" or servers is None else servers.postgres.create_database()
                    place = Place(url, rows)
                    none = place if none is None else none
                    columns.append(measure(place, min(asked.due, rows // 2), none))
                    if rows == asked.rows:
                        columns[-1]["p99 late, idle (ms)"] = asyncio.run(lateness(Holdfast(url), asked.late))
                    if place is not none:
                        place.app.close()
                if none is not None:
                    none.app.close()
                print(f"\n{name:<44} {'none':>14} {SMALL:>14,} {asked.rows:>14,}")
                for line in columns[-1]:
                    values = (each.get(line, float("nan")) for each in columns)
                    print(f"{line:<44} " + " ".join(f"{value:>14,.3f}" for value in values))
    finally:
        if servers is not None:
            servers.close()


if __name__ == "__main__":
    main()
