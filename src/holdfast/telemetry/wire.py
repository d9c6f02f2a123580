"""What a relay and an inbox report to a watch: once for each batch, and once for each try to connect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

SentFate = Literal["confirmed", "refused", "too_large", "unroutable", "unanswered"]


@dataclass(frozen=True, slots=True)
class SentBatch:
    """A batch that was given to a broker, and the outcome. Times are seconds."""

    destination: str
    transport: str
    address: str
    fates: Mapping[SentFate, int]
    confirmed: Sequence[float]  # how long each confirm took
    began: float  # before now
    headers: Sequence[str | None] = ()  # as they are stored: they contain trace contexts

    @property
    def count(self) -> int:
        return sum(self.fates.values())


@dataclass(frozen=True, slots=True)
class ReceivedBatch:
    """A batch that came from a broker and is stored."""

    inbox: str
    transport: str
    queue: str  # of the broker
    stored: int
    duplicates: int  # that were stored before
    refused: Mapping[str, int]  # stored as dead letters, by reason
    began: float
    headers: Sequence[str | None] = field(default=())

    @property
    def count(self) -> int:
        return self.stored + self.duplicates + sum(self.refused.values())
