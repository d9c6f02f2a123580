"""The story of the demo, made from a seed: who orders what and when, and what goes wrong.

Two runs with one seed differ only in time; the transactions, their messages and their faults are the same.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

DATABASE = "HOLDFAST_DEMO_DATABASE"  # names the file, in the environment of the processes of one demo
STARTS_MAX = 6  # how often a handler may start with one message

ORDERS = 72
CUSTOMERS = 9
TILLS = 3  # threads that commit transactions at the same time
KILLS = (0.2, 0.4, 0.6, 0.8)  # when a worker process is killed, as a part of the story's time


@dataclass(frozen=True, slots=True)
class Publish:
    """One message that a transaction publishes."""

    type: str
    stream: str
    body: dict[str, Any]
    cursed: bool = False
    invalid: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """One transaction of the shop: a new state of an order, and the messages about it."""

    at: float  # 0..1, a part of the story's time
    till: int
    order: int
    customer: int
    cents: int
    state: str
    publishes: tuple[Publish, ...]
    rolled_back: bool = False


@dataclass(frozen=True, slots=True)
class Story:
    """All transactions, by till and sorted by time."""

    seed: int
    changes: tuple[Change, ...] = field(repr=False)

    @property
    def messages(self) -> int:
        return sum(len(change.publishes) for change in self.changes if not change.rolled_back)

    def of_till(self, till: int) -> list[Change]:
        return [change for change in self.changes if change.till == till]


def drawn(seed: int) -> Story:
    """The story of this seed.

    >>> drawn(7) == drawn(7), drawn(7) == drawn(8)
    (True, False)
    """
    dice = random.Random(seed)
    # Early, so that their effects happen while the others are handled.
    cursed, invalid = dice.sample(range(4, ORDERS // 4), 2)
    changes: list[Change] = []
    for order in range(1, ORDERS + 1):
        changes += _life(dice, order, cursed == order, invalid == order)
    return Story(seed, tuple(sorted(changes, key=lambda change: change.at)))


def _life(dice: random.Random, order: int, cursed: bool, invalid: bool) -> list[Change]:
    """An order is placed, paid and shipped; some are rolled back at the till, after everything was written."""
    begun = 0.8 * order / ORDERS
    customer, cents, till = dice.randrange(1, CUSTOMERS + 1), dice.randrange(500, 20_000), order % TILLS
    changes = []
    if dice.random() < 0.2:
        given_up = (_step(dice, "placed", order, cents), _points(dice, customer, order, cents))
        changes.append(Change(begun, till, -order, customer, cents, "placed", given_up, rolled_back=True))
    for part, state in enumerate(("placed", "paid", "shipped")):
        published = [
            _step(dice, state, order, cents, cursed=cursed and part == 1, invalid=invalid and part == 1)
        ]
        if part == 0:
            published.append(_points(dice, customer, order, cents))
        at = begun + part * 0.07 + 0.001
        changes.append(Change(at, till, order, customer, cents, state, tuple(published)))
    return changes


def _step(
    dice: random.Random, state: str, order: int, cents: int, *, cursed: bool = False, invalid: bool = False
) -> Publish:
    body: dict[str, Any] = {"order": order, "cents": cents, "seconds": round(dice.uniform(0.01, 0.15), 3)}
    body["busy"] = dice.choice((1, 2)) if dice.random() < 0.15 else 0
    if cursed:
        body["cursed"] = True
    if invalid:
        body["cents"] = "a lot"
    return Publish(f"order.{state}", f"order-{order}", body, cursed, invalid)


def _points(dice: random.Random, customer: int, order: int, cents: int) -> Publish:
    body = {"customer": customer, "order": order, "points": cents // 100}
    body["busy"] = dice.choice((1, 2)) if dice.random() < 0.15 else 0
    return Publish("points.earned", f"customer-{customer}", body)


def diary_of(database: str) -> str:
    """The file beside the database that logs each start of a handler, outside every transaction."""
    return database + ".starts"
