"""attrs classes are bodies as dataclasses are; but msgspec leaves out their private attributes without a word."""

from __future__ import annotations

import pytest

from holdfast.bodies.codec import Unreadable, decoder_for, encode
from holdfast.errors import InvalidMessage
from holdfast.model.message import Reason
from tests.hostile import LIMITS

attrs = pytest.importorskip("attrs")


@attrs.define
class Order:
    id: int
    tags: set[str] = attrs.field(factory=set)


@attrs.define
class Private:
    _hidden: int = 1


def test_it_comes_back_in_its_type() -> None:
    order = Order(1, {"a"})
    assert decoder_for(Order)(encode(order, LIMITS)) == order
    with pytest.raises(Unreadable) as raised:
        decoder_for(list[Order])('[{"id":"x"}]')
    assert raised.value.reason is Reason.VALIDATION_FAILURE


@pytest.mark.parametrize(
    "body, path",
    [(Order(1, {"\0"}), "$.tags[0]"), (Private(), "$"), ([{"a": Private()}], "$[0].a")],
)
def test_what_would_be_lost_is_refused(body: object, path: str) -> None:
    with pytest.raises(InvalidMessage) as raised:
        encode(body, LIMITS)
    assert f"at `{path}`" in str(raised.value)
