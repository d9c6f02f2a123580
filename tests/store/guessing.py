"""Activities that have ended, with the turns that their worker has run ahead: what tests of guesses hand in."""

from __future__ import annotations

from uuid import NAMESPACE_OID, UUID, uuid5

from holdfast.model.message import NewMessage
from holdfast.model.work import Delta, Guess, Leased, Settlement, Want
from holdfast.rules import delivery
from holdfast.store.plans import engine, instances
from holdfast.store.plans.instances import Stand
from holdfast.store.statement import Plan
from tests.store.box import Box, concluded, new

FLOW, WORK = "flow@1", "work"  # the queues of an orchestration and of its activity


def begun(box: Box, *ids: str) -> list[Leased]:
    """Instances whose first turn is stored and whose stream is empty; and a call of each, claimed."""
    box.store.run(engine.subscribe({FLOW: [], WORK: []}))

    def begin() -> Plan[None]:
        for id in ids:
            yield from instances.begin(new(id, stream=id, queue=FLOW))

    box.store.run(begin())
    heads = [each for each in box.claim(FLOW, heads=1000, run=1) if each.message.stream in ids]
    assert len(heads) == len(ids)
    turns = [
        concluded(each, delivery.Returned(emits=(call(id, 1),), delta=Delta("turns", (row(id, 1),))))
        for each in heads
        for id in [each.message.stream]
    ]
    assert not box.exchange(*turns).lost
    calls = box.exchange(want=[Want(WORK, len(ids))], total=len(ids)).work
    return sorted(calls, key=lambda each: ids.index(each.message.subject or ""))


def call(id: str | None, number: int) -> NewMessage:
    return new(number, queue=WORK, subject=id, id=uuid5(NAMESPACE_OID, f"{id}/{number}"), id_is_given=False)


def row(id: str | None, turn: int, **fields: object) -> dict[str, object]:
    """A turn of an instance, as it is stored."""
    return {
        "id": id, "execution": 0, "turn": turn, "part": 0, "body": f'"turn {turn}"', "state": "running",
        "mark": str(mark(id, turn)), "entries": turn, "size": turn, **fields,
    }  # fmt: skip


def mark(id: str | None, turn: int) -> UUID:
    return uuid5(NAMESPACE_OID, f"{id}/mark/{turn}")


def answer(id: str | None) -> NewMessage:
    return new("answer", type="answer", queue=FLOW, stream=id)


def guessed(leased: Leased, **fields: object) -> Settlement:
    """The end of a call with the second turn of its instance, which asks for another call."""
    id = leased.message.subject
    was = str(fields.pop("was", mark(id, 1)))
    guess = Guess(answer(id), was, row(id, 2, **fields), (call(id, 2),))
    return concluded(leased, delivery.Returned(guess=guess))


def stand(box: Box, id: str) -> Stand:
    return box.store.run(instances.stands([id]))[id]


def is_stored(box: Box, id: str) -> bool:
    """Whether the guess about this instance was stored: all of it, else nothing of it and the answer instead."""
    at, stream = stand(box, id), [each for each in box.messages(FLOW) if each.stream == id]
    answers = [each for each in stream if each.type == "answer"]
    calls = [each for each in box.messages(WORK) if each.subject == id]
    rows = box.query("select turn, body from {journal} where id = :id order by turn", id=id)
    assert rows == [(n, f'"turn {n}"') for n in range(1, len(rows) + 1)]
    found = bool(calls)
    assert (len(calls), len(answers), at.turn, len(rows)) == ((1, 0, 2, 2) if found else (0, 1, 1, 1))
    assert at.mark == mark(id, at.turn)
    assert box.stream(id, FLOW).open == len(stream)
    return found
