"""Requests with deadlines, as values: their states, and the standing of a result that came in."""

from __future__ import annotations

from enum import StrEnum

TIMEOUT = "TIMEOUT"  # the reason of a request whose deadline has passed
CANCELLED = "CANCELLED"  # the reason of one that was cancelled without one


class RequestState(StrEnum):
    """The state of a request. Stored by these names."""

    OPEN = "open"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Standing(StrEnum):
    """The meaning of a result for its request. Stored by these names, which never change."""

    DECISIVE = "decisive"  # the first one, in time: it has ended the request
    LATE = "late"  # it came after the deadline; it changes nothing unless an operator accepts it
    DUPLICATE = "duplicate"  # the request was already ended; it changes nothing
    EARLY = "early"  # it came before the request was committed; it counts when the request is there


class Happening(StrEnum):
    """What an application can be informed of about a request, each once. Each is a hook of its kind."""

    COMPLETED = "completed"
    FAILED = "failed"
    DELAYED = "delayed"


def hook_queue(kind: str, happening: Happening) -> str:
    """The queue of a hook: that of the handler with this name."""
    return f"{kind}.{happening}"


def hook_type(happening: Happening) -> str:
    """The type of the message that calls a hook."""
    return f"holdfast/request.{happening}"
