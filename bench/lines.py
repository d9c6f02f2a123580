"""What is measured, by whom, and which bars it must reach: the lines of the issue "Speed".

A group is a function that runs some contestants one after another and tells what each showed, as (line, contestant,
facts). `value` is the line's figure; the other facts stand beside it. Groups are run round by round, so that noise
hits all contestants alike, and ratios are taken within a round. A machine shared with others changes its pace within
seconds, so drains, backlogs and publishing many take several short turns in a round, and the middle one of each counts.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg

from .course import (
    Contestant,
    Drained,
    Failed,
    Stand,
    at_backlog,
    decay,
    drain,
    idle,
    latency,
    run_down,
    stand,
)
from .servers import Servers

Facts = dict[str, Any]
Told = Iterator[tuple[str, str, Facts | Failed]]
Contest = tuple[str, str, Callable[[], Facts]]  # line, contestant, how to measure it


TURNS = 5  # of a contest, in a round
BACKLOG_TURNS = 7  # which are short: a second of work each


@dataclass(frozen=True)
class Line:
    """A figure that is compared."""

    key: str
    title: str
    unit: str = "messages/s"
    more_is_better: bool = True


@dataclass(frozen=True)
class Bar:
    """What must hold: a fact of ours in one line, divided by one of somebody's, here or in another line."""

    line: str
    against: str = ""  # "pgqueuer", "limit", "drain:holdfast" (line:contestant), or nothing: the fact itself
    at_least: float | None = None
    at_most: float | None = None
    aim: float | None = None
    fact: str = "value"
    other_fact: str = ""

    def reached(self, value: float) -> bool:
        return (self.at_least is None or value >= self.at_least) and (
            self.at_most is None or value <= self.at_most
        )


LINES = [
    Line("publish-one", "publish one by one in your transaction, unordered", "transactions/s"),
    Line("publish-one-stream", "publish one by one in your transaction, with a stream", "transactions/s"),
    Line("publish-one-five", "publish one by one in your transaction, 5 subscribers", "transactions/s"),
    Line("publish-commit", "publish one by one, each its own commit"),
    Line("publish-many", "publish many, 1,000 at a time"),
    Line("publish-many-streams", "publish many, 1,000 streams"),
    Line("drain", "drain, 1 worker process"),
    Line("drain-2", "drain, 2 worker processes"),
    Line("drain-streams", "drain, 1,000 ordered streams"),
    Line("drain-hot", "drain, 1 hot stream"),
    Line("drain-transaction", "drain, handlers with ctx.transaction()"),
    Line("drain-sync", "drain, `def` handlers"),
    Line("drain-poison", "drain, 1 % fail for good at the first start"),
    Line("latency", "latency at 50/s, commit to handler start", "ms", False),
    Line("idle", "CPU of an idle worker", "% of a core", False),
    Line("empty-exchange", "an empty exchange with 1 queue", "ms", False),
    Line("empty-exchange-200", "an empty exchange with 200 queues", "ms", False),
    Line("backlog-1k", "drain at a backlog of 1,000"),
    Line("backlog-100k", "drain at a backlog of 100,000"),
    Line("backlog-1m", "drain at a backlog of 1,000,000"),
    Line("claim-1k", "claim 50 at a backlog of 1,000", "ms", False),
    Line("claim-100k", "claim 50 at a backlog of 100,000", "ms", False),
    Line("claim-1m", "claim 50 at a backlog of 1,000,000", "ms", False),
    Line("held", "held snapshot, 200,000 messages, last waves / first waves", "ratio"),
    Line("held-streams", "held snapshot, 1,000 streams, last / first", "ratio"),
    Line("held-hot", "held snapshot, 1 hot stream, last / first", "ratio"),
    Line("killers", "each killer among 10,000, 2 processes: what it costs", "s", False),
    Line("sqlite-publish-one", "SQLite: publish one by one in your transaction, unordered", "transactions/s"),
    Line(
        "sqlite-publish-one-stream",
        "SQLite: publish one by one in your transaction, with a stream",
        "transactions/s",
    ),
    Line(
        "sqlite-publish-one-five",
        "SQLite: publish one by one in your transaction, 5 subscribers",
        "transactions/s",
    ),
    Line("sqlite-publish-commit", "SQLite: publish one by one, each its own commit"),
    Line("sqlite-publish-many", "SQLite: publish many, 1,000 at a time"),
    Line("sqlite-drain", "SQLite: drain, 1 worker process"),
    Line("sqlite-drain-2", "SQLite: drain, 2 worker processes"),
    Line("sqlite-drain-streams", "SQLite: drain, 1,000 ordered streams"),
    Line("sqlite-drain-hot", "SQLite: drain, 1 hot stream"),
    Line("sqlite-drain-transaction", "SQLite: drain, handlers with ctx.transaction()"),
    Line("sqlite-drain-sync", "SQLite: drain, `def` handlers"),
    Line("sqlite-drain-poison", "SQLite: drain, 1 % fail for good at the first start"),
    Line("sqlite-latency", "SQLite: latency at 50/s, commit to handler start", "ms", False),
    Line("sqlite-idle", "SQLite: CPU of an idle worker", "% of a core", False),
    Line("sqlite-empty-exchange", "SQLite: an empty exchange with 1 queue", "ms", False),
    Line("sqlite-empty-exchange-200", "SQLite: an empty exchange with 200 queues", "ms", False),
    Line("sqlite-backlog-1m", "SQLite: drain at a backlog of 1,000,000"),
]

