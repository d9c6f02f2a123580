"""What a death leaves behind: a copy for a backup handler, news for the hook; and what comes back by itself."""

from __future__ import annotations

import io
import json
import logging
import signal
import subprocess
import sys
import time
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from msgspec import ValidationError

from holdfast import (
    Alert,
    Context,
    CopyTo,
    Dead,
    DeadLetter,
    Holdfast,
    InvalidSettings,
    Reason,
    Recovery,
    RetryPolicy,
)
from holdfast.bodies.keys import new_key
from holdfast.errors import Refused
from holdfast.operations import Filter, Operations
from holdfast.rules import delivery
from holdfast.rules.aftermath import HOOK_QUEUE, AfterDeath
from holdfast.rules.delivery import conclude
from holdfast.rules.policy import HandlerPolicy
from holdfast.store.plans import engine
from holdfast.testing import Drained
from tests.operations.world import NOON, World

TWICE = RetryPolicy(attempts_max=2, base=0.0)


@pytest.fixture
def app(url: str) -> Any:
    app = Holdfast(url)
    if not url.startswith("sqlite"):
        app.migrate()
    yield app
    app.close()


def drain(app: Holdfast) -> None:
    """Work until there is nothing left to do."""
    import asyncio

    app.prepare()
    asyncio.run(app.worker(until_idle=True).run())


# -- a copy for a backup handler


@pytest.mark.covers("V23", "X50")
def test_a_backup_handler_gets_a_copy_when_the_first_has_given_up(app: Holdfast) -> None:
    """V23: after its retries a transcription is tried with another service."""
    heard: list[tuple[dict[str, Any], dict[str, Any], str | None]] = []

    @app.handler("backup only")
    async def second_service(body: dict[str, Any], ctx: Context) -> None:
        heard.append((body, ctx.headers, ctx.stream))

    @app.handler("speech", retry=TWICE, after_death=second_service)
    async def first_service(body: dict[str, Any]) -> None:
        raise ConnectionError("down")

    id = app.publish("speech", {"n": 1}, stream="s", headers={"a": "b"}, dedupe="k").id
    drain(app)
    ((body, headers, stream),) = heard
    assert (body, stream) == ({"n": 1}, "s")
    assert headers["holdfast-original-id"] == str(id)
    assert json.loads(headers["holdfast-died-in"]) == ["first_service"]
    assert headers["a"] == "b"
    (letter,) = app.operations.dead.list()  # and the dead letter is held all the same
    assert (letter.id, letter.queue) == (id, "first_service")


def test_copies_do_not_go_round_in_a_circle(app: Holdfast) -> None:
    starts: list[str] = []

    @app.handler("a", after_death=CopyTo("second"))
    async def first(body: int) -> Dead:
        starts.append("first")
        return Dead("no")

    @app.handler("b", after_death=first)
    async def second(body: int) -> Dead:
        starts.append("second")
        return Dead("neither")

    app.publish("a", 1)
    drain(app)
    assert starts == ["first", "second"]
    assert {each.queue for each in app.operations.dead.list()} == {"first", "second"}


def test_a_copy_must_go_somewhere_else(app: Holdfast) -> None:
    with pytest.raises(InvalidSettings, match="another queue"):
        app.handler("a", name="same", after_death=CopyTo("same"))(lambda body: None)
    with pytest.raises(InvalidSettings, match="after_death"):
        app.handler("a", name="x", after_death="burn")


@pytest.mark.covers("X3")
def test_a_death_under_a_lost_lease_leaves_nothing(world: World) -> None:
    world.publish(queue="q")
    (leased,) = world.claim()
    world.clock.advance(seconds=60)
    world.store.run(engine.recover())
    policy = HandlerPolicy(after_death=AfterDeath(copy=CopyTo("backup"), has_hook=True))
    settlement = conclude(leased, delivery.Died("no"), policy, NOON, 0.5)
    assert settlement is not None
    assert len(settlement.emits) == 2
    assert world.store.run(engine.settle([settlement], ())) == set()
    assert world.operations.dead.list() == []
    assert [each.queue for each in world.operations.messages.find()] == ["q"]


