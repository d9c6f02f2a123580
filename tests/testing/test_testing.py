"""`app.testing()`: what those who test their own handlers are told."""

from __future__ import annotations

import psycopg
import pytest

from holdfast import Context, Dead, Holdfast, NotEnded, OrchestrationFailed, RetryPolicy, Snooze
from holdfast.errors import UsageError


def shop() -> Holdfast:
    app = Holdfast("sqlite:///never-opened.db")

    @app.handler("order.placed", retry=RetryPolicy(attempts_max=3, base=10.0, cap=10.0))
    async def ship(order: dict, ctx: Context) -> object:
        match order.get("how"):
            case "late" if ctx.attempt == 1:
                raise ConnectionError("no answer")
            case "never":
                raise ValueError(f"cannot ship {order['id']}")
            case "snooze":
                return Snooze(minutes=1)
            case "dead":
                return Dead("no such customer")
        ctx.publish("order.shipped", {"id": order["id"]})
        return None

    @app.handler("order.shipped")
    def tell(order: dict) -> None:
        if order["id"] < 0:
            raise SystemExit("bad id")

    return app


def test_drain_handles_all_and_then_raises_what_failed() -> None:
    with shop().testing() as t:
        for n, how in enumerate(("well", "never", "late", "well")):
            t.app.publish("order.placed", {"id": n, "how": how})
        with pytest.raises(ExceptionGroup) as caught:
            t.drain()
        assert sorted(type(each).__name__ for each in caught.value.exceptions) == [
            "ConnectionError",
            "ValueError",
        ]
        assert all(
            "of type order.placed in queue ship" in each.__notes__[0] for each in caught.value.exceptions
        )
        assert all("waits for a retry" in each.__notes__[0] for each in caught.value.exceptions)
        frames = caught.value.exceptions[0].__traceback__
        assert frames is not None
        assert [each.body["id"] for each in t.published("order.shipped")] == [0, 3]
        t.advance(minutes=1)
        with pytest.raises(ExceptionGroup, match=r"1 waiting for a retry \(2 done\)"):
            t.drain()  # the late one is fine now
        t.advance(minutes=1)
        with pytest.raises(ExceptionGroup, match="1 dead") as died:
            t.drain()
        assert "it is a dead letter" in died.value.exceptions[0].__notes__[0]
        assert [each.type for each in t.dead] == ["order.placed"]
        summary = t.drain()  # what was told is not told again
        assert (summary.done, summary.dead) == (0, 0)


def test_what_a_handler_asks_for_is_no_failure() -> None:
    with shop().testing() as t:
        for how in ("snooze", "dead", "well"):
            t.app.publish("order.placed", {"id": 1, "how": how})
        summary = t.drain()
        assert (summary.done, summary.snoozed, summary.dead, summary.retrying) == (2, 1, 1, 0)


