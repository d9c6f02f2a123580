"""What holds back a queue that is not paused: its handler's breaker, rate, slots, catch-up and concurrency.

The application knows which handler needs which breaker; the database does not. With only a URL, the answer names all
breakers that are not closed.
"""

from __future__ import annotations

from datetime import datetime

from ..handlers.consumer import Limits
from ..limits.breakers import Breaker
from ..limits.circuits import as_switch
from ..model.limits import Rate
from ..rules.catchup import catch_up
from ..store.plans import breakers, queries, slots
from ..store.plans.breakers import BreakerRow
from .desk import Desk
from .results import Delivery, clock
from .states import QueueState

BREAKERS_MAX = 1000
HELD_MAX = 100_000


def broken(desk: Desk, each: Delivery, at: datetime) -> tuple[list[str], list[str]]:
    """Sentences about breakers that hold a message back, and about those that may."""
    rows = desk.ask(breakers.known(BREAKERS_MAX))
    shut = {row.name: row for row, _ in rows if row.state != "closed"}
    handler = desk.handlers.get(str(each.queue))
    breaker = None if handler is None else handler.limits(str(each.queue)).breaker
    if breaker is not None and breaker.name in shut:
        return [_sentence(shut[breaker.name], str(each.queue), at)], []
    listed = "; ".join(f"{row.name} is {_state(row)}{_until(row, at)}" for row in shut.values())
    if shut and handler is None:
        return [], [
            f"Breakers: {listed}. Only the application knows if queue {each.queue} needs one: ask with -a MODULE:APP."
        ]
    if shut and each.refunds:
        return [], [f"It was given back before, perhaps because of a breaker: {listed}."]
    return [], []


def _state(row: BreakerRow) -> str:
    return row.state.replace("_", " ")


def _until(row: BreakerRow, at: datetime) -> str:
    return f" until {clock(row.until, at)}" if row.state == "open" and row.until is not None else ""


def _sentence(row: BreakerRow, queue: str, at: datetime) -> str:
    because = f" ({row.why})" if row.why else ""
    since = f" since {clock(row.opened_at, at)}" if row.opened_at is not None else ""
    if row.state == "half_open":
        trials = (
            f"{row.trials_left} more may begin as trials" if row.trials_left else "its trials are under way"
        )
        return f"Breaker {row.name} is half open{because}: {trials}, and the rest of queue {queue} waits for them."
    if row.until is None:
        return (
            f"Breaker {row.name} is held open by an operator{since}{because}: nothing of queue {queue} is claimed "
            f"until `holdfast breakers reset {row.name}`."
        )
    lead = f"Breaker {row.name} is open{since}{because}"
    if row.until <= at:
        return f"{lead}: a trial is due, so the next message of queue {queue} may be one."
    return f"{lead}: nothing of queue {queue} is claimed before the first trial at {clock(row.until, at)}."


def busy(desk: Desk, queue: QueueState, at: datetime) -> list[str]:
    """Sentences about the limits of a queue's handler, if they are used up."""
    handler = desk.handlers.get(queue.name)
    if handler is None:
        return []
    limits = handler.limits(queue.name)
    return [
        *_rate(desk, limits, at),
        *_slots(desk, limits),
        *_catch_up(desk, limits),
        *_concurrency(desk, limits.concurrency * max(1, handler.batch), queue),
    ]


def _slots(desk: Desk, limits: Limits) -> list[str]:
    if limits.slots is None:
        return []
    name, count = limits.slots.name, limits.slots.count
    holders = desk.ask(slots.living(name))
    held = sum(each[1] for each in holders)
    if held < count:
        return []
    who = "1 worker" if len(holders) == 1 else f"{len(holders)} workers"
    return [f"All {count} slots of {name} are held, by {who}: the next begins when one that runs has ended."]


def _catch_up(desk: Desk, limits: Limits) -> list[str]:
    breaker = limits.breaker
    if not isinstance(breaker, Breaker):
        return []
    slope = catch_up(breaker.policy.catch_up, breaker.policy.catch_up_doubles)
    if slope is None:
        return []
    row, now = desk.ask(breakers.look(breaker.name))
    closed_at = as_switch(row, breaker.policy).closed_at
    passed = 0.0 if closed_at is None else (now - closed_at).total_seconds()
    rate = None if closed_at is None else slope.rate(passed)
    if rate is None:
        return []
    return [
        f"Breaker {row.name} has closed {passed:.0f} s ago: the backlog is started slowly, "
        f"{rate.per_second:.0f} a second now for all workers."
    ]


def _rate(desk: Desk, limits: Limits, at: datetime) -> list[str]:
    if limits.rate is None:
        return []
    name, rate = limits.rate.name, limits.rate.rate
    found = desk.ask(breakers.tokens(name))
    if found is None:
        return []
    tokens, then = found
    tokens = min(rate.burst, tokens + max(0.0, (at - then).total_seconds()) * rate.per_second)
    if tokens >= 1:
        return []
    wait = (1 - tokens) / rate.per_second
    return [f"Rate {name} of {spoken(rate)} is used up: the next message may begin in {wait:.1f} s."]


def spoken(rate: Rate) -> str:
    """A rate as it is written in settings."""
    for unit, seconds in (("s", 1), ("min", 60), ("h", 3600)):
        if rate.per_second * seconds >= 1:
            return f"{rate.per_second * seconds:g}/{unit}"
    return f"{rate.per_second * 86_400:g}/d"


def _concurrency(desk: Desk, limit: int, queue: QueueState) -> list[str]:
    held = desk.ask(queries.queue_held(queue.name, HELD_MAX))
    if not queue.workers or held < limit * len(queue.workers):
        return []
    count = len(queue.workers)
    whose = "its worker" if count == 1 else f"each of its {count} workers"
    return [
        f"Workers are busy: {held} messages of queue {queue.name} are leased, and {whose} runs {limit} at once."
    ]
