"""Checks a body before it is written: what would not come back unchanged is refused, with its place and a remedy.

msgspec writes such values without an error: NaN as null, bytes as base64, a key 1 beside a key "1". So each
body is checked first (3 us for 200 bytes; reading it back and comparing took as long, 2026-11).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from math import isfinite
from typing import Any
from uuid import UUID

import msgspec

from ..errors import InvalidMessage

NUL = re.compile("\0")
NO_NUL = "is text with a NUL character, which PostgreSQL cannot hold"
SURROGATE = re.compile("[\ud800-\udfff]")
STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
DIGITS = 4300  # of an integer: Python's default limit for writing and reading
LONG = re.compile(rb"-\d{4300}")


class Flaw(Exception):
    """Something in a body that cannot be stored. Its path is collected on the way out, innermost first."""

    def __init__(self, why: str, remedy: str) -> None:
        self.why, self.remedy = why, remedy
        self.steps: list[object] = []

    def refusal(self) -> InvalidMessage:
        place = path_of(self.steps[::-1])
        return InvalidMessage(f"The body cannot be stored: at `{place}` {self.why}. {self.remedy}".rstrip())


def look(value: Any, room: int, typed: bool) -> None:
    """Raise Flaw if msgspec would write something else than this value, or nothing at all."""
    kind = type(value)
    if kind not in EASY:
        LOOKERS.get(kind, look_closer)(value, room, typed)


def look_into_dict(value: dict[Any, Any], room: int, typed: bool) -> None:
    if not room:
        raise too_deep()
    others = False
    key: object = None
    try:
        for key, each in value.items():
            if type(key) is not str:
                others = True
                look_at_key(key, typed)
            kind = type(each)
            if kind not in EASY:
                LOOKERS.get(kind, look_closer)(each, room - 1, typed)
    except Flaw as flaw:
        flaw.steps.append(key)
        raise
    if others and len({WRITER.encode({key: 0}) for key in value}) != len(value):
        raise Flaw("has two keys that become the same text", "Make them differ as text.")


def look_into_items(value: Any, room: int, typed: bool) -> None:
    if not room:
        raise too_deep()
    index = 0
    try:
        for each in value:
            kind = type(each)
            if kind not in EASY:
                LOOKERS.get(kind, look_closer)(each, room - 1, typed)
            index += 1
    except Flaw as flaw:
        flaw.steps.append(index)
        raise


def look_at_float(value: float, room: int, typed: bool) -> None:
    if not isfinite(value):
        raise Flaw(f"is {value}, which JSON cannot hold", "Use None, or leave it out.")


def look_at_decimal(value: Decimal, room: int, typed: bool) -> None:
    if not value.is_finite():
        raise Flaw(f"is {value}, which is not a number", "Use None, or leave it out.")


def look_at_moment(value: datetime | time, room: int, typed: bool) -> None:
    if value.tzinfo is not None:
        offset = value.utcoffset()
        if offset is None or offset % timedelta(minutes=1):
            raise Flaw("is in a zone whose offset is not whole minutes", "Use .astimezone(UTC).")


def look_at_key(key: object, typed: bool) -> None:
    value = key.value if isinstance(key, Enum) else key
    if not isinstance(value, str) and not (typed and type(value) in KEYS):
        why = f"is a key of type {type(key).__name__}, which would come back as text or not at all"
        raise Flaw(why, "Use text as keys, or a list of pairs.")
    look(value, 1, typed)


def look_closer(value: Any, room: int, typed: bool) -> None:
    """Every type that has no check of its own."""
    kind: Any = type(value)
    if isinstance(value, Enum):
        look(value.value, room, typed)
    elif isinstance(value, dict):
        if hasattr(kind, "__dataclass_fields__"):
            raise Flaw("is a dict and a dataclass, whose fields would be lost", "Make it one of the two.")
        look_into_dict(value, room, typed)
    elif isinstance(value, list | tuple):
        look_into_items(value, room, typed or hasattr(kind, "_fields"))
    elif isinstance(value, bytes | bytearray | memoryview):
        if not typed:
            raise Flaw("are bytes, and JSON has only text", "Use base64.b64encode(...).decode().")
    elif isinstance(value, set | frozenset):
        if not typed:
            raise Flaw("is a set, and JSON has only lists", "Use sorted(...).")
        look_into_items(value, room, typed)
    elif (names := field_names(kind)) is not None:
        look_into_fields(value, names, room)
    else:
        look(represent(value), room, typed)


EASY = frozenset((str, bool, int, type(None), date, timedelta, UUID))
KEYS = frozenset((int, UUID, date, datetime))
LOOKERS: dict[type, Callable[[Any, int, bool], None]] = {
    dict: look_into_dict,
    list: look_into_items,
    tuple: look_into_items,
    float: look_at_float,
    Decimal: look_at_decimal,
    datetime: look_at_moment,
    time: look_at_moment,
}


def look_into_fields(value: Any, names: tuple[str, ...], room: int) -> None:
    if not room:
        raise too_deep()
    name = ""
    try:
        for name in names:
            each = getattr(value, name, None)
            kind = type(each)
            if kind not in EASY and each is not msgspec.UNSET:
                LOOKERS.get(kind, look_closer)(each, room - 1, True)
    except Flaw as flaw:
        flaw.steps.append(name)
        raise


@lru_cache(maxsize=1024)
def field_names(cls: type) -> tuple[str, ...] | None:
    """The fields of a dataclass, Struct or attrs class; None for any other."""
    if hasattr(cls, "__struct_fields__"):
        return tuple(cls.__struct_fields__)
    if hasattr(cls, "__attrs_attrs__"):
        names = tuple(attribute.name for attribute in cls.__attrs_attrs__)
        if any(name.startswith("_") for name in names):
            raise Flaw(f"is a {cls.__name__}, whose private fields would be lost", "Give them public names.")
        return names
    return tuple(each.name for each in fields(cls)) if is_dataclass(cls) else None


def represent(value: Any) -> Any:
    """A value that msgspec does not know, as one that it knows. It is also msgspec's hook for such values."""
    match value:
        case str():
            return str.__str__(value)
        case bool() | int():
            return int(value)
        case float():
            return float(value)
        case Decimal():
            return Decimal(value)
        case datetime() if not getattr(value, "nanosecond", 0):
            return datetime.combine(value.date(), value.time(), value.tzinfo).replace(fold=value.fold)
        case date() if not isinstance(value, datetime):
            return date(value.year, value.month, value.day)
        case timedelta() if not getattr(value, "nanoseconds", 0):
            return timedelta(value.days, value.seconds, value.microseconds)
        case UUID():
            return UUID(int=value.int)
        case msgspec.Raw():
            return PLAIN.decode(value)
        case Mapping() if not isinstance(value, dict):
            return dict(value)
    if is_model_instance(value):
        return dump_model(value)
    why = f"is a {type(value).__module__}.{type(value).__qualname__}, which cannot be written as JSON"
    raise Flaw(why, "Use dict, list, text, numbers, a dataclass, a msgspec Struct or a pydantic model.")


