"""Inside ctx.transaction() only the engine commits: whatever else would end the transaction is refused."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import CommitRefused, Context, RetryPolicy
from tests.worker.lab import Lab, auntil, settled

once = RetryPolicy(attempts_max=1)
INSERT = "insert into effect (n) values (1)"


class OwnError(Exception):
    """What the user's code raises."""


def with_(db: Any) -> None:
    with db:
        db.execute(INSERT)


def on_cursor(text: str) -> Callable[[Any], None]:
    def do(db: Any) -> None:
        cursor = db.cursor()
        cursor.execute(text)

    return do


def isolation_level(db: Any) -> None:
    db.isolation_level = None  # sqlite3 commits


def piped(db: Any) -> None:
    with db.pipeline():
        db.execute("commit")


def in_a_file_of_statements(db: Any) -> None:
    db.cursor().executescript("insert into effect (n) values (1)")


def raise_rollback(db: Any) -> None:
    raise psycopg.Rollback


BOTH: dict[str, Callable[[Any], Any]] = {
    "with": with_,
    "commit()": lambda db: db.commit(),
    "rollback()": lambda db: db.rollback(),
    "commit": lambda db: db.execute("commit"),
    "COMMIT;": lambda db: db.execute(" COMMIT;"),
    "a comment before it": lambda db: db.execute("/* so */ -- or so\n commit transaction"),
    "end": lambda db: db.execute("end"),
    "rollback": lambda db: db.execute("rollback"),
    "a cursor": on_cursor("commit"),
}
WAYS: dict[str, dict[str, Callable[[Any], Any]]] = {
    "sqlite": {
        **BOTH,
        "executescript": lambda db: db.executescript(INSERT),
        "executescript of a cursor": in_a_file_of_statements,
        "isolation_level": isolation_level,
        "executemany": lambda db: db.executemany("commit", [()]),
        "another cursor": lambda db: db.cursor(sqlite3.Cursor).execute("commit"),
    },
    "postgres": {
        **BOTH,
        "abort": lambda db: db.execute("abort"),
        "and chain": lambda db: db.execute("commit and chain"),
        "prepare transaction": lambda db: db.execute("prepare transaction 'x'"),
        "several": lambda db: db.execute(f"{INSERT}; commit"),
        "bytes": lambda db: db.execute(b"commit"),
        "composed": lambda db: db.execute(psycopg.sql.SQL("commit")),
        "a cursor of the server": lambda db: db.cursor(name="c").execute("select 1; commit"),
        "executemany": lambda db: db.cursor().executemany("commit", [()]),
        "stream": lambda db: list(db.cursor().stream("commit")),
        "copy": lambda db: db.cursor().copy("commit").__enter__(),
        "a pipeline": piped,
        "psycopg.Rollback": raise_rollback,
    },
}


def ways(dialect: str, *left_out: str) -> Any:
    return pytest.mark.parametrize("way", [way for way in WAYS[dialect] if way not in left_out])


async def refused(lab: Lab, block: Callable[[Context], None], *, is_async: bool = False) -> str:
    """The error of a handler's only attempt. Nothing of it is stored, and the lease was handed back."""
    lab.make_effects()
    app = lab.app()
    if is_async:
        app.handler("a", retry=once, name="work")(block)
    else:

        def work(body: dict, ctx: Context) -> None:
            block(ctx)

        app.handler("a", retry=once)(work)
    app.publish("a", {})
    async with lab.working(app):
        await settled(lab)
    assert lab.effects() == {}
    (letter,) = lab.rows("dead")
    return str(letter.errors)


@pytest.mark.covers("X64")
@ways("sqlite")
async def test_sqlite_refuses(sqlite_lab: Lab, way: str) -> None:
    def block(ctx: Context) -> None:
        with ctx.transaction() as db:
            db.execute(INSERT)
            WAYS["sqlite"][way](db)

    error = await refused(sqlite_lab, block)
    # A cursor of another class says it in SQLite's words.
    assert "CommitRefused" in error or (
        way in ("another cursor", "isolation_level") and "not authorized" in error
    )
    if "CommitRefused" in error:
        assert "only the engine commits" in error
        assert "raise an exception" in error


@pytest.mark.covers("X64")
@pytest.mark.one_postgres
@ways("postgres")
async def test_postgresql_refuses(pg_lab: Lab, way: str) -> None:
    def block(ctx: Context) -> None:
        with ctx.transaction() as db:
            db.execute(INSERT)
            WAYS["postgres"][way](db)

    error = await refused(pg_lab, block)
    assert "CommitRefused" in error
    assert "only the engine commits" in error


async def with_async(db: Any) -> None:
    async with db:
        await db.execute(INSERT)


async def stream_async(db: Any) -> None:
    async for _ in db.cursor().stream("commit"):
        pass


