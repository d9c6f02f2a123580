"""What a process does to the store, through the store's own doors, so that it can be killed anywhere on the way.

Each verb is one transaction: whatever moment its process dies at, all of it has happened or nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

import psycopg
from msgspec.structs import replace as replace_struct

from holdfast.bodies.keys import SEALED
from holdfast.clock import micros
from holdfast.model.alert import AlertChanged, AlertOver, AlertRaised, Episode
from holdfast.model.endpoint import Endpoint, Standing
from holdfast.model.message import NewMessage, Reason, Stillborn
from holdfast.model.names import stored_key
from holdfast.model.outage import Began, Ended, WentOn
from holdfast.model.schedule import Definition
from holdfast.model.work import Delta, Guess, Report, Settlement, Want
from holdfast.operations.dead import DeadLetters
from holdfast.operations.desk import Desk, Tally
from holdfast.operations.messages import Messages
from holdfast.requests import verbs as asking
from holdfast.requests.verbs import Arrival, Opening
from holdfast.rules.numbers import raised
from holdfast.rules.recurrence import every
from holdfast.rules.timeline import occurrence_id
from holdfast.schedules import setting
from holdfast.schedules.defining import define
from holdfast.schedules.setting import timeline_of
from holdfast.schedules.ticker import Ticker
from holdfast.settings import Settings
from holdfast.store import SqliteStore, Store
from holdfast.store.plans import (
    alerts,
    breakers,
    dead_queries,
    endpoints,
    engine,
    instance_commands,
    instances,
    keys,
    moving,
    operator,
    outages,
    queues,
    scheduled,
    schedules,
    sequences,
    slots,
)
from holdfast.store.plans import dead as dead_letters
from holdfast.store.plans import requests as asked_for
from holdfast.store.plans.audit import Entry
from holdfast.store.plans.instance_commands import Adoption, Rewind
from holdfast.store.recognise import recognise
from holdfast.store.statement import Alone, Bound, Plan, Runnable, Statement, bound
from tests.proof.contents import PEN, Contents
from tests.store.box import cancelled, dead, done, failed, given_back, paused, released

Verb = Callable[["Hands"], Any]


class NothingToDo(Exception):
    """What a verb is about is not there. In the contents everything is; after another verb it may be gone."""


def needs(there: object, what: str) -> None:
    if not there:
        raise NothingToDo(what)


@dataclass
class Hands:
    """What a verb works with."""

    store: Store
    contents: Contents

    @property
    def sqlite(self) -> bool:
        return isinstance(self.store, SqliteStore)

    def run(self, plan: Runnable[Any]) -> Any:
        return self.store.run(plan)

    def new(self, name: str, **fields: Any) -> NewMessage:
        return self.contents.new(name, **fields)

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """A transaction of the user's own, on a connection of the user's own."""
        if isinstance(self.store, SqliteStore):
            with closing(sqlite3.connect(self.store.path, isolation_level=None)) as db:
                db.execute("begin immediate")
                yield db
                db.execute("commit")
        else:
            with closing(psycopg.connect(self.store.url)) as db:
                yield db
                db.commit()

    def effect(self, db: Any, name: str) -> None:
        """A write of the user's own."""
        table = "proof_effect" if self.sqlite else "proof.effect"
        db.execute(f"insert into {table} values ('{self.contents.ids[name]}', 'verb')")

    def business(self, db: Any) -> None:
        table = "proof_business" if self.sqlite else "proof.business"
        db.execute(f"update {table} set version = version + 1 where name = 'one'")

    def leased(self, name: str, queue: str = "q") -> Any:
        return self.contents.leased(name, queue)

    def exchange(
        self, *settlements: Settlement, worker: str = "one", seconds: float = 0.0, **fields: Any
    ) -> Any:
        report = Report(self.contents.workers[worker], settlements, **fields)
        return self.run(Alone(self.later(engine.exchange(report), seconds)))

    def later(self, plan: Runnable[Any], seconds: float) -> Bound[Any]:
        """A plan, so long after what is now."""
        instant = self.contents.now + timedelta(seconds=seconds)
        before, self.store.clock.instant = self.store.clock.instant, instant  # type: ignore[union-attr]
        try:
            return bound(plan, self.store.engine, self.store.now())
        finally:
            self.store.clock.instant = before  # type: ignore[union-attr]

    def publish(self, *messages: NewMessage) -> Any:
        return self.run(engine.append(messages, place=True))

    @property
    def desk(self) -> Desk:
        return Desk(self.store, Settings(), who="me")

    def counted(self, plan: Runnable[Any], count: Callable[[Any], int], number: int | None = None) -> Any:
        """An order about many, with its line in the audit. `number`: it has one already."""
        tally = Tally(self.desk, Entry("dead_letters.redrive", "q"))
        tally.number = number
        return tally.run(self.store.run, lambda answer: (count(answer), ()), None, lambda: plan)


