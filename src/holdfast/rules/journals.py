"""How long the journal of an orchestration may be: a warning before the limit, a pause at it."""

from __future__ import annotations

from typing import Literal

WARN_SHARE = 5  # the warning comes at a fifth of the limit

Length = Literal["short", "long", "full"]


def length(events: int, size: int, events_max: int, size_max: int) -> Length:
    """How long a journal with so many events and bytes is, compared with its limits.

    >>> length(10_239, 0, 51_200, 1), length(10_240, 0, 51_200, 1), length(51_200, 0, 51_200, 1)
    ('short', 'long', 'full')
    """
    if events >= events_max or size >= size_max:
        return "full"
    if events * WARN_SHARE >= events_max or size * WARN_SHARE >= size_max:
        return "long"
    return "short"


def warns(before: tuple[int, int], after: tuple[int, int], events_max: int, size_max: int) -> bool:
    """Whether a turn has made a short journal long; (events, bytes)."""
    return (
        length(*before, events_max, size_max) == "short" and length(*after, events_max, size_max) != "short"
    )


def full_text(events: int, size: int) -> str:
    """Why an instance is paused at the limit, and what to do."""
    return (
        f"its journal is at the limit, with {events:,} events and {size:,} bytes. Raise journal_events or "
        "journal_bytes and resume it, or terminate it; let what runs for ever continue as new (flow.again)."
    )
