"""What operators see of instances: their states, and what a command did, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import BodySealed
from ..model.progress import Progress
from ..store.plans.instances import Shown

if TYPE_CHECKING:
    from ..orchestrations.messages import Pen
    from ..orchestrations.steps import Fan, Step

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


@dataclass(frozen=True, slots=True)
class Unfit:
    """An instance that the code here cannot continue. `diff`: `-` is the journal, `+` the code."""

    id: str
    queue: str
    why: str
    diff: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FlowCheck:
    """What a check found. `missing`: versions that the code here does not have, with how many instances of each."""

    checked: int
    fit: int
    unfit: tuple[Unfit, ...]
    missing: dict[str, int] = field(default_factory=dict)
    sealed: int = 0  # journals that the keys here do not open

    @property
    def is_well(self) -> bool:
        return not self.unfit and not self.missing and not self.sealed


@dataclass(frozen=True, slots=True)
class RewindPoint:
    """The point to go back to: `to` asks for that step again, `after` keeps its answer. `at`: only if it is there."""

    to: str | None = None
    after: str | None = None
    keeps_signals: bool = True
    at: tuple[int, int] | None = None  # (execution, turn)


@dataclass(frozen=True, slots=True)
class RewoundInstance:
    """The result of a rewind, or of its rehearsal. `repeats`: effects that may happen a second time."""

    id: str
    queue: str
    state: str  # before
    execution: int  # before
    turn: int  # before
    point: str
    kept: int  # events
    dropped: int
    repeats: tuple[str, ...]
    asked_again: tuple[str, ...]
    delivered_again: tuple[str, ...]
    notes: tuple[str, ...]
    is_rehearsal: bool


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