def is_model_instance(value: Any) -> bool:
    return hasattr(value, "__pydantic_validator__") and hasattr(value, "model_dump_json")


def dump_model(model: Any) -> Any:
    """A pydantic model in the form that can be validated again. Pydantic writes NaN as null and a secret as stars."""
    try:
        text = model.model_dump_json(by_alias=True, round_trip=True)
        for steps, part in parts_of(model.model_dump()) if "null" in text or "***" in text else ():
            if hasattr(part, "get_secret_value"):
                raise within(steps, Flaw("is a secret, and messages can be read", "Send a reference to it."))
            if isinstance(part, float) and not isfinite(part):
                raise within(steps, Flaw(f"is {part}, which JSON cannot hold", "Use None, or leave it out."))
        return PLAIN.decode(text)
    # Pydantic's own error is a ValueError.
    except (TypeError, ValueError, msgspec.DecodeError) as error:
        why = f"is a {type(model).__name__} that pydantic cannot write ({type(error).__name__})"
        raise Flaw(why, "Call model_dump_json() to see the error.") from None


def within(steps: list[object], flaw: Flaw) -> Flaw:
    flaw.steps.extend(reversed(steps))
    return flaw


WRITER = msgspec.json.Encoder(enc_hook=represent)
PLAIN = msgspec.json.Decoder()


# --- Finding one text in a tree -----------------------------------------------------------------------------


def parts_of(value: Any, steps: list[object] | None = None) -> Iterator[tuple[list[object], Any]]:
    """Every leaf and every key with its path. Slow; for errors only. The depth was checked before."""
    steps = steps or []
    if isinstance(value, Enum):
        value = value.value
    kind: Any = type(value)
    if isinstance(value, dict):
        for key, each in value.items():
            yield steps, key
            yield from parts_of(each, [*steps, key])
    elif isinstance(value, list | tuple | set | frozenset):
        for index, each in enumerate(value):
            yield from parts_of(each, [*steps, index])
    elif (names := field_names(kind)) is not None:
        for name in names:
            yield from parts_of(getattr(value, name, None), [*steps, name])
    elif is_model_instance(value) or isinstance(value, Mapping | msgspec.Raw):
        yield from parts_of(represent(value), steps)
    else:
        yield steps, value


def look_for(pattern: re.Pattern[str], body: Any, why: str) -> None:
    for steps, part in parts_of(body):
        if isinstance(part, str) and pattern.search(part):
            raise within(steps, Flaw(why, "Take it out, or encode the text."))


def surrogate_in(body: Any) -> Flaw:
    why = "is text with a lone surrogate, which is not a character"
    try:
        look_for(SURROGATE, body, why)
    except Flaw as flaw:
        return flaw
    return Flaw(why, "Take it out.")


def count_keys(tree: Any) -> int:
    if isinstance(tree, dict):
        return len(tree) + sum(map(count_keys, tree.values()))
    return sum(map(count_keys, tree)) if isinstance(tree, list) else 0


def too_deep() -> Flaw:
    return Flaw("is nested too deep, or contains itself", "Flatten it, or raise the setting body_depth.")


def too_large(what: str, size: int, limit: int) -> InvalidMessage:
    return InvalidMessage(
        f"The {what} cannot be stored: {size:,} bytes of JSON, and {limit:,} are allowed (setting {what}_bytes). "
        "Keep the data elsewhere and send a reference to it."
    )


def path_of(steps: list[object]) -> str:
    """The path in the tree, such as `$.items[3].price`."""
    if len(steps) > 8:
        return f"{path_of(steps[:5])}…{path_of(steps[-2:])[1:]}"
    return "$" + "".join(map(step, steps))


def step(each: object) -> str:
    if isinstance(each, str) and each.isascii() and each.isidentifier() and len(each) <= 40:
        return f".{each}"
    return f"[{repr(each)[:40]}]"


def unread(error: Exception) -> str:
    match error:
        case RecursionError():
            return "it is nested too deep"
        case UnicodeError():
            return "it is not valid UTF-8"
        case _:
            return f"it is not JSON ({without_values(str(error))})"


def without_values(text: str) -> str:
    """msgspec quotes a value that is not a member of an enum, but the text of an error must not hold a payload."""
    return re.sub(r"^(Invalid [\w ]+?) ('.*'|-?\d+)(?= - at |$)", r"\1", text, flags=re.DOTALL)
