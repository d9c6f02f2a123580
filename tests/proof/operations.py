"""What processes do to the store at the same time, each as the engine does it: one statement of its own, a transaction
of its own, or statements in the transaction of a user."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from holdfast.errors import NotFound, Refused
from holdfast.model.message import NewMessage, Published, Reason, Stillborn
from holdfast.model.names import stored_key
from holdfast.model.work import Report, Settlement, Want
from holdfast.rules.recurrence import every
from holdfast.schedules import setting
from holdfast.schedules.defining import define
from holdfast.schedules.ticker import Ticker
from holdfast.settings import Settings
from holdfast.store.plans import dead as dead_letters
from holdfast.store.plans import engine, moving, operator, queues, scheduled, schedules
from holdfast.store.plans.operator import TargetChanged
from holdfast.store.statement import Plan, Runnable, Statement
from tests.proof.session import Body, Operation, Quiet, Restart
from tests.proof.world import World
from tests.store.box import cancelled, dead, done, failed, given_back, paused, released

TAKEN_OVER = "a lease was taken over while it was being settled"
SERIALIZE = "could not serialize access"
SAME_ID = 'unique constraint "message_id"'  # an id that was just being stored: a worker looks again


@dataclass
class Outcome:
    """What an operation says that it has done."""

    published: list[UUID] = field(default_factory=list)  # these exist now
    refused: list[UUID] = field(default_factory=list)  # these do not: duplicates, or rolled back
    held: list[tuple[UUID, str]] = field(default_factory=list)  # settlements that stood
    lost: list[tuple[UUID, str]] = field(default_factory=list)  # and those that did not
    claimed: list[tuple[int, int]] = field(default_factory=list)  # leases: seq and epoch
    # Handed out: seq, and that of the head of its run.
    followers: list[tuple[int, int]] = field(default_factory=list)
    ended: list[tuple[int, int]] = field(default_factory=list)  # leases under which a message has ended
    # Messages whose effect was committed with their settlement.
    effects: list[UUID] = field(default_factory=list)
    note: str = ""


# --- Forms of transactions --------------------------------------------------------------------------------------------


def own(plan: Runnable[Any]) -> Body:
    """A transaction of the store's own, as `store.run` makes it."""
    yield Quiet("begin")
    result = yield from plan
    yield Statement("commit")
    return result


def user(level: str, *parts: Runnable[Any]) -> Body:
    """A transaction of the user's."""
    yield Quiet(f"begin isolation level {level}")
    results = []
    for part in parts:
        results.append((yield from part))
    yield Statement("commit")
    return results


def order(plan: Callable[[], Plan[Any]], exists: str, id: UUID) -> Body:
    """An operator's order: refused, or begun anew when overtaken. It looks first whether there is such a thing."""
    if not (yield Quiet(f"select 1 from holdfast.{exists} where id = :id::uuid", {"id": str(id)})):
        return Outcome(note="not found")
    try:
        note = yield from own(plan())
    except TargetChanged:
        raise Restart from None
    except (Refused, NotFound) as refusal:
        yield Statement("rollback")
        return Outcome(note=f"refused: {refusal}")
    return Outcome(note=str(note))


# --- Publishing -------------------------------------------------------------------------------------------------------


def published(messages: Iterable[NewMessage], answers: Iterable[Published]) -> Outcome:
    outcome = Outcome()
    for message, answer in zip(messages, answers, strict=True):
        assert (answer.id != message.id) <= answer.duplicate
        (outcome.refused if answer.duplicate else outcome.published).append(message.id)
    return outcome


def publish(*fields: dict[str, Any]) -> Callable[[World], Body]:
    """One call without a transaction of the user's: placed at once."""

    def body(w: World) -> Body:
        messages = [w.new("new", **each) for each in fields]
        plan = engine.append(messages, place=True)
        answers = yield from (own(plan) if any(m.event for m in messages) else plan)
        return published(messages, answers)

    return body


SCOPED = stored_key("1", "/shop")
RESET = define(Settings(), "k1", every(seconds=30), "t", {"of": "another"}, stream="b")


