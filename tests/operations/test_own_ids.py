"""Several messages with one id: every order says which is meant, and none of them is lost on any way."""

from __future__ import annotations

import io
import json
from typing import Any
from uuid import UUID

import pytest

from holdfast.errors import NotFound, Refused, UsageError
from holdfast.model.message import NewMessage, Reason
from holdfast.operations import Filter
from holdfast.operations.files import Imported
from holdfast.store.plans import dead_queries, engine
from tests.operations.world import World

X = UUID(int=61)


def publish(world: World, body: Any, queue: str | None = "q", **options: Any) -> None:
    """Under one id; as if the publisher's look-up had missed the other one."""
    message = NewMessage(X, options.pop("type", "order.placed"), json.dumps(body), queue=queue, **options)
    world.store.run(engine.append([message]))
    if world.clock is not None:  # else it goes by itself
        world.clock.advance(seconds=1)


def bodies(world: World, queue: str = "q") -> list[Any]:
    return [json.loads(leased.message.body) for leased in world.claim(queue)]


def two_letters(world: World, **options: Any) -> tuple[int, int]:
    """Two dead letters with one id in one queue, and their numbers."""
    for name in ("first", "second"):
        publish(world, name, **options)
        world.operations.messages.poison(X, f"the {name}")
    first, second = (each.seq for each, _ in world.operations.dead.show(X))
    return first, second


# --- Dead letters -----------------------------------------------------------------------------------------------------


@pytest.mark.covers("X61", "X3")
def test_a_second_death_leaves_the_first_letter_as_it_was(world: World) -> None:
    """It was overwritten, with its body."""
    first, second = two_letters(world)
    shown = world.operations.dead.show(X)
    assert [(each.seq, content.body) for each, content in shown] == [(first, '"first"'), (second, '"second"')]
    assert [each.error for each, _ in shown] == ["the first", "the second"]
    assert len(world.operations.messages.show(X).dead) == 2
    told = world.operations.why(X)
    assert told[0] == f"Several messages have the id {X}; commands take --number, too."
    assert told[1].startswith(f"Number {first}: in queue q: dead since")
    assert told[2].startswith(f"Number {second}: in queue q: dead since")
    assert f"`holdfast dead redrive {X} --number {second}` brings it back" in told[2]


@pytest.mark.covers("X61")
@pytest.mark.parametrize("verb", ["redrive", "hold", "unhold", "discard", "edit"])
def test_an_order_about_one_of_several_says_which(world: World, verb: str) -> None:
    first, second = two_letters(world)
    dead = world.operations.dead
    if verb == "unhold":
        for number in (first, second):
            dead.hold(X, "wait", number=number)
    arguments = {"hold": ["wait"], "discard": ["a test"], "edit": ['"mended"']}.get(verb, [])
    order = getattr(dead, verb)
    with pytest.raises(
        UsageError, match=f"2 messages have the id {X}: number {first} in queue q, dead.*number"
    ):
        order(X, *arguments)
    with pytest.raises(NotFound, match="with number 12345"):
        order(X, *arguments, number=12345)
    (changed,) = order(X, *arguments, number=second, queue="q")
    assert (changed.id, changed.queue) == (X, "q")
    after = {each.seq: (each.held_at, content.body) for each, content in dead.show(X)}
    match verb:
        case "redrive":
            assert list(after) == [first]
            assert bodies(world) == ["second"]
        case "discard":
            assert list(after) == [first]
            assert world.outcome(X) == ["discarded"]
        case "hold":
            assert (after[first][0], after[second][0] is not None) == (None, True)
        case "unhold":
            assert (after[first][0] is not None, after[second][0]) == (True, None)
        case "edit":
            assert (after[first][1], after[second][1]) == ('"first"', '"mended"')
            died_with = [[death.body for death in content.deaths] for _, content in dead.show(X)]
            assert died_with == [[None, '"second"']] * 2


