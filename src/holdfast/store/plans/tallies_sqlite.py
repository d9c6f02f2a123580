"""Counts of SQLite's engine while a plan runs: bytes handed out, and messages that left the order of streams."""

from __future__ import annotations

from typing import Any

from ...model.message import Message

SIZE = 19  # in a row of work: the bytes of its body
PLACE_MAX = 2**62


class Stream:
    """The changes of the order of one stream in a settlement."""

    __slots__ = ("halt", "removed", "start")

    def __init__(self) -> None:
        self.removed = 0
        self.start: int | None = None
        self.halt: str | None = None


def count_left(
    streams: dict[tuple[str, str], Stream], message: Message, *, removed: bool, halt: str | None = None
) -> None:
    if message.position is None or message.stream is None:
        return
    key = (message.queue, message.stream)
    stream = streams.get(key)
    if stream is None:
        streams[key] = stream = Stream()
    stream.removed += removed
    # Otherwise it has no place here: the others come before it.
    place = message.position if message.position < PLACE_MAX else 0
    stream.start = place if stream.start is None else min(stream.start, place)
    stream.halt = stream.halt or halt


class Budget:
    """How many bytes of bodies may still be handed out; the message that exceeds it is the last."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    @property
    def is_spent(self) -> bool:
        return self.left <= 0

    def take(self, row: tuple[Any, ...]) -> bool:
        self.left -= row[SIZE]
        return self.left <= 0

    def spend(self, size: int) -> bool:
        self.left -= size
        return self.left <= 0
