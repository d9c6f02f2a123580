"""Values as the databases store them, and as Python sees them.

SQLite has no type for an instant, a UUID or a list: they are microseconds since 1970, text and JSON there. Also, it
stores any type in any column, so a value that is read may be of any type.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from ..clock import from_micros, micros

PARKED = 9_223_372_036_854_775_807  # SQLite's instant that never comes; PostgreSQL has infinity
BEGINNING = datetime.min.replace(tzinfo=UTC)  # before everything that is stored
PLAIN = frozenset((int, str, float, bool, type(None)))

_json = msgspec.json.Encoder()


def encode(value: Any) -> str:
    return _json.encode(value).decode()


# -- into the database


def for_sqlite(value: object) -> object:
    """A parameter as SQLite takes it."""
    match value:
        case datetime():
            return micros(value)
        case UUID():
            return str(value)
        case list():
            # UUIDs are written as text by the encoder itself.
            is_ready = not value or type(value[0]) in PLAIN or type(value[0]) is UUID
            return encode(value if is_ready else [_inside(each) for each in value])
        case _:
            return value


def document_for_sqlite(value: object) -> str:
    return encode(_inside(value))


def _inside(value: Any) -> Any:
    """A value inside a list or a document."""
    match value:
        case datetime():
            return micros(value)
        case list():
            return [_inside(each) for each in value]
        case dict():
            return {name: each if type(each) in PLAIN else _inside(each) for name, each in value.items()}
        case _:
            return value


# -- from the database


def when(value: int | None) -> datetime | None:
    """SQLite's instant; None: never."""
    return None if value is None or value == PARKED else from_micros(value)


def instant(value: Any) -> Any:
    """An instant that either database wrote; None: never, or none."""
    if isinstance(value, int):
        return when(value)
    return value if isinstance(value, datetime) else None  # SQLite stores any text


def as_id(value: Any) -> UUID:
    if isinstance(value, UUID):
        return value
    try:
        return UUID(str(value))
    except ValueError:  # SQLite stores any text: it is shown as an id that no message has
        return UUID(int=0)


def id_bytes(value: Any) -> bytes:
    """The 16 bytes of an id that either database wrote."""
    if isinstance(value, UUID):
        return value.bytes
    try:
        return bytes.fromhex(value.replace("-", ""))
    except (AttributeError, TypeError, ValueError):
        return as_id(value).bytes


def as_text(value: Any) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def decoded_errors(errors: Any) -> list[Any]:
    """A stored error history. A value that is not one is kept as the text of one entry."""
    if not isinstance(errors, str | bytes):  # PostgreSQL's driver has decoded it already
        return errors if isinstance(errors, list) else [] if errors is None else [{"text": str(errors)}]
    try:
        found = msgspec.json.decode(errors) if errors else []
    except (msgspec.DecodeError, UnicodeError):
        found = as_text(errors)
    return found if isinstance(found, list) else [{"text": str(found)}]
