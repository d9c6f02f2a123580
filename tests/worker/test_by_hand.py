"""A worker written by hand, `app.process_work_batch` and nothing else: it finds again what a dead one held, hands out
suspects alone, and starts nothing more often than its policy allows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, Reason, RetryPolicy
from holdfast.clock import MovableClock
from holdfast.model.work import Leased


class Hands:
    """Applications of one kind on one database, by one clock: each is a process of its own."""

    def __init__(self, url: str) -> None:
        self.url, self.clock = url, MovableClock()
        self.apps: list[Holdfast] = []

    def __call__(self, **options: Any) -> Holdfast:
        app = Holdfast(self.url, clock=self.clock)

        @app.handler("item", name="q", retry="immediate", **options)
        def q(body: int) -> None: ...

        @app.handler("other", name="r", retry="immediate")
        def r(body: int) -> None: ...

        self.apps.append(app)
        return app


@pytest.fixture
def hands(url: str) -> Iterator[Hands]:
    made = Hands(url)
    made().prepare()
    yield made
    for app in made.apps:
        app.close()


def bodies(work: Any) -> list[Any]:
    return [json.loads(each.message.body) for each in work]


def take(app: Holdfast, count: int = 10, **options: Any) -> list[Leased]:
    return list(app.process_work_batch(want={"q": count}, **options).work)


def dies_with(hands: Hands, count: int = 10) -> list[Any]:
    """A process that takes work and is never heard of again; its leases have lapsed."""
    taken = bodies(take(hands(), count, lease=5))
    hands.clock.advance(seconds=6)
    return taken


@pytest.mark.covers("X11", "X13")
def test_what_a_dead_one_held_is_handed_out_again(hands: Hands) -> None:
    app = hands()
    for n, stream in ((1, "s"), (2, None), (3, "s")):
        app.publish("item", n, stream=stream)
    assert dies_with(hands) == [1, 2, 3]
    got = []
    for _ in range(3):
        other = hands()
        for leased in take(other):
            got += bodies([leased])
            other.process_work_batch([other.done(leased)])
    assert sorted(got) == [1, 2, 3]
    assert app.operations.messages.find() == []


@pytest.mark.covers("X39", "X13")
def test_a_suspect_is_handed_out_alone_and_nothing_beside_it(hands: Hands) -> None:
    hands().publish("item", 1)
    hands().publish("item", 2)
    assert dies_with(hands) == [1, 2]
    app = hands()
    app.publish("item", 3)
    (first,) = take(app)
    assert first.message.vanished == 1
    assert take(app) == []  # while it is held
    assert app.process_work_batch(want={"r": 5}).work == []
    app.process_work_batch([app.done(first)])
    assert bodies(take(app)) == [3]  # what is no suspect has its turn in between


@pytest.mark.covers("X39")
def test_who_holds_something_is_given_no_suspect(hands: Hands) -> None:
    hands().publish("item", 1)
    assert dies_with(hands) == [1]
    app = hands()
    app.publish("other", 10)
    app.publish("item", 11)
    held = list(app.process_work_batch(want={"r": 1}).work)
    hands.clock.advance(seconds=2)
    held += take(app)
    assert bodies(held) == [10, 11]
    app.process_work_batch([app.done(held.pop())])
    assert take(app) == []  # 10 is still held
    (suspect,) = app.process_work_batch([app.done(held.pop())], want={"q": 10}).work
    assert (bodies([suspect]), suspect.message.vanished) == ([1], 1)


@pytest.mark.covers("X39")
def test_a_suspect_that_is_handed_in_makes_room_in_the_same_call(hands: Hands) -> None:
    for n in range(3):
        hands().publish("item", n)
    assert dies_with(hands) == [0, 1, 2]
    app, got, results = hands(), [], []
    for _ in range(4):
        work = app.process_work_batch(results, want={"q": 10}).work
        assert len(work) <= 1
        got += bodies(work)
        results = [app.done(each) for each in work]
    assert sorted(got) == [0, 1, 2]


def test_an_own_lease_that_lapsed_is_not_held_any_more(hands: Hands) -> None:
    app = hands()
    app.publish("item", 1)
    (lost,) = take(app, lease=5)
    hands.clock.advance(seconds=6)
    (again,) = take(app)
    assert (lost.message.id, again.attempt, again.message.vanished) == (again.message.id, 2, 1)
    assert app.process_work_batch([app.done(lost)]).lost == {lost.message.seq}
    assert app.process_work_batch([app.done(again)]).lost == frozenset()


@pytest.mark.covers("X39", "D4")
def test_what_kills_its_workers_becomes_a_dead_letter_and_its_neighbours_do_not(hands: Hands) -> None:
    """Each process dies of 1, whatever it holds beside it."""
    for n in range(4):
        hands().publish("item", n)
    done: list[Any] = []
    starts = 0
    for _ in range(40):
        app = hands()
        work = take(app, lease=5)
        if 1 in bodies(work):
            starts += 1
            hands.clock.advance(seconds=6)
            continue
        app.process_work_batch([app.done(each) for each in work])
        done += bodies(work)
        hands.clock.advance(seconds=2)
    (letter,) = hands().operations.dead.list()
    assert sorted(done) == [0, 2, 3]
    assert (starts, letter.attempts) == (5, 6)
    assert "never came back" in (letter.error or "")


def test_what_stands_behind_poison_in_its_stream_goes_on(hands: Hands) -> None:
    app = hands()
    for n in range(3):
        app.publish("item", n, stream="s")
    for _ in range(5):
        (head,) = take(app, run=1)
        app.process_work_batch([app.give_back(head, refund=False)])
    assert bodies(take(app)) == [1, 2]
    assert [letter.attempts for letter in app.operations.dead.list()] == [6]


def test_a_spent_message_in_the_middle_of_a_run_ends_the_run(hands: Hands) -> None:
    app = hands(on_dead="continue")
    for n in range(3):
        app.publish("item", n, stream="s")
    for _ in range(5):  # 1 is handed out and never started; 0 is given back each time without being counted
        run = take(app)
        app.process_work_batch(
            [app.give_back(run[0]), *(app.give_back(each, refund=False) for each in run[1:2])]
        )
    first = take(app)
    assert bodies(first) == [0]
    app.process_work_batch([app.done(each) for each in first])
    assert bodies(take(app)) == [2]
    assert len(app.operations.dead.list()) == 1


@pytest.mark.covers("X13")
def test_it_does_not_look_for_dead_ones_at_every_call(hands: Hands) -> None:
    app, looks = hands(), []
    app.process_work_batch(want={"q": 1})
    recover = app.store.engine.recover
    app.store.engine.recover = lambda *a, **k: (looks.append(1), recover(*a, **k))[1]  # type: ignore[method-assign]
    for _ in range(100):
        app.process_work_batch(want={"q": 1})
    assert looks == []
    hands.clock.advance(seconds=1.5)
    for _ in range(100):
        app.process_work_batch(want={"q": 1})
    assert looks == [1]


def test_a_failure_that_is_reported_may_name_its_reason(tmp_path: Path) -> None:
    app = Holdfast(f"sqlite:///{tmp_path}/a.db")

    @app.handler("a", retry=RetryPolicy(attempts_max=1))
    async def work(body: dict) -> None: ...

    app.publish("a", {})
    (leased,) = app.process_work_batch([], {"work": 1}).work
    app.process_work_batch([app.failed(leased, 0, "no answer", reason=Reason.DEPENDENCY_FAILURE)])
    (letter,) = app.operations.dead.list()
    assert letter.last_reason is Reason.DEPENDENCY_FAILURE
    app.close()
