"""Slots in the store: who holds how many, and who of them is alive.

The holders of a limit stand in a row of the breakers' table, which is what is needed: small, with a version, and
written by compare and swap. Its name begins with PREFIX: no breaker can have it, and nobody takes it for one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from ..names import RESERVED_PREFIX
from .breaker_plans import TRIES, BreakerRow, look, swap
from .plans import Plans, sql
from .statement import Plan

PREFIX = f"{RESERVED_PREFIX}slots/"

Holders = list[tuple[int, int, float, tuple[str, ...]]]  # worker, held, lease, queues
Decide = Callable[[Holders, Mapping[int, float]], Holders | None]
_holders = msgspec.json.Decoder(Holders)


def ages(plans: Plans, now: Any) -> Plan[dict[int, tuple[float, tuple[str, ...]]]]:
    """How many seconds ago each worker was seen, and its queues."""
    found = {}
    for number, age, queues in (yield sql(plans, "worker_ages", now=now)):
        listed = msgspec.json.decode(queues) if isinstance(queues, str) else queues
        found[number] = (float(age), tuple(listed))
    return found


def change(plans: Plans, name: str, decide: Decide, now: Any) -> Plan[bool]:
    """Compare and swap the holders of a limit: what `decide` makes of them is written if nobody was faster.

    None or the same: nothing is written. False: others changed it all the time.
    """
    for _ in range(TRIES):
        # The ages after the holders, each time: one who registered in between would be a holder without an age, dead.
        row, moment = yield from look(plans, PREFIX + name, now)
        seen = yield from ages(plans, now)
        before = read(row)
        after = decide(before, {number: age for number, (age, _) in seen.items()})
        if after is None or after == before:
            return True
        if (yield from swap(plans, _row(row, after, moment))):
            return True
    return False


def living(plans: Plans, name: str, now: Any) -> Plan[Holders]:
    """Who holds slots, and is alive."""
    row, _ = yield from look(plans, PREFIX + name, now)
    seen = yield from ages(plans, now)
    return [each for each in read(row) if each[1] and each[0] in seen and seen[each[0]][0] < each[2]]


def read(row: BreakerRow) -> Holders:
    return _holders.decode(row.calls) if row.calls else []


def _row(row: BreakerRow, holders: Holders, now: datetime) -> BreakerRow:
    return row._replace(calls=msgspec.json.encode(holders).decode(), changed_at=row.changed_at or now)
