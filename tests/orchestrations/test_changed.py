"""Code that was changed under a running instance: found, kept though the code swallows it, told in plain English."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from holdfast.orchestrations.declared import Orchestration, activity, orchestration
from holdfast.orchestrations.flow import Flow
from holdfast.orchestrations.journal import Row, Signalled
from holdfast.orchestrations.outcome import Turn
from holdfast.orchestrations.replay import CodeChanged
from holdfast.orchestrations.turn import play
from tests.orchestrations.engine import START, Engine

Code = Callable[[Flow], Awaitable[Any]]


@activity()
def charge(value: int) -> int:
    return value


@activity()
def refund(value: int) -> int:
    return value


@orchestration()
async def child(value: int) -> int:
    return value


def declared(function: Code) -> Orchestration[[], Any]:
    return orchestration(name="code")(function)


def recorded(function: Code) -> list[Row]:
    """The journal of an instance that came as far as it could."""
    engine = Engine(declared(function), child, activities=[charge, refund])
    engine.start(declared(function))
    return engine.run().records["i"].rows("i")


def replayed(function: Code, rows: list[Row]) -> Turn | CodeChanged | Any:
    return play(declared(function).program, "i", 0, rows, [Signalled("s", 1, "other")], START)


async def old(flow: Flow) -> int:
    await charge(1)
    await asyncio.sleep(60)
    await child(2)
    flow.once(lambda: 1, name="draw")
    async with asyncio.timeout(50):
        await refund(3)
    await flow.signal("end")
    return 4


def test_code_that_did_not_change_goes_on() -> None:
    assert isinstance(replayed(old, recorded(old)), Turn)


async def another_activity(flow: Flow) -> int:
    await refund(1)
    return 0


async def removed(flow: Flow) -> int:
    await asyncio.sleep(60)
    return 0


async def added(flow: Flow) -> int:
    await asyncio.gather(charge(1), refund(1))
    return 0


async def swapped(flow: Flow) -> int:
    await child(2)
    await charge(1)
    return 0


async def another_input(flow: Flow) -> int:
    await charge(2)
    return 0


async def another_kind(flow: Flow) -> int:
    await charge(1)
    await asyncio.sleep(60)
    await charge(2)
    return 0


async def another_time(flow: Flow) -> int:
    await charge(1)
    await asyncio.sleep(61)
    return 0


async def returns_early(flow: Flow) -> int:
    await charge(1)
    return 0


async def fails(flow: Flow) -> int:
    await charge(1)
    raise ValueError("new check")


async def stops_asking(flow: Flow) -> int:
    await charge(1)
    await flow.signal("end")
    return 0


async def another_once(flow: Flow) -> int:
    await charge(1)
    await asyncio.sleep(60)
    await child(2)
    flow.once(lambda: 1, name="throw")
    return 0


async def no_withdrawal(flow: Flow) -> int:
    await charge(1)
    await asyncio.sleep(60)
    await child(2)
    flow.once(lambda: 1, name="draw")
    async with asyncio.timeout(50):
        await refund(3)
        await flow.signal("end")
    return 0


async def another_child(flow: Flow) -> int:
    await charge(1)
    await asyncio.sleep(60)
    await child.using(id="own")(2)
    return 0


async def continues(flow: Flow) -> int:
    await charge(1)
    flow.again()


async def starts_detached(flow: Flow) -> int:
    await charge(1)
    await asyncio.sleep(60)
    child.start(2)
    return 0


async def patched_later(flow: Flow) -> int:
    await charge(1)
    flow.patched("new")  # an instance that is past this stays on the old side: no difference
    await asyncio.sleep(60)
    await asyncio.sleep(1)
    return 0


KINDS: list[tuple[Code, int, str]] = [
    (another_activity, 1, "asks for activity refund (test_changed.py:"),
    (removed, 1, "asks for a timer of 60 s"),
    (added, 2, "where the journal has nothing more"),
    (swapped, 1, "child orchestration child@1 with id i/0.1"),
    (another_input, 1, "with another input than the journal has"),
    (another_kind, 3, "asks for activity charge"),
    (another_time, 2, "a timer of 61 s"),
    (returns_early, 2, "asks for its end with a result, where the journal has a timer of 60 s"),
    (fails, 2, "its failure with ValueError"),
    (stops_asking, 2, "no longer asks for a timer of 60 s"),
    (another_once, 4, "flow.once(throw)"),
    (no_withdrawal, 7, "no longer asks for the withdrawal of command 5"),
    (another_child, 3, "with id own"),
    (continues, 2, "continue-as-new"),
    (starts_detached, 3, "a detached start of child@1"),
    (patched_later, 3, "asks for a timer of 1 s"),
]


@pytest.mark.covers("X58")
@pytest.mark.parametrize(("function", "number", "text"), KINDS, ids=[each[0].__name__ for each in KINDS])  # type: ignore[attr-defined]
def test_each_kind_of_change_is_found_and_named(function: Code, number: int, text: str) -> None:
    """H12"""
    changed = replayed(function, recorded(old))
    assert isinstance(changed, CodeChanged)
    assert (changed.number, text in str(changed)) == (number, True), str(changed)
    assert str(changed).endswith("Put the old code back and resume, or give the new code a new version.")


async def ends(flow: Flow) -> int:
    await charge(1)
    return 1


async def ends_otherwise(flow: Flow) -> int:
    await charge(1)
    return 2


async def does_not_end(flow: Flow) -> int:
    await charge(1)
    await asyncio.sleep(1)
    return 1


@pytest.mark.parametrize("function", [ends_otherwise, does_not_end, fails])
def test_another_end_is_found(function: Code) -> None:
    assert isinstance(replayed(function, recorded(function)), Turn)
    assert isinstance(replayed(function, recorded(ends)), CodeChanged)


async def swallows(flow: Flow) -> int:
    while True:
        try:
            await refund(1)
        except BaseException:
            pass
        try:
            flow.again()
        except BaseException:
            return 5


def test_a_change_is_kept_although_the_code_swallows_it() -> None:
    """H13: `except BaseException` around the call, and a continue-as-new afterwards."""
    changed = replayed(swallows, recorded(old))
    assert isinstance(changed, CodeChanged)
    assert "asks for activity refund" in str(changed)


def test_the_diff() -> None:
    changed = replayed(another_kind, recorded(old))
    assert isinstance(changed, CodeChanged)
    *before, minus, plus = changed.diff
    assert before == ["  activity charge", "  a timer of 0 s"]  # as seen from the moment of the difference
    assert minus == "- child orchestration child@1 with id i/0.3"
    assert plus.startswith("+ activity charge   test_changed.py:")
    assert plus.endswith("in another_kind")


def test_another_python_is_named() -> None:
    rows = [msgspec.structs.replace(row, python="3.9") for row in recorded(old)]
    assert isinstance(replayed(old, rows), Turn)
    assert "recorded on Python 3.9" in str(replayed(another_kind, rows))


async def patched(flow: Flow) -> list[Any]:
    new = flow.patched("receipt")
    await charge(1)
    if new:
        await refund(1)
    await flow.signal("end")
    return [new, flow.patched("receipt"), flow.patched("later")]


async def unpatched(flow: Flow) -> list[Any]:
    await charge(1)
    await flow.signal("end")
    return []


@pytest.mark.parametrize(
    ("began", "result"), [(patched, "[true,true,true]"), (unpatched, "[false,false,true]")]
)
def test_patched_keeps_an_instance_on_its_side(began: Code, result: str) -> None:
    rows = recorded(began)
    turn = play(declared(patched).program, "i", 0, rows, [Signalled("s", 1, "end")], START)
    assert isinstance(turn, Turn)
    assert turn.end is not None
    assert turn.end.result == result
    again = play(declared(patched).program, "i", 0, [*rows, turn.row], [], START)
    assert isinstance(again, Turn)


def test_texts_of_errors_may_change() -> None:
    async def before(flow: Flow) -> None:
        raise ValueError("old words")

    async def after(flow: Flow) -> None:
        raise ValueError("new words")

    assert isinstance(replayed(after, recorded(before)), Turn)
