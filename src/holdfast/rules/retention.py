"""How long dead letters are kept: until they are too old, or too many."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta


def leaving(since: Sequence[datetime], total: int, now: datetime, age_max: float, count_max: int) -> int:
    """How many of the oldest dead letters to archive. `since`: from when each has been kept, the oldest first.

    `total` also counts those that may not be archived. While there are too many, those that may be archived are.
    """
    surplus = max(0, total - count_max)
    before = now - timedelta(seconds=age_max)
    aged = sum(each < before for each in since)
    return min(len(since), max(surplus, aged))
