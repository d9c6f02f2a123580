"""Orchestrations on the real engine, on both databases: turns, activities, timers, signals, and their one commit."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    ActivityFailed,
    Context,
    Flow,
    Holdfast,
    InstanceExists,
    InvalidMessage,
    InvalidSettings,
    NotFound,
    OrchestrationFailed,
    Reason,
    RetryPolicy,
    UsageError,
)
from holdfast.bodies.keys import new_key
from holdfast.orchestrations import REFUSALS
from tests.orchestrations.shop import ONCE, CardDeclined, Shop


def waiting(shop: Shop) -> Any:
    """An orchestration with an activity, a timer and a signal."""
    double = shop.double

    @shop.app.orchestration(version="2")
    async def fulfil(n: int, flow: Flow) -> int:
        first = await double(n)
        flow.status = {"doubled": first}
        await asyncio.sleep(60)
        more: int = await flow.signal("go", int)
        return first + more + sum(await asyncio.gather(*(double(i) for i in range(3))))

    return fulfil


def test_activities_timers_and_signals_by_queue(shop: Shop) -> None:
    fulfil = waiting(shop)
    assert shop.of.start(fulfil, 4, id="order-1") == "order-1"
    shop.drain()
    status = shop.of.status("order-1")
    assert (status.orchestration, status.version, status.state) == ("fulfil", "2", "running")
    assert status.status == {"doubled": 8}
    shop.advance(seconds=59)
    shop.of.signal("order-1", "go", 100)
    shop.drain()
    assert shop.did == [4]
    shop.advance(seconds=2)
    assert shop.of.result("order-1") == 8 + 100 + 6
    assert sorted(shop.did) == [0, 1, 2, 4]
    assert shop.query("select count(*) from {pending}") == [(0,)]
    turns = [turn for (turn,) in shop.query("select turn from {journal} order by turn")]
    assert turns == list(range(1, len(turns) + 1))


def test_an_instance_that_is_forgotten_after_each_turn_ends_the_same(shop: Shop) -> None:
    fulfil = waiting(shop)
    shop.of.place.memory.forgets = True
    shop.of.start(fulfil, 4, id="order-1")
    shop.drain()
    shop.of.signal("order-1", "go", 100)
    shop.advance(seconds=61)
    assert shop.of.result("order-1") == 114
    assert sorted(shop.did) == [0, 1, 2, 4]


def test_start_and_signal_live_and_die_with_the_callers_transaction(shop: Shop) -> None:
    fulfil = waiting(shop)
    shop.app.prepare()
    with shop.connection() as db:
        db.execute("begin") if isinstance(db, sqlite3.Connection) else None
        shop.of.start(fulfil, 4, id="gone", on=db)
        db.rollback()
    with pytest.raises(NotFound):
        shop.of.status("gone")
    assert shop.query("select count(*) from {pending}") == [(0,)]
    with shop.connection() as db:
        db.execute("begin") if isinstance(db, sqlite3.Connection) else None
        shop.of.start(fulfil, 4, id="kept", on=db)
        shop.of.signal("kept", "go", 1, on=db)
        db.commit()
    shop.drain()
    shop.advance(seconds=61)
    assert shop.of.result("kept") == 8 + 1 + 6


def test_an_id_is_started_once(shop: Shop) -> None:
    fulfil = waiting(shop)
    shop.of.start(fulfil, 1, id="order-1")
    with pytest.raises(InstanceExists, match="order-1"):
        shop.of.start(fulfil, 2, id="order-1")
    shop.drain()
    assert shop.did == [1]


def test_signals_before_the_start_come_in_their_order(shop: Shop) -> None:
    @shop.app.orchestration()
    async def collect(flow: Flow) -> list[int]:
        return [await flow.signal("word", int) for _ in range(3)]

    for n in range(3):
        shop.of.signal("later", "word", n)
    shop.drain()
    shop.of.start(collect, id="later")
    shop.drain()
    shop.advance(seconds=2)
    assert shop.of.result("later") == [0, 1, 2]


def test_a_failure_without_a_text_keeps_its_type(shop: Shop) -> None:
    @shop.app.activity(retry=ONCE, returns={"CardDeclined": CardDeclined})
    async def refuse(kind: str) -> None:
        raise {"declared": CardDeclined, "memory": MemoryError, "value": ValueError}[kind]()

    @shop.app.orchestration()
    async def careful() -> list[str]:
        seen = []
        for kind in ("declared", "memory", "value"):
            try:
                await refuse(kind)
            except CardDeclined as error:
                seen.append(f"ours {error.args}")
            except ActivityFailed as error:
                seen.append(f"{error.error.type} {error.error.text!r}")
        return seen

    shop.of.start(careful, id="c")
    shop.drain()
    assert shop.of.result("c") == ["ours ()", "MemoryError ''", "ValueError ''"]


def test_a_cancellation_whose_reason_cannot_be_stored_as_given_undoes_the_effects_all_the_same(
    shop: Shop,
) -> None:
    """A reason that is no text made a message that nobody can read: the instance was poison, and nothing was undone."""
    double = shop.double

    @shop.app.orchestration()
    async def careful(flow: Flow) -> None:
        async with flow.saga() as undo:
            undo(double, 1)
            await flow.signal("never")

    reasons: list[Any] = [None, "a\ud800b", "x" * 2_000_000]
    for n, why in enumerate(reasons):
        shop.of.start(careful, id=f"c{n}")
        shop.drain()
        shop.of.cancel(f"c{n}", why)
    shop.of.start(careful, id="other")
    with pytest.raises(UsageError, match="must be text and is a int"):
        shop.of.cancel("other", 5)
    shop.drain()
    assert [shop.of.status(f"c{n}").state for n in range(len(reasons))] == ["cancelled"] * len(reasons)
    assert shop.did == [1] * len(reasons)
    assert shop.of.status("other").state == "running"


@pytest.mark.parametrize("id", ["", "a\0b", "\ud800", "nobody"])
def test_an_id_that_nobody_can_have_is_not_found(shop: Shop, id: str) -> None:
    for ask in (shop.of.status, shop.of.result):
        with pytest.raises(NotFound, match="no instance"):
            ask(id)
    with pytest.raises(UsageError, match="not the id of a message"):
        shop.app.operations.why(id)


def test_the_code_of_an_orchestration_cannot_call_its_application(shop: Shop) -> None:
    """What it published was stored once more by each replay. An activity or flow.once may."""
    app, got, double = shop.app, shop.did, shop.double

    @app.handler("note")
    def note(text: str) -> None:
        got.append(text)

    @app.orchestration()
    async def publishes(way: str, flow: Flow) -> str:
        match way:
            case "publish":
                app.publish("note", way)
            case "start":
                app.orchestrations.start(other)
            case "read":
                app.orchestrations.status(flow.id)
            case "once":
                flow.once(lambda: str(app.publish("note", way).id))
        await double(1)
        return "ended"

    @app.orchestration()
    async def other() -> None: ...

    for way in ("publish", "start", "read", "once"):
        shop.of.start(publishes, way, id=way)
    shop.drain()
    for way in ("publish", "start", "read"):
        with pytest.raises(OrchestrationFailed, match="A call of the application"):
            shop.of.result(way)
    assert shop.of.result("once") == "ended"
    assert sorted(got, key=str) == [1, "once"]


def test_a_declaration_without_parentheses_and_a_start_by_name_are_explained(shop: Shop) -> None:
    app: Any = shop.app

    async def fulfil() -> None: ...

    for decorator in ("activity", "orchestration"):
        with pytest.raises(InvalidSettings, match=rf"without parentheses: write @app\.{decorator}\(\)"):
            getattr(app, decorator)(fulfil)
    for wrong in ("fulfil", fulfil, None):
        with pytest.raises(UsageError, match=r"Nothing was started: .* is no orchestration"):
            app.orchestrations.start(wrong, 1)


def test_times_that_no_clock_reaches_are_refused(shop: Shop) -> None:
    @shop.app.orchestration()
    async def waits(flow: Flow) -> None:
        await flow.signal("never")

    with pytest.raises(UsageError, match="ends after the year 9999"):
        shop.of.start(waits, id="w", deadline=timedelta.max)
    shop.of.start(waits, id="w")
    with pytest.raises(UsageError, match="not a number"):
        shop.of.result("w", timeout=float("nan"))


def test_a_result_that_is_not_of_its_declared_type_is_explained(shop: Shop) -> None:
    @shop.app.orchestration()
    async def wrong() -> str:
        return 2**70 + 1  # type: ignore[return-value]

    shop.of.start(wrong, id="w")
    shop.drain()
    with pytest.raises(InvalidMessage, match="Instance 'w' is completed, and its result cannot be read"):
        shop.of.result("w")
    del shop.of.declared["wrong@1"]  # as in a program that only asks for results
    assert shop.of.result("w") == 2**70 + 1


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 1e300])
def test_a_timer_that_is_never_due_is_refused_by_name(shop: Shop, seconds: float) -> None:
    @shop.app.orchestration()
    async def sleeper() -> None:
        await asyncio.sleep(seconds)

    shop.of.start(sleeper, id="s")
    shop.drain()
    with pytest.raises(OrchestrationFailed, match="UsageError: A timer was asked for that is never due"):
        shop.of.result("s")


@pytest.mark.covers("D45")
def test_failures_of_activities_reach_the_code(shop: Shop) -> None:
    decline, dies = shop.decline, shop.dies

    @shop.app.orchestration()
    async def careful() -> list[str]:
        told = []
        try:
            await decline("limit")
        except CardDeclined as error:
            told.append(str(error))
        try:
            await dies()
        except ActivityFailed as error:
            told.append(error.error.text)
        return told

    shop.of.start(careful, id="c")
    shop.drain()
    assert shop.of.result("c") == ["limit", "no such customer"]
    assert shop.query("select count(*) from {dead}") == [(2,)]


@pytest.mark.parametrize("order", ["cancel", "poison", "drop"])
def test_an_operator_who_ends_a_call_answers_it(shop: Shop, order: str) -> None:
    double = shop.double

    @shop.app.orchestration()
    async def calls() -> str:
        try:
            await double(1)
        except ActivityFailed as error:
            return error.error.text
        return "answered"

    shop.of.start(calls, id="c")
    shop.app.prepare()
    shop.drain("calls@1")
    ((id,),) = shop.query("select id from {message} where queue = 'double'")
    operations = shop.app.operations
    if order == "cancel":
        operations.messages.cancel(id)
    elif order == "poison":
        operations.messages.poison(id, "by hand")
    else:
        operations.queues.drop("double", force=True)
    shop.drain()
    assert shop.did == []
    assert shop.of.result("c") != "answered"


def test_a_failed_or_cancelled_orchestration_raises_its_failure(shop: Shop) -> None:
    @shop.app.orchestration()
    async def fails() -> None:
        raise ValueError("no stock")

    @shop.app.orchestration()
    async def sleeps() -> None:
        await asyncio.sleep(1000)

    shop.of.start(fails, id="f")
    shop.of.start(sleeps, id="s")
    shop.drain()
    with pytest.raises(OrchestrationFailed, match="no stock"):
        shop.of.result("f")
    with pytest.raises(TimeoutError):
        shop.of.result("s")
    shop.of.cancel("s", "changed my mind")
    shop.drain()
    assert shop.of.status("s").state == "cancelled"
    with pytest.raises(OrchestrationFailed):
        shop.of.result("s")
    with pytest.raises(UsageError, match="cancelled"):
        shop.of.signal("s", "go")
    # The timer that it no longer waits for is gone, and does not come late.
    assert shop.query("select count(*) from {pending}") == [(0,)]


def test_a_turn_that_is_not_the_next_one_is_refused(shop: Shop) -> None:
    """The fence: somebody else has stored a turn meanwhile. Nothing of ours is stored beside it."""
    double = shop.double

    @shop.app.orchestration(max_attempts=1)
    async def steps() -> int:
        return await double(await double(1))

    shop.of.start(steps, id="s")
    shop.app.prepare()
    memory = shop.of.place.memory
    take = memory.take

    def meanwhile(id: str, stand: Any) -> Any:
        shop.execute(f"update {shop.prefix}instance set turn = turn + 1 where id = 's'")
        return take(id, stand)

    memory.take = meanwhile
    shop.drain("steps@1")
    ((body,),) = shop.query("select body from {journal}")  # that it is poison, and nothing of its code
    assert "entries" not in json.loads(body)
    assert shop.query("select count(*) from {pending}") == [(0,)]
    ((id,),) = shop.query("select id from {dead}")
    assert any("dead letter" in each and str(id) in each for each in shop.app.operations.why("s"))
    assert shop.of.status("s").state == "failed"


def test_another_workers_turn_makes_what_is_in_memory_stale(shop: Shop) -> None:
    """Two applications on one database take turns; flow.once is recorded by one and must not differ in the other."""
    other = Shop(shop.url)
    ran: list[int] = []

    def declare(number: int, each: Shop) -> Any:
        @each.app.orchestration()
        async def rolls(flow: Flow) -> list[int]:
            found = []
            for n in range(4):
                found.append(flow.once(lambda: ran.append(number) or 10 * len(ran), name=f"roll{n}"))
                await flow.signal("next", int)
            return found

        return rolls

    made = [declare(number, each) for number, each in enumerate((shop, other))]
    shop.of.start(made[0], id="r")
    for n in range(4):
        (shop, other)[n % 2].drain()
        shop.of.signal("r", "next", n)
    shop.drain()
    assert shop.of.result("r") == [10, 20, 30, 40]
    assert ran == [0, 1, 0, 1]
    other.forget()
    other.app.close()


def test_a_turn_that_another_stored_in_our_place_is_read_from_the_journal(shop: Shop) -> None:
    """Our settlement was lost, and another worker ran the same turn: its side effect gave another value."""

    @shop.app.orchestration()
    async def rolls(flow: Flow) -> int:
        rolled = flow.once(lambda: 123456, name="roll")
        await flow.signal("next", int)
        return rolled

    shop.of.start(rolls, id="r")
    shop.drain()
    shop.execute(f"update {shop.prefix}journal set body = replace(body, '123456', '654321')")
    shop.execute(f"update {shop.prefix}instance set mark = '00000000-0000-0000-0000-000000000001'")
    shop.of.signal("r", "next", 0)
    shop.drain()
    assert shop.of.result("r") == 654321


def test_an_activity_answers_inside_its_own_transaction(shop: Shop) -> None:
    shop.execute("create table effect (n integer not null)")

    @shop.app.activity()
    def write(n: int, ctx: Context) -> int | None:
        with ctx.transaction() as db:
            db.execute(f"insert into effect values ({n})")
            if n != 7:
                ctx.answer(n + 1)
        return None

    @shop.app.orchestration()
    async def writes(n: int) -> int:
        return await write(n) or 0

    shop.of.start(writes, 1, id="w")
    shop.of.start(writes, 7, id="unanswered")
    shop.drain()
    assert shop.of.result("w") == 2
    assert shop.of.status("unanswered").state == "running"
    with shop.connection() as db:
        assert [tuple(row) for row in db.execute("select n from effect").fetchall()] == [(1,)]
    shop.execute("drop table effect")
    ((error,),) = shop.query("select errors from {message} where queue = 'write'")
    assert "ctx.answer" in str(error)


def test_children_answer_their_parent_and_a_taken_id_fails_the_call(shop: Shop) -> None:
    double = shop.double

    @shop.app.orchestration()
    async def child(n: int) -> int:
        return await double(n)

    @shop.app.orchestration()
    async def parent(flow: Flow) -> list[Any]:
        found: list[Any] = [await child(5), await child.using(id="named")(6)]
        try:
            await child.using(id="named")(7)
        except OrchestrationFailed as error:
            found.append(error.error.type)
        return found

    shop.of.start(parent, id="p")
    shop.drain()
    assert shop.of.result("p") == [10, 12, "IdTaken"]
    assert shop.of.result("named") == 12


def test_continue_as_new_begins_the_next_execution_with_an_empty_journal(shop: Shop) -> None:
    double = shop.double

    @shop.app.orchestration()
    async def counts(n: int, flow: Flow) -> int:
        await double(n)
        if n < 3:
            flow.again(n + 1)
        return n

    shop.of.start(counts, 1, id="c")
    shop.drain()
    assert shop.of.result("c") == 3
    assert shop.did == [1, 2, 3]
    assert shop.of.status("c").execution == 2


@pytest.mark.covers("D37")
def test_one_call_has_its_own_retries(shop: Shop) -> None:
    tried: list[str] = []

    @shop.app.activity(retry=RetryPolicy(attempts_max=4, base=1, factor=1))
    async def flaky(who: str) -> None:
        tried.append(who)
        raise ValueError(who)

    @shop.app.orchestration()
    async def calls() -> list[str]:
        found = await asyncio.gather(
            flaky("declared"),
            flaky.using(retry=RetryPolicy(attempts_max=2, base=60, cap=60, factor=1))("own"),
            flaky.using(retry=ONCE)("once"),
            return_exceptions=True,
        )
        return [str(each) for each in found]

    shop.of.start(calls, id="c")
    shop.drain()
    assert sorted(tried) == ["declared", "once", "own"]
    for _ in range(5):
        shop.advance(seconds=2)
    assert sorted(tried) == ["declared"] * 4 + ["once", "own"]
    assert shop.of.status("c").state == "running"
    shop.advance(seconds=60)
    assert tried.count("own") == 2
    assert len(shop.of.result("c")) == 3


def test_one_call_has_its_own_timeout(url: str) -> None:
    app = Holdfast(url)

    @app.activity(retry=ONCE)
    async def slow(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "whole"

    @app.orchestration()
    async def hurries() -> list[Any]:
        found = await asyncio.gather(
            slow.using(timeout=0.05)(60), slow.using(timeout=200)(0.01), slow(0.01), return_exceptions=True
        )
        return [each if isinstance(each, str) else each.error.text for each in found]  # type: ignore[union-attr]

    app.orchestrations.start(hurries, id="h")
    app.prepare()

    async def run() -> None:
        await app.worker(until_idle=True).run()
        await app.store.aclose()

    asyncio.run(run())
    assert app.orchestrations.result("h") == ["the handler ran longer than 0.05 s.", "whole", "whole"]
    app.orchestrations.place.memory.forget()
    app.close()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"timeout": 0}, "positive number"),
        ({"timeout": float("inf")}, "positive number"),
        ({"retry": "eager"}, "eager"),
        ({"queue": "a@b"}, "@"),
        ({"deadline": datetime(2040, 1, 1)}, "time zone"),
    ],
)
@pytest.mark.one_postgres
def test_options_that_no_call_can_have_are_refused(shop: Shop, options: Any, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        shop.double.using(**options)


def test_what_is_stored_is_sealed_with_keys(url: str) -> None:
    shop = Shop(url, {"keys": [new_key("k1")]})

    @shop.app.orchestration()
    async def secret(word: str, flow: Flow) -> str:
        flow.status = f"status-{word}"
        said: str = await flow.signal("word", str)
        await asyncio.sleep(5)
        return f"{word}-{said}"

    shop.of.start(secret, "hush", id="s")
    shop.of.signal("s", "word", "mum")
    shop.drain()
    texts = str(shop.query("select body from {pending}") + shop.query("select body from {journal}"))
    texts += str(shop.query("select status from {instance}"))
    assert "hush" not in texts
    assert "mum" not in texts
    assert "sealed" in texts
    shop.forget()
    shop.advance(seconds=6)
    assert "hush" not in str(shop.query("select result, status from {instance}"))
    assert shop.of.result("s") == "hush-mum"
    assert shop.of.status("s").status == "status-hush"
    shop.forget()
    shop.app.close()


@pytest.mark.covers("D5", "D54")
def test_a_turn_that_fails_each_time_stops_its_instance_and_no_other(shop: Shop) -> None:
    double = shop.double

    @shop.app.orchestration(max_attempts=2)
    async def circles(n: int) -> int:
        while n == 13:  # noqa: ASYNC110
            await asyncio.sleep(0)
        return await double(n)

    shop.of.start(circles, 13, id="bad")
    shop.of.start(circles, 1, id="good")
    shop.drain()
    shop.advance(seconds=10)
    assert shop.of.result("good") == 2
    assert shop.of.status("bad").state == "failed"
    told = shop.app.operations.why("bad")
    assert any("dead letter" in each for each in told)
    assert shop.query("select count(*) from {dead}") == [(1,)]


def test_a_journal_that_cannot_be_read_stops_its_instance_at_once(shop: Shop) -> None:
    double = shop.double

    @shop.app.orchestration()
    async def steps() -> int:
        return await double(await double(1))

    shop.of.start(steps, id="s")
    shop.app.prepare()
    shop.drain("steps@1")
    shop.forget()
    shop.execute(f"update {shop.prefix}journal set body = 'no JSON'")
    shop.drain()
    ((reason, attempts),) = shop.query("select reason, attempts from {dead}")
    assert (reason, attempts) == (Reason.SERIALIZATION_ERROR, 1)
    assert any("cannot be read" in each for each in shop.app.operations.why("s"))
    assert shop.of.status("s").state == "failed"


def test_why_follows_the_chain(shop: Shop) -> None:
    double = shop.double

    @shop.app.orchestration()
    async def waits() -> None:
        await asyncio.gather(double(1), asyncio.sleep(timedelta(days=1).total_seconds()))

    shop.of.start(waits, id="w")
    shop.app.prepare()
    shop.drain("waits@1")
    told = " ".join(shop.app.operations.why("w"))
    assert "double#" in told
    assert "no live worker takes from queue double" in told
    assert "timer until 2026-01-02 00:00:00 UTC" in told


def test_why_of_an_instance_that_failed_has_its_error(shop: Shop) -> None:
    decline = shop.decline

    @shop.app.orchestration()
    async def fails() -> None:
        await decline("limit")

    @shop.app.orchestration()
    async def waits(flow: Flow) -> None:
        await flow.signal("never")

    shop.of.start(fails, id="f")
    shop.of.start(waits, id="w")
    shop.drain()
    shop.of.cancel("w", "nobody wants it")
    shop.drain()
    assert shop.app.operations.why("f")[1:] == ["Its error: CardDeclined: limit"]
    assert shop.app.operations.why("w")[1:] == ["Its error: Cancelled: the orchestration was cancelled."]


@pytest.mark.covers("X10", "D37")
def test_turns_and_activities_have_five_attempts_unless_told_otherwise(shop: Shop) -> None:
    @shop.app.activity(retry=RetryPolicy(attempts_max=7))
    async def patient() -> None: ...

    @shop.app.orchestration()
    async def plain() -> None: ...

    @shop.app.orchestration(max_attempts=2)
    async def hasty() -> None: ...

    allowed = {each.queue: each.policy.retry.attempts_max for each in shop.app.handlers}
    assert (allowed["double"], allowed["plain@1"]) == (5, 5)
    assert (allowed["patient"], allowed["hasty@1"]) == (7, 2)


def test_the_first_program_of_the_page_has_15_lines() -> None:
    page = (Path(__file__).parents[2] / "docs" / "orchestrations.md").read_text()
    first = page.split("```python run\n")[1].split("```")[0]
    assert len([line for line in first.splitlines() if line.strip()]) <= 15


def test_the_page_names_what_is_refused() -> None:
    page = (Path(__file__).parents[2] / "docs" / "orchestrations.md").read_text()
    table = page.partition("<!-- refusals -->\n")[2].partition("<!-- end -->")[0]
    rows = [f"| {each.what} | {each.why} | {each.instead} |" for each in REFUSALS]
    assert table.splitlines() == ["| not | why | instead |", "|---|---|---|", *rows]


def test_the_test_helper_fakes_activities_and_always_replays() -> None:
    app = Holdfast("sqlite:///:memory:")

    @app.activity()
    async def charge(cents: int) -> str:
        raise AssertionError("a real call")

    @app.orchestration()
    async def buy(cents: int, flow: Flow) -> str:
        receipt = await charge(cents)
        await asyncio.sleep(3600)
        return receipt

    with app.testing() as t:
        t.fake(charge, lambda cents: f"receipt-{cents}")
        app.orchestrations.start(buy, 5, id="b")
        t.drain()
        assert len(app.orchestrations.place.memory.cache) == 0
        t.forget()
        t.advance(hours=2)
        t.drain()
        assert app.orchestrations.result("b") == "receipt-5"
        t.fake(charge, ValueError("declined"))
        app.orchestrations.start(buy, 6, id="c")
        t.drain(raises=False)
        assert app.orchestrations.status("c").state == "running"  # the activity is tried again
    app.close()