CLAIM: dict[str, Any] = {"want": [Want("q", 20), Want("r", 20), Want("s", 1)], "total": 50}


QUEUES = ("m", "q", "r", "s", "z", "grading.completed", "grading.delayed", "grading.failed")


def publish_in_transaction(h: Hands) -> None:
    with h.transaction() as db:
        recognise(db).run(h.store.bound(engine.append([h.new("new1", stream="a")])))
        h.business(db)
        recognise(db).run(h.store.bound(engine.append([h.new("new2", stream="n", dedupe="k")])))


def publish_one_in_transaction(h: Hands, stream: str | None) -> None:
    with h.transaction() as db:
        h.business(db)
        recognise(db).run(h.store.bound(engine.append([h.new("new1", stream=stream)])))


def complete(h: Hands) -> None:
    with h.transaction() as db:
        h.effect(db, "a1")
        recognise(db).run(h.store.bound(engine.append([h.new("new1", stream="b")])))
        recognise(db).run(h.store.bound(engine.settle([done(h.leased("a1"), h.new("new2", stream="e"))], [])))


def move_run(h: Hands) -> None:
    a1, a2 = h.leased("a1"), h.leased("a2")
    h.exchange(done(a1), moves=[(a1.run, a2.message.seq)])


def plain_insert(h: Hands) -> None:
    """A producer that knows nothing but SQL."""
    table = "holdfast_message" if h.sqlite else "holdfast.message"
    ids = [h.new(name).id for name in ("new1", "new2")]
    with h.transaction() as db:
        h.business(db)
        for id in ids:
            db.execute(f"insert into {table} (id, type, body, stream) values ('{id}', 'fan', '1', 'x')")


def plain_insert_scheduled(h: Hands) -> None:
    """The same, for later: after the machine's time, by which PostgreSQL goes here, and before the work is finished."""
    due = h.contents.now + timedelta(days=3650)
    table, later = ("holdfast_message", micros(due)) if h.sqlite else ("holdfast.message", f"'{due}'")
    ids = [h.new(name).id for name in ("new1", "new2")]
    with h.transaction() as db:
        h.business(db)
        for id in ids:
            db.execute(f"insert into {table} (id, type, body, due_at) values ('{id}', 'fan', '1', {later})")


def bring_taken(h: Hands) -> None:
    """A scheduled message whose id is in use when it is due: it becomes a dead letter."""
    same = replace_struct(h.new("new1"), id=h.contents.ids["w1"], id_is_given=False)  # given ids are refused
    with h.transaction() as db:
        h.business(db)
        recognise(db).run(h.store.bound(engine.append([same])))
        brought = recognise(db).run(h.later(scheduled.bring(500, 10**6), 120))
        needs(brought.did, "a scheduled message is due")


def take_in(h: Hands) -> None:
    """A message that waits in `message`, as an older release stored what is scheduled, is put by."""
    later = h.new("new1", delay=30.0)
    table = "holdfast_message" if h.sqlite else "holdfast.message"
    with h.transaction() as db:
        recognise(db).run(h.store.bound(engine.append([later])))
        db.execute(f"update {table} set queue = 'holdfast/timer', target = 'q' where id = '{later.id}'")
        taken = recognise(db).run(h.store.bound(scheduled.take_in()))
        needs(taken, "a timer of an older release is there")