@pytest.mark.parametrize("headers", [None, "{broken", "[1]", '{"holdfast-died-in": "nonsense"}'])
def test_whatever_stands_in_its_headers_a_message_can_die(world: World, headers: str | None) -> None:
    world.publish(queue="q", headers=headers)
    (leased,) = world.claim()
    policy = HandlerPolicy(after_death=AfterDeath(copy=CopyTo("backup"), has_hook=True))
    settlement = conclude(leased, delivery.Died("no"), policy, NOON, 0.5)
    assert settlement is not None
    assert world.store.run(engine.settle([settlement], ()))
    assert {each.queue for each in world.operations.messages.find()} == {"backup", HOOK_QUEUE}


# -- the hook


@pytest.mark.covers("V31", "X50")
def test_the_hook_is_called_for_each_death_with_the_full_letter(app: Holdfast) -> None:
    tickets: list[DeadLetter] = []

    @app.handler("order.placed", retry=TWICE)
    async def before(body: dict[str, Any]) -> None:
        raise ValueError("no customer 17")

    @app.on_dead_letter
    async def ticket(letter: DeadLetter) -> None:
        tickets.append(letter)

    @app.handler("order.paid")
    def behind(body: dict[str, Any]) -> Dead:
        return Dead("no use")

    one = app.publish("order.placed", {"n": 1}, stream="s", subject="o/1", headers={"h": 1}).id
    two = app.publish("order.paid", {"n": 2}).id
    drain(app)
    letters = {letter.id: letter for letter in tickets}
    assert (set(letters), len(tickets)) == ({one, two}, 2)
    first = letters[one]
    assert (first.queue, first.type, first.stream, first.subject) == ("before", "order.placed", "s", "o/1")
    assert (first.data, json.loads(first.headers or "")) == ({"n": 1}, {"h": 1})
    assert (first.attempts, first.reason, first.last_reason) == (
        2,
        Reason.POISON_MESSAGE,
        Reason.HANDLER_EXCEPTION,
    )
    assert first.error == "ValueError: no customer 17"
    assert [error.text for error in first.errors] == ["ValueError: no customer 17"] * 2
    ((stored, _),) = app.operations.dead.show(one)
    assert (first.fingerprint, first.died_at, first.worker) == (
        stored.fingerprint,
        stored.died_at,
        stored.worker,
    )
    assert letters[two].reason is Reason.VALIDATION_FAILURE


@pytest.mark.covers("V31")
def test_a_hook_that_fails_is_called_again_and_hears_nothing_of_itself(app: Holdfast) -> None:
    calls: list[UUID] = []

    @app.on_dead_letter
    def ticket(letter: DeadLetter) -> None:
        calls.append(letter.id)
        if len(calls) < 3:
            raise ConnectionError("no ticket system")

    app.handlers._by_name[HOOK_QUEUE] = _impatient(app.handlers[HOOK_QUEUE], 3)

    @app.handler("a")
    def dies(body: int) -> Dead:
        return Dead("no")

    id = app.publish("a", 1).id
    drain(app)
    assert calls == [id] * 3
    assert [each.queue for each in app.operations.dead.list()] == ["dies"]


def test_a_hook_that_never_works_becomes_a_dead_letter_and_nothing_else(app: Holdfast) -> None:
    @app.on_dead_letter
    def ticket(letter: DeadLetter) -> None:
        raise ConnectionError("no ticket system")

    app.handlers._by_name[HOOK_QUEUE] = _impatient(app.handlers[HOOK_QUEUE], 2)

    @app.handler("a")
    def dies(body: int) -> Dead:
        return Dead("no")

    app.publish("a", 1)
    drain(app)
    assert sorted(each.queue for each in app.operations.dead.list()) == ["dies", HOOK_QUEUE]


def _impatient(handler: Any, starts: int) -> Any:
    from dataclasses import replace

    policy = replace(handler.policy, retry=RetryPolicy(attempts_max=starts, base=0.0))
    return replace(handler, policy=policy)


