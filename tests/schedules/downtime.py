"""Databases with the schedules of an outage, at its end: filled once, and copied for each test."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg

from holdfast import Holdfast, daily, yearly
from holdfast.clock import MovableClock, micros
from holdfast.schedules.defining import define
from holdfast.schedules.setting import put
from holdfast.store.plans.schedules import FIELDS
from tests.databases import server
from tests.schedules.drainer import Drainers
from tests.schedules.outage import Missed, Outage

AS_SET = 250  # so many are set by the application; more of them are written as it would have set them
STORED = [name for name in FIELDS if name != "now"]
GIVEN = ("name", "incarnation", "rule", "next_key", "next_at")
KILLED = -9


class Downtime:
    """The databases of one kind, and the processes that tick there."""

    def __init__(self, place: str, folder: Path) -> None:
        self.place, self.folder = place, folder
        self.drainers = Drainers()
        self._filled: dict[Missed, tuple[str, dict[str, UUID]]] = {}

    def close(self) -> None:
        self.drainers.close()

    @contextmanager
    def after(self, outage: Outage) -> Iterator[Desk]:
        """A database at the end of this outage."""
        template, incarnations = self._template(outage.missed)
        if self.place == "sqlite":
            path = Path(shutil.copy(template, self.folder / "copy.db"))
            yield Desk(f"sqlite:///{path}", outage, incarnations, self.drainers)
            for each in self.folder.glob("copy.db*"):
                each.unlink()
        else:
            with server(self.place).database(template.rpartition("/")[2]) as dsn:
                yield Desk(dsn, outage, incarnations, self.drainers)

    def _template(self, missed: Missed) -> tuple[str, dict[str, UUID]]:
        if missed not in self._filled:
            if self.place == "sqlite":
                template = str(self.folder / f"{len(self._filled)}.db")
                url = f"sqlite:///{template}"
            else:
                url = template = server(self.place).create_database()
            app = Holdfast(url, clock=MovableClock(missed.begin))
            app.handler("due", name="due")(lambda body: None)
            app.migrate()
            app.prepare()
            fill(app, missed, range(min(missed.schedules, AS_SET)))
            app.close()
            with connected(url) as db:
                if missed.schedules > AS_SET:
                    write(db, missed, range(AS_SET, missed.schedules))
                rows = query(db, "select name, incarnation from {schedule}")
            self._filled[missed] = template, {name: UUID(str(id)) for name, id in rows}
        return self._filled[missed]


class Desk:
    """One database at the end of an outage."""

    def __init__(self, url: str, outage: Outage, incarnations: dict[str, UUID], drainers: Drainers) -> None:
        self.url, self.outage, self.incarnations, self.drainers = url, outage, incarnations, drainers
        late = "null" if outage.max_late is None else str(outage.max_late)
        with connected(url) as db:
            query(db, f"update {{schedule}} set misfire = '{outage.misfire}', max_late = {late}, cap = null")

    def order(self, **more: Any) -> dict[str, Any]:
        return {"url": self.url, "at": self.outage.missed.end.isoformat(), "at_once": 500, **more}

    def kill(self, first: int, step: int) -> int:
        """Two processes begin a tick together, and both die at a point of it, at every `step`-th; how many died."""
        small = max(1, min(500, self.outage.missed.schedules // 40))
        killed = 0
        for at in range(first, 500, step):
            codes = self.drainers.run(*[self.order(ticks=1, kill_at=at, at_once=small)] * 2)
            assert set(codes) <= {0, KILLED}
            killed += codes.count(KILLED)
            if KILLED not in codes:
                return killed
        raise AssertionError("a tick has no end")

    def drain(self, workers: int = 2) -> None:
        assert self.drainers.run(*[self.order()] * workers) == [0] * workers

    def check(self, workers: int = 2) -> None:
        wanted = self.outage.ids(self.incarnations)
        with connected(self.url) as db:
            by_age = query(db, "select id from {message} where queue = 'due' order by claimable_at, seq")
            by_turn = query(db, "select id from {message} where queue = 'due' order by seq")
            ((fired, left_out),) = query(db, "select sum(fired), sum(left_out) from {schedule}")
            ((noted,),) = query(db, "select coalesce(sum(count), 0) from {schedule_note}")
            ((waiting,),) = query(db, "select count(*) from {schedule} where next_at <= " + self._end)
        found = [UUID(str(id)) for (id,) in by_age]
        assert len(found) == len(set(found)), "doubled"
        assert set(found) == set(wanted)
        moments = {id: moment for id, (moment, _) in zip(wanted, self.outage.fired, strict=True)}
        assert [moments[id] for id in found] == [moment for moment, _ in self.outage.fired]
        # Two on PostgreSQL fire different ones at the same time.
        if workers == 1 or self.url.startswith("sqlite"):
            assert [moments[UUID(str(id))] for (id,) in by_turn] == [
                moment for moment, _ in self.outage.fired
            ]
        assert (int(fired), int(left_out), int(noted)) == (
            len(wanted),
            self.outage.left_out,
            self.outage.left_out,
        )
        assert waiting == 0

    @property
    def _end(self) -> str:
        end = self.outage.missed.end
        return str(micros(end)) if self.url.startswith("sqlite") else f"'{end.isoformat()}'"


def rule_of(missed: Missed, n: int) -> Any:
    if missed.is_yearly:
        return yearly(missed.last(n).date(), missed.time_of(n))
    return daily(missed.time_of(n))


def fill(app: Holdfast, missed: Missed, which: Iterable[int]) -> None:
    names = missed.names()

    def many() -> Any:
        for n in which:
            yield from put(define(app.settings, names[n], rule_of(missed, n), "due", {"n": 0}), None)

    app.store.run(many())


def write(db: Any, missed: Missed, which: Iterable[int]) -> None:
    """Schedules like the first, as they would have been set: it is compared with one that was."""
    names = missed.names()

    def row(n: int) -> tuple[Any, ...]:
        first = missed.moments(n)[0]
        at = micros(first) if isinstance(db, sqlite3.Connection) else first
        return names[n], str(uuid4()), rule_of(missed, n).text, first.date().isoformat(), at

    for n in (0, 1, 200):
        columns = "rule, next_key, next_at"
        assert query(db, f"select {columns} from {{schedule}} where name = '{names[n]}'") == [row(n)[2:]]
    rows = [row(n) for n in which]
    if isinstance(db, sqlite3.Connection):
        query(db, "create temp table given (name, incarnation, rule, next_key, next_at)")
        db.executemany("insert into given values (?, ?, ?, ?, ?)", rows)
    else:
        query(
            db,
            "create temp table given (name text, incarnation uuid, rule text, next_key text, next_at timestamptz)",
        )
        with db.cursor().copy("copy given from stdin") as copy:
            for each in rows:
                copy.write_row(each)
    chosen = ", ".join(f"g.{name}" if name in GIVEN else f"s.{name}" for name in STORED)
    query(
        db,
        f"insert into {{schedule}} ({', '.join(STORED)}) select {chosen} from {{schedule}} s, given g "
        f"where s.name = '{names[0]}'",
    )


@contextmanager
def connected(url: str) -> Iterator[Any]:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as db, db:
            yield db
    else:
        with psycopg.connect(url) as db:
            yield db


def query(db: Any, text: str) -> list[Any]:
    dot = "_" if isinstance(db, sqlite3.Connection) else "."
    for table in ("schedule", "schedule_note", "message"):
        text = text.replace(f"{{{table}}}", f"holdfast{dot}{table}")
    cursor = db.execute(text)
    return cursor.fetchall() if cursor.description else []


MINUTES, HOURS, YEAR = timedelta(minutes=5), timedelta(hours=24), timedelta(days=400)
POLICIES = ("all", "latest", "skip")
LATE = (None, 120.0, 86_400.0)