BARS = [
    Bar("drain", "pgqueuer", at_least=2.5, aim=4.0),
    Bar("drain", "limit", at_least=0.5, aim=0.75),
    Bar("drain-streams", "drain:holdfast", at_least=0.8),
    Bar("drain-hot", "drain:pgqueuer", at_least=1.0, aim=3.0),
    Bar("sqlite-drain", "huey", at_least=8.0, aim=12.0),
    Bar("publish-one", "limit", at_least=0.85, aim=1.0),
    Bar("publish-one-stream", "limit", at_least=0.75, aim=0.84),
    Bar("publish-many", "pgqueuer", at_least=1.5),
    Bar("latency", "pgqueuer", at_most=1.0),
    Bar("latency", "pgqueuer", at_most=1.0, fact="p95"),
    Bar("sqlite-latency", "limit", at_most=2.0),
    Bar("idle", at_most=2.0),
    Bar("sqlite-idle", at_most=2.0),
    Bar("empty-exchange-200", "empty-exchange:holdfast", at_most=2.0),
    Bar("sqlite-empty-exchange-200", "sqlite-empty-exchange:holdfast", at_most=2.0),
    Bar("backlog-1m", "backlog-1k:holdfast", at_least=0.85),
    Bar("claim-1m", "claim-1k:holdfast", at_most=2.0),
    Bar("held", at_least=0.8),
    Bar("held-streams", at_least=0.6),
    Bar("held-hot", at_least=0.5),
    Bar("drain-poison", "drain:holdfast", at_least=0.9, fact="healthy"),
    Bar("killers", at_most=1.0, fact="of_allowed"),
    Bar("backlog-1m", at_most=150.0, fact="megabytes"),
    Bar("sqlite-backlog-1m", at_most=150.0, fact="megabytes"),
]


