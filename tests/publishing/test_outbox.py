"""The transactional outbox, for every kind of handle: a message and the caller's own rows are stored together."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast, NotInTransaction, NotMigrated, UsageError, WrongHandle
from tests import servers
from tests.handles import kinds
from tests.handles.kinds import Opener, Subject, Undo

Kind = tuple[Opener, str, Holdfast]


@pytest.fixture(autouse=True)
def django_lets_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")


def application(url: str) -> Holdfast:
    app = Holdfast(url)

    @app.handler("order.placed")
    def receipt(order: dict[str, Any]) -> None: ...

    @app.handler("order.*")
    def audit(order: dict[str, Any]) -> None: ...

    return app


async def publish(subject: Subject, app: Holdfast, number: int) -> Any:
    arguments: dict[str, Any] = {"stream": f"order-{number}", "on": subject.handle}
    body = {"id": number}
    if subject.known.is_async:
        return await app.apublish("order.placed", body, **arguments)
    return app.publish("order.placed", body, **arguments)


def stored(target: str) -> tuple[list[int], list[tuple[str, str, str, bool]]]:
    """The business rows, and the messages with their queue and whether they are heads of their streams."""
    if target.startswith("postgres"):
        with psycopg.connect(target) as db:
            orders = db.execute("select id from orders order by 1").fetchall()
            messages = db.execute(
                "select stream, queue, body, head from holdfast.message order by 1, 2"
            ).fetchall()
    else:
        with closing(sqlite3.connect(target)) as lite:
            orders = lite.execute("select id from orders order by 1").fetchall()
            try:
                rows = lite.execute("select stream, queue, body, head from holdfast_message order by 1, 2")
                messages = rows.fetchall()
            except sqlite3.OperationalError:
                messages = []
    return [id for (id,) in orders], [(s, q, b, bool(h)) for s, q, b, h in messages]


def both(*numbers: int) -> list[tuple[str, str, str, bool]]:
    """One delivery for each subscriber."""
    return [(f"order-{n}", queue, f'{{"id":{n}}}', True) for n in numbers for queue in ("audit", "receipt")]


class Outbox:
    @pytest.mark.covers("V1", "W105", "X42")
    async def test_both_are_committed(self, kind: Kind) -> None:
        opener, target, app = kind
        async with opener(target) as subject:
            await subject.execute("insert into orders values (1)")
            published = await publish(subject, app, 1)
            assert published.duplicate is False
            assert stored(target) == ([], [])
        assert stored(target) == ([1], both(1))

    @pytest.mark.covers("V1", "W105")
    async def test_both_are_rolled_back(self, kind: Kind) -> None:
        opener, target, app = kind
        async with opener(target) as subject:
            await subject.execute("insert into orders values (1)")
            await publish(subject, app, 1)
            raise Undo
        assert stored(target) == ([], [])

    @pytest.mark.covers("V1")
    async def test_a_savepoint_takes_back_only_what_is_inside(self, kind: Kind) -> None:
        opener, target, app = kind
        async with opener(target) as subject:
            await publish(subject, app, 1)
            async with subject.savepoint():
                await subject.execute("insert into orders values (2)")
                await publish(subject, app, 2)
                raise Undo
            await publish(subject, app, 3)
        assert stored(target) == ([], both(1, 3))


class TestSqlite(Outbox):
    @pytest.fixture(params=[pytest.param(opener, id=name) for name, opener in kinds.SQLITE])
    def kind(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
        """A file with the user's own tables only: the first publish makes ours, on the user's connection."""
        target = str(tmp_path / "shop.db")
        kinds.make_tables(target)
        app = application(f"sqlite:///{target}")
        yield request.param, target, app
        app.close()


class TestPostgres(Outbox):
    @pytest.fixture(scope="class")
    @classmethod
    def database(cls, postgres_server: servers.Server) -> Iterator[str]:
        with postgres_server.database() as dsn:
            kinds.make_tables(dsn)
            application(dsn).migrate()
            yield dsn

    @pytest.fixture(params=[pytest.param(opener, id=name) for name, opener in kinds.POSTGRES])
    def kind(self, request: pytest.FixtureRequest, database: str) -> Iterator[Kind]:
        with psycopg.connect(database) as connection:
            connection.execute("truncate orders, toy, holdfast.message, holdfast.stream")
        app = application(database)
        yield request.param, database, app
        app.close()


def test_a_connection_that_commits_by_itself_is_refused(tmp_path: Path) -> None:
    app = application(f"sqlite:///{tmp_path / 'shop.db'}")
    with (
        closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as db,
        pytest.raises(NotInTransaction, match=r"(?i)begin"),
    ):
        app.publish("order.placed", {}, on=db)


def test_a_handle_of_another_database_is_refused(tmp_path: Path) -> None:
    app = Holdfast("postgresql://nobody@127.0.0.1:1/none")
    with (
        closing(sqlite3.connect(tmp_path / "shop.db")) as db,
        pytest.raises(UsageError, match="lives in postgres and was given a handle of sqlite"),
    ):
        app.publish("order.placed", {}, on=db)


@pytest.mark.one_postgres
def test_a_handle_of_another_database_is_refused_before_anything_is_made(
    postgres_dsn: str, tmp_path: Path
) -> None:
    app = application(f"sqlite:///{tmp_path / 'shop.db'}")
    with (
        psycopg.connect(postgres_dsn) as db,
        pytest.raises(UsageError, match="lives in sqlite and was given a handle of postgres"),
    ):
        app.publish("order.placed", {}, on=db)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.one_postgres
def test_all_deliveries_of_a_message_were_stored_at_one_time(postgres_dsn: str) -> None:
    app = application(postgres_dsn)
    app.migrate()
    with psycopg.connect(postgres_dsn) as db:
        app.publish("order.placed", {"id": 1}, on=db)
        app.publish("order.placed", {"id": 2}, on=db, stream="a")
        times = db.execute(
            "select count(*), count(distinct created_at) from holdfast.message group by body"
        ).fetchall()
    assert times == [(2, 1), (2, 1)]
    app.close()


@pytest.mark.one_postgres
async def test_subscriptions_are_stored_once_and_not_looked_for_again(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That blocks, so it has a thread; a thread for each publish would cost as much as the publish."""
    app = application(postgres_dsn)
    app.migrate()
    await app.apublish("order.placed", {"id": 1})
    monkeypatch.setattr(asyncio, "to_thread", None)
    monkeypatch.setattr(app.publishing, "_subscription", None)
    await app.apublish("order.placed", {"id": 2})
    async with await psycopg.AsyncConnection.connect(postgres_dsn) as db:
        await app.apublish("order.placed", {"id": 3}, on=db)
    assert app.operations.status().depth == 3 * 2
    await app.store.aclose()


