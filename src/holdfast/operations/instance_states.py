"""What operators see of instances: their states, and what a command did, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from ..errors import BodySealed
from ..model.progress import Progress
from ..orchestrations.messages import Pen
from ..orchestrations.steps import Fan, Step
from ..store.plans.instances import Shown

STATES = ("running", "paused", "suspended", "completed", "failed", "cancelled", "terminated")


@dataclass(frozen=True, slots=True)
class InstanceState:
    """An instance in a list. `status` is what its code reports about itself; None if it cannot be opened."""

    id: str
    orchestration: str
    version: str
    state: str
    execution: int
    turn: int
    status: Any
    trouble: str | None
    attributes: Mapping[str, str]
    entries: int
    journal_bytes: int
    started_at: datetime
    turned_at: datetime | None
    ended_at: datetime | None
    is_sealed: bool = False  # a part of it cannot be opened with these keys

    @property
    def queue(self) -> str:
        return f"{self.orchestration}@{self.version}"


@dataclass(frozen=True, slots=True)
class InstanceDossier:
    """An instance with the steps of its current execution, and what it waits for. `unread`: why there are none.

    `progress`: the reported progress of calls, by their labels: `convert#3`.
    """

    state: InstanceState
    steps: tuple[Step, ...]
    fans: tuple[Fan, ...]
    why: tuple[str, ...]
    executions: tuple[int, ...]
    unread: str | None = None
    progress: Mapping[str, Progress] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Commanded:
    """What a command did to an instance."""

    id: str
    what: str
    state: str | None = None


def state_of(row: Shown, pen: Pen) -> InstanceState:
    name, _, version = row.queue.rpartition("@")
    status, is_sealed = None, False
    if row.status is not None:
        try:
            status = _plain(pen.open(f"status/{row.id}", row.status))
        except BodySealed:
            is_sealed = True
    attributes = {} if row.attributes is None else _plain(row.attributes)
    return InstanceState(
        row.id, name, version, row.state, row.execution, row.turn, status, row.trouble,
        attributes if isinstance(attributes, dict) else {"?": str(attributes)},
        row.entries, row.size, row.started_at, row.turned_at, row.ended_at, is_sealed,
    )  # fmt: skip


def _plain(text: str) -> Any:
    """JSON as a value. What is not JSON is shown as it is: a list must not fail because of one row."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
