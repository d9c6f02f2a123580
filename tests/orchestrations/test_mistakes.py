"""What users get wrong in calls, names and ids is refused where it is written, and costs no worker a start."""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import Flow, HoldfastError, InvalidMessage, InvalidSettings, OrchestrationFailed, UsageError
from tests.orchestrations.shop import Shop


def test_an_option_of_a_start_is_not_taken_for_its_input(shop: Shop) -> None:
    @shop.app.orchestration()
    async def nothing(flow: Flow) -> int:
        return 1

    @shop.app.orchestration()
    async def something(order: int, flow: Flow) -> int:
        return order

    shop.app.prepare()
    for wrong in (lambda: nothing.start(id="x"), lambda: something.start(1, id="x")):  # type: ignore[call-arg]
        with pytest.raises(UsageError, match=r"id=.*using\("):
            wrong()
    with pytest.raises(UsageError, match="takes no value"):
        nothing.start(5)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match=r"takes one value \(order\) and was given none"):
        something.start()  # type: ignore[call-arg]
    assert shop.query(f"select count(*) from {shop.prefix}instance") == [(0,)]

    something.using(id="x").start(5)
    shop.drain()
    assert shop.of.result("x") == 5


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda its, flow: its.double(), "takes one value"),
        (lambda its, flow: its.double(1, 2), "put them into a dataclass"),
        (lambda its, flow: its.double(m=1), "takes one value and was given m="),
        (lambda its, flow: its.dies(1), "takes no value"),
        (lambda its, flow: flow.signal(""), "signal's name is empty"),
        (lambda its, flow: flow.signal(5), "signal's name must be text"),
        (lambda its, flow: flow.once(int, name="\ud800"), "surrogate"),
        (lambda its, flow: flow.patched(""), "is empty"),
        (lambda its, flow: its.of.declared["code@1"].using(id="a\0b")(), "id of the instance"),
        (lambda its, flow: its.of.declared["code@1"].using(id="\ud800")(), "id of the instance"),
        (lambda its, flow: its.of.declared["code@1"].using(id="")(), "id of the instance is empty"),
        (lambda its, flow: its.of.declared["code@1"].using(id="x" * 301)(), "301 characters"),
    ],
)
def test_a_call_that_cannot_be_right_fails_the_instance_at_once(shop: Shop, wrong: Any, text: str) -> None:
    @shop.app.orchestration()
    async def code(flow: Flow) -> Any:
        return await wrong(shop, flow)

    shop.of.start(code, id="x")
    shop.drain()

    with pytest.raises(OrchestrationFailed, match=text):
        shop.of.result("x")


@pytest.mark.parametrize("id", ["", " x", "a\nb", "\ud800", "x" * 301, 5])
def test_an_id_that_is_none_is_refused_by_its_name(shop: Shop, id: Any) -> None:
    @shop.app.orchestration()
    async def code(flow: Flow) -> int:
        return 1

    shop.app.prepare()
    for refused in (
        lambda: shop.of.start(code, id=id), lambda: shop.of.signal(id, "x"), lambda: shop.of.cancel(id),
        lambda: code.using(id=id),
    ):  # fmt: skip
        with pytest.raises(InvalidMessage, match="id of the instance"):
            refused()
    for unknown in (shop.of.status, shop.of.result):
        with pytest.raises(HoldfastError, match="There is no instance"):
            unknown(id)


def test_a_declaration_or_an_option_of_the_wrong_type_is_refused_by_name(shop: Shop) -> None:
    any_: Any = shop
    app: Any = shop.app

    async def code(flow: Flow) -> int:
        return 1

    for wrong, text in (
        (lambda: app.orchestration(version=1)(code), "version 1 must be text"),
        (lambda: app.orchestration(name=5)(code), "name 5 must be text"),
        (lambda: app.activity(returns={"X": 5})(code), "must name a class of exceptions"),
        (lambda: app.orchestration(returns={"X": int})(code), "must name a class of exceptions"),
        (lambda: app.activity(on_dead="x")(code), "'code': on_dead='x'"),
        (lambda: any_.double.using(timeout="5"), "positive number"),
        (lambda: any_.double.using(deadline=5), "datetime or a timedelta"),
        (lambda: app.orchestration()(code).using(deadline="x"), "datetime or a timedelta"),
    ):
        with pytest.raises(InvalidSettings, match=text):
            wrong()


