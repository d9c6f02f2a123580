"""What users get wrong in calls, names and ids is refused where it is written, and costs no worker a start."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Flow, HoldfastError, InvalidMessage, OrchestrationFailed, UsageError
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
