"""How an attempt ends, and what becomes of its message. `conclude` is the only maker of settlements.

An attempt ends in one of the ways below (`Ending`, a closed union); docs/lifecycle.md shows each with its
settlement. Three things hold for all of them:

- Flags are only added. What a failed attempt emitted is dropped; the flags of its completed steps stay.
- `attempts` counts hand-overs and decides poison, `failures` counts reported failures and decides the delay.
- A hand-over for which the message is not to blame is refunded: never started, refused by a breaker, a failed trial,
  one of a batch that failed (at most 100 of these; then they count, so that no message is retried for ever), and a
  snooze (the handler's own wish, limited only by a deadline). A pause counts nothing.
- A send without a known outcome (`Unsent`) is neither counted nor refunded: no outage of a broker makes a dead letter.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

import msgspec

from ..errors import LeaseLost
from ..model.failure import FailureDescription, category_of, is_retryable, serialized
from ..model.message import Flag, NewMessage, Reason
from ..model.work import Delta, Guess, Leased, Outcome, Settlement, Unfit
from .classify import Failure, classify
from .describing import describe
from .judging import PROGRESS, Judge, bounded, starts_allowed
from .policy import HandlerPolicy
from .redact import ROOM
from .traces import Place

NUMBER_MAX = 2_000_000_000  # no counter of ours gets there; at this number it could not rise
PLACE_MAX = 2**62  # the same for the place in a stream
PAUSE_SECONDS = 60.0  # until a message that cannot continue and is in no stream is tried again
PUBLISHED, FAILED = int(Flag.PUBLISHED), int(Flag.FAILED)  # an enum costs more than the question


class Returned(msgspec.Struct, frozen=True, gc=False):
    """The handler returned; what it emitted is stored with the settlement."""

    flags: int = 0
    emits: tuple[NewMessage, ...] = ()
    ran: float = 0.0
    delta: Delta | None = None  # of the engine's own consumers
    guess: Guess | None = None  # instead of the answer of an activity


@dataclass(frozen=True, slots=True)
class Raised:
    """The handler raised."""

    error: BaseException
    flags: int = 0
    ran: float = 0.0
    text: str | None = None  # used in place of the error's own text: masked by the application
    place: Place | None = None  # in the user's code
    reason: Reason | None = None  # given by a worker written by hand, in place of the error's meaning


@dataclass(frozen=True, slots=True)
class Snoozed:
    """The handler asked to be called again later."""

    delay: float
    flags: int = 0
    ran: float = 0.0


@dataclass(frozen=True, slots=True)
class Paused:
    """It cannot be handled now and keeps its place: its stream is halted until an operator resumes it."""

    why: str  # stored as the reason for the halt of its stream
    ran: float = 0.0
    delta: Delta | None = None


@dataclass(frozen=True, slots=True)
class Died:
    """The handler declared the message dead: it can never be handled."""

    why: str
    flags: int = 0
    ran: float = 0.0
    reason: Reason = Reason.VALIDATION_FAILURE
    text: str | None = None


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The handler ran longer than its limit, in seconds."""

    limit: float
    flags: int = 0
    ran: float = 0.0
    error: BaseException | None = None  # the cancellation, with the traceback of what the handler waited for
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class TrialFailed:
    """The handler failed as a trial of a half-open breaker, which lets the next one through in `retry_in`."""

    error: BaseException
    retry_in: float
    flags: int = 0
    ran: float = 0.0
    text: str | None = None
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class BatchFailed:
    """A call with several messages ended like this; it is not known which of them is to blame."""

    ending: Raised | TimedOut