def held(h: Hands) -> list[tuple[int, int]]:
    return [(h.leased(name).run, h.leased(name).run_epoch) for name in ("a1", "u1")]


def renew(h: Hands) -> None:
    h.run(engine.renew(h.contents.workers["one"], held(h), 30.0))


def rewound(h: Hands) -> Rewind:
    """Back to the start, with a call that is withdrawn and a child that goes on."""
    ids = h.contents.ids
    child = Adoption("k", uuid5(NAMESPACE_OID, "start"), ids["f1"], "{}")
    return Rewind("f", "q", (0, 0), [(1, "{}"), (2, "{}")], 2, 4, ids["f1"], [ids["u1"]], [child])


def progress(h: Hands) -> None:
    """The second half of a heartbeat, if an activity has said how far it is."""
    h.run(engine.progress(dict.fromkeys(held(h), "{}")))


def report_death(h: Hands) -> None:
    c = h.contents
    running, ended = [c.seq("a1"), c.seq("u1")], [c.seq("g1")]
    h.run(engine.recover(worker=c.workers["one"], running=running, ended=ended))


def redrive(*letters: str, out: bool = False) -> Verb:
    def verb(h: Hands) -> None:
        keys = [h.contents.letter(each) for each in letters]
        h.run(dead_letters.redrive(keys, out))

    return verb


def about(name: str, plan: Callable[..., Plan[Any]], *more: Any) -> Verb:
    """An operator's order about a message."""
    return lambda h: h.run(plan(h.contents.seq(name), *more))


def stream(name: str, plan: Callable[..., Plan[Any]], *more: Any) -> Verb:
    return lambda h: h.run(plan("q", name, *more))


def prune(what: str) -> Verb:
    age = None if what == "streams" else 0.0
    return lambda h: h.run(h.later(queues.prune(what, age, 100), 7200))


def unwanted(h: Hands) -> None:
    """A queue that nobody holds anything of is emptied."""
    h.run(queues.empty("m", 10))


def repair(h: Hands) -> None:
    """A message that a sequence which was behind has placed before the head of its stream goes behind it again."""

    def misplaced() -> Plan[Any]:
        if not h.sqlite:
            yield Statement(f"update holdfast.message set position = -1 where seq = {h.contents.seq('f2')}")
        return (yield from sequences.mend(partial(raised, leap=True)))

    mended = h.run(misplaced())
    needs(h.sqlite or mended.streams == (("q", "f"),), "stream f")


def trip(h: Hands) -> None:
    def opened(row: Any, now: Any) -> Any:
        return row._replace(state="open", opened_at=now, until=now + timedelta(seconds=30))

    h.run(breakers.change("dependency", opened))


def hold_slots(h: Hands) -> None:
    held = [(1, 2, 30.0, ("q",))]
    assert h.run(slots.change("dependency", lambda *_: held))


# --- Orders that are written down -------------------------------------------------------------------------------------


def redrive_more(h: Hands) -> None:
    """Another batch of an order that has its line in the audit."""
    keys = [h.contents.letter(each) for each in ("d1", "h1")]
    h.counted(dead_letters.redrive(keys, False), len, h.contents.audited)


def load(h: Hands) -> None:
    """Letters of a file: a new one with a dedupe key and an edited body, one that is here, one that has ended since."""
    ids = h.contents.ids
    found = h.store.read(dead_queries.whole([h.contents.letter("d2")]))
    needs(found, "the letter d2")
    ((row, deaths),) = found
    written = {key: each for key, each in row.items() if key != "stored_at"}
    letters, theirs = [], []
    loaded = uuid5(NAMESPACE_OID, "loaded")  # a file that is loaded twice has the same letters twice
    h.contents.names[loaded] = "loaded"
    for id, dedupe in ((loaded, "loaded"), (ids["d1"], None), (ids["old"], "old")):
        letters.append({**written, "id": str(id), "dedupe": dedupe, "errors": [], "stream": None})
        theirs += [{**death, "id": str(id), "body": '"first"'} for death in deaths]
    since = row["created_at"]
    h.counted(dead_letters.put(letters, theirs, since, False), lambda done: len(done[0]))


