"""What operators see of instances and do to them, on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Flow, Holdfast, NotEnded, NotFound, OrchestrationFailed, Refused, UsageError
from holdfast.bodies.keys import new_key
from holdfast.operations import orchestrations
from holdfast.store.statement import Statement
from tests.orchestrations.shop import Shop, opened
from tests.worker.lab import auntil


@pytest.fixture
def shop(url: str) -> Iterator[Shop]:
    with opened(url) as shop:
        yield shop


def declared(shop: Shop) -> Any:
    double = shop.double

    @shop.app.orchestration(version="2")
    async def fulfil(n: int, flow: Flow) -> int:
        flow.status = {"step": "doubling", "n": n}
        first = await double(n)
        flow.status = {"step": "waiting", "n": n}
        return first + await flow.signal("go", int)

    @shop.app.orchestration(version="1", name="fulfil")
    async def older(n: int) -> int:
        raise ValueError(f"no {n}")

    @shop.app.orchestration(version="2", name="fulfilment")
    async def longer_name(n: int) -> int:
        return n

    return fulfil, older, longer_name


def test_instances_are_listed_and_filtered(shop: Shop) -> None:
    fulfil, older, longer = declared(shop)
    for n in range(3):
        shop.of.start(fulfil, n, id=f"new-{n}", attributes={"customer": str(n), "land": "de"})
        shop.clock.advance(seconds=1)
    shop.of.start(older, 7, id="old")
    shop.of.start(longer, 7, id="long")
    shop.drain()
    shop.clock.advance(seconds=1)
    shop.of.signal("new-2", "go", 1)
    shop.drain()
    looking = shop.app.operations.orchestrations

    def ids(**wanted: Any) -> set[str]:
        return {each.id for each in looking.list(**wanted)}

    assert looking.list()[0].id == "new-2"  # it moved last
    assert ids(name="fulfil") == {"new-0", "new-1", "new-2", "old"}
    assert ids(name="fulfil", version="2") == {"new-0", "new-1", "new-2"}
    assert ids(version="2") == {"new-0", "new-1", "new-2", "long"}
    assert ids(version="") == set()
    assert ids(state="failed") == {"old"}
    assert ids(is_open=True) == {"new-0", "new-1"}
    assert ids(is_open=False) == {"new-2", "old", "long"}
    assert ids(status="waiting") == {"new-0", "new-1", "new-2"}
    assert ids(status='"n":1') == {"new-1"}
    assert ids(attributes={"customer": "1"}) == {"new-1"}
    assert ids(attributes={"customer": "1", "land": "fr"}) == set()
    assert ids(attributes={"land": "de"}, state="running") == {"new-0", "new-1"}
    assert len(looking.list(limit=2)) == 2
    found = looking.list(name="fulfil", version="2", is_open=True)[0]
    assert (found.status, found.attributes) == ({"step": "waiting", "n": 0}, {"customer": "0", "land": "de"})
    assert looking.names() == ["fulfil"]
    with pytest.raises(UsageError, match="no state 'dead'"):
        looking.list(state="dead")


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"a b": "x"}, "cannot be the name"),
        ({"": "x"}, "cannot be the name"),
        ({'a"': "x"}, "cannot be the name"),
        ({7: "x"}, "cannot be the name"),
        ({"a": 7}, "must be text"),
        ({"a": "x" * 201}, "201 characters"),
        ({"a": "x\n"}, "control character"),
        ({f"a{n}": "x" for n in range(21)}, "20 are allowed"),
    ],
)
@pytest.mark.one_postgres
def test_attributes_that_cannot_be_found_by_are_refused(shop: Shop, attributes: Any, text: str) -> None:
    fulfil, _, _ = declared(shop)
    with pytest.raises(UsageError, match=text):
        shop.of.start(fulfil, 1, id="x", attributes=attributes)
    with pytest.raises(NotFound):
        shop.of.status("x")


def test_steps_and_the_journal_say_what_happened_when(shop: Shop) -> None:
    double = shop.double

    @shop.app.orchestration()
    async def work(n: int, flow: Flow) -> int:
        done = await asyncio.gather(*(double(i) for i in range(5)))
        try:
            async with asyncio.timeout(60):
                await flow.signal("go")
        except TimeoutError:
            pass
        return sum(done) + await flow.signal("last", int)

    shop.of.start(work, 1, id="w")
    shop.drain("work@1")
    looking = shop.app.operations.orchestrations
    before = looking.show("w")
    assert [each.label for each in before.steps] == ["start", *(f"double#{n}" for n in range(1, 6))]
    assert {each.became for each in before.steps[1:]} == {"open"}
    (fan,) = before.fans
    assert (fan.name, fan.asked, fan.ended) == ("double", 5, 0)
    shop.drain()
    shop.advance(seconds=61)
    shop.of.signal("w", "last", 3)
    shop.drain()
    dossier = looking.show("w")
    steps = dossier.steps
    assert [each.label for each in steps][-4:] == ["double#5", "timer#6", "signal last", "completed"]
    timer = steps[-3]
    assert (timer.became, timer.until - timer.since) == ("fired", timedelta(seconds=60))  # type: ignore[operator]
    assert dossier.fans[0].answered == 5
    lines = looking.lines("w")
    assert lines[0].event == "started"
    assert lines[0].value == "1"
    assert lines[0].asked == tuple(f"activity double #{n}" for n in range(1, 6))
    assert [each.event for each in lines][-2:] == ["timer#6 fired", "signal last"]
    assert sorted(each.event for each in lines[1:6]) == [f"double#{n} answered" for n in range(1, 6)]
    assert lines[-1].asked == ("its end with a result",)
    with pytest.raises(NotFound, match="execution 4"):
        looking.show("w", execution=4)


def test_an_instance_is_named_by_its_end_or_its_beginning(shop: Shop) -> None:
    fulfil, _, _ = declared(shop)
    whole = shop.of.start(fulfil, 1)
    for id in ("order-17", "order-18", "order-1"):
        shop.of.start(fulfil, 1, id=id)
    named = shop.app.operations.orchestrations.named
    assert named(whole[-8:]) == whole
    assert named("order-1") == "order-1"  # its own id before the beginning of others
    assert named("order-17") == "order-17"
    with pytest.raises(UsageError, match="Several instances") as caught:
        named("orde")
    assert caught.value.details == ("order-1", "order-17", "order-18")
    for nothing in ("ord", "x" * 8, "-17", "%%%%"):
        with pytest.raises(NotFound, match="There is no instance"):
            named(nothing)


def test_an_operator_signals_cancels_and_reads_the_result(shop: Shop) -> None:
    fulfil, _, _ = declared(shop)
    by = shop.app.operations.by("anna").orchestrations
    assert "not started yet" in by.signal("early", "go", "5").what
    shop.of.start(fulfil, 1, id="early")
    shop.of.start(fulfil, 1, id="late")
    shop.drain()
    shop.advance(seconds=5)  # the early signal is passed on
    assert by.result("early") == 7
    with pytest.raises(NotEnded, match="has not ended yet"):
        by.result("late")
    with pytest.raises(TimeoutError):
        shop.of.result("late")
    assert by.cancel("late", why="the customer left").what == "asked to end"
    shop.drain()
    with pytest.raises(OrchestrationFailed, match="cancelled"):
        by.result("late")
    for order in (lambda: by.cancel("late"), lambda: by.signal("late", "go")):
        with pytest.raises(UsageError, match="is cancelled"):
            order()
    with pytest.raises(NotFound, match="no instance 'nobody'"):
        by.cancel("nobody")
    with pytest.raises(UsageError, match="not JSON"):
        by.signal("late", "go", "{")
    lines = shop.app.operations.audit(action="orchestrations")
    assert [(each.action, each.target, each.who, each.why) for each in lines] == [
        ("orchestrations.cancel", "late", "anna", "the customer left"),
        ("orchestrations.signal", "early", "anna", None),
    ]


def test_what_is_sealed_is_shown_only_on_request(url: str) -> None:
    shop = Shop(url, {"keys": [new_key("k1")]})
    fulfil, _, _ = declared(shop)
    shop.of.start(fulfil, 4711, id="s", attributes={"customer": "9"})
    shop.drain()
    looking = shop.app.operations.orchestrations
    assert {each.value for each in looking.lines("s")} == {None}
    assert looking.lines("s", reveal=True)[0].value == "4711"
    assert looking.list(status="waiting")[0].status == {"step": "waiting", "n": 4711}
    stranger = Shop(url)
    other = stranger.app.operations.orchestrations
    (found,) = other.list(attributes={"customer": "9"})
    assert (found.status, found.is_sealed) == (None, True)
    assert "sealed" in str(other.show("s").unread)
    for each in (shop, stranger):
        each.forget()
        each.app.close()


def test_a_check_replays_what_runs_against_the_code_here(shop: Shop, url: str) -> None:
    double = shop.double

    @shop.app.orchestration()
    async def ship(n: int, flow: Flow) -> int:
        first = await double(n)
        await flow.signal("go")
        return first

    @shop.app.orchestration(version="1", name="gone")
    async def gone(flow: Flow) -> None:
        await flow.signal("go")

    for n in range(3):
        shop.of.start(ship, n, id=f"s{n}")
    shop.of.start(gone, id="g")
    shop.of.start(ship, 9, id="done")
    shop.of.signal("done", "go")
    shop.drain()
    before = shop.query("select id, turn, state, trouble from {instance} order by id")
    here = shop.app.operations.orchestrations.check()
    assert (here.checked, here.fit, here.is_well) == (4, 4, True)

    new = Shop(url)

    @new.app.activity()
    async def weigh(n: int) -> int:
        raise AssertionError("a check runs no activity")

    @new.app.orchestration(name="ship")
    async def changed(n: int, flow: Flow) -> int:
        if n == 1:
            await weigh(n)
        first = await new.double(n)
        await flow.signal("go")
        return first

    found = new.app.operations.orchestrations.check()
    assert (found.checked, found.fit, found.is_well) == (4, 2, False)
    assert found.missing == {"gone@1": 1}
    (unfit,) = found.unfit
    assert unfit.id == "s1"
    assert "asks for activity weigh" in unfit.why
    assert unfit.diff[0] == "- activity double"
    assert unfit.diff[1].startswith("+ activity weigh   test_orchestrations.py:")
    only = new.app.operations.orchestrations.check(name="gone")
    assert (only.checked, only.missing) == (1, {"gone@1": 1})
    assert shop.query("select id, turn, state, trouble from {instance} order by id") == before
    assert new.did == []
    new.app.close()


@pytest.mark.covers("X58")
def test_status_names_versions_that_no_worker_has(shop: Shop) -> None:
    fulfil, _, _ = declared(shop)
    shop.of.start(fulfil, 1, id="f")
    shop.drain()  # its worker is gone
    found = {each.name: each for each in shop.app.operations.status().problems}
    told = found["version-without-worker"]
    assert told.text.startswith(
        "1 instance of orchestration fulfil has version 2, and no live worker has fulfil@2"
    )
    assert "--name fulfil -V 2 --open" in told.remedy
    assert "orphaned-queue" not in found
    assert "version-without-worker" in {each.name for each in shop.app.operations.doctor()}
    shop.of.signal("f", "go", 1)
    shop.drain()
    assert "version-without-worker" not in {each.name for each in shop.app.operations.status().problems}


def test_a_suspended_instance_does_nothing_and_loses_nothing(shop: Shop) -> None:
    double = shop.double

    @shop.app.orchestration()
    async def steps(flow: Flow) -> list[int]:
        return [await double(await flow.signal("n", int)) for _ in range(3)]

    shop.of.start(steps, id="s")
    shop.of.signal("s", "n", 1)
    shop.drain("steps@1")
    by = shop.app.operations.by("anna").orchestrations
    turn = shop.of.status("s").turn
    assert by.suspend("s", "the bank is closed").state == "suspended"
    shop.drain()  # the activity ends, its answer waits
    for n in (2, 3):
        shop.of.signal("s", "n", n)
    shop.drain()
    assert shop.did == [1]
    status = shop.of.status("s")
    assert (status.state, status.trouble, status.turn) == ("suspended", "the bank is closed", turn)
    told = " ".join(shop.app.operations.why("s"))
    assert "Suspended by an operator: the bank is closed. `holdfast orchestrations resume s`" in told
    with pytest.raises(UsageError, match="it is suspended"):
        by.suspend("s", "again")
    assert by.resume("s", why="open again").state == "running"
    with pytest.raises(UsageError, match="is running: there is nothing to resume"):
        by.resume("s")
    shop.advance(seconds=60)
    assert shop.of.result("s") == [2, 4, 6]
    assert shop.of.status("s").trouble is None
    lines = shop.app.operations.audit(action="orchestrations")
    assert [(each.action, each.why) for each in lines] == [
        ("orchestrations.resume", "open again"),
        ("orchestrations.suspend", "the bank is closed"),
    ]
    for order in (lambda: by.suspend("s", "late"), lambda: by.resume("s")):
        with pytest.raises(UsageError, match="is completed"):
            order()


def test_a_turn_that_runs_while_its_instance_is_suspended_is_stored(shop: Shop) -> None:
    double = shop.double

    def hold() -> None:
        shop.app.operations.orchestrations.suspend("h", "now")

    @shop.app.orchestration()
    async def held(flow: Flow) -> int:
        flow.once(hold)
        return await double(4)

    shop.of.start(held, id="h")
    shop.drain()
    assert shop.did == [4]  # the turn was stored with its call, and its answer waits
    status = shop.of.status("h")
    assert (status.state, status.turn, status.trouble) == ("suspended", 1, "now")
    shop.app.operations.orchestrations.resume("h")
    shop.advance(seconds=60)
    assert shop.of.result("h") == 8


def test_a_worker_without_a_version_leaves_it_alone(shop: Shop, url: str) -> None:
    fulfil, _, _ = declared(shop)
    shop.of.start(fulfil, 1, id="f")
    other = Shop(url)

    @other.app.orchestration(version="3", name="fulfil")
    async def newer(n: int) -> int:
        raise AssertionError("an instance keeps its version")

    other.drain()
    assert shop.query("select attempts, refunds from {message} where queue = 'fulfil@2'") == [(0, 0)]
    assert any("No live worker has fulfil@2" in each for each in other.app.operations.why("f"))
    shop.of.signal("f", "go", 1)
    shop.drain()
    assert shop.of.result("f") == 3
    other.forget()
    other.app.close()


def test_nothing_is_resumed_while_a_worker_has_its_message(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H34: that worker may have seen the old state, and would halt the stream of an instance that runs."""
    monkeypatch.setattr(orchestrations, "RESUMES", 1)
    monkeypatch.setattr(orchestrations, "LOOKS_EVERY", 0.0)
    seen: list[str] = []

    def during() -> None:
        of = shop.app.operations.orchestrations
        of.suspend("h", "now")
        with pytest.raises(Refused, match="is leased by"):
            of.resume("h")
        seen.append(shop.of.status("h").state)

    @shop.app.orchestration()
    async def held(flow: Flow) -> str:
        flow.once(during)
        return await flow.signal("go", str)

    shop.of.start(held, id="h")
    shop.drain()
    assert seen == ["suspended"]
    shop.app.operations.orchestrations.resume("h")
    shop.of.signal("h", "go", "on")
    shop.drain()
    assert shop.of.result("h") == "on"


