"""How an attempt ends: decisions before it, the meaning of a result or an error, and how it is handed in.

The rule itself is in `rules/delivery.py`. Around it texts are masked, copies sealed and logs written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from msgspec import structs

from ..bodies.codec import Unreadable as BodyUnreadable
from ..bodies.keys import Keys, Unopened
from ..clock import EPOCH, Clock, DatabaseTime
from ..errors import LeaseLost, PoisonedActivity
from ..handlers.consumer import Consumer
from ..handlers.context import Context, Dead, Snooze, TooLate
from ..model.message import Reason, from_raw
from ..model.replies import kind_of
from ..model.work import Leased, Left, Outcome, Settlement
from ..rules.blame import ending_of
from ..rules.classify import describe
from ..rules.delivery import (
    BatchFailed,
    Cancelled,
    Died,
    Ending,
    Expired,
    Interrupted,
    Lost,
    Raised,
    Returned,
    Sealed,
    Snoozed,
    StartsSpent,
    TimedOut,
    TrialFailed,
    Unreadable,
    conclude,
    is_doubtful,
    unfit,
)
from ..rules.fingerprint import fingerprint
from ..rules.lanes import Lane, Stop
from ..rules.outage import lateness
from ..rules.overrides import policy_of, timeout_of
from ..rules.pacing import Pacing
from ..rules.policy import HandlerPolicy
from ..rules.redact import ROOM, Masking, looked_at
from ..rules.traces import LoggedCauses, Place
from ..telemetry import Watch
from ..telemetry.logs import Log
from .board import Board
from .lateness import Lateness, named
from .quotes import masking_for
from .traces import Traces, error_of, place_of
from .transactions import Completions

log = Log("holdfast.worker")

Heard = Callable[[Leased, Ending, Settlement | None], None]


class Endings:
    """The endings of one worker's attempts."""

    def __init__(
        self,
        consumers: Mapping[str, Consumer],
        pacing: Pacing,
        completions: Completions,
        clock: Clock,
        time: DatabaseTime,
        board: Board | None,
        watch: Watch | None,
    ) -> None:
        self.consumers, self.pacing, self.completions = consumers, pacing, completions
        self.clock, self.time, self.board, self.watch = clock, time, board, watch
        self.traces, self.logged = Traces(), LoggedCauses()
        self.hear: Heard | None = None  # in tests of applications
        # Called when a message ended: in its handler's transaction; without being done; as a failure.
        self.completed = self.others = self.failures = 0
        self.lateness = Lateness(time)
        self.is_logging = False  # whether each start and end is logged; asked before each round of calls
        self._starts: dict[
            str, int
        ] = {}  # by the consumer's name: the smallest limit of attempts of any failure

    def before(self, lane: Lane, leased: Leased, consumer: Consumer) -> Ending | None:
        """Decisions before any code of the user runs: poison, a deadline that has passed, a cancellation."""
        message = leased.message
        if is_doubtful(leased) and (ending := unfit(leased, _policy(consumer, leased))) is not None:
            if isinstance(ending, StartsSpent):
                log_poison(leased, _policy(consumer, leased).retry.starts_max)
            return ending
        if (
            message.deadline_raw is not None
            and self.time.now() > from_raw(message.deadline_raw)
            and not consumer.limits(message.queue).late
        ):
            return Expired()
        if lane.stop is Stop.CANCELLED:
            return Cancelled()
        if (message.due_raw or message.created_raw) < self.lateness.before_raw:
            self.lateness.log_late(leased)
        if self.is_logging:
            log.info(
                "message.started",
                "Handling message %(message_id)s of type %(type)s in %(queue)s",
                **named(leased),
            )
        return None

    def returned(self, lane: Lane, value: Any, context: Context | None) -> Ending:
        ran = lane.ran(self.clock.monotonic())
        if value is None or not isinstance(value, Snooze | Dead):
            if context is None:
                return Returned(0, (), ran)
            return Returned(context._flags, tuple(context._emits), ran, context._delta)
        return _wish(value, context, ran)

    async def foreseen(
        self, lane: Lane, leased: Leased, consumer: Consumer, context: Context, ending: Returned
    ) -> Returned:
        """The ending of an activity, with the next turn of the instance that called it where that can be run ahead.

        A turn that ends the process is counted as a start of the activity. So it is run only at the first attempt, and
        if others are left: it cannot make a dead letter of the activity.
        """
        answer = context._answered
        if answer is None or context._foresee is None or lane.stop is not None or is_doubtful(leased):
            return ending
        if starts_min(_policy(consumer, leased)) < 2:
            return ending
        if answer.queue not in self.consumers:  # other workers have the turns
            return ending
        guess = await context._foresee(answer, context._answer_text, self.time.now())
        if guess is None:
            return ending
        return structs.replace(
            ending, emits=tuple(each for each in ending.emits if each is not answer), guess=guess
        )

    def raised(self, lane: Lane, error: BaseException, context: Context | None) -> Ending:
        ran = lane.ran(self.clock.monotonic())
        match error:
            case BodyUnreadable():
                return Unreadable(error)
            case Unopened():
                return Sealed(error)
            case Snooze() | Dead():
                return _wish(error, context, ran)
            case TooLate():
                return Expired()
            case LeaseLost():
                log.warning(
                    "lease.lost",
                    "A handler of %(queue)s noticed that another worker has its lease now",
                    queue=lane.queue,
                )
                return Lost()
        return ending_of(error, flags_of(context), ran) or Raised(error, flags_of(context), ran)

    def cancelled(
        self, lane: Lane, consumer: Consumer, context: Context | None, error: BaseException
    ) -> Ending:
        flags, ran = flags_of(context), lane.ran(self.clock.monotonic())
        match lane.stop:
            case Stop.LOST:
                return Lost()
            case Stop.TIMEOUT:
                timeout = consumer.limits(lane.queue).timeout
                if lane.running is not None:
                    timeout = timeout_of(timeout, lane.running.message.headers)
                return ending_of(error, flags, ran) or TimedOut(timeout, flags, ran, error)
            case Stop.CANCELLED:
                return Cancelled(flags, ran)
            case Stop.LAPSED | Stop.GRACE:
                return Interrupted(flags, ran)
            case None:  # not cancelled by this worker: something that the handler awaits was cancelled
                return Raised(error, flags, ran)

    async def settled(self, lane: Lane, leased: Leased, context: Context, ending: Ending) -> Ending | None:
        """What is left to settle of a message that its handler has settled: nothing, if that was committed."""
        left = await self.completions.verify(context, ending)
        if left is None:
            if isinstance(ending, Raised):
                log.error(
                    "message.raised_late",
                    "The handler of message %(message_id)s in %(queue)s raised %(error)s after the message had been "
                    "settled",
                    **named(leased), error=type(ending.error).__name__, traceback=self._shown(leased, ending),
                )  # fmt: skip
            self.forget([leased.message.seq])
            self.completed += 1
            if self.is_logging:
                self._log_done(lane, leased)
            if self.watch is not None:
                self.watch.completed(leased, lane.ran(self.clock.monotonic()))
            if self.hear is not None:
                self.hear(leased, Returned(), None)
        return left

    def end(
        self, lane: Lane, leased: Leased, ending: Ending, took: float | None = None, left: Left | None = None
    ) -> None:
        """An attempt has ended. `left`: what its consumer stores if the message died; see `EndsMore`."""
        if self.board is not None:
            self.note_end(leased)
        is_done = type(ending) is Returned
        if not is_done:
            ending = self.traces.placed(ending)
        settlement = self.concluded(leased, ending)
        if left is not None:
            settlement = with_left(settlement, left)
        if is_done:
            if self.is_logging:
                self._log_done(lane, leased)
        elif settlement is not None:
            self.others += 1
            self.failures += settlement.failed
            if settlement.error is not None:
                self._log_failure(leased, ending, settlement, settlement.error)
        if settlement is None:
            self.forget([leased.message.seq])
        if self.watch is not None:
            seen = settlement
            if settlement is not None and settlement.traceback is not None:
                seen = structs.replace(settlement, traceback=self._shown(leased, ending))
            self.watch.end(leased, seen)
        if self.hear is not None:
            self.hear(leased, ending, settlement)
        self.pacing.end(lane, settlement, took)

    def note_end(self, leased: Leased) -> None:
        """From now on its handler is not to blame if the process dies."""
        if self.board is not None:
            frail = leased.attempt + 1 >= self._fewest_starts(leased.message.queue)
            self.board.ended(leased.message.seq, frail)

    def _shown(self, leased: Leased, ending: Ending) -> str | None:
        """The traceback for logs and traces: the texts of exceptions are masked, with all they quote of the message.

        A call with many messages may quote any of them, so only the types of its exceptions are shown.
        """
        error, consumer = error_of(ending), self.consumers[leased.message.queue]
        if error is None or not consumer.policy.tracebacks:
            return None
        masking = None if consumer.batch else masking_for(leased.message, consumer.masking, consumer.keys)
        return self.traces.shown(error, masking, consumer.policy.error_chars)

    def _log_done(self, lane: Lane, leased: Leased) -> None:
        message = leased.message
        began = self.time.at(lane.started_at)
        minutes, _ = lateness((began - (message.due_at or message.created_at)).total_seconds())
        log.info(
            "message.done",
            "Message %(message_id)s of type %(type)s is done in %(queue)s, begun %(lateness_minutes)d minutes late",
            **named(leased), subject=message.subject, lateness_minutes=minutes,
        )  # fmt: skip

    def _log_failure(self, leased: Leased, ending: Ending, settlement: Settlement, error: str) -> None:
        """One line with the place; the whole traceback once for each cause and minute."""
        if not log.is_enabled(logging.ERROR if settlement.outcome is Outcome.DEAD else logging.WARNING):
            return
        place, trace = place_of(ending), None
        if settlement.traceback is not None:
            where = None if place is None else place.name
            cause = settlement.fingerprint or fingerprint(error, _reason(settlement), where)
            if self.logged.is_due(cause, self.clock.monotonic()):
                trace = self._shown(leased, ending)
        log_failure(leased, settlement, error.partition(":")[0], place, trace)

    def _fewest_starts(self, queue: str) -> int:
        consumer = self.consumers[queue]
        if (found := self._starts.get(consumer.queue)) is None:
            found = self._starts[consumer.queue] = starts_min(consumer.policy)
        return found

    def concluded(self, leased: Leased, ending: Ending) -> Settlement | None:
        consumer = self.consumers[leased.message.queue]
        policy = consumer.policy
        if type(ending) is Returned:  # only failures need the time and a random number
            return conclude(leased, ending, policy, EPOCH, 0.0)
        policy = policy_of(policy, leased.message.headers)
        now, roll = self.time.now(), self.clock.roll()
        return concluded(leased, ending, policy, consumer.masking, consumer.keys, self.traces, now, roll)

    def forget(self, seqs: Iterable[int]) -> None:
        """Take these off the board: they are settled."""
        if self.board is not None:
            for seq in seqs:
                self.board.settled(seq)


