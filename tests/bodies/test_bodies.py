"""A body comes back exactly as it went, or it is refused with the place, the reason and the remedy."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.bodies.codec import BASE64, Unreadable, decoder_for, encode, encode_foreign, encode_raw
from holdfast.errors import InvalidMessage
from holdfast.model.message import Reason
from holdfast.settings import Settings
from tests import hostile
from tests.hostile import BODIES, CONVERTED, LIMITS, RAW

read = decoder_for()


def named(cases: list[Any]) -> Any:
    return [
        pytest.param(*case[1:], id=f"{number} {ascii(case[0])[1:-1]}") for number, case in enumerate(cases)
    ]


def exactly(value: Any) -> str:
    """So that 1, True and 1.0 differ, and 0.0 and -0.0, and the order of keys counts."""
    return repr(value)


def test_there_are_enough_of_them() -> None:
    lists = [BODIES, RAW, hostile.TYPES, hostile.STREAMS, hostile.IDENTIFIERS, hostile.URLS]
    assert all(len({accepted for *_, accepted in each}) == 2 for each in lists)
    assert sum(map(len, lists)) >= 900
    assert len(BODIES) >= 300


@pytest.mark.parametrize("value, accepted", named(BODIES))
def test_a_body_comes_back_or_is_refused(value: Any, accepted: bool) -> None:
    if not accepted:
        with pytest.raises(InvalidMessage) as raised:
            encode(value, LIMITS)
        assert re.match(r"The body cannot be stored: (at `\$.*` |[\d,]+ bytes)", str(raised.value), re.DOTALL)
        assert len(str(raised.value)) < 500
        return
    text = encode(value, LIMITS)
    assert exactly(read(text)) == exactly(value)
    assert len(text.encode()) <= LIMITS.body_bytes
    assert "\0" not in text
    # Anybody's reader understands it, and it would pass as raw text too.
    assert exactly(json.loads(text)) == exactly(value)
    assert encode_raw(text, LIMITS) == text


@pytest.mark.parametrize("value, accepted", named(RAW))
def test_raw_text_is_kept_to_the_letter_or_refused(value: str | bytes, accepted: bool) -> None:
    if not accepted:
        with pytest.raises(InvalidMessage, match=r"The body cannot be stored: .*\. [A-Z]"):
            encode_raw(value, LIMITS)
        return
    text = encode_raw(value, LIMITS)
    assert text == (value if isinstance(value, str) else value.decode())
    assert exactly(read(text)) == exactly(json.loads(text)).replace("-0,", "0,") or value in (
        "-0",
        "[0,0.0,-0]",
    )


@pytest.mark.parametrize("value, annotation", named(CONVERTED))
def test_what_json_has_not_comes_back_by_annotation(value: Any, annotation: Any) -> None:
    assert decoder_for(annotation)(encode(value, LIMITS)) == value
    assert decoder_for(dict[str, annotation])(encode({"a": value}, LIMITS)) == {"a": value}


@pytest.mark.parametrize(
    "body, path",
    [
        (math.nan, "$"),
        ({"price": math.nan}, "$.price"),
        ({"items": [{}, {}, {}, {"price": math.inf}]}, "$.items[3].price"),
        ({"items": ({"a b": b""},)}, "$.items[0]['a b']"),
        ({"a": {"b": "x\0"}}, "$.a.b"),
        ({"a": [0, "\ud800"]}, "$.a[1]"),
        ({"a": {1: 2}}, "$.a[1]"),
        ({"": {"é": set()}}, "$['']['é']"),
        ({"x" * 100: math.nan}, "$['xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx]"),
        ({"a": {"\n": math.nan}}, "$.a['\\n']"),
        (hostile.nested(70), "$[0][0][0][0][0]…[0][0]"),
    ],
)
def test_the_place_is_named(body: Any, path: str) -> None:
    with pytest.raises(InvalidMessage) as raised:
        encode(body, LIMITS)
    assert f"at `{path}`" in str(raised.value)


def test_the_text_of_a_refusal_has_no_values_in_it() -> None:
    for body in ({"a": "topsecret\0"}, {"a": "topsecret\ud800"}, {"a": [b"topsecret"]}, {"a": {"topsecret"}}):
        with pytest.raises(InvalidMessage) as raised:
            encode(body, LIMITS)
        assert "topsecret" not in str(raised.value)
        assert raised.value.__cause__ is None


def test_limits_are_settings() -> None:
    small = Settings(body_bytes=10, body_depth=2)
    assert encode([[1]], small) == "[[1]]"
    for body in ([[[1]]], "x" * 9):
        with pytest.raises(InvalidMessage, match="setting body_"):
            encode(body, small)
    deep = Settings(body_depth=100_000)
    with pytest.raises(InvalidMessage, match="too deep"):
        encode(hostile.nested(50_000), deep)


def test_text_that_looks_like_a_long_number_is_text() -> None:
    for text in ("-" + "1" * 5000, "1" * 5000):
        assert read(encode({"n": text}, LIMITS)) == {"n": text}


def test_a_python_that_writes_longer_numbers_is_not_believed() -> None:
    import sys

    before = sys.get_int_max_str_digits()
    try:
        sys.set_int_max_str_digits(0)
        for number in (10**4300, 10**6000):
            with pytest.raises(InvalidMessage, match="Integer value out of range"):
                encode([number], LIMITS)
        sys.set_int_max_str_digits(1000)
        with pytest.raises(InvalidMessage, match="digits"):
            encode([10**2000], LIMITS)
    finally:
        sys.set_int_max_str_digits(before)


# --- Whatever comes to mind ----------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
ANY_TEXT = st.text(st.one_of(st.characters(), st.sampled_from('\0\ud800\udfff\\"u0')))
FINITE = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FINITE | TEXT,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(TEXT, inner, max_size=6),
    max_leaves=30,
)
MESSY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | ANY_TEXT
    | st.binary(max_size=4)
    | st.datetimes(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(ANY_TEXT | st.integers(), inner, max_size=4)
        | st.tuples(inner, inner)
    ),
    max_leaves=15,
)


@given(JSON)
def test_any_json_comes_back(value: Any) -> None:
    text = encode(value, LIMITS)
    assert exactly(read(text)) == exactly(value)
    assert encode_raw(text, LIMITS) == text


def is_plain(value: Any) -> bool:
    match value:
        case str():
            return not re.search("[\ud800-\udfff\0]", value)
        case float():
            return math.isfinite(value)
        case list():
            return all(map(is_plain, value))
        case dict():
            return all(
                isinstance(key, str) and is_plain(key) and is_plain(each) for key, each in value.items()
            )
        case None | bool() | int():
            return True
    return False


@given(MESSY)
@example({"a": "\\u0000"})
@example({"a": "\\\0u0000"})
def test_what_is_messy_comes_back_or_is_refused_and_never_half(value: Any) -> None:
    try:
        text = encode(value, LIMITS)
    except InvalidMessage:
        assert not is_plain(value)
        return
    if is_plain(value):
        assert exactly(read(text)) == exactly(value)
    assert encode_raw(text, LIMITS) == text


@given(st.text(st.sampled_from('[]{}",:0123456789.eE+-truefalsn \\ud8\0\ud800é'), max_size=30) | ANY_TEXT)
@example('{"a":1,"a":2}')
@example('"\\u0000"')
def test_any_text_is_json_for_everybody_or_refused(text: str) -> None:
    try:
        kept = encode_raw(text, LIMITS)
    except InvalidMessage:
        return
    assert kept == text

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    value = json.loads(text, object_pairs_hook=once)
    assert read(text) == value
    assert "\0" not in json.dumps(value, ensure_ascii=False)
    assert "\\u0000" not in json.dumps(value)[1:].replace("\\\\", "")


@given(st.binary(max_size=30) | st.text(max_size=20).map(str.encode))
def test_any_bytes_are_read_or_refused_by_one_exception(data: bytes) -> None:
    try:
        encode_raw(data, LIMITS)
    except InvalidMessage:
        pass


@given(st.text(max_size=40))
def test_any_stored_text_is_read_or_unreadable(text: str) -> None:
    try:
        read(text)
    except Unreadable as error:
        unreadable = error
    else:
        return
    assert unreadable.reason is Reason.SERIALIZATION_ERROR


# --- Bytes of other systems -------------------------------------------------------------------------------------------


@given(st.binary())
def test_foreign_bytes_come_back_to_a_parameter_of_bytes(data: bytes) -> None:
    text = encode_foreign(data, Settings())
    assert decoder_for(bytes)(text) == data
    assert decoder_for(dict)(text).keys() == {BASE64}
    assert encode_raw(text, Settings()) == text, "it is a body like any other"


def test_a_text_is_still_base64_to_a_parameter_of_bytes() -> None:
    assert decoder_for(bytes)('"AP8="') == b"\x00\xff"


@pytest.mark.parametrize("body", ['{"data_base64":"AP8=","more":1}', "{}", '{"data_base64":"!"}', "[1]", "7"])
def test_what_holds_no_bytes_is_not_read_as_bytes(body: str) -> None:
    with pytest.raises(Unreadable):
        decoder_for(bytes)(body)


def test_foreign_bytes_have_the_limit_of_a_body() -> None:
    with pytest.raises(InvalidMessage, match="body_bytes"):
        encode_foreign(b"x" * 1000, Settings(body_bytes=1024))


def test_json_that_arrives_as_bytes_is_kept_as_it_is() -> None:
    text = b'{ "b" : 1.50,\n "a": "\\u00e9" }'
    assert encode_raw(text, Settings()) == text.decode()