def bear(h: Hands) -> None:
    """Dead letters from the start: a new one with a window of its own, one whose key is taken, one of no scope."""
    made = []
    for name, key in (
        ("born1", stored_key("1", "/shop")),
        ("born2", stored_key("2", "/shop")),
        ("born3", "born3"),
    ):
        id = uuid5(NAMESPACE_OID, name)
        h.contents.names[id] = name
        made.append(Stillborn(id, "q", "t", "{}", key, Reason.SERIALIZATION_ERROR, "why", "f", kept=600))
    again = replace_struct(made[0], id=uuid5(NAMESPACE_OID, "born4"))
    h.run(dead_letters.bear([*made, again]))


def archive(h: Hands) -> None:
    """What is safely in an archive's file goes; of two letters one has a dedupe key."""
    dead = h.store.read(dead_queries.keys(limit=10, queue="q", halts=False))
    seen = {(row["id"], row["queue"], row["seq"]): row["epoch"] for row in dead}
    needs(len(seen) >= 2, "two dead letters")
    h.counted(dead_letters.archived(seen, "somewhere"), len)


def rotate(table: str) -> Verb:
    """Bodies are sealed anew. The same text each time: a cipher's would differ."""
    mark = f'{SEALED}"A256GCM","key":"new",'

    def verb(h: Hands) -> None:
        bodies, marks = keys.TABLES[table], {"mark": mark, "sealed": SEALED}
        done = h.counted(
            keys.reseal(bodies, bodies.start, marks, True, 50, lambda id, *_: f'{mark}"data":"{id}"}}'),
            lambda batch: int(batch.changed),
        )
        needs(done.changed, f"bodies in {table} that are not sealed yet")

    return verb


# --- Alerts and turns -------------------------------------------------------------------------------------------------


def alert_decide(h: Hands) -> None:
    """One alert begins, one goes on, one is over."""

    def judge(found: list[Episode], now: Any) -> Any:
        needs(len(found) == 2, "two alerts")
        on, over = found
        yield AlertRaised(Episode("poison_candidates", "", now, 3.0, 3.0), 1.0, "poison!", {"count": 3})
        yield AlertChanged(on, replace(on, value=9.0, peak=9.0, calm_since=now))
        yield AlertOver(over, 0.0, 1.0, "over")

    told = h.run(alerts.decide(judge))
    needs(len(told) == 2, "an alert that begins and one that is over")


def alert_take(h: Hands) -> None:
    needs(h.run(alerts.take(60.0)), "news")


def alert_sent(h: Hands) -> None:
    number = h.contents.news
    told = h.run(alerts.sent(number, 1, ["log"], None, None))
    needs(told, "news that was taken once")


def register(h: Hands) -> None:
    """A worker comes after a time without one: the outage that was left open ends, another begins."""

    def decide(_: Any, now: Any) -> Began:
        return Began("absent", now, now, now, now)

    _, found, has_begun, _ = h.run(outages.arrive("four", ["q"], 300.0, decide))
    needs(has_begun and found is not None and found.number == 3, "an outage that begins")


def outage_goes_on(h: Hands) -> None:
    verdict = h.run(
        outages.look(300.0, 30.0, lambda open, *_: open and WentOn(open, open.back_at, open.began_at))
    )
    needs(verdict is not None, "an outage that is open")


def outage_ends(h: Hands) -> None:
    verdict = h.run(outages.look(300.0, 30.0, lambda open, *_: open and Ended(open, h.contents.now)))
    needs(verdict is not None, "an outage that is open")


def take_turn(h: Hands) -> None:
    needs(h.run(alerts.take_turn("alerts", 60.0)), "a turn")


def turned(h: Hands, **changes: object) -> Settlement:
    """A turn of an instance: the end of a message, a row of the journal, the next state, in one settlement."""
    mark = str(uuid5(NAMESPACE_OID, "mark"))
    row = {
        "id": "a", "execution": 0, "turn": 1, "part": 0, "body": "{}", "begin": None, "state": "running",
        "mark": mark, "entries": 1, "size": 2, "result": None, "status": None, "timers": [], "calls": [],
        "starts": [{"id": "child", "queue": "c@1", "start": mark, "reply": None, "attributes": None}], **changes,
    }  # fmt: skip
    return replace_struct(done(h.leased("a1")), delta=Delta("turns", (row,)))