def test_a_handler_declared_while_others_are_stored_is_stored_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found in review: the thread that had stored the others said then that all were."""
    app = application(f"sqlite:///{tmp_path / 'shop.db'}")
    run = app.store.run

    def run_and_declare(plan: Any) -> Any:
        done = run(plan)
        if getattr(plan, "__name__", "") == "subscribe" and "late" not in app.handlers:
            app.handler("order.placed", name="late")(lambda order: None)
        return done

    monkeypatch.setattr(app.store, "run", run_and_declare)
    app.publish("order.placed", {"id": 1})
    app.publish("order.placed", {"id": 2})
    assert [each.depth for each in app.operations.status().queues if each.name == "late"] == [1]


def test_a_handle_of_another_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker would look for the message there. Another way to write the same path is the same file."""
    monkeypatch.chdir(tmp_path)
    app = application("sqlite:///shop.db")
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    for target in ("other.db", ":memory:"):
        with closing(sqlite3.connect(target)) as connection, connection:
            with pytest.raises(
                UsageError, match=r"works on .*shop\.db and was given .* Connect to the same file"
            ):
                app.publish("order.placed", {"n": 1}, on=connection)
            assert connection.execute("select count(*) from sqlite_master").fetchone() == (0,)
    (tmp_path / "link").symlink_to(tmp_path)
    for n, target in enumerate((tmp_path / "shop.db", tmp_path / "link" / "shop.db", Path("../shop.db"))):
        with closing(sqlite3.connect(target)) as connection, connection:
            app.publish("order.placed", {"n": n}, on=connection)
    assert app.operations.status().depth == 2 * 3


def test_tables_made_in_a_transaction_that_is_rolled_back_are_made_again(tmp_path: Path) -> None:
    app = application(f"sqlite:///{tmp_path / 'shop.db'}")
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        for n in range(2):
            app.publish("order.placed", {"n": n}, on=connection)
        connection.rollback()
        app.publish("order.placed", {"n": 2}, on=connection)
        connection.commit()
        statements: list[str] = []
        app.publish("order.placed", {"n": 3}, on=connection)
        connection.set_trace_callback(statements.append)
        app.publish("order.placed", {"n": 4}, on=connection)
        connection.set_trace_callback(None)
        connection.commit()
    assert app.operations.status().depth == 2 * 3
    assert not [each for each in statements if "holdfast_schema" in each], (
        "once all is there, nobody looks again"
    )


def test_a_handle_of_no_known_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongHandle, match="sqlite3"):
        application(f"sqlite:///{tmp_path / 'shop.db'}").publish("order.placed", {}, on=object())


@pytest.mark.one_postgres
def test_postgres_without_our_tables_names_the_command(postgres_dsn: str) -> None:
    with pytest.raises(NotMigrated, match="holdfast migrate"):
        application(postgres_dsn).publish("order.placed", {})


@pytest.mark.timeout(25)  # SQLite's own waiting takes 30 s
def test_a_caller_that_locks_the_whole_file_does_not_wait_for_us(tmp_path: Path) -> None:
    """Found by review: whether all is prepared was looked up on a connection that waits for locks, half a minute."""
    app = application(f"sqlite:///{tmp_path / 'shop.db'}")
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level="EXCLUSIVE")) as connection:
        for n in range(2):
            app.publish("order.placed", {"n": n}, on=connection)
        connection.commit()
    assert app.operations.status().depth == 2 * 2
