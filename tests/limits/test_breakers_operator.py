"""Breakers in an operator's hands, by the library and by the command line."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from holdfast.cli import breakers as commands
from holdfast.errors import CircuitOpen, HoldfastError, NotFound, UsageError
from holdfast.limits.breakers import BreakerChanged
from tests.cli.runner import CliRunner
from tests.limits.cluster import Cluster, fail, succeed


def test_list_shows_every_breaker_that_was_used(cluster: Cluster) -> None:
    process = cluster.process()
    assert cluster.operator(process).list() == []
    succeed(process.get("stt"))
    fail(process.get("llm"), 10)
    llm, stt = cluster.operator().list()
    assert (llm.name, llm.state, llm.calls, llm.failures, llm.retry_in) == ("llm", "open", 10, 10, 30.0)
    assert (llm.opened_at, llm.until) == (
        cluster.clock.instant,
        cluster.clock.instant + timedelta(seconds=30),
    )
    assert llm.why == "10 of the last 10 calls failed: Down"
    assert (stt.name, stt.state, stt.retry_in) == ("stt", "closed", None)


def test_forced_open_until_it_is_reset(cluster: Cluster) -> None:
    llm = cluster.process().get("llm")
    succeed(llm)
    operator = cluster.operator()
    state = operator.trip("llm", why="the bill is not paid")
    assert (state.state, state.forced, state.why) == ("open", True, "the bill is not paid")
    cluster.advance(days=2)
    with pytest.raises(CircuitOpen, match="the bill is not paid"), llm:
        pass
    assert operator.reset("llm").state == "closed"
    cluster.advance(seconds=2)
    succeed(llm, 30)
    assert not operator.show("llm").forced


def test_opened_for_a_while(cluster: Cluster) -> None:
    llm = cluster.process().get("llm")
    succeed(llm)
    cluster.operator().trip("llm", seconds=600)
    cluster.advance(seconds=599)
    with pytest.raises(CircuitOpen), llm:
        pass
    cluster.advance(seconds=1)
    succeed(llm, 3)
    assert cluster.row().state == "closed"


def test_forced_closed_whatever_fails(cluster: Cluster) -> None:
    llm = cluster.process().get("llm")
    fail(llm, 10)
    operator = cluster.operator()
    assert operator.force_closed("llm", why="it lies").forced
    cluster.advance(seconds=2)
    fail(llm, 100)
    operator.reset("llm")
    cluster.advance(seconds=2)
    fail(llm, 10)
    assert operator.show("llm").state == "open"


@pytest.mark.one_postgres
def test_an_order_about_a_breaker_that_is_not_there_is_refused(cluster: Cluster) -> None:
    process = cluster.process()
    succeed(process.get("llm"))
    operator = cluster.operator()
    for order in (operator.show, operator.trip, operator.force_closed, operator.reset):
        with pytest.raises(NotFound, match="There is no breaker lmm; there are: llm"):
            order("lmm")
    with pytest.raises(UsageError):
        operator.trip("llm", seconds=0)
    assert cluster.operator(process).trip("llm").forced


def test_the_command_line(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", cluster.url)
    monkeypatch.delenv("HOLDFAST_APP", raising=False)

    def run(*words: str) -> str:
        done = CliRunner().invoke(commands.app, list(words))
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == 0, done.output
        return done.output

    assert "No breaker has been used." in run("list")
    llm = cluster.process().get("llm")
    fail(llm, 10)
    assert "10 of the last 10 calls failed: Down" in run("list")
    assert run("reset", "llm") == "breaker llm: closed\n"
    assert run("open", "llm", "--why", "the bill") == "breaker llm: open, forced\n"
    (listed,) = json.loads(run("list", "--json"))
    assert (listed["name"], listed["state"], listed["forced"], listed["why"]) == (
        "llm",
        "open",
        True,
        "the bill",
    )
    assert json.loads(run("open", "llm", "--for", "60", "--json"))["forced"] is False
    assert run("close", "llm") == "breaker llm: closed, forced\n"
    with pytest.raises(HoldfastError, match="There is no breaker"):
        run("reset", "nobody")


@pytest.mark.one_postgres
def test_the_process_that_gives_an_order_knows_of_it_at_once(cluster: Cluster) -> None:
    here, elsewhere = cluster.process(), cluster.process()
    for process in (here, elsewhere):
        succeed(process.get("llm"))
    told: list[BreakerChanged] = []
    here.listen(told.append)
    cluster.operator(here).trip("llm", why="unpaid")
    with pytest.raises(CircuitOpen, match="unpaid"), here.get("llm"):
        pass
    succeed(elsewhere.get("llm"))  # believes for a second what it read
    cluster.advance(seconds=2)
    with pytest.raises(CircuitOpen, match="unpaid"), elsewhere.get("llm"):
        pass
    assert [(each.before, each.after, each.why) for each in told] == [("closed", "open", "unpaid")]
