"""Lines of the first designs that no other test stands for: what is told when, and by whose clock."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from holdfast import Flag, Holdfast, Outcome, RetryPolicy
from holdfast.rules.delivery import Raised, conclude
from holdfast.rules.policy import HandlerPolicy
from holdfast.store.migrate import split, steps
from holdfast.store.text import Dialect
from tests.databases import server
from tests.rules.cases import lease
from tests.store import state
from tests.worker.lab import Lab


def run(app: Holdfast) -> None:
    app.prepare()
    asyncio.run(app.worker(until_idle=True).run())


@pytest.mark.covers("D26")
def test_fetching_takes_the_time_of_the_lease_and_the_time_to_wait(lab: Lab) -> None:
    app = lab.app()

    @app.handler("a")
    def work(body: dict) -> None: ...

    assert app.process_work_batch(want={"work": 1}, wait=0.01).work == []
    later = threading.Timer(0.2, lambda: app.publish("a", {}))
    later.start()
    batch = app.process_work_batch(want={"work": 1}, lease=7, wait=30)
    later.join()
    assert len(batch.work) == 1
    ((until,),) = lab.query("select until from {lease}")
    if isinstance(until, int):
        until = datetime.fromtimestamp(until / 1e6, UTC)
    assert (until - batch.now).total_seconds() == pytest.approx(7, abs=0.01)


@pytest.mark.covers("W4", "C13")
def test_published_is_told_when_it_is_done_and_not_before(lab: Lab) -> None:
    app, clock = lab.still()
    fails = True

    @app.handler("a")
    async def work(body: dict) -> None:
        if fails:
            raise RuntimeError

    app.publish("a", {})
    run(app)
    (pending,) = lab.rows("message")
    assert not pending.status & Flag.PUBLISHED
    assert lab.rows("history") == []
    fails = False
    clock.advance(minutes=1)
    run(app)
    (done,) = lab.rows("history")
    assert Flag.PUBLISHED == 4
    assert done.status & Flag.PUBLISHED
    assert done.ended_at is not None


@pytest.mark.covers("C1", "C30")
def test_a_failure_is_marked_and_only_the_injected_clock_brings_the_retry(lab: Lab) -> None:
    app, clock = lab.still()
    starts: list[int] = []

    @app.handler("a", retry="patient")
    async def work(body: dict) -> None:
        starts.append(1)
        raise RuntimeError("no")

    app.publish("a", {})
    run(app)
    (row,) = lab.rows("message")
    assert (row.failures, len(row.errors)) == (1, 1)
    clock.advance(seconds=59)
    run(app)
    assert len(starts) == 1
    clock.advance(seconds=1)
    run(app)
    assert len(starts) == 2


@pytest.mark.covers("C16")
def test_a_failure_is_a_function_of_the_error_the_clock_and_the_retries_allowed() -> None:
    policy = HandlerPolicy(retry=RetryPolicy(attempts_max=2, base=1.0, factor=2.0, cap=60.0))
    now = datetime(2026, 1, 1, tzinfo=UTC)
    first = conclude(lease(), Raised(RuntimeError("no")), policy, now, 0.5)
    last = conclude(lease(attempts=1, failures=1), Raised(RuntimeError("no")), policy, now, 0.5)
    assert first is not None
    assert last is not None
    assert (first.outcome, first.error) == (Outcome.AGAIN, "RuntimeError: no")
    assert last.outcome is Outcome.DEAD


@pytest.mark.covers("C32", "C33", "V9")
def test_what_may_be_claimed_has_an_index_of_its_own_on_each_database(lab: Lab) -> None:
    if lab.sqlite:
        ((text,),) = lab.query("select sql from sqlite_master where name = 'holdfast_message_claim'")
    else:
        ((text,),) = lab.query("select indexdef from pg_indexes where indexname = 'message_claim'")
    assert "(queue, claimable_at, seq)" in text
    assert "head" in text.lower().partition("where")[2]


@pytest.mark.covers("C34")
def test_a_migration_adds_to_a_database_with_messages_and_loses_none(place: str, tmp_path: Path) -> None:
    if place == "sqlite":
        with closing(sqlite3.connect(tmp_path / "old.db")) as db:
            for statement in first_step("sqlite"):
                db.execute(statement)
            db.commit()
        upgraded(f"sqlite:///{tmp_path / 'old.db'}", "sqlite")
        return
    with server(place).database() as dsn:
        with psycopg.connect(dsn) as connection:
            for statement in first_step("postgres"):
                connection.execute(statement.encode())
        upgraded(dsn, "postgres")


def first_step(dialect: Dialect) -> list[str]:
    """A database as it was before there was any other step, with a message in it."""
    version, text = steps(dialect)[0]
    if dialect == "sqlite":
        recorded = "create table holdfast_schema (version integer primary key, applied_at text not null)"
        record, message = f"insert into holdfast_schema values ({version}, '')", "holdfast_message"
    else:
        recorded = "create table holdfast.schema_version (version int not null, functions text not null)"
        record, message = f"insert into holdfast.schema_version values ({version}, '')", "holdfast.message"
    begin = ["create schema holdfast"] if dialect == "postgres" else []
    stored = f"insert into {message} (type, body, stream) values ('a', '{{}}', 's')"
    return [*begin, recorded, *split(text), record, stored]


def upgraded(url: str, dialect: Dialect) -> None:
    app = Holdfast(url)
    assert app.migrate() == [version for version, _ in steps(dialect)[1:]]
    assert app.migrate() == []

    @app.handler("a")
    async def work(body: dict) -> None: ...

    run(app)
    assert [row.outcome for row in state.read(app.store, "history")] == ["done"]
    app.close()
