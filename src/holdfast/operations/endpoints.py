"""Destinations and inboxes for operators: which workers are connected, what waits; test, pause and resume them."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ..errors import NotFound, UsageError
from ..limits.breakers import Breaker
from ..model.endpoint import INBOX_QUEUES, Connected, Endpoint, EndpointKind
from ..model.text import counted
from ..store.plans import breakers, endpoints, operator
from ..store.statement import Plan
from ..transports.contract import Examined, Remark, Sender, SendingConnector, Source, TransportBroken
from ..transports.destination import Destination
from ..transports.templates import Values
from .desk import Desk
from .queues import Queues
from .results import Finding

if TYPE_CHECKING:
    from ..inboxes.declared import Inbox

T = TypeVar("T")

EndpointCondition = Literal["connected", "partly connected", "broken", "held", "paused", "no worker"]


@dataclass(frozen=True, slots=True)
class ConnectionState:
    """The connection of one live worker, as that worker last reported it."""

    worker: str
    state: Connected
    since: datetime
    why: str | None
    tries: int  # to connect, since it broke
    last_at: datetime | None  # when a broker last confirmed a message there, or one was last stored
    told_at: datetime


@dataclass(frozen=True, slots=True)
class EndpointState:
    """A destination or an inbox. `waiting` and `oldest_at` are of a destination's queue."""

    name: str
    kind: EndpointKind
    queue: str
    transport: str
    address: str
    state: EndpointCondition
    connections: tuple[ConnectionState, ...]
    last_at: datetime | None  # when a message last went through it, in any worker
    paused_at: datetime | None
    paused_why: str | None
    waiting: int
    oldest_at: datetime | None
    dead: int
    breaker: str | None  # its state, if it has been used
    breaker_why: str | None
    is_declared: bool  # by the application that asks

    @property
    def connected(self) -> int:
        """Workers that are connected."""
        return sum(each.state != "broken" for each in self.connections)

    @property
    def why(self) -> str | None:
        """The first reason why nothing can be sent or received."""
        reasons = [each.why for each in self.connections if each.state != "open" and each.why]
        return next((each for each in (self.paused_why, *reasons, self.breaker_why) if each), None)


@dataclass(frozen=True, slots=True)
class Tried:
    """The result of a test. Nothing was sent."""

    name: str
    kind: EndpointKind
    is_usable: bool
    why: str | None  # the reason why it cannot be used
    findings: tuple[Finding, ...]


