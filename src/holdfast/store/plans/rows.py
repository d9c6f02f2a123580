"""Rows of work from both databases: their columns, and what is known before they are decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload
from uuid import UUID

from ...model.work import Leased, Share
from ..statement import Rows

TIMER = "holdfast/timer"  # the queue of scheduled messages that wait to enter a stream or to get subscribers
SEQ, ID, QUEUE, BODY, STREAM, POSITION, ATTEMPTS, EPOCH, RUN = 0, 1, 2, 4, 5, 6, 10, 17, 18


def by_queue(rows: Rows) -> dict[str, Rows]:
    if len({row[QUEUE] for row in rows}) == 1:  # mostly
        return {rows[0][QUEUE]: rows}
    queues: dict[str, Rows] = {}
    for row in rows:
        queues.setdefault(row[QUEUE], []).append(row)
    return queues


def share(rows: Rows) -> Share:
    """The share of a queue, counted from its rows."""
    return Share(
        messages=len(rows),
        heads=len([True for row in rows if row[SEQ] == row[RUN]]),
        ordered=[row[POSITION] for row in rows].count(None) < len(rows),
        bytes=sum([len(row[BODY]) for row in rows]),
    )


class Unread(Sequence[Leased]):
    """Rows of work that become messages on first use: by then the next exchange may be in flight."""

    def __init__(self, count: int, read: Callable[[], list[Leased]]) -> None:
        self._count, self._read = count, read
        self._work: list[Leased] | None = None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Leased]:
        return iter(self._all())

    @overload
    def __getitem__(self, n: int) -> Leased: ...
    @overload
    def __getitem__(self, n: slice) -> Sequence[Leased]: ...
    def __getitem__(self, n: int | slice) -> Leased | Sequence[Leased]:
        return self._all()[n]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._all() == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._all())

    def _all(self) -> list[Leased]:
        if self._work is None:
            self._work, self._read = self._read(), list  # rows are released
        return self._work


@dataclass(frozen=True, slots=True)
class Back:
    """A dead letter on its way back. `place`: its old position at the front, -1 for the end, None out of the order."""

    id: UUID
    queue: str
    number: int
    stream: str | None
    place: int | None
    head: bool

    @property
    def key(self) -> tuple[UUID, str, int]:
        return self.id, self.queue, self.number


@dataclass(frozen=True, slots=True)
class Pruned:
    """The result of a batch of cleaning. `mark`: where the next batch continues."""

    count: int
    more: bool
    mark: Any = None
