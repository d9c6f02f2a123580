"""Rates in the store: one statement on both databases, the same arithmetic as the rule, shared by all."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from holdfast.limits.gate import Gate
from holdfast.model.limits import SharedRate
from holdfast.rules.rate import Bucket, Rate, rate
from holdfast.store import Store
from holdfast.store.plans import breakers
from tests.limits.cluster import Cluster, fail, succeed


def take(store: Store, wanted: int, limit: Rate, name: str = "smtp") -> int:
    return store.run(breakers.take(name, wanted, limit.per_second, limit.burst))


@pytest.mark.parametrize("seed", range(3))
def test_the_statement_does_what_the_rule_says(cluster: Cluster, seed: int) -> None:
    dice = random.Random(seed)
    limit = Rate(dice.choice([0.25, 2.0, 64.0]), dice.choice([1, 10, 100]))
    bucket = Bucket(float(limit.burst), cluster.clock.instant)
    for step in range(60):
        wanted = dice.choice([1, 3, 40])
        expected, bucket = bucket.take(limit, wanted, cluster.clock.instant)
        assert take(cluster.store, wanted, limit) == expected, f"seed {seed}, step {step}"
        # Quarters of a second, which no clock rounds, forwards and sometimes back.
        cluster.clock.instant += timedelta(seconds=dice.choice([0, 0.25, 0.5, 2, 30, -0.5]))


def test_takers_at_the_same_time_share_what_is_there(cluster: Cluster) -> None:
    limit = rate("10/s", burst=100)
    stores = [cluster.open() for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        granted = list(threads.map(lambda n: take(stores[n % 4], 7, limit), range(40)))
    assert sum(granted) == 100
    for store in stores:
        store.close()


def test_names_do_not_share(cluster: Cluster) -> None:
    limit = rate("1/min")
    assert take(cluster.store, 1, limit, "smtp") == 1
    assert take(cluster.store, 1, limit, "smtp") == 0
    assert take(cluster.store, 1, limit, "sms") == 1


def test_a_change_of_the_burst_holds_at_once(cluster: Cluster) -> None:
    assert take(cluster.store, 10, rate("10/s", burst=1000)) == 10
    assert take(cluster.store, 1000, rate("10/s", burst=5)) == 5


# --- The gate ---------------------------------------------------------------------------------------------------------


def allowed(gate: Gate, queue: str) -> int | None:
    return gate.allowed(queue, gate.clock.monotonic())


def admits(gate: Gate, queue: str) -> bool:
    return gate.admits(queue, gate.clock.monotonic())


async def test_a_worker_may_begin_what_breaker_and_rate_allow(cluster: Cluster) -> None:
    llm = cluster.process().get("llm")
    shared = SharedRate("smtp", rate("8/s", burst=8))
    gate = Gate(cluster.store, cluster.clock, {})
    gate.meet("ask", llm)
    gate.meet("both", llm, shared)
    gate.meet("mail", rate=shared)
    await gate.look()
    assert [allowed(gate, queue) for queue in ("ask", "mail", "both", "other")] == [None, 1, 1, None]
    assert admits(gate, "other")
    assert admits(gate, "mail")
    assert not admits(gate, "both")  # they share the rate
    assert (allowed(gate, "mail"), gate.pause) == (0, 0.0)
    await gate.look()
    assert allowed(gate, "mail") == 1
    assert admits(gate, "mail")
    await gate.look()
    assert allowed(gate, "mail") == 2  # it takes more when it needs more
    for _ in range(20):
        while admits(gate, "mail"):
            pass
        await gate.look()
    assert allowed(gate, "mail") == 0
    assert 0.0 < gate.pause <= 1.0
    cluster.advance(seconds=10)
    await gate.look()
    assert allowed(gate, "mail") in (1, 2)


@pytest.mark.covers("X30", "V26")
async def test_nothing_is_asked_for_while_the_breaker_is_open_and_three_are_when_it_tries(
    cluster: Cluster,
) -> None:
    llm = cluster.process().get("llm")
    gate = Gate(cluster.store, cluster.clock, {})
    gate.meet("ask", llm)
    other = cluster.process().get("llm")
    await gate.look()
    assert allowed(gate, "ask") is None
    fail(other, 10)
    cluster.advance(seconds=1)
    await gate.look()
    assert (allowed(gate, "ask"), admits(gate, "ask")) == (0, False)
    cluster.advance(seconds=29)
    await gate.look()
    assert (allowed(gate, "ask"), admits(gate, "ask")) == (3, True)
    with other:
        cluster.advance(seconds=1)
        await gate.look()
        assert allowed(gate, "ask") == 2
    succeed(other, 2)
    cluster.advance(seconds=1)
    await gate.look()
    assert allowed(gate, "ask") == 1  # it has closed, and begins slowly: tests/limits/test_catch_up.py
    cluster.advance(seconds=30)
    await gate.look()
    assert allowed(gate, "ask") is None


@pytest.mark.one_postgres
def test_without_limits_there_is_nothing_to_look_at(cluster: Cluster) -> None:
    gate = Gate(cluster.store, cluster.clock, {})
    assert gate.pause == 1.0