def test_nonsense_from_outside_is_refused_by_name(shop: Shop) -> None:
    @shop.app.orchestration()
    async def code(flow: Flow) -> int:
        return 1

    of: Any = shop.of
    shop.app.prepare()
    for wrong, text in (
        (lambda: of.start(code, deadline=5), "is a int"),
        (lambda: of.start(code, deadline=datetime(2026, 1, 1)), "time zone"),
        (lambda: of.start(code, attributes=["a"]), "give a dict"),
    ):
        with pytest.raises(UsageError, match=text):
            wrong()
    of.start(code, id="x", deadline=datetime(2030, 1, 1, tzinfo=UTC))
    for timeout in (None, "5", math.nan):
        with pytest.raises(UsageError, match="not a number"):
            of.result("x", timeout=timeout)
        with pytest.raises(UsageError, match="not a number"):
            asyncio.run(of.aresult("x", timeout=timeout))
    shop.drain()
    assert of.result("x", timeout=math.inf) == 1


def test_a_flow_is_for_its_own_code_alone(shop: Shop) -> None:
    """Whoever kept one and waited for a signal of it waited for ever."""
    kept: list[Flow] = []

    @shop.app.orchestration()
    async def keeps(flow: Flow) -> int:
        kept.append(flow)
        return await flow.signal("go", int)

    @shop.app.orchestration()
    async def takes(what: str, flow: Flow) -> Any:
        return await use(kept[0], what)

    async def use(flow: Flow, what: str) -> Any:
        match what:
            case "signal":
                return await flow.signal("go")
            case "first":
                return await flow.first()
            case "map":
                return await flow.map(shop.double, [1])
            case "as_done":
                return [each async for each in flow.as_done([])]
            case "uuid":
                return flow.uuid()
            case _:
                return flow.random

    shop.of.start(keeps, id="keeps")
    shop.drain()
    for what in ("signal", "first", "map", "as_done", "uuid", "random"):
        shop.of.start(takes, what, id=what)
        shop.drain()
        with pytest.raises(OrchestrationFailed, match=f"flow.{what} of instance 'keeps' was used outside"):
            shop.of.result(what)
    with pytest.raises(UsageError, match="used outside its own code"):
        asyncio.run(use(kept[0], "signal"))
    shop.of.signal("keeps", "go", 7)
    shop.drain()
    assert shop.of.result("keeps") == 7


def test_an_orchestration_that_calls_itself_without_end_fails(shop: Shop) -> None:
    """The id of each child is longer: at last nobody could have signalled it, and PostgreSQL refused it."""

    @shop.app.orchestration()
    async def again(flow: Flow) -> int:
        return 1 + await shop.of.declared["again@1"]()

    shop.of.start(again, id="i" * 270)
    shop.drain()
    with pytest.raises(OrchestrationFailed, match="call itself without end"):
        shop.of.result("i" * 270)
    states = dict(shop.query(f"select state, count(*) from {shop.prefix}instance group by state"))
    assert states == {"failed": 8}


def test_one_may_start_the_next_without_end(shop: Shop) -> None:
    @shop.app.orchestration()
    async def next_one(left: int, flow: Flow) -> str:
        return shop.of.declared["next@1"].start(left - 1) if left else "the last"

    shop.of.declared["next@1"] = shop.of.declared["next_one@1"]
    id = shop.of.start(next_one, 100, id="i" * 250)
    for _ in range(101):
        shop.drain()
        last, id = id, shop.of.result(id)
        assert len(last) <= 300
        if id == "the last":
            break
    assert id == "the last"
    shop.app.operations.orchestrations.rewind("i" * 250, "once more", to="start")
    shop.drain()
    assert len(shop.of.result("i" * 250)) < 300
