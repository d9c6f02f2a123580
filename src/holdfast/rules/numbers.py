"""Numbers that are given once: of messages, positions, workers.

What they are drawn from must be ahead of what is stored.
"""

from __future__ import annotations

LEAP = 1_000_000  # numbers that are left out when a sequence is raised: some may have been given and lost with a commit
# No sequence comes so far: what is beyond was written by somebody else, and is not followed. It is half of what the
# databases take (2**62), so that there is room for new numbers behind the highest that is followed.
MAX = 2**61


def raised(last: int, stored: int, leap: bool = False) -> int | None:
    """To which number a sequence that drew `last` is raised; None: it stays. `leap`: raised in any case."""
    if stored > MAX or (last >= stored and not leap):
        return None
    return min(max(last, stored) + LEAP, MAX)