def bear(w: World) -> Body:
    """A message is a dead letter from the start, under a key that others want."""
    message = w.new("born")
    letter = Stillborn(
        message.id, "q", "unreadable", message.body, SCOPED, Reason.SERIALIZATION_ERROR, "why", "f"
    )
    stored = yield from own(dead_letters.bear([letter]))
    return Outcome([message.id], []) if message.id in stored else Outcome([], [message.id])


def publish_in(level: str, *calls: list[dict[str, Any]]) -> Callable[[World], Body]:
    """Calls in the user's transaction: placed when it commits."""

    def body(w: World) -> Body:
        groups = [[w.new("new", **each) for each in call] for call in calls]
        answers = yield from user(level, *(engine.append(group) for group in groups))
        return published([m for group in groups for m in group], [a for group in answers for a in group])

    return body


def publish_after(level: str, *streams: str) -> Callable[[World], Body]:
    """A row of the user's is written first, which gives two of them their order."""

    def body(w: World) -> Body:
        messages = [w.new("new", stream=stream) for stream in streams]
        business = sql("update proof.business set version = version + 1 where name = 'one'")
        answers = yield from user(level, business, engine.append(messages))
        return published(messages, answers[1])

    return body


def insert(w: World, queue: str | None = None) -> Body:
    """A producer that knows nothing but SQL, and perhaps the queue that its message is for."""
    message = w.new("new", stream="a")
    yield Statement(
        "insert into holdfast.message (id, type, body, stream, claimable_at, queue)"
        " values (:id::uuid, 't', '1', 'a', :now, :queue::text)",
        {"id": str(message.id), "now": w.now, "queue": queue},
    )
    return Outcome(published=[message.id])


def sql(text: str, **params: Any) -> Plan[Any]:
    return (yield Statement(text, params))


# --- Working ----------------------------------------------------------------------------------------------------------


def report(w: World, worker: str, *settlements: Settlement, claim: bool = False, **fields: Any) -> Report:
    if claim:
        fields = {"want": [Want("q", 20)], "total": 50, **fields}
    return Report(w.workers[worker], settlements, **fields)


def exchange(w: World, whole: Report, seconds: float = 0.0) -> Body:
    batch = yield from w.later(engine.exchange(whole), seconds)
    outcome = Outcome(
        claimed=[(each.run, each.run_epoch) for each in batch.work if each.run == each.message.seq]
    )
    outcome.followers = [(each.message.seq, each.run) for each in batch.work if each.run != each.message.seq]
    for s in whole.settlements:
        message = s.leased.message
        (outcome.lost if message.seq in batch.lost else outcome.held).append((message.id, message.queue))
        stands = outcome.refused if message.seq in batch.lost else outcome.published
        stands += [emitted.id for emitted in s.emits if emitted.dedupe is None]
        if message.seq not in batch.lost and s.outcome in ("done", "dead", "cancelled"):
            outcome.ended.append((message.seq, s.leased.epoch))
    outcome.note = str([w.names.get(each.message.id) for each in batch.work])
    return outcome


def claim(worker: str = "three", seconds: float = 0.0, **fields: Any) -> Callable[[World], Body]:
    return lambda w: exchange(w, report(w, worker, claim=True, **fields), seconds)


def settle(
    make: Callable[[World], list[Settlement]], move: str | None = None, **fields: Any
) -> Callable[[World], Body]:
    """Worker one hands in; `move` names the message on which its run goes on."""

    def body(w: World) -> Body:
        settlements = make(w)
        moves = [(settlements[0].leased.run, w.seq(move))] if move else []
        return (yield from exchange(w, report(w, "one", *settlements, moves=moves, **fields)))

    return body


def complete(
    level: str, make: Callable[[World], list[Settlement]], also: dict[str, Any] | None = None
) -> Callable[[World], Body]:
    """A handler settles its message in its own transaction, with a write of its own; `also` publishes in it too."""

    def body(w: World) -> Body:
        settlements = make(w)
        last = settlements[-1].leased.message
        yield Quiet(f"begin isolation level {level}")
        yield from sql("insert into proof.effect values (:id::uuid, 'complete')", id=str(last.id))
        extra = [w.new("also", **also)] if also else []
        if extra:
            yield from engine.append(extra)
        held = yield from engine.settle(settlements, [])
        if last.seq not in held:
            yield Statement("rollback")
            return Outcome(lost=[(last.id, "q")], refused=[m.id for m in extra])
        yield Statement("commit")
        keys = [(s.leased.message.id, s.leased.message.queue) for s in settlements]
        emitted = [m.id for s in settlements for m in s.emits]
        return Outcome(held=keys, effects=[last.id], published=[m.id for m in extra] + emitted)

    return body


