"""Two services over a broker while everything between them is killed and cut, and what must be true afterwards.

The test is the shop's customer: it writes orders and publishes them in one transaction. The shop's relay sends them,
billing's inbox stores them, a handler bills each and publishes that, and the same way back the shop hears of it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from holdfast import Holdfast
from tests import brokers
from tests.databases import migrated, server
from tests.delivery import services
from tests.proof.counts import COUNTS
from tests.store.state import check_invariants
from tests.transports.wire import Wire
from tests.worker.lab import Lab, Process, until

TABLES = {
    True: "create table {} (id integer primary key autoincrement, stream text not null, n integer not null)",
    False: "create table {} (id bigserial primary key, stream text not null, n integer not null)",
}

SENDS = {"shop": "order.placed", "billing": "order.billed"}


@dataclass(frozen=True)
class Course:
    """What happens. Faults are spread over the batches, none in the first."""

    messages: int
    streams: int
    batches: int
    cuts: int = 0  # of a connection between a publish and its confirm, by turns of each service
    service_kills: int = 0  # of each service
    broker_kills: int = 0

    def at(self, count: int, shift: float) -> Counter[int]:
        """In which batches something happens that happens so often."""
        return Counter(1 + int((n + shift) * (self.batches - 1) / count) for n in range(count))


@dataclass
class Service:
    """One service: its database, the proxy before its broker, and its process."""

    name: str
    lab: Lab
    wire: Wire
    exchange: str
    process: Process | None = None
    kills: int = 0

    def start(self) -> None:
        target = f"tests.delivery.services:{self.name}"
        self.process = self.lab.start(target=target, broker=self.wire.url, name=self.exchange, log="WARNING")

    def customer(self) -> Holdfast:
        """The same application in the test, which only publishes."""
        made = services.service(self.name, SENDS[self.name], self.lab.url, self.wire.url, self.exchange)
        made.prepare()
        return made

    def kill(self) -> None:
        """Its supervisor and all its workers, at once; a new one starts."""
        assert self.process is not None
        self.process.kill_all()
        self.kills += 1
        self.start()

    def effects(self) -> int:
        return int(self.lab.execute("select count(*) from effect")[0][0])

    def effects_by_stream(self) -> dict[str, list[int]]:
        """The numbers of each stream's effects, as they were committed."""
        found: dict[str, list[int]] = {}
        for stream, n in self.lab.execute("select stream, n from effect order by id"):
            found.setdefault(stream, []).append(n)
        return found


