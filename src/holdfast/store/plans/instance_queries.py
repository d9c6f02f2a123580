"""Questions of operators about instances of orchestrations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from ...model import names
from ..statement import Plan, single, statements
from ..values import encode, instant
from .instances import Shown, shown

sql = statements("instances")

LAST = "\U0010ffff"  # sorts after every character that a name may have
NEXT = "\x01"  # sorts before every character that a name may have


@single
def find(
    *,
    name: str | None = None,
    version: str | None = None,
    states: Sequence[str] | None = None,
    is_open: bool | None = None,
    is_troubled: bool | None = None,
    attributes: Mapping[str, str] | None = None,
    limit: int,
) -> Plan[list[Shown]]:
    """Instances, those that moved last first. Arguments that are None do not filter."""
    queue = None if name is None else f"{name}@"
    if name is not None and version is not None:
        queue = f"{name}@{version}"
    rows = yield sql(
        "instance_find",
        low=queue,
        high=None if queue is None else f"{queue}{LAST if version is None else NEXT}",
        version=None if version is None else f"@{version}",
        states=None if states is None else list(states),
        open=is_open,
        troubled=is_troubled,
        wanted=encode(dict(attributes)) if attributes else None,
        limit=limit,
    )
    return [shown(row) for row in rows]


@single
def like(text: str, *, ending: bool, limit: int) -> Plan[list[str]]:
    """Ids that begin with a text, or with `ending` also those that end with it."""
    text = names.askable(text)
    rows = yield sql(
        "instance_like", low=text, high=f"{text}{LAST}", ending=text if ending else "",
        length=len(text) if ending else 1, limit=limit,
    )  # fmt: skip
    return [str(id) for (id,) in rows]


class Count(NamedTuple):
    """How many instances of a version are in a state, of those that have not ended, and the start of the oldest."""

    queue: str
    state: str
    many: int
    since: datetime


@single
def counts() -> Plan[list[Count]]:
    rows = yield sql("instance_counts")
    return [Count(queue, state, int(count), instant(since)) for queue, state, count, since in rows]


class OpenInstance(NamedTuple):
    """An instance that has not ended, and its position."""

    id: str
    queue: str
    execution: int
    turn: int
    state: str


@single
def open_after(queue: str, id: str, *, limit: int) -> Plan[list[OpenInstance]]:
    """Instances that have not ended, after this one, in the order of (queue, id)."""
    rows = yield sql("instance_open_after", queue=queue, id=id, limit=limit)
    return [OpenInstance(*row) for row in rows]


@single
def executions(id: str) -> Plan[list[int]]:
    """The executions of an instance whose journal is stored."""
    rows = yield sql("instance_executions", id=id)
    return [int(execution) for (execution,) in rows]


@single
def long(events: int, size: int) -> Plan[tuple[int, str | None]]:
    """How many instances that have not ended have a journal of so many events or bytes, and one of them."""
    ((count, id),) = yield sql("instance_long", events=events, bytes=size)
    return int(count), id