def with_left(settlement: Settlement | None, left: Left) -> Settlement | None:
    """The settlement of a death with what the consumer stores besides; any other as it is."""
    if settlement is None or settlement.outcome is not Outcome.DEAD:
        return settlement
    return structs.replace(
        settlement,
        delta=left.delta,
        emits=(*settlement.emits, *left.emits),
        halt=settlement.halt and left.halts,
    )


def starts_min(policy: HandlerPolicy) -> int:
    """How many starts are allowed, for whatever reason they fail."""
    retry = policy.retry
    return min(retry.starts_max, retry.for_reason(Reason.WORKER_VANISHED).attempts_max)


def _policy(consumer: Consumer, leased: Leased) -> HandlerPolicy:
    """The policy for this message: a call of an activity may have its own."""
    return policy_of(consumer.policy, leased.message.headers)


def _wish(value: Snooze | Dead, context: Context | None, ran: float) -> Ending:
    """What a handler sets for its message."""
    if isinstance(value, Snooze):
        return Snoozed(value.delay, flags_of(context), ran)
    return Died(value.why, flags_of(context), ran)


def flags_of(context: Context | None) -> int:
    return 0 if context is None else context._flags


def concluded(
    leased: Leased,
    ending: Ending,
    policy: HandlerPolicy,
    masking: Masking,
    keys: Keys | None,
    traces: Traces,
    now: datetime,
    roll: float,
) -> Settlement | None:
    """The settlement of the message, ready to be stored. None: the lease is lost."""
    if masking.functions:
        ending = masked(ending, masking, policy.error_chars)
    settlement = conclude(leased, ending, policy, now, roll)
    if settlement is None:
        return None
    if keys is not None:
        settlement = sealed(settlement, keys)
    if policy.tracebacks and settlement.error is not None and (error := error_of(ending)) is not None:
        text = traces.text(error, settlement.error, masking)
        settlement = structs.replace(settlement, traceback=text)
    return settlement


