"""The state that schedules and kills begin with: one of each thing that operations can meet in each other's way.

    stream a: a1 a2 a3 a4    worker 1 holds the run a1..a3, which has lapsed by the time of the operations
    stream b: b1 b2 b3       worker 2 holds the run b1..b2, lapsed too
    stream f: f1 f2          nobody holds it
    stream g: g1 g2          worker 1 holds the run, and its lease lasts
    stream h: h2 h3          halted by h1, a dead letter
    stream p: p1 p2          p1 is parked
    stream e                 an empty row, which housekeeping may take away; stream n has no row at all
    u1 (held by worker 1), u2, u3 (dedupe key): without a stream; s1 as well, a suspect in queue s
    x1 x2 y1                 a delivery each in the queues q and r, with dedupe keys, held by worker 1 and worker 2
    m1 m2 m3                 in queue m, the first two in its stream a, the third in b
    old                      died, came back and is done; its dedupe key is still held
    d1, d2                   dead letters of the streams a and e, which went on; d2 has a dedupe key and was edited
    t1, t2                   scheduled into the streams a and b, due a minute later
    w1, w2                   scheduled without a stream, due a moment after them
    unrouted                 nobody subscribes to its type yet; its stream is a
    schedules                three that are due: k1, k2 (into stream a), k3 (of which most is left out); k4 is paused
    requests                 open: until an hour later, with hooks; due: its deadline has passed and nobody has swept;
                             slow: its delay is not told yet; late: it has timed out and a late result came;
                             waits: a result was there before it; and a result that never had a request
    beside the work          an event, an audited order, a turn, and alerts: two are raised, one of them is being told,
                             and a third is over and told; an outage that is over and one that is open

Time stands still: all operations happen at `now`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid4, uuid5

from msgspec.structs import replace

from holdfast.model.alert import AlertOver, AlertRaised, Episode
from holdfast.model.message import NewMessage
from holdfast.model.outage import Began, Ended
from holdfast.model.request import Happening
from holdfast.model.schedule import Note
from holdfast.model.work import Leased
from holdfast.requests import verbs
from holdfast.requests.hooks import Pen
from holdfast.requests.verbs import Arrival, Opening
from holdfast.rules.recurrence import every
from holdfast.schedules import setting
from holdfast.schedules.defining import define
from holdfast.settings import Settings
from holdfast.store.plans import alerts, audit, engine, outages, requests, schedules
from holdfast.store.plans import dead as dead_letters
from tests.store.box import Box, dead, done, new

PEN = Pen(None)


@dataclass
class Contents:
    """What is in the store at the beginning, by name. Can be handed to another process."""

    now: datetime
    ids: dict[str, UUID] = field(default_factory=dict)
    names: dict[UUID, str] = field(default_factory=dict)
    held: dict[str, Leased] = field(default_factory=dict)  # a1@q: as its worker has it
    workers: dict[str, int] = field(default_factory=dict)
    seqs: dict[tuple[str, str | None], int] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)  # of dead letters of q
    audited: int = 0  # the number of the order
    news: int = 0  # the number of what is being told, once so far
    fixed: bool = False  # ids of new messages follow from their names

    def seq(self, name: str, queue: str = "q") -> int:
        return self.seqs[name, queue]

    def letter(self, name: str) -> dead.Key:
        return self.ids[name], "q", self.numbers[name]

    def new(self, name: str, **fields: Any) -> NewMessage:
        """A message that an operation publishes; its id is remembered under its name."""
        id = uuid5(NAMESPACE_OID, name) if self.fixed else uuid4()
        message = new(name, type=fields.pop("type", "t"), id=id, **fields)
        self.names[message.id] = name
        return message

    def leased(self, name: str, queue: str = "q", *, run: str | None = None) -> Leased:
        """A message as its holder has it; `run`: after the lease has moved to that message."""
        leased = self.held[f"{name}@{queue}"]
        if run is None:
            return leased
        head = self.held[f"{run}@{queue}"]
        return replace(leased, run=head.message.seq, run_epoch=head.epoch)


def fill(box: Box) -> Contents:
    """Fill an empty store."""
    contents = Contents(box.now)
    box.subscribe("q", "t", "fan")
    box.subscribe("r", "fan")
    box.subscribe("s", "odd")
    box.subscribe("m", "moved")
    contents.workers = {name: box.worker(name) for name in ("one", "two", "three")}
    for part in (_dead_letters, _fan_out, _streams, _loose, _requests, _beside, _schedules, _instances):
        part(box, contents)
    contents.seqs = {(contents.names[m.id], m.queue): m.seq for m in box.messages()}
    contents.numbers = {contents.names[d.id]: d.seq for d in box.read("dead")}
    box.clock.advance(seconds=60)
    contents.now = box.now
    return contents


def _send(box: Box, c: Contents, *names: str, **fields: Any) -> None:
    """Streams as their users fill them: the last position is known, and a guess of the next one may hold."""
    fields.setdefault("type", "t")
    for name in names:
        (sent,) = box.publish_deferred(new(name, **fields))
        c.ids[name], c.names[sent.id] = sent.id, name


def _claim(box: Box, c: Contents, worker: str, queue: str = "q", **report: Any) -> None:
    for leased in box.claim(queue, worker=worker, **report):
        c.held[f"{c.names[leased.message.id]}@{queue}"] = leased


def _dead_letters(box: Box, c: Contents) -> None:
    for name, stream in (("d1", "a"), ("d2", "e"), ("h1", "h")):
        _send(box, c, name, stream=stream, dedupe="d2" if name == "d2" else None)
    for leased in box.claim("q"):
        box.settle(dead(leased, on_dead="halt" if c.names[leased.message.id] == "h1" else "continue"))
    _send(box, c, "h2", "h3", stream="h")
    _send(box, c, "old", dedupe="old")
    (old,) = box.claim("q")
    box.settle(dead(old))
    rows = {c.names[row.id]: row for row in box.read("dead")}
    keys = {name: (row.id, "q", row.seq) for name, row in rows.items()}
    box.store.run(dead_letters.redrive([keys["old"]], False))
    (old,) = box.claim("q")
    box.settle(done(old))
    box.store.run(dead_letters.edit(keys["d2"], rows["d2"].epoch, '"mended"'))


def _fan_out(box: Box, c: Contents) -> None:
    """In queue r the first of stream x has ended, so that the runs of both queues differ."""
    for name, stream in (("x1", "x"), ("y1", "y"), ("x2", "x")):
        _send(box, c, name, type="fan", stream=stream, dedupe=name)
    (first, *_) = box.claim("r", heads=1, run=1, worker="two")
    box.settle(done(first), worker="two")
    _claim(box, c, "one", lease=3600.0)
    _claim(box, c, "two", "r", lease=3600.0)


def _streams(box: Box, c: Contents) -> None:
    _send(box, c, "a1", "a2", "a3", "a4", stream="a")
    _claim(box, c, "one", run=3)
    _send(box, c, "b1", "b2", "b3", stream="b")
    _claim(box, c, "two", run=2)
    _send(box, c, "g1", "g2", stream="g")
    _claim(box, c, "one", lease=3600.0)
    _send(box, c, "u1")
    _claim(box, c, "one")
    _send(box, c, "s1", type="odd")
    box.claim("s", worker="three")
    box.recover("three", running=[m.seq for m in box.messages("s")])
    _send(box, c, "p1", "p2", stream="p")
    never = "9223372036854775807" if box.sqlite else "'infinity'"
    (seq,) = (m.seq for m in box.messages("q") if m.id == c.ids["p1"])
    box.query(f"update {{message}} set claimable_at = {never} where seq = :seq", seq=seq)


def _loose(box: Box, c: Contents) -> None:
    _send(box, c, "f1", "f2", stream="f")
    _send(box, c, "u2")
    _send(box, c, "u3", dedupe="u3")
    _send(box, c, "t1", stream="a", delay=120)
    _send(box, c, "t2", stream="b", delay=120)
    _send(box, c, "w1", "w2", delay=125)
    _send(box, c, "m1", "m2", type="moved", stream="a")
    _send(box, c, "m3", type="moved", stream="b")
    # Another message has the id of m3, in a queue that nobody takes from.
    box.publish(new("same", id=c.ids["m3"], queue="z", delay=1.0))
    _send(box, c, "unrouted", type="new", stream="a")


def _instances(box: Box, c: Contents) -> None:
    """Instances whose messages are streams of queue q: running, paused, ended by a dead letter, and completed.

    Nothing is open in the stream of v.
    """
    row = (
        "insert into {instance} (id, queue, start, mark, state, poison, started_at, ended_at)"
        " values (:id, 'q', :start, :start, :state, :poison, :now, :ended)"
    )
    now, some = box.store.now(), str(uuid5(NAMESPACE_OID, "start"))
    dead = str(c.ids["h1"])
    for id, state, poison, ended in (
        ("a", "running", None, None), ("f", "running", None, None), ("k", "paused", None, None),
        ("h", "failed", dead, now), ("v", "running", None, None),
    ):  # fmt: skip
        box.query(row, id=id, start=some, state=state, poison=poison, now=now, ended=ended)
    done = "insert into {instance} (id, queue, start, mark, state, result, status, started_at, ended_at)"
    box.query(
        f"{done} values ('z', 'q', :start, :start, 'completed', '1', '2', :now, :now)", start=some, now=now
    )
    box.query("insert into {journal} (id, execution, turn, part, body) values ('z', 0, 1, 0, '{{}}')")
    halted = "insert into {stream} (queue, name, open, halted_by, halted_at) values ('q', 'k', 0, :by, :now)"
    box.query(halted, by="instance: paused", now=now)


def _requests(box: Box, c: Contents) -> None:
    run = box.store.run
    run(engine.subscribe({f"grading.{each}": () for each in Happening}))
    for name, within in (("late", 1), ("open", 3600), ("due", 30), ("slow", 90), ("waits", 3600)):
        c.ids[f"r_{name}"] = id = uuid5(NAMESPACE_OID, name)
        if name == "waits":  # as if it had been committed while the result was stored
            early = Arrival(uuid5(id, "early"), id, None, "1", source=uuid5(id, "source"))
            run(verbs.resolve([early], PEN, keeps_early=True))
        soft = 0.5 if name == "slow" else None
        opening = Opening(id, "grading", None, name, "1", timedelta(seconds=within), None, soft, None)
        if name == "waits":
            terms = {
                "kind": "grading",
                "variant": None,
                "type": None,
                "stream": None,
                "subject": name,
                "body": "1",
            }
            until = box.now + timedelta(hours=1)
            times = {"created_at": box.now, "deadline": until, "soft_at": None, "next_at": until}
            run(requests.open_(id, **terms, **times))
        else:
            run(verbs.open_(opening, PEN))
        if name == "late":
            box.clock.advance(seconds=2)
            run(verbs.resolve([Arrival(uuid5(id, "late"), id, None, "1")], PEN))
    box.query("delete from {message} where queue = 'grading.failed'")  # its hook was called
    orphan = Arrival(uuid5(NAMESPACE_OID, "orphan"), UUID(int=7), None, "1", source=UUID(int=8))
    run(verbs.resolve([orphan], PEN, keeps_early=True))


def _beside(box: Box, c: Contents) -> None:
    """What is kept and is no work."""
    run = box.store.run
    entry = audit.Entry("dead_letters.redrive", "q", count=2)
    c.audited = run(audit.write("somebody", entry))
    run(alerts.take_turn("alerts", 10.0))
    for _ in range(2):  # one outage is over, one is open
        run(outages.look(300.0, 30.0, lambda *_: Began("absent", c.now, c.now, c.now, c.now)))
        run(outages.look(300.0, 30.0, lambda open, *_: Ended(open, c.now) if open.number == 1 else None))
    event = "insert into {event} (stream, version, id, type, created_at, body) values ('e', 1, :id, 't', :now, '1')"
    box.query("insert into {event_stream} (name, version) values ('e', 1)")
    box.query(event, id=str(uuid5(NAMESPACE_OID, "event")), now=box.store.now())

    def raised(name: str) -> AlertRaised:
        return AlertRaised(Episode(name, "q", box.now, 5.0, 5.0), 1.0, f"{name}!", {})

    for judge in (
        lambda *_: [raised("late")],
        lambda episodes, _: [AlertOver(episodes[0], 0.0, 1.0, "not late any more")],
        lambda *_: [raised("backlog_age"), raised("dead_letters")],
    ):
        run(alerts.decide(judge))
    for _ in range(3):
        news = run(alerts.take(30.0))
        assert news is not None
        c.news = news["number"]
        if news["name"] == "late":
            run(alerts.sent(c.news, 1, ["log"], None, None))


def _schedules(box: Box, c: Contents) -> None:
    for name, seconds, options in (
        ("k1", 40, {"misfire": "all"}),
        ("k2", 45, {"misfire": "all", "stream": "a"}),
        ("k3", 10, {"misfire": "latest"}),
        ("k4", 10, {}),
    ):
        made = define(Settings(), name, every(seconds=seconds), "t", {"of": name}, **options)
        box.store.run(setting.put(made, None))
    box.store.run(schedules.pause("k4", "why"))
    box.store.run(schedules.note_zones("2020a", [], 60.0))
    box.store.run(schedules.note([("k1", Note("a", "b", 2, "missed"))]))
