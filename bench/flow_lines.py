"""How the lines of `bench.orchestrations` are measured. Each answers its facts by name; "" is the line's own figure."""

from __future__ import annotations

import sqlite3
import statistics
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import psycopg

from holdfast.orchestrations.declared import activity, orchestration
from holdfast.orchestrations.journal import Answered, Arrival, Started, decode
from holdfast.orchestrations.outcome import Turn
from holdfast.orchestrations.turn import Instance

from .adapters.contest import BODY_BYTES
from .course import Contestant, Failed, Stand, cpu_of, stand
from .machine import family, peak_megabytes
from .servers import Servers

Facts = dict[str, float]
ANSWER = "x" * (BODY_BYTES - 2)
EVENTS = 5_000  # in the journal of a long instance
BEATS, BEAT_SECONDS = 1_000, 0.02  # messages of another queue while timers fire


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    flows: int = 1_000
    short_flows: int = 4_000
    peer_flows: int = 80
    short_peer_flows: int = 400
    pairs: int = 5
    chain: int = 200
    live: int = 10_000
    parked: int = 100_000


WHOLE = Sizes(flows=2_000, short_flows=10_000, peer_flows=160, short_peer_flows=800)
QUICK = Sizes()


@dataclass(frozen=True)
class Lines:
    servers: Servers
    ours: Contestant
    sizes: Sizes

    def rate(
        self, n: int, steps: int, *, of: Contestant | None = None, kind: str = "queue", processes: int = 1
    ) -> Facts:
        """Workflows a second, and the CPU of each. Of poisoned ones the healthy are counted."""
        who = (of or self.ours).but(BENCH_KIND=kind, BENCH_STEPS=str(steps))
        with stand(self.servers, who, n) as s:
            s.publish(n)
            s.checkpoint()
            workers = s.work(processes)
            cpu, server = cpu_of(workers), self.servers.cpu(who.database)
            s.open_gate()
            healthy = n - n // 100 if kind == "poison" else n
            s.wait_for(healthy, workers)
            seconds = max(s.tally.started) - min(at for at in s.tally.called if at)
            cpu, server = cpu_of(workers) - cpu, self.servers.cpu(who.database) - server
            if of is None:
                self.wait_until_ended(s, n)
            s.stop(workers)
            return {"": healthy / seconds, "client us": cpu / n * 1e6, "server us": server / n * 1e6}

    def wait_until_ended(self, s: Stand, n: int) -> None:
        """All instances have ended, the last exchange included, and each as it should."""
        end = time.monotonic() + 20
        while (found := self.states(s)) and "running" in found:
            if time.monotonic() > end:
                raise Failed(f"instances are {found} after all of their code has run")
            time.sleep(0.02)
        poisoned = n // 100 if s.contestant.environment["BENCH_KIND"] == "poison" else 0
        if found != {"completed": n - poisoned} | ({"failed": poisoned} if poisoned else {}):
            raise Failed(f"instances are {found}")

    def chain(self, steps: int, *, of: Contestant | None = None, kind: str = "chain") -> Facts:
        """The middle time from one step to the next of a workflow that is alone, in milliseconds."""
        who = (of or self.ours).but(BENCH_KIND=kind, BENCH_STEPS=str(steps))
        with stand(self.servers, who, steps) as s:
            workers = s.work()
            cpu = cpu_of(workers)
            s.open_gate()
            s.publish(1)
            s.wait_for(steps, workers)
            cpu = cpu_of(workers) - cpu
            s.stop(workers)
            moments = list(s.tally.started)
            waits = [(b - a) * 1000 for a, b in pairwise(moments[10:])]
            return {"": statistics.median(waits), "client us": cpu / steps * 1e6}

    def fan(self, count: int) -> Facts:
        """Seconds from the first line of a workflow to its last, with so many activities between, all at once."""
        with stand(self.servers, self.ours.but(BENCH_KIND="fan", BENCH_STEPS=str(count)), 1) as s:
            workers = s.work()
            s.open_gate()
            s.publish(1)
            s.wait_for(1, workers)
            self.wait_until_ended(s, 1)
            s.stop(workers)
            return {"": s.tally.started[0] - s.tally.called[0]}

    def killed(self, live: int, kind: str = "killed", steps: int = 30, seconds: float = 4.0) -> Facts:
        """A worker and all its processes are killed; another one begins at once. Seconds until its pace is back."""
        who = self.ours.but(BENCH_KIND=kind, BENCH_STEPS=str(steps))
        with stand(self.servers, who, live * steps) as s:
            s.publish(live)
            workers = s.work()
            s.open_gate()
            s.wait_for(live * 2, workers)  # every instance has begun, and is at its second step or so
            before = self.pace(s, seconds)
            s.kill(workers[0])
            at = time.monotonic()
            workers = s.work()
            s.open_gate()
            while self.pace(s, 1.0) < 0.9 * before:
                if time.monotonic() - at > 60 or s.handled() == s.n:
                    raise Failed(f"the rate of {before:,.0f} steps/s did not come back")
            back = time.monotonic() - at
            s.stop(workers)
            return {"": back, "steps/s before": before}

    def pace(self, s: Stand, seconds: float) -> float:
        """Steps a second during the next seconds."""
        begun, count = time.monotonic(), s.handled()
        time.sleep(seconds)
        return (s.handled() - count) / (time.monotonic() - begun)

    def parked(self, n: int) -> Facts:
        """Instances that sleep: CPU and memory meanwhile. Then all their timers are due at once."""
        with stand(self.servers, self.ours.but(BENCH_KIND="parked"), n + 2 * BEATS) as s:
            stored = s.publish(n)["seconds"]
            workers = s.work()
            begun = time.monotonic()
            s.open_gate()
            while (count := self.timers(s)) < n:
                if time.monotonic() - begun > 300:
                    raise Failed(f"only {count} of {n} instances are parked after 300 s")
                time.sleep(0.5)
            parking = time.monotonic() - begun
            time.sleep(10.5)
            cpu = cpu_of(workers)
            time.sleep(10.0)
            cpu = (cpu_of(workers) - cpu) / 10.0 * 100
            megabytes = max(peak_megabytes(each) for each in family(workers[0].pid))
            facts = {"cpu": cpu, "megabytes": megabytes, "a second": n / parking}
            s.publish(BEATS, first=n, pause=BEAT_SECONDS)
            s.wait_for(BEATS, workers, n, BEATS)
            beating = s.start("publish", **s.publishing(BEATS, n + BEATS, pause=BEAT_SECONDS))
            s.until(lambda: s.tally.published[n + BEATS] > 0, 20, workers, "publish")
            self.make_due(s)
            s.wait_for(n, workers, 0, n)
            ends = sorted(s.tally.started[:n])
            beating.communicate(timeout=60)
            s.wait_for(2 * BEATS, workers, n, 2 * BEATS)
            s.stop(workers)
            while_firing = range(n + BEATS, n + 2 * BEATS)
            busy = [each for each in while_firing if ends[0] <= s.tally.published[each] <= ends[-1]]
            return {
                **facts,
                "started a second": n / stored,
                "timers": (n - 1) / (ends[-1] - ends[0]),
                "timers, megabytes": max(peak_megabytes(each) for each in family(workers[0].pid))
                or megabytes,
                "timers, p95": self.p95(s, busy),
                "quiet, p95": self.p95(s, range(n, n + BEATS)),
            }

    def p95(self, s: Stand, which: Any) -> float:
        """Of the times from commit to handler, in milliseconds."""
        waits = sorted((s.tally.started[each] - s.tally.published[each]) * 1000 for each in which)
        if len(waits) < 20:
            raise Failed(f"only {len(waits)} messages of the other queue fell into the time")
        return waits[int(len(waits) * 0.95)]

    # -- what a database says

    def sql(self, s: Stand, text: str) -> list[Any]:
        """`{}` is the prefix of tables."""
        if s.contestant.database == "sqlite":
            connection = sqlite3.connect(s.url, timeout=60, isolation_level=None)
            try:
                return connection.execute(text.replace("{}", "holdfast_")).fetchall()
            finally:
                connection.close()
        with psycopg.connect(s.url, autocommit=True) as connection:
            cursor = connection.execute(text.replace("{}", "holdfast.").encode())
            return cursor.fetchall() if cursor.description else []

    def states(self, s: Stand) -> dict[str, int]:
        return dict(self.sql(s, "select state, count(*) from {}instance group by state"))

    def timers(self, s: Stand) -> int:
        ((count,),) = self.sql(s, f"select count(*) from {{}}{self.table(s)} where queue = 'holdfast/timer'")
        return int(count)

    def table(self, s: Stand) -> str:
        """Where timers wait: in a table of their own since decision 0034."""
        has = "select 1 from sqlite_master where name = 'holdfast_scheduled'"
        if s.contestant.database != "sqlite":
            has = "select 1 where to_regclass('holdfast.scheduled') is not null"
        return "scheduled" if self.sql(s, has) else "message"

    def make_due(self, s: Stand) -> None:
        now = str(time.time_ns() // 1000) if s.contestant.database == "sqlite" else "clock_timestamp()"
        when = f"set claimable_at = {now}, due_at = {now} where queue = 'holdfast/timer'"
        self.sql(s, f"update {{}}{self.table(s)} {when}")


# --- Turns by themselves ----------------------------------------------------------------------------------------------


@activity(name="step")
def step(n: int) -> str:
    raise AssertionError("is answered by the benchmark")


@orchestration(name="long")
async def long(n: int) -> int:
    for number in range(n):
        await step(number)
    return n


def long_turns() -> Facts:
    """CPU of a turn of an instance with a long journal: in memory, from the journal, and of one that has just begun."""
    now = datetime.now(UTC)
    rows: list[tuple[int, str]] = []

    def answered(number: int) -> list[Arrival]:
        return [Answered(f"m{number}", number, 0, number, f'"{ANSWER}"')]

    def turned(instance: Instance, arrivals: list[Arrival]) -> Turn:
        found = instance.turn(arrivals, now)
        assert isinstance(found, Turn)
        return found

    first: list[Arrival] = [Started("m0", 0, str(2 * EVENTS), "long/0")]
    instance = Instance(long.program, "long")
    fresh, cached = [], []
    for number in range(EVENTS + 200):
        begun = time.thread_time()
        turn = turned(instance, answered(number) if number else first)
        taken = time.thread_time() - begun
        if number < EVENTS:
            rows.append((turn.row.turn, turn.text))
        if 20 <= number < 220:
            fresh.append(taken)
        elif number >= EVENTS:
            cached.append(taken)
    instance.close()
    cold = []
    for _ in range(7):
        begun = time.thread_time()
        instance = Instance(long.program, "long")
        instance.load([decode("long", 0, turn, 0, text) for turn, text in rows], sum(len(t) for _, t in rows))
        instance.catch_up()
        turned(instance, answered(EVENTS))
        cold.append((time.thread_time() - begun) * 1000)
        instance.close()
    return {
        "cached": statistics.median(cached) * 1e6,
        "fresh": statistics.median(fresh) * 1e6,
        "cold": statistics.median(cold),
    }
