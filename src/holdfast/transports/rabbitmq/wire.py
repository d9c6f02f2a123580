"""What is written to RabbitMQ: messages as frames, and all that is written in one step of the loop together.

pika makes each frame of a message and each field of its properties one by one, and hands every frame to the system in a
call of its own. That took more time than all else that was done to send a message. Here a message becomes the same
bytes in one go. pika still opens, numbers and ends channels, and understands what the broker answers.

Imports pika, so it is imported only where a connection is opened.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from pika import BasicProperties, frame, spec

from ..contract import Outgoing
from . import frames

PIECE = 64 * 1024  # bytes that are handed to the system together; a partial send copies what is left of them
PERSISTENT = 2
SHORT_BYTES = 255  # of an AMQP short string
AROUND = 8  # bytes of a frame beside its payload

_CONTENT_TYPE, _HEADERS = BasicProperties.FLAG_CONTENT_TYPE, BasicProperties.FLAG_HEADERS
_TIMESTAMP = BasicProperties.FLAG_TIMESTAMP
_ALWAYS = BasicProperties.FLAG_DELIVERY_MODE | BasicProperties.FLAG_MESSAGE_ID | BasicProperties.FLAG_TYPE
_MODE = bytes((PERSISTENT,))
_END = bytes((spec.FRAME_END,))
_FRAME = struct.Struct(">BHI").pack  # kind, channel, size of the payload
_CONTENT = struct.Struct(
    ">BHIHHQH"
).pack  # the same, and in front of properties: class, 0, size of the body, flags
_CONTENT_SIZE = 14  # of the payload's part of it
_LONG = struct.Struct(">I").pack
_TIME = struct.Struct(">Q").pack


class Connection(frames.Connection):
    """A connection that hands to the system together what is written in one step of the loop."""

    def __init__(self, *given: Any, **named: Any) -> None:
        self._unwritten: list[bytes] = []
        self._unwritten_bytes = 0
        super().__init__(*given, **named)

    def publish(self, channel: int, message: Outgoing) -> None:
        """Publish a message, persistent and mandatory. If it cannot be written, nothing of it is, and this raises."""
        content = _content(channel, message)
        self._write(_method(channel, message.to, message.key))
        self._write(content)
        for each in _body(channel, message.body, self.params.frame_max - AROUND):
            self._write(each)

    def _adapter_emit_data(self, data: bytes) -> None:
        """Where pika writes."""
        self._write(data)

    def _write(self, data: bytes) -> None:
        if not self._unwritten:
            self.ioloop.call_soon(self._write_out)
        self._unwritten.append(data)
        self._unwritten_bytes += len(data)
        if self._unwritten_bytes >= PIECE:
            self._write_out()

    def _write_out(self) -> None:
        unwritten, self._unwritten, self._unwritten_bytes = self._unwritten, [], 0
        if unwritten and not self.is_closed:  # else it was lost meanwhile
            super()._adapter_emit_data(b"".join(unwritten))


# A method frame, a content header, and the body in as many frames as it needs.


@lru_cache(maxsize=1024)  # most messages of a destination have one of a few addresses
def _method(channel: int, to: str, key: str) -> bytes:
    made: bytes = frame.Method(
        channel, spec.Basic.Publish(exchange=to, routing_key=key, mandatory=True)
    ).marshal()
    return made


def _content(channel: int, message: Outgoing) -> bytes:
    flags = _ALWAYS
    pieces: list[bytes] = []
    if message.content_type is not None:
        flags |= _CONTENT_TYPE
        pieces.append(_name(message.content_type))
    if message.headers:
        flags |= _HEADERS
        table = _table(message.headers)
        pieces += (_LONG(len(table)), table)
    pieces += (_MODE, _short(message.id))
    if message.time is not None:
        flags |= _TIMESTAMP
        pieces.append(_TIME(int(message.time.timestamp())))
    pieces.append(_name(message.type))
    properties = b"".join(pieces)
    size = _CONTENT_SIZE + len(properties)
    begins = _CONTENT(spec.FRAME_HEADER, channel, size, BasicProperties.INDEX, 0, len(message.body), flags)
    return b"".join((begins, properties, _END))


def _table(headers: Mapping[str, str]) -> bytes:
    pieces: list[bytes] = []
    for name, text in headers.items():
        value = text.encode()
        pieces += (_field(name), _LONG(len(value)), value)
    return b"".join(pieces)


def _body(channel: int, body: bytes, most: int) -> Iterator[bytes]:
    for start in range(0, len(body), most):
        part = memoryview(body)[start : start + most]  # a large body is not copied twice
        yield b"".join((_FRAME(spec.FRAME_BODY, channel, len(part)), part, _END))


def _short(text: str) -> bytes:
    value = text.encode()
    if len(value) > SHORT_BYTES:
        raise ValueError(f"it has {len(value)} bytes, and AMQP allows {SHORT_BYTES}")
    return bytes((len(value),)) + value


_name = lru_cache(maxsize=1024)(_short)  # types and content types: many messages have the same


@lru_cache(maxsize=1024)  # a service has few headers, and each message has several
def _field(name: str) -> bytes:
    """A field's name in a table, and that its value is text."""
    return _short(name) + b"S"