class Endpoints:
    """Questions and commands about destinations or about inboxes. `declared` are those of the application."""

    def __init__(self, desk: Desk, queues: Queues, kind: EndpointKind, inboxes: Mapping[str, Inbox]) -> None:
        self._desk, self._queues, self.kind, self._inboxes = desk, queues, kind, inboxes

    @property
    def declared(self) -> dict[str, Destination | Inbox]:
        """Those of the application, by name."""
        if self.kind == "inbox":
            return dict(self._inboxes)
        return {each.queue: each for each in self._desk.handlers if isinstance(each, Destination)}

    def list(self) -> Sequence[EndpointState]:
        """Those that the application declares and those that any worker has had, by name."""
        return self._states(None)

    def connections(self) -> Mapping[str, Counter[str]]:
        """How many live workers are in which state of connection, by name. Cheap: nothing that waits is counted."""
        return self._desk.ask(self._connections())

    def _connections(self) -> Plan[Mapping[str, Counter[str]]]:
        now = yield from operator.moment()
        known = [row["queue"] for row in (yield from endpoints.known()) if row["kind"] == self.kind]
        rows = yield from endpoints.connections()
        lease = self._desk.settings.lease
        return {
            self._name(queue): Counter(
                row["state"]
                for row in rows
                if row["queue"] == queue and (now - row["seen_at"]).total_seconds() <= lease
            )
            for queue in known
        }

    def show(self, name: str) -> EndpointState:
        found = self._states(self._queue(name))
        if not found:
            there = ", ".join(each.name for each in self.list()) or "none"
            raise NotFound(f"There is no {self.kind} {name}; there are: {there}.")
        return found[0]

    def pause(self, name: str, why: str | None = None) -> EndpointState:
        """Send nothing, or receive nothing, from now on; in all processes, within about a second."""
        self._queues.pause(self.show(name).queue, why, action=f"{self._group}.pause")
        return self.show(name)

    def resume(self, name: str, *, why: str | None = None) -> bool:
        """Send or receive again. False: it was not paused."""
        return self._queues.resume(self.show(name).queue, why=why, action=f"{self._group}.resume")

    def test(self, name: str) -> Tried:
        """Connect from here and look for unsafe settings. Nothing is sent and nothing received."""
        found = self.declared.get(name)
        if found is None:
            self.show(name)
            raise UsageError(f"To test {self.kind} {name}, its application is needed: give -a MODULE:APP.")
        return _alone(tried(name, found))

    def broken(self) -> Sequence[Finding]:
        """Connections that live workers reported as broken. Cheap: nothing that waits is counted."""
        return self._desk.ask(self._reported())

    def _reported(self) -> Plan[Sequence[Finding]]:
        now = yield from operator.moment()
        known = {
            row["queue"]: row["transport"]
            for row in (yield from endpoints.known())
            if row["kind"] == self.kind
        }
        if not known:
            return []
        rows = yield from endpoints.connections()
        return [
            finding
            for queue, transport in sorted(known.items())
            for finding in _broken(
                self.kind,
                self._name(queue),
                transport,
                self._alive([row for row in rows if row["queue"] == queue], now),
            )
        ]

    def examine(self) -> Sequence[Finding]:
        """What is wrong at the brokers, as seen from this process."""
        findings: list[Finding] = []
        declared = self.declared
        if not declared:
            return findings
        seen = _alone(_all_tried(declared))
        for name, each in zip(declared, seen, strict=True):
            if each.why is not None:
                findings.append(_unusable(self.kind, name, each.why))
            findings += each.findings
        return list(dict.fromkeys(findings))

    # -- reading

    @property
    def _group(self) -> str:
        return "destinations" if self.kind == "destination" else "inboxes"

    def _queue(self, name: str) -> str:
        return name if self.kind == "destination" else INBOX_QUEUES + name

    def _name(self, queue: str) -> str:
        return queue if self.kind == "destination" else queue.removeprefix(INBOX_QUEUES)

    def _states(self, queue: str | None) -> Sequence[EndpointState]:
        return self._desk.ask(self._read(queue))

    def _read(self, queue: str | None) -> Plan[Sequence[EndpointState]]:
        now = yield from operator.moment()
        rows = yield from endpoints.known(queue)
        connections = yield from endpoints.connections(queue)
        known = {
            row["queue"]: Endpoint(row["kind"], row["queue"], row["transport"], row["address"])
            for row in rows
        }
        last = {row["queue"]: row["last_at"] for row in rows}
        ours = {each.queue: each.endpoint for each in self.declared.values() if queue in (None, each.queue)}
        found = []
        for each in sorted({**known, **ours}.values(), key=lambda each: each.queue):
            if each.kind != self.kind:
                continue
            mine = [row for row in connections if row["queue"] == each.queue]
            facts = yield from self._facts(each.queue)
            found.append(self._state(each, mine, facts, last.get(each.queue), now, each.queue in ours))
        return found

    def _facts(self, queue: str) -> Plan[dict[str, Any]]:
        """The state of the queue and of the breaker."""
        facts = yield from endpoints.facts(queue)
        row, _ = yield from breakers.look(self._breaker(queue))
        return {**facts, "breaker": row if row.version else None}

    def _breaker(self, queue: str) -> str:
        found = self.declared.get(queue) if self.kind == "destination" else None
        breaker = found.bounds.breaker if isinstance(found, Destination) else None
        return breaker.name if isinstance(breaker, Breaker) else queue

    def _alive(self, rows: Sequence[Mapping[str, Any]], now: datetime) -> tuple[ConnectionState, ...]:
        """The connections of workers that are not silent."""
        lease = self._desk.settings.lease
        return tuple(
            ConnectionState(
                row["worker"],
                row["state"],
                row["since"],
                row["why"],
                row["tries"],
                row["last_at"],
                row["told_at"],
            )
            for row in rows
            if (now - row["seen_at"]).total_seconds() <= lease
        )

    def _state(
        self, each: Endpoint, rows: Sequence[Mapping[str, Any]], facts: Mapping[str, Any],
        last_at: datetime | None, now: datetime, is_declared: bool,
    ) -> EndpointState:  # fmt: skip
        connections = self._alive(rows, now)
        breaker = facts["breaker"]
        return EndpointState(
            name=self._name(each.queue),
            kind=each.kind,
            queue=each.queue,
            transport=each.transport,
            address=each.address,
            state=condition([each.state for each in connections], is_paused=facts["paused_at"] is not None),
            connections=connections,
            last_at=last_at,
            paused_at=facts["paused_at"],
            paused_why=facts["paused_why"],
            waiting=facts["pending"],
            oldest_at=facts["oldest_at"],
            dead=facts["dead"],
            breaker=None if breaker is None else breaker.state.replace("_", " "),
            breaker_why=None if breaker is None or breaker.state == "closed" else breaker.why,
            is_declared=is_declared,
        )


