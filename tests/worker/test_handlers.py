"""Every kind of handler, and every way in which one can end."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pydantic
import pytest

from holdfast import Context, Dead, Flag, InvalidSettings, Reason, RetryPolicy, Snooze, UsageError
from tests.worker.lab import Lab, settled

at_once = RetryPolicy(attempts_max=3, base=0.0, factor=1.0, cap=0.0)


@dataclass
class Order:
    id: int
    note: str = ""


class Parcel(msgspec.Struct):
    id: int


class Letter(pydantic.BaseModel):
    id: int


# --- Kinds ------------------------------------------------------------------------------------------------------------


@pytest.mark.covers("X26")
async def test_async_and_def_handlers_get_their_message(lab: Lab) -> None:
    app, seen = lab.app(), []

    @app.handler("order.placed", name="async")
    async def one(order: dict) -> None:
        seen.append(("async", order["id"]))

    @app.handler("order.placed", name="suspends")
    async def two(order: dict) -> None:
        await asyncio.sleep(0)
        seen.append(("suspends", order["id"]))

    @app.handler("order.placed", name="def")
    def three(order: dict) -> None:
        seen.append(("def", order["id"]))

    async with lab.working(app):
        for number in range(5):
            await app.apublish("order.placed", {"id": number})
        await settled(lab)
    assert sorted(seen) == [(kind, number) for kind in ("async", "def", "suspends") for number in range(5)]


async def test_bodies_are_what_the_annotation_says(lab: Lab) -> None:
    app, seen = lab.app(), []

    @app.handler("a", name="dataclass")
    async def one(order: Order) -> None:
        seen.append(order)

    @app.handler("a", name="struct")
    def two(parcel: Parcel) -> None:
        seen.append(parcel)

    @app.handler("a", name="model")
    async def three(letter: Letter) -> None:
        seen.append(letter)

    @app.handler("a", name="nothing")
    async def four() -> None:
        seen.append("nothing")

    @app.handler("a", name="only context")
    async def five(ctx: Context) -> None:
        seen.append(ctx.queue)

    async with lab.working(app):
        await app.apublish("a", {"id": 1})
        await settled(lab)
    assert sorted(map(repr, seen)) == sorted(
        map(repr, [Order(1), Parcel(1), Letter(id=1), "nothing", "only context"])
    )


async def test_the_context_knows_the_message(lab: Lab) -> None:
    app, seen = lab.app(), []
    deadline = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)

    @app.handler("order.placed")
    async def receipt(order: dict, ctx: Context) -> None:
        seen.append(
            (ctx.id, ctx.type, ctx.stream, ctx.subject, ctx.queue, ctx.attempt, ctx.headers, ctx.deadline)
        )
        assert ctx.idempotency_key == f"{ctx.id}:receipt"
        assert ctx.fence.endswith(".1")
        assert ctx.created_at.tzinfo is not None

    async with lab.working(app):
        sent = await app.apublish(
            "order.placed", {}, stream="s", subject="me", headers={"trace": "t"}, deadline=deadline
        )
        await settled(lab)
    assert seen == [(sent.id, "order.placed", "s", "me", "receipt", 1, {"trace": "t"}, deadline)]


async def test_a_batch_handler_gets_many_at_once(lab: Lab) -> None:
    app, calls = lab.app(), []

    @app.handler("a", batch=10)
    async def many(bodies: list[Order], contexts: list[Context]) -> None:
        assert [body.id for body in bodies] == [int(ctx.subject or 0) for ctx in contexts]
        calls.append(len(bodies))

    app.publish_many(app.message("a", {"id": n}, subject=str(n)) for n in range(25))
    async with lab.working(app):
        await settled(lab)
    assert sum(calls) == 25
    assert max(calls) == 10


async def test_a_batch_handler_keeps_the_order_of_each_stream(lab: Lab) -> None:
    app, seen = lab.app(), []

    @app.handler("a", batch=4)
    def many(bodies: list[dict]) -> None:
        streams = [body["stream"] for body in bodies]
        assert len(set(streams)) == len(streams), "two messages of a stream at once"
        seen.extend((body["stream"], body["n"]) for body in bodies)

    app.publish_many(app.message("a", {"stream": s, "n": n}, stream=s) for n in range(6) for s in "abcd")
    async with lab.working(app):
        await settled(lab)
    for stream in "abcd":
        assert [n for s, n in seen if s == stream] == list(range(6))


@pytest.mark.covers("C7", "C25")
async def test_a_batch_handler_answers_for_each(lab: Lab) -> None:
    app = lab.app()

    @app.handler("a", batch=10, retry="patient")
    async def many(bodies: list[dict]) -> list[Any]:
        answers: dict[str, Any] = {
            "fine": None,
            "fails": ValueError("no"),
            "sleeps": Snooze(hours=1),
            "dies": Dead("never"),
        }
        return [answers[body["will"]] for body in bodies]

    for will in ("fine", "fails", "sleeps", "dies"):
        app.publish("a", {"will": will}, subject=will)
    async with lab.working(app):
        await app_has(lab, history=1, dead=1)
        failed, asleep = sorted(lab.rows("message"), key=lambda row: row.subject)
    assert [row.subject for row in lab.rows("history")] == ["fine"]
    assert [(row.subject, row.reason) for row in lab.rows("dead")] == [("dies", 3)]
    assert (failed.subject, failed.failures, failed.attempts) == ("fails", 1, 1)
    assert (asleep.subject, asleep.failures, asleep.attempts) == ("sleeps", 0, 0)


async def app_has(lab: Lab, **counts: int) -> None:
    from tests.worker.lab import auntil

    def there() -> bool:
        return all(len(lab.rows(table)) == count for table, count in counts.items())

    await auntil(there, lab.describe)


async def test_an_unreadable_body_of_a_batch_is_its_own_affair(lab: Lab) -> None:
    app, seen = lab.app(), []

    @app.handler("a", batch=10)
    async def many(orders: list[Order]) -> None:
        seen.extend(order.id for order in orders)

    app.publish("a", {"id": 1})
    app.publish("a", {"id": "x"})
    app.publish("a", {"id": 3})
    async with lab.working(app):
        await settled(lab)
    assert sorted(seen) == [1, 3]
    assert [(row.reason, row.failures) for row in lab.rows("dead")] == [(3, 1)]


async def test_each_message_has_variables_of_its_own(lab: Lab) -> None:
    """Handlers that never suspend share a task, but not what they set in it."""
    app, seen = lab.app(), []
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="clean")

    @app.handler("a")
    async def set_it(body: dict) -> None:
        seen.append(variable.get())
        variable.set("dirty")
        if body["n"] % 2:
            await asyncio.sleep(0)
            assert variable.get() == "dirty"

    app.publish_many(app.message("a", {"n": n}) for n in range(20))
    async with lab.working(app):
        await settled(lab)
    assert seen == ["clean"] * 20


@pytest.mark.parametrize("suspends", [False, True])
async def test_a_cancellation_inside_the_handler_is_its_failure(sqlite_lab: Lab, suspends: bool) -> None:
    lab, attempts = sqlite_lab, []
    app = lab.app()

    @app.handler("a", retry=at_once)
    async def awaits_something_cancelled(body: dict, ctx: Context) -> None:
        attempts.append(ctx.attempt)
        if suspends:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(future.cancel)
            await future
        raise asyncio.CancelledError

    @app.handler("b")
    async def other(body: dict) -> None:
        await asyncio.sleep(0)

    app.publish("a", {})
    app.publish("b", {})
    async with lab.working(app):
        await settled(lab)
    assert attempts == [1, 2, 3]
    assert [(row.reason, row.last_reason, row.failures) for row in lab.rows("dead")] == [(7, 99, 3)]


@pytest.mark.parametrize("kind", ["async", "def"])
async def test_leaving_the_interpreter_is_a_failure_of_the_handler(sqlite_lab: Lab, kind: str) -> None:
    lab, attempts = sqlite_lab, []
    app = lab.app()

    if kind == "async":

        @app.handler("a", retry=at_once)
        async def leaves(body: dict, ctx: Context) -> None:
            attempts.append(ctx.attempt)
            raise SystemExit(3)

    else:

        @app.handler("a", retry=at_once)
        def leaves_too(body: dict, ctx: Context) -> None:
            attempts.append(ctx.attempt)
            raise SystemExit(3)

    app.publish("a", {})
    async with lab.working(app):
        await settled(lab)
    assert attempts == [1, 2, 3]
    assert [row.last_reason for row in lab.rows("dead")] == [99]


async def test_a_def_that_returns_a_coroutine_is_told_so(sqlite_lab: Lab) -> None:
    lab = sqlite_lab
    app = lab.app()

    async def really(body: dict) -> None:
        raise AssertionError("nobody awaits this")

    @app.handler("a", retry=RetryPolicy(attempts_max=1))
    def pretends(body: dict) -> Any:
        return really(body)

    app.publish("a", {})
    async with lab.working(app):
        await settled(lab)
    assert "Make it async def" in lab.rows("dead")[0].errors[0]["text"]


def test_either_side_of_a_decorator_may_be_async(sqlite_lab: Lab) -> None:
    import functools

    app, seen = sqlite_lab.app(), []

    def logged(function: Any) -> Any:
        @functools.wraps(function)
        async def inner(body: dict) -> None:
            function(body)

        return inner

    @app.handler("a")
    @logged
    def plain(body: dict) -> None:
        seen.append(body)

    with app.testing() as t:
        app.publish("a", {"n": 1})
        t.drain(raises=False)
    assert seen == [{"n": 1}]


# --- Endings ----------------------------------------------------------------------------------------------------------


@pytest.mark.covers("V25")
async def test_a_body_of_another_shape_is_dead_at_once(lab: Lab) -> None:
    app = lab.app()

    @app.handler("a")
    async def order(order: Order) -> None:
        raise AssertionError("it must not be called")

    app.publish("a", {"id": "not a number", "note": "SECRET"})
    async with lab.working(app):
        await settled(lab)
    (dead,) = lab.rows("dead")
    assert (dead.reason, dead.last_reason, dead.attempts, dead.failures) == (3, 3, 1, 1)
    assert "SECRET" not in dead.errors[0]["text"]
    assert "SECRET" in dead.body


async def test_a_body_that_is_no_json_is_dead_at_once(lab: Lab) -> None:
    app = lab.app()

    @app.handler("a")
    async def order(order: dict) -> None:
        raise AssertionError("it must not be called")

    app.publish("a", {"id": 1})
    lab.query("update {message} set body = '{{broken'")
    async with lab.working(app):
        await settled(lab)
    assert [(row.reason, row.body) for row in lab.rows("dead")] == [(5, "{broken")]


@pytest.mark.parametrize("how", ["return", "raise"])
async def test_snooze_and_dead_are_returned_or_raised(lab: Lab, how: str) -> None:
    app, clock = lab.still()
    attempts: list[int] = []

    @app.handler("a")
    async def sleeps(body: dict, ctx: Context) -> Any:
        attempts.append(ctx.attempt)
        wish: Snooze | Dead = Snooze(minutes=5) if len(attempts) < 3 else Dead("no such customer")
        if how == "raise":
            raise wish
        return wish

    from holdfast.testing import Drained

    t = Drained(app, clock)
    app.publish("a", {})
    await t.adrain(raises=False)
    await t.adrain(raises=False)
    assert attempts == [1]
    (row,) = lab.rows("message")
    assert (row.attempts, row.failures, row.refunds) == (0, 0, 0)
    t.advance(minutes=4, seconds=59)
    await t.adrain(raises=False)
    assert attempts == [1]
    t.advance(seconds=1)
    await t.adrain(raises=False)
    t.advance(minutes=5)
    await t.adrain(raises=False)
    assert attempts == [1, 1, 1], "a snooze is no attempt"
    (dead,) = lab.rows("dead")
    assert (dead.reason, dead.errors[0]["text"]) == (3, "Dead: no such customer")


@pytest.mark.covers("X50")
async def test_emits_are_stored_with_the_settlement_or_not_at_all(lab: Lab) -> None:
    app, seen = lab.app(), []

    @app.handler("order.placed", retry=at_once)
    async def order(body: dict, ctx: Context) -> None:
        published = ctx.publish(
            "mail.wanted", {"attempt": ctx.attempt}, stream="mail", dedupe=f"m{ctx.attempt}"
        )
        assert not published.duplicate
        if ctx.attempt < 3:
            raise RuntimeError("not yet")

    @app.handler("mail.wanted")
    async def mail(body: dict) -> None:
        seen.append(body["attempt"])

    app.publish("order.placed", {})
    async with lab.working(app):
        await settled(lab)
    assert seen == [3]
    assert len(lab.rows("history")) == 2


@pytest.mark.covers("W72", "W73", "W69", "W70", "W71", "W9")
@pytest.mark.parametrize("kind", ["async", "def"])
async def test_steps_survive_failures_and_are_not_done_again(lab: Lab, kind: str) -> None:
    app, done = lab.app(), []

    def steps(ctx: Context) -> None:
        for step in ("charge", "ship", "thank"):
            if ctx.did(step):
                continue
            done.append((step, ctx.attempt))
            ctx.mark(step)
            if step != "thank":
                raise RuntimeError(f"crashed after {step}")

    options: dict[str, Any] = {"retry": at_once, "steps": ["charge", "ship", "thank"]}
    if kind == "async":

        @app.handler("a", name="work", **options)
        async def work(body: dict, ctx: Context) -> None:
            if ctx.attempt == 2:
                (row,) = lab.rows("message")
                assert row.status == Flag.STORED | Flag.FAILED | 1 << 3
                assert len(row.errors) == 1
            steps(ctx)

    else:

        @app.handler("a", name="work", **options)
        def work_too(body: dict, ctx: Context) -> None:
            steps(ctx)

    app.publish("a", {})
    async with lab.working(app):
        await settled(lab)
    assert done == [("charge", 1), ("ship", 2), ("thank", 3)]
    (told,) = lab.rows("history")
    assert told.status & (1 << 3 | 1 << 4 | 1 << 5) == 1 << 3 | 1 << 4 | 1 << 5
    assert told.status & Flag.PUBLISHED


async def test_a_step_that_was_not_declared_is_refused(sqlite_lab: Lab) -> None:
    app = sqlite_lab.app()

    @app.handler("a", steps=["charge"], retry=RetryPolicy(attempts_max=1))
    async def work(body: dict, ctx: Context) -> None:
        with pytest.raises(UsageError, match=r"declared: charge"):
            ctx.did("shop")
        ctx.mark("ship")

    with app.testing() as t:
        app.publish("a", {})
        await t.adrain(raises=False)
        (dead,) = app.operations.dead.list()
        assert "has no step 'ship'" in dead.errors[0].text if hasattr(dead, "errors") else True


# --- What the log says ------------------------------------------------------------------------------------------------


@pytest.mark.covers("C27", "C28", "X38", "C2")
async def test_the_log_names_the_message_and_never_its_body(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    app = lab.app()
    caplog.set_level(logging.INFO, "holdfast")

    @app.handler("a", retry=at_once)
    async def fails(body: dict, ctx: Context) -> None:
        raise ValueError(f"cannot handle {body['card']}")

    sent = app.publish("a", {"card": "4111-SECRET"})
    async with lab.working(app):
        await settled(lab)
    handling = [r for r in caplog.records if r.levelno == logging.INFO and str(sent.id) in r.getMessage()]
    failing = [r for r in caplog.records if r.levelno >= logging.WARNING and str(sent.id) in r.getMessage()]
    assert len(handling) == 3
    assert ["at attempt 1" in failing[0].getMessage(), "at attempt 2" in failing[1].getMessage()] == [
        True,
        True,
    ]
    assert "after attempt 3" in failing[2].getMessage()
    assert "ValueError" in failing[0].getMessage()
    assert "SECRET" not in caplog.text


# --- Declarations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"per_key": 1}, "per_key needs key"),
        ({"per_key": 0, "key": "stream"}, "per_key=0 must be positive"),
        ({"key": "shape"}, 'must be "stream", "subject" or a function'),
        ({"timeout": 0.0}, "timeout=0.0 must be positive"),
        ({"concurrency": 0}, "concurrency=0 must be positive"),
        ({"batch": -1}, "batch=-1 must be positive"),
        ({"batch": 5}, "called with a list"),
        ({"steps": ["a", "a"]}, "different names"),
        ({"steps": [str(n) for n in range(13)]}, "at most 12"),
        ({"order": "loose"}, "must be"),
        ({"retry": "never"}, "no retry profile"),
    ],
)
def test_a_mistake_is_told_when_the_handler_is_declared(sqlite_lab: Lab, options: Any, why: str) -> None:
    app = sqlite_lab.app()
    with pytest.raises(InvalidSettings, match=why):

        @app.handler("a", **options)
        async def handler(body: dict) -> None: ...


def test_contexts_of_a_batch_are_a_list(sqlite_lab: Lab) -> None:
    app = sqlite_lab.app()
    with pytest.raises(InvalidSettings, match=r"annotate 'ctx' as list\[Context\]"):

        @app.handler("a", batch=5)
        async def many(bodies: list[dict], ctx: Context) -> None: ...

    with pytest.raises(InvalidSettings, match="annotate 'ctx' as Context"):

        @app.handler("a")
        async def one(body: dict, ctx: list[Context]) -> None: ...


def test_reasons_can_be_declared(sqlite_lab: Lab) -> None:
    app = sqlite_lab.app()

    @app.handler("a", errors={KeyError: Reason.VALIDATION_FAILURE})
    async def fails(body: dict) -> None:
        raise KeyError("SKU")

    with app.testing() as t:
        app.publish("a", {})
        t.drain(raises=False)
        assert [letter.reason for letter in app.operations.dead.list()] == [3]