@pytest.mark.covers("X61")
def test_a_redrive_while_the_id_is_pending_says_so(world: World) -> None:
    """It said that there was no such dead letter."""
    publish(world, "first")
    world.operations.messages.poison(X, "dies")
    publish(world, "second")
    pending = world.one(X).seq
    with pytest.raises(
        Refused, match=f"another message with this id is pending there, number {pending}. Wait"
    ):
        world.operations.dead.redrive(X)
    with pytest.raises(Refused, match="pending there"):
        world.operations.dead.edit(X, "1", redrive=True)
    assert world.operations.dead.redrive_many(Filter(queue="q")).changed == 0
    world.operations.dead.hold(X, "it can be held")
    world.operations.dead.unhold(X)
    world.done(world.claim()[0])
    world.operations.dead.redrive(X)
    assert bodies(world) == ["first"]


def test_a_letter_is_discarded_although_its_id_is_pending(world: World) -> None:
    publish(world, "first")
    world.operations.messages.poison(X, "dies")
    publish(world, "second")
    world.operations.dead.discard(X, "not needed")
    assert world.operations.dead.count() == 0
    assert bodies(world) == ["second"]


def test_a_redrive_of_many_brings_one_of_each_id(world: World) -> None:
    first, second = two_letters(world)
    assert world.operations.dead.redrive_many(Filter(queue="q")).changed == 1
    assert [each.seq for each in world.operations.dead.list()] == [second]
    assert bodies(world) == ["first"]
    assert first != second


def test_a_canary_is_not_dead_because_another_letter_has_its_id(world: World) -> None:
    first, second = two_letters(world)
    world.clock.advance(seconds=1)
    ask, moment = world.operations.dead._desk.ask, world.clock.instant
    world.operations.dead.redrive(X, number=first)
    keys = [(X, "q", first)]
    since = moment
    ((_, _, pending, died),) = ask(dead_queries.standing(keys, since))
    assert (pending, died) == (True, False)
    world.die(world.claim()[0])
    ((_, _, pending, died),) = ask(dead_queries.standing(keys, since))
    assert (pending, died) == (False, True)
    assert second in [each.seq for each in world.operations.dead.list()]


@pytest.mark.covers("X61")
def test_only_the_letter_that_halts_a_stream_lifts_the_halt(world: World) -> None:
    publish(world, "first", stream="s")
    world.publish(queue="q", stream="s")
    world.die(world.claim()[0], halt=True)
    publish(world, "second", stream="s")
    world.operations.messages.poison(X, "by hand")
    first, second = world.operations.dead.show(X)
    assert (first[0].halts, second[0].halts) == (True, False)
    world.operations.dead.redrive(X, number=second[0].seq)
    assert world.claim() == []
    world.operations.messages.cancel(X)
    world.operations.dead.redrive(X)
    assert bodies(world) == ["first"]
    world.healthy()


# --- Pending messages -------------------------------------------------------------------------------------------------


@pytest.mark.covers("X61")
@pytest.mark.parametrize("verb", ["park", "retry", "cancel"])
def test_an_order_about_one_of_several_pending_ones_says_which(world: World, verb: str) -> None:
    for name in ("first", "second"):
        publish(world, name, queue=None)
    first, second = (each.seq for each in world.operations.messages.find(newest=False))
    order = getattr(world.operations.messages, verb)
    with pytest.raises(
        UsageError, match=f"number {first} in no queue yet, pending.*number {second} in no queue"
    ):
        order(X)
    assert [each.id for each in order(X, number=second)] == [X]
    states = {each.seq: each.state for each in world.operations.messages.find()}
    assert states[first] == "unrouted"
    assert (second in states) == (verb != "cancel")


def test_an_order_about_all_deliveries_of_one_message_needs_no_number(world: World) -> None:
    for queue in ("q", "r"):
        world.subscribe(queue, "order.*")
    id = world.publish()
    assert len(world.operations.messages.park(id)) == 2
    assert len(world.operations.messages.retry(id)) == 2
    assert len(world.operations.messages.poison(id, "both")) == 2
    assert len(world.operations.dead.redrive(id)) == 2


# --- Moving a queue ---------------------------------------------------------------------------------------------------


