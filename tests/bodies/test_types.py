"""Typed bodies: what a producer's class holds comes back in the handler's, and what would be lost is refused."""

from __future__ import annotations

import collections
import dataclasses
import enum
import inspect
import math
import os
import subprocess
import sys
import types
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Generic, Literal, NamedTuple, TypedDict, TypeVar

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.bodies.codec import Unreadable, decode_headers, decoder_for, encode, encode_headers
from holdfast.errors import InvalidMessage, InvalidSettings
from holdfast.model.message import Reason
from holdfast.settings import Settings
from tests import hostile
from tests.hostile import LIMITS


class Colour(enum.StrEnum):
    RED = "red"


class Size(enum.IntEnum):
    BIG = 1
    SMALL = 2


class Shape(enum.Enum):
    ROUND = "round"


class Point(NamedTuple):
    x: int
    y: bytes


class Options(TypedDict, total=False):
    gift: bool
    note: str


class PydanticLine(pydantic.BaseModel):
    sku: str = pydantic.Field(alias="skuCode")
    price: Decimal
    at: datetime | None = None


@dataclasses.dataclass
class Line:
    sku: str
    counts: dict[int, int]
    tags: set[str]
    raw: bytes
    point: Point
    _private: int = 5


@dataclasses.dataclass
class Order:
    id: uuid.UUID
    at: datetime
    day: date
    wait: timedelta
    total: Decimal
    colour: Colour
    size: Size
    shape: Shape
    lines: list[Line]
    options: Options
    by_day: dict[date, float]
    by_id: dict[uuid.UUID, str]
    line: PydanticLine | None = None
    note: str | None = None


@dataclasses.dataclass
class Computed:
    shared: ClassVar[object] = object()
    seed: int
    double: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.double = self.seed * 2

    def model_dump(self) -> None:
        """A method with the name of one of pydantic's."""


@dataclasses.dataclass(slots=True, frozen=True)
class Slotted:
    a: int
    kind: ClassVar[type] = int


class Empty(msgspec.Struct): ...


@dataclasses.dataclass
class Nothing: ...


class Number(enum.Enum):
    ONE = 1


@dataclasses.dataclass
class Keyed:
    sizes: dict[Size, int]
    numbers: dict[Number, int]
    shapes: dict[Shape, int]


class StructOrder(msgspec.Struct, rename="camel", omit_defaults=True, tag="order"):
    order_id: int
    raw_data: bytes = b""
    keep: frozenset[int] = frozenset()
    maybe: int | msgspec.UnsetType = msgspec.UNSET


class Compact(msgspec.Struct, array_like=True, frozen=True):
    a: int
    b: float


class Model(pydantic.BaseModel):
    id: int
    lines: list[PydanticLine] = []
    price: float = 0.0
    anything: Any = None
    data: bytes = b""
    keys: dict[int, str] = {}


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]


@pydantic.dataclasses.dataclass
class PydanticDataclass:
    a: int
    at: datetime


Root = pydantic.RootModel[list[int]]
NOW = datetime(2026, 7, 1, 12, 0, 0, 5, UTC)


def line() -> Line:
    return Line("a", {1: 2, -3: 4}, {"x", "y"}, b"\x00\xff", Point(1, b"\xfe"))


def order() -> Order:
    model = PydanticLine(skuCode="x", price=Decimal("1.10"), at=NOW)
    return Order(
        uuid.UUID(int=1), NOW, NOW.date(), timedelta(seconds=1.5), Decimal("9.99"), Colour.RED, Size.BIG, Shape.ROUND,
        [line()], {"gift": True}, {NOW.date(): 0.5}, {uuid.UUID(int=2): "x"}, model,
    )  # fmt: skip


