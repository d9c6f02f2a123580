"""A row that cannot be: whoever wrote it, it stops no worker, no queue, no claim and no operator."""

from __future__ import annotations

import asyncio
import io
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.errors import HoldfastError
from holdfast.model.message import Reason
from holdfast.store.plans import engine

LARGEST = 2**31 - 1
ID = "e0000000-0000-4000-8000-00000000000e"

BOTH: list[dict[str, Any]] = [
    {"epoch": LARGEST},
    {"epoch": LARGEST - 1},
    {"epoch": -5},
    {"attempts": LARGEST},
    {"attempts": -7},
    {"failures": LARGEST},
    {"failures": -3},
    {"refunds": LARGEST},
    {"vanished": LARGEST},
    {"vanished": LARGEST, "attempts": LARGEST, "epoch": LARGEST, "failures": LARGEST, "refunds": LARGEST},
    {"redrives": LARGEST},
    {"status": -1},
    {"status": LARGEST},
    {"reason": 32_767},
    {"reason": -1},
    {"body": "not json"},
    {"headers": "not json"},
    {"headers": '{"traceparent":{}}'},
    {"errors": '"x"'},
    {"errors": '{"a":1}'},
    {"errors": "[1,null]"},
    {"errors": '[{"at":"then","reason":-1,"text":5}]'},
    {"subject": "\x1b]0;x\x07"},
    {"type": ""},
    {"stream": ""},
    {"stream": "s", "position": 2**63 - 1},
    {"target": "x", "dedupe": "\x01"},
]
POSTGRES: list[dict[str, Any]] = [
    *(
        {name: value}
        for name in ("created_at", "due_at", "deadline")
        for value in ("infinity", "-infinity", "0044-03-15 BC")
    ),
    {"claimable_at": "-infinity"},
]
SQLITE: list[dict[str, Any]] = [
    {"epoch": 2**63 - 1},
    {"epoch": "x"},
    {"epoch": 1.5},
    {"attempts": "x"},
    {"attempts": 1.5},
    {"attempts": b"\xff"},
    {"attempts": 2**63 - 1},
    {"failures": "x"},
    {"refunds": "x"},
    {"vanished": 2**63 - 1},
    {"redrives": "x"},
    {"status": "x"},
    {"reason": "x"},
    {"id": "not-a-uuid"},
    {"id": b"\xff"},
    {"type": b"\xff"},
    {"stream": b"\xff"},
    {"subject": b"\xff\xfe"},
    {"headers": b"\xff"},
    {"errors": "not json"},
    {"errors": b"\xff"},
    {"body": b'{"a":1}'},
    {"created_at": "then"},
    {"created_at": 2**62},
    {"due_at": 1.5},
    {"deadline": "then"},
    {"deadline": -(2**62)},
    {"claimable_at": -(2**63)},
    {"body": "cast(x'22ff22' as text)"},  # written into the statement: no text, and SQLite keeps it as one
    {"subject": "cast(x'ff' as text)"},
    {"type": "cast(x'ff' as text)"},
]


def cases(place: str) -> list[dict[str, Any]]:
    return BOTH + (SQLITE if place == "sqlite" else POSTGRES)


