"""Numbers from sequences: of messages, positions, workers. Each is given once.

A sequence must be ahead of what is stored.
"""

from __future__ import annotations

LEAP = 1_000_000  # numbers that are skipped when a sequence is raised: some may have been given and lost with a commit
# No sequence gets this high. A higher number was written by other software, and is ignored. It is half of what the
# databases take (2**62), so there is room for new numbers above it.
MAX = 2**61


def raised(last: int, stored: int, leap: bool = False) -> int | None:
    """The number to which a sequence that last gave `last` is raised; None: it stays. `leap`: always raise it."""
    if stored > MAX or (last >= stored and not leap):
        return None
    return min(max(last, stored) + LEAP, MAX)
