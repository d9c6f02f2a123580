"""Limits as values: how many messages of a handler may begin or run.

This module does not know where they are stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, Protocol, TypeVar

from ..errors import InvalidSettings

P = ParamSpec("P")
R = TypeVar("R")

SLOTS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Rate:
    """This many in a second, and at most `burst` at once."""

    per_second: float
    burst: int

    def __post_init__(self) -> None:
        if not 1 / 86_400 <= self.per_second <= 1_000_000:
            raise InvalidSettings(f"A rate of {self.per_second:g}/s is not between 1/d and 1000000/s.")
        if type(self.burst) is not int or not 1 <= self.burst <= 10_000_000:
            raise InvalidSettings(f"burst={self.burst!r} must be a whole number of at least 1.")


@dataclass(frozen=True, slots=True)
class SharedRate:
    """A rate with a name: all handlers that use the name share it, on all machines."""

    name: str
    rate: Rate


@dataclass(frozen=True, slots=True)
class SharedSlots:
    """This many at once, with a name: all handlers that use the name share them, on all machines."""

    name: str
    count: int


class Breaker(Protocol):
    """What a handler knows of a breaker: its name, and how to put a function behind it."""

    @property
    def name(self) -> str: ...

    def guard(
        self, function: Callable[P, R], *, is_async: bool, timeout: float | None = None
    ) -> Callable[P, R]: ...


class Door(Protocol):
    """Whether this process can work on a queue at all: whether it is connected to the queue's destination.

    It answers from memory, so it may be asked often.
    """

    def is_open(self) -> bool: ...

    def back_for(self, now: float) -> float | None:
        """Seconds since it opened again after it was shut for a long time; None: it was not."""
        ...


def slots_count(count: object, who: str) -> int:
    """A valid number of slots."""
    if type(count) is not int or not 1 <= count <= SLOTS_MAX:
        raise InvalidSettings(f"{who}: {count!r} must be a whole number from 1 to {SLOTS_MAX}.")
    return count