class World:
    """An application, and a way past its triggers."""

    def __init__(self, url: str) -> None:
        self.url, self.ran = url, list[Any]()
        self.app = Holdfast(url)
        self.sqlite = url.startswith("sqlite")

        @self.app.handler("order.placed", name="place", retry="immediate")
        async def place(body: dict[str, Any]) -> None:
            self.ran.append(body)
            if body.get("fails"):
                raise RuntimeError("as told")

        @self.app.handler("mail.wanted", name="mail")
        async def mail(body: dict[str, Any]) -> None:
            self.ran.append(body)

        self.app.prepare()

    def put(self, **columns: Any) -> None:
        row = {
            "id": ID,
            "type": "order.placed",
            "body": '{"evil":true,"fails":true}',
            "queue": "place",
            **columns,
        }
        raw = {name: str(value) for name, value in row.items() if str(value).startswith("cast(")}
        given = {name: value for name, value in row.items() if name not in raw}
        mark, table = ("?", "holdfast_message") if self.sqlite else ("%s", "holdfast.message")
        values = [*(mark for _ in given), *raw.values(), "null"]
        text = f"insert into {table} ({', '.join([*given, *raw, 'plain'])}) values ({', '.join(values)})"
        self.execute(text, *given.values())
        if "position" in columns:
            stream = table.replace("message", "stream")
            self.execute(f"insert into {stream} (queue, name, open) values ('place', 's', 1)")

    def execute(self, text: str, *values: Any) -> None:
        if self.sqlite:
            with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as db, db:
                db.execute(text, values)
        else:
            with psycopg.connect(self.url) as db:
                db.execute(text.encode(), values)

    def drain(self) -> None:
        """A worker that takes suspects ends when it finds no more of them, whatever else there is: some in a row."""

        async def run() -> None:
            async with asyncio.timeout(20):
                await self.app.worker(until_idle=True).run()
            await self.app.store.aclose()

        for _ in range(4):
            asyncio.run(run())
            if not self.app.operations.messages.find():
                break

    def looks(self) -> dict[str, Callable[[], object]]:
        """Everything an operator may ask, and some orders."""
        operations = self.app.operations
        return {
            "find": operations.messages.find,
            "show": lambda: operations.messages.show(ID),
            "why": lambda: operations.why(ID),
            "status": operations.status,
            "doctor": operations.doctor,
            "metrics": self.app.metrics_text,
            "unrouted": operations.unrouted,
            "stuck": operations.stuck,
            "poison": operations.poison_candidates,
            "distribution": operations.retry_distribution,
            "reasons": operations.failure_reasons,
            "backlog": operations.retry_backlog,
            "streams": operations.streams.list,
            "blocked": operations.streams.blocked,
            "queues": operations.queues.list,
            "dead": operations.dead.list,
            "groups": operations.dead.groups,
            "deaths": operations.dead.deaths,
            "letter": lambda: operations.dead.show(ID),
            "export": lambda: operations.files.export(None, io.BytesIO()),
            "housekeeping": operations.housekeeping,
        }

    def ask_all(self) -> None:
        for name, look in self.looks().items():
            try:
                with suppress(HoldfastError):  # there is no such message: it has another id, or has ended
                    look()
            except Exception as error:
                raise AssertionError(f"{name}: {error!r}") from error


@pytest.fixture
def world(url: str) -> Iterator[World]:
    made = World(url)
    yield made
    made.app.close()


@pytest.mark.covers("X62")
def test_one_impossible_row_stops_nobody(world: World, place: str) -> None:
    """One after another in one database: each is handled or set aside, and everybody else goes on."""
    for n, columns in enumerate(cases(place)):
        try:
            world.put(**columns)
            world.app.publish("order.placed", {"n": n})
            world.app.publish("order.placed", {"n": n}, stream="s")
            world.app.publish("mail.wanted", {"n": n})
            world.ask_all()
            world.drain()
            assert world.ran.count({"n": n}) == 3
            world.ask_all()
            left = world.app.operations.messages.find()
            assert left == [], left
        except Exception as error:
            raise AssertionError(f"{columns}: {error}") from error
        for table in ("message", "lease", "stream", "dead", "death", "history"):
            world.execute(f"delete from holdfast{'_' if world.sqlite else '.'}{table}")
        world.ran.clear()


@pytest.mark.covers("X62")
@pytest.mark.parametrize("column", ["epoch", "attempts"])
def test_what_cannot_be_counted_up_is_a_dead_letter_that_says_so(world: World, column: str) -> None:
    world.put(**{column: LARGEST})
    world.drain()
    (letter,) = world.app.operations.dead.list()
    assert (letter.id, world.ran) == (UUID(ID), [])
    assert f"{column} is 21474836" in (letter.error or "")
    assert letter.reason is Reason.SERIALIZATION_ERROR