def masked(ending: Ending, masking: Masking, chars: int) -> Ending:
    """The same ending with its error text as the application's masking functions return it."""

    def text(said: str) -> str:
        return masking(looked_at(said, chars))

    match ending:
        case BatchFailed(alone):
            inside = masked(alone, masking, chars)
            assert isinstance(inside, type(alone))
            return BatchFailed(inside)
        case Raised() | TrialFailed() | Unreadable():
            return replace(ending, text=text(describe(ending.error, ROOM * chars)))
        case Sealed(error):
            return replace(ending, text=text(describe(error.__cause__ or error, ROOM * chars)))
        case Died(why):
            return replace(ending, text=text(f"Dead: {why}"))
    return ending


def sealed(settlement: Settlement, keys: Keys) -> Settlement:
    """The settlement with its copy sealed again for the new message; without the copy if it cannot be opened here.

    A sealed body is bound to its message's id. Copied unchanged it could not be opened.
    """
    if settlement.copy is None:
        return settlement
    original, emits = settlement.leased.message, []
    for each in settlement.emits:
        if each.id != settlement.copy:
            emits.append(each)
        elif (body := keys.moved(original.id, original.type, each.id, each.type, original.body)) is not None:
            emits.append(structs.replace(each, body=body))
    return structs.replace(settlement, emits=tuple(emits), copy=None)


