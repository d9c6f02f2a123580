"""Slots in the store: which workers hold how many, and which of them are alive.

The holders of a limit are one small row with a version, written by compare and swap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from ..statement import Plan, single, statements, stepwise
from .breakers import TRIES

sql = statements("slots")

Holders = list[tuple[int, int, float, tuple[str, ...]]]  # worker, held, lease, queues
DecideSlots = Callable[[Holders, Mapping[int, float]], Holders | None]
_holders = msgspec.json.Decoder(Holders)


class SlotRow(NamedTuple):
    """The holders of a limit as they are stored. Version 0: no slot was held yet."""

    version: int
    holders: Holders


@single
def look(name: str) -> Plan[SlotRow]:
    """The workers that hold slots or wait for one; some of them may be dead."""
    rows = yield sql("slot_look", name=name)
    return SlotRow(rows[0][0], _holders.decode(rows[0][1])) if rows else SlotRow(0, [])


@single
def ages() -> Plan[dict[int, tuple[float, tuple[str, ...]]]]:
    """How many seconds ago each worker was seen, and its queues."""
    found = {}
    for number, age, queues in (yield sql("worker_ages")):
        listed = msgspec.json.decode(queues) if isinstance(queues, str) else queues
        found[number] = (float(age), tuple(listed))
    return found


@stepwise
def change(name: str, decide: DecideSlots) -> Plan[bool]:
    """Compare and swap the holders of a limit: the result of `decide` is written unless another process was faster.

    None or the same: nothing is written. False: others changed it at every try.
    """
    for _ in range(TRIES):
        # Read the ages after the holders: a worker that registered in between would have no age and look dead.
        row = yield from look(name)
        seen = yield from ages()
        after = decide(row.holders, {number: age for number, (age, _) in seen.items()})
        if after is None or after == row.holders:
            return True
        if (yield from _swap(name, row.version, after)):
            return True
    return False


def living(name: str) -> Plan[Holders]:
    """The live workers that hold slots."""
    row = yield from look(name)
    seen = yield from ages()
    return [each for each in row.holders if each[1] and each[0] in seen and seen[each[0]][0] < each[2]]


def _swap(name: str, version: int, holders: Holders) -> Plan[bool]:
    text = msgspec.json.encode(holders).decode()
    return bool((yield sql("slot_swap", name=name, version=version, holders=text)))