@pytest.mark.covers("X62")
def test_all_of_them_at_once_stop_nobody(world: World, place: str) -> None:
    ids = iter(range(1, 1000))
    for columns in cases(place):
        world.put(**{"id": str(UUID(int=next(ids))), **columns})
    for n in range(20):
        world.app.publish("order.placed", {"n": n}, stream=f"s{n % 3}" if n % 2 else None)
    world.drain()
    world.ask_all()
    assert [each for each in world.ran if "n" in each].__len__() == 20


@pytest.mark.covers("X62")
def test_a_timer_of_that_kind_stops_no_other_when_it_falls_due(world: World, place: str) -> None:
    ids = iter(range(1, 1000))
    due = 1 if world.sqlite else "2020-01-01"
    for columns in cases(place):
        row = {"id": str(UUID(int=next(ids))), "stream": "s", "due_at": due, "claimable_at": due, **columns}
        row.pop("position", None)
        world.put(**{**row, "queue": "holdfast/timer"})
    world.put(id=str(UUID(int=999)), queue="holdfast/timer", stream="t", due_at=due, body='{"n":1}')
    world.app.publish("mail.wanted", {"n": 1})
    world.drain()
    world.ask_all()
    assert world.ran.count({"n": 1}) == 2


@pytest.mark.covers("X62")
def test_one_that_nobody_wanted_yet_is_adopted_with_the_others(world: World, place: str) -> None:
    ids = iter(range(1, 1000))
    for columns in cases(place):
        if not columns.keys() & {"type", "position"}:
            world.put(**{"id": str(UUID(int=next(ids))), "type": "late.wish", **columns})
    table = "holdfast_message" if world.sqlite else "holdfast.message"
    world.app.publish("late.wish", {"n": 1})
    world.execute(f"update {table} set queue = null")

    @world.app.handler("late.wish", name="late")
    async def late(body: dict[str, Any]) -> None:
        world.ran.append(body)

    world.app.prepare()
    world.drain()
    world.ask_all()
    assert {"n": 1} in world.ran


@pytest.mark.covers("X62")
def test_what_a_vanished_worker_held_of_them_is_recovered_with_the_rest(world: World) -> None:
    world.put(epoch=LARGEST, attempts=LARGEST, vanished=LARGEST - 1, status=-1)
    world.app.publish("order.placed", {"n": 1})
    store = world.app.store
    world.execute(
        "insert into holdfast_lease (seq, until, worker, epoch) select seq, 1, 99, 1 from holdfast_message"
        if world.sqlite
        else "insert into holdfast.lease (seq, until, worker, epoch) select seq, 'epoch', 99, 1 from holdfast.message"
    )
    assert store.run(engine.recover()) == 2
    world.drain()
    assert world.ran == [{"n": 1}]
    assert len(world.app.operations.dead.list()) == 1


@pytest.mark.covers("X62")
def test_a_worker_written_by_hand_is_not_stopped_either(world: World, place: str) -> None:
    ids = iter(range(1, 1000))
    for columns in cases(place):
        world.put(**{"id": str(UUID(int=next(ids))), **columns})
    world.app.publish("mail.wanted", {"n": 1})
    app, ran = world.app, 0
    for _ in range(200):
        work = app.process_work_batch(want={"place": 10, "mail": 10}).work
        if not work:
            break
        ran += sum(each.message.queue == "mail" for each in work)
        app.process_work_batch([app.done(each) for each in work])
    assert ran == 1
    assert app.process_work_batch(want={"place": 10, "mail": 10}).work == []


def test_times_beyond_those_of_python_are_the_last_it_has() -> None:
    from holdfast.clock import from_micros
    from holdfast.model.message import from_raw

    for read in (from_micros, from_raw):
        assert read(2**63 - 1) == datetime.max.replace(tzinfo=UTC)
        assert read(-(2**63)) == datetime.min.replace(tzinfo=UTC)
