"""Turns that are run ahead, as the database decides them: stored with the end of their activity, or the answer is."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest
from msgspec.structs import replace

from holdfast.model.work import Delta, Want
from holdfast.store.plans import instance_commands, queues
from tests.store.box import Box, done, new
from tests.store.guessing import FLOW, WORK, begun, guessed, is_stored, row, stand


def test_a_turn_that_fits_is_stored_with_the_end_of_its_activity(box: Box) -> None:
    """One exchange: the activity ends, its answer is consumed by the turn, and what that asks for can be claimed."""
    (leased,) = begun(box, "i")
    batch = box.exchange(guessed(leased), want=[Want(WORK, 1), Want(FLOW, 1)], total=2)
    assert not batch.lost
    assert is_stored(box, "i")
    assert [each.message.subject for each in batch.work] == ["i"]  # its next call, and no turn
    told = [each.outcome for each in box.read("history") if each.id == leased.message.id]
    assert told == ["done"]


def test_the_next_turn_comes_by_a_message_again(box: Box) -> None:
    """What enters the stream afterwards is at its head and is handed out."""
    (leased,) = begun(box, "i")
    box.settle(guessed(leased))
    box.publish(new("signal", type="signal", queue=FLOW, stream="i"))
    assert [each.message.type for each in box.claim(FLOW)] == ["signal"]


def signalled(box: Box) -> None:
    box.publish(new("signal", type="signal", queue=FLOW, stream="i"))


def being_turned(box: Box) -> None:
    signalled(box)
    box.claim_one(FLOW)


def suspended(box: Box) -> None:
    box.store.run(instance_commands.suspend("i", "why"))


def halted(box: Box) -> None:
    box.query("update {stream} set halted_by = 'me' where name = 'i'")


def in_a_paused_queue(box: Box) -> None:
    box.store.run(queues.pause(FLOW, "why"))


def terminated(box: Box) -> None:
    box.query("update {instance} set state = 'terminated'")


def with_another_mark(box: Box) -> None:
    box.query("update {instance} set mark = :mark", mark=str(uuid4()))


def at_another_turn(box: Box) -> None:
    box.query("update {instance} set turn = 7")


def in_another_execution(box: Box) -> None:
    box.query("update {instance} set execution = 1")


@pytest.mark.parametrize(
    "happens",
    [
        signalled, being_turned, suspended, halted, in_a_paused_queue, terminated, with_another_mark,
        at_another_turn, in_another_execution,
    ],
)  # fmt: skip
def test_a_turn_that_does_not_fit_leaves_the_answer_alone(box: Box, happens: Callable[[Box], None]) -> None:
    """Decided, and not an error: the activity has ended, and its answer is the last of the stream."""
    (leased,) = begun(box, "i")
    happens(box)
    before = [each.id for each in box.messages(FLOW)]
    turn, rows = stand(box, "i")[1:4], box.query("select id, turn from {journal} order by 1, 2")
    assert not box.exchange(guessed(leased)).lost
    assert stand(box, "i")[1:4] == turn
    assert box.query("select id, turn from {journal} order by 1, 2") == rows
    assert [each.type for each in box.messages(FLOW) if each.id not in before] == ["answer"]
    assert box.messages(WORK) == []
    assert box.stream("i", FLOW).open == len(before) + 1
    assert box.messages(FLOW)[-1].type == "answer"


def test_a_lost_lease_stores_neither_the_turn_nor_the_answer(box: Box) -> None:
    (leased,) = begun(box, "i")
    box.pass_time(seconds=3600)
    box.recover()
    assert box.exchange(guessed(leased)).lost == {leased.message.seq}
    assert stand(box, "i").turn == 1
    assert [each.id for each in box.messages(WORK)] == [leased.message.id]
    assert box.messages(FLOW) == []


def test_an_end_that_somebody_waits_for_comes_by_a_message(box: Box) -> None:
    (alone, child) = begun(box, "alone", "child")
    box.query("update {instance} set reply = 'x' where id = 'child'")
    ends = {"state": "completed", "result": "{}"}
    box.exchange(guessed(alone, **ends), guessed(child, **ends))
    assert (stand(box, "alone").state, stand(box, "child").state) == ("completed", "running")
    assert not is_stored(box, "child")


def test_some_of_an_exchange_fit_and_some_do_not(box: Box) -> None:
    """What is emitted besides keeps its order, before the answers of the guesses that do not fit."""
    ids = [f"i{n}" for n in range(12)]
    leased = begun(box, *ids)
    for id in ids[::3]:
        box.query("update {instance} set mark = :mark where id = :id", mark=str(uuid4()), id=id)
    beside = begun(box, "beside")[0]
    other = done(beside, new("first", type="signal", queue=FLOW, stream="i3"), new("loose"))
    assert not box.exchange(*(guessed(each) for each in leased), other).lost
    turns = {id: stand(box, id).turn for id in ids}
    assert turns == {id: 1 if n % 3 == 0 else 2 for n, id in enumerate(ids)}
    stream = [each for each in box.messages(FLOW) if each.stream == "i3"]
    assert [each.type for each in stream] == ["signal", "answer"]
    heads = {(each.message.stream, each.message.type) for each in box.claim(FLOW, run=1)}
    assert heads == {(id, "signal" if id == "i3" else "answer") for id in ids[::3]}


def test_withdrawn_timers_go_with_the_turn(box: Box) -> None:
    (leased,) = begun(box, "i")
    (timer,) = box.publish(new("late", queue="holdfast/timer", delay=3600.0, id_is_given=False))
    box.settle(guessed(leased, timers=[str(timer.id)]))
    assert is_stored(box, "i")
    assert box.query("select count(*) from {scheduled}") == [(0,)]


def test_a_turn_and_the_guess_after_it_are_stored_in_one_exchange(box: Box) -> None:
    """A worker that hands in late has both: they are applied in that order."""
    (first,) = begun(box, "i")
    box.publish(new("signal", type="signal", queue=FLOW, stream="i"))
    head = box.claim_one(FLOW)
    turn = done(head)
    turn = replace(turn, delta=Delta("turns", (row("i", 2),)))
    guess = guessed(first)
    assert guess.guess is not None
    third = replace(guess.guess, was=str(row("i", 2)["mark"]), turn=row("i", 3))
    assert not box.exchange(turn, replace(guess, guess=third)).lost
    assert stand(box, "i").turn == 3
    assert box.messages(FLOW) == []