@pytest.mark.covers("X62")
def test_a_status_that_is_no_json_does_not_hide_the_list(shop: Shop) -> None:
    fulfil, _, _ = declared(shop)
    for id in ("bad", "good"):
        shop.of.start(fulfil, 1, id=id)
    shop.drain()
    table = "holdfast_instance" if shop.app.store.has_one_writer else "holdfast.instance"

    def spoilt() -> Any:
        yield Statement(f"update {table} set status = 'no json' where id = 'bad'")

    shop.app.store.run(spoilt())
    found = {each.id: each.status for each in shop.app.operations.orchestrations.list()}
    assert found == {"bad": "no json", "good": {"step": "waiting", "n": 1}}


@pytest.mark.one_postgres
async def test_what_waits_in_memory_is_dropped_when_the_block_ends(url: str) -> None:
    """Else each instance that waits is a warning of asyncio at the end of the process."""
    app = Holdfast(url)

    @app.orchestration(version="1")
    async def waits(n: int, flow: Flow) -> int:
        return await flow.signal("go", int)

    async with app.running():
        id = await app.orchestrations.astart(waits, 1)
        await auntil(lambda: app.orchestrations.status(id).turn)
    assert len(app.orchestrations.place.memory.cache) == 0
    app.close()


def test_why_names_the_signals_that_have_come_so_that_a_wrong_name_is_seen(shop: Shop) -> None:
    @shop.app.orchestration()
    async def waits(seconds: int, flow: Flow) -> None:
        await flow.signal("begin")
        if seconds == 0:
            flow.again(1)
        async with asyncio.timeout(seconds):
            await flow.signal("approved")

    shop.of.start(waits, 60, id="w")
    shop.of.start(waits, 0, id="again")
    shop.drain()
    assert not any("Signals" in each for each in shop.app.operations.why("w"))
    for id in ("w", "again"):
        shop.of.signal(id, "aproved")
        shop.of.signal(id, "begin")
    shop.drain()
    assert shop.app.operations.why("w")[-1] == "Signals that have come so far: 'aproved', 'begin'."
    assert shop.app.operations.why("again")[-1] == "Signals that have come so far: 'aproved'."


def test_a_journal_of_an_execution_that_is_not_there_is_not_empty(shop: Shop) -> None:
    fulfil, _, _ = declared(shop)
    shop.of.start(fulfil, 1, id="o")
    assert shop.app.operations.orchestrations.lines("o") == []
    with pytest.raises(NotFound, match="no journal of execution 7"):
        shop.app.operations.orchestrations.lines("o", execution=7)
