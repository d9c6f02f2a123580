"""A drain as a value: the work of a worker from when it found something due until it found nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DrainSummary:
    """The summary of a drain. `failed` counts attempts, whatever happened to their messages afterwards.

    `is_first`: the first one of its worker, which handles messages that fell due before it started.
    """

    processed: int = 0
    failed: int = 0
    seconds: float = 0.0
    is_first: bool = False

    @property
    def duration_ms(self) -> int:
        return round(self.seconds * 1000)

    @property
    def per_second(self) -> float:
        """With two decimals; of a time too short to measure: all of them."""
        return round(self.processed / self.seconds, 2) if self.seconds > 0 else float(self.processed)
