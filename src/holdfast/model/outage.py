"""Outages as values: times without a worker while something was due, or with many late messages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Cause = Literal["absent", "late"]


@dataclass(frozen=True, slots=True)
class Outage:
    """An outage. `absent`: no worker ran while something was due; `late`: more were late than the settings allow.

    `down_since` is the last moment at which a worker ran, `back_at` when one ran again (both of an absence),
    `oldest_at` when the oldest message was due. While it goes on, the summary (`handled` and the fields after it)
    is as of now.
    """

    number: int
    cause: Cause
    began_at: datetime
    noticed_at: datetime
    down_since: datetime | None
    back_at: datetime | None
    oldest_at: datetime
    calm_since: datetime | None = None
    ended_at: datetime | None = None
    version: int = 1
    handled: int = 0  # messages that were handled late
    died: int = 0  # messages that became dead letters during it
    late_mean: float = 0.0  # seconds between due and started
    late_max: float = 0.0
    caught_up_at: datetime | None = None  # when the last of them ended

    @property
    def is_over(self) -> bool:
        return self.ended_at is not None

    @property
    def seconds(self) -> float | None:
        """From its beginning to its end; None while it is open."""
        return None if self.ended_at is None else (self.ended_at - self.began_at).total_seconds()

    @property
    def catch_up_seconds(self) -> float:
        """From when a worker ran again until the last late message was handled."""
        if self.caught_up_at is None:
            return 0.0
        return max(0.0, (self.caught_up_at - (self.back_at or self.began_at)).total_seconds())

    @property
    def per_second(self) -> float:
        """How many were handled in a second of that time; if it is too short to measure: all of them."""
        return self.handled / self.catch_up_seconds if self.catch_up_seconds else float(self.handled)


@dataclass(frozen=True, slots=True)
class Due:
    """A queue with something due: since when its oldest message is, and when it last had a worker (None: never)."""

    queue: str
    since: datetime
    worked_at: datetime | None


@dataclass(frozen=True, slots=True)
class Sum:
    """The messages that were handled late within a time, and how late."""

    handled: int = 0
    died: int = 0
    late_mean: float = 0.0
    late_max: float = 0.0
    oldest_at: datetime | None = None
    caught_up_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Began:
    """An outage begins."""

    cause: Cause
    began_at: datetime
    down_since: datetime | None
    back_at: datetime | None
    oldest_at: datetime


@dataclass(frozen=True, slots=True)
class WentOn:
    """An outage continues, and a worker is back, or it is calm, or calm no longer."""

    outage: Outage
    back_at: datetime | None
    calm_since: datetime | None


@dataclass(frozen=True, slots=True)
class Ended:
    """An outage is over, as seen at this moment."""

    outage: Outage
    at: datetime


Verdict = Began | WentOn | Ended
