"""Failures are values: hostile exceptions, results that cannot be stored, declared classes that come back."""

from __future__ import annotations

import asyncio
import decimal
import pickle
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from holdfast.model.message import Reason
from holdfast.orchestrations.declared import activity, orchestration
from holdfast.orchestrations.failures import (
    ActivityFailed,
    CallFailed,
    Failure,
    OrchestrationFailed,
    UndoFailed,
    describe,
    rebuild,
)
from holdfast.orchestrations.flow import Flow
from tests.orchestrations.engine import Engine


class NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text today")


class Subtext(str):
    def __str__(self) -> str:
        raise RuntimeError


class OddText(Exception):
    def __str__(self) -> str:
        return Subtext("odd")


class NoArguments(Exception):
    def __init__(self) -> None:
        super().__init__()
        self.args = (object(),)


class Locked(Exception):
    def __init__(self, lock: Any) -> None:
        super().__init__("locked", lock)

    def __reduce__(self) -> Any:
        raise TypeError("cannot be pickled")


class Endless(Exception):
    def __str__(self) -> str:
        return str(self)


def looped() -> BaseException:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    return one


def deep() -> BaseException:
    error: BaseException = ValueError("0")
    for number in range(1, 500):
        following = ValueError(str(number))
        following.__cause__ = error
        error = following
    return error


itself: list[Any] = []
itself.append(itself)

NASTY: list[Any] = [
    NoText, OddText, NoArguments, lambda: Locked(asyncio.Lock()), Endless, looped, deep,
    lambda: ValueError("x" * 3_000_000), lambda: ValueError("\ud800 lone"), lambda: ValueError("nul \0"),
    lambda: ValueError(itself), lambda: ValueError(float("nan")), lambda: ValueError(b"\xff"),
    lambda: ExceptionGroup("several", [ValueError("a"), NoText()]), lambda: KeyError(object()),
    lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), lambda: OSError(2, "no such file", "name"),
    lambda: type("Späne", (Exception,), {})("ä"), lambda: type("N" * 5000, (Exception,), {})(),
    lambda: StopIteration(3), lambda: GeneratorExit(), lambda: asyncio.CancelledError("own"), lambda: SystemExit(3),
    lambda: BaseException("bare"), lambda: RecursionError(), lambda: AssertionError(("tuple", {1, 2})),
    lambda: StopAsyncIteration(), lambda: msgspec.ValidationError("bad"), lambda: decimal.InvalidOperation(),
    lambda: ActivityFailed("inner", Failure("X", "y", 7, "poison", "id")),
    lambda: ValueError("postgresql://shop:hunter2@db/shop"),
]  # fmt: skip


@pytest.mark.parametrize("make", NASTY, ids=range(len(NASTY)))
@pytest.mark.parametrize("forget", [0.0, 1.0])
def test_any_exception_fails_the_instance_with_a_value(make: Any, forget: float) -> None:
    """H17"""

    @orchestration()
    async def raises(flow: Flow) -> None:
        await asyncio.sleep(1)
        raise make()

    engine = Engine(raises, forget=forget)
    engine.start(raises)
    engine.run()
    failure = engine.failure()
    assert len(msgspec.json.encode(failure)) < 30_000
    assert msgspec.json.decode(msgspec.json.encode(failure), type=Failure) == failure
    assert "hunter2" not in str(failure)


@dataclass
class Box:
    value: Any


RESULTS: list[Any] = [
    float("nan"), float("inf"), b"bytes", itself, object(), {1: 2, "1": 3}, {"a": {1, 2}}, "\ud800", "\0", 10**5000,
    "x" * 2_000_000, lambda: 1, asyncio.Lock, Box(itself), [[[]]] * 3 + [object()],
]  # fmt: skip


@pytest.mark.parametrize("result", RESULTS, ids=range(len(RESULTS)))
def test_a_result_that_cannot_be_stored_fails_the_instance(result: Any) -> None:
    @orchestration()
    async def returns(flow: Flow) -> Any:
        return result

    engine = Engine(returns)
    engine.start(returns)
    engine.run()
    assert engine.failure().type == "InvalidMessage"
    assert engine.failure().reason == Reason.SERIALIZATION_ERROR