def foreseen(h: Hands) -> None:
    """Activities that end, with turns that were run ahead: one fits, and the stream of the other has messages."""
    was, found = str(uuid5(NAMESPACE_OID, "start")), []
    for name, id, answer, call in (("u1", "v", "new1", "new2"), ("y1", "a", "new3", "new4")):
        row = {
            "id": id, "execution": 0, "turn": 1, "part": 0, "body": "{}", "state": "running", "mark": was,
            "entries": 1, "size": 2,
        }  # fmt: skip
        guess = Guess(h.new(answer, queue="q", stream=id), was, row, (h.new(call, queue="q"),))
        found.append(replace_struct(done(h.leased(name)), guess=guess))
    h.exchange(*found)


def part_of(h: Hands) -> instances.Part:
    """A part of a turn that goes on: the result of an inline activity."""
    leased = h.leased("a1")
    return instances.Part(leased.run, leased.run_epoch, "a", 0, 1, 0, "{}")


# --- Schedules --------------------------------------------------------------------------------------------------------


def defined(name: str, seconds: int) -> Definition:
    return define(Settings(), name, every(seconds=seconds), "t", {"of": name})


def tick(h: Hands) -> None:
    """All that is due fires: messages with and without a stream, rows that go on, and a note."""
    ticker = Ticker(h.store, h.store.clock, None, tuple)
    for name in ("k1", "k2", "k3"):
        row = h.store.read(schedules.get(name))
        needs(row is not None and row.next_at is not None and row.next_at <= h.contents.now, f"{name} is due")
        for each in timeline_of(row).occurrences(row.created_at, h.contents.now, 100):
            h.contents.names[UUID(occurrence_id(row.incarnation.bytes, each.key))] = f"{name}/{each.key}"
    ticker._tick()


def set_in_transaction(h: Hands) -> None:
    with h.transaction() as db:
        recognise(db).run(h.store.bound(setting.put(defined("new", 60), None)))
        h.business(db)


ORDERS = Endpoint("destination", "orders", "rabbitmq", "shop.events, key {type}")


def connection_report(h: Hands) -> None:
    h.run(
        endpoints.report(h.contents.workers["one"], [("orders", Standing("broken", 1.0, "no route", 3, 2.0))])
    )


def ask(h: Hands) -> None:
    """A request with its message, beside a write of the user's own."""
    message = h.new("new1")
    opening = Opening(message.id, "grading", None, "s", "1", timedelta(seconds=60), None, 0.5, message)
    with h.transaction() as db:
        h.business(db)
        recognise(db).run(h.store.bound(asking.open_(opening, PEN)))


def resolve(name: str, failed: str | None = None) -> Verb:
    """A result, beside a write of the user's own."""

    def verb(h: Hands) -> None:
        id = h.contents.ids[f"r_{name}"]
        arrival = Arrival(uuid5(id, "new"), id, failed, "1")
        with h.transaction() as db:
            h.business(db)
            recognise(db).run(h.store.bound(asking.resolve([arrival], PEN)))

    return verb


def request(name: str, plan: Callable[[UUID], Runnable[Any]]) -> Verb:
    return lambda h: h.run(plan(h.contents.ids[f"r_{name}"]))


def accept(h: Hands) -> None:
    id = h.contents.ids["r_late"]

    def plan() -> Plan[None]:
        yield from asking.accept(id, None, "me", PEN)
        yield from h.desk.note(Entry("requests.accept", target=str(id)))

    h.run(plan())