def take_over(w: World) -> Body:
    """Another worker takes the lapsed head over, alone, and handles it."""
    yield from engine.recover(count=1)
    asked = replace(report(w, "two", claim=True), suspects=True)
    batch = yield from engine.exchange(asked)
    work = [each for each in batch.work if each.message.id == w.ids["a1"]]
    if not work:
        return Outcome(claimed=[(each.run, each.run_epoch) for each in batch.work])
    outcome = yield from exchange(w, report(w, "two", done(work[0])))
    outcome.claimed = [(work[0].run, work[0].run_epoch)]
    return outcome


def recover(seconds: float = 0.0, **fields: Any) -> Callable[[World], Body]:
    def body(w: World) -> Body:
        count = yield from w.later(engine.recover(**fields), seconds)
        return Outcome(note=str(count))

    return body


def report_death(w: World) -> Body:
    """A supervisor reports that worker one is dead: a1 was running, g1 had ended."""
    count = yield from engine.recover(
        worker=w.workers["one"], running=[w.seq("a1")], ended=[w.seq("g1")], count=3
    )
    return Outcome(note=str(count))


def renew(w: World) -> Body:
    leases = [(w.leased(name).run, w.leased(name).run_epoch) for name in ("a1", "u1")]
    lost, cancels = yield from engine.renew(w.workers["one"], leases, 30.0)
    return Outcome(note=f"{lost} {cancels}")


def bring(count: int) -> Callable[[World], Body]:
    """Whoever looks what is due brings it over: into streams a and b, too."""

    def body(w: World) -> Body:
        brought = yield from w.later(scheduled.bring(count, 10**6), 120)
        return Outcome(note=str(brought.did))

    return body


def moved(make: Callable[[World], Plan[Any]]) -> Callable[[World], Body]:
    """A scheduled message is moved or cancelled in a transaction of the user's."""

    def body(w: World) -> Body:
        yield Quiet(f"begin isolation level {RC}")
        try:
            yield from make(w)
        except (Refused, NotFound) as refused:  # it has fallen due meanwhile
            yield Statement("rollback")
            return Outcome(note=str(refused))
        yield Statement("commit")
        return Outcome()

    return body


def tick(w: World) -> Body:
    """Whoever looks what is due fires it: into stream a, too."""
    decide = Ticker(w.store, w.store.clock, None, list)._decide
    done = yield from own(schedules.locked([], True, 500, 10**6, schedules.FIRST, decide))
    return Outcome(published=[each.id for each in done.fires])


def schedule(plan: Callable[[], Plan[Any]]) -> Callable[[World], Body]:
    """A schedule is changed in a transaction of the user's."""

    def body(w: World) -> Body:
        yield from user(RC, plan())
        return Outcome()

    return body


def adopt(w: World) -> Body:
    count = yield from own(engine.subscribe({"q": ["new"]}))
    return Outcome(note=str(count))


def same_id(name: str) -> Callable[[World], Body]:
    """Somebody stores another message under the id of one that is to come into its queue, by plain SQL."""
    text = """insert into holdfast.message (id, type, body, queue) values (:id::uuid, 't', '"same"', 'q')
              on conflict do nothing"""

    def body(w: World) -> Body:
        yield from own(sql(text, id=str(w.ids[name])))
        return Outcome()

    return body


def prune(what: str) -> Callable[[World], Body]:
    def body(w: World) -> Body:
        plan = w.later(queues.prune(what, 0.0 if what == "dedupe" else None, 100), 1)
        return Outcome(note=str((yield from own(plan))))

    return body


def done_(name: str, *emits: dict[str, Any]) -> Callable[[World], list[Settlement]]:
    return lambda w: [done(w.leased(name), *(w.new("emitted", **each) for each in emits))]


