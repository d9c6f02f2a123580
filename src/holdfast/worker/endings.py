"""Around the rule that says how an attempt ends: texts are masked before it, copies sealed and logs written after."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from msgspec import structs

from ..bodies.keys import Keys
from ..model.message import Reason
from ..model.work import Leased, Outcome, Settlement
from ..rules.classify import describe
from ..rules.delivery import (
    BatchFailed,
    Died,
    Ending,
    HandlerPolicy,
    Raised,
    Sealed,
    TrialFailed,
    Unreadable,
    conclude,
)
from ..rules.redact import ROOM, Masking, looked_at
from ..telemetry.logs import Log

log = Log("holdfast.worker")


def concluded(
    leased: Leased,
    ending: Ending,
    policy: HandlerPolicy,
    masking: Masking,
    keys: Keys | None,
    now: datetime,
    roll: float,
) -> Settlement | None:
    """What becomes of the message, ready to be stored. None: the lease is lost."""
    if masking.functions:
        ending = masked(ending, masking, policy.error_chars)
    settlement = conclude(leased, ending, policy, now, roll)
    return settlement if settlement is None or keys is None else sealed(settlement, keys)


def masked(ending: Ending, masking: Masking, chars: int) -> Ending:
    """The same ending with the text of its error as the application's own functions leave it."""

    def text(said: str) -> str:
        return masking(looked_at(said, chars))

    match ending:
        case BatchFailed(alone):
            inside = masked(alone, masking, chars)
            assert isinstance(inside, type(alone))
            return BatchFailed(inside)
        case Raised() | TrialFailed() | Unreadable():
            return replace(ending, text=text(describe(ending.error, ROOM * chars)))
        case Sealed(error):
            return replace(ending, text=text(describe(error.__cause__ or error, ROOM * chars)))
        case Died(why):
            return replace(ending, text=text(f"Dead: {why}"))
    return ending


def sealed(settlement: Settlement, keys: Keys) -> Settlement:
    """The settlement with the copy sealed for the message that it becomes; without it if it cannot be opened here.

    A body that is sealed is bound to its message. As it is it would open for nobody.
    """
    if settlement.copy is None:
        return settlement
    original, emits = settlement.leased.message, []
    for each in settlement.emits:
        if each.id != settlement.copy:
            emits.append(each)
        elif (body := keys.moved(original.id, original.type, each.id, each.type, original.body)) is not None:
            emits.append(structs.replace(each, body=body))
    return structs.replace(settlement, emits=tuple(emits), copy=None)


def log_failure(leased: Leased, settlement: Settlement, error: str) -> None:
    told = {**named(leased), "error": error.partition(":")[0], "outcome": settlement.outcome}
    if settlement.outcome is Outcome.DEAD:
        log.error(
            "message.died",
            "Message %(message_id)s of type %(type)s is a dead letter in %(queue)s after attempt %(attempt)d: "
            "%(error)s (reason %(died_of)d, last failure %(reason)d, cause %(fingerprint)s)",
            **told, reason=_reason(settlement), died_of=settlement.reason, fingerprint=settlement.fingerprint,
        )  # fmt: skip
    else:
        log.warning(
            "message.failed",
            "Message %(message_id)s of type %(type)s failed in %(queue)s at attempt %(attempt)d: %(error)s, "
            "%(outcome)s (reason %(reason)d)",
            **told, reason=_reason(settlement),
        )  # fmt: skip


def _reason(settlement: Settlement) -> Reason:
    return settlement.last_reason or settlement.reason or Reason.UNKNOWN


def named(leased: Leased) -> dict[str, Any]:
    """What a log record says about the message that it is about. Never its body, headers or dedupe key."""
    message = leased.message
    return {
        "message_id": message.id,
        "type": message.type,
        "queue": message.queue,
        "stream": message.stream,
        "attempt": leased.attempt,
    }