TYPED: list[tuple[Any, Any]] = [
    (order(), Order),
    ([line()], list[Line]),
    ({"a": line()}, dict[str, Line]),
    (StructOrder(1), StructOrder),
    (StructOrder(2, b"\xff", frozenset([3]), 4), StructOrder),
    ([Compact(1, 0.5)], list[Compact]),
    (Point(1, b"x"), Point),
    ({"gift": True}, Options),
    (Model(id=1, lines=[PydanticLine(skuCode="x", price=Decimal("0.1"))]), Model),
    (Model(id=1, price=1e308, anything={"a": [None, 1]}, data=b"abc", keys={1: "x"}), Model),
    ([Model(id=1)], list[Model]),
    ({"a": Model(id=1)}, dict[str, Model]),
    (Cat(kind="cat"), Cat | Dog),
    (Dog(kind="dog"), Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]),
    (Root([1, 2]), Root),
    (PydanticDataclass(1, NOW), PydanticDataclass),
    (Computed(2), Computed),
    (Slotted(1), Slotted),
    (Empty(), Empty),
    (Nothing(), Nothing),
    ([Keyed({Size.BIG: 1, Size.SMALL: 2}, {Number.ONE: 1}, {Shape.ROUND: 1})], list[Keyed]),
    (Colour.RED, Colour),
    (Size.BIG, Size),
    ([Shape.ROUND], list[Shape]),
    ({Colour.RED: 1}, dict[Colour, int]),
    ({"a": 1}, dict),
    ([1], list),
    ("x", str),
    (5, int),
    (2**200, int),
    (1.5, float),
    (None, None),
    (None, int | None),
    ([1, "a", None], list[int | str | None]),
    ({"a": {"b": [1]}}, dict[str, dict[str, list[int]]]),
]


@pytest.mark.parametrize("body, annotation", TYPED)
def test_a_typed_body_comes_back_in_its_type(body: Any, annotation: Any) -> None:
    back = decoder_for(annotation)(encode(body, LIMITS))
    assert back == body
    assert type(back) is type(body)


def test_a_typed_body_is_plain_json_for_a_handler_without_annotation() -> None:
    assert decoder_for(inspect.Parameter.empty)(encode(StructOrder(1, b"x"), LIMITS)) == {
        "type": "order",
        "orderId": 1,
        "rawData": "eA==",
    }
    assert decoder_for(object)(encode(Model(id=1, keys={2: "x"}), LIMITS))["keys"] == {"2": "x"}


class FakeDatetime(datetime):
    """As libraries that freeze or improve time make them."""


class Nanosecond(datetime):
    nanosecond = 1


class Text(str):
    __slots__ = ()


class Whole(int):
    pass


class Real(float):
    pass


class Money(Decimal):
    pass


class OtherUUID(uuid.UUID):
    pass


