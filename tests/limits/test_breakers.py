"""A breaker in the hands of somebody who writes code: with, async with, decorator, call."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from holdfast.errors import CircuitOpen, HoldfastError, InvalidSettings, UsageError
from holdfast.handlers.context import Dead, Snooze
from holdfast.limits.breakers import Breaker, ending_of
from holdfast.model.message import Reason
from holdfast.rules.breaker import State
from holdfast.rules.delivery import BreakerRefused, TrialFailed
from tests.limits.cluster import Cluster, Down, fail, succeed


class Busy(Exception):
    """HTTP 429 or 503, as a client raises it."""

    def __init__(self, status: int, retry_after: str | None = None) -> None:
        super().__init__(f"HTTP {status}")
        self.status_code = status
        self.headers = {} if retry_after is None else {"Retry-After": retry_after}


@pytest.fixture
def llm(cluster: Cluster) -> Breaker:
    return cluster.process().get("llm")


# --- Ways to call -----------------------------------------------------------------------------------------------------


@pytest.mark.covers("V55")
def test_open_refuses_at_once_and_calls_nothing(llm: Breaker) -> None:
    fail(llm, 10)
    with pytest.raises(CircuitOpen) as refused, llm:
        pytest.fail("it was called")
    error = refused.value
    assert isinstance(error, HoldfastError)
    assert (error.breaker, error.retry_in, error.retryable) == ("llm", 30.0, True)
    assert str(error) == (
        "Breaker llm is open (10 of the last 10 calls failed: Down): nothing was called. Ask again in 30.0 s."
    )


@pytest.mark.covers("V60")
def test_what_the_call_raises_is_raised_and_what_it_answers_is_answered(llm: Breaker) -> None:
    @llm
    def ask(question: str, *, loud: bool = False) -> str:
        """Asks."""
        if not question:
            raise Down("the line is dead")
        return question.upper() if loud else question

    assert (ask.__name__, ask.__doc__) == ("ask", "Asks.")
    assert ask("why", loud=True) == "WHY"
    assert llm.call(ask, "why") == "why"
    with pytest.raises(Down, match="the line is dead"):
        ask("")
    error = Down("the same object")
    with pytest.raises(Down) as raised, llm:
        raise error
    assert raised.value is error


@pytest.mark.covers("V60", "V55")
async def test_the_same_in_async_code(llm: Breaker) -> None:
    @llm
    async def ask(question: str) -> str:
        await asyncio.sleep(0)
        if not question:
            raise Down
        return question

    assert await ask("why") == "why"
    assert await llm.call(ask, "how") == "how"
    async with llm:
        pass
    for _ in range(7):
        with pytest.raises(Down):
            await ask("")
    with pytest.raises(CircuitOpen):
        await ask("why")
    with pytest.raises(CircuitOpen):
        async with llm:
            pytest.fail("it was called")


@pytest.mark.one_postgres
def test_a_generator_is_refused(llm: Breaker) -> None:
    def lines() -> Any:
        yield 1

    with pytest.raises(UsageError, match="with breaker"):
        llm(lines)


@pytest.mark.covers("V61")
def test_each_dependency_has_a_breaker_of_its_own(cluster: Cluster) -> None:
    process = cluster.process()
    llm, stt = process.get("llm"), process.get("stt")
    fail(llm, 10)
    with pytest.raises(CircuitOpen), llm:
        pass
    succeed(stt)
    assert [(each.name, each.state) for each in cluster.operator(process).list()] == [
        ("llm", "open"),
        ("stt", "closed"),
    ]


# --- The way round ----------------------------------------------------------------------------------------------------


@pytest.mark.covers("V51", "V56", "V57", "V58")
def test_it_opens_lets_trials_through_and_closes(cluster: Cluster, llm: Breaker) -> None:
    fail(llm, 10)
    cluster.advance(seconds=29)
    with pytest.raises(CircuitOpen) as refused, llm:
        pass
    assert refused.value.retry_in == 1.0
    cluster.advance(seconds=1)
    assert cluster.row().state == "open"
    succeed(llm)
    assert (cluster.row().state, cluster.row().successes) == ("half_open", 1)
    succeed(llm, 2)
    assert (cluster.row().state, cluster.row().calls) == ("closed", "")
    succeed(llm, 100)


@pytest.mark.covers("V59")
def test_a_failed_trial_opens_it_again(cluster: Cluster, llm: Breaker) -> None:
    fail(llm, 10)
    cluster.advance(seconds=30)
    succeed(llm, 2)
    fail(llm)
    assert (cluster.row().state, cluster.row().why) == ("open", "a trial failed: Down")
    with pytest.raises(CircuitOpen) as refused, llm:
        pass
    assert refused.value.retry_in == 30.0


def test_a_retry_after_opens_it_at_once_and_until_then(cluster: Cluster, llm: Breaker) -> None:
    fail(llm, error=Busy(429, "120"))
    with pytest.raises(CircuitOpen) as refused, llm:
        pass
    assert refused.value.retry_in == 120.0
    cluster.advance(seconds=120)
    succeed(llm, 3)
    assert cluster.row().state == "closed"
    fail(llm, error=Busy(503, "99999"))
    with pytest.raises(CircuitOpen) as refused, llm:
        pass
    assert refused.value.retry_in == 3600.0


# --- What counts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "counts"),
    [
        (ConnectionRefusedError(), True),
        (TimeoutError(), True),
        (Busy(500), True),
        (Busy(429), True),
        (ExceptionGroup("all", [TimeoutError(), TimeoutError()]), True),
        (Busy(404), False),
        (ValueError("a bug of ours"), False),
        (Snooze(5), False),
        (Dead("no such customer"), False),
        (CircuitOpen("stt", 3.0), False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
@pytest.mark.one_postgres
def test_failures_of_the_dependency_count_and_others_do_not(
    cluster: Cluster, llm: Breaker, error: Exception, counts: bool
) -> None:
    fail(llm, 10, error)
    assert (cluster.row().state == "open") is counts


@pytest.mark.one_postgres
@pytest.mark.parametrize(
    "counts",
    [ValueError, (KeyError, ValueError), {Reason.HANDLER_EXCEPTION}, lambda error: "bug" in str(error)],
    ids=["type", "types", "reasons", "function"],
)
def test_what_counts_can_be_said(cluster: Cluster, counts: Any) -> None:
    picky = cluster.process().get("picky", counts=counts)
    fail(picky, 10, ValueError("a bug"))
    assert cluster.row("picky").state == "open"


@pytest.mark.one_postgres
def test_a_breaker_is_declared_once(cluster: Cluster) -> None:
    process = cluster.process()
    llm = process.get("llm", trials=5)
    assert process.get("llm") is llm
    assert process.get("llm", trials=5) is llm
    for options in ({"trials": 4}, {"counts": ValueError}):
        with pytest.raises(InvalidSettings, match="declared already"):
            process.get("llm", **options)
    with pytest.raises(InvalidSettings, match="has no 'colour'"):
        process.get("stt", colour="red")
    with pytest.raises(InvalidSettings, match="counts=7"):
        process.get("stt", counts=7)  # type: ignore[arg-type]


@pytest.mark.one_postgres
async def test_a_cancelled_call_says_nothing_unless_its_time_was_over(cluster: Cluster, llm: Breaker) -> None:
    async def hang() -> None:
        await asyncio.sleep(60)

    async def cancelled(function: Any, after: float) -> None:
        running = asyncio.create_task(function())
        await asyncio.sleep(0.05)
        cluster.advance(seconds=after)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    guarded = llm.guard(hang, is_async=True, timeout=5)
    succeed(llm)
    await cancelled(guarded, 4)
    await cancelled(llm(hang), 100)
    assert llm.circuit._pending.count("x") == 0
    await cancelled(guarded, 5)
    assert cluster.row().calls.count("x") == 1


# --- Many at once, and one inside the other ---------------------------------------------------------------------------


@pytest.mark.one_postgres
def test_threads_do_not_mix_up_their_calls(cluster: Cluster, llm: Breaker) -> None:
    succeed(llm)
    barrier = threading.Barrier(8)

    def one(n: int) -> None:
        for _ in range(5):
            barrier.wait()
            try:
                with llm:
                    barrier.wait()  # all are inside at once
                    if n == 0:
                        raise Down
            except Down:
                pass

    threads = [threading.Thread(target=one, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cluster.advance(seconds=1)
    fail(llm)
    calls = cluster.row().calls
    assert len(calls) == 20
    assert calls.count("x") <= 5 + 1


@pytest.mark.one_postgres
def test_a_guarded_call_inside_a_guarded_call_is_one_call(cluster: Cluster) -> None:
    """Else a breaker with one trial would wait for itself: the outer call has it, the inner one needs it."""
    solo = cluster.process().get("solo", trials=1)

    @solo
    def handle(ok: bool) -> str:
        try:
            with solo:
                if not ok:
                    raise Down
        except Down:
            return "a fallback"
        return "fine"

    for _ in range(10):
        # What failed inside has failed, whatever the handler makes of it.
        assert handle(False) == "a fallback"
    assert cluster.row("solo").state == "open"
    cluster.advance(seconds=30)
    assert handle(True) == "fine"
    assert cluster.row("solo").state == "closed"


@pytest.mark.one_postgres
async def test_a_task_that_outlives_the_call_is_not_inside_it(cluster: Cluster, llm: Breaker) -> None:
    entered = asyncio.Event()

    async def later() -> None:
        await entered.wait()
        for _ in range(9):
            with pytest.raises(Down):
                async with llm:
                    raise Down

    async with llm:
        running = asyncio.create_task(later())
    entered.set()
    await running
    assert cluster.row().state == "open"


# --- What a worker makes of it ----------------------------------------------------------------------------------------


@pytest.mark.covers("X30", "V26")
def test_a_refusal_that_escapes_a_handler_is_refunded(llm: Breaker) -> None:
    fail(llm, 10)
    with pytest.raises(CircuitOpen) as refused, llm:
        pass
    assert ending_of(refused.value, 0, 1.0) == BreakerRefused(30.0)
    group = ExceptionGroup("a task group", [refused.value, CircuitOpen("stt", 60.0)])
    assert ending_of(group, 0, 1.0) == BreakerRefused(60.0)
    # Steps that the handler has marked stay marked.
    assert ending_of(refused.value, 8, 1.0) == TrialFailed(refused.value, 30.0, 8, 1.0)


def test_a_failed_trial_is_known_by_its_exception(cluster: Cluster, llm: Breaker) -> None:
    fail(llm, 9)
    error = Down()
    fail(llm, error=error)
    assert ending_of(error, 0, 0.0) is None
    cluster.advance(seconds=30)
    fail(llm, error=error)
    assert ending_of(error, 4, 2.0) == TrialFailed(error, 30.0, 4, 2.0)
    assert ending_of(ExceptionGroup("", [error, ValueError()]), 0, 0.0) is None
    assert State(cluster.row().state) is State.OPEN
