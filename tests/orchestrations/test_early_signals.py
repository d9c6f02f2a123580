"""Signals that came before their instance was started: what becomes of them when it starts late, or never."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast import Flow, Reason
from tests.orchestrations.shop import Shop, opened


@pytest.fixture
def shop(url: str) -> Iterator[Shop]:
    with opened(url) as shop:

        @shop.app.orchestration()
        async def two(flow: Flow) -> list[int]:
            return [await flow.signal("n", int), await flow.signal("n", int)]

        yield shop


def test_a_signal_that_has_expired_does_not_stop_the_signals_behind_it(shop: Shop) -> None:
    shop.of.signal("late", "n", 0)
    shop.drain()
    shop.clock.advance(days=6)
    shop.of.signal("late", "n", 1)
    shop.advance(days=2)
    (letter,) = shop.app.operations.dead.list()
    assert letter.reason is Reason.TIMEOUT_EXCEEDED
    assert not letter.halts

    shop.of.start(shop.of.declared["two@1"], id="late")
    shop.of.signal("late", "n", 2)
    shop.drain()
    shop.advance(seconds=40)

    assert shop.of.result("late") == [1, 2]


def test_a_signal_that_has_expired_reaches_its_instance_when_it_is_redriven(shop: Shop) -> None:
    shop.of.signal("late", "n", 1)
    shop.advance(days=8)
    shop.of.start(shop.of.declared["two@1"], id="late")
    (letter,) = shop.app.operations.dead.list()

    shop.app.operations.dead.redrive(letter.id)
    shop.of.signal("late", "n", 2)
    shop.drain()
    shop.advance(seconds=40)

    assert shop.of.result("late") == [1, 2]
    assert shop.app.operations.dead.list() == []


def test_a_signal_is_not_too_late_for_an_instance_that_was_started_in_time(shop: Shop) -> None:
    shop.of.signal("off", "n", 1)
    shop.of.start(shop.of.declared["two@1"], id="off")
    shop.of.signal("off", "n", 2)
    shop.clock.advance(days=8)  # no worker for so long

    shop.drain()
    shop.advance(seconds=40)

    assert shop.of.result("off") == [1, 2]