def verbs() -> dict[str, Verb]:
    o, q = operator, queues
    return {
        "publish": lambda h: h.publish(h.new("new1", stream="a"), h.new("new2", stream="n"), h.new("new3")),
        "publish_alike": lambda h: h.publish(h.new("new1"), h.new("new2")),
        "publish_many": lambda h: h.publish(*(h.new(f"new{n}", stream="n") for n in range(1, 10))),
        "publish_one_in_transaction": lambda h: publish_one_in_transaction(h, "a"),
        "publish_first_in_transaction": lambda h: publish_one_in_transaction(h, "n"),
        "publish_unordered_in_transaction": lambda h: publish_one_in_transaction(h, None),
        "publish_keys": lambda h: h.publish(
            h.new("new1", stream="a", dedupe="k1"), h.new("dup", dedupe="u3"), h.new("new2", dedupe="k2")
        ),
        "publish_event": lambda h: h.publish(h.new("new1", stream="a", event=True)),
        "publish_later": lambda h: h.publish(h.new("new1", stream="a", delay=60.0)),
        "publish_in_transaction": publish_in_transaction,
        "plain_insert": plain_insert,
        "plain_insert_scheduled": plain_insert_scheduled,
        "claim": lambda h: h.exchange(worker="three", peek=True, asleep=True, **CLAIM),
        "claim_suspect": lambda h: h.exchange(worker="three", suspects=True, **CLAIM),
        "done_run": lambda h: h.exchange(
            *(done(h.leased(name)) for name in ("a1", "a2", "a3", "u1", "x1", "y1"))
        ),
        "done_move": move_run,
        "done_claim": lambda h: h.exchange(done(h.leased("a1")), done(h.leased("x1")), **CLAIM),
        "done_emit": lambda h: h.exchange(
            done(
                h.leased("a1"),
                h.new("new1", stream="b"),
                h.new("new2", stream="a", dedupe="k1"),
                h.new("dup", dedupe="u3"),
            )
        ),
        "done_emit_event": lambda h: h.exchange(done(h.leased("a1"), h.new("new1", stream="b", event=True))),
        "again": lambda h: h.exchange(failed(h.leased("a1")), failed(h.leased("u1"))),
        "aside": lambda h: h.exchange(failed(h.leased("a1"), ordering="available")),
        "dead": lambda h: h.exchange(dead(h.leased("a1")), dead(h.leased("u1"))),
        "pause": lambda h: h.exchange(paused(h.leased("a1"))),
        "turn": lambda h: h.exchange(turned(h)),
        "turn_guess": foreseen,
        "turn_part": lambda h: h.run(instances.store_parts([part_of(h)])),
        "turn_pause": lambda h: h.exchange(turned(h, body=None, state="paused", trouble="changed")),
        "instance_begin": lambda h: h.run(
            instances.begin(h.new("new1", queue="q", stream="i"), '{"customer":"17"}')
        ),
        "instance_suspend": lambda h: h.run(instance_commands.suspend("f", "why")),
        "instance_resume": lambda h: h.run(instance_commands.resume("k", "q")),
        "instance_terminate": lambda h: h.run(
            instance_commands.terminate("f", "q", (0, 0), "{}", "why", [h.contents.ids["u1"]])
        ),
        "instance_rewind": lambda h: h.run(instance_commands.rewind(rewound(h))),
        "instance_reopen": lambda h: h.run(instances.reopen("q", "h", h.contents.ids["h1"])),
        "dead_halt": lambda h: h.exchange(dead(h.leased("a1"), on_dead="halt")),
        "give_back": lambda h: h.exchange(given_back(h.leased("a1"))),
        "release": lambda h: h.exchange(released(h.leased("a1"))),
        "cancelled": lambda h: h.exchange(cancelled(h.leased("y1")), cancelled(h.leased("a1"))),
        "complete": complete,
        "publish_scheduled": lambda h: h.publish(h.new("new1", delay=3600.0), h.new("new2")),
        "emit_scheduled": lambda h: h.exchange(done(h.leased("a1"), h.new("new1", delay=3600.0))),
        "bring": lambda h: h.run(Alone(h.later(scheduled.bring(500, 10**6), 120))),
        "bring_two": lambda h: h.run(Alone(h.later(scheduled.bring(2, 10**6), 120))),
        "bring_taken": bring_taken,
        "take_in": take_in,
        "renew": renew,
        "progress": progress,
        "recover": lambda h: h.run(engine.recover()),
        "report_death": report_death,
        "register": register,
        "announce_stop": lambda h: h.run(engine.announce_stop(h.contents.workers["one"])),
        "note_trouble": lambda h: h.run(engine.note_trouble(h.contents.workers["one"], "It waited.", 1)),
        "retire": lambda h: h.run(outages.leave(h.contents.workers["three"])),
        "retire_dead": lambda h: h.run(outages.leave(h.contents.workers["three"], died=True)),
        "outage_goes_on": outage_goes_on,
        "outage_ends": outage_ends,
        "subscribe": lambda h: h.run(engine.subscribe({"q": ["new"], "z": ["new"]})),
        "order_cancel": about("a4", o.cancel),
        "order_cancel_leased": about("g1", o.cancel),
        "order_cancel_lapsed": about("a2", o.cancel),
        "order_park": about("f1", o.park),
        "order_retry": about("p1", o.retry, True),
        "order_retry_heads": lambda h: h.run(
            o.retry_heads([h.contents.seq("p1"), h.contents.seq("u2")], True)
        ),
        "order_poison": about("f1", o.poison, "why"),
        "order_release": about("f2", o.release),
        "order_set_aside": stream("f", o.set_aside),
        "order_halt": stream("f", o.halt, "me"),
        "order_resume": stream("h", o.resume),
        "redrive": redrive("d1"),
        "redrive_halted": redrive("h1"),
        "redrive_many": redrive("h1", "d1", "d2"),
        "redrive_out": redrive("h1", out=True),
        "discard": lambda h: h.run(dead_letters.discard(h.contents.letter("h1"))),
        "redrive_more": redrive_more,
        "dead_edit": lambda h: DeadLetters(h.desk).edit(h.contents.ids["d1"], '"mended"'),
        "dead_hold": lambda h: DeadLetters(h.desk).hold(h.contents.ids["h1"], "why"),
        "dead_discard": lambda h: DeadLetters(h.desk).discard(h.contents.ids["d2"], "why"),
        "dead_import": load,
        "dead_archive": archive,
        "dead_bear": bear,
        "audited_park": lambda h: Messages(h.desk).park(h.contents.ids["f1"], why="why"),
        **{f"rotate_{table}": rotate(table) for table in keys.TABLES},
        "queue_pause": lambda h: h.run(q.pause("q", "why")),
        "queue_resume": lambda h: h.run(q.unpause("q")),
        "queue_move": lambda h: h.run(q.move("m", "q", 10, {}, h.contents.now)),
        "queue_move_taken": lambda h: h.run(q.move("m", "z", 10, {}, h.contents.now)),
        "queue_empty": unwanted,
        "queue_unsubscribe": lambda h: h.run(q.unsubscribe("r")),
        "queue_forget": lambda h: h.run(q.forget("nobody")),
        "repair": repair,
        "endpoint_meet": lambda h: h.run(endpoints.meet([ORDERS])),
        "connection_report": connection_report,
        "connection_leave": lambda h: h.run(endpoints.leave(h.contents.workers["one"])),
        "prune_history": prune("history"),
        "prune_dedupe": prune("dedupe"),
        "prune_streams": prune("streams"),
        "prune_workers": prune("workers"),
        "prune_deaths": prune("deaths"),
        "prune_audit": prune("audit"),
        "prune_alerts": prune("alerts"),
        "prune_outages": prune("outages"),
        "prune_notes": prune("notes"),
        "prune_requests": prune("requests"),
        "prune_instances": prune("instances"),
        "request": ask,
        "request_resolve": resolve("open"),
        "request_fail": resolve("open", "no"),
        "request_resolve_overdue": resolve("due"),
        "request_resolve_late": resolve("late"),
        "request_sweep": lambda h: h.run(asking.sweep(PEN)),
        "request_put_off": lambda h: h.run(asked_for.put_off(60.0)),
        "request_extend": request("open", lambda id: asking.extend(id, timedelta(seconds=60))),
        "request_cancel": request("open", lambda id: asking.cancel(id, "why", PEN)),
        "request_accept": accept,
        "request_early": request("waits", lambda id: asking.decide_early([id], PEN)),
        "alert_decide": alert_decide,
        "alert_take": alert_take,
        "alert_sent": alert_sent,
        "turn_take": take_turn,
        "turn_put_off": lambda h: h.run(alerts.put_off("alerts", 60.0)),
        "breaker": trip,
        "rate": lambda h: h.run(breakers.take("dependency", 3, 1.0, 5)),
        "slots": hold_slots,
        "tick": tick,
        "move": lambda h: h.run(moving.move(h.contents.ids["t1"], None, 300.0)),
        "move_later": lambda h: h.run(moving.move(h.contents.ids["w1"], None, 300.0)),
        "cancel_scheduled": lambda h: h.run(moving.cancel(h.contents.ids["t1"])),
        "retry_scheduled": lambda h: h.run(o.retry(h.contents.seq("t1", "holdfast/timer"), False)),
        "park_scheduled": lambda h: h.run(o.park(h.contents.seq("w2"))),
        "schedule_set": lambda h: h.run(setting.put(defined("new", 60), None)),
        "schedule_set_again": lambda h: h.run(setting.put(defined("k1", 70), None)),
        "schedule_set_in_transaction": set_in_transaction,
        "schedule_drop": lambda h: h.run(setting.drop("k1")),
        "schedule_declare": lambda h: h.run(setting.declare([defined("c1", 60), defined("c2", 60)], None)),
        "schedule_pause": lambda h: h.run(schedules.pause("k2", "why")),
        "schedule_fail": lambda h: h.run(schedules.fail("k1", 0, "why")),
        "schedule_resume": lambda h: h.run(setting.resume("k4")),
        "schedule_skip": lambda h: h.run(setting.skip("k1")),
        "zones_seen": lambda h: h.run(schedules.note_zones("2026a", ["c1"], 60.0)),
    }


