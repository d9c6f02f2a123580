"""Sweep, two results, acceptance and more time in every order of transactions, with the deadline at every place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import permutations
from typing import Any
from uuid import UUID

import pytest

from holdfast import NotFound, Refused
from holdfast.requests import verbs
from holdfast.store.statement import Plan, Statement
from tests.requests.desk import Desk
from tests.requests.orders import faults, stored

TICK = timedelta(microseconds=1)
Verb = Callable[[Desk, UUID], Any]


def sweep(desk: Desk, id: UUID) -> Any:
    return desk.app.store.run(verbs.sweep(desk.app.requests.pen))


def resolve(desk: Desk, id: UUID) -> Any:
    return desk.app.resolve(id, {"score": 7})


def fail(desk: Desk, id: UUID) -> Any:
    return desk.app.resolve(id, failed="no")


def accept(desk: Desk, id: UUID) -> Any:
    return desk.app.store.run(verbs.accept(id, None, "anna", desk.app.requests.pen))


def extend(desk: Desk, id: UUID) -> Any:
    return desk.app.store.run(verbs.extend(id, 2 * TICK))


def emptied(desk: Desk) -> Plan[None]:
    prefix = "holdfast_" if desk.app.store.has_one_writer else "holdfast."
    for table in ("message", "request", "request_result"):
        yield Statement(f"delete from {prefix}{table}")


def play(desk: Desk, order: tuple[Verb, ...], deadline: int) -> Iterator[str]:
    """The verbs one after the other, a microsecond apart; the deadline is at the time of verb number `deadline`."""
    desk.app.store.run(emptied(desk))
    start = desk.clock.instant
    id = desk.app.request(desk.grading, 1, deadline=start + timedelta(seconds=1)).id
    desk.clock.instant = start + timedelta(seconds=1) - deadline * TICK
    answers = []
    for verb in order:
        try:
            answers.append(verb(desk, id))
        except (Refused, NotFound) as refusal:
            answers.append(refusal)
        desk.clock.instant += TICK
    messages = "holdfast_message" if desk.app.store.has_one_writer else "holdfast.message"
    yield from faults(desk.app.store.read(stored(id, messages)), answers)


@pytest.mark.covers("X31", "V44", "V47")
@pytest.mark.parametrize(
    "verbs_of",
    [(resolve, resolve, accept, accept), (resolve, fail, accept)],
    ids=["two good results", "one of them fails"],
)
def test_every_order_of_transactions(desk: Desk, verbs_of: tuple[Verb, ...]) -> None:
    desk.app.prepare()
    every = sorted(set(permutations((sweep, extend, *verbs_of))), key=repr)
    chosen = [(order, place) for order in every for place in (1, 3, 5)]
    if not desk.app.store.has_one_writer:  # the same plans: a part shows that the statements mean the same
        chosen = chosen[::5]
    for order, place in chosen:
        wrong = list(play(desk, order, place))
        names = [each.__name__ for each in order]
        assert not wrong, f"{names}, the deadline at {place}: " + "; ".join(wrong)
    assert len(chosen) >= 60
