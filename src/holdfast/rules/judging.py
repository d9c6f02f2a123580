"""The result of one attempt: retried after a delay, given back, or dead. Used by `delivery.conclude` alone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ..model import replies
from ..model.failure import STARTS_SPENT, Category, FailureDescription, category_of, serialized
from ..model.message import Flag, Reason
from ..model.work import Leased, Outcome, Settlement
from .aftermath import aftermath
from .classify import Failure, classify
from .fingerprint import fingerprint
from .policy import HandlerPolicy
from .redact import kept
from .retry import RETRY_AFTER_MAX

SEALED_MIN, SEALED_MAX = 15.0, 3600.0  # seconds until the next try to open a sealed body
DELAY_MAX = 10 * 366 * 86_400.0
PROGRESS = int(Flag.FAILED) - 1
CANCELLED = "Cancelled: the message was cancelled while it was handled."


@dataclass(frozen=True, slots=True)
class Judge:
    """One attempt with everything that decides about it."""

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
        poison: bool = False,
    ) -> Settlement:
        """Again after the policy's delay, or dead: at once if hopeless, or if this was the last start."""
        reason, retry = failure.reason, self.policy.retry.for_reason(failure.reason)
        if self.policy.retry.hopeless(reason):
            return self.dead(reason, reason, error, flags, ran, started=started, poison=poison)
        if self.leased.attempt >= retry.attempts_max:
            spent = Reason.POISON_MESSAGE
            return self.dead(spent, reason, error, flags, ran, started=started, poison=poison)
        delay = retry.delay(self.leased.message.failures + 1, self.roll, failure.retry_after)
        return Settlement(
            self.leased,
            Outcome.AGAIN,
            delay=max(delay, bounded(at_least)),
            flags=flags & PROGRESS | int(Flag.FAILED),
            failed=True,
            started=started,
            aside=self.policy.ordering == "available" and self.in_order,
            reason=reason,
            error=self.kept(error),
            ran=ran,
        )

    def timed_out(self, limit: float, flags: int, ran: float) -> Settlement:
        text = f"TimedOut: the handler ran longer than {limit:g} s."
        return self.failed(Failure(Reason.TIMEOUT_EXCEEDED), text, flags, ran)

    def no_handler(self) -> Settlement:
        text = f"NoHandler: nothing here handles type {self.leased.message.type!r}."
        return self.failed(Failure(Reason.NO_HANDLER), text, started=False)

    def sealed(self, error: str) -> Settlement:
        """It waits longer each time and no attempt is counted, for about four days; then it fails like others."""
        wait = min(SEALED_MIN * 2.0 ** min(self.leased.message.refunds, 20), SEALED_MAX)
        return self.trial_failed(Failure(Reason.DEPENDENCY_FAILURE), error, wait, 0, 0.0, started=False)

    def trial_failed(
        self, failure: Failure, error: str, retry_in: float, flags: int, ran: float, *, started: bool = True
    ) -> Settlement:
        """Refunded, or an outage of an hour would make dead letters of the oldest messages; the error is kept."""
        if not self.refundable or self.policy.retry.hopeless(failure.reason):
            return self.failed(failure, error, flags, ran, at_least=retry_in, started=started)
        return Settlement(
            self.leased,
            Outcome.AGAIN,
            delay=max(bounded(retry_in), min(failure.retry_after or 0.0, RETRY_AFTER_MAX)),
            flags=flags & PROGRESS,
            counted=False,
            refunded=True,
            started=started,
            reason=failure.reason,
            error=self.kept(error),
            ran=ran,
        )

    def batch_failed(self, alone: Settlement) -> Settlement:
        """Refunded and tried again at once, alone. `alone`: its settlement if it had been alone.

        If the cause was the network, a dependency or the time, no message of the batch is to blame, so it counts as if
        alone. Where only one start is allowed, there is no second one to find out.
        """
        reason = alone.last_reason or alone.reason or Reason.UNKNOWN
        is_shared = category_of(reason) is Category.INFRASTRUCTURE
        if is_shared or not self.refundable or self.policy.retry.starts_max == 1:
            return alone
        return Settlement(
            self.leased,
            Outcome.AGAIN,
            flags=alone.flags,  # with FAILED, which the next worker reads
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
            delay=bounded(retry_in),
            counted=False,
            reason=reason,
            error=self.kept(why),
            ran=ran,
        )

    def given_back(self, delay: float, refund: bool = True, reason: Reason | None = None) -> Settlement:
        refund = refund and self.refundable
        delay = bounded(delay)
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
        allowed, vanished = starts_allowed(self.leased, self.policy), self.leased.message.vanished > 0
        if vanished and allowed == 1:
            text = "Outcome unknown: the one start allowed was made, and its worker never came back."
            vanished_too = Reason.WORKER_VANISHED
            return self.dead(vanished_too, vanished_too, text, failed=False, started=False, poison=True)
        last = Reason.WORKER_VANISHED if vanished else Reason.UNKNOWN
        end = " The last worker never came back." if vanished else ""
        text = f"{STARTS_SPENT} as often as allowed ({allowed}).{end}"
        return self.dead(Reason.POISON_MESSAGE, last, text, failed=False, started=False, poison=True)

    def expired(self) -> Settlement:
        text = f"Expired: the deadline {self.leased.message.deadline} passed before the handler started."
        reason = Reason.TIMEOUT_EXCEEDED
        return self.dead(reason, reason, text, failed=False, counted=False, started=False)

    def cancelled(self, flags: int, ran: float) -> Settlement:
        """It ends, and whoever waits for its result gets an answer."""
        message, reason, key = self.leased.message, Reason.CANCELLED, f"cancelled/{self.leased.epoch}"
        answer = replies.failed(message.id, message.headers, key, CANCELLED, reason)
        emits = () if answer is None else (answer,)
        flags &= PROGRESS
        return Settlement(self.leased, Outcome.CANCELLED, flags=flags, reason=reason, ran=ran, emits=emits)

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
        poison: bool = False,
    ) -> Settlement:
        error = self.kept(error)
        name, wish = fingerprint(error, last_reason, self.place), self.policy.after_death
        why: dict[str, Reason] = {"reason": reason, "last_reason": last_reason}
        answer = self._poison(reason, last_reason) if poison else None
        copy, emits = aftermath(
            self.leased, wish, self.now, **why, error=error, fingerprint=name, poison=answer
        )
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
            poison=poison,
        )

    def _poison(self, reason: Reason, last_reason: Reason) -> FailureDescription | None:
        """The answer to the orchestration that waits for this message, with the whole message; None: none waits."""
        message = self.leased.message
        kind = replies.kind_of(message.type, message.headers)
        if isinstance(kind, str):
            return None
        return FailureDescription(
            category=Category.POISON, retryable=False, reason=reason, last_reason=last_reason,
            attempt_count=self.leased.attempt, max_attempts=starts_allowed(self.leased, self.policy),
            message_type=kind, message_id=str(message.id), queue=message.queue, message=serialized(message),
        )  # fmt: skip

    @property
    def in_order(self) -> bool:
        return self.leased.message.position is not None

    @property
    def refundable(self) -> bool:
        return self.leased.message.refunds < self.policy.refunds_max


def starts_allowed(leased: Leased, policy: HandlerPolicy) -> int:
    # A message that vanished has a reason, so its own limit applies; else only a limit that every reason has passed.
    if leased.message.vanished > 0:
        return policy.retry.for_reason(Reason.WORKER_VANISHED).attempts_max
    return policy.retry.starts_max


def bounded(delay: float) -> float:
    # A handler may ask for any number; none may become an instant that a database cannot hold.
    return min(delay, DELAY_MAX) if delay > 0 else 0.0
