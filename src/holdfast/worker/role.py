"""What kind of worker this is, and what it does besides running handlers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..rules.housekeeping import Rest
from .standings import Companion
from .ticking import Step


@dataclass(frozen=True, slots=True)
class Role:
    """`quarantine`: it takes suspects, one at a time, and nothing else. `until_idle`: it ends when nothing is due.

    `embedded`: it runs inside an application and has no supervisor, so it takes suspects itself.
    """

    quarantine: bool = False
    embedded: bool = True
    until_idle: bool = False


@dataclass(frozen=True, slots=True)
class Duties:
    """What any worker of an application does by the clock, and the tasks that run beside its loop (inboxes)."""

    housekeeping: Callable[[], Rest] | None = None
    steps: Mapping[str, Step] = field(default_factory=dict)
    companions: Sequence[Companion] = ()
