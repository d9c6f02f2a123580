"""What a type checker reads and what Python takes are the same; and the test of the types can fail.

The types themselves are tested by `make lint` (tools/typing_test.py, tests/typing).
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from dataclasses import fields
from types import ModuleType
from typing import Any, get_args, get_type_hints

import pytest

from holdfast import (
    BreakerOptions,
    Context,
    Handler,
    Holdfast,
    InvalidSettings,
    MessageOptions,
    RetryOptions,
    RetryPolicy,
    RetryProfile,
    Settings,
    SettingsOptions,
)
from holdfast.bodies.drafts import Draft, draft
from holdfast.handlers.forms import HandlerKeywords
from holdfast.rules.breaker import Policy
from holdfast.rules.retry import PROFILES
from tests.docs.blocks import ROOT

# --- Keywords are written down more than once -------------------------------------------------------------------------


def keywords(function: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    hints = get_type_hints(function)
    found = inspect.signature(function).parameters.values()
    return {each.name: (hints[each.name], each.default) for each in found if each.kind is each.KEYWORD_ONLY}


@pytest.mark.parametrize(
    ("values", "options"),
    [(Settings, SettingsOptions), (RetryPolicy, RetryOptions), (Policy, BreakerOptions)],
)
def test_options_are_the_fields(values: Any, options: Any) -> None:
    hints = get_type_hints(values)
    assert get_type_hints(options) == {each.name: hints[each.name] for each in fields(values)}
    assert options.__required_keys__ == frozenset()


def test_all_ways_to_publish_take_the_same() -> None:
    told = keywords(draft)
    assert keywords(Holdfast.message) == keywords(Context.publish) == keywords(Draft.__call__) == told
    assert keywords(Holdfast.publish) == keywords(Holdfast.apublish) == {"on": (object, None)} | told
    assert get_type_hints(MessageOptions) == {
        name: hint for name, (hint, _) in told.items() if name != "queue"
    }


def test_the_keywords_of_a_handler() -> None:
    told = {name: hint for name, (hint, _) in keywords(Holdfast.handler).items()}
    assert told.pop("batch") is int
    assert get_type_hints(HandlerKeywords) == told


def test_the_names_of_the_profiles() -> None:
    assert get_args(RetryProfile) == tuple(PROFILES)


def test_what_is_published_arrives_under_its_name() -> None:
    """Each keyword is passed on by hand: one that lands under another name would be of the right type."""
    app = Holdfast("sqlite:///:memory:")
    drafts = {
        name: app.message("a", stream="s", **{name: value})  # type: ignore[arg-type]
        for name, value in {"subject": "x", "dedupe": "x", "queue": "x", "event": True, "delay": 5}.items()
    }
    for name, message in drafts.items():
        plain = app.message("a", stream="s")
        others = {each for each in message.__struct_fields__ if each != "id"}
        assert {each for each in others if getattr(message, each) != getattr(plain, each)} == {name}
    assert app.message("a", event=True, stream="s", expect=3).expect == 3


@pytest.mark.parametrize("verb", ["publish", "message", "breaker", "worker"])
def test_an_unknown_keyword_is_refused(verb: str) -> None:
    app = Holdfast("sqlite:///:memory:")
    with pytest.raises((TypeError, InvalidSettings), match="steam"):
        getattr(app, verb)(*["a"][: verb != "worker"], steam="s")
    with pytest.raises(InvalidSettings, match="There is no setting 'steam'"):
        Holdfast("sqlite:///:memory:", steam="s")  # type: ignore[call-arg]


def test_a_handler_publishes_its_own_body() -> None:
    app = Holdfast("sqlite:///:memory:")
    bodies: list[int] = []

    @app.handler("counted", batch=10)
    def count(numbers: list[int]) -> None:
        bodies.extend(numbers)

    assert isinstance(count, Handler)
    with app.testing() as t:
        count.publish(3, dedupe="three")
        t.drain(raises=False)
    assert bodies == [3]


# --- A declaration that could never be called -------------------------------------------------------------------------


def test_a_context_before_the_body_is_refused() -> None:
    app = Holdfast("sqlite:///:memory:")
    with pytest.raises(InvalidSettings, match="the body comes first: put 'body' before 'ctx'"):

        @app.handler("a")  # type: ignore[call-overload]
        def work(ctx: Context, body: dict[str, Any]) -> None: ...


def test_a_context_that_cannot_be_named_is_refused() -> None:
    app = Holdfast("sqlite:///:memory:")
    with pytest.raises(InvalidSettings, match="'ctx' is given by its name"):

        @app.handler("a")
        def work(body: dict[str, Any], ctx: Context, /) -> None: ...


# --- The test of the types --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("typing_test", ROOT / "tools" / "typing_test.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SOURCE = {"mistakes.py": "right()\nwrong()  # refused: never\n", "right.py": "fine()  # accepted: always\n"}
THERE = ("mistakes.py", 2)


def test_marks_are_found(tool: ModuleType) -> None:
    assert tool.marks(SOURCE, "refused") == {THERE: "never"}
    assert tool.marks(SOURCE, "accepted") == {("right.py", 1): "always"}


def test_all_as_marked(tool: ModuleType) -> None:
    refused = tool.marks(SOURCE, "refused")
    assert tool.differences(refused, {"one": {THERE: "no"}, "two": {THERE: "no"}}, least=1) == []


def test_a_mistake_that_one_checker_lets_pass(tool: ModuleType) -> None:
    refused = tool.marks(SOURCE, "refused")
    (fault,) = tool.differences(refused, {"one": {THERE: "no"}, "two": {}}, least=1)
    assert fault == "tests/typing/mistakes.py:2: two does not refuse it (never)"


@pytest.mark.parametrize("where", [("mistakes.py", 1), ("right.py", 1)])
def test_something_right_that_is_refused(tool: ModuleType, where: tuple[str, int]) -> None:
    refused = tool.marks(SOURCE, "refused")
    (fault,) = tool.differences(refused, {"one": {THERE: "no", where: "odd"}}, least=1)
    assert fault == f"tests/typing/{where[0]}:1: one refuses it: odd"


def test_too_few_mistakes(tool: ModuleType) -> None:
    (fault,) = tool.differences(tool.marks(SOURCE, "refused"), {"one": {THERE: "no"}})
    assert "1 mistakes are marked" in fault