def some(make: Callable[..., Settlement], *names: str, **how: Any) -> Callable[[World], list[Settlement]]:
    return lambda w: [make(w.leased(name), **how) for name in names]


# --- All of them ------------------------------------------------------------------------------------------------------

RC, RR, SERIALIZABLE = "read committed", "repeatable read", "serializable"
RACE = (TAKEN_OVER,)
RACE_RR = (TAKEN_OVER, SERIALIZE)
PLACE = ("append_insert", "append_dedupe", "advance_promote")
SETTLE = ("settle_streams", "settle_keys")
CLAIM = ("exchange_claim", "claim_read")
A, B, N, E, F, G = ({"stream": name} for name in "abnefg")


def operations() -> dict[str, Operation]:
    found = [
        # publishing
        Operation("publish", publish(A), passed=PLACE),
        Operation("publish_loose", publish({})),
        Operation("publish_two", publish(B, A), passed=PLACE),
        Operation("publish_new", publish(N, E), passed=PLACE),
        Operation("publish_keys", publish({**A, "dedupe": "k1"}, {**F, "dedupe": "k2"}), passed=PLACE),
        Operation("publish_keys_back", publish({**F, "dedupe": "k2"}, {**A, "dedupe": "k1"}), passed=PLACE),
        Operation("publish_old_key", publish({**F, "dedupe": "old"}), passed=PLACE),
        Operation("publish_scoped", publish({**A, "dedupe": SCOPED}, {**F, "dedupe": "k2"}), passed=PLACE),
        Operation("publish_scoped_back", publish({**F, "type": "fan", "dedupe": SCOPED}, A), passed=PLACE),
        Operation("bear", bear),
        Operation("publish_event", publish({**A, "event": True}), passed=PLACE),
        Operation("publish_events", publish({**A, "event": True}, {**B, "event": True}), passed=PLACE),
        Operation("publish_events_back", publish({**B, "event": True}, {**A, "event": True}), passed=PLACE),
        Operation("publish_last", publish(G), passed=PLACE),
        Operation("publish_moved", publish({**A, "type": "moved"}, A), passed=PLACE),
        Operation("publish_halted", publish({"stream": "h"}), passed=PLACE),
        Operation("transaction", publish_in(RC, [A]), passed=PLACE),
        Operation("transaction_last", publish_in(RC, [G]), passed=PLACE),
        Operation("transaction_last_rr", publish_in(RR, [G]), (SERIALIZE,), PLACE),
        Operation("insert", insert),
        Operation("insert_for_one", lambda w: insert(w, "q")),
        Operation("transaction_ab", publish_in(RC, [A], [B]), passed=PLACE),
        Operation("transaction_ab_serializable", publish_in(SERIALIZABLE, [A], [B]), (SERIALIZE,), PLACE),
        Operation("transaction_ba", publish_in(RC, [B], [A]), passed=PLACE),
        Operation("transaction_ba_rr", publish_in(RR, [B], [A]), (SERIALIZE,), PLACE),
        Operation("transaction_new_rr", publish_in(RR, [N], [E]), (SERIALIZE,), PLACE),
        Operation("transaction_key", publish_in(RC, [{**A, "dedupe": "k1"}]), passed=PLACE),
        Operation("transaction_key_rr", publish_in(RR, [{**A, "dedupe": "k1"}]), (SERIALIZE,), PLACE),
        Operation("transaction_old_key", publish_in(RC, [{**A, "dedupe": "old"}]), passed=PLACE),
        Operation("transaction_event", publish_in(RC, [{**A, "event": True}]), passed=PLACE),
        Operation("after_business", publish_after(RC, "a"), passed=PLACE),
        Operation("after_business_rr", publish_after(RR, "a"), (SERIALIZE,), PLACE),
        # claiming
        Operation("claim", claim(run=1), passed=CLAIM),
        Operation("claim_runs", claim(), passed=CLAIM),
        Operation("claim_other", claim("two"), passed=CLAIM),
        Operation("claim_moved", claim(want=[Want("m", 10)]), passed=CLAIM),
        Operation("claim_suspect", claim(suspects=True, want=[Want("s", 1), Want("q", 1)]), passed=CLAIM),
        # settling
        Operation("done", settle(done_("a1")), RACE, SETTLE),
        Operation("done_move", settle(done_("a1"), "a2"), RACE, SETTLE),
        Operation("done_run", settle(some(done, "a1", "a2", "a3")), RACE, SETTLE),
        Operation("done_last", settle(some(done, "g1", "g2")), RACE, SETTLE),
        Operation("halt_last", settle(halted_last), RACE, SETTLE),
        Operation("complete_last_rr", complete(RR, some(done, "g1", "g2")), RACE_RR, SETTLE),
        Operation("done_claim", settle(done_("a1"), want=[Want("q", 20)], total=50), RACE, (*SETTLE, *CLAIM)),
        Operation("done_loose", settle(done_("u1")), RACE, SETTLE),
        Operation("emit_b", settle(done_("a1", B, N, E)), RACE),
        Operation("emit_a", settle(done_("b1", A, N)), RACE),
        Operation("emit_key", settle(done_("a1", {**B, "dedupe": "k1"})), RACE),
        Operation("emit_events", settle(done_("a1", {**A, "event": True}, {**B, "event": True})), RACE),
        Operation("emit_events_back", settle(done_("b1", {**B, "event": True}, {**A, "event": True})), RACE),
        Operation("fan_one", settle(some(done, "x1", "x2", "y1")), RACE, SETTLE),
        Operation("fan_two", fan_two, RACE, SETTLE),
        Operation("keys_cross", settle(done_("y1", {"type": "fan", "dedupe": "x2"})), RACE),
        Operation("keys_cross_back", keys_cross_back, RACE),
        Operation("hold_key", hold_key),
        Operation("hold_stream", hold_stream),
        Operation("again", settle(some(failed, "a1")), RACE, SETTLE),
        Operation("again_now", settle(some(failed, "a1", retry="immediate")), RACE, SETTLE),
        Operation("pause", settle(some(paused, "a1")), RACE, SETTLE),
        Operation("aside", settle(some(failed, "a1", ordering="available", retry="immediate")), RACE, SETTLE),
        Operation("aside_move", settle(some(failed, "a1", ordering="available"), "a2"), RACE, SETTLE),
        Operation("dead", settle(some(dead, "a1")), RACE, SETTLE),
        Operation("dead_halt", settle(some(dead, "a1", on_dead="halt")), RACE, SETTLE),
        Operation("give_back", settle(some(given_back, "a1")), RACE, SETTLE),
        Operation("release", settle(some(released, "a1")), RACE, SETTLE),
        Operation("cancelled", settle(some(cancelled, "a1")), RACE, SETTLE),
        Operation("complete", complete(RC, done_("a1")), RACE, SETTLE),
        Operation("complete_rr", complete(RR, done_("a1")), RACE_RR, SETTLE),
        Operation("complete_serializable", complete(SERIALIZABLE, done_("a1")), RACE_RR, SETTLE),
        Operation("complete_emit_rr", complete(RR, done_("a1", B, E)), RACE_RR, SETTLE),
        Operation("complete_publish", complete(RC, done_("a1"), B), RACE, SETTLE),
        Operation("complete_publish_back", complete(RC, done_("b1"), A), RACE, SETTLE),
        # leases
        Operation("renew", renew),
        Operation("recover", recover(count=1)),
        Operation("recover_all", recover()),
        Operation("report_death", report_death),
        Operation("take_over", take_over, RACE, (*SETTLE, *CLAIM)),
        # the rest
        Operation("bring", bring(500), (SAME_ID,)),
        Operation("bring_two", bring(2), (SAME_ID,)),
        Operation("move_scheduled", moved(lambda w: moving.move(w.ids["t1"], None, 3600.0))),
        Operation("move_soon", moved(lambda w: moving.move(w.ids["w1"], None, 30.0))),
        Operation("cancel_scheduled", moved(lambda w: moving.cancel(w.ids["t1"]))),
        Operation("cancel_later", moved(lambda w: moving.cancel(w.ids["w1"]))),
        Operation("same_id_timer", same_id("t1")),
        Operation("same_id_unrouted", same_id("unrouted")),
        Operation("same_id_moved", same_id("m1")),
        Operation("tick", tick),
        Operation("schedule_set", schedule(lambda: setting.put(RESET, None))),
        Operation("schedule_drop", schedule(lambda: setting.drop("k2"))),
        Operation("schedule_skip", schedule(lambda: setting.skip("k1"))),
        Operation("adopt", adopt),
        Operation("prune_streams", prune("streams")),
        Operation("prune_dedupe", prune("dedupe")),
        # operators
        *orders(),
    ]
    return {each.name: each for each in found}