@pytest.mark.parametrize("value", RESULTS, ids=range(len(RESULTS)))
def test_an_input_that_cannot_be_stored_is_refused_at_the_call(value: Any) -> None:
    @activity()
    def pack(item: Any) -> Any:
        return item

    @orchestration()
    async def calls(flow: Flow) -> Any:
        await pack(value)

    engine = Engine(calls, activities=[pack])
    engine.start(calls)
    engine.run()
    assert engine.failure().type == "InvalidMessage"
    assert engine.calls == []


def test_an_input_or_an_answer_of_another_shape() -> None:
    @activity()
    def pack(item: Any) -> int:
        return item

    @orchestration()
    async def takes(number: int) -> str:
        try:
            return str(await pack(number))
        except ActivityFailed as error:
            return error.reason.name

    engine = Engine(takes, activities={"pack": lambda value: "text"})
    engine.start(takes, "three")
    engine.start(takes, 3, id="j")
    engine.run()
    assert "cannot be read" in engine.failure().text
    assert engine.result("j") == "VALIDATION_FAILURE"


class CardDeclined(Exception):
    def __init__(self, card: str, cents: int) -> None:
        super().__init__(card, cents)
        self.cents = cents


class Changed(Exception):
    def __init__(self) -> None:
        super().__init__()


def test_declared_classes_come_back_and_no_others() -> None:
    failure = describe(CardDeclined("1234", 99), message_id="m")
    made = rebuild("charge", failure, {"CardDeclined": CardDeclined}, ActivityFailed)
    assert isinstance(made, CardDeclined)
    assert made.cents == 99
    assert isinstance(made.__cause__, ActivityFailed)
    assert isinstance(rebuild("charge", failure, {}, ActivityFailed), ActivityFailed)
    assert isinstance(
        rebuild("charge", failure, {"CardDeclined": Changed}, OrchestrationFailed), OrchestrationFailed
    )


@pytest.mark.covers("D36")
def test_a_failed_call_tells_what_it_knows_and_survives_pickle() -> None:
    error = ActivityFailed("charge", Failure("OSError", "no route", 6, "infrastructure", "m-1"))
    assert (error.reason, error.category, error.message_id) == (
        Reason.DEPENDENCY_FAILURE,
        "infrastructure",
        "m-1",
    )
    assert str(error) == "Activity charge failed: OSError: no route"
    for each in (error, UndoFailed((("refund", error.error),))):
        again = pickle.loads(pickle.dumps(each))
        assert str(again) == str(each)
    described = describe(error)
    assert (described.type, described.category, described.reason) == ("ActivityFailed", "infrastructure", 6)
    assert isinstance(error, CallFailed)


def test_what_cannot_be_undone_is_told() -> None:
    @activity()
    def refund(number: int) -> None:
        if number == 2:
            raise OSError("bank is closed")

    @orchestration()
    async def fails(flow: Flow) -> None:
        async with flow.saga() as undo:
            for number in (1, 2, 3):
                undo(refund, number)
            raise ValueError("no")

    engine = Engine(fails, activities=[refund])
    engine.start(fails)
    engine.run()
    assert engine.failure().type == "UndoFailed"
    assert "refund: ActivityFailed" in engine.failure().text
    assert [value for _, _, _, value in engine.calls] == [3, 2, 1]
    assert engine.failure().causes[0].startswith("ValueError")


def test_the_text_of_a_group_names_what_is_in_it() -> None:
    """A TaskGroup that failed says only how many of its tasks did."""
    inner = ExceptionGroup("inner", [KeyError("k")])
    failure = describe(ExceptionGroup("unhandled errors in a TaskGroup", [ValueError("a"), inner]))
    assert failure.type == "ExceptionGroup"
    assert failure.text == (
        "unhandled errors in a TaskGroup (2 sub-exceptions): ValueError: a; "
        "ExceptionGroup: inner (1 sub-exception): KeyError: 'k'"
    )


def test_a_group_that_holds_itself_many_times_has_a_short_text() -> None:
    wide: ExceptionGroup[Exception] = ExceptionGroup("0", [ValueError("a")])
    for n in range(40):
        wide = ExceptionGroup(str(n), [wide] * 10)
    assert len(describe(wide).text) < 3000
