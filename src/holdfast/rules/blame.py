"""For circuit breakers: whether an exception is a failure of the dependency, of something else, or says nothing.

Failures of a dependency are transport errors, timeouts and the HTTP statuses that mean it (reasons 1, 4 and 6), unless
declared otherwise. Any other error counts as a success: the dependency answered. Exceptions of the engine itself and
cancellations say nothing about the dependency.
"""

from __future__ import annotations

from ..errors import CircuitOpen
from ..model.message import Reason
from .breaker import BAD, GOOD, VOID
from .delivery import BreakerRefused, TrialFailed

FAILURES = frozenset({Reason.TRANSPORT_UNAVAILABLE, Reason.TIMEOUT_EXCEEDED, Reason.DEPENDENCY_FAILURE})
TRIAL = "_holdfast_trial"  # set on an exception: this call was a trial; the value is the seconds until the next one


def result_of(error: BaseException | None, counts: bool) -> str:
    """How a call ended, as a letter of `rules.breaker`. `counts`: whether this error is a failure of the dependency."""
    if error is None:
        return GOOD
    if is_ours(error):
        return VOID
    if counts:
        return BAD
    return GOOD if isinstance(error, Exception) else VOID


def is_ours(error: BaseException) -> bool:
    """Snooze, Dead, LeaseLost, another breaker's refusal: they say nothing about the dependency."""
    return all(type(each).__module__.partition(".")[0] == "holdfast" for each in _leaves(error))


def mark_trial(error: BaseException, retry_in: float) -> None:
    """Mark the exception: the call was a trial. The code that catches it outside reads the mark."""
    try:
        setattr(error, TRIAL, retry_in)
    except (AttributeError, TypeError):  # it has slots and cannot be marked: it counts as a failure
        pass


def ending_of(error: BaseException, flags: int, ran: float) -> BreakerRefused | TrialFailed | None:
    """How the attempt ended, if a breaker was involved: refused, or failed as a trial. Else None.

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
    found, waiting = [], [error]  # no recursion: groups may be nested deeper than the stack
    while waiting:
        each = waiting.pop()
        if isinstance(each, BaseExceptionGroup) and not hasattr(each, TRIAL):
            waiting.extend(reversed(each.exceptions))
        else:
            found.append(each)
    return found