# --- Finishing --------------------------------------------------------------------------------------------------------


def finish(h: Hands) -> list[tuple[str, str | None, int | None, str]]:
    """Ten years later a new process does everything that is left, and says in which order."""
    h.store.clock.instant = h.contents.now + timedelta(days=3652)  # type: ignore[union-attr]
    worker = h.run(engine.register_worker("finisher", list(QUEUES)))
    h.run(engine.subscribe({"q": ["new"], "z": ["new"]}))
    for queue in QUEUES:
        h.run(queues.unpause(queue))
    for name in "abefghiknpxy":
        for queue in QUEUES:
            try:
                h.run(operator.resume(queue, name))
            except operator.NotFound:
                continue
    done_: list[tuple[str, str | None, int | None, str]] = []
    for _ in range(60):
        h.run(engine.recover())
        h.run(scheduled.bring(500, 10**6))
        wanted: dict[str, Any] = {"want": [Want(name, 50) for name in QUEUES], "total": 200}
        work: list[Any] = []
        for suspects in (False, True):
            report = Report(worker, suspects=suspects, **wanted)
            work += h.run(engine.exchange(report)).work
        if not work:
            if not unpark(h):
                return done_
            continue
        handle(h, work, done_)
    raise AssertionError("the work does not end")


def handle(h: Hands, work: list[Any], done_: list[tuple[str, str | None, int | None, str]]) -> None:
    """Settle with a write of the user's own, in one transaction."""
    with h.transaction() as db:
        held = recognise(db).run(h.store.bound(engine.settle([done(each) for each in work], [])))
        table = "proof_effect" if h.sqlite else "proof.effect"
        for each in work:
            assert each.message.seq in held
            db.execute(f"insert into {table} values ('{each.message.id}', '{each.message.queue}')")
            done_.append(
                (each.message.queue, each.message.stream, each.message.position, str(each.message.id))
            )


def unpark(h: Hands) -> bool:
    """Parked messages are tried again; whether there were any."""
    table = "holdfast_pending" if h.sqlite else "holdfast.pending"
    never = "9223372036854775807" if h.sqlite else "'infinity'"
    with h.transaction() as db:
        rows = db.execute(
            f"select seq from {table} where claimable_at = {never} and queue is not null"
        ).fetchall()
    for (seq,) in rows:
        h.run(operator.retry(seq, True))
    return bool(rows)
