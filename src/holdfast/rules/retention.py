"""How long dead letters are kept: until they are too old, or too many."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta


def leaving(since: Sequence[datetime], total: int, now: datetime, age_max: float, count_max: int) -> int:
    """How many of the oldest dead letters to archive. `since`: from when each has been kept, the oldest first.

    `total` also counts those that may not be archived. If there are too many, as many as possible are archived.
    """
    surplus = max(0, total - count_max)
    before = now - timedelta(seconds=age_max)
    aged = sum(each < before for each in since)
    return min(len(since), max(surplus, aged))