async def piped_async(db: Any) -> None:
    async with db.pipeline():
        await db.execute("commit")


ASYNC: dict[str, Callable[[Any], Any]] = {
    "async with": with_async,
    "commit()": lambda db: db.commit(),
    "rollback()": lambda db: db.rollback(),
    "commit": lambda db: db.execute("commit"),
    "several": lambda db: db.execute(f"{INSERT}; commit"),
    "a cursor": lambda db: db.cursor().execute("end"),
    "a cursor of the server": lambda db: db.cursor(name="c").execute("select 1; commit"),
    "executemany": lambda db: db.cursor().executemany("commit", [()]),
    "stream": stream_async,
    "a pipeline": piped_async,
}


@pytest.mark.covers("X64")
@pytest.mark.one_postgres
@pytest.mark.parametrize("way", ASYNC)
async def test_postgresql_refuses_async_handlers(pg_lab: Lab, way: str) -> None:
    async def block(body: dict, ctx: Context) -> None:
        async with ctx.transaction() as db:
            await db.execute(INSERT)
            await ASYNC[way](db)

    assert "CommitRefused" in await refused(pg_lab, block, is_async=True)


@pytest.mark.covers("X64")
@pytest.mark.parametrize("way", ["with", "commit()", "rollback()", "commit", "executescript"])
async def test_sqlite_refuses_async_handlers(sqlite_lab: Lab, way: str) -> None:
    async def block(body: dict, ctx: Context) -> None:
        async with ctx.transaction() as db:
            db.execute(INSERT)
            WAYS["sqlite"][way](db)

    assert "CommitRefused" in await refused(sqlite_lab, block, is_async=True)


# --- Who catches it ---------------------------------------------------------------------------------------------------


@pytest.mark.covers("X64")
@pytest.mark.parametrize("way", BOTH)
async def test_who_catches_the_refusal_and_goes_on_commits_nothing(lab: Lab, way: str) -> None:
    def block(ctx: Context) -> None:
        with ctx.transaction() as db:
            with contextlib.suppress(CommitRefused):
                BOTH[way](db)
            db.execute(INSERT)

    assert "CommitRefused" in await refused(lab, block)


@pytest.mark.parametrize("way", ["rollback()", "commit()", "rollback", "with"])
async def test_an_error_of_the_user_is_not_hidden(lab: Lab, way: str) -> None:
    """The usual `except: db.rollback(); raise`: what went wrong is what leaves the block."""
    left: list[BaseException] = []

    def block(ctx: Context) -> None:
        try:
            with ctx.transaction() as db:
                try:
                    raise OwnError("the user's own")
                except OwnError:
                    BOTH[way](db)
                    raise
        except BaseException as error:
            left.append(error)
            raise

    error = await refused(lab, block)
    assert "OwnError" in error
    assert isinstance(left[0], OwnError)
    assert isinstance(left[0].__context__, CommitRefused)
    assert "was refused" in str(left[0].__notes__)


async def test_an_error_that_was_handled_outside_of_the_block_does_not_count(lab: Lab) -> None:
    def block(ctx: Context) -> None:
        try:
            raise OwnError("handled")
        except OwnError:
            with ctx.transaction() as db:
                db.rollback()

    assert "CommitRefused" in await refused(lab, block)


@pytest.mark.parametrize("way", ["rollback()", "commit"])
async def test_an_error_of_the_user_that_was_swallowed_does_not_make_it_a_success(lab: Lab, way: str) -> None:
    def block(ctx: Context) -> None:
        with ctx.transaction() as db:
            db.execute(INSERT)
            try:
                raise OwnError("the user's own")
            except OwnError:
                with contextlib.suppress(CommitRefused):
                    BOTH[way](db)

    assert "CommitRefused" in await refused(lab, block)


# --- What stays allowed -----------------------------------------------------------------------------------------------


@pytest.mark.covers("X64")
async def test_savepoints_are_the_handlers(lab: Lab) -> None:
    lab.make_effects()
    app = lab.app()

    @app.handler("a", retry=once)
    def work(body: dict, ctx: Context) -> None:
        with ctx.transaction() as db:
            db.execute("savepoint a")
            db.execute(INSERT)
            db.execute("release savepoint a")
            db.execute("savepoint b")
            db.execute("insert into effect (n) values (2)")
            db.execute("rollback to savepoint b")
            db.execute("release b")
            if not lab.sqlite:
                with db.transaction():
                    db.execute("insert into effect (n) values (3)")
                with contextlib.suppress(OwnError), db.transaction():
                    db.execute("insert into effect (n) values (4)")
                    raise OwnError
                db.execute("insert into effect (n, worker) values (5, '; commit'); select 1")
            app.publish("nobody", {}, on=db)

    app.publish("a", {})
    async with lab.working(app):
        await settled_but_for(lab, "nobody")
    assert lab.effects() == ({1: 1} if lab.sqlite else {1: 1, 3: 1, 5: 1})
    assert lab.rows("dead") == []


