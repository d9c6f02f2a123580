"""The log records about outages, for every module that notices one."""

from __future__ import annotations

from ..model.outage import Outage
from ..rules.alert import length
from .logs import Log

log = Log("holdfast.outages")


def log_began(each: Outage) -> None:
    """Log that an outage was noticed."""
    text = (
        "no worker ran since %(down_since)s, and the oldest message is due since %(oldest_at)s"
        if each.cause == "absent"
        else "messages are late, and the oldest is due since %(oldest_at)s"
    )
    log.warning(
        "outage.began", f"Outage %(number)d: {text}", number=each.number, cause=each.cause, began_at=each.began_at,
        down_since=each.down_since, oldest_at=each.oldest_at,
    )  # fmt: skip


def log_ended(each: Outage) -> None:
    """Log that an outage is over, with its summary."""
    log.warning(
        "outage.ended",
        "Outage %(number)d is over after %(lasted)s: %(handled)d messages were handled late, by %(late_mean).0f s on "
        "average and %(late_max).0f s at most, %(per_second).2f a second; %(died)d became dead letters",
        number=each.number, cause=each.cause, began_at=each.began_at, ended_at=each.ended_at,
        down_since=each.down_since, oldest_at=each.oldest_at, handled=each.handled, died=each.died,
        late_mean=each.late_mean, late_max=each.late_max, per_second=round(each.per_second, 2),
        duration_seconds=each.seconds, lasted=length(each.seconds or 0.0),
    )  # fmt: skip