@dataclass(frozen=True, slots=True)
class Cancelled:
    """An operator or a caller cancelled the message while it was leased."""

    flags: int = 0
    ran: float = 0.0


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The worker stopped and its grace ended while the handler ran: it has started, and has not failed."""

    flags: int = 0
    ran: float = 0.0


@dataclass(frozen=True, slots=True)
class Unsent:
    """A send that did not go out, or whose outcome is unknown: no connection, no confirm, a time-out, an interruption.

    The message is not to blame. So this is neither a start that counts nor a refund, which are limited: an outage of
    any length makes no dead letter. Only a worker that vanishes counts (X39).
    """

    why: str
    retry_in: float = 0.0
    ran: float = 0.0
    reason: Reason = Reason.TRANSPORT_UNAVAILABLE


@dataclass(frozen=True, slots=True)
class BreakerRefused:
    """An open breaker refused before the handler started; it lets a trial through in `retry_in`."""

    retry_in: float


@dataclass(frozen=True, slots=True)
class NeverStarted:
    """Given back before the handler started: shutdown, pause, over capacity, an unknown version."""

    delay: float = 0.0
    refund: bool = True


@dataclass(frozen=True, slots=True)
class Released:
    """Let out of the order of its stream, before the handler started; nothing else changes."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The body cannot be decoded, or not into what the handler takes."""

    error: BaseException
    text: str | None = None
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Sealed:
    """The body is encrypted and the worker's keys do not open it. Another deploy may bring the key."""

    error: BaseException
    text: str | None = None


@dataclass(frozen=True, slots=True)
class NoHandler:
    """The queue's worker has no handler for this type."""


@dataclass(frozen=True, slots=True)
class Expired:
    """The deadline passed before the handler started."""


@dataclass(frozen=True, slots=True)
class StartsSpent:
    """Handed out once more often than the policy allows; see `verdict`."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Another worker has the lease now."""


Ending = (
    Returned
    | Raised
    | Snoozed
    | Paused
    | Died
    | TimedOut
    | TrialFailed
    | BatchFailed
    | Cancelled
    | Interrupted
    | Unsent
    | BreakerRefused
    | NeverStarted
    | Released
    | Unreadable
    | Sealed
    | NoHandler
    | Expired
    | StartsSpent
    | Lost
)


def conclude(
    leased: Leased, ending: Ending, policy: HandlerPolicy, now: datetime, roll: float
) -> Settlement | None:
    """The settlement of an attempt: the one table of the engine. None only when the lease is lost."""
    if isinstance(ending, Returned):  # first, and without a judge: nearly all attempts
        flags = ending.flags & PROGRESS | PUBLISHED
        return Settlement(
            leased, Outcome.DONE, flags=flags, emits=ending.emits, ran=ending.ran, delta=ending.delta,
            guess=ending.guess,
        )  # fmt: skip
    judge, chars = Judge(leased, policy, now, roll, _place(ending)), ROOM * policy.error_chars
    text: str | None
    match ending:
        case Lost() | Raised(LeaseLost()):
            return None
        case Raised(error, flags, ran, text, _, given):
            failure = judge.classify(error) if given is None else Failure(given)
            return judge.failed(failure, text or describe(error, chars), flags, ran)
        case TimedOut(limit, flags, ran):
            return judge.timed_out(limit, flags, ran)
        case Unreadable(error, text):
            failure = Failure(_unreadable(error))
            return judge.failed(failure, text or describe(error, chars), started=False, poison=True)
        case NoHandler():
            return judge.no_handler()
        case TrialFailed(error, retry_in, flags, ran, text):
            failure = judge.classify(error)
            return judge.trial_failed(failure, text or describe(error, chars), retry_in, flags, ran)
        case Sealed(error, text):
            return judge.sealed(text or describe(error.__cause__ or error, chars))
        case BatchFailed(alone):
            failed = conclude(leased, alone, policy, now, roll)
            return None if failed is None else judge.batch_failed(failed)
        case Died(why, flags, ran, reason, text):
            return judge.dead(reason, reason, text or f"Dead: {why}", flags, ran)
        case Expired():
            return judge.expired()
        case StartsSpent():
            return judge.starts_spent()
        case Snoozed(delay, flags, ran):
            flags, delay = flags & PROGRESS, bounded(delay)
            return Settlement(leased, Outcome.AGAIN, delay=delay, flags=flags, counted=False, ran=ran)
        case Paused(why, ran, delta):
            wait = 0.0 if judge.in_order else PAUSE_SECONDS
            return Settlement(
                leased, Outcome.AGAIN, delay=wait, counted=False, pause=why, ran=ran, delta=delta
            )
        case Interrupted(flags, ran):
            return Settlement(leased, Outcome.AGAIN, flags=flags & PROGRESS, ran=ran)
        case Unsent(why, retry_in, ran, reason):
            return judge.unsent(why, retry_in, ran, reason)
        case BreakerRefused(retry_in):
            return judge.given_back(retry_in, reason=Reason.DEPENDENCY_FAILURE)
        case NeverStarted(delay, refund):
            return judge.given_back(delay, refund)
        case Released():
            return Settlement(leased, Outcome.RELEASE, counted=False, started=False)
        case Cancelled(flags, ran):
            return judge.cancelled(flags, ran)
        case _:
            assert_never(ending)


