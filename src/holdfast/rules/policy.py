"""What a handler declares about its failures, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from ..errors import InvalidSettings
from ..model.message import Reason
from .aftermath import HOLD, AfterDeath
from .recovery import Recovery, checked
from .redact import Redactor, redact
from .retry import PROFILES, RetryPolicy

Ordering = Literal["strict", "available"]
OnDead = Literal["continue", "halt"]


@dataclass(frozen=True, slots=True)
class HandlerPolicy:
    """What a handler declares about its failures.

    `ordering`: a failed head of a stream keeps its place until its retry (`strict`) or leaves the order
    (`available`). `on_dead`: a stream continues after the death of its head, or halts. `declared`: what the
    handler's own exceptions mean. `after_death`: what a death stores besides the dead letter. `recovery`: which
    dead letters are redriven automatically, by the reason of their last failure.
    """

    retry: RetryPolicy = PROFILES["patient"]
    ordering: Ordering = "strict"
    on_dead: OnDead = "continue"
    declared: Mapping[type[BaseException], Reason] = field(default_factory=dict, hash=False)
    refunds_max: int = 100
    error_chars: int = 2000
    redact: Redactor = redact  # masks secrets in the texts of errors
    tracebacks: bool = True  # the last one is kept with the message, and logged
    after_death: AfterDeath = HOLD
    recovery: Mapping[Reason, Recovery] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.ordering not in ("strict", "available"):
            raise InvalidSettings(f'order={self.ordering!r} must be "strict" or "available".')
        if self.on_dead not in ("continue", "halt"):
            raise InvalidSettings(f'on_dead={self.on_dead!r} must be "continue" or "halt".')
        declared: dict[Any, Any] = dict(self.declared)
        for error, reason in declared.items():
            if not (
                isinstance(error, type) and issubclass(error, BaseException) and isinstance(reason, Reason)
            ):
                raise InvalidSettings(f"{error!r}: {reason!r} must be an exception type and a Reason.")
        object.__setattr__(self, "declared", MappingProxyType(declared))
        object.__setattr__(self, "recovery", MappingProxyType(checked(self.recovery)))
