"""Calls with whole runs: what is in a call, and that each of its messages is settled by its own answer, exactly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from holdfast.bodies.keys import Keys
from holdfast.handlers.consumer import Limits, RunConsumer
from holdfast.model.message import Flag, Reason
from holdfast.model.work import Leased
from holdfast.rules.delivery import Died, Ending, Raised, Returned, Unsent
from holdfast.rules.policy import HandlerPolicy
from holdfast.rules.redact import DEFAULT, Masking
from holdfast.rules.retry import RetryPolicy
from tests.worker.lab import Lab, auntil, settled

LATER = RetryPolicy(attempts_max=3, base=3600.0, factor=1.0, cap=3600.0)
AT_ONCE = RetryPolicy(attempts_max=3, base=0.0, factor=1.0, cap=0.0)
STRICT = HandlerPolicy(retry=LATER)

Answer = Callable[[int, str, int], Ending]  # which call, stream, n


def sent(call: int, stream: str, n: int) -> Ending:
    return Returned()


@dataclass(frozen=True)
class Runs:
    """A consumer that takes runs, writes down its calls and answers as it is told."""

    answer: Answer = sent
    policy: HandlerPolicy = STRICT
    batch: int = 500
    seconds: float = 0.0
    concurrency: int = 1
    timeout: float = 30.0
    calls: list[list[list[tuple[str, int]]]] = field(default_factory=list)
    queue: str = "out"
    is_family: bool = False
    patterns: tuple[str, ...] = ("a",)
    is_ordered: bool = True
    masking: Masking = DEFAULT
    keys: Keys | None = None
    steps: Mapping[str, int] = field(default_factory=dict)
    is_async: bool = True

    def limits(self, queue: str) -> Limits:
        return Limits(concurrency=self.concurrency, timeout=self.timeout)

    async def call_runs(
        self, queue: str, runs: Sequence[Sequence[Leased]], ran: Callable[[], float]
    ) -> list[list[Ending]]:
        call = len(self.calls)
        named = [
            [(each.message.stream or "", json.loads(each.message.body)["n"]) for each in run] for run in runs
        ]
        self.calls.append(named)
        await asyncio.sleep(self.seconds)
        return [[self.answer(call, *each) for each in run] for run in named]

    def but(self, policy: HandlerPolicy) -> Runs:
        return replace(self, policy=policy)


def publish(app: Any, streams: Sequence[str], count: int, size: int = 0) -> None:
    app.publish_many(
        app.message("a", {"n": n, "x": "x" * size}, stream=stream, subject=f"{stream}{n}")
        for n in range(count)
        for stream in streams
    )


@asynccontextmanager
async def warm(lab: Lab, app: Any) -> AsyncIterator[Any]:
    """A worker that knows how long a message takes: before that it takes no runs."""
    publish(app, ["warm-0"], 1)
    async with lab.working(app) as worker:
        await auntil(lambda: "warm-00" in [row.subject for row in lab.rows("history")])
        yield worker


def different(found: dict[str, str], wanted: dict[str, str]) -> dict[str, tuple[str | None, str | None]]:
    keys = found.keys() | wanted.keys()
    return {key: (found.get(key), wanted.get(key)) for key in keys if found.get(key) != wanted.get(key)}


def serve(app: Any, runs: Runs) -> Runs:
    consumer: RunConsumer = runs
    app.handlers.add(consumer)
    return runs


# --- Every fate at every index ----------------------------------------------------------------------------------------

FATES: dict[str, Ending] = {
    "unknown": Unsent("no confirm", retry_in=3600.0),
    "rejected": Raised(RuntimeError("refused")),
    "too large": Died("it is too large", reason=Reason.PAYLOAD_TOO_LARGE),
}


def expected(fate: str, index: int, policy: HandlerPolicy) -> dict[str, str]:
    """What becomes of each of the four messages of a lane, one of which has another fate than being confirmed."""
    found: dict[str, str] = {}
    goes_on = True
    for n in range(4):
        if not goes_on:
            found[str(n)] = "waits"
        elif n != index:
            found[str(n)] = "sent"
        else:
            found[str(n)] = {"unknown": "unsent", "rejected": "failed", "too large": "dead"}[fate]
            aside = policy.ordering == "available" and fate == "rejected"
            goes_on = aside or (fate == "too large" and policy.on_dead == "continue")
    return found


def state_of(lab: Lab) -> dict[str, str]:
    found = {row.subject: "sent" for row in lab.rows("history")}
    found |= {row.subject: "dead" for row in lab.rows("dead")}
    for row in lab.rows("message"):
        told = {(0, 0): "waits", (1, 1): "failed"}[row.attempts, row.failures]
        if told == "waits" and row.errors:
            told = "unsent"
        assert bool(row.status & Flag.FAILED) == (told == "failed"), "only what failed is alone from now on"
        assert row.refunds == 0
        found[row.subject] = told
    return found


@pytest.mark.covers("C25")
@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize(
    "policy",
    [
        HandlerPolicy(retry=LATER),
        HandlerPolicy(retry=LATER, on_dead="halt"),
        HandlerPolicy(retry=LATER, ordering="available"),
    ],
    ids=["strict", "halt", "available"],
)
async def test_every_fate_at_every_index_settles_exactly(lab: Lab, fate: str, policy: HandlerPolicy) -> None:
    """Twenty batches of five lanes with four messages each; in each another message has that fate."""
    app = lab.app()
    batches = {f"{lane}.{index}": (lane, index) for lane in range(5) for index in range(4)}

    def answer(call: int, stream: str, n: int) -> Ending:
        batch, lane = stream.rsplit("-", 1)
        return FATES[fate] if batches.get(batch) == (int(lane), n) else Returned()

    runs = serve(app, Runs(answer, policy, batch=20))
    wanted = {"warm-00": "sent"}
    for batch, (culprit, index) in batches.items():
        for lane in range(5):
            usual = {str(n): "sent" for n in range(4)}
            fates = expected(fate, index, policy) if lane == culprit else usual
            wanted |= {f"{batch}-{lane}{n}": each for n, each in fates.items()}
    async with warm(lab, app):
        for batch in batches:
            publish(app, [f"{batch}-{lane}" for lane in range(5)], 4)
        await auntil(lambda: state_of(lab) == wanted, lambda: str(different(state_of(lab), wanted)))
    assert any(len(run) == 4 for call in runs.calls for run in call), "whole runs were in a call"
    assert all(sum(len(run) for run in call) <= 20 for call in runs.calls)
    first: dict[str, list[int]] = {}
    for stream, n in (each for call in runs.calls for run in call for each in run):
        seen = first.setdefault(stream, [])
        seen += [] if n in seen else [n]
    assert all(seen == sorted(seen) for seen in first.values())


# --- What is in a call ------------------------------------------------------------------------------------------------


async def test_a_call_has_at_most_so_many_messages_and_bytes(lab: Lab) -> None:
    app = lab.app()
    runs = serve(app, Runs(batch=30))
    async with warm(lab, app):
        publish(app, ["s", "t"], 50, size=1000)
        publish(app, ["big"], 12, size=700_000)
        await settled(lab)
    large = [n for call in runs.calls for run in call for stream, n in run if stream == "big"]
    assert large == list(range(12))
    for call in runs.calls:
        assert sum(len(run) for run in call) <= 30
        assert sum(stream == "big" for run in call for stream, _ in run) <= 5, "4 MiB"
    assert len(runs.calls) < 30, "a stream does not wait for an answer at each message"
    for stream in "st":
        assert [n for call in runs.calls for run in call for s, n in run if s == stream] == list(range(50))


async def test_what_has_failed_is_alone_in_its_call(lab: Lab) -> None:
    app = lab.app()

    def answer(call: int, stream: str, n: int) -> Ending:
        tries = sum((stream, n) in run for each in runs.calls for run in each)
        return Raised(RuntimeError("refused")) if (stream, n) == ("s", 2) and tries < 3 else Returned()

    runs = serve(app, Runs(answer, HandlerPolicy(retry=AT_ONCE), batch=20, seconds=0.02))
    async with warm(lab, app):
        publish(app, ["s", *(f"t{n}" for n in range(60))], 6)  # others wait all the time
        await settled(lab)
    held = [call for call in runs.calls if any(("s", 2) in run for run in call)]
    assert len(held) == 3
    assert held[1:] == [[[("s", 2)]]] * 2
    history = {row.subject: (row.attempts, row.failures) for row in lab.rows("history")}
    assert history["s2"] == (3, 2)
    assert set(history.values()) == {(1, 0), (3, 2)}, "its neighbours and what is behind it"


async def test_a_call_that_raises_blames_nobody_but_finds_the_culprit(lab: Lab) -> None:
    app = lab.app()

    def answer(call: int, stream: str, n: int) -> Ending:
        if any(("s", 1) in run for run in runs.calls[call]):
            raise RuntimeError("all of it")
        return Returned()

    runs = serve(app, Runs(answer, HandlerPolicy(retry=AT_ONCE)))
    async with warm(lab, app):
        publish(app, ["s", "t"], 4)
        await settled(lab)
    assert [(row.subject, row.attempts) for row in lab.rows("dead")] == [("s1", 3)]
    assert {(row.attempts, row.failures) for row in lab.rows("history")} == {(1, 0)}


async def test_a_paused_queue_keeps_what_was_answered_of_a_run(lab: Lab) -> None:
    """A pause closes lanes; what is in a call stays in it, and is not sent again for nothing."""
    app = lab.app()
    runs = serve(app, Runs(seconds=1.0))
    async with warm(lab, app):
        publish(app, ["s"], 3)
        await auntil(lambda: len(runs.calls) > 1)
        in_call = [n for _, n in runs.calls[1][0]]
        await asyncio.to_thread(lab.operations.queues.pause, "out")
        await auntil(lambda: len(lab.rows("history")) == 1 + len(in_call))
        await asyncio.to_thread(lab.operations.queues.resume, "out")
        await settled(lab)
    assert [n for call in runs.calls[1:] for run in call for _, n in run] == [0, 1, 2]


async def test_a_lost_lease_takes_its_run_with_it(lab: Lab) -> None:
    app = lab.app()
    runs = serve(app, Runs(seconds=0.5))
    async with warm(lab, app) as worker:
        publish(app, ["s", "t"], 3)
        await auntil(lambda: len(runs.calls) > 1)
        lane = next(each for each in worker.pacing.lanes.values() if each.running is not None)
        stream = lane.running.message.stream
        worker.pacing.lose(lane)
        await auntil(lambda: lane.running is None)
        assert worker.pacing.held == sum(
            len(each.waiting) + len(each.along) + (each.running is not None)
            for each in worker.pacing.lanes.values()
        )
    assert stream not in {row.stream for row in lab.rows("history")}
