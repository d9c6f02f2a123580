"""How an attempt ends and what becomes of its message."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.errors import InvalidSettings, LeaseLost
from holdfast.model.message import Flag, Message, Reason
from holdfast.model.work import Leased, Outcome, Settlement
from holdfast.rules.delivery import (
    BatchFailed,
    BreakerRefused,
    Cancelled,
    Died,
    Ending,
    Expired,
    Interrupted,
    Lost,
    NeverStarted,
    NoHandler,
    Paused,
    Raised,
    Released,
    Returned,
    Sealed,
    Snoozed,
    StartsSpent,
    TimedOut,
    TrialFailed,
    Unreadable,
    Unsent,
    give_back,
    release,
    verdict,
)
from holdfast.rules.fingerprint import fingerprint
from holdfast.rules.policy import HandlerPolicy
from holdfast.rules.retry import PROFILES, RetryPolicy, policy
from tests.rules.cases import EMITTED, MESSAGE, NOW, NOW_RAW, applied, conclude, handler, lease, settle

FAILED = int(Flag.FAILED)
STEP = 1 << 3
BUG = ValueError("no")
DOWN = ConnectionRefusedError("down")


class Unavailable(Exception):
    status = 503

    def __init__(self, retry_after: str) -> None:
        self.headers = {"Retry-After": retry_after}


# --- Endings ------------------------------------------------------------------------------------------------


def test_returned() -> None:
    leased = lease(attempts=2, failures=2)
    assert settle(Returned(STEP, (EMITTED,), 0.5), leased) == Settlement(
        leased, Outcome.DONE, flags=STEP | 4, emits=(EMITTED,), ran=0.5
    )


@pytest.mark.covers("W5", "W9")
def test_a_failure_adds_failed_to_what_was_accomplished() -> None:
    before = lease(status=1)
    failed = settle(Raised(BUG), before)
    assert failed.flags == FAILED == 32768
    assert applied(failed).status == 32769
    partly = settle(Raised(DOWN, flags=int(Flag.STORED | Flag.EVENT_STORED)), before)
    assert applied(partly).status == 1 | 2 | 32768
    again = settle(Raised(DOWN, flags=STEP), lease(applied(partly)))
    assert applied(again).status == 1 | 2 | STEP | 32768


def test_a_failure() -> None:
    leased = lease(attempts=1, failures=1)
    assert settle(Raised(BUG, STEP, 0.5), leased) == Settlement(
        leased,
        Outcome.AGAIN,
        delay=120,
        flags=STEP | FAILED,
        failed=True,
        reason=Reason.HANDLER_EXCEPTION,
        error="ValueError: no",
        ran=0.5,
    )


@pytest.mark.covers("X2")
def test_attempts_decide_poison_and_failures_the_delay() -> None:
    """Hand-overs that were lost or given back make the two numbers differ."""
    assert settle(Raised(BUG), lease(attempts=8, failures=1)).delay == 120
    assert settle(Raised(BUG), lease(attempts=9, failures=1)).outcome is Outcome.DEAD
    assert settle(Raised(BUG), lease(attempts=8, failures=30)).outcome is Outcome.AGAIN
    counters = applied(settle(NeverStarted(), lease(attempts=0, failures=0)))
    assert (counters.attempts, counters.failures) == (0, 0)
    counters = applied(settle(Raised(BUG), lease(attempts=4, failures=1)))
    assert (counters.attempts, counters.failures) == (5, 2)


def test_retry_after_comes_first_and_is_bounded() -> None:
    assert settle(Raised(Unavailable("17"))).delay == 17
    assert settle(Raised(Unavailable("Thu, 01 Jan 2026 12:00:30 GMT"))).delay == 30
    assert settle(Raised(Unavailable("86400"))).delay == 3600
    assert settle(Raised(Unavailable("17"))).reason is Reason.DEPENDENCY_FAILURE


def test_a_timeout_is_a_failure() -> None:
    settlement = settle(TimedOut(300, STEP, 300.1))
    assert (settlement.outcome, settlement.reason, settlement.failed, settlement.delay) == (
        Outcome.AGAIN,
        Reason.TIMEOUT_EXCEEDED,
        True,
        60,
    )
    assert (settlement.flags, settlement.error) == (
        STEP | FAILED,
        "TimedOut: the handler ran longer than 300 s.",
    )


@pytest.mark.covers("V17", "V25")
@pytest.mark.parametrize("name", PROFILES)
def test_a_permanent_error_is_not_retried(name: str) -> None:
    how = handler(name)
    permanent = settle(Raised(msgspec.ValidationError("wrong")), lease(), how)
    assert (permanent.outcome, permanent.reason) == (Outcome.DEAD, Reason.VALIDATION_FAILURE)
    assert settle(Raised(DOWN), lease(), how).outcome is Outcome.AGAIN


@pytest.mark.covers("X46", "W15", "W17")
@pytest.mark.parametrize(
    ("ending", "attempts", "vanished", "starts", "reasons"),
    [
        (Raised(DOWN), 9, 0, 10, (7, 1)),
        (Raised(BUG), 9, 0, 10, (7, 2)),
        (TimedOut(5), 9, 0, 10, (7, 4)),
        (StartsSpent(), 10, 1, 10, (7, 8)),
        (StartsSpent(), 10, 0, 10, (7, 99)),
        (StartsSpent(), 1, 1, 1, (8, 8)),
        (Raised(msgspec.ValidationError()), 0, 0, 10, (3, 3)),
        (Unreadable(msgspec.ValidationError()), 0, 0, 10, (3, 3)),
        (Died("no such customer"), 0, 0, 10, (3, 3)),
        (Expired(), 0, 0, 10, (4, 4)),
        (Unreadable(msgspec.DecodeError()), 0, 0, 10, (5, 5)),
        (Unreadable(KeyError()), 0, 0, 10, (5, 5)),
        (NoHandler(), 0, 0, 10, (9, 9)),
        (Raised(type("TooLarge", (Exception,), {"status": 413})()), 0, 0, 10, (11, 11)),
        (Died("cancelled by us", reason=Reason.CANCELLED), 0, 0, 10, (10, 10)),
    ],
)
def test_a_death_has_a_reason_and_the_reason_of_the_last_failure(
    ending: Ending, attempts: int, vanished: int, starts: int, reasons: tuple[int, int]
) -> None:
    how = HandlerPolicy(RetryPolicy(attempts_max=starts))
    settlement = settle(ending, lease(attempts=attempts, vanished=vanished), how)
    assert settlement.outcome is Outcome.DEAD
    assert (settlement.reason, settlement.last_reason) == reasons
    assert settlement.flags & FAILED
    assert settlement.error


@pytest.mark.parametrize(
    ("ending", "failed", "counted"),
    [(Raised(BUG), True, True), (Died("no"), True, True), (Expired(), False, False)],
)
def test_what_a_death_counts(ending: Ending, failed: bool, counted: bool) -> None:
    settlement = settle(ending, lease(attempts=9))
    assert (settlement.outcome, settlement.failed, settlement.counted) == (Outcome.DEAD, failed, counted)


def test_died_keeps_the_steps_and_the_words() -> None:
    leased = lease()
    assert settle(Died("no such customer", STEP, 0.5), leased) == Settlement(
        leased,
        Outcome.DEAD,
        flags=STEP | FAILED,
        failed=True,
        reason=Reason.VALIDATION_FAILURE,
        last_reason=Reason.VALIDATION_FAILURE,
        error="Dead: no such customer",
        ran=0.5,
        fingerprint=fingerprint("Dead: no such customer", Reason.VALIDATION_FAILURE),
    )


def test_expired_names_the_deadline() -> None:
    assert str(NOW) in (settle(Expired(), lease(deadline_raw=NOW_RAW)).error or "")


def test_cancelled_is_not_a_dead_letter() -> None:
    leased = lease()
    assert settle(Cancelled(STEP, 0.5), leased) == Settlement(
        leased, Outcome.CANCELLED, flags=STEP, reason=Reason.CANCELLED, ran=0.5
    )


def test_interrupted_has_started_and_has_not_failed() -> None:
    """The worker stopped and its grace was over: the start counts, nothing else does, and anybody may go on at once."""
    leased = lease()
    assert settle(Interrupted(STEP, 0.5), leased) == Settlement(leased, Outcome.AGAIN, flags=STEP, ran=0.5)


@pytest.mark.parametrize(
    "leased", [lease(), lease(refunds=100), lease(attempts=9, failures=3), lease(vanished=2)]
)
def test_unsent_costs_the_message_nothing(leased: Leased) -> None:
    """No start, no refund, no failure, however often: an outage of any length leaves no dead letter."""
    how = handler("immediate", refunds_max=0)
    assert settle(Unsent("no connection to the broker", 12.5, 0.5), leased, how) == Settlement(
        leased,
        Outcome.AGAIN,
        delay=12.5,
        counted=False,
        reason=Reason.TRANSPORT_UNAVAILABLE,
        error="no connection to the broker",
        ran=0.5,
    )


@pytest.mark.parametrize("ending", [Lost(), Raised(LeaseLost())])
def test_a_lost_lease_is_nobody_elses_business(ending: Ending) -> None:
    assert conclude(lease(), ending, HandlerPolicy(), NOW, 0.5) is None


# --- N starts -----------------------------------------------------------------------------------------------

STARTS = [("patient", 10), ("brisk", 5), ("api", 4), ("steady", 3), ("immediate", 5)]


@pytest.mark.covers("X7", "D17")
@pytest.mark.parametrize(("name", "n"), STARTS)
def test_n_starts(name: str, n: int) -> None:
    how = handler(name)
    for attempts in range(n):  # the hand-over about to be judged is attempts + 1
        assert verdict(lease(attempts=attempts, vanished=1), how) is None
        assert verdict(lease(attempts=attempts), how) is None
    assert settle(Raised(BUG), lease(attempts=n - 2), how).outcome is Outcome.AGAIN
    last = settle(Raised(BUG), lease(attempts=n - 1), how)
    assert (last.outcome, last.reason, last.last_reason) == (
        Outcome.DEAD,
        Reason.POISON_MESSAGE,
        Reason.HANDLER_EXCEPTION,
    )
    crashed = verdict(lease(attempts=n, vanished=1), how)
    assert crashed is not None
    assert (crashed.outcome, crashed.reason, crashed.last_reason, crashed.failed) == (
        Outcome.DEAD,
        Reason.POISON_MESSAGE,
        Reason.WORKER_VANISHED,
        False,
    )


@pytest.mark.covers("W79", "C31")
@pytest.mark.parametrize("n", [1, 5, 20])
def test_how_many_starts_is_the_applications_choice(n: int) -> None:
    delays, death = failures_until_dead(HandlerPolicy(RetryPolicy(attempts_max=n)), BUG)
    assert len(delays) == n - 1
    assert applied(death).attempts == n


def failures_until_dead(how: HandlerPolicy, error: BaseException) -> tuple[list[float], Settlement]:
    """Fail again and again: the delays in between, and the death."""
    message, delays = MESSAGE, list[float]()
    for _ in range(100):
        settlement = settle(Raised(error), lease(message), how)
        if settlement.outcome is Outcome.DEAD:
            return delays, settlement
        delays.append(settlement.delay)
        message = applied(settlement)
    raise AssertionError("it never dies")


@pytest.mark.covers("C19", "C20", "C37")
def test_brisk_dies_of_the_fifth_failure() -> None:
    delays, death = failures_until_dead(handler("brisk"), BUG)
    assert delays == [2, 4, 8, 16]
    assert (applied(death).failures, death.reason) == (5, Reason.POISON_MESSAGE)


@pytest.mark.covers("V16")
@pytest.mark.parametrize("error", [TimeoutError(), DOWN])
def test_api_retries_three_times(error: BaseException) -> None:
    delays, death = failures_until_dead(handler("api"), error)
    assert delays == [2, 4, 8]
    assert applied(death).attempts == 4


@pytest.mark.covers("X15")
def test_steady_has_three_starts() -> None:
    delays, death = failures_until_dead(handler("steady"), BUG)
    assert delays == [60, 60]
    assert applied(death).attempts == 3
    assert verdict(lease(attempts=2, vanished=2), handler("steady")) is None
    crashed = verdict(lease(attempts=3, vanished=3), handler("steady"))
    assert crashed is not None
    assert crashed.outcome is Outcome.DEAD


def test_with_one_start_the_outcome_of_a_vanished_one_is_unknown() -> None:
    how = HandlerPolicy(RetryPolicy(attempts_max=1))
    assert verdict(lease(), how) is None
    death = verdict(lease(attempts=1, vanished=1), how)
    assert death is not None
    assert (death.reason, death.last_reason) == (Reason.WORKER_VANISHED, Reason.WORKER_VANISHED)
    assert "unknown" in (death.error or "")
    assert settle(Raised(BUG), lease(), how).reason is Reason.POISON_MESSAGE


@pytest.mark.covers("W19")
def test_a_reason_may_have_its_own_delays_and_starts() -> None:
    patient_with_outages = HandlerPolicy(
        policy("brisk").but(per_reason={Reason.TRANSPORT_UNAVAILABLE: RetryPolicy(attempts_max=20)})
    )
    assert failures_until_dead(patient_with_outages, BUG)[0] == [2, 4, 8, 16]
    delays, death = failures_until_dead(patient_with_outages, DOWN)
    assert len(delays) == 19
    assert delays[:3] == [60, 120, 240]
    assert (death.reason, death.last_reason) == (Reason.POISON_MESSAGE, Reason.TRANSPORT_UNAVAILABLE)
    assert verdict(lease(attempts=19), patient_with_outages) is None
    assert verdict(lease(attempts=20), patient_with_outages) is not None
    assert verdict(lease(attempts=5, vanished=1), patient_with_outages) is not None
    forgiving = HandlerPolicy(RetryPolicy(per_reason={Reason.SERIALIZATION_ERROR: policy("steady")}))
    assert settle(Unreadable(msgspec.DecodeError()), how=forgiving).delay == 60


def test_declared_exceptions() -> None:
    how = handler(declared={ValueError: Reason.VALIDATION_FAILURE})
    assert settle(Raised(BUG), how=how).reason is Reason.VALIDATION_FAILURE
    assert settle(Raised(BUG), how=how).outcome is Outcome.DEAD


# --- Refunds ------------------------------------------------------------------------------------------------

REFUNDS: list[tuple[Ending, float]] = [
    (NeverStarted(), 0),
    (BreakerRefused(30), 30),
    (TrialFailed(DOWN, 30), 30),
]


@pytest.mark.covers("X44")
def test_what_is_refunded_and_how_often() -> None:
    """The engine's own refunds are limited to 100 and count from then on; a snooze is the handler's wish."""
    for ending, delay in REFUNDS:
        settlement = settle(ending, lease(attempts=3, refunds=99))
        assert (settlement.outcome, settlement.delay) == (Outcome.AGAIN, delay)
        assert (settlement.counted, settlement.refunded, settlement.failed) == (False, True, False)
        beyond = settle(ending, lease(attempts=3, refunds=100))
        assert (beyond.outcome, beyond.counted, beyond.refunded) == (Outcome.AGAIN, True, False)
    for refunds in (0, 100, 1000):
        snoozed = settle(Snoozed(5), lease(attempts=3, refunds=refunds))
        assert (snoozed.outcome, snoozed.delay) == (Outcome.AGAIN, 5)
        assert (snoozed.counted, snoozed.refunded, snoozed.failed) == (False, False, False)


def test_fifty_shutdowns_cost_nothing() -> None:
    message = MESSAGE
    for _ in range(50):
        message = applied(settle(NeverStarted(), lease(message)))
    assert (message.attempts, message.refunds) == (0, 50)
    assert applied(settle(Returned(), lease(message))).attempts == 1


@pytest.mark.parametrize("ending", [NeverStarted(), BreakerRefused(1), TrialFailed(DOWN, 1)])
def test_even_refunds_come_to_an_end(ending: Ending) -> None:
    message, how, handed_out = MESSAGE, handler("brisk"), 0
    while verdict(lease(message), how) is None and handed_out < 1000:
        settlement = settle(ending, lease(message), how)
        handed_out += 1
        if settlement.outcome is Outcome.DEAD:
            break
        message = applied(settlement)
    assert handed_out == 105


def test_a_failed_trial_keeps_its_error_and_waits_for_the_breaker() -> None:
    leased = lease(attempts=9, failures=3)
    assert settle(TrialFailed(DOWN, 30, STEP, 0.5), leased) == Settlement(
        leased,
        Outcome.AGAIN,
        delay=30,
        flags=STEP,
        counted=False,
        refunded=True,
        reason=Reason.TRANSPORT_UNAVAILABLE,
        error="ConnectionRefusedError: down",
        ran=0.5,
    )
    assert settle(TrialFailed(Unavailable("90"), 30)).delay == 90
    assert settle(TrialFailed(Unavailable("86400"), 30)).delay == 3600
    assert settle(TrialFailed(Unavailable("1"), 30)).delay == 30


def test_a_failed_trial_beyond_the_refunds_is_a_failure() -> None:
    spent = settle(TrialFailed(DOWN, 600, STEP), lease(refunds=100))
    assert (spent.failed, spent.delay, spent.flags) == (True, 600, STEP | FAILED)
    assert settle(TrialFailed(DOWN, 1), lease(refunds=100)).delay == 60
    assert settle(TrialFailed(DOWN, 1), lease(attempts=9, refunds=100)).outcome is Outcome.DEAD


def test_a_trial_that_failed_for_good_is_dead() -> None:
    assert settle(TrialFailed(msgspec.ValidationError(), 30)).outcome is Outcome.DEAD


@pytest.mark.covers("X9")
def test_giving_back_takes_a_delay_and_a_refund() -> None:
    leased = lease(attempts=3)
    assert give_back(leased) == Settlement(leased, Outcome.AGAIN, counted=False, refunded=True, started=False)
    assert give_back(leased, delay=7).delay == 7
    kept = give_back(leased, refund=False)
    assert (kept.counted, kept.refunded) == (True, False)
    assert give_back(lease(refunds=5), policy=handler(refunds_max=5)).counted


def test_release_changes_nothing_else() -> None:
    leased = lease(attempts=3)
    assert release(leased) == Settlement(leased, Outcome.RELEASE, counted=False, started=False)


@pytest.mark.parametrize(
    ("asked", "delay"), [(-1, 0), (math.nan, 0), (0.25, 0.25), (math.inf, 10 * 366 * 86_400)]
)
def test_no_delay_breaks_a_database(asked: float, delay: float) -> None:
    assert settle(Snoozed(asked)).delay == delay
    assert settle(BreakerRefused(asked)).delay == delay
    assert settle(TrialFailed(DOWN, asked)).delay == delay
    assert give_back(lease(), delay=asked).delay == delay


# --- Order --------------------------------------------------------------------------------------------------


@pytest.mark.covers("W81")
@pytest.mark.parametrize(
    ("ordering", "position", "aside"),
    [("strict", 70, False), ("available", 70, True), ("available", None, False)],
)
def test_a_failed_head_keeps_its_place_or_is_set_aside(
    ordering: str, position: int | None, aside: bool
) -> None:
    settlement = settle(Raised(BUG), lease(position=position), handler(ordering=ordering))
    assert (settlement.outcome, settlement.aside) == (Outcome.AGAIN, aside)


@pytest.mark.parametrize("ending", [*(each for each, _ in REFUNDS), Snoozed(1), Paused("p")])
def test_what_is_no_failure_keeps_its_place(ending: Ending) -> None:
    assert not settle(ending, how=handler(ordering="available")).aside


@pytest.mark.parametrize(
    ("on_dead", "position", "halt"), [("continue", 70, False), ("halt", 70, True), ("halt", None, False)]
)
@pytest.mark.parametrize("ending", [Died("no"), Expired(), NoHandler(), StartsSpent(), Raised(BUG)])
def test_a_dead_head_halts_its_stream_if_told_to(
    ending: Ending, on_dead: str, position: int | None, halt: bool
) -> None:
    leased = lease(attempts=9, position=position)
    settlement = settle(ending, leased, handler(on_dead=on_dead))
    assert (settlement.outcome, settlement.halt) == (Outcome.DEAD, halt)


def test_a_retry_never_halts() -> None:
    assert not settle(Raised(BUG), how=handler(on_dead="halt")).halt


@pytest.mark.parametrize(
    "wrong",
    [
        {"ordering": "loose"},
        {"on_dead": "stop"},
        {"declared": {"ValueError": Reason.UNKNOWN}},
        {"declared": {ValueError: 3}},
    ],
)
def test_a_policy_that_cannot_work_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings):
        HandlerPolicy(**wrong)


# --- Errors -------------------------------------------------------------------------------------------------


@pytest.mark.covers("C11")
def test_error_texts_are_cut_at_two_thousand_characters() -> None:
    long = ValueError("x" * 5000)
    for ending in (Raised(long), Died("x" * 5000), Unreadable(long), TrialFailed(long, 1)):
        assert len(settle(ending).error or "") == 2000
        assert len(settle(ending, how=handler(error_chars=50)).error or "") == 50


def test_error_texts_can_be_stored_and_show_no_payload() -> None:
    assert settle(Died("a\x00b\udfff")).error == "Dead: a\ufffdb\ufffd"
    for ending in (NoHandler(), Expired(), StartsSpent(), TimedOut(1)):
        assert "4111" not in (settle(ending).error or "")


# --- What holds for every ending ----------------------------------------------------------------------------

ERRORS = st.sampled_from(
    [BUG, DOWN, TimeoutError(), msgspec.ValidationError(), KeyboardInterrupt(), Unavailable("5")]
)
FLAGS = st.integers(-(2**20), 2**20)
SECONDS = st.floats()
ENDINGS: dict[type, st.SearchStrategy[Any]] = {
    Returned: st.builds(Returned, FLAGS, st.just((EMITTED,)), SECONDS),
    Raised: st.builds(Raised, ERRORS, FLAGS, SECONDS),
    Snoozed: st.builds(Snoozed, SECONDS, FLAGS, SECONDS),
    Paused: st.builds(Paused, st.text(), SECONDS),
    Died: st.builds(Died, st.text(), FLAGS, SECONDS, st.sampled_from(Reason)),
    TimedOut: st.builds(TimedOut, SECONDS, FLAGS, SECONDS),
    TrialFailed: st.builds(TrialFailed, ERRORS, SECONDS, FLAGS, SECONDS),
    BatchFailed: st.builds(
        BatchFailed, st.builds(Raised, ERRORS, FLAGS, SECONDS) | st.builds(TimedOut, SECONDS, FLAGS, SECONDS)
    ),
    Cancelled: st.builds(Cancelled, FLAGS, SECONDS),
    Interrupted: st.builds(Interrupted, FLAGS, SECONDS),
    Unsent: st.builds(Unsent, st.text(), SECONDS, SECONDS),
    BreakerRefused: st.builds(BreakerRefused, SECONDS),
    NeverStarted: st.builds(NeverStarted, SECONDS, st.booleans()),
    Released: st.just(Released()),
    Unreadable: st.builds(Unreadable, ERRORS),
    Sealed: st.builds(Sealed, ERRORS),
    NoHandler: st.just(NoHandler()),
    Expired: st.just(Expired()),
    StartsSpent: st.just(StartsSpent()),
    Lost: st.just(Lost()),
}
ANY_ENDING: st.SearchStrategy[Ending] = st.one_of(*ENDINGS.values())
ANY_POLICY = st.builds(
    HandlerPolicy,
    st.sampled_from(list(PROFILES.values())),
    st.sampled_from(["strict", "available"]),
    st.sampled_from(["continue", "halt"]),
    refunds_max=st.integers(0, 3),
)
ANY_MESSAGE: st.SearchStrategy[Message] = st.builds(
    lambda **changes: replace(MESSAGE, **changes),
    position=st.none() | st.just(70),
    status=st.integers(0, 65535),
    attempts=st.integers(0, 10**9),
    failures=st.integers(0, 10**9),
    vanished=st.integers(0, 5),
    refunds=st.integers(0, 200),
)


# Only what came back from its handler is cleared of suspicion.
BEFORE_THE_START = (
    BreakerRefused,
    NeverStarted,
    Released,
    Unreadable,
    Sealed,
    NoHandler,
    Expired,
    StartsSpent,
)


def test_every_ending_is_tried() -> None:
    assert set(ENDINGS) == set(Ending.__args__)


@given(ANY_MESSAGE, ANY_ENDING, ANY_POLICY, st.floats(0, 1))
def test_flags_are_only_added_and_failed_only_by_a_failure(
    message: Message, ending: Ending, how: HandlerPolicy, roll: float
) -> None:
    settlement = conclude(lease(message), ending, how, NOW, roll)
    if settlement is None:
        return
    after = applied(settlement).status
    assert after & message.status == message.status
    assert 0 <= settlement.flags <= 65535
    is_failure = settlement.failed or settlement.outcome is Outcome.DEAD or isinstance(ending, BatchFailed)
    assert bool(settlement.flags & FAILED) == is_failure
    assert applied(replace(settlement, leased=lease(message, status=after))).status == after


@given(ANY_MESSAGE, ANY_ENDING, ANY_POLICY, st.floats(0, 1))
def test_every_ending_has_one_sound_settlement(
    message: Message, ending: Ending, how: HandlerPolicy, roll: float
) -> None:
    settlement = conclude(lease(message), ending, how, NOW, roll)
    assert (settlement is None) == isinstance(ending, Lost)
    if settlement is None:
        return
    dead, again = settlement.outcome is Outcome.DEAD, settlement.outcome is Outcome.AGAIN
    assert 0 <= settlement.delay <= 10 * 366 * 86_400
    assert settlement.delay == 0 or again
    assert bool(settlement.emits) == isinstance(ending, Returned)
    assert (settlement.outcome is Outcome.DONE) == isinstance(ending, Returned)
    assert settlement.started == (not isinstance(ending, BEFORE_THE_START))
    assert not (settlement.counted and settlement.refunded)
    assert not (settlement.failed and not settlement.counted)
    assert not settlement.aside or (again and settlement.failed and message.position is not None)
    assert not settlement.halt or (dead and message.position is not None)
    assert (settlement.last_reason is not None) == dead
    assert not (dead or settlement.failed) or (settlement.reason is not None and settlement.error)
    assert applied(settlement).attempts >= message.attempts >= 0


LIVES = st.lists(st.one_of(*(each for kind, each in ENDINGS.items() if kind is not Lost)), max_size=60)


@given(LIVES, ANY_POLICY)
def test_no_life_has_more_starts_that_count_than_allowed(endings: list[Ending], how: HandlerPolicy) -> None:
    message, starts = replace(MESSAGE, refunds=0), 0
    for ending in endings:
        if isinstance(ending, StartsSpent):
            continue
        leased: Leased = lease(message)
        if verdict(leased, how) is not None:
            break
        settlement = settle(ending, leased, how)
        starts += settlement.counted
        message = applied(settlement)
        if settlement.outcome not in (Outcome.AGAIN, Outcome.RELEASE):
            break
    assert starts <= how.retry.attempts_max
    assert 0 <= message.attempts <= how.retry.attempts_max
    assert message.refunds <= how.refunds_max
