"""Relay and inbox beside raw clients, on RabbitMQ: `python -m bench.delivery [--rounds 5] [--rabbitmq new]`.

Everything is measured in turns: in each round everybody once, each in a process of its own with a new queue and a new
database, so that what else the machine does hits all alike. Ratios are taken within a round; the table has their median
and their range. Quorum queues, bodies of 300 bytes, every message confirmed; the databases with fsync.
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
Facts = dict[str, float]


@dataclass(frozen=True)
class Bar:
    """`ours` by `theirs`, each a name of what is measured; at least this, or at most if there is no `theirs`."""

    ours: str
    theirs: str
    least: float
    aim: float | None = None


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
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
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


def main() -> int:
    asked = arguments()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        broker = brokers.own_broker(asked.rabbitmq)
        postgres = postgres_servers.own_server("new", fsync=True)
        try:
            missed = [
                each
                for kind in asked.databases.split(",")
                for each in measured(asked, broker, postgres, Path(folder), kind)
            ]
        finally:
            postgres.close()
            broker.close()
    for each in missed:
        sys.stdout.write(f"missed: {each}\n")
    return 1 if missed else 0


def measured(
    asked: argparse.Namespace,
    broker: brokers.Broker,
    postgres: postgres_servers.Server,
    folder: Path,
    kind: str,
) -> list[str]:
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
    missed = [said for each in BARS if (said := judged(kind, bench.rates, each))]
    waits = sorted((bench.latency(kind) for _ in range(min(asked.rounds, 3))), key=lambda each: each["p50"])
    middle = waits[len(waits) // 2]
    sys.stdout.write(f" commit to broker at 50/s: p50 {middle['p50']:.1f} ms, p99 {middle['p99']:.1f} ms\n")
    if middle["p50"] > 10:
        missed.append(f"{kind}: commit to broker p50 {middle['p50']:.1f} ms, at most 10")
    for count, size, said in ((asked.large, 1024 * 1024 - 200, "1 MiB"), (asked.small, SIZE, "300 bytes")):
        if count:
            sent, came = bench.memory(kind, count, size)
            sys.stdout.write(
                f" memory with {count:,} bodies of {said}: "
                f"relay {sent['megabytes']:.0f} MB, inbox {came['megabytes']:.0f} MB\n"
            )
            if max(sent["megabytes"], came["megabytes"]) > 200:
                missed.append(f"{kind}: more than 200 MB with bodies of {said}")
    return missed


def judged(kind: str, rates: dict[str, list[Facts]], bar: Bar) -> str:
    """Prints a ratio; what is missed is the answer."""
    if bar.ours not in rates or bar.theirs not in rates:
        return ""
    rate = {
        name: [each["count"] / each["seconds"] for each in rates[name]] for name in (bar.ours, bar.theirs)
    }
    ratios = sorted(a / b for a, b in zip(rate[bar.ours], rate[bar.theirs], strict=True))
    middle = statistics.median(ratios)
    aim = "" if bar.aim is None else f", aim {bar.aim:g}"
    sys.stdout.write(
        f" {bar.ours} / {bar.theirs}: {middle:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}), at least {bar.least:g}{aim}\n"
    )
    return (
        f"{kind}: {bar.ours} / {bar.theirs} is {middle:.2f}, at least {bar.least:g}"
        if middle < bar.least
        else ""
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.delivery", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--databases", default="sqlite,postgres", help="with commas")
    parser.add_argument("--rabbitmq", default="new", choices=["old", "new"], help="3.10 (old) or 4.0 (new)")
    parser.add_argument("--large", type=int, default=300, help="bodies of 1 MiB for the memory line")
    parser.add_argument("--small", type=int, default=100_000, help="bodies of 300 bytes for the memory line")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
