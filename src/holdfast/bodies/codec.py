"""Bodies and headers to JSON text and back, strictly: a value that would not come back unchanged is refused.

The text is stored as text, so it is the same on every database. A body without types may hold what JSON has, and
tuples, dates, UUIDs, decimals and enums, which a handler's annotation brings back. In a dataclass, Struct or attrs
class, whose annotations bring everything back, there may also be sets, bytes and keys that are not text.

checking.py looks at a body before it is written, reading.py reads it.
"""

from __future__ import annotations

import sys
from base64 import b64encode
from collections.abc import Mapping
from math import isfinite
from typing import Any

import msgspec

from ..errors import InvalidMessage
from ..model.names import control_in, header_name
from ..settings import Settings
from .checking import (
    DIGITS,
    EASY,
    LONG,
    NO_NUL,
    NUL,
    PLAIN,
    STRING,
    WRITER,
    Flaw,
    count_keys,
    dump_model,
    is_model_instance,
    look,
    look_for,
    surrogate_in,
    too_deep,
    too_large,
    unread,
)
from .reading import Unreadable, decoder_for, read_plain

__all__ = [
    "BASE64", "Header", "Unreadable", "check_header", "checked_headers", "decode_headers", "decoder_for", "encode",
    "encode_foreign", "encode_headers", "encode_raw", "read_plain",
]  # fmt: skip

Header = str | int | float | bool


def encode(body: Any, limits: Settings) -> str:
    """The body as JSON text, or InvalidMessage, which says where the problem is and what to do.

    >>> encode({"id": 1}, Settings())
    '{"id":1}'
    """
    try:
        if type(body) not in EASY:
            # Dumped once here; inside another body it is dumped twice, to check it and to write it.
            if is_model_instance(body):
                body = dump_model(body)
            look(body, limits.body_depth, False)
        data = WRITER.encode(body)
        if b"\\u0000" in data:
            look_for(NUL, body, NO_NUL)
        if len(data) > DIGITS and (sys.get_int_max_str_digits() != DIGITS or LONG.search(data)):
            PLAIN.decode(data)  # msgspec counts the sign as a digit when it reads, and not when it writes
    except Flaw as flaw:
        raise flaw.refusal() from None
    except UnicodeEncodeError:
        raise surrogate_in(body).refusal() from None
    except RecursionError:
        raise too_deep().refusal() from None
    except (TypeError, ValueError, msgspec.DecodeError) as error:
        why = f"or below is what JSON cannot hold ({str(error).partition(';')[0]})"
        raise Flaw(why, "Write it as text.").refusal() from None
    if len(data) > limits.body_bytes:
        raise too_large("body", len(data), limits.body_bytes)
    return data.decode()


def encode_raw(text: str | bytes, limits: Settings) -> str:
    """Text that is already JSON, unchanged, if it is a valid body."""
    try:
        data = text.encode() if isinstance(text, str) else text
        text = data.decode()
    except UnicodeError:
        raise InvalidMessage(
            "The body cannot be stored: it is not valid UTF-8 text. Send JSON in UTF-8, without lone surrogates."
        ) from None
    if len(data) > limits.body_bytes:
        raise too_large("body", len(data), limits.body_bytes)
    try:
        tree = PLAIN.decode(data)
        look(tree, limits.body_depth, False)
        if b"\\u0000" in data:
            look_for(NUL, tree, NO_NUL)
    except Flaw as flaw:
        raise flaw.refusal() from None
    except RecursionError:
        raise too_deep().refusal() from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidMessage(f"The body cannot be stored: {unread(error)}. Send JSON (RFC 8259).") from None
    # Each key has a colon. If there are as many colons as different keys, no key is there twice and no text has a
    # colon.
    keys = count_keys(tree)
    if data.count(b":") != keys and STRING.sub("", text).count(":") != keys:
        raise InvalidMessage(
            "The body cannot be stored: an object in it has the same key twice, and readers differ in which they take. "
            "Send each key once."
        )
    return text


BASE64 = "data_base64"  # the only key of a body that holds bytes of another system that are not JSON


def encode_foreign(data: bytes, limits: Settings) -> str:
    """Bytes that are not JSON (protobuf, avro, an image) as a body: `{"data_base64": "..."}`.

    A parameter with the annotation `bytes` gets them back as they were.

    >>> encode_foreign(b"\\x00\\xff", Settings())
    '{"data_base64":"AP8="}'
    """
    text = f'{{"{BASE64}":"{b64encode(data).decode()}"}}'
    if len(text) > limits.body_bytes:
        raise too_large("body", len(text), limits.body_bytes)
    return text


def encode_headers(headers: Mapping[str, Header] | None, limits: Settings) -> str | None:
    """Headers as JSON text: names that any transport can carry, and values that are text, numbers or booleans."""
    if not headers:
        return None
    seen: dict[str, str] = {}
    for name, value in headers.items():
        twin = seen.setdefault(header_name(name).lower(), name)
        if twin != name:
            raise InvalidMessage(
                f"Headers {twin!r} and {name!r} differ only in case, which transports do not keep."
            )
        check_header(name, value)
    return checked_headers(dict(headers), limits)


def checked_headers(headers: dict[str, Header], limits: Settings) -> str | None:
    """Headers as JSON text; each name and value is checked."""
    if not headers:
        return None
    data = WRITER.encode(headers)
    if len(data) > limits.headers_bytes:
        raise too_large("headers", len(data), limits.headers_bytes)
    return data.decode()


def decode_headers(text: str | None) -> dict[str, Header]:
    return decoder_for(dict[str, Header])(text) if text else {}


def check_header(name: str, value: object) -> None:
    match value:
        case str() if not control_in(value):
            return
        case bool() | int() if abs(value) < 2**63:
            return
        case float() if isfinite(value):
            return
        case str():
            why = "has a control character, a line separator or a lone surrogate, which transports refuse"
        case bool() | int() | float():
            why = "is not a number that every transport can hold"
        case _:
            why = f"is of type {type(value).__name__}; only str, int, float and bool can be headers"
    raise InvalidMessage(f"Header {name!r} {why}. Put it into the body, or write it as text.")
