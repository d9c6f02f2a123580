"""`ctx.transaction(sqlite3.Connection)`: a handler says which connection it expects, and gets that one or an error."""

from __future__ import annotations

import sqlite3
from typing import Any

import psycopg
import pytest

from holdfast import Context, RetryPolicy
from tests.worker.lab import Lab, settled

once = RetryPolicy(attempts_max=1)


@pytest.mark.parametrize("is_async", [False, True])
async def test_the_kind_that_is_expected(lab: Lab, is_async: bool) -> None:
    lab.make_effects()
    app = lab.app()
    kind: Any = (
        sqlite3.Connection if lab.sqlite else psycopg.AsyncConnection if is_async else psycopg.Connection
    )

    @app.handler("a", retry=once)
    def work(body: dict[str, int], ctx: Context) -> None:
        with ctx.transaction(kind) as db:
            assert isinstance(db, kind)
            db.execute("insert into effect (n) values (1)")

    @app.handler("b", retry=once)
    async def awork(body: dict[str, int], ctx: Context) -> None:
        async with ctx.transaction(kind) as db:
            assert isinstance(db, kind)
            done = db.execute("insert into effect (n) values (1)")
            if not lab.sqlite:
                await done

    app.publish("b" if is_async else "a", {})
    async with lab.working(app):
        await settled(lab)
    assert lab.effects() == {1: 1}
    assert [row.outcome for row in lab.rows("history")] == ["done"]


@pytest.mark.parametrize("is_async", [False, True])
async def test_another_kind_is_refused_and_nothing_is_settled(lab: Lab, is_async: bool) -> None:
    app = lab.app()
    wrong: Any = psycopg.Connection if lab.sqlite or is_async else psycopg.AsyncConnection
    yields = "sqlite3.Connection" if lab.sqlite else "psycopg." + ("Async" * is_async) + "Connection"

    @app.handler("a", retry=once)
    def work(body: dict[str, int], ctx: Context) -> None:
        with ctx.transaction(wrong):
            raise AssertionError("never")

    @app.handler("b", retry=once)
    async def awork(body: dict[str, int], ctx: Context) -> None:
        async with ctx.transaction(wrong):
            raise AssertionError("never")

    app.publish("b" if is_async else "a", {})
    async with lab.working(app):
        await settled(lab)
    (dead,) = lab.rows("dead")
    assert f"it yields a {yields}. Write ctx.transaction({yields}), or leave" in dead.errors[0]["text"]
