"""Rows of work as both databases hand them out: where things are in them, what can be told before they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import overload

from ..work import Leased, Share
from .statement import Rows

SEQ, ID, QUEUE, BODY, STREAM, POSITION, ATTEMPTS, EPOCH, RUN = 0, 1, 2, 4, 5, 6, 10, 17, 18


def shares(rows: Rows) -> dict[str, Share]:
    """What there is of each queue."""
    queues: dict[str, Rows] = {}
    for row in rows:
        queues.setdefault(row[QUEUE], []).append(row)
    return {queue: _share(its) for queue, its in queues.items()}


def _share(rows: Rows) -> Share:
    return Share(
        messages=len(rows),
        heads=len([row for row in rows if row[SEQ] == row[RUN]]),
        ordered=any(row[POSITION] is not None for row in rows),
        bytes=sum([len(row[BODY]) for row in rows]),
    )


class Unread(Sequence[Leased]):
    """Rows of work that are made into messages when somebody looks: by then the next exchange may be on its way."""

    def __init__(self, rows: Rows, read: Callable[[Rows], list[Leased]]) -> None:
        self._rows, self._read = rows, read
        self._work: list[Leased] | None = None

    def __len__(self) -> int:
        return len(self._rows)

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
            self._work = self._read(self._rows)
        return self._work
