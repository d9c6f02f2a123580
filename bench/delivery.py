"""Relay and inbox beside raw clients, on RabbitMQ: `python -m bench.delivery [--quick] [--rounds 5] [--rabbitmq new]`.

Everything is measured in turns: in each round everybody once, each in a process of its own with a new queue and a new
database, so that what else the machine does hits all alike. Ratios are taken within a round; the table has their median
and their range. Quorum queues, bodies of 300 bytes, every message confirmed; the databases with fsync. At the end each
bar is listed as reached or missed. `--quick` takes a few minutes and leaves out the million that waits at the broker.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pika

from holdfast import Holdfast
from holdfast.transports import RabbitMQ
from tests import brokers
from tests import servers as postgres_servers

from . import peers
from .course import ROOT

SIZE = 300
ROLE_SECONDS = 600  # for one turn, on a busy machine
RECEIVED = 50_000  # of those that wait at the broker
WHOLE = {"rounds": 5, "messages": 20_000, "large": 300, "small": 100_000, "waiting": 1_000_000}
QUICK = {"rounds": 3, "messages": 10_000, "large": 100, "small": 20_000, "waiting": 0}
Facts = dict[str, float]


@dataclass(frozen=True)
class Bar:
    """The rate of `ours` divided by that of `theirs`, each a name of what is measured, must be at least this."""

    ours: str
    theirs: str
    least: float
    aim: float | None = None


@dataclass(frozen=True)
class Verdict:
    """What became of a bar."""

    what: str
    found: float
    bound: float
    unit: str = ""
    is_least: bool = True  # else at most
    aim: float | None = None

    @property
    def is_reached(self) -> bool:
        return self.found >= self.bound if self.is_least else self.found <= self.bound

    def __str__(self) -> str:
        word = "reached" if self.is_reached else "missed "
        bound = f"{'at least' if self.is_least else 'at most'} {self.bound:g}{self.unit}"
        aim = "" if self.aim is None else f", aim {self.aim:g}{'' if self.found < self.aim else ' reached'}"
        return f"{word}  {self.what}: {self.found:.3g}{self.unit} ({bound}{aim})"


LATENCY, MEMORY = 10.0, 200.0  # milliseconds, megabytes
BARS = [
    Bar("relay", "raw send", 0.5, 0.75),
    Bar("relay", "aio-pika send", 1.5, 2.5),
    Bar("relay, 1000 streams", "relay", 0.7),
    Bar("relay, 100 streams", "relay", 0.7),
    Bar("relay, 1 stream", "relay", 0.5),
    Bar("inbox", "raw receive", 0.4, 0.5),
    Bar("inbox, 100 streams", "raw receive", 0.15, 0.3),
]


@dataclass
class Bench:
    broker: brokers.Broker
    postgres: postgres_servers.Server
    folder: Path
    count: int
    rates: dict[str, list[Facts]] = field(default_factory=dict)

    # -- places

    @contextmanager
    def exchange(self) -> Iterator[tuple[str, str]]:
        """An exchange with a quorum queue, both new."""
        name = f"bench-{uuid4().hex[:8]}"
        connection = pika.BlockingConnection(pika.URLParameters(self.broker.url))
        channel = connection.channel()
        channel.exchange_declare(name, "topic", durable=True)
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum"})
        channel.queue_bind(name, name, "order.placed")
        connection.close()
        yield name, name
        connection = pika.BlockingConnection(pika.URLParameters(self.broker.url))
        connection.channel().queue_delete(name)
        connection.channel().exchange_delete(name)
        connection.close()

    @contextmanager
    def database(self, kind: str) -> Iterator[str]:
        if kind == "sqlite":
            with tempfile.TemporaryDirectory(dir=self.folder) as folder:
                yield f"sqlite:///{folder}/bench.db"
        else:
            with self.postgres.database() as dsn:
                yield dsn

    def role(self, name: str, python: Path | None = None, **given: object) -> Facts:
        command = [str(python or sys.executable), "-m", "bench.delivery_roles", name, json.dumps(given)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=ROLE_SECONDS)
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stderr[-2000:]}")
        found: Facts = json.loads(done.stdout.splitlines()[-1])
        return found

    def note(self, what: str, facts: Facts) -> None:
        self.rates.setdefault(what, []).append(facts)
        rate = facts["count"] / facts["seconds"]
        micros = facts["cpu"] / facts["count"] * 1e6
        sys.stdout.write(
            f"  {what:32} {rate:>9,.0f}/s  {micros:>6.1f} us CPU  {facts['megabytes']:>5.0f} MB\n"
        )
        sys.stdout.flush()

    # -- what is measured

    def raw_send(self) -> None:
        with self.exchange() as (exchange, _):
            self.note(
                "raw send",
                self.role("raw_send", url=self.broker.url, exchange=exchange, count=self.count, size=SIZE),
            )

    def aio_send(self) -> None:
        if why := peers.install("aio-pika"):
            sys.stdout.write(f"  aio-pika: {why}\n")
            return
        with self.exchange() as (exchange, _):
            given = {"url": self.broker.url, "exchange": exchange, "count": self.count // 4, "size": SIZE}
            self.note("aio-pika send", self.role("aio_send", peers.python_of("aio-pika"), **given))

    def relay(self, kind: str, streams: int) -> None:
        what = "relay" if not streams else f"relay, {streams} stream{'s' if streams > 1 else ''}"
        with self.exchange() as (exchange, _), self.database(kind) as database:
            self.fill(database, exchange, streams, self.count)
            given = {"database": database, "url": self.broker.url, "exchange": exchange, "count": self.count}
            self.note(what, self.role("relay", **given))

    def fill(self, database: str, exchange: str, streams: int, count: int, size: int = SIZE) -> None:
        app = Holdfast(database)
        app.migrate()
        app.destination("out", RabbitMQ(self.broker.url), types=["order.*"], to=exchange)
        text, step = {"text": "x" * (size - 12)}, 1000 if size < 10_000 else 5
        for start in range(0, count, step):
            app.publish_many(
                app.message("order.placed", text, stream=f"s{n % streams}" if streams else None)
                for n in range(start, min(start + step, count))
            )
        app.close()

    def waiting(self, exchange: str, streams: int, count: int, size: int = SIZE) -> None:
        """CloudEvents in the broker's queue, as another service's relay would have sent them."""
        with self.database("sqlite") as database:
            self.fill(database, exchange, streams, count, size)
            self.role("relay", database=database, url=self.broker.url, exchange=exchange, count=count)

    def raw_receive(self) -> None:
        with self.exchange() as (exchange, queue):
            self.waiting(exchange, 100, self.count)
            self.note(
                "raw receive", self.role("raw_receive", url=self.broker.url, queue=queue, count=self.count)
            )

    def inbox(self, kind: str, streams: int) -> None:
        what = "inbox" if not streams else f"inbox, {streams} streams"
        with self.exchange() as (exchange, queue), self.database(kind) as database:
            self.waiting(exchange, 100, self.count)
            self.note(what, self._inbox(database, exchange, queue, self.count, streams))

    def _inbox(self, database: str, exchange: str, queue: str, count: int, streams: int) -> Facts:
        app = Holdfast(database)
        app.migrate()
        app.close()
        stream = "{partitionkey}" if streams else ""
        given = {
            "url": self.broker.url,
            "exchange": exchange,
            "queue": queue,
            "count": count,
            "stream": stream,
        }
        return self.role("inbox", database=database, **given)

    def latency(self, kind: str) -> Facts:
        with self.exchange() as (exchange, queue), self.database(kind) as database:
            self.fill(database, exchange, 0, 0)
            given = {"url": self.broker.url, "exchange": exchange, "queue": queue, "count": 300}
            return self.role("latency", database=database, **given)

    def memory(self, kind: str, count: int, size: int) -> tuple[Facts, Facts]:
        """The largest size of a relay, and of an inbox, with so many bodies of that size waiting."""
        with self.exchange() as (exchange, queue), self.database(kind) as database:
            self.fill(database, exchange, 100, count, size)
            sent = self.role("relay", database=database, url=self.broker.url, exchange=exchange, count=count)
            with self.database(kind) as other:
                return sent, self._inbox(other, exchange, queue, count, 100)

    def backlog(self, kind: str, count: int, received: int) -> Facts:
        """An inbox that receives some of very many messages that wait at the broker."""
        with self.exchange() as (exchange, queue), self.database(kind) as database:
            self.role("raw_send", url=self.broker.url, exchange=exchange, count=count, size=SIZE)
            return self._inbox(database, exchange, queue, received, 0)


def main() -> int:
    asked = arguments()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        broker = brokers.own_broker(asked.rabbitmq)
        postgres = postgres_servers.own_server("new", fsync=True)
        try:
            found = [
                each
                for kind in asked.databases.split(",")
                for each in measured(asked, broker, postgres, Path(folder), kind)
            ]
        finally:
            postgres.close()
            broker.close()
    sys.stdout.write("\n" + "".join(f"{each}\n" for each in found))
    return 0 if all(each.is_reached for each in found) else 1


def measured(
    asked: argparse.Namespace,
    broker: brokers.Broker,
    postgres: postgres_servers.Server,
    folder: Path,
    kind: str,
) -> list[Verdict]:
    bench = Bench(broker, postgres, folder, asked.messages)
    sys.stdout.write(f"\n{kind}, RabbitMQ {broker.tree.version}, {asked.messages:,} messages a turn\n")
    turns: list[Callable[[], None]] = [
        bench.raw_send, lambda: bench.relay(kind, 0), bench.aio_send,
        lambda: bench.relay(kind, 1000), lambda: bench.relay(kind, 100), lambda: bench.relay(kind, 1),
        bench.raw_receive, lambda: bench.inbox(kind, 0), lambda: bench.inbox(kind, 100),
    ]  # fmt: skip
    for round in range(asked.rounds):
        sys.stdout.write(f" round {round + 1}\n")
        for turn in turns:
            turn()
    found = [made for each in BARS if (made := judged(kind, bench.rates, each)) is not None]
    waits = sorted((bench.latency(kind) for _ in range(min(asked.rounds, 3))), key=lambda each: each["p50"])
    middle = waits[len(waits) // 2]
    sys.stdout.write(f" commit to broker at 50/s: p50 {middle['p50']:.1f} ms, p99 {middle['p99']:.1f} ms\n")
    what = f"{kind}: commit to broker at 50/s, p50"
    found.append(Verdict(what, middle["p50"], LATENCY, " ms", is_least=False))
    for count, size, said in ((asked.large, 1024 * 1024 - 200, "1 MiB"), (asked.small, SIZE, "300 bytes")):
        if count:
            sent, came = bench.memory(kind, count, size)
            sys.stdout.write(
                f" memory with {count:,} bodies of {said}: "
                f"relay {sent['megabytes']:.0f} MB, inbox {came['megabytes']:.0f} MB\n"
            )
            for who, facts in (("relay", sent), ("inbox", came)):
                what = f"{kind}: memory of the {who}, bodies of {said}"
                found.append(Verdict(what, facts["megabytes"], MEMORY, " MB", is_least=False))
    if asked.waiting:
        came = bench.backlog(kind, asked.waiting, min(asked.waiting, RECEIVED))
        what = f"{kind}: memory of the inbox, {asked.waiting:,} waiting at the broker"
        found.append(Verdict(what, came["megabytes"], MEMORY, " MB", is_least=False))
    return found


def judged(kind: str, rates: dict[str, list[Facts]], bar: Bar) -> Verdict | None:
    """Prints a ratio of rates, and beside it that of CPU times, which a busy machine changes less."""
    if bar.ours not in rates or bar.theirs not in rates:
        return None
    rate = {
        name: [each["count"] / each["seconds"] for each in rates[name]] for name in (bar.ours, bar.theirs)
    }
    ratios = sorted(a / b for a, b in zip(rate[bar.ours], rate[bar.theirs], strict=True))
    cpu = {name: statistics.median(each["cpu"] / each["count"] for each in rates[name]) for name in rate}
    sys.stdout.write(
        f" {bar.ours} / {bar.theirs}: {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}); "
        f"by CPU {cpu[bar.theirs] / cpu[bar.ours]:.2f}\n"
    )
    what = f"{kind}: {bar.ours} / {bar.theirs}"
    return Verdict(what, statistics.median(ratios), bar.least, aim=bar.aim)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.delivery", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="3 rounds of 10,000 messages, a few minutes")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--messages", type=int)
    parser.add_argument("--databases", default="sqlite,postgres", help="with commas")
    parser.add_argument("--rabbitmq", default="new", choices=["old", "new"], help="3.10 (old) or 4.0 (new)")
    parser.add_argument("--large", type=int, help="bodies of 1 MiB for the memory line")
    parser.add_argument("--small", type=int, help="bodies of 300 bytes for the memory line")
    parser.add_argument("--waiting", type=int, help="messages that wait at the broker of an inbox")
    asked = parser.parse_args()
    for name, value in (QUICK if asked.quick else WHOLE).items():
        if getattr(asked, name) is None:
            setattr(asked, name, value)
    return asked


if __name__ == "__main__":
    sys.exit(main())
