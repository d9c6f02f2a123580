"""Turns that are run ahead beside whatever else happens to their instance, in every order of their statements.

A worker ends an activity and hands in the next turn of its instance with it. Meanwhile a signal comes, another worker
has a turn of the instance, an operator suspends it, or its activity is taken from the worker. On PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from holdfast.model.work import Delta, Report, Want
from holdfast.store.plans import engine, instance_commands
from tests import servers
from tests.orchestrations.scene import NEW, OLD, REFUSED, Scene, exploring, own, schedules
from tests.proof.explorer import Explorer
from tests.proof.session import Body
from tests.store.box import Box, done, new
from tests.store.guessing import FLOW, WORK, begun, guessed, row

ID, OTHER = "i", "j"


@dataclass
class Left:
    """What is stored of the instance at the end."""

    turn: int
    state: str
    journal: list[tuple[int, str]]
    stream: list[str]  # the types of its messages, in their order
    heads: int
    calls: list[str]
    open: int
    halted: bool


class World:
    """An instance that waits for a call which the old worker has; another one whose turn the old worker has, too."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.store, app = scene, scene.store, scene.app
        box = Box(self.store, app.clock, app.url)
        box.workers = {"one": OLD}
        self.leased, self.other = begun(box, ID, OTHER)
        box.publish(new("signal", type="signal", queue=FLOW, stream=OTHER))
        self.head = box.claim_one(FLOW)
        self.now = scene.keep()

    def turn(self) -> Left:
        """What is stored now; after which everything is as it was."""
        query = self.scene.query
        ((turn, state),) = query(f"select turn, state from holdfast.instance where id = '{ID}'")
        ((count, halted),) = query(f"select open, halted_by from holdfast.stream where name = '{ID}'")
        stream = query(
            f"select type, head from holdfast.message where queue = '{FLOW}' and stream = '{ID}' order by position"
        )
        calls = query(
            f"select body from holdfast.message where queue = '{WORK}' and subject = '{ID}' order by body"
        )
        journal = query(f"select turn, body from holdfast.journal where id = '{ID}' order by turn")
        left = Left(
            turn, state, journal, [type for type, _ in stream], sum(head for _, head in stream),
            [body for (body,) in calls], count, halted is not None,
        )  # fmt: skip
        self.scene.put_back()
        return left


def guesses(w: World) -> Body:
    yield from engine.exchange(Report(OLD, [guessed(w.leased)]))


def guesses_beside_a_turn(w: World) -> Body:
    """In the same exchange a turn of another instance, which sends itself a signal."""
    turn = replace(
        done(w.head, new("more", type="signal", queue=FLOW, stream=OTHER, id_is_given=False)),
        delta=Delta("turns", (row(OTHER, 2),)),
    )
    yield from engine.exchange(Report(OLD, [guessed(w.leased), turn]))


def signals(w: World) -> Body:
    message = new("signal", type="signal", queue=FLOW, stream=ID, id_is_given=False)
    yield from own(engine.append([message], place=True))


def signals_both(w: World) -> Body:
    """In a user's transaction, so that the streams are locked when it commits."""
    messages = [
        new("signal", type="signal", queue=FLOW, stream=each, id_is_given=False) for each in (OTHER, ID)
    ]
    yield from own(engine.append(messages))


def suspends(w: World) -> Body:
    yield from own(instance_commands.suspend(ID, "why"))


def takes_over(w: World) -> Body:
    yield from own(engine.recover(worker=OLD, running=[w.leased.message.seq]))


def turns(w: World) -> Body:
    """Another worker: a signal, and the turn that it makes."""
    yield from signals(w)
    batch = yield from engine.exchange(Report(NEW, want=[Want(FLOW, 5)], total=5, run=1))
    for leased in batch.work:
        if leased.message.type == "signal" and leased.message.stream == ID:
            mine = replace(done(leased), delta=Delta("turns", (row(ID, 2, body=OTHERS),)))
            yield from engine.exchange(Report(NEW, [mine]))


OTHERS = '"of another"'
OPERATIONS: dict[str, Callable[[World], Body]] = {
    each.__name__: each
    for each in (guesses, guesses_beside_a_turn, signals, signals_both, suspends, takes_over, turns)
}


def faults(left: Left, names: tuple[str, ...], errors: list[str]) -> list[str]:
    """What must not be. The guess is stored whole, or the answer is; or neither, if the lease was lost."""
    found = [each for each in errors if "turns" not in names or REFUSED not in each]
    mine, theirs = (2, '"turn 2"') in left.journal, (2, OTHERS) in left.journal
    end = (mine, "answer" in left.stream, tuple(left.calls))
    if end not in {(True, False, ("2",)), (False, True, ()), (False, False, ("1",))}:
        found.append(f"neither the guess nor the answer, or parts of both: {end}")
    if end == (False, False, ("1",)) and "takes_over" not in names:
        found.append("the activity has not ended")
    if left.turn != 1 + mine + theirs or [turn for turn, _ in left.journal] != [*range(1, left.turn + 1)]:
        found.append(f"turn {left.turn} with the journal {left.journal}")
    if left.open != len(left.stream) or left.heads != bool(left.stream and not left.halted):
        found.append(f"{left.open} open and {left.heads} heads of {left.stream}, halted: {left.halted}")
    if left.state != ("suspended" if "suspends" in names else "running"):
        found.append(f"state {left.state}")
    return found


@pytest.fixture(scope="module")
def explored(postgres_server: servers.Server) -> Iterator[tuple[World, Explorer]]:
    with exploring(postgres_server, World) as found:
        yield found


def check(explored: tuple[World, Explorer], names: tuple[str, ...], preemptions: int | None) -> set[bool]:
    """In which schedules the guess was stored: in some, or none."""
    runs = schedules(
        explored, OPERATIONS, names, preemptions, lambda run: faults(run.left, names, run.faults),
        "schedules of guesses",
    )  # fmt: skip
    assert len(runs) > 2
    return {(2, '"turn 2"') in run.left.journal for run in runs}


PAIRS = (
    ("guesses", "signals"), ("guesses", "suspends"), ("guesses", "takes_over"), ("guesses", "turns"),
    ("guesses_beside_a_turn", "signals_both"),
)  # fmt: skip
TRIPLES = (("guesses", "signals", "suspends"), ("guesses", "turns", "takes_over"))


@pytest.mark.one_postgres
@pytest.mark.parametrize("names", PAIRS, ids="-".join)
def test_a_guess_beside_something_else(explored: tuple[World, Explorer], names: tuple[str, ...]) -> None:
    assert check(explored, names, 1) == {True, False}


@pytest.mark.faults("explorer")
@pytest.mark.one_postgres
@pytest.mark.parametrize("names", [*PAIRS, *TRIPLES], ids="-".join)
def test_in_every_order(explored: tuple[World, Explorer], names: tuple[str, ...]) -> None:
    """Every one for two; three, and a worker that does three things, with one change of who goes on."""
    many = len(names) > 2 or "turns" in names
    assert check(explored, names, 1 if many else None) == {True, False}
