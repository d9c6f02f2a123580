"""A connection of pika that can read whatever RabbitMQ passes on, and reads deliveries by itself.

pika decodes the headers of a message itself, and fails at some: a time after the year 9999, or tables nested hundreds
deep. Its connection ends then, the broker delivers the message again, and this would repeat for ever. It
also cuts the fraction off floating-point numbers, and gives numbers of 64 bits as a class of its own, which JSON
encoders do not know. So headers are decoded here. What cannot be decoded is kept as bytes.

pika also makes objects of each of the three frames of a delivery and looks for callbacks of each, which took more time
than to read what is in them. Deliveries of a channel that asked for it are put together here (`Deliveries`). All
other frames go to pika.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from pika import BasicProperties, exceptions, frame, spec
from pika.adapters.asyncio_connection import AsyncioConnection

DEEPEST = 16  # tables and lists in each other, at most; what is deeper stays bytes
RECEIVED = 64 * 1024  # bytes that are taken from the system in one call; pika takes 4 KiB

_LENGTH = struct.Struct(">I")
_FLAGS = struct.Struct(">H")
_HEAD = struct.Struct(">BHL")  # of a frame: kind, channel, size
_CONTENT = struct.Struct(">HHQ")  # of a header frame: class, weight, size of the body
_TAG = struct.Struct(">QB")  # in a delivery: its number, and whether it was delivered before
_FIELD = struct.Struct(">BI")  # in a table, before a text: its kind and its size
_SECONDS = struct.Struct(">Q")
_KINDS = (spec.FRAME_METHOD, spec.FRAME_HEADER, spec.FRAME_BODY, spec.FRAME_HEARTBEAT)
_DELIVER = _LENGTH.pack(spec.Basic.Deliver.INDEX)
_TEXT = ord("S")

Take = Callable[["Delivery"], None]


class Properties(NamedTuple):
    """What is read of the properties of a delivery."""

    content_type: str | None = None
    headers: dict[str, object] = {}  # noqa: RUF012  # nothing is ever put into it
    id: str | None = None
    time: int | None = None
    type: str | None = None


class Delivery(NamedTuple):
    """A message as the broker delivers it."""

    number: int
    redelivered: bool
    to: str
    key: str
    properties: Properties
    body: bytes


class Deliveries:
    """Puts together the deliveries of one channel: a method, a header, and the body in any number of frames."""

    def __init__(self, take: Take) -> None:
        self._take = take
        self._method: tuple[int, bool, str, str] | None = None  # of the delivery that is being received
        self._properties = b""
        self._left = 0  # bytes of its body that have not come
        self._pieces: list[bytes] = []

    def frame(self, kind: int, data: bytes, at: int, end: int) -> bool:
        """Whether the frame belongs to a delivery; `at` and `end` are where its payload is."""
        if kind == spec.FRAME_METHOD:
            if data[at : at + 4] != _DELIVER:
                return False
            tag = at + 5 + data[at + 4]  # behind the consumer's tag: a channel has one consumer
            number, redelivered = _TAG.unpack_from(data, tag)
            exchange = tag + 10
            key = exchange + data[tag + 9] + 1
            self._method = (
                number,
                redelivered != 0,
                known(data[exchange : key - 1]),
                known(data[key : key + data[key - 1]]),
            )
            return True
        if self._method is None:
            return False
        if kind == spec.FRAME_HEADER:
            _, _, self._left = _CONTENT.unpack_from(data, at)
            self._properties = data[at + _CONTENT.size : end]
        else:
            self._left -= end - at
            self._pieces.append(data[at:end])
        if self._left < 0:
            raise exceptions.BodyTooLongError(-self._left, 0)
        if not self._left:
            method, pieces, self._method, self._pieces = self._method, self._pieces, None, []
            body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            self._take(Delivery(*method, properties(self._properties), body))
        return True


class Connection(AsyncioConnection):  # type: ignore[misc]  # pika ships no types
    """Reads deliveries and decodes the headers of other messages by what is below, and the rest as pika does."""

    _frame_buffer: bytes  # pika's: what was received and is no whole frame yet

    def __init__(self, *given: Any, **named: Any) -> None:
        self._deliveries: dict[int, Deliveries] = {}
        super().__init__(*given, **named)

    def deliver(self, channel: int, take: Take | None) -> None:
        """Give the deliveries of this channel to `take`, and no longer to pika; None: to pika again."""
        self._deliveries.pop(channel, None)
        if take is not None:
            self._deliveries[channel] = Deliveries(take)

    def _proto_connection_made(self, transport: Any) -> None:
        transport._MAX_RECV_BYTES = RECEIVED
        super()._proto_connection_made(transport)

    def _on_data_available(self, data_in: bytes) -> None:
        """Where pika gets what was received. It gives the same to `_process_frame`, but for deliveries."""
        data = self._frame_buffer = self._frame_buffer + data_in
        at, whole = 0, len(data)
        while whole - at >= _HEAD.size:
            kind, channel, size = _HEAD.unpack_from(data, at)
            begin = at + _HEAD.size
            end = begin + size
            if kind in _KINDS and end >= whole:
                break
            taking = self._deliveries.get(channel)
            if taking is None or data[end : end + 1] != _END or not taking.frame(kind, data, begin, end):
                length, read = _decoded(data[at : end + 1] if kind in _KINDS else data[at:])
                if read is None:
                    break
                self._process_frame(read)
                if self._frame_buffer is not data:
                    return  # the connection ended, and with it what it had received
                end = at + length - 1
            at = end + 1
        self.bytes_received += at
        self._frame_buffer = data[at:]


_END = bytes((spec.FRAME_END,))


def _decoded(data: bytes) -> tuple[int, Any]:
    """The frame that these bytes begin with and its length, or None if it is not whole."""
    if data[0] != spec.FRAME_HEADER:
        return frame.decode_frame(data)  # type: ignore[no-any-return]
    _, channel, size = _HEAD.unpack_from(data)
    end = _HEAD.size + size
    if len(data) <= end or data[end] != spec.FRAME_END:
        return frame.decode_frame(data)  # type: ignore[no-any-return]
    class_id, _, body_size = _CONTENT.unpack_from(data, _HEAD.size)
    content = data[_HEAD.size + _CONTENT.size : end]
    made = spec.props[class_id]()
    at, headers = split(content)
    if at is not None:
        content = content[:at] + b"\0\0\0\0" + content[at + 4 + len(headers) :]
    made.decode(content)
    if at is not None:
        made.headers = table(headers)
    return end + 1, frame.Header(channel, body_size, made)


def properties(raw: bytes) -> Properties:
    """What is needed of the properties of a message. Of those that are cut off, what can be read."""
    media = id = time = kind = None
    headers: dict[str, object] = {}
    try:
        (flags,) = _FLAGS.unpack_from(raw)
        at = 2
        if flags & BasicProperties.FLAG_CONTENT_TYPE:
            begin, at = at + 1, at + 1 + raw[at]
            media = known(raw[begin:at])
        if flags & BasicProperties.FLAG_CONTENT_ENCODING:
            at += 1 + raw[at]
        if flags & BasicProperties.FLAG_HEADERS:
            begin, at = at + 4, at + 4 + _LENGTH.unpack_from(raw, at)[0]
            headers = table(raw[begin:at])
        if flags & BasicProperties.FLAG_DELIVERY_MODE:
            at += 1
        if flags & BasicProperties.FLAG_PRIORITY:
            at += 1
        for flag in _BETWEEN:
            if flags & flag:
                at += 1 + raw[at]
        if flags & BasicProperties.FLAG_MESSAGE_ID:
            begin, at = at + 1, at + 1 + raw[at]
            id = text(raw[begin:at])
        if flags & BasicProperties.FLAG_TIMESTAMP:
            (time,) = _SECONDS.unpack_from(raw, at)
            at += 8
        if flags & BasicProperties.FLAG_TYPE:
            kind = known(raw[at + 1 : at + 1 + raw[at]])
    except (struct.error, IndexError):
        pass
    return Properties(media, headers, id, time, kind)


_BETWEEN = (
    BasicProperties.FLAG_CORRELATION_ID,
    BasicProperties.FLAG_REPLY_TO,
    BasicProperties.FLAG_EXPIRATION,
)


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


# For texts of which a service has few: addresses, types, names of headers.
known = lru_cache(maxsize=1024)(text)


def table(raw: bytes, depth: int = 0) -> dict[str, object]:
    """A table of AMQP, by name."""
    found: dict[str, object] = {}
    at, end = 0, len(raw)
    while at < end:
        begin = at + 1
        at = begin + raw[at]
        name = known(raw[begin:at])
        if end - at >= _FIELD.size:
            kind, size = _FIELD.unpack_from(raw, at)
            if kind == _TEXT:  # as almost always
                begin = at + _FIELD.size
                at = begin + size
                found[name] = _text(raw[begin:at], depth)
                continue
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
