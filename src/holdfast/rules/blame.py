"""Whose fault an exception is: the dependency's, somebody else's, or nobody's. For breakers.

Failures of a dependency are transport errors, timeouts and HTTP statuses that say so (reasons 1, 4 and 6), unless
declared otherwise. Any other error is an answer too: the dependency was there. What the engine itself raises, and a
cancellation, say nothing about it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from ..errors import CircuitOpen, InvalidSettings
from ..message import Reason
from .breaker import BAD, GOOD, VOID
from .classify import classify
from .delivery import BreakerRefused, TrialFailed

FAILURES = frozenset({Reason.TRANSPORT_UNAVAILABLE, Reason.TIMEOUT_EXCEEDED, Reason.DEPENDENCY_FAILURE})
TRIAL = "_holdfast_trial"  # on an exception: this call was a trial; so many seconds until the next

Counts = (
    type[BaseException]
    | tuple[type[BaseException], ...]
    | Collection[Reason]
    | Callable[[BaseException], bool]
)


def counting(counts: Any) -> Callable[[BaseException], bool]:
    """Which exceptions count as failures: exception types, reasons, or a function that says so. None: the usual."""
    if counts is None:
        return lambda error: classify(error).reason in FAILURES
    kinds = (counts,) if isinstance(counts, type) else counts
    if isinstance(kinds, tuple) and all(
        isinstance(each, type) and issubclass(each, BaseException) for each in kinds
    ):
        return lambda error: isinstance(error, kinds)
    if callable(counts) and not isinstance(counts, type):
        return lambda error: bool(counts(error))
    if isinstance(counts, Collection) and all(isinstance(each, Reason) for each in counts):
        return lambda error: classify(error).reason in counts
    raise InvalidSettings(
        f"counts={counts!r} must be exception types, Reasons, or a function of the exception."
    )


def result_of(error: BaseException | None, counts: Callable[[BaseException], bool]) -> str:
    """How a call went, in the letters of `rules.breaker`."""
    if error is None:
        return GOOD
    if is_ours(error):
        return VOID
    if counts(error):
        return BAD
    return GOOD if isinstance(error, Exception) else VOID


def is_ours(error: BaseException) -> bool:
    """Snooze, Dead, LeaseLost, another breaker's refusal: they say nothing about the dependency."""
    return all(type(each).__module__.partition(".")[0] == "holdfast" for each in _leaves(error))


def mark_trial(error: BaseException, retry_in: float) -> None:
    """Remember on the exception that the call was a trial, for whoever catches it outside."""
    try:
        setattr(error, TRIAL, retry_in)
    except (AttributeError, TypeError):  # slots, and no room for a mark: it counts as a failure
        pass


def ending_of(error: BaseException, flags: int, ran: float) -> BreakerRefused | TrialFailed | None:
    """How an attempt ended that raised this, if a breaker had a hand in it: refused, or failed as a trial.

    The marks of steps that were done before the refusal are kept, as they are after a failed trial.
    """
    leaves = _leaves(error)
    waits = []
    for each in leaves:
        retry_in = each.retry_in if isinstance(each, CircuitOpen) else getattr(each, TRIAL, None)
        if retry_in is None:
            return None
        waits.append(retry_in)
    if flags or not all(isinstance(each, CircuitOpen) for each in leaves):
        return TrialFailed(error, max(waits), flags, ran)
    return BreakerRefused(max(waits))


def _leaves(error: BaseException) -> list[BaseException]:
    if not isinstance(error, BaseExceptionGroup) or hasattr(error, TRIAL):
        return [error]
    return [leaf for each in error.exceptions for leaf in _leaves(each)]