def test_the_hook_hears_of_what_an_operator_buries_and_of_what_was_discarded_meanwhile(app: Holdfast) -> None:
    letters: list[DeadLetter] = []

    @app.on_dead_letter
    def ticket(letter: DeadLetter) -> None:
        letters.append(letter)

    app.prepare()
    id = app.publish("a", {"n": 1}, queue="nobody").id
    app.operations.messages.poison(id, "it is no good")
    app.operations.dead.discard(id, "at once")
    drain(app)
    (letter,) = letters
    assert (letter.id, letter.queue, letter.data, letter.error) == (id, "nobody", {"n": 1}, "it is no good")
    assert (letter.reason, letter.errors) == (Reason.POISON_MESSAGE, ())


def test_the_hook_hears_of_deaths_in_a_worker_written_by_hand(app: Holdfast) -> None:
    letters: list[DeadLetter] = []

    @app.on_dead_letter
    def ticket(letter: DeadLetter) -> None:
        letters.append(letter)

    id = app.publish("a", 1, queue="by hand").id
    (leased,) = app.process_work_batch(want={"by hand": 1}).work
    app.process_work_batch([app.failed(leased, 0, ValidationError("no"))])
    drain(app)
    assert [letter.id for letter in letters] == [id]


KILLED = """
import asyncio, os, signal, sys
from holdfast import Dead, Holdfast
app = Holdfast(sys.argv[1], lease=1, heartbeat=0.3)

@app.handler("a")
def dies(body):
    return Dead("no")

@app.on_dead_letter
def ticket(letter):
    if sys.argv[2] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    print(letter.id, letter.error, flush=True)

app.prepare()
app.operations.housekeeping()
if sys.argv[2] == "kill":
    app.publish("a", 1)
asyncio.run(app.worker(until_idle=True).run())
"""


@pytest.mark.covers("V31", "X50")
def test_killed_in_its_hook_it_is_called_again(app: Holdfast, url: str) -> None:
    def run(word: str) -> subprocess.CompletedProcess[str]:
        given = [sys.executable, "-c", KILLED, url, word]
        return subprocess.run(given, capture_output=True, text=True, timeout=60)

    assert run("kill").returncode == -signal.SIGKILL
    (letter,) = app.operations.dead.list()
    time.sleep(1.5)  # its lease lapses
    assert run("work").stdout == f"{letter.id} Dead: no\n"


def test_there_is_one_hook_and_it_takes_the_letter(app: Holdfast) -> None:
    with pytest.raises(InvalidSettings, match="takes the letter"):
        app.on_dead_letter(lambda: None)  # type: ignore[arg-type, misc]
    app.on_dead_letter(lambda letter: None)
    with pytest.raises(InvalidSettings, match="already"):
        app.on_dead_letter(lambda letter: None)