async def settled_but_for(lab: Lab, type: str) -> None:
    await auntil(lambda: [row.type for row in lab.rows("message")] == [type], lab.describe)


async def test_what_a_handler_sets_on_its_connection_ends_with_its_block(lab: Lab) -> None:
    lab.make_effects()
    app = lab.app()

    @app.handler("a", retry=once, concurrency=1)
    def work(body: dict, ctx: Context) -> None:
        with ctx.transaction() as db:
            db.execute(f"insert into effect (n) values ({body['n']})")
            db.row_factory = sqlite3.Row if lab.sqlite else psycopg.rows.dict_row

    app.publish_many(app.message("a", {"n": n}, stream="s") for n in range(5))
    async with lab.working(app):
        await settled(lab)
    assert lab.effects() == dict.fromkeys(range(5), 1)


@pytest.mark.parametrize("ends", ["own error", "refused"])
async def test_what_a_handler_set_before_it_failed_is_not_there_for_the_next(lab: Lab, ends: str) -> None:
    app, seen = lab.app(), []

    @app.handler("a", retry=once, concurrency=1)
    def work(n: int, ctx: Context) -> None:
        with ctx.transaction() as db:
            seen.append(db.execute("select 1, 2").fetchone())
            db.row_factory = (lambda cursor, row: "mine") if lab.sqlite else psycopg.rows.dict_row
            if ends == "refused":
                db.commit()
            raise OwnError

    app.publish_many(app.message("a", n, stream="s") for n in range(2))
    async with lab.working(app):
        await settled(lab)
    assert seen == [(1, 2), (1, 2)]


async def test_on_sqlite_an_error_without_a_code_is_told_as_it_is(sqlite_lab: Lab) -> None:
    def block(ctx: Context) -> None:
        with ctx.transaction() as db:
            with contextlib.suppress(CommitRefused):
                db.commit()
            with pytest.raises(sqlite3.ProgrammingError, match="number of bindings"):
                db.execute("select ?", ())

    assert "CommitRefused" in await refused(sqlite_lab, block)


async def test_a_lock_on_another_database_of_the_handler_is_not_told_as_one_on_ours(
    sqlite_lab: Lab, tmp_path: Path
) -> None:
    def block(ctx: Context) -> None:
        with ctx.transaction(), contextlib.ExitStack() as stack:
            holder, other = (
                stack.enter_context(contextlib.closing(sqlite3.connect(tmp_path / "other.db", timeout=0)))
                for _ in range(2)
            )
            holder.execute("begin immediate")
            other.execute("begin immediate")

    assert "OperationalError: database is locked" in await refused(sqlite_lab, block)


async def test_on_sqlite_the_fence_cannot_be_taken_away(sqlite_lab: Lab) -> None:
    def block(ctx: Context) -> None:
        with ctx.transaction() as db:
            db.set_authorizer(None)

    assert "set_authorizer() was refused" in await refused(sqlite_lab, block)


async def test_on_sqlite_nothing_is_written_once_the_database_has_rolled_back(sqlite_lab: Lab) -> None:
    """`ON CONFLICT ROLLBACK`, a full disk: SQLite ends the transaction, and would commit what follows by itself."""
    sqlite_lab.execute("create table one (n integer unique)")

    def block(ctx: Context) -> None:
        with ctx.transaction() as db:
            db.execute("insert into one values (1)")
            with contextlib.suppress(sqlite3.IntegrityError):
                db.execute("insert or rollback into one values (1)")
            with contextlib.suppress(CommitRefused):
                db.execute(INSERT)

    assert "is over" in await refused(sqlite_lab, block)


@pytest.mark.one_postgres
async def test_on_postgresql_a_cursor_made_by_hand_is_noticed(pg_lab: Lab) -> None:
    """It passes the check of the text by. What it committed stands; nothing after it does, and it is told."""
    pg_lab.execute("create table before (n integer)")

    def block(ctx: Context) -> None:
        with ctx.transaction() as db:
            psycopg.ClientCursor(db).execute("insert into before values (1); commit")
            with contextlib.suppress(CommitRefused):
                db.execute(INSERT)

    assert "is over" in await refused(pg_lab, block)


def test_a_connection_kept_beyond_its_block_writes_nothing_on_sqlite(sqlite_lab: Lab) -> None:
    sqlite_lab.make_effects()
    store = sqlite_lab.store
    with contextlib.suppress(OwnError), store.transaction() as (kept, _):
        raise OwnError
    with pytest.raises(CommitRefused, match="is over"):
        kept.execute(INSERT)
