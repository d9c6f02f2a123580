"""Addresses made of messages: what is understood, and what is refused at the start or for one message."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InvalidMessage, InvalidSettings
from holdfast.transports.templates import Template, Values
from tests.hostile import BROKEN_TEXTS, TEXTS

WHOLE = Values("order.placed", "id-1", "order-1", "customer/7", {"tenant": "acme", "x-region": "eu"})


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("", ""),
        ("grading.request", "grading.request"),
        ("{type}", "order.placed"),
        ("{type}.{stream}", "order.placed.order-1"),
        ("{partitionkey|subject}", "order-1"),
        ("{subject|partitionkey}", "customer/7"),
        ("{headers.none|headers.tenant}", "acme"),
        ("{headers.x-region}.{type}", "eu.order.placed"),
        ("{headers.none|'nobody'}", "nobody"),
        ("{ headers.none | subject }", "customer/7"),
        ("{{{type}}}", "{order.placed}"),
        ("a.*.#", "a.*.#"),
        ("{id}", "id-1"),
    ],
)
def test_what_templates_make(text: str, made: str) -> None:
    assert Template.of(text, "routing key").fill(WHOLE) == made


def test_what_a_template_tells_about_itself() -> None:
    assert Template.of("vstep.exchange", "exchange").is_fixed
    template = Template.of("{partitionkey|headers.a|'x'}.{type}", "routing key")
    assert not template.is_fixed
    assert template.names == {"stream", "headers.a", "type"}


@pytest.mark.parametrize(
    "text",
    [
        "{", "}", "{type", "type}", "{type}}", "{}", "{|}", "{type|}", "{body}", "{Type}", "{headers}", "{headers.}",
        "{headers.a b}", "{type.x}", "{type!r}", "{type:>10}", "{0}", "{__class__}", "{type.__class__}", "{'a'|type}",
        "{'a}", "{a{b}}", "a\nb", "a\0b", "\ud800", "x" * 256, "é" * 128, None, 7, b"x", ["{type}"],
    ],
)  # fmt: skip
def test_mistakes_are_told_at_the_start(text: object) -> None:
    with pytest.raises(InvalidSettings, match="routing key"):
        Template.of(text, "routing key")


HOSTILE = [
    *BROKEN_TEXTS.values(),
    *("a*", "#", "*", "a.#", "a\r\nb", "\x7f", "\u202ea", "\u2028", "x" * 256, "é" * 128, "\ufeff"),
    *(chr(code) for code in range(32)),
    *(f"a{chr(code)}" for code in range(0x80, 0xA0)),
]


@pytest.mark.parametrize("value", HOSTILE, ids=ascii)
@pytest.mark.parametrize("name", ["stream", "subject", "headers"])
def test_a_message_makes_no_harmful_address(name: str, value: str) -> None:
    values = Values("t", headers={"a": value}) if name == "headers" else Values("t", **{name: value})
    template = Template.of("{headers.a}" if name == "headers" else f"{{{name}}}", "routing key")
    with pytest.raises(InvalidMessage, match="routing key"):
        template.fill(values)


def test_as_many_harmless_ones_pass() -> None:
    harmless = [text for text in TEXTS.values() if text and text.isprintable() and len(text.encode()) <= 255]
    harmless = [text for text in harmless if not {"*", "#"} & set(text)]
    harmless += [f"order-{n}" for n in range(200 - len(harmless))]
    for text in harmless:
        assert Template.of("{stream}", "routing key").fill(Values("t", stream=text)) == text


def test_what_a_message_lacks_is_told() -> None:
    with pytest.raises(InvalidMessage, match="no stream and no subject"):
        Template.of("{stream|subject}", "routing key").fill(Values("order.placed"))
    with pytest.raises(InvalidMessage, match=r"no headers\.a"):
        Template.of("{headers.a}", "routing key").fill(WHOLE)


def test_the_sum_of_harmless_parts_may_be_too_long() -> None:
    with pytest.raises(InvalidMessage, match="bytes"):
        Template.of("{stream}.{subject}", "routing key").fill(
            Values("t", stream="x" * 200, subject="y" * 200)
        )


@settings(max_examples=200, deadline=None)
@given(stream=st.text(min_size=1))
def test_whatever_is_made_can_be_sent(stream: str) -> None:
    try:
        made = Template.of("a.{stream}", "routing key").fill(Values("t", stream=stream))
    except InvalidMessage:
        return
    assert made == f"a.{stream}"
    assert len(made.encode()) <= 255
    assert not {"*", "#"} & set(made)
    assert all(ord(each) >= 32 for each in made)
