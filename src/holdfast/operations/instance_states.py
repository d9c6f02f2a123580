"""What operators see of instances: their states, and what a command did, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import BodySealed
from ..model.instance import InstanceStatus
from ..model.progress import Progress
from ..store.plans.instances import Shown

if TYPE_CHECKING:
    from ..orchestrations.messages import Pen
    from ..orchestrations.steps import Fan, Step

STATES = ("running", "paused", "suspended", "completed", "failed", "cancelled", "terminated")


@dataclass(frozen=True, slots=True)
class InstanceDossier:
    """An instance with the steps of its current execution, and what it waits for. `unread`: why there are none.

    `progress`: the reported progress of calls, by their labels: `convert#3`.
    """

    state: InstanceStatus
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


def state_of(row: Shown, pen: Pen) -> InstanceStatus:
    status, is_sealed = None, False
    if row.status is not None:
        try:
            status = _plain(pen.open(f"status/{row.id}", row.status))
        except BodySealed:
            is_sealed = True
    attributes = {} if row.attributes is None else _plain(row.attributes)
    known = attributes if isinstance(attributes, dict) else {"?": str(attributes)}
    return row.as_status(status, known, is_sealed=is_sealed)


def _plain(text: str) -> Any:
    """JSON as a value. What is not JSON is shown as it is: a list must not fail because of one row."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
