"""What operators see of instances and do to them, on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Flow, NotEnded, NotFound, OrchestrationFailed, UsageError
from holdfast.bodies.keys import new_key
from tests.orchestrations.test_on_the_engine import Shop
from tests.store.state import check_invariants


@pytest.fixture
def shop(url: str) -> Iterator[Shop]:
    made = Shop(url)
    yield made
    made.forget()
    check_invariants(made.app.store)
    made.app.close()


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