@dataclass
class Storm:
    course: Course
    shop: Service
    billing: Service
    broker: brokers.Broker | None = None
    broker_kills: int = 0
    seconds: float = 0.0

    @property
    def both(self) -> tuple[Service, Service]:
        return self.shop, self.billing

    def run(self) -> None:
        course, begun = self.course, time.monotonic()
        cuts, broker_kills = course.at(course.cuts, 0.1), course.at(course.broker_kills, 0.5)
        kills = [
            (service, course.at(course.service_kills, at))
            for service, at in zip(self.both, (0.3, 0.7), strict=True)
        ]
        customer = self.shop.customer()
        for service in self.both:
            service.start()
        for batch in range(course.batches):
            cut = self.both[batch // 2 % 2].wire if cuts[batch] else None
            spared = 0 if cut is None else cut.spared
            if cut is not None:
                cut.cut_after_a_publish()
            self.order(customer, batch)
            if cut is not None:  # a new connection may have sent all there was: it is cut with a later batch
                until(lambda cut=cut, n=spared: not cut.cuts_wanted or cut.spared > n, self.said, 60)
            if broker_kills[batch] and self.broker is not None:
                self.broker.kill9()
                self.broker_kills += 1
                self.broker.start()
            for service, times in kills:
                if times[batch]:
                    service.kill()
        until(self.is_over, self.said, 120)
        customer.close()
        self.seconds = time.monotonic() - begun

    def order(self, customer: Holdfast, batch: int) -> None:
        """Orders and their messages, in one transaction. Each stream's numbers go on where they were."""
        each = self.course.messages // self.course.batches
        lab = self.shop.lab
        rows = [
            (f"s{k % self.course.streams}", k // self.course.streams)
            for k in range(batch * each, (batch + 1) * each)
        ]
        with lab.connection() as db:
            for row in rows:
                db.execute(
                    f"insert into placed (stream, n) values {'(?, ?)' if lab.sqlite else '(%s, %s)'}", row
                )
            customer.publish_many(
                (
                    customer.message("order.placed", {"stream": stream, "n": n}, stream=stream)
                    for stream, n in rows
                ),
                on=db,
            )
            db.commit()

    def is_over(self) -> bool:
        return all(
            service.effects() >= self.course.messages and service.lab.is_empty() for service in self.both
        )

    def said(self) -> str:
        counts = [
            (service.name, service.effects(), len(service.lab.rows("message"))) for service in self.both
        ]
        dead = [(row.queue, row.errors) for service in self.both for row in service.lab.rows("dead")[:2]]
        return f"{counts}\n{dead}\n{self.shop.lab.said()}\n--- billing\n{self.billing.lab.said()}"

    def check(self) -> None:
        """Lost 0, effects once, order kept, nothing dead, nothing left at the broker."""
        course = self.course
        wanted = {f"s{k}": list(range(course.messages // course.streams)) for k in range(course.streams)}
        placed: dict[str, list[int]] = {}
        for stream, n in self.shop.lab.execute("select stream, n from placed order by id"):
            placed.setdefault(stream, []).append(n)
        assert placed == wanted
        for service in self.both:
            found = service.effects_by_stream()
            assert Counter(n for each in found.values() for n in each) == Counter(
                n for each in wanted.values() for n in each
            ), f"{service.name}: lost or twice"
            assert found == wanted, f"{service.name}: out of order"
            assert service.lab.rows("dead") == []
            assert service.lab.rows("lease") == []

    def count(self) -> None:
        """For the last lines of the run. `check` has shown what is 0 here."""
        wires = [each.wire for each in self.both]
        for what, number in (
            ("messages there and back", 2 * self.course.messages),
            ("lost", 0),
            ("effects twice", 0),
            ("out of order", 0),
            ("sends", sum(each.published for each in wires)),
            ("connections cut before the confirm", sum(each.cut_unconfirmed for each in wires)),
            ("services killed", sum(each.kills for each in self.both)),
            ("brokers killed", self.broker_kills),
            ("seconds", round(self.seconds)),
        ):
            COUNTS.add("two services", what, number)


@contextmanager
def storm(
    place: str, folder: Path, url: str, course: Course, broker: brokers.Broker | None = None
) -> Iterator[Storm]:
    """Two services at `place`, each with a database of its own, and a proxy for each before the broker at `url`."""
    exchange = f"storm-{uuid4().hex[:8]}"
    with second_database(place, folder) as second:
        urls = {"shop": migrated(place, folder / "shop.db"), "billing": second}
        both = []
        for name, database in urls.items():
            (folder / name).mkdir()
            lab = Lab(database, folder / name)
            lab.execute(TABLES[lab.sqlite].format("effect"))
            both.append(Service(name, lab, Wire(url), exchange))
        both[0].lab.execute(TABLES[both[0].lab.sqlite].format("placed"))
        asyncio.run(declared(url, exchange))
        try:
            yield Storm(course, both[0], both[1], broker)
        finally:
            for each in both:
                each.lab.end_processes()
                each.wire.close()
        for each in both:
            check_invariants(each.lab.store)
            each.lab.close()


@contextmanager
def second_database(place: str, folder: Path) -> Iterator[str]:
    if place == "sqlite":
        yield migrated(place, folder / "billing.db")
        return
    with server(place).database() as dsn:
        made = Holdfast(dsn)
        made.migrate()
        made.close()
        yield dsn


async def declared(url: str, exchange: str) -> None:
    """Exchange and queues, before anybody needs them."""
    sender = services.broker(url, exchange).sender([exchange])
    await sender.open()
    await sender.close()