@pytest.mark.parametrize(
    "body, plain",
    [
        (Text("x"), "x"),
        ({Text("k"): Text("v")}, {"k": "v"}),
        (Whole(5), 5),
        (Real(0.5), 0.5),
        (Money("1.5"), "1.5"),
        (OtherUUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (FakeDatetime(2026, 1, 1, 1, 2, 3, 4, UTC), "2026-01-01T01:02:03.000004Z"),
        (collections.OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (collections.defaultdict(int, a=1), {"a": 1}),
        (collections.Counter("aa"), {"a": 2}),
        (collections.ChainMap({"a": 1}, {"b": 2}), {"b": 2, "a": 1}),
        (collections.UserDict(a=1), {"a": 1}),
        (types.MappingProxyType({"a": {"b": 1}}), {"a": {"b": 1}}),
        ([msgspec.Raw(b'{"a": 1}')], [{"a": 1}]),
        ((1, (2,)), [1, [2]]),
    ],
)
def test_relatives_of_known_types_are_written_as_those(body: Any, plain: Any) -> None:
    assert decoder_for()(encode(body, LIMITS)) == plain


@dataclasses.dataclass
class Both(dict[str, int]):
    lost: int = 1


@dataclasses.dataclass
class Holder:
    inner: Any


class Secretive(pydantic.BaseModel):
    password: pydantic.SecretStr


class Constants(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(ser_json_inf_nan="constants")
    price: float


class Odd(enum.Enum):
    NAN = math.nan
    BYTES = b"x"


@pytest.mark.parametrize(
    "body, path",
    [
        (Holder(math.nan), "$.inner"),
        (Holder({"a": [0.5, math.inf]}), "$.inner.a[1]"),
        (Holder("\0"), "$.inner"),
        (Holder({"\ud800": 1}), "$.inner"),
        (Holder({1: 1, "1": 2}), "$.inner"),
        (Holder({1.5: 2}), "$.inner[1.5]"),
        (Holder({True: 2}), "$.inner[True]"),
        (Holder({Whole(1): 2}), "$.inner[1]"),
        (Holder({Size.BIG: 1, 1: 2, "1": 3}), "$.inner"),
        ({Size.BIG: 1}, "$[<Size.BIG: 1>]"),
        (Holder(hostile.nested(64)), "$.inner[0][0][0][0]…[0][0]"),
        (Holder(Holder(object())), "$.inner.inner"),
        (StructOrder(math.nan), "$.order_id"),  # type: ignore[arg-type]
        ([msgspec.UNSET], "$[0]"),
        (Both(), "$"),
        (Model(id=1, price=math.nan), "$.price"),
        (Model(id=1, anything=math.nan), "$.anything"),
        (Model(id=1, anything={"a": [math.inf]}), "$.anything.a[0]"),
        ({"m": [Model(id=1, anything=math.nan)]}, "$.m[0].anything"),
        ({"m": Model(id=1, anything="\0")}, "$.m.anything"),
        (Model(id=1, anything="\ud800"), "$"),
        (Model(id=1, data=b"\xff"), "$"),
        (Constants(price=math.nan), "$"),
        (Secretive(password=pydantic.SecretStr("topsecret")), "$.password"),
        ({"a": Odd.NAN}, "$.a"),
        ({"a": Odd.BYTES}, "$.a"),
        ([Nanosecond(2026, 1, 1, tzinfo=UTC)], "$[0]"),
        ([msgspec.Raw(b'{"a": "\\u0000"}')], "$[0].a"),
        (types.SimpleNamespace(a=1), "$"),
        (Order, "$"),
    ],
)
def test_what_would_be_lost_in_a_typed_body_is_refused_with_its_place(body: Any, path: str) -> None:
    with pytest.raises(InvalidMessage) as raised:
        encode(body, LIMITS)
    assert f"at `{path}`" in str(raised.value)
    assert "topsecret" not in str(raised.value)


@pytest.mark.parametrize(
    "annotation, text, reason, says",
    [
        (Any, "{", Reason.SERIALIZATION_ERROR, "not JSON"),
        (Any, "", Reason.SERIALIZATION_ERROR, "not JSON"),
        (Any, "[" * 100_000, Reason.SERIALIZATION_ERROR, "too deep"),
        (Any, "1e400", Reason.SERIALIZATION_ERROR, "out of range"),
        (Any, '"\ud800"', Reason.SERIALIZATION_ERROR, "UTF-8"),
        (dict, "{", Reason.SERIALIZATION_ERROR, "not JSON"),
        (dict, "[]", Reason.VALIDATION_FAILURE, "Expected `object`, got `array`"),
        (int, '"1"', Reason.VALIDATION_FAILURE, "Expected `int`, got `str`"),
        (list[int], '[1,"topsecret"]', Reason.VALIDATION_FAILURE, "at `$[1]`"),
        (Line, "{}", Reason.VALIDATION_FAILURE, "missing required field `sku`"),
        (list[Line], '[{"sku":1,"x":"topsecret"}]', Reason.VALIDATION_FAILURE, "at `$[0].sku`"),
        (Colour, '"topsecret"', Reason.VALIDATION_FAILURE, "Invalid enum value"),
        (dict[str, Size], '{"a":7777}', Reason.VALIDATION_FAILURE, "Invalid enum value - at `$[...]`"),
        (StructOrder, '{"type":"topsecret","orderId":1}', Reason.VALIDATION_FAILURE, "at `$.type`"),
        (uuid.UUID, '"topsecret"', Reason.VALIDATION_FAILURE, "Invalid UUID"),
        (Model, "{", Reason.SERIALIZATION_ERROR, "Invalid JSON"),
        (Model, '{"id":"topsecret"}', Reason.VALIDATION_FAILURE, "at `$.id`"),
        (list[Model], '[{"id":1,"lines":[{"skuCode":"topsecret"}]}]', Reason.VALIDATION_FAILURE, "[0].lines[0].price`"),
        (Cat | Dog, '{"kind":"topsecret"}', Reason.VALIDATION_FAILURE, "'cat'"),
        (Model, '"\ud800"', Reason.SERIALIZATION_ERROR, "unicode"),
        (Holder, "[" * 100_000, Reason.SERIALIZATION_ERROR, "too deep"),
    ],
)  # fmt: skip
def test_broken_text_and_wrong_shape_are_told_apart(
    annotation: Any, text: str, reason: Reason, says: str
) -> None:
    with pytest.raises(Unreadable) as raised:
        decoder_for(annotation)(text)
    if annotation is Holder:
        assert raised.value.reason in (Reason.SERIALIZATION_ERROR, Reason.VALIDATION_FAILURE)
        return
    assert raised.value.reason is reason
    assert says in str(raised.value)
    assert "topsecret" not in str(raised.value)
    assert "7777" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_a_model_inside_a_dataclass_says_what_is_wrong_without_the_value() -> None:
    body = encode(order(), LIMITS).replace('"price":"1.10"', '"price":"topsecret"')
    with pytest.raises(Unreadable, match=r"\$\.price.*at `\$\.line`") as raised:
        decoder_for(Order)(body)
    assert raised.value.reason is Reason.VALIDATION_FAILURE
    assert "topsecret" not in str(raised.value)


class Stranger: ...


@dataclasses.dataclass
class HoldsStranger:
    deep: dict[str, list[Stranger]]


T = TypeVar("T")


class Page(msgspec.Struct, Generic[T]):
    items: list[T]
    next: Page[T] | None = None


class Tree(msgspec.Struct):
    children: list[Tree] = []


class ModelOfStranger:
    pass


@pytest.mark.parametrize(
    "annotation",
    [
        Stranger,
        list[Stranger],
        HoldsStranger,
        complex,
        "Order",
        5,
        Line | Order,
        list[Model | Stranger],
        Page[Stranger],
    ],
)
def test_an_annotation_that_cannot_be_read_is_refused_before_the_first_message(annotation: Any) -> None:
    with pytest.raises(InvalidSettings, match=r"A body cannot be read as .* Annotate the parameter"):
        decoder_for(annotation)


def test_generic_and_recursive_annotations() -> None:
    assert decoder_for(Page[int])('{"items":[1],"next":{"items":[2]}}') == Page([1], Page([2]))
    assert decoder_for(Tree)('{"children":[{}]}') == Tree([Tree()])


def test_decoders_are_made_once() -> None:
    assert decoder_for(Order) is decoder_for(Order)
    unhashable = Annotated[int, msgspec.Meta(gt=0), []]
    assert decoder_for(unhashable)("1") == 1


def test_pydantic_is_not_needed() -> None:
    script = """
import sys
sys.modules["pydantic"] = None
from dataclasses import dataclass
from holdfast.bodies.codec import encode, decoder_for
from holdfast.settings import Settings

@dataclass
class A:
    a: set[int]

assert decoder_for(A)(encode(A({1}), Settings())) == A({1})
"""
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60, env=paths)


# --- Headers ---------------------------------------------------------------------------------------------------


def test_headers_come_back() -> None:
    headers: dict[str, str | int | float | bool] = {
        "traceparent": "00-x-01",
        "n": 5,
        "f": 0.5,
        "yes": True,
        "t": "é 😀",
    }
    text = encode_headers(headers, LIMITS)
    assert text is not None
    assert decode_headers(text) == headers
    assert [type(each) for each in decode_headers(text).values()] == [str, int, float, bool, str]
    assert encode_headers(None, LIMITS) is None
    assert encode_headers({}, LIMITS) is None
    assert decode_headers(None) == {}


@pytest.mark.parametrize(
    "headers, why",
    [
        ({"a": "x\r\ny: z"}, "control character"),
        ({"a": "x\0"}, "control character"),
        ({"a": "\ud800"}, "control character"),
        ({"a": math.nan}, "not a number"),
        ({"a": 2**63}, "not a number"),
        ({"a": None}, "NoneType"),
        ({"a": [1]}, "list"),
        ({"a": b"x"}, "bytes"),
        ({"a": {"b": 1}}, "dict"),
        ({"A": 1, "a": 2}, "only in case"),
        ({"a b": 1}, "header name"),
        ({"": 1}, "empty"),
        ({1: 1}, "must be text"),
        ({f"h{n}": "x" * 100 for n in range(200)}, "headers_bytes"),
    ],
)
def test_headers_that_no_transport_can_carry(headers: Any, why: str) -> None:
    with pytest.raises(InvalidMessage, match=why):
        encode_headers(headers, LIMITS)


@given(st.text(), st.text(), st.integers() | st.floats() | st.booleans() | st.text())
def test_any_headers_come_back_or_are_refused(name: str, other: str, value: Any) -> None:
    headers = {name: value, other: 1}
    try:
        text = encode_headers(headers, Settings(headers_bytes=100))
    except InvalidMessage:
        return
    assert decode_headers(text) == headers
    assert text is not None
    assert len(text.encode()) <= 100


def test_stored_headers_of_another_shape_are_unreadable() -> None:
    for text in ("[]", '{"a":{}}', "{"):
        with pytest.raises(Unreadable):
            decode_headers(text)
