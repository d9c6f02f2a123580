"""How an attempt ends, and what becomes of its message. `conclude` is the only maker of settlements.

An attempt ends in one of the ways below (`Ending`, a closed union); docs/lifecycle.md shows each with its
settlement. These rules hold for all of them:

- Flags are only added. What a failed attempt emitted is dropped; the flags of its completed steps stay.
- `attempts` counts hand-overs and decides poison, `failures` counts reported failures and decides the delay.
- A hand-over that is not the message's fault is refunded: never started, refused by a breaker, a failed trial, one
  of a batch that failed (these are made by the engine: at most 100, then they count, so no message loops for ever), and
  a snooze (the handler asks for it: not limited, except by a deadline).
- A send without a known outcome (`Unsent`) is neither counted nor refunded: no outage of a broker ends a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal, assert_never

import msgspec

from ..errors import InvalidSettings, LeaseLost
from ..model import replies
from ..model.failure import STARTS_SPENT, Category, FailureDescription, category_of, is_retryable, serialized
from ..model.message import Flag, NewMessage, Reason
from ..model.work import Delta, Leased, Outcome, Settlement, Unfit
from .aftermath import HOLD, AfterDeath, aftermath
from .classify import Failure, classify, describe
from .fingerprint import fingerprint
from .recovery import Recovery, checked
from .redact import ROOM, Redactor, kept, redact
from .retry import PROFILES, RETRY_AFTER_MAX, RetryPolicy
from .traces import Place

SEALED_MIN, SEALED_MAX = 15.0, 3600.0  # seconds until the next try to open a sealed body
DELAY_MAX = 10 * 366 * 86_400.0
PROGRESS = int(Flag.FAILED) - 1
NUMBER_MAX = 2_000_000_000  # no counter of ours gets this high, and a higher one could not be raised
PLACE_MAX = 2**62  # the same for the position in a stream
PUBLISHED = int(Flag.PUBLISHED)
CANCELLED = "Cancelled: the message was cancelled while it was handled."

Ordering = Literal["strict", "available"]
OnDead = Literal["continue", "halt"]


@dataclass(frozen=True, slots=True)
class HandlerPolicy:
    """What a handler declares about its failures.

    `ordering`: a failed head of a stream keeps its place until its retry (`strict`) or leaves the order
    (`available`). `on_dead`: a stream goes on after the death of its head, or halts. `declared`: what the
    handler's own exceptions mean. `after_death`: what a death leaves behind beside the dead letter. `recovery`: which
    dead letters are redriven automatically, by the reason of their last failure.
    """

    retry: RetryPolicy = PROFILES["patient"]
    ordering: Ordering = "strict"
    on_dead: OnDead = "continue"
    declared: Mapping[type[BaseException], Reason] = field(default_factory=dict, hash=False)
    refunds_max: int = 100
    error_chars: int = 2000
    redact: Redactor = redact  # masks secrets in the texts of errors
    tracebacks: bool = True  # the last one is kept with the message, and logged
    after_death: AfterDeath = HOLD
    recovery: Mapping[Reason, Recovery] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.ordering not in ("strict", "available"):
            raise InvalidSettings(f'order={self.ordering!r} must be "strict" or "available".')
        if self.on_dead not in ("continue", "halt"):
            raise InvalidSettings(f'on_dead={self.on_dead!r} must be "continue" or "halt".')
        declared: dict[Any, Any] = dict(self.declared)
        for error, reason in declared.items():
            if not (
                isinstance(error, type) and issubclass(error, BaseException) and isinstance(reason, Reason)
            ):
                raise InvalidSettings(f"{error!r}: {reason!r} must be an exception type and a Reason.")
        object.__setattr__(self, "declared", MappingProxyType(declared))
        object.__setattr__(self, "recovery", MappingProxyType(checked(self.recovery)))


class Returned(msgspec.Struct, frozen=True, gc=False):
    """The handler returned; what it emitted is stored with the settlement."""

    flags: int = 0
    emits: tuple[NewMessage, ...] = ()
    ran: float = 0.0
    delta: Delta | None = None  # of the engine's own consumers


@dataclass(frozen=True, slots=True)
class Raised:
    """The handler raised."""

    error: BaseException
    flags: int = 0
    ran: float = 0.0
    text: str | None = None  # instead of the error's own text: masked by the application
    place: Place | None = None  # in the user's code
    reason: Reason | None = None  # given by a worker written by hand, instead of classifying the error


class Reported(Exception):
    """A failure that a worker written by hand reports as text."""


@dataclass(frozen=True, slots=True)
class Snoozed:
    """The handler asked to be called again later."""

    delay: float
    flags: int = 0
    ran: float = 0.0


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
    error: BaseException | None = None  # the cancellation: its traceback shows what the handler waited for
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
    """A call with several messages ended like this; it is not known which of them caused it."""

    ending: Raised | TimedOut


@dataclass(frozen=True, slots=True)
class Cancelled:
    """An operator or a caller cancelled the message while it was leased."""

    flags: int = 0
    ran: float = 0.0


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The worker stopped and its grace period ended while the handler ran: it was started, and did not fail."""

    flags: int = 0
    ran: float = 0.0


