"""A connection of pika that can read whatever RabbitMQ passes on.

pika decodes the headers of a message itself, and fails at some: a time after the year 9999, or tables nested hundreds
deep. Its connection ends then, the broker delivers the message again, and this would repeat for ever. It
also cuts the fraction off floating-point numbers, and gives numbers of 64 bits as a class of its own, which JSON
encoders do not know. So headers are decoded here. What cannot be decoded is kept as bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from pika import frame, spec
from pika.adapters.asyncio_connection import AsyncioConnection

DEEPEST = 16  # tables and lists in each other, at most; what is deeper stays bytes

_LENGTH = struct.Struct(">I")
_FLAGS = struct.Struct(">H")
_HEAD = struct.Struct(">BHL")  # of a frame: kind, channel, size
_CONTENT = struct.Struct(">HHQ")  # of a header frame: class, weight, size of the body


class Connection(AsyncioConnection):  # type: ignore[misc]  # pika ships no types
    """Decodes the headers of messages by `headers_of`, and the rest as pika does."""

    def _read_frame(self) -> tuple[int, Any]:
        data = self._frame_buffer
        if data[0] != spec.FRAME_HEADER or len(data) < _HEAD.size:
            return frame.decode_frame(data)  # type: ignore[no-any-return]
        _, channel, size = _HEAD.unpack_from(data)
        end = _HEAD.size + size
        if len(data) <= end or data[end] != spec.FRAME_END:
            return frame.decode_frame(data)  # type: ignore[no-any-return]
        class_id, _, body_size = _CONTENT.unpack_from(data, _HEAD.size)
        content = data[_HEAD.size + _CONTENT.size : end]
        properties = spec.props[class_id]()
        at, headers = split(content)
        if at is not None:
            content = content[:at] + b"\0\0\0\0" + content[at + 4 + len(headers) :]
        properties.decode(content)
        if at is not None:
            properties.headers = table(headers)
        return end + 1, frame.Header(channel, body_size, properties)


def split(content: bytes) -> tuple[int | None, bytes]:
    """Where the table of headers begins among the properties, and its bytes; None if there is none."""
    (flags,) = _FLAGS.unpack_from(content)
    if not flags & spec.BasicProperties.FLAG_HEADERS:
        return None, b""
    at = 2
    for flag in (spec.BasicProperties.FLAG_CONTENT_TYPE, spec.BasicProperties.FLAG_CONTENT_ENCODING):
        if flags & flag:
            at += 1 + content[at]
    (size,) = _LENGTH.unpack_from(content, at)
    return at, content[at + 4 : at + 4 + size]


def text(raw: bytes) -> str:
    """Bytes that are no UTF-8 are written as \\xff: two names that differ stay different."""
    return raw.decode("utf-8", "backslashreplace")


def table(raw: bytes, depth: int = 0) -> dict[str, object]:
    """A table of AMQP, by name."""
    found: dict[str, object] = {}
    at, end = 0, len(raw)
    while at < end:
        begin = at + 1
        at = begin + raw[at]
        name = text(raw[begin:at])
        found[name], at = value(raw, at, depth)
    return found


def value(raw: bytes, at: int, depth: int) -> tuple[object, int]:
    """A value that begins with its kind, and where the next one begins.

    Of an unknown kind, or cut off, it is kept as the bytes up to the end: what is behind it cannot be found.
    """
    kind, begin = raw[at : at + 1], at + 1
    try:
        if (sized := SIZED.get(kind)) is not None:  # texts above all
            begin += 4
            end = begin + _LENGTH.unpack_from(raw, begin - 4)[0]
            return sized(raw[begin:end], depth), end
        if (fixed := FIXED.get(kind)) is not None:
            form, read = fixed
            return read(*form.unpack_from(raw, begin)), begin + form.size
    except struct.error:
        pass
    return raw[at:], len(raw)


def _text(raw: bytes, _: int) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _table(raw: bytes, depth: int) -> object:
    return raw if depth >= DEEPEST else table(raw, depth + 1)


def _list(raw: bytes, depth: int) -> object:
    if depth >= DEEPEST:
        return raw
    found: list[object] = []
    at = 0
    while at < len(raw):
        each, at = value(raw, at, depth + 1)
        found.append(each)
    return found


def _time(seconds: int) -> datetime | int:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return seconds


def _same(value: object = None) -> object:
    return value


SIZED: dict[bytes, Callable[[bytes, int], object]] = {
    b"S": _text,
    b"x": lambda raw, _: raw,
    b"F": _table,
    b"A": _list,
}
FIXED: dict[bytes, tuple[struct.Struct, Callable[..., object]]] = {
    b"t": (struct.Struct(">?"), _same),
    b"b": (struct.Struct(">b"), _same),
    b"B": (struct.Struct(">B"), _same),
    b"s": (struct.Struct(">h"), _same),
    b"u": (struct.Struct(">H"), _same),
    b"I": (struct.Struct(">i"), _same),
    b"i": (struct.Struct(">I"), _same),
    b"l": (struct.Struct(">q"), _same),
    b"L": (struct.Struct(">q"), _same),
    b"f": (struct.Struct(">f"), _same),
    b"d": (struct.Struct(">d"), _same),
    b"D": (struct.Struct(">Bi"), lambda places, digits: Decimal(digits).scaleb(-places)),
    b"T": (struct.Struct(">Q"), _time),
    b"V": (struct.Struct(""), _same),
}
