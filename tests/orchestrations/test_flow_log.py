"""flow.log: silent in replay, and nothing is said of a turn that was run ahead for nothing."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from holdfast import Flow
from tests.orchestrations.shop import Shop


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "holdfast.flow"]


@pytest.mark.parametrize("kind", ["once", "timer", "inline", "fails"])
def test_a_turn_that_is_dropped_says_nothing(shop: Shop, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async def then(flow: Flow) -> Any:
        match kind:
            case "once":
                return flow.once(lambda: 1)
            case "timer":
                return await asyncio.sleep(1)
            case "inline":
                return await shop.double.using(inline=True)(1)
            case _:
                raise ValueError

    @shop.app.orchestration()
    async def code(flow: Flow) -> Any:
        await shop.double(1)
        flow.log.info("after the %s", "first")
        return await then(flow)

    caplog.set_level(logging.INFO, "holdfast.flow")
    shop.of.start(code, id="x")
    shop.drain()
    shop.advance(seconds=2)

    assert said(caplog) == ["after the first"]


def test_a_turn_that_is_handed_in_speaks_as_usual(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    @shop.app.orchestration()
    async def code(flow: Flow) -> int:
        await shop.double(1)
        flow.log.info("one")
        await shop.double(2)
        flow.log.warning("two", extra={"order": 7})
        return 1

    caplog.set_level(logging.INFO, "holdfast.flow")
    shop.of.start(code, id="x")
    shop.drain()

    assert said(caplog) == ["one", "two"]
    last: Any = [each for each in caplog.records if each.name == "holdfast.flow"][-1]
    assert (last.instance, last.execution, last.order) == ("x", 0, 7)
    assert (last.filename, last.funcName) == ("test_flow_log.py", "code")