@pytest.mark.covers("V30")
def test_a_death_is_logged_as_an_error_with_id_and_reason(
    app: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    @app.handler("a")
    def dies(body: int) -> Dead:
        return Dead("no")

    id = app.publish("a", 1).id
    caplog.set_level(logging.WARNING)
    drain(app)
    (record,) = [each for each in caplog.records if getattr(each, "event", "") == "message.died"]
    assert (record.levelname, record.message_id, record.died_of) == ("ERROR", str(id), 3)  # type: ignore[attr-defined]


class Ears:
    """A sink that remembers."""

    name = "ears"

    def __init__(self) -> None:
        self.heard: list[tuple[str, str, str]] = []

    def send(self, alert: Alert) -> None:
        self.heard.append((alert.name, alert.subject, alert.what))


@pytest.mark.covers("V24", "X50")
def test_a_handler_may_ask_for_an_alert(world: World) -> None:
    """V24: after its retries a network error alerts an administrator; once, and the all-clear an hour later."""
    app, ears = Holdfast("sqlite:///:memory:"), Ears()
    app.handler("a", name="q", after_death="alert")(lambda body: None)
    app.handler("b", name="quiet")(lambda body: None)
    ours = Operations(world.store, world.settings, app.handlers, sinks=[ears])
    theirs = Operations(world.store, world.settings, sinks=[ears])  # knows nothing of these handlers

    def look(*desks: Operations) -> list[tuple[str, str, str]]:
        ears.heard.clear()
        for desk in desks:
            desk.alerts.look(now=True)
            desk.alerts.send()
        return [each for each in ears.heard if each[0] == "deaths"]

    for queue in ("q", "quiet"):
        world.publish(queue=queue)
        world.die(world.claim(queue, name=f"of {queue}")[0], last=Reason.TRANSPORT_UNAVAILABLE)
    assert look(theirs) == []
    assert look(ours) == [("deaths", "q", "raised")]
    for _ in range(3):
        world.clock.advance(minutes=15)
        assert look(theirs, ours) == []
    world.clock.advance(minutes=16)
    assert look(ours) == []
    world.clock.advance(minutes=2)
    assert look(theirs) == [("deaths", "q", "over")]
    app.close()


# -- coming back by itself

REASONS = {Reason.DEPENDENCY_FAILURE: Recovery(after=timedelta(hours=1), times=2)}


def test_what_cannot_get_better_by_waiting_is_refused(app: Holdfast) -> None:
    for reason in (Reason.VALIDATION_FAILURE, Reason.SERIALIZATION_ERROR, Reason.POISON_MESSAGE):
        with pytest.raises(InvalidSettings, match="does not get better"):
            Holdfast(app.url, recovery={reason: Recovery(after=60)})
        with pytest.raises(InvalidSettings, match="does not get better"):
            app.handler("a", name=f"x{reason}", recovery={reason: Recovery(after=60)})(lambda body: None)
    for wrong in ({"after": 0}, {"after": -1.0}, {"after": 60, "times": 0}, {"after": "60"}, {"after": 1e12}):
        with pytest.raises(InvalidSettings, match="Recovery"):
            Recovery(**wrong)


@pytest.mark.covers("X46")
def test_dead_letters_come_back_by_the_policy_of_their_last_reason(world: World) -> None:
    """After an hour, twice; others stay, and so do those that are held."""
    app = Holdfast("sqlite:///:memory:", recovery=REASONS)
    app.handler("order.placed", name="q")(lambda body: None)
    operations = type(world.operations)(world.store, world.settings, app.handlers)
    ids = {}
    for name, last in (("down", 6), ("bug", 2), ("held", 6)):
        ids[name] = world.publish(queue="q")
        world.die(world.claim()[0], last=Reason(last))
    other = world.publish(queue="other")
    world.die(world.claim("other", name="w2")[0], last=Reason.DEPENDENCY_FAILURE)
    operations.dead.hold(ids["held"], "mine")
    assert operations.housekeeping().redriven == 0
    for times in (1, 2):
        world.clock.advance(minutes=59)
        assert operations.housekeeping().redriven == 0
        world.clock.advance(minutes=2)
        assert operations.housekeeping().redriven == 1
        (leased,) = world.claim()
        assert leased.message.id == ids["down"]
        world.die(leased, last=Reason.DEPENDENCY_FAILURE)
        assert operations.dead.list(Filter(ids=(ids["down"],)))[0].redrives == times
    world.clock.advance(days=1)
    assert operations.housekeeping().redriven == 0
    assert {each.id for each in operations.dead.list()} == {*ids.values(), other}
    app.close()


def recovering(world: World) -> Operations:
    app = Holdfast("sqlite:///:memory:", recovery=REASONS)
    app.handler("order.placed", name="q")(lambda body: None)
    app.close()
    return Operations(world.store, world.settings, app.handlers)


def test_no_policy_brings_back_what_an_operator_has_buried(world: World) -> None:
    operations, id = recovering(world), world.publish(queue="q")
    world.fail(world.claim()[0], 600.0, Reason.DEPENDENCY_FAILURE)
    operations.messages.poison(id, "never charge this customer")
    world.clock.advance(hours=2)
    assert operations.housekeeping().redriven == 0
    assert operations.dead.redrive(id)[0].id == id  # a person may


def test_the_while_begins_when_a_letter_was_stored_here(world: World) -> None:
    operations, id = recovering(world), world.publish(queue="q")
    world.die(world.claim()[0], last=Reason.DEPENDENCY_FAILURE)
    file = io.BytesIO()
    operations.files.export(None, file)
    operations.dead.discard(id, "to be imported")
    world.clock.advance(days=1)
    operations.files.load(io.BytesIO(file.getvalue()), force=True)
    world.clock.advance(minutes=59)
    assert operations.housekeeping().redriven == 0
    world.clock.advance(minutes=2)
    assert operations.housekeeping().redriven == 1


def test_a_handler_may_say_something_else_about_a_reason() -> None:
    app = Holdfast("sqlite:///:memory:", recovery=REASONS)
    own = {Reason.TIMEOUT_EXCEEDED: Recovery(after=5), Reason.DEPENDENCY_FAILURE: Recovery(after=7)}
    handler = app.handler("a", name="x", recovery=own)(lambda body: None)
    assert {reason: each.seconds for reason, each in handler.policy.recovery.items()} == {4: 5.0, 6: 7.0}
    app.close()


def test_in_a_test_the_hook_is_drained_like_any_handler() -> None:
    app, letters = Holdfast("sqlite:///:memory:"), []

    @app.handler("a")
    def dies(body: int) -> Dead:
        return Dead("no")

    app.on_dead_letter(lambda letter: letters.append(letter.error))
    t: Drained
    with app.testing() as t:
        app.publish("a", 1)
        t.drain(raises=False)
    assert letters == ["Dead: no"]


# -- with bodies that are sealed


def test_copies_hooks_and_edits_of_sealed_bodies(url: str) -> None:
    """A sealed body is bound to its message, so a copy is sealed anew; the hook gets it open."""
    app = Holdfast(url, keys=new_key("k"))
    if not url.startswith("sqlite"):
        app.migrate()
    heard: list[Any] = []

    @app.handler("backup")
    def second(body: dict[str, Any]) -> None:
        heard.append(body)

    @app.handler("speech", after_death=CopyTo("second", type="backup"))
    def first(body: dict[str, Any]) -> Dead:
        return Dead("no")

    app.on_dead_letter(lambda letter: heard.append(letter.data))
    id = app.publish("speech", {"card": "4711 0815"}).id
    drain(app)
    assert heard == [{"card": "4711 0815"}] * 2
    ((_, content),) = app.operations.dead.show(id)
    assert "4711" not in content.body
    without = Holdfast(url)
    with pytest.raises(Refused, match="sealed"):
        without.operations.dead.edit(id, "{}")
    without.close()
    app.operations.dead.edit(id, '{"card": "4712"}')
    ((_, content),) = app.operations.dead.show(id)
    assert "4712" not in content.body
    app.close()


def test_a_body_that_cannot_be_opened_is_not_copied(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """As it is it would open for nobody: it is bound to its message."""
    publisher, worker = Holdfast(url, keys=new_key("theirs")), Holdfast(url, keys=new_key("ours"))
    if not url.startswith("sqlite"):
        publisher.migrate()

    @worker.handler("backup")
    def second(body: dict[str, Any]) -> None: ...

    once = RetryPolicy(attempts_max=1)

    @worker.handler("speech", retry=once, after_death=CopyTo("second", type="backup"))
    def first(body: dict[str, Any]) -> None: ...

    worker.prepare()
    id = publisher.publish("speech", {"card": "4711"}).id
    (leased,) = worker.process_work_batch(want={"first": 1}).work
    worker.process_work_batch([worker.failed(leased, 0, "it does not open")])
    assert [each.id for each in worker.operations.dead.list()] == [id]
    assert worker.operations.messages.find(Filter(queue="second")) == []
    (record,) = [each for each in caplog.records if getattr(each, "event", "") == "copy.unopened"]
    assert str(id) in record.getMessage()
    assert "theirs" in record.getMessage()
    publisher.close()
    worker.close()