def test_a_success_on_a_retry_in_the_same_drain_is_no_failure() -> None:
    app = Holdfast("sqlite:///never-opened.db")

    @app.handler("a", retry=RetryPolicy(attempts_max=2, base=0.0, cap=0.0))
    async def work(body: dict, ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ConnectionError("once")

    with app.testing() as t:
        app.publish("a", {})
        assert t.drain().done == 1


def test_without_raising_the_summary_tells() -> None:
    with shop().testing() as t:
        t.app.publish("order.placed", {"id": 1, "how": "never"})
        t.app.publish("order.shipped", {"id": -1})  # SystemExit, which no ExceptionGroup takes
        assert t.drain(raises=False).retrying == 2
        t.app.publish("order.shipped", {"id": -2})
        with pytest.raises(ExceptionGroup, match="1 waiting for a retry") as caught:
            t.drain()
        assert "bad id" in str(caught.value.exceptions[0])


async def test_in_async_code_draining_is_awaited() -> None:
    with shop().testing() as t:
        await t.app.apublish("order.placed", {"id": 1})
        with pytest.raises(UsageError, match=r"await t\.adrain\(\)"):
            t.drain()
        assert (await t.adrain()).done == 2


def test_a_type_or_queue_that_nobody_has_is_an_error_in_a_test() -> None:
    app = shop()
    with app.testing() as t:
        with pytest.raises(UsageError, match=r"'order\.plaecd'; there are: order\.placed, order\.shipped"):
            app.publish("order.plaecd", {})
        with pytest.raises(UsageError, match="queue 'shipp'; there are: ship, tell"):
            app.publish("order.placed", {}, queue="shipp")
        app.publish("order.audited", {}, event=True, stream="s")  # an event is kept whoever handles it
        assert [each.type for each in t.published()] == ["order.audited"]
    with app.testing(elsewhere=["billing.*", "crm"]) as t:
        app.publish("billing.due", {})
        app.publish("order.placed", {}, queue="crm")
        assert len(t.published()) == 2


def test_what_was_rolled_back_was_not_published() -> None:
    import sqlite3

    app = shop()
    with app.testing() as t:
        app.publish("order.placed", {"id": 1}, dedupe="one")
        app.publish("order.placed", {"id": 2}, dedupe="one")
        with sqlite3.connect(app.url.removeprefix("sqlite:///")) as db:
            app.publish("order.placed", {"id": 3}, on=db)
            db.rollback()
        assert [each.body for each in t.published("order.placed")] == [{"id": 1}]


@pytest.mark.one_postgres
def test_on_postgresql_each_test_has_a_schema_of_its_own(postgres_dsn: str) -> None:
    app = shop()
    schemas = "select nspname from pg_namespace where nspname ~ '^holdfast'"
    with app.testing(url=postgres_dsn) as t, psycopg.connect(postgres_dsn) as db:
        assert app.schema.startswith("holdfast_test_")
        db.execute("create table orders (id int)")
        db.execute("insert into orders values (1)")
        app.publish("order.placed", {"id": 1}, on=db)
        db.commit()
        app.publish("order.placed", {"id": 2, "how": "late"})
        assert t.drain(raises=False).done == 2
        t.advance(minutes=1)
        assert t.drain().done == 2
        assert [each.body["id"] for each in t.published("order.shipped")] == [1, 2]
        assert db.execute(schemas).fetchall() == [(app.schema,)]
    assert app.schema == "holdfast"
    with psycopg.connect(postgres_dsn) as db:
        assert db.execute(schemas).fetchall() == []


def test_an_orchestration_that_does_not_do_the_same_each_time_fails_the_drain() -> None:
    """It was paused, and the test went on without a word."""
    app = Holdfast("sqlite:///never-made.db")
    turns: list[int] = []

    @app.activity()
    async def weigh(n: int) -> int:
        return n

    @app.orchestration()
    async def differs(n: int) -> int:
        turns.append(n)
        return await weigh(len(turns)) + await weigh(n)

    with app.testing() as t:
        app.orchestrations.start(differs, 1, id="d")
        with pytest.raises(ExceptionGroup, match="1 of paused orchestrations") as caught:
            t.drain()
        (error,) = caught.value.exceptions
        assert "activity weigh" in str(error)
        assert error.__notes__ == ["Instance d of differs@1 is paused."]
        with pytest.raises(NotEnded, match="it is paused: Command 1: the code asks for activity weigh"):
            app.orchestrations.result("d")
        app.operations.orchestrations.terminate("d", "enough")
        app.orchestrations.start(differs, 1, id="held")
        app.operations.orchestrations.suspend("held", "look at it")
        t.drain()  # somebody wanted that
        with pytest.raises(NotEnded, match="it is suspended: look at it"):
            app.orchestrations.result("held")


def test_a_fake_is_an_activity_of_which_it_is_known_what_it_gives() -> None:
    app = Holdfast("sqlite:///never-made.db")

    @app.activity(retry=RetryPolicy(attempts_max=1))
    async def weigh(n: int) -> int:
        return n

    @app.orchestration()
    async def code(n: int) -> int:
        return await weigh(n)

    with app.testing() as t:
        for wrong in ("weigh", code):
            with pytest.raises(UsageError, match="is no activity"):
                t.fake(wrong, 1)  # type: ignore[arg-type]
        t.fake(weigh, ValueError)  # the class, as in `raise ValueError`
        app.orchestrations.start(code, 1, id="c")
        t.drain(raises=False)
        with pytest.raises(OrchestrationFailed, match="weigh failed: ValueError"):
            app.orchestrations.result("c")