@dataclass
class Run:
    """What a group works with."""

    servers: Servers
    peers: dict[str, Contestant]
    quick: bool = False
    n: int = 50_000
    scale: float = 1.0
    round: int = 0
    ours: Contestant = field(default_factory=lambda: Contestant("holdfast", "holdfast", "postgres"))
    ours_sqlite: Contestant = field(default_factory=lambda: Contestant("holdfast", "holdfast", "sqlite"))
    limit: Contestant = field(default_factory=lambda: Contestant("limit", "limit", "postgres"))
    limit_sqlite: Contestant = field(default_factory=lambda: Contestant("limit", "limit_sqlite", "sqlite"))

    def size(self, contestant: Contestant, n: int | None = None) -> int:
        return max(200, int((n or self.n) * contestant.share * self.scale))

    @property
    def turn_size(self) -> int:
        """How many messages for one of several turns: as many for all."""
        return int((self.n if self.quick else 2 * self.n // 5) * self.scale)

    def only(self, *names: str) -> list[Contestant]:
        return [self.peers[name] for name in names if name in self.peers]


def attempt(line: str, contestant: str, measure: Callable[[], Facts]) -> tuple[str, str, Facts | Failed]:
    try:
        return line, contestant, measure()
    except Failed as failure:
        return line, contestant, failure


def in_turns(run: Run, contests: list[Contest], turns: int = TURNS) -> Told:
    """All contests, several times over; of each the middle one counts."""
    shown: dict[tuple[str, str], list[Facts | Failed]] = {}
    for _ in range(1 if run.quick else turns):
        for line, contestant, measure in contests:
            _, _, told = attempt(line, contestant, measure)
            shown.setdefault((line, contestant), []).append(told)
    for (line, contestant), each in shown.items():
        yield line, contestant, middle(each)


def middle(shown: list[Facts | Failed]) -> Facts | Failed:
    """The one in the middle, or the first that failed.

    >>> middle([{"value": 3}, {"value": 9}, {"value": 1}])
    {'value': 3}
    """
    for each in shown:
        if isinstance(each, Failed):
            return each
    return sorted(shown, key=lambda each: each["value"])[len(shown) // 2]  # type: ignore[index]


def facts(drained: Drained) -> Facts:
    return {"value": drained.rate, **drained.facts()}


# --- PostgreSQL ---------------------------------------------------------------------------------------------


def publish_in_transaction(run: Run, ours: Contestant, prefix: str = "") -> Told:
    with stand(run.servers, as_adapter(ours, "transaction"), 10) as s:
        shown = s.ask("publish", blocks=31 if run.quick else 81, block=20)
    for line, mine, bare in (
        ("", "ours", "bare"),
        ("-stream", "ours_stream", "bare_stream"),
        ("-five", "ours_five", "bare"),
    ):
        yield f"{prefix}publish-one{line}", "holdfast", {"value": shown[mine]}
        yield f"{prefix}publish-one{line}", "limit", {"value": shown[bare]}


def publish_commits(run: Run) -> Told:
    slow = run.only("procrastinate", "dbos", "celery", "dramatiq")
    yield from publish_commit(run, [run.ours, *run.only("pgqueuer"), run.limit, *slow], "publish-commit")


def publish_commit(run: Run, contestants: list[Contestant], line: str) -> Told:
    for each in contestants:
        n = 300 if run.quick or each.share < 0.1 else 1500
        yield attempt(line, each.name, lambda each=each, n=n: published(run, each, n, chunk=1))


def published(run: Run, contestant: Contestant, n: int, *, chunk: int = 1000, streams: int = 0) -> Facts:
    """Publish n, and check by draining that they are all there."""
    with stand(run.servers, contestant, n) as s:
        s.checkpoint()
        rate = n / s.publish(n, chunk=chunk, streams=streams)["seconds"]
        run_down(s, n)
        return {"value": rate}


def publish_many(run: Run) -> Told:
    compared = [run.ours, *run.only("pgqueuer"), run.limit]
    yield from in_turns(
        run,
        [
            ("publish-many", each.name, lambda each=each: published(run, each, run.turn_size))
            for each in compared
        ],
    )
    for each in run.only("procrastinate"):
        yield attempt("publish-many", each.name, lambda each=each: published(run, each, run.size(each)))
    if not run.quick:
        yield attempt(
            "publish-many-streams",
            "holdfast",
            lambda: published(run, run.ours, run.size(run.ours), streams=1000),
        )


def drained(run: Run, contestant: Contestant, streams: int = 0) -> Callable[[], Facts]:
    return lambda: facts(drain(run.servers, contestant, run.turn_size, streams=streams))


def drains_in_turns(run: Run, compared: list[Contestant], prefix: str = "") -> Told:
    """The first of those compared is ours."""
    ours = compared[0]
    contests = [
        *((f"{prefix}drain", each.name, drained(run, each)) for each in compared),
        (f"{prefix}drain-streams", "holdfast", drained(run, ours, 1000)),
        (f"{prefix}drain-hot", "holdfast", drained(run, ours, 1)),
    ]
    if not run.quick:
        poison = drained(run, ours.but(BENCH_KIND="poison"))
        contests.append((f"{prefix}drain-poison", "holdfast", lambda: poisoned(poison())))
    yield from in_turns(run, contests)


def drains(run: Run) -> Told:
    """The first lines: unordered, beside everybody, and ordered; and with what fails for good."""
    yield from drains_in_turns(run, [run.ours, *run.only("pgqueuer"), run.limit])
    for each in [] if run.quick else run.only("procrastinate", "dbos", "celery", "dramatiq"):
        yield attempt("drain", each.name, lambda each=each: facts(drain(run.servers, each, run.size(each))))


def drains_by_two(run: Run) -> Told:
    for each in [
        run.ours,
        *run.only("pgqueuer"),
        run.limit,
        *run.only("celery", "dramatiq", "procrastinate", "dbos"),
    ]:
        yield attempt(
            "drain-2",
            each.name,
            lambda each=each: facts(drain(run.servers, each, run.size(each), processes=2)),
        )


def handlers(run: Run, ours: Contestant, prefix: str = "") -> Told:
    for kind, share in (("sync", 0.3), ("transaction", 0.1)):
        n = run.size(ours, int(run.n * share))
        yield attempt(
            f"{prefix}drain-{kind}",
            "holdfast",
            lambda kind=kind, n=n: facts(with_business(run, ours.but(BENCH_KIND=kind), n)),
        )


def poisoned(shown: Facts) -> Facts:
    """One in a hundred fails for good at its first start; the others are the healthy ones."""
    return {**shown, "healthy": shown["value"] * 0.99}


def with_business(run: Run, contestant: Contestant, n: int) -> Drained:
    """A drain of a database that has a table of the user's too."""
    with stand(run.servers, contestant, n) as s:
        add_business(s)
        s.publish(n)
        s.checkpoint()
        return run_down(s, n)


def add_business(s: Stand) -> None:
    """The table that handlers with ctx.transaction() write to."""
    with closing(
        psycopg.connect(s.url) if s.contestant.database == "postgres" else sqlite3.connect(s.url)
    ) as connection:
        connection.execute("create table business (n integer)")
        connection.commit()


def latencies(run: Run) -> Told:
    # Of a few hundred, the twentieth part is a dozen slow fsyncs: those with a bar are asked longer.
    n = 100 if run.quick else 1000
    for each in [run.ours, *run.only("pgqueuer"), run.limit]:
        yield attempt("latency", each.name, lambda each=each: waited(latency(run.servers, each, n)))
    for each in [] if run.quick else run.only("procrastinate", "dbos", "celery", "dramatiq"):
        yield attempt("latency", each.name, lambda each=each: waited(latency(run.servers, each, n // 4)))


def waited(shown: dict[str, float]) -> Facts:
    return {"value": shown["p50"], **shown}


def idles(run: Run) -> Told:
    """Everybody is idle at the same time, which costs nobody anything."""
    contestants = [run.ours, run.ours_sqlite, *run.only("pgqueuer", "procrastinate", "huey")]
    shown = idle(run.servers, [each for each in contestants if not each.missing])
    for key, percent in shown.items():
        name, _, database = key.partition("/")
        yield "sqlite-idle" if database == "sqlite" else "idle", name, {"value": percent}


def empty_exchanges(run: Run, ours: Contestant, prefix: str = "") -> Told:
    with stand(run.servers, as_adapter(ours, "exchange").but(BENCH_QUEUES="200"), 10) as s:
        shown = s.ask("empty", turns=200)
    yield f"{prefix}empty-exchange", "holdfast", {"value": shown["one"]}
    yield f"{prefix}empty-exchange-200", "holdfast", {"value": shown["many"]}


def backlogs(run: Run) -> Told:
    """As many messages handled, and claims made, at backlogs of three sizes. The sizes are what they say, always."""
    sizes, count = {"1k": 1000, "100k": 100_000, "1m": 1_000_000}, 10_000
    with ExitStack() as open_stands:
        stands = {
            name: open_stands.enter_context(
                stand(run.servers, run.ours, size + BACKLOG_TURNS * (count + 1000))
            )
            for name, size in sizes.items()
        }
        for name, s in stands.items():
            s.publish(sizes[name])
            s.checkpoint()
        yield from in_turns(
            run,
            [
                (
                    f"backlog-{name}",
                    "holdfast",
                    lambda name=name: facts(at_backlog(stands[name], sizes[name], count)),
                )
                for name in sizes
            ],
            BACKLOG_TURNS,
        )
        for name in ("100k", "1m"):
            yield attempt(f"claim-{name}", "holdfast", lambda name=name: claim_in(stands[name]))
    # What is left of it would not be enough for the claims.
    yield attempt("claim-1k", "holdfast", lambda: claim_at(run, run.ours, sizes["1k"]))


def claim_at(run: Run, ours: Contestant, size: int) -> Facts:
    with stand(run.servers, ours, size) as s:
        s.publish(size)
        return claim_in(s)


def claim_in(s: Stand) -> Facts:
    s.contestant = as_adapter(s.contestant, "exchange")
    return {"value": s.ask("claim", heads=50, turns=18)["milliseconds"]}


def held_snapshots(run: Run) -> Told:
    for line, streams in (("held", 0), ("held-streams", 1000), ("held-hot", 1)):
        yield attempt(line, "holdfast", lambda streams=streams: held(run, run.ours, streams))
    if run.round == 0:
        for each in [*run.only("pgqueuer"), run.limit]:
            yield attempt("held", each.name, lambda each=each: held(run, each))


def held(run: Run, contestant: Contestant, streams: int = 0) -> Facts:
    ratio, waves = decay(run.servers, contestant, streams)
    return {"value": ratio, "waves": [round(rate) for rate in waves]}


def killers(run: Run) -> Told:
    yield attempt("killers", "holdfast", lambda: kill(run))


def kill(run: Run) -> Facts:
    """10 of 10,000 kill their process. No innocent may be lost or condemned; the killers must end as dead letters."""
    n, processes = 10_000, 2
    contestant = run.ours.but(BENCH_KIND="killer")
    with stand(run.servers, contestant, n) as s:
        s.publish(n)
        workers = s.work(processes)
        begun = time.monotonic()
        s.open_gate()
        with psycopg.connect(s.url, autocommit=True) as connection:
            end = time.monotonic() + 180
            while connection.execute("select count(*) from holdfast.message").fetchone() != (0,):
                if time.monotonic() > end:
                    raise Failed(f"{s.handled()} of {n} handled after 180 s: {s.complaint()}")
                time.sleep(0.05)
            seconds = time.monotonic() - begun
            dead = connection.execute("select body::json ->> 'n' from holdfast.dead").fetchall()
        s.stop(workers)
        guilty = set(range(500, n, 1000))
        condemned = {int(number) for (number,) in dead}
        if condemned != guilty:
            raise Failed(
                f"{len(condemned - guilty)} innocents condemned, {len(guilty - condemned)} killers not"
            )
        starts = sum(s.tally.marks[number] for number in guilty)
        doubled = sum(mark > 1 for number, mark in enumerate(bytes(s.tally.marks)) if number not in guilty)
        started = process_start(run)
        allowed = starts / len(guilty) * (started + 1.0)
        cost = seconds / len(guilty)
        return {
            "value": cost,
            "of_allowed": cost / allowed,
            "starts_of_each": starts / len(guilty),
            "process_start": started,
            "innocents_handled_again": doubled,
            "seconds": seconds,
        }


def process_start(run: Run) -> float:
    """Seconds from starting a worker process to its first look for work."""
    with stand(run.servers, run.ours, 10) as s:
        s.publish(10)
        begun = time.monotonic()
        workers = s.work()
        s.open_gate()
        s.wait_for(10, workers)
        seconds = time.monotonic() - begun
        s.stop(workers)
        return seconds


# --- SQLite -------------------------------------------------------------------------------------------------


def sqlite_publish(run: Run) -> Told:
    yield from publish_in_transaction(run, run.ours_sqlite, "sqlite-")
    yield from publish_commit(
        run, [run.ours_sqlite, *run.only("huey"), run.limit_sqlite], "sqlite-publish-commit"
    )
    for each in [run.ours_sqlite, run.limit_sqlite]:
        yield attempt(
            "sqlite-publish-many", each.name, lambda each=each: published(run, each, run.size(each))
        )


def sqlite_drains(run: Run) -> Told:
    yield from drains_in_turns(run, [run.ours_sqlite, *run.only("huey"), run.limit_sqlite], "sqlite-")


def sqlite_by_two(run: Run) -> Told:
    for each in [run.ours_sqlite, *run.only("huey"), run.limit_sqlite]:
        yield attempt(
            "sqlite-drain-2",
            each.name,
            lambda each=each: facts(drain(run.servers, each, run.size(each), processes=2)),
        )


def sqlite_latency(run: Run) -> Told:
    n = 100 if run.quick else 250
    for each in [run.ours_sqlite, run.limit_sqlite, *run.only("huey")]:
        yield attempt("sqlite-latency", each.name, lambda each=each: waited(latency(run.servers, each, n)))


def sqlite_backlog(run: Run) -> Told:
    enough = run.size(run.ours_sqlite)
    size = 1_000_000
    with stand(run.servers, run.ours_sqlite, size) as s:
        s.publish(size)
        yield attempt("sqlite-backlog-1m", "holdfast", lambda: facts(run_down(s, size, enough=enough)))


def as_adapter(contestant: Contestant, adapter: str) -> Contestant:
    """The same with another of its adapters."""
    return replace(contestant, adapter=adapter)


@dataclass(frozen=True)
class Group:
    """Some lines that are run together; `rounds` is how often at most, `quick` whether also in a short run."""

    name: str
    run: Callable[[Run], Told]
    quick: bool = False
    rounds: int = 3


GROUPS = [
    Group("publish in your transaction", lambda run: publish_in_transaction(run, run.ours), quick=True),
    Group("publish, own commit", publish_commits),
    Group("publish many", publish_many, quick=True),
    Group("drain", drains, quick=True),
    Group("SQLite: drain", sqlite_drains, quick=True),
    Group("latency", latencies, quick=True),
    Group("SQLite: latency", sqlite_latency, quick=True),
    Group("drain by 2", drains_by_two),
    Group("handlers", lambda run: handlers(run, run.ours)),
    Group("SQLite: handlers", lambda run: handlers(run, run.ours_sqlite, "sqlite-")),
    Group("SQLite: publish", sqlite_publish),
    Group("SQLite: drain by 2", sqlite_by_two),
    Group("empty exchanges", lambda run: empty_exchanges(run, run.ours), quick=True),
    Group("SQLite: empty exchanges", lambda run: empty_exchanges(run, run.ours_sqlite, "sqlite-"), quick=True),
    Group("backlogs", backlogs),
    Group("held snapshot", held_snapshots),
    Group("SQLite: backlog", sqlite_backlog, rounds=1),
    Group("idle", idles, rounds=1),
    Group("killers", killers, rounds=1),
]  # fmt: skip
