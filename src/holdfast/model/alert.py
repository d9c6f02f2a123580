"""Alerts as values: what was measured, the episodes of an alert, and what is reported about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Alert:
    """An episode of an alert began (`raised`) or is over. `number` is unique; both have the same `episode`.

    `subject` is the queue or breaker that it is about; empty: the whole.
    """

    number: int
    episode: int
    name: str
    subject: str
    what: Literal["raised", "over"]
    at: datetime
    since: datetime
    value: float
    threshold: float
    text: str
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Measure:
    """The current value of one subject; '' is the whole. `text` is a sentence for people, `details` is for machines."""

    subject: str
    value: float
    text: str
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Episode:
    """An alert that was raised and is not over. `number` is that of the news that it began."""

    name: str
    subject: str
    since: datetime
    value: float
    peak: float
    calm_since: datetime | None = None
    number: int = 0
    version: int = 0


@dataclass(frozen=True, slots=True)
class AlertRaised:
    """An episode begins, and is reported."""

    episode: Episode
    threshold: float
    text: str
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AlertChanged:
    """An episode continues: calmer, higher, or raised again. Nothing is reported."""

    before: Episode
    after: Episode


@dataclass(frozen=True, slots=True)
class AlertOver:
    """An episode is over, and that is reported."""

    episode: Episode
    value: float
    threshold: float
    text: str


Verdict = AlertRaised | AlertChanged | AlertOver