@pytest.fixture
def both(world: World) -> World:
    """A handler was renamed: what is published goes to the old queue, too."""
    for queue in ("old", "new"):
        world.subscribe(queue, "order.*")
    return world


@pytest.mark.covers("X61")
def test_a_move_starts_nothing_again_that_has_ended_in_the_target(both: World) -> None:
    world = both
    ended = [world.publish() for _ in range(3)]
    for leased, end in zip(world.claim("new"), ("done", "cancelled", "discarded"), strict=True):
        if end == "done":
            world.done(leased)
        else:
            world.clock.advance(seconds=31)
            world.store.run(engine.recover())
            world.operations.messages.cancel(leased.message.id, queue="new")
    world.operations.queues.pause("new")
    moved = world.operations.queues.move("old", "new")
    assert (moved.moved, moved.ended, moved.over) == (0, 3, 3)
    assert world.operations.messages.find() == []
    for id in ended:
        assert world.outcome(id)[-1] == "cancelled"
        (line,) = [each for each in world.operations.messages.show(id).ended if each.queue == "old"]
        assert line.why == "moved: it has ended in queue new"


def test_a_move_brings_a_new_message_whose_id_was_used_and_has_ended(world: World) -> None:
    world.subscribe("new", "x")
    publish(world, "yesterday", queue="new")
    world.done(world.claim("new")[0])
    publish(world, "today", queue="old")
    assert world.operations.queues.move("old", "new").moved == 1
    assert bodies(world, "new") == ["today"]


@pytest.mark.covers("X61")
def test_a_move_keeps_what_another_message_has_the_id_of(world: World) -> None:
    """It ended as cancelled, as if it were the other one."""
    publish(world, "there", queue="new")
    publish(world, "moved", queue="old", stream="s")
    moved = world.operations.queues.move("old", "new")
    assert (moved.moved, moved.ended, moved.taken) == (0, 0, 1)
    ((letter, content),) = world.operations.dead.show(X)
    assert (letter.queue, letter.reason, content.body) == ("new", Reason.ID_TAKEN, '"moved"')
    assert "another message with its id was pending there" in content.errors[-1].text
    assert bodies(world, "new") == ["there"]
    world.healthy()


def test_what_is_a_dead_letter_in_the_target_is_not_moved_beside_it(both: World) -> None:
    world = both
    id = world.publish()
    world.operations.messages.poison(id, "dead there", queue="new")
    moved = world.operations.queues.move("old", "new")
    assert (moved.moved, moved.ended, moved.over) == (0, 1, 0)
    assert [each.queue for each in world.operations.dead.list()] == ["new"]
    assert world.operations.messages.find() == []


