"""What `--against` measures of one revision, and how large each turn is.

The functions here are generators. Both revisions run the same one, step by step in turns: each step ends with a
`yield`, and tells the figures that it measured, or nothing if it only prepared something. So both are set up before
either is measured, and a figure of one and the same figure of the other are taken right after each other. Each figure
that both tell is a pair. Turns are short, since a shared machine changes its pace within seconds.

Most turns start with a fresh database and fresh processes: what chance gives a process (its hash seed, where its memory
lies) must not be the same in all pairs. Where filling the database is what takes long, several pairs share it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Generator
from dataclasses import dataclass

from .course import Contestant, Failed, Stand, at_backlog, stand, watch
from .lines import add_business, as_adapter
from .servers import Servers

Shown = dict[str, float]  # figures by line
Turns = Generator[Shown, None, None]


@dataclass(frozen=True)
class Side:
    """One revision on one database: what a turn works with."""

    servers: Servers
    ours: Contestant
    n: int  # how many messages, or what else the size of a turn is

    def figure(self, line: str, value: float) -> Shown:
        return {f"sqlite-{line}" if self.ours.database == "sqlite" else line: value}


# --- Turns --------------------------------------------------------------------------------------------------


def in_transaction(side: Side) -> Turns:
    """Ours alone counts. The bare insert beside it uses the table as the revision made it: a ratio to it would hide
    a table that became slower."""
    with stand(side.servers, as_adapter(side.ours, "transaction"), 10) as s:
        yield {}
        shown = s.ask("publish", blocks=side.n, block=20)
    figures: Shown = {}
    for line, fact in (("", "ours"), ("-stream", "ours_stream"), ("-five", "ours_five")):
        if fact in shown:
            figures |= side.figure(f"publish-one{line}", shown[fact])
    yield figures


def commits(side: Side) -> Turns:
    """Several publishers after each other, each a process of its own."""
    publishers = 3
    with stand(side.servers, side.ours, publishers * side.n) as s:
        s.checkpoint()
        yield {}
        for number in range(publishers):
            seconds = s.publish(side.n, first=number * side.n, chunk=1)["seconds"]
            yield side.figure("publish-commit", side.n / seconds)
        drain(s, publishers * side.n)


def drains(
    line: str, *, publish: str = "", streams: int = 0, processes: int = 1, kind: str = "async"
) -> Callable[[Side], Turns]:
    """Publish n and drain them; `publish` is the line that the publishing counts for."""

    def turns(side: Side) -> Turns:
        with stand(side.servers, side.ours.but(BENCH_KIND=kind), side.n) as s:
            if kind == "transaction":
                add_business(s)
            yield {}
            seconds = s.publish(side.n, streams=streams)["seconds"]
            yield side.figure(publish, side.n / seconds) if publish else {}
            s.checkpoint()
            yield {}
            workers = s.work(processes)
            yield {}
            s.open_gate()
            shown = watch(s, workers, side.n)
            s.stop(workers)
            if faults := s.tally.faults():
                raise Failed(faults)
            yield side.figure(line, shown.rate)

    return turns


def drain(s: Stand, n: int) -> None:
    """To check that everything that was published is there, once."""
    workers = s.work()
    s.open_gate()
    s.wait_for(n, workers)
    s.stop(workers)
    if faults := s.tally.faults():
        raise Failed(faults)


def latencies(side: Side) -> Turns:
    """A worker with nothing else to do, and publishers of n messages each beside it, 50 a second."""
    warm, publishers = 20, 4
    with stand(side.servers, side.ours, warm + publishers * side.n) as s:
        workers = s.work()
        s.open_gate()
        s.publish(warm, chunk=1, pause=0.05)
        s.wait_for(warm, workers)
        yield {}
        for first in range(warm, s.n, side.n):
            s.publish(side.n, first=first, chunk=1, pause=1 / 50)
            s.wait_for(first + side.n, workers)
            moments = slice(first, first + side.n)
            waits = zip(s.tally.published[moments], s.tally.started[moments], strict=True)
            yield side.figure("latency", statistics.median((b - a) * 1000 for a, b in waits))
        s.stop(workers)
        if faults := s.tally.faults():
            raise Failed(faults)


def empty_exchanges(side: Side) -> Turns:
    with stand(side.servers, as_adapter(side.ours, "exchange").but(BENCH_QUEUES="200"), 10) as s:
        yield {}
        for _ in range(8):
            shown = s.ask("empty", turns=side.n)
            yield {
                **side.figure("empty-exchange", shown["one"]),
                **side.figure("empty-exchange-200", shown["many"]),
            }


def claims(side: Side) -> Turns:
    """Claims of 50 at a backlog that is too small to be used twice. Its size is what the line says, always."""
    with stand(side.servers, side.ours, 1000) as s:
        s.publish(1000)
        yield {}
        yield side.figure("claim-1k", claim_time(s))


def claim_time(s: Stand) -> float:
    contestant, s.contestant = s.contestant, as_adapter(s.contestant, "exchange")
    try:
        return float(s.ask("claim", heads=50, turns=18)["milliseconds"])
    finally:
        s.contestant = contestant


def backlogs(name: str, size: int, *, claimed: bool = True) -> Callable[[Side], Turns]:
    """Drain n at a time while a publisher keeps the backlog at its size. It is filled once for all pairs."""

    def turns(side: Side) -> Turns:
        times = 10
        with stand(side.servers, side.ours, size + times * (side.n + 1000)) as s:
            s.publish(size)
            s.checkpoint()
            yield {}
            for _ in range(times):
                yield side.figure(f"backlog-{name}", at_backlog(s, size, side.n).rate)
            if claimed:  # afterwards: the tally does not count what they handle
                for _ in range(times):
                    yield side.figure(f"claim-{name}", claim_time(s))

    return turns


def large_backlog(side: Side) -> Turns:
    """Drain n at a time of a million. It is filled once for all pairs."""
    times = 10
    # With a large --scale more, or nothing would be left for the last turns: a worker takes some beyond n each time.
    size = max(1_000_000, 2 * times * side.n)
    with stand(side.servers, side.ours, size) as s:
        s.publish(size)
        yield {}
        for _ in range(times):
            workers = s.work()
            yield {}
            already = s.handled()
            s.open_gate()
            shown = watch(s, workers, side.n, already)
            s.stop(workers)
            yield side.figure("backlog-1m", shown.rate)


# --- The table ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """Some lines that are measured together: the group whose name `--only` matches, the turns and their size."""

    group: str
    lines: tuple[str, ...]
    turns: Callable[[Side], Turns]
    n: int
    pairs: int = 16
    quick: bool = False  # SQLite's are all in a quick run

    @property
    def database(self) -> str:
        return "sqlite" if self.lines[0].startswith("sqlite-") else "postgres"

    def size(self, scale: float) -> int:
        return max(min(self.n, 20), int(self.n * scale))

    def asked_for(self, wanted: list[str], *, quick: bool) -> bool:
        """Whether it is run: names of groups or lines were given with --only, or else it is all, or the quick ones."""
        if wanted:
            return self.matches(wanted)
        return not quick or self.quick or self.database == "sqlite"

    def matches(self, wanted: list[str]) -> bool:
        return any(part in name.lower() for part in wanted for name in (self.group, *self.lines))


POSTGRES = [
    Comparison(
        "publish in your transaction",
        ("publish-one", "publish-one-stream", "publish-one-five"),
        in_transaction,
        12,
        quick=True,
    ),
    Comparison("publish, own commit", ("publish-commit",), commits, 1000),
    Comparison(
        "publish many, drain",
        ("publish-many", "drain"),
        drains("drain", publish="publish-many"),
        20_000,
        quick=True,
    ),
    Comparison(
        "publish many, drain",
        ("publish-many-streams", "drain-streams"),
        drains("drain-streams", publish="publish-many-streams", streams=1000),
        20_000,
        quick=True,
    ),
    Comparison("drain", ("drain-hot",), drains("drain-hot", streams=1), 20_000, quick=True),
    Comparison("drain", ("drain-poison",), drains("drain-poison", kind="poison"), 20_000),
    Comparison("drain by 2", ("drain-2",), drains("drain-2", processes=2), 30_000),
    Comparison("handlers", ("drain-sync",), drains("drain-sync", kind="sync"), 8_000),
    Comparison("handlers", ("drain-transaction",), drains("drain-transaction", kind="transaction"), 1_500),
    Comparison("latency", ("latency",), latencies, 50, pairs=20, quick=True),
    Comparison(
        "empty exchanges",
        ("empty-exchange", "empty-exchange-200"),
        empty_exchanges,
        200,
        pairs=24,
        quick=True,
    ),
    Comparison("backlogs", ("claim-1k",), claims, 0),
    Comparison("backlogs", ("backlog-1k",), backlogs("1k", 1000, claimed=False), 10_000, pairs=10),
    Comparison("backlogs", ("backlog-100k", "claim-100k"), backlogs("100k", 100_000), 10_000, pairs=10),
    Comparison("backlogs", ("backlog-1m", "claim-1m"), backlogs("1m", 1_000_000), 10_000, pairs=10),
]
SQLITE = [
    Comparison(
        "SQLite: publish",
        ("sqlite-publish-one", "sqlite-publish-one-stream", "sqlite-publish-one-five"),
        in_transaction,
        20,
    ),
    Comparison("SQLite: publish", ("sqlite-publish-commit",), commits, 1000),
    Comparison(
        "SQLite: publish many, drain",
        ("sqlite-publish-many", "sqlite-drain"),
        drains("drain", publish="publish-many"),
        20_000,
    ),
    Comparison("SQLite: drain", ("sqlite-drain-streams",), drains("drain-streams", streams=1000), 20_000),
    Comparison("SQLite: drain", ("sqlite-drain-hot",), drains("drain-hot", streams=1), 20_000),
    Comparison("SQLite: drain", ("sqlite-drain-poison",), drains("drain-poison", kind="poison"), 20_000),
    Comparison("SQLite: drain by 2", ("sqlite-drain-2",), drains("drain-2", processes=2), 30_000),
    Comparison("SQLite: handlers", ("sqlite-drain-sync",), drains("drain-sync", kind="sync"), 8_000),
    Comparison(
        "SQLite: handlers",
        ("sqlite-drain-transaction",),
        drains("drain-transaction", kind="transaction"),
        700,
    ),
    Comparison("SQLite: latency", ("sqlite-latency",), latencies, 50, pairs=20),
    Comparison(
        "SQLite: empty exchanges",
        ("sqlite-empty-exchange", "sqlite-empty-exchange-200"),
        empty_exchanges,
        200,
        pairs=24,
    ),
    Comparison("SQLite: backlog", ("sqlite-backlog-1m",), large_backlog, 20_000, pairs=10),
]
COMPARISONS = [*POSTGRES, *SQLITE]

# Lines that are not compared, and why.
LEFT_OUT = {
    **dict.fromkeys(
        ("idle", "sqlite-idle"), "a few hundredths of a second of CPU in 10 s, too little to see 3 % of it"
    ),
    **dict.fromkeys(
        ("held", "held-streams", "held-hot"), "already a ratio of late to early waves, with a bar of its own"
    ),
    "killers": "mostly waits and starts of processes, with a bar of its own",
}