def halted_last(w: World) -> list[Settlement]:
    """The last message of a stream dies and halts it."""
    return [done(w.leased("g1")), dead(w.leased("g2"), on_dead="halt")]


def fan_two(w: World) -> Body:
    """Worker two settles the deliveries of queue r, whose dedupe keys are those of queue q."""
    return exchange(w, report(w, "two", done(w.leased("y1", "r")), done(w.leased("x2", "r"))))


def keys_cross_back(w: World) -> Body:
    emitted = w.new("emitted", type="fan", dedupe="y1")
    return exchange(w, report(w, "two", done(w.leased("x2", "r"), emitted)))


def hold_stream(w: World) -> Body:
    """Somebody holds the row of a stream for a moment, so that those who want several rows stand in between."""
    yield from own(sql("select 1 from holdfast.stream where queue = 'q' and name = 'b' for update"))
    return Outcome()


def hold_key(w: World) -> Body:
    """Somebody holds a dedupe key for a moment, so that those who want several keys stand in between."""
    yield from own(sql("select 1 from holdfast.dedupe where scope = 'fan' and key = 'y1' for update"))
    return Outcome()


def orders() -> list[Operation]:
    o, d = operator, dead_letters

    def about(name: str, message: str, make: Callable[[World, int], Plan[Any]]) -> Operation:
        """An order about a message."""
        return Operation(
            f"order_{name}", lambda w: order(lambda: make(w, w.seq(message)), "message", w.ids[message])
        )

    def stream(name: str, make: Callable[[World], Plan[Any]], *conflicts: str) -> Operation:
        return Operation(f"order_{name}", lambda w: order(lambda: make(w), "message", w.ids["u2"]), conflicts)

    def redrive(name: str, *letters: str, out: bool = False) -> Operation:
        def plan(w: World) -> Plan[Any]:
            return d.redrive([w.contents.letter(each) for each in letters], out)

        return Operation(f"order_{name}", lambda w: order(lambda: plan(w), "dead", w.ids[letters[0]]))

    def discard(w: World) -> Body:
        return order(lambda: d.discard(w.contents.letter("h1")), "dead", w.ids["h1"])

    return [
        about("cancel", "f1", lambda w, seq: o.cancel(seq)),
        about("cancel_waiting", "a4", lambda w, seq: o.cancel(seq)),
        about("cancel_lapsed", "a2", lambda w, seq: o.cancel(seq)),
        about("cancel_leased", "g1", lambda w, seq: o.cancel(seq)),
        about("park", "f1", lambda w, seq: o.park(seq)),
        about("park_waiting", "a4", lambda w, seq: o.park(seq)),
        about("retry", "p1", lambda w, seq: o.retry(seq, True)),
        about("poison", "f1", lambda w, seq: o.poison(seq, "why")),
        about("release", "f2", lambda w, seq: o.release(seq)),
        about("release_waiting", "a4", lambda w, seq: o.release(seq)),
        stream("set_aside", lambda w: o.set_aside("q", "a")),
        stream("set_aside_free", lambda w: o.set_aside("q", "f")),
        stream("halt", lambda w: o.halt("q", "a", "me")),
        stream("halt_free", lambda w: o.halt("q", "f", "me")),
        stream("resume", lambda w: o.resume("q", "h")),
        stream("move", lambda w: queues.move("m", "q", 10, {}, w.now), SAME_ID),
        stream("empty", lambda w: queues.empty("m", 10)),
        redrive("redrive", "d1"),
        redrive("redrive_empty", "d2"),
        redrive("redrive_halted", "h1"),
        redrive("redrive_many", "h1", "d1", "d2"),
        redrive("redrive_out", "h1", out=True),
        Operation("order_discard", discard),
    ]