def condition(states: Iterable[Connected], *, is_paused: bool) -> EndpointCondition:
    """One word for the connections of all live workers."""
    found = list(states)
    if is_paused:
        return "paused"
    if not found:
        return "no worker"
    broken = found.count("broken")
    if broken:
        return "broken" if broken == len(found) else "partly connected"
    return "held" if "held" in found else "connected"


# -- trying


async def tried(name: str, found: Destination | Inbox) -> Tried:
    """Connect, and look for what is missing or unsafe."""
    remarks: Sequence[Remark] = ()
    addresses, source, connector = _wanted(found)
    why = None
    try:
        if isinstance(connector, Examined):
            remarks = await connector.examine(addresses, source)
        else:
            why = await _opened(connector.sender(addresses))
    except TransportBroken as error:
        why = error.why
    findings = tuple(Finding(each.severity, each.name, each.text, each.remedy) for each in remarks)
    is_usable = why is None and not any(each.severity == "error" for each in findings)
    return Tried(name, found.endpoint.kind, is_usable, why, findings)


def _wanted(found: Destination | Inbox) -> tuple[list[str], Source | None, SendingConnector]:
    """What must exist at the broker."""
    if isinstance(found, Destination):
        return [found.to.fill(Values(""))] if found.to.is_fixed else [], None, found.connector
    return list(found.source.bind), found.source, found.connector


async def _opened(sender: Sender) -> str | None:
    try:
        await sender.open()
        broken = sender.broken()
        return None if broken is None else broken.why
    finally:
        await sender.close()


async def _all_tried(declared: Mapping[str, Destination | Inbox]) -> list[Tried]:
    """All at the same time, so that a broker that does not answer delays no other."""
    return await asyncio.gather(*(tried(name, each) for name, each in declared.items()))


def _broken(
    kind: EndpointKind, name: str, transport: str, connections: Sequence[ConnectionState]
) -> Iterator[Finding]:
    """Those among them that workers have reported as broken, as one finding."""
    broken = [each for each in connections if each.state == "broken" and each.tries]
    if broken:
        first = min(broken, key=lambda each: each.since)
        what = "sent" if kind == "destination" else "received"
        yield Finding(
            "warning",
            f"{kind}-broken",
            f"{kind.capitalize()} {name}: {len(broken)} of {counted(len(connections), 'worker')} "
            f"cannot connect to {transport}, the first since {first.since:%Y-%m-%d %H:%M:%S} UTC: {first.why}",
            f"Nothing is {what} there, and nothing is lost. They keep trying; repair the cause that they report.",
        )


def _unusable(kind: EndpointKind, name: str, why: str) -> Finding:
    return Finding(
        "warning",
        f"{kind}-unusable",
        f"{kind.capitalize()} {name} cannot be used from here: {why}",
        "Repair it; if workers run elsewhere, `holdfast "
        + f"{'destinations' if kind == 'destination' else 'inboxes'} "
        f"show {name}` says how they are.",
    )


def _alone(work: Coroutine[Any, Any, T]) -> T:
    """In a thread of its own: the caller may be inside a loop."""
    answers: list[T | BaseException] = []

    def run() -> None:
        try:
            answers.append(asyncio.run(work))
        except BaseException as error:  # raised in the caller's thread
            answers.append(error)

    thread = threading.Thread(target=run, name="holdfast-test", daemon=True)
    thread.start()
    thread.join()
    (answer,) = answers
    if isinstance(answer, BaseException):
        raise answer
    return answer
