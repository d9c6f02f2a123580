"""Every verb of requests in the caller's transaction, on every kind of handle: committed with it, or rolled back."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from holdfast import InvalidMessage, Refused, UsageError, WrongHandle
from holdfast.model.request import RequestState
from tests import servers
from tests.handles import kinds
from tests.handles.kinds import Opener, Subject, Undo
from tests.requests.desk import Desk, desk

Kind = tuple[Opener, str, Desk]


@pytest.fixture(autouse=True)
def django_lets_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")


async def ask(subject: Subject, made: Desk, **options: Any) -> UUID:
    options |= {"variant": "writing", "send": "grading.request", "on": subject.handle}
    if subject.known.is_async:
        return (await made.app.arequest(made.grading, {"n": 1}, **options)).id
    return made.app.request(made.grading, {"n": 1}, **options).id


async def resolve(subject: Subject, made: Desk, id: UUID) -> Any:
    if subject.known.is_async:
        return await made.app.aresolve(id, {"score": 7}, on=subject.handle)
    return made.app.resolve(id, {"score": 7}, on=subject.handle)


async def extend(subject: Subject, made: Desk, id: UUID) -> datetime:
    if subject.known.is_async:
        return await made.app.requests.aextend(id, 60, on=subject.handle)
    return made.app.requests.extend(id, 60, on=subject.handle)


async def cancel(subject: Subject, made: Desk, id: UUID) -> None:
    if subject.known.is_async:
        await made.app.requests.acancel(id, "no longer", on=subject.handle)
    else:
        made.app.requests.cancel(id, "no longer", on=subject.handle)


def queued(made: Desk) -> dict[str, int]:
    return {each.name: each.depth for each in made.app.operations.queues.list() if each.depth}


class Verbs:
    async def test_committed(self, kind: Kind) -> None:
        opener, target, made = kind
        app = made.app
        async with opener(target) as subject:
            await subject.execute("insert into orders values (1)")
            id, other = await ask(subject, made), await ask(subject, made)
        assert app.requests.get(id).deadline == made.clock.instant + timedelta(seconds=1200)
        assert queued(made) == {"grade": 2}
        made.clock.advance(seconds=1)
        async with opener(target) as subject:
            await subject.execute("insert into orders values (2)")
            until = await extend(subject, made, id)
            answer = await resolve(subject, made, id)
            again = await resolve(subject, made, id)
            await cancel(subject, made, other)
            # A refusal leaves nothing behind, and the transaction goes on.
            for verb in (extend, cancel):
                with pytest.raises(Refused, match="it is completed"):
                    await verb(subject, made, id)
            with pytest.raises(InvalidMessage, match="not in the future"):
                await ask(subject, made, deadline=made.clock.instant)
            await subject.execute("insert into orders values (3)")
        assert (answer.late, answer.duplicate, again.duplicate) == (False, False, True)
        assert answer.received_at == made.clock.instant
        found = app.requests.get(id)
        assert (found.state, found.result, found.deadline, found.results) == (
            RequestState.COMPLETED, {"score": 7}, until, 2,
        )  # fmt: skip
        assert app.requests.get(other).state is RequestState.CANCELLED
        assert queued(made) == {"grade": 2, "grading.completed": 1, "grading.failed": 1}

    async def test_rolled_back(self, kind: Kind) -> None:
        opener, target, made = kind
        app = made.app
        async with opener(target) as subject:
            id = await ask(subject, made)
            raise Undo
        assert queued(made) == {}
        kept = app.request(made.grading, {"n": 1}, variant="writing").id
        for verb in (extend, resolve, cancel):
            async with opener(target) as subject:
                await subject.execute("insert into orders values (1)")
                await verb(subject, made, kept)
                raise Undo
        found = app.requests.get(kept)
        assert (found.state, found.results) == (RequestState.OPEN, 0)
        assert found.deadline == made.clock.instant + timedelta(seconds=1200)
        assert queued(made) == {}
        assert id != kept


class TestSqlite(Verbs):
    @pytest.fixture(params=[pytest.param(opener, id=name) for name, opener in kinds.SQLITE])
    def kind(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
        target = str(tmp_path / "shop.db")
        kinds.make_tables(target)
        made = desk(f"sqlite:///{target}")
        made.app.migrate()
        yield request.param, target, made
        made.app.close()


@pytest.mark.one_postgres
class TestPostgres(Verbs):
    @pytest.fixture(scope="class")
    @classmethod
    def database(cls, postgres_server: servers.Server) -> Iterator[str]:
        with postgres_server.database() as dsn:
            kinds.make_tables(dsn)
            desk(dsn).app.migrate()
            yield dsn

    @pytest.fixture(params=[pytest.param(opener, id=name) for name, opener in kinds.POSTGRES])
    def kind(self, request: pytest.FixtureRequest, database: str) -> Iterator[Kind]:
        with psycopg.connect(database) as connection:
            tables = (
                "orders, toy, holdfast.message, holdfast.stream, holdfast.request, holdfast.request_result"
            )
            connection.execute(f"truncate {tables}".encode())
        made = desk(database)
        yield request.param, database, made
        made.app.close()


def test_the_wrong_way_to_call_is_named(tmp_path: Path) -> None:
    made = desk(f"sqlite:///{tmp_path / 'shop.db'}")
    id = made.app.request(made.grading, {"n": 1}, variant="writing").id
    with closing(sqlite3.connect(tmp_path / "shop.db")) as db, db:
        for call, verb in (
            (made.app.aresolve(id, 1, on=db), "resolve"),
            (made.app.requests.aextend(id, 1, on=db), "extend"),
            (made.app.requests.acancel(id, on=db), "cancel"),
            (made.app.arequest(made.grading, 1, variant="writing", on=db), "request"),
        ):
            with pytest.raises(WrongHandle, match=rf"^a{verb}\(\) was given .*`{verb}\(\.\.\.\)`"):
                asyncio.run(call)
    made.app.close()


@pytest.mark.covers("X57")
def test_the_clock_is_read_behind_the_lock_on_sqlite(tmp_path: Path) -> None:
    """A result that had to wait for the write lock until after the deadline is late."""
    made = desk(f"sqlite:///{tmp_path / 'shop.db'}")
    id = made.app.request(made.grading, 1, within=5).id
    asked_at = made.clock.instant

    def waits(sql: str) -> None:
        if sql == "BEGIN IMMEDIATE":
            made.clock.advance(seconds=10)

    with closing(sqlite3.connect(tmp_path / "shop.db")) as db, db:
        db.set_trace_callback(waits)
        answer = made.app.resolve(id, 1, on=db)
    assert answer.received_at == asked_at + timedelta(seconds=10)
    assert answer.late
    made.app.close()


def test_a_request_without_on_is_refused_where_that_is_wanted(tmp_path: Path) -> None:
    made = desk(f"sqlite:///{tmp_path / 'shop.db'}", require_on=True)
    with pytest.raises(UsageError, match=r"a request of kind grading .*request\(\.\.\., on=session\)"):
        made.app.request(made.grading, 1, variant="writing")
    made.app.close()
