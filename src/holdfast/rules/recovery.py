"""Which dead letters are redriven automatically: after a while, a limited number of times, for the declared reasons.

Waiting does not help when the message itself is wrong: reasons 3 (validation), 5 (serialization) and 7 (poison) are
refused. A message that an operator has buried has reason 7, so no policy undoes it. Redrives by an operator count too,
so no message is redriven for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ..errors import InvalidSettings
from ..model.message import Reason

NEVER = frozenset({Reason.VALIDATION_FAILURE, Reason.SERIALIZATION_ERROR, Reason.POISON_MESSAGE})
AFTER_MAX = 366 * 86_400.0


@dataclass(frozen=True, slots=True)
class Recovery:
    """Redrive a dead letter automatically: `after` this many seconds (or a timedelta), at most this many `times`."""

    after: float | timedelta
    times: int = 1

    def __post_init__(self) -> None:
        after: Any = self.after
        times: Any = self.times
        seconds = after.total_seconds() if isinstance(after, timedelta) else after
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= AFTER_MAX:
            raise InvalidSettings(f"Recovery: after={self.after!r} must be a time between 0 and a year.")
        if isinstance(times, bool) or not isinstance(times, int) or times < 1:
            raise InvalidSettings(f"Recovery: times={self.times!r} must be a whole number, 1 or more.")
        object.__setattr__(self, "after", float(seconds))

    @property
    def seconds(self) -> float:
        assert isinstance(self.after, float)
        return self.after


@dataclass(frozen=True, slots=True)
class Due:
    """Which dead letters of a queue come back now: died, or were stored from a file, before then, and were redriven
    less often than that.
    """

    queue: str
    reason: Reason
    here_before: datetime
    redrives_below: int


def checked(recovery: Mapping[Any, Any]) -> dict[Reason, Recovery]:
    """The declared policies, after a check."""
    made: dict[Reason, Recovery] = {}
    for reason, each in recovery.items():
        if not isinstance(reason, Reason) or not isinstance(each, Recovery):
            raise InvalidSettings(f"recovery: {reason!r}: {each!r} must be a Reason and a Recovery.")
        if reason in NEVER:
            raise InvalidSettings(
                f"recovery: a dead letter with reason {reason.value} ({reason.name.lower().replace('_', ' ')}) "
                "does not get better by waiting: edit and redrive it by hand."
            )
        made[reason] = each
    return made


def due(policies: Iterable[tuple[str, Mapping[Reason, Recovery]]], now: datetime) -> list[Due]:
    """What is to be redriven now, by the policies of all queues."""
    return [
        Due(queue, reason, now - timedelta(seconds=each.seconds), each.times)
        for queue, recovery in policies
        for reason, each in sorted(recovery.items())
    ]
