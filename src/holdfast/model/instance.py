"""An instance of an orchestration, as its application and its operators see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class InstanceStatus:
    """Where an instance is. `status` is what its code said about itself; `trouble` why it cannot go on."""

    id: str
    orchestration: str
    version: str
    state: str  # running, paused, suspended, completed, failed, cancelled, terminated
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
    is_sealed: bool = False  # for operators: its status cannot be opened with the keys here, and is None

    @property
    def queue(self) -> str:
        return f"{self.orchestration}@{self.version}"
