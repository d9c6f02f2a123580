"""The outcomes of the messages of a drain, and the errors among them that a test must see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from ..errors import HoldfastError
from ..model.work import Leased, Outcome, Settlement
from ..rules.delivery import (
    BatchFailed,
    Cancelled,
    Died,
    Ending,
    Paused,
    Raised,
    Returned,
    Sealed,
    Snoozed,
    TrialFailed,
    Unreadable,
)


class Failed(HoldfastError):
    """A message that ended badly without an exception of its handler: it timed out, or its deadline had passed."""


@dataclass(frozen=True, slots=True)
class Summary:
    """How many messages ended in each way in a drain. A message counts once, by its last attempt."""

    done: int = 0
    retrying: int = 0  # it failed and waits for its next attempt
    snoozed: int = (
        0  # it comes again without having failed: its handler asked for that, or a breaker held it back
    )
    dead: int = 0  # dead letters, those that their handler asked for among them
    cancelled: int = 0


@dataclass(frozen=True, slots=True)
class PublishedMessage:
    """A message that the application under test has published, with the body as it was stored: JSON values."""

    id: UUID
    type: str
    body: Any
    stream: str | None
    subject: str | None
    headers: Mapping[str, Any]
    queue: str | None  # given by the publisher
    due_at: datetime | None
    delay: float | None


class Outcomes:
    """The last ending of each message of a drain. Called by the worker at the end of each attempt."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[Leased, Ending, Settlement | None]] = {}

    def __call__(self, leased: Leased, ending: Ending, settlement: Settlement | None) -> None:
        self._last[leased.message.seq] = leased, ending, settlement

    def summary(self) -> Summary:
        counts = dict.fromkeys(("done", "retrying", "snoozed", "dead", "cancelled"), 0)
        for _, ending, settlement in self._last.values():
            kind = _kind(ending, settlement)
            counts["snoozed" if kind == "paused" else kind] += 1
        return Summary(**counts)

    def headline(self) -> str:
        summary = self.summary()
        counts = [
            f"{len(found)} {words}"
            for words, kind in (
                ("dead", "dead"),
                ("waiting for a retry", "retrying"),
                ("of paused orchestrations", "paused"),
            )
            if (found := [each for each in self._bad() if _kind(each[1], each[2]) == kind])
        ]
        return f"messages that failed: {', '.join(counts)} ({summary.done} done)"

    def errors(self) -> list[Exception]:
        """The exception of each message that died or waits for a retry, with a note that says which message."""
        return [_error(*each) for each in self._bad()]

    def _bad(self) -> list[tuple[Leased, Ending, Settlement | None]]:
        return [
            each
            for each in self._last.values()
            if not isinstance(each[1], Died) and _kind(each[1], each[2]) in ("dead", "retrying", "paused")
        ]


def _kind(ending: Ending, settlement: Settlement | None) -> str:
    match ending:
        case Returned():
            return "done"
        case Snoozed():
            return "snoozed"
        case Cancelled():
            return "cancelled"
        # By this turn: where somebody has suspended the instance there is none.
        case Paused(delta=delta) if delta is not None:
            return "paused"
    if settlement is None:
        return "snoozed"  # the lease was lost: another worker decides
    if settlement.outcome is Outcome.DEAD:
        return "dead"
    return "retrying" if settlement.failed or settlement.error is not None else "snoozed"


def _error(leased: Leased, ending: Ending, settlement: Settlement | None) -> Exception:
    message = leased.message
    if isinstance(ending, BatchFailed):
        ending = ending.ending
    error: BaseException | None = None
    if isinstance(ending, Raised | TrialFailed | Unreadable | Sealed):
        error = ending.error
    if isinstance(ending, Paused) and ending.delta is not None:
        paused = Failed(str(ending.delta.rows[0].get("trouble")))
        paused.add_note(f"Instance {message.stream} of {message.queue} is paused.")
        return paused
    said = settlement.error if settlement is not None and settlement.error else type(ending).__name__
    if error is None:
        error = Failed(said)
    elif not isinstance(error, Exception):  # SystemExit of a handler: an ExceptionGroup takes no such thing
        error = Failed(said).with_traceback(error.__traceback__)
    became = "it is a dead letter" if _kind(ending, settlement) == "dead" else "it waits for a retry"
    error.add_note(
        f"Message {message.id} of type {message.type} in queue {message.queue}, attempt {leased.attempt}: {became}."
    )
    return error
