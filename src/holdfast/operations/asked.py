"""Why a request is in its state, in sentences, and what is wrong with requests as a whole."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from ..model.request import RequestState
from ..model.text import counted
from ..store.plans import requests
from ..store.plans.operator import moment
from ..store.plans.requests import Whole
from .desk import Desk
from .results import Finding, clock

OVERDUE_SECONDS = 60.0  # a running worker sweeps within a second


def why_request(desk: Desk, id: UUID) -> list[str]:
    """Sentences about a request; none if there is none with this id."""
    whole = desk.ask(requests.show(id))
    if whole is None:
        return []
    at = desk.ask(moment())
    held = whole.held
    kind = held.kind if held.variant is None else f"{held.kind}, {held.variant}"
    name = f"Request {id} ({kind})"
    if held.state is RequestState.OPEN:
        return _open(whole, name, at)
    assert held.ended_at is not None
    ended = clock(held.ended_at, at)
    match held.state:
        case RequestState.COMPLETED if whole.accepted_at is not None:
            sentence = (
                f"had timed out, and was completed with a late result that {whole.accepted_by} accepted at "
            )
            return [f"{name} {sentence}{clock(whole.accepted_at, at)}."]
        case RequestState.COMPLETED:
            return [f"{name} was completed at {ended}.", *_others(whole)]
        case RequestState.CANCELLED:
            return [f"{name} was cancelled at {ended}: {held.reason}.", *_others(whole)]
        case _ if held.timed_out_at is None:
            return [f"{name} failed at {ended}: the other side said {held.reason!r}.", *_others(whole)]
    sentence = f"{name} failed at {ended}: no result had come by its deadline, {clock(held.deadline, at)}."
    if not whole.late:
        return [sentence]
    late = f"{counted(whole.late, 'result')} came late: `holdfast requests show {id}` shows them, and "
    return [sentence, late + f"`holdfast requests accept {id} --why ...` accepts one that is good."]


def _open(whole: Whole, name: str, at: datetime) -> list[str]:
    held = whole.held
    until = clock(held.deadline, at)
    if at > held.deadline:
        return [
            f"{name} has no result, and its deadline passed at {until}. No worker has recorded that yet: it is "
            "failed as soon as one runs."
        ]
    sentence = f"{name} waits for a result until {until}"
    delayed = "" if held.told_at is None else f"; it is delayed since {clock(held.told_at, at)}"
    sent = "" if held.type is None else f" It was sent as a message of type {held.type}, with the same id."
    return [f"{sentence}{delayed}.{sent}"]


def _others(whole: Whole) -> list[str]:
    others = whole.results - (1 if whole.result is not None else 0)
    if not others:
        return []
    came = "result came" if others == 1 else "results came"
    return [f"{others} more {came} and changed nothing."]


def problems(overdue: int, following: datetime | None, at: datetime) -> list[Finding]:
    """Deadlines that passed some time ago and that no worker has swept."""
    if not overdue or following is None or (at - following).total_seconds() < OVERDUE_SECONDS:
        return []
    text = f"{counted(overdue, 'request')} should have timed out, the first at {clock(following, at)}."
    return [
        Finding(
            "warning",
            "requests-overdue",
            text,
            "Start a worker: any one of the application sweeps deadlines.",
        )
    ]