def test_what_ends_in_the_target_while_a_queue_is_moved(both: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass over the history was before; of later ends the newest part of the history is looked at."""
    world = both
    pending = world.publish()
    queues = world.operations.queues
    real = queues._desk.ask

    def ask(make: Any, **options: Any) -> Any:
        answer = real(make, **options)
        if isinstance(answer, tuple) and isinstance(answer[-1], dict):  # what was known by then
            world.done(next(each for each in world.claim("new") if each.message.id == pending))
        return answer

    monkeypatch.setattr(queues._desk, "ask", ask)
    moved = queues.move("old", "new")
    assert (moved.moved, moved.over) == (0, 1)
    assert world.outcome(pending) == ["done", "cancelled"]


@pytest.mark.covers("X61")
def test_what_was_moved_away_comes_back_with_a_move_back(both: World) -> None:
    """It ended in the first queue only because the other one had it, too; a move back ended that one as well."""
    world = both
    id = world.publish()
    assert world.operations.queues.move("old", "new").ended == 1
    moved = world.operations.queues.move("new", "old")
    assert (moved.moved, moved.ended, moved.over) == (1, 0, 0)
    assert world.claimed("old") == [id]


# --- Files ------------------------------------------------------------------------------------------------------------


def exported(world: World) -> bytes:
    file = io.BytesIO()
    world.operations.files.export(None, file)
    return file.getvalue()


def load(world: World, file: bytes, **options: Any) -> Imported:
    return world.operations.files.load(io.BytesIO(file), **options)


@pytest.mark.covers("X61")
def test_letters_with_one_id_go_through_a_file(world: World) -> None:
    numbers = two_letters(world)
    world.operations.dead.edit(X, '"mended"', number=numbers[1])
    before = [
        (each.seq, content.body, [(death.died_at, death.body) for death in content.deaths])
        for each, content in world.operations.dead.show(X)
    ]
    file = exported(world)
    assert load(world, file).known == 2
    world.sql("delete from holdfast.dead")
    world.sql("delete from holdfast.death")
    done = load(world, file * 2)
    assert (done.lines, done.stored, done.known) == (4, 2, 2)
    after = [
        (each.seq, content.body, [(death.died_at, death.body) for death in content.deaths])
        for each, content in world.operations.dead.show(X)
    ]
    assert after == before
    assert exported(world) == file


def test_a_letter_from_a_file_whose_number_is_used_gets_another(world: World) -> None:
    publish(world, "of a file")
    world.operations.messages.poison(X, "dies")
    file = exported(world)
    world.sql("delete from holdfast.dead")
    publish(world, "here")
    world.operations.messages.poison(X, "dies too")
    world.sql("update holdfast.dead set seq = seq - 1")
    (here,) = world.operations.dead.list()
    assert load(world, file).stored == 1
    assert [(each.seq, content.body) for each, content in world.operations.dead.show(X)] == [
        (here.seq, '"here"'),
        (here.seq + 1, '"of a file"'),
    ]
    assert load(world, file).known == 1


@pytest.mark.covers("X61")
def test_a_letter_from_a_file_stands_beside_a_pending_message_of_its_id(world: World) -> None:
    publish(world, "of a file")
    world.operations.messages.poison(X, "dies")
    file = exported(world)
    world.sql("delete from holdfast.dead")
    publish(world, "here")
    assert load(world, file).stored == 1
    assert bodies(world) == ["here"]


@pytest.mark.covers("X61")
def test_an_import_starts_nothing_again_that_was_done_before_it_died_elsewhere(world: World) -> None:
    """The file is of another database, in which the same message died later than it was done here."""
    publish(world, "m")
    (leased,) = world.claim()
    world.done(leased)
    created = leased.message.created_at
    world.clock.advance(seconds=3600)
    line = {
        "holdfast": 1, "id": str(X), "queue": "q", "seq": 5, "type": "order.placed", "stream": None, "position": None,
        "subject": None, "dedupe": None, "status": 32769, "epoch": 1, "attempts": 1, "failures": 1, "vanished": 0,
        "refunds": 0, "redrives": 0, "reason": 7, "last_reason": 2, "worker": None, "created_at": created.isoformat(),
        "due_at": None, "deadline": None, "died_at": world.clock.instant.isoformat(), "fingerprint": None,
        "held_at": None, "held_why": None, "errors": None, "headers": None, "body": "1", "deaths": [],
    }  # fmt: skip
    file = json.dumps(line).encode() + b"\n"
    assert (load(world, file).stored, load(world, file).ended) == (0, 1)
    other = json.dumps(line | {"created_at": world.clock.instant.isoformat()}).encode() + b"\n"
    assert load(world, other).stored == 1  # another message, of the same id
    assert load(world, file, force=True).stored == 1


def test_a_file_is_looked_up_in_the_history_in_one_pass(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(450):
        world.publish(queue="q", subject=str(n))
    for leased in world.claim(total=500):
        world.die(leased)
    file = exported(world)
    world.sql("delete from holdfast.dead")
    passes, desk = [], world.operations.files._desk
    real = desk.ask

    def ask(asked: Any) -> Any:
        def counted() -> Any:
            plan = world.store.bound(asked)
            statement = next(plan)
            passes.append("op_dead_over" if "have ended in their queue" in statement.sql else "other")
            rows = yield statement
            while True:
                try:
                    rows = yield plan.send(rows)
                except StopIteration as end:
                    return end.value

        return real(counted())

    monkeypatch.setattr(desk, "ask", ask)
    assert load(world, file).stored == 450
    assert passes.count("op_dead_over") == 1