def log_poison(leased: Leased, attempts_max: int) -> None:
    """Log that it was started as often as allowed; for an activity, with its instance."""
    kind = kind_of(leased.message.type, leased.message.headers)
    facts: dict[str, Any] = {**named(leased), "attempts_max": attempts_max}
    what = "Message %(message_id)s of type %(type)s"
    if isinstance(kind, PoisonedActivity):
        what += ", activity %(activity)s#%(activity_id)d of instance %(instance)s,"
        facts |= {"instance": kind.instance, "activity": kind.activity_name, "activity_id": kind.activity_id}
    text = f"{what} is poison in %(queue)s: its %(attempts_max)d attempts are used up"
    log.warning("message.poison", text, **facts)


def log_failure(
    leased: Leased, settlement: Settlement, kind: str, place: Place | None, trace: str | None
) -> None:
    facts = {**named(leased), "error": kind, "outcome": settlement.outcome}
    at, where = ("", None) if place is None else (" at %(place)s", str(place))
    if settlement.outcome is Outcome.DEAD:
        log.error(
            "message.died",
            "Message %(message_id)s of type %(type)s is a dead letter in %(queue)s after attempt %(attempt)d: "
            f"%(error)s{at} (reason %(died_of)d, last failure %(reason)d, cause %(fingerprint)s)",
            **facts, reason=_reason(settlement), died_of=settlement.reason, fingerprint=settlement.fingerprint,
            place=where, traceback=trace,
        )  # fmt: skip
    else:
        log.warning(
            "message.failed",
            "Message %(message_id)s of type %(type)s failed in %(queue)s at attempt %(attempt)d: "
            f"%(error)s{at}, %(outcome)s (reason %(reason)d)",
            **facts, reason=_reason(settlement), place=where, traceback=trace,
        )  # fmt: skip


def _reason(settlement: Settlement) -> Reason:
    return settlement.last_reason or settlement.reason or Reason.UNKNOWN