@dataclass(frozen=True, slots=True)
class Unsent:
    """A send that did not go out, or whose outcome is unknown: no connection, no confirm, a time-out, an interruption.

    The message is not at fault. So this neither counts as a start nor uses up one of the limited refunds: an
    outage of any length makes no dead letter. Only a worker that vanishes counts as a start (X39).
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
    """Handed out once more than the policy allows; see `verdict`."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The lease is another worker's."""


Ending = (
    Returned
    | Raised
    | Snoozed
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
    """The settlement of a message by how its attempt ended. None only when the lease is lost."""
    if isinstance(ending, Returned):  # first, and on a fast path: nearly all attempts end this way
        flags = ending.flags & PROGRESS | PUBLISHED
        return Settlement(
            leased, Outcome.DONE, flags=flags, emits=ending.emits, ran=ending.ran, delta=ending.delta
        )
    judge, chars = _Judge(leased, policy, now, roll, _place(ending)), ROOM * policy.error_chars
    text: str | None
    match ending:
        case Lost() | Raised(LeaseLost()):
            return None
        case Raised(error, flags, ran, text, _, told):
            failure = judge.classify(error) if told is None else Failure(told)
            return judge.failed(failure, text or describe(error, chars), flags, ran)
        case TimedOut(limit, flags, ran):
            text = f"TimedOut: the handler ran longer than {limit:g} s."
            return judge.failed(Failure(Reason.TIMEOUT_EXCEEDED), text, flags, ran)
        case Unreadable(error, text):
            return judge.failed(Failure(_unreadable(error)), text or describe(error, chars), started=False)
        case NoHandler():
            text = f"NoHandler: nothing here handles type {leased.message.type!r}."
            return judge.failed(Failure(Reason.NO_HANDLER), text, started=False)
        case TrialFailed(error, retry_in, flags, ran, text):
            failure, text = judge.classify(error), text or describe(error, chars)
            return judge.trial_failed(failure, text, retry_in, flags, ran)
        case Sealed(error, text):
            return judge.sealed(text or describe(error.__cause__ or error, chars))
        case BatchFailed(alone):
            failed = conclude(leased, alone, policy, now, roll)
            return None if failed is None else judge.batch_failed(failed)
        case Died(why, flags, ran, reason, text):
            return judge.dead(reason, reason, text or f"Dead: {why}", flags, ran)
        case Expired():
            text = f"Expired: the deadline {leased.message.deadline} passed before the handler started."
            reason = Reason.TIMEOUT_EXCEEDED
            return judge.dead(reason, reason, text, failed=False, counted=False, started=False)
        case StartsSpent():
            return judge.starts_spent()
        case Snoozed(delay, flags, ran):
            flags, delay = flags & PROGRESS, _bounded(delay)
            return Settlement(leased, Outcome.AGAIN, delay=delay, flags=flags, counted=False, ran=ran)
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
            flags, reason, message = flags & PROGRESS, Reason.CANCELLED, leased.message
            answer = replies.failed(
                message.id, message.headers, f"cancelled/{leased.epoch}", CANCELLED, reason
            )
            emits = () if answer is None else (answer,)
            return Settlement(leased, Outcome.CANCELLED, flags=flags, reason=reason, ran=ran, emits=emits)
        case _:
            assert_never(ending)


def verdict(leased: Leased, policy: HandlerPolicy) -> Settlement | None:
    """The poison check, made before the user's code runs: a settlement if the starts are used up.

    The last allowed attempt still runs; only the hand-over after it is judged here.
    """
    if leased.attempt <= _starts_allowed(leased, policy):
        return None
    return _timeless(leased, StartsSpent(), policy)


def is_doubtful(leased: Leased) -> bool:
    """Whether `unfit` must look at it: it was handed out before, or its numbers cannot be right."""
    return leased.attempt != 1 or leased.epoch > NUMBER_MAX or (leased.message.position or 0) >= PLACE_MAX


def unfit(leased: Leased, policy: HandlerPolicy) -> StartsSpent | Died | None:
    """Why this message must not be started, decided before the user's code runs; None: it may be started."""
    if (why := impossible(leased)) is not None:
        text = f"its row cannot be read as a message, so it was set aside: {why}."
        return Died(text, reason=Reason.SERIALIZATION_ERROR)
    return None if verdict(leased, policy) is None else StartsSpent()


def impossible(leased: Leased) -> str | None:
    """What is invalid in a stored row, which may come from an older release, an import or plain SQL."""
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
    """Whether a batch handler is called with this message alone: it has failed before, by itself or with others."""
    return bool(leased.message.status & Flag.FAILED)


def give_back(
    leased: Leased, delay: float = 0.0, refund: bool = True, policy: HandlerPolicy | None = None
) -> Settlement:
    """Hand a message back that was not started. Without `refund` the hand-over counts as an attempt."""
    return _timeless(leased, NeverStarted(delay, refund), policy or HandlerPolicy())


def release(leased: Leased) -> Settlement:
    """Let a message that was not started out of the order of its stream."""
    return _timeless(leased, Released(), HandlerPolicy())


def failure_of(settlement: Settlement, policy: HandlerPolicy) -> FailureDescription | None:
    """What went wrong, with the whole message, for the code that handles the failure; None if nothing did."""
    leased, reason = settlement.leased, settlement.reason
    if reason is None:
        return None
    return FailureDescription(
        category=category_of(reason),
        retryable=is_retryable(reason) and not policy.retry.hopeless(reason),
        reason=reason,
        last_reason=settlement.last_reason,
        attempt_count=leased.attempt,
        max_attempts=_starts_allowed(leased, policy),
        message_type=leased.message.type,
        message_id=str(leased.message.id),
        queue=leased.message.queue,
        message=serialized(leased.message),
    )


@dataclass(frozen=True, slots=True)
class _Judge:
    """One attempt with all that a decision about it may look at."""

    leased: Leased
    policy: HandlerPolicy
    now: datetime
    roll: float
    place: str | None = None  # in the user's code

    def classify(self, error: BaseException) -> Failure:
        return classify(error, self.policy.declared, self.now)

    def kept(self, text: str) -> str:
        return kept(text, self.policy.error_chars, self.policy.redact)

    def failed(
        self,
        failure: Failure,
        error: str,
        flags: int = 0,
        ran: float = 0.0,
        *,
        at_least: float = 0.0,
        started: bool = True,
    ) -> Settlement:
        """Again after the policy's delay, or dead: at once if hopeless, or if this was the last start."""
        reason, retry = failure.reason, self.policy.retry.for_reason(failure.reason)
        if self.policy.retry.hopeless(reason):
            return self.dead(reason, reason, error, flags, ran, started=started)
        if self.leased.attempt >= retry.attempts_max:
            return self.dead(Reason.POISON_MESSAGE, reason, error, flags, ran, started=started)
        delay = retry.delay(self.leased.message.failures + 1, self.roll, failure.retry_after)
        return Settlement(
            self.leased,
            Outcome.AGAIN,
            delay=max(delay, _bounded(at_least)),
            flags=flags & PROGRESS | int(Flag.FAILED),
            failed=True,
            started=started,
            aside=self.policy.ordering == "available" and self.in_order,
            reason=reason,
            error=self.kept(error),
            ran=ran,
        )

    def sealed(self, error: str) -> Settlement:
        """Wait longer each time without counting, for about four days; then it counts as a failure."""
        wait = min(SEALED_MIN * 2.0 ** min(self.leased.message.refunds, 20), SEALED_MAX)
        return self.trial_failed(Failure(Reason.DEPENDENCY_FAILURE), error, wait, 0, 0.0, started=False)

    def trial_failed(
        self, failure: Failure, error: str, retry_in: float, flags: int, ran: float, *, started: bool = True
    ) -> Settlement:
        """Refunded, because otherwise an hour's outage would kill the oldest messages. The error is still stored."""
        if not self.refundable or self.policy.retry.hopeless(failure.reason):
            return self.failed(failure, error, flags, ran, at_least=retry_in, started=started)
        return Settlement(
            self.leased,
            Outcome.AGAIN,
            delay=max(_bounded(retry_in), min(failure.retry_after or 0.0, RETRY_AFTER_MAX)),
            flags=flags & PROGRESS,
            counted=False,
            refunded=True,
            started=started,
            reason=failure.reason,
            error=self.kept(error),
            ran=ran,
        )

    def batch_failed(self, alone: Settlement) -> Settlement:
        """Refunded and retried at once, alone: another message may be at fault. `alone`: its own settlement.

        When the network, a dependency or a timeout was the cause, no message of the batch is at fault, so it counts as
        it would alone. Where only one start is allowed, there is no second one to find the cause with.
        """
        reason = alone.last_reason or alone.reason or Reason.UNKNOWN
        is_shared = category_of(reason) is Category.INFRASTRUCTURE
        if is_shared or not self.refundable or self.policy.retry.starts_max == 1:
            return alone
        return Settlement(
            self.leased,
            Outcome.AGAIN,
            flags=alone.flags,  # with FAILED, which tells the next worker to call it alone
            counted=False,
            refunded=True,
            reason=reason,
            error=alone.error,
            ran=alone.ran,
        )

    def unsent(self, why: str, retry_in: float, ran: float, reason: Reason) -> Settlement:
        return Settlement(
            self.leased,
            Outcome.AGAIN,
            delay=_bounded(retry_in),
            counted=False,
            reason=reason,
            error=self.kept(why),
            ran=ran,
        )

    def given_back(self, delay: float, refund: bool = True, reason: Reason | None = None) -> Settlement:
        refund = refund and self.refundable
        delay = _bounded(delay)
        return Settlement(
            self.leased,
            Outcome.AGAIN,
            delay=delay,
            counted=not refund,
            refunded=refund,
            started=False,
            reason=reason,
        )

    def starts_spent(self) -> Settlement:
        allowed, vanished = _starts_allowed(self.leased, self.policy), self.leased.message.vanished > 0
        if vanished and allowed == 1:
            text = "Outcome unknown: the one start allowed was made, and its worker never came back."
            return self.dead(
                Reason.WORKER_VANISHED, Reason.WORKER_VANISHED, text, failed=False, started=False
            )
        last = Reason.WORKER_VANISHED if vanished else Reason.UNKNOWN
        end = " The last worker never came back." if vanished else ""
        text = f"{STARTS_SPENT} as often as allowed ({allowed}).{end}"
        return self.dead(Reason.POISON_MESSAGE, last, text, failed=False, started=False)

    def dead(
        self,
        reason: Reason,
        last_reason: Reason,
        error: str,
        flags: int = 0,
        ran: float = 0.0,
        *,
        failed: bool = True,
        counted: bool = True,
        started: bool = True,
    ) -> Settlement:
        error = self.kept(error)
        name, wish = fingerprint(error, last_reason, self.place), self.policy.after_death
        why: dict[str, Reason] = {"reason": reason, "last_reason": last_reason}
        copy, emits = aftermath(self.leased, wish, self.now, **why, error=error, fingerprint=name)
        return Settlement(
            self.leased,
            Outcome.DEAD,
            flags=flags & PROGRESS | int(Flag.FAILED),
            failed=failed,
            counted=counted,
            started=started,
            halt=self.policy.on_dead == "halt" and self.in_order,
            reason=reason,
            last_reason=last_reason,
            error=error,
            emits=emits,
            copy=copy,
            ran=ran,
            fingerprint=name,
        )

    @property
    def in_order(self) -> bool:
        return self.leased.message.position is not None

    @property
    def refundable(self) -> bool:
        return self.leased.message.refunds < self.policy.refunds_max


def _place(ending: Ending) -> str | None:
    match ending:
        case Raised() | TimedOut() | TrialFailed() | Unreadable():
            return None if ending.place is None else ending.place.name
    return None


def _starts_allowed(leased: Leased, policy: HandlerPolicy) -> int:
    # A vanished attempt has its own reason and limit. Otherwise use the highest limit of all reasons.
    if leased.message.vanished > 0:
        return policy.retry.for_reason(Reason.WORKER_VANISHED).attempts_max
    return policy.retry.starts_max


def _timeless(
    leased: Leased, ending: NeverStarted | Released | StartsSpent, policy: HandlerPolicy
) -> Settlement:
    # These endings look at neither time nor chance, so any instant will do.
    settlement = conclude(leased, ending, policy, leased.message.created_at, 0.0)
    assert settlement is not None
    return settlement


def _unreadable(error: BaseException) -> Reason:
    reason = getattr(error, "reason", None) or classify(error).reason  # the codec sets it
    return reason if reason == Reason.VALIDATION_FAILURE else Reason.SERIALIZATION_ERROR


def _bounded(delay: float) -> float:
    # A handler may ask for any number, but the time must be one that the database can store.
    return min(delay, DELAY_MAX) if delay > 0 else 0.0