def verdict(leased: Leased, policy: HandlerPolicy) -> Settlement | None:
    """The poison check, made before any code of the user runs: a settlement if the starts are spent.

    The last allowed attempt still runs; only the hand-over after it is judged here.
    """
    if leased.attempt <= starts_allowed(leased, policy):
        return None
    return _timeless(leased, StartsSpent(), policy)


def is_doubtful(leased: Leased) -> bool:
    """Whether `unfit` must check it: it was handed out before, or its numbers are impossible."""
    return leased.attempt != 1 or leased.epoch > NUMBER_MAX or (leased.message.position or 0) >= PLACE_MAX


def unfit(leased: Leased, policy: HandlerPolicy) -> StartsSpent | Died | None:
    """Why this message must not be started, decided before any code of the user runs; None: it may be started."""
    if (why := impossible(leased)) is not None:
        text = f"its row cannot be read as a message, so it was set aside: {why}."
        return Died(text, reason=Reason.SERIALIZATION_ERROR)
    return None if verdict(leased, policy) is None else StartsSpent()


def impossible(leased: Leased) -> str | None:
    """What is impossible in a stored row, whatever wrote it: an older release, an import, or SQL by hand."""
    if isinstance(leased, Unfit):
        return leased.why
    for name, value in (("attempts", leased.attempt - 1), ("epoch", leased.epoch - 1)):
        if type(value) is not int or not 0 <= value < NUMBER_MAX:
            return f"{name} is {value}, and can be 0 to {NUMBER_MAX}"
    place = leased.message.position
    if place is not None and not 0 <= place < PLACE_MAX:
        return f"position is {place}, and can be 0 to {PLACE_MAX}"
    return None


def goes_alone(leased: Leased) -> bool:
    """Whether a batch handler is called with this message alone: it has failed before, alone or in a batch."""
    return bool(leased.message.status & FAILED)


def give_back(
    leased: Leased, delay: float = 0.0, refund: bool = True, policy: HandlerPolicy | None = None
) -> Settlement:
    """Hand a message back that was not started. Without `refund` the hand-over counts as an attempt."""
    return _timeless(leased, NeverStarted(delay, refund), policy or HandlerPolicy())


def release(leased: Leased) -> Settlement:
    """Let a message that was not started out of the order of its stream."""
    return _timeless(leased, Released(), HandlerPolicy())


def failure_of(settlement: Settlement, policy: HandlerPolicy) -> FailureDescription | None:
    """The failure, for whoever must decide about the message, with the whole message; None if there was none."""
    leased, reason = settlement.leased, settlement.reason
    if reason is None:
        return None
    return FailureDescription(
        category=category_of(reason),
        retryable=is_retryable(reason) and not policy.retry.hopeless(reason),
        reason=reason,
        last_reason=settlement.last_reason,
        attempt_count=leased.attempt,
        max_attempts=starts_allowed(leased, policy),
        message_type=leased.message.type,
        message_id=str(leased.message.id),
        queue=leased.message.queue,
        message=serialized(leased.message),
    )


def _place(ending: Ending) -> str | None:
    match ending:
        case Raised() | TimedOut() | TrialFailed() | Unreadable():
            return None if ending.place is None else ending.place.name
    return None


def _timeless(
    leased: Leased, ending: NeverStarted | Released | StartsSpent, policy: HandlerPolicy
) -> Settlement:
    # These endings depend on neither time nor chance, so any instant will do.
    settlement = conclude(leased, ending, policy, leased.message.created_at, 0.0)
    assert settlement is not None
    return settlement


def _unreadable(error: BaseException) -> Reason:
    reason = getattr(error, "reason", None) or classify(error).reason  # the codec says which it is
    return reason if reason == Reason.VALIDATION_FAILURE else Reason.SERIALIZATION_ERROR
