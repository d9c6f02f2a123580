"""Orchestrations beside DBOS and absurd: `python -m bench.orchestrations [--quick] [--rounds 5] [--only TEXT]`.

Everybody has one turn in each round, in a process of its own with a new database: PostgreSQL with fsync and
synchronous_commit on, SQLite with WAL and FULL. Ratios are taken within a round, and their median counts. Workflows
are stored first and then worked off by one worker process; the time is from the first line of code of the first to
the last line of the last. DBOS is taken at its best of 1, 8 and 32 threads that call its workflows directly (and store
them within that time) and its queue. Every bar is printed, reached or missed, with the load of the machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from . import flow_lines, machine, peers
from .course import Contestant, Failed
from .flow_lines import Facts, Sizes
from .servers import Servers

Measure = Callable[[], Facts]


@dataclass(frozen=True)
class Bar:
    """A fact of ours, divided by the best of what others showed in the same round if there are any."""

    title: str
    ours: str
    theirs: tuple[str, ...] = ()
    at_least: float | None = None
    at_most: float | None = None
    aim: float | None = None
    unit: str = "x"

    def text(self) -> str:
        bound = f"at least {self.at_least:g}" if self.at_least is not None else f"at most {self.at_most:g}"
        return f"{bound} {self.unit}" + ("" if self.aim is None else f", aim {self.aim:g}")

    def is_reached(self, value: float) -> bool:
        return (self.at_least is None or value >= self.at_least) and (
            self.at_most is None or value <= self.at_most
        )


DBOS = ("dbos 1", "dbos 8", "dbos 32", "dbos queue")


def bars(database: str) -> Iterator[Bar]:
    def theirs(line: str) -> tuple[str, ...]:
        return tuple(f"{database}: {line}, {each}" for each in DBOS)

    def ours(line: str) -> str:
        return f"{database}: {line}"

    yield Bar("10 activities by queue / DBOS", ours("10 steps"), theirs("10 steps"), at_least=10, aim=20)
    yield Bar("1 activity by queue / DBOS", ours("1 step"), theirs("1 step"), at_least=15)
    yield Bar("10 inline, recorded each / DBOS", ours("10 inline"), theirs("10 steps"), at_least=30)
    yield Bar(
        "10 inline, recorded with the turn / DBOS", ours("10 with the turn"), theirs("10 steps"), at_least=80
    )
    if database == "postgres":
        absurd = tuple(ours(f"10 steps, absurd {each}") for each in (1, 8))
        yield Bar("10 activities by queue / absurd", ours("10 steps"), absurd, at_least=5)
        yield Bar("2 processes / 1", ours("10 steps, 2 processes"), (ours("10 steps"),), at_least=1.3)
    yield Bar("a step of a lone chain, p50 / DBOS", ours("chain"), (ours("chain, dbos 1"),), at_most=1)
    yield Bar("the same inline", ours("chain, inline"), (ours("chain, dbos 1"),), at_most=0.5)
    yield Bar("fan-out, time of 10,000 / 1,000", ours("fan 10000"), (ours("fan 1000"),), at_most=12)
    yield Bar("1 % poison, healthy / none", ours("poison"), (ours("10 steps"),), at_least=0.9)
    yield Bar("kill -9: 0.9 of the rate is back", ours("killed"), at_most=30, unit="s")
    yield Bar("the same inline", ours("killed, inline"), at_most=30, unit="s")
    yield Bar("parked: idle CPU", ours("parked, cpu"), at_most=2, unit="% of a core")
    yield Bar("parked: memory", ours("parked, megabytes"), at_most=150, unit="MB")
    yield Bar("timers due together", ours("parked, timers"), at_least=5000, unit="/s")
    yield Bar(
        "p95 latency of another queue meanwhile / before",
        ours("parked, timers, p95"),
        (ours("parked, quiet, p95"),),
        at_most=2,
    )


TURN_BARS = [
    Bar("a turn at 5,000 events in memory / a fresh one", "turn, cached", ("turn, fresh",), at_most=2),
    Bar("a turn at 5,000 events from the journal", "turn, cold", at_most=50, unit="ms"),
]


@dataclass
class Bench:
    servers: Servers
    sizes: Sizes
    only: str
    shown: dict[str, list[float]] = field(default_factory=dict)  # one figure for each round
    lost: dict[str, str] = field(default_factory=dict)

    def measure(self, name: str, how: Measure) -> None:
        if self.only not in name:
            return
        begun = time.monotonic()
        try:
            facts = how()
        except Failed as why:
            try:
                facts = how()  # once more: a machine shared with others has bad moments
            except Failed:
                self.lost[name] = str(why)
                say(f"  {name:44} not measured: {why}")
                return
        for key, value in facts.items():
            own = f"{name}, {key}" if key else name
            if own.endswith(" us"):
                continue
            self.shown.setdefault(own, []).append(value)
        told = "  ".join(f"{key or 'value'} {value:,.2f}" for key, value in facts.items())
        say(f"  {name:44} {told}   ({time.monotonic() - begun:.0f} s)")


def main() -> int:
    asked = arguments()
    sizes = flow_lines.QUICK if asked.quick else flow_lines.WHOLE
    rounds = asked.rounds or (1 if asked.quick else 3)
    load = os.getloadavg()
    about = machine.describe()
    say(f"{about['cpus']} CPUs ({about['cpu']}), {about['memory']}, load {load[0]:.1f} at the start")
    missing = {each: peers.install(each) for each in ("dbos", "absurd")}
    for each, why in missing.items():
        say(f"{each}: {why or ', '.join(v for v in peers.versions(each) if v.startswith((each, 'psycopg')))}")
    servers = Servers("new")
    bench = Bench(servers, sizes, asked.only)
    try:
        for round in range(rounds):
            for database in asked.databases.split(","):
                say(f"round {round + 1} of {rounds}, {database}, load {os.getloadavg()[0]:.1f}")
                for name, how in measures(servers, database, sizes, missing):
                    bench.measure(name, how)
        bench.measure("turn", flow_lines.long_turns)
    finally:
        servers.close()
    return report(bench, [*(bar for each in asked.databases.split(",") for bar in bars(each)), *TURN_BARS])


def measures(
    servers: Servers, database: str, sizes: Sizes, missing: dict[str, str]
) -> Iterator[tuple[str, Measure]]:
    """What one round measures on a database, by name."""
    lines = flow_lines.Lines(servers, Contestant("holdfast", "flows_holdfast", database), sizes)
    dbos = Contestant("dbos", "flows_dbos", database, peers.python_of("dbos"), missing=missing["dbos"])
    absurd = Contestant(
        "absurd", "flows_absurd", database, peers.python_of("absurd"), missing=missing["absurd"]
    )
    for steps, title in ((10, "10 steps"), (1, "1 step")):
        count = sizes.flows if steps == 10 else sizes.short_flows
        few = sizes.peer_flows if steps == 10 else sizes.short_peer_flows
        yield f"{database}: {title}", lambda n=count, s=steps: lines.rate(n, s)
        for threads in (1, 8, 32, 0):
            who = dbos.but(BENCH_THREADS=str(threads))
            name = f"{database}: {title}, dbos {threads or 'queue'}"
            less = few // 2 if threads == 1 else few
            yield name, lambda n=less, s=steps, w=who: lines.rate(n, s, of=w)
    for kind, title in (("inline", "10 inline"), ("turn", "10 with the turn")):
        yield f"{database}: {title}", lambda k=kind: lines.rate(sizes.short_flows, 10, kind=k)
    if database == "postgres":
        for threads in (1, 8):
            who = absurd.but(BENCH_THREADS=str(threads))
            yield (
                f"{database}: 10 steps, absurd {threads}",
                lambda w=who: lines.rate(sizes.peer_flows, 10, of=w),
            )
        yield f"{database}: 10 steps, 2 processes", lambda: lines.rate(sizes.flows, 10, processes=2)
    yield f"{database}: poison", lambda: lines.rate(sizes.flows, 10, kind="poison")
    for _ in range(sizes.pairs):
        yield f"{database}: chain", lambda: lines.chain(sizes.chain)
        yield f"{database}: chain, inline", lambda: lines.chain(sizes.chain, kind="chain-inline")
        yield f"{database}: chain, dbos 1", lambda: lines.chain(sizes.chain, of=dbos.but(BENCH_THREADS="1"))
    for count in (1_000, 10_000):
        yield f"{database}: fan {count}", lambda n=count: lines.fan(n)
    yield f"{database}: killed", lambda: lines.killed(sizes.live)
    yield f"{database}: killed, inline", lambda: lines.killed(sizes.live, "killed-inline")
    yield f"{database}: parked", lambda: lines.parked(sizes.parked)


def report(bench: Bench, wanted: list[Bar]) -> int:
    say(f"\nload {os.getloadavg()[0]:.1f} at the end")
    say(f"{'bar':58} {'wanted':28} {'measured':>26}")
    missed = 0
    for bar in wanted:
        place = bar.ours.partition(":")[0] if ":" in bar.ours else "both"
        said, verdict = judged(bench, bar)
        if verdict == "not asked for":
            continue
        missed += verdict != "reached"
        say(f"{place + ': ' + bar.title:58} {bar.text():28} {said:>26}  {verdict}")
    for name, why in bench.lost.items():
        say(f"not measured: {name}: {why}")
    return 1 if missed else 0


def judged(bench: Bench, bar: Bar) -> tuple[str, str]:
    """The median with its range, and whether the bar is reached."""
    shown = bench.shown
    if bar.ours not in shown or (bar.theirs and not any(each in shown for each in bar.theirs)):
        return "", "not measured" if not bench.only else "not asked for"
    if bar.theirs:
        # At its best: the highest rate. Where less is better there is one to compare with.
        others = [shown[each] for each in bar.theirs if each in shown]
        ratios = [mine / max(best) for mine, *best in zip(shown[bar.ours], *others, strict=False)]
    else:
        ratios = shown[bar.ours]
    middle = statistics.median(ratios)
    said = f"{middle:.2f} ({min(ratios):.2f} to {max(ratios):.2f})" if len(ratios) > 1 else f"{middle:.2f}"
    return said, "reached" if bar.is_reached(middle) else "MISSED"


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.orchestrations", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="one round with fewer workflows: about 25 minutes"
    )
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--databases", default="postgres,sqlite", help="with commas")
    parser.add_argument("--only", default="", help="the lines whose name contains this")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
