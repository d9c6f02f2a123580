"""Numbers with names, in memory that other processes can read: a worker's counts outlive the worker.

Entries are only added. Each is a name, padded to eight bytes, and its numbers. It is valid when the number of used
bytes at the front, which is written last, includes it. A number is written in one store of eight aligned bytes, so no
reader sees half of it. One process writes. The process that replaces it continues its counts, so no counter goes back.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Iterable, Sequence

import msgspec

from .families import FAMILIES, Sample
from .memory import reserved

SIZE = 1 << 20
START = 8 * 64  # bytes: how many are used, and room for counts that are dropped
HEAD = 16  # bytes of an entry before its name: how long the name is, how many numbers follow

Series = tuple[str, tuple[str, ...]]


class Sheet:
    """The numbers of one worker process. `fileno` is a file that processes share; without one the memory is private."""

    def __init__(self, fileno: int | None = None, size: int = SIZE) -> None:
        self.fileno, self.size = fileno, size
        if fileno is None:
            self._memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        else:
            self._memory = mmap.mmap(fileno, size)
        self._numbers = memoryview(self._memory).cast("d")
        self._whole = memoryview(self._memory).cast("q")
        self._places: dict[Series, int] | None = None  # read when first needed: by the process that writes
        self._lock = threading.Lock()

    @classmethod
    def create(cls, size: int = SIZE) -> Sheet:
        return cls(reserved(size), size)

    def add(self, changes: Iterable[tuple[int, float]]) -> None:
        """Add these amounts to the numbers at these places."""
        numbers = self._numbers
        with self._lock:
            for place, amount in changes:
                numbers[place] += amount

    def place(self, name: str, *labels: str) -> int:
        """Where the numbers of a series begin. When there is no room left, the place for counts that are dropped."""
        series = (name, labels)
        with self._lock:
            if self._places is None:
                self._places = {key: place for key, place, _ in self._entries()}
            place = self._places.get(series)
            if place is None:
                place = self._places[series] = self._append(series)
            return place

    def _append(self, series: Series) -> int:
        name = msgspec.json.encode(series)
        count = _count(series[0])
        start = self._whole[0] or START
        numbers = start + HEAD + -(-len(name) // 8) * 8
        end = numbers + 8 * count
        if end > self.size:
            return 1
        self._whole[start // 8], self._whole[start // 8 + 1] = len(name), count
        self._memory[start + HEAD : start + HEAD + len(name)] = name
        self._whole[0] = end
        return numbers // 8

    def _entries(self) -> list[tuple[Series, int, int]]:
        found, start, end = [], START, self._whole[0]
        while start < end:
            length, count = self._whole[start // 8], self._whole[start // 8 + 1]
            name, labels = msgspec.json.decode(self._memory[start + HEAD : start + HEAD + length])
            numbers = start + HEAD + -(-length // 8) * 8
            found.append(((name, tuple(labels)), numbers // 8, count))
            start = numbers + 8 * count
        return found

    def read(self) -> list[Sample]:
        return [
            Sample(name, labels, tuple(self._numbers[place : place + count]))
            for (name, labels), place, count in self._entries()
        ]

    def close(self) -> None:
        self._numbers.release()
        self._whole.release()
        self._memory.close()
        if self.fileno is not None:
            os.close(self.fileno)


def summed(sheets: Sequence[Sheet]) -> list[Sample]:
    """The numbers of several processes as one."""
    total: dict[Series, tuple[float, ...]] = {}
    for sheet in sheets:
        for name, labels, values in sheet.read():
            there = total.get((name, labels))
            total[name, labels] = (
                values if there is None else tuple(a + b for a, b in zip(there, values, strict=True))
            )
    return [Sample(name, labels, values) for (name, labels), values in total.items()]


def _count(name: str) -> int:
    buckets = FAMILIES[name].buckets
    return len(buckets) + 2 if buckets else 1
