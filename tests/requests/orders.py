"""What must be true of a request after any order of sweeps, results, acceptances and extensions: an oracle.

It looks only at what is stored, and knows nothing of the rules: the first result that was received by the deadline has
decided; without one, the request has failed if anybody looked behind the deadline, and else it is open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from holdfast.model.request import Happening, RequestState
from holdfast.requests.hooks import hook_id
from holdfast.store.plans import requests
from holdfast.store.statement import Plan, Statement

HOOKS = ("completed", "failed", "delayed")


def stored(id: UUID, messages: str) -> Plan[tuple[requests.Whole, list[requests.Result], list[str]]]:
    """The request, its results in the order of their times, and the hooks that have a message."""
    whole = yield from requests.show(id)
    assert whole is not None
    results = yield from requests.results(id, 100)
    rows = yield Statement(f"select queue, id from {messages} order by 1")
    at = whole.held.created_at
    assert all(str(row[1]) == str(hook_id(id, at, Happening(row[0].rpartition(".")[2]))) for row in rows)
    return whole, results, [row[0].rpartition(".")[2] for row in rows]


def faults(
    found: tuple[requests.Whole, Sequence[requests.Result], Sequence[str]], answers: Sequence[Any]
) -> list[str]:
    """What is wrong. `answers` are what the operations said: an accepted result is its id."""
    whole, results, hooks = found
    row, wrong = whole.held, []
    accepted = [each for each in answers if isinstance(each, UUID)]
    in_time = [each for each in results if each.received_at <= row.deadline]
    late = [each for each in results if each.received_at > row.deadline]
    if len({each.received_at for each in results}) < len(results):
        wrong.append("two results were received at one moment")
    first = in_time[0] if in_time else None
    if first is not None:
        state = RequestState.COMPLETED if first.failed is None else RequestState.FAILED
        if (row.state, whole.result, row.timed_out_at) != (state, first.id, None):
            wrong.append(f"{first} came in time and {whole} was not decided by it")
        standings = ["decisive"] + ["duplicate"] * (len(results) - 1)
        if accepted:
            wrong.append("a result was accepted although one had come in time")
        told = ["completed" if first.failed is None else "failed"]
    elif accepted:
        if len(accepted) > 1 or row.state is not RequestState.COMPLETED or whole.result != accepted[0]:
            wrong.append(f"{accepted} were accepted, and {whole}")
        if not any(each.id == accepted[0] and each.failed is None for each in late):
            wrong.append("what was accepted is no good late result")
        received = [each.received_at for each in results]
        standings = [
            "late" if whole.accepted_at is None or at < whole.accepted_at else "duplicate" for at in received
        ]
        told = ["completed", "failed"]
    else:
        looked = bool(late) or row.timed_out_at is not None
        if looked != (row.state is RequestState.FAILED and row.reason == "TIMEOUT"):
            wrong.append(f"no result came in time, and {whole}")
        if row.timed_out_at is not None and row.timed_out_at <= row.deadline:
            wrong.append(f"it timed out before its deadline: {whole}")
        standings = ["late"] * len(results)
        told = ["failed"] if looked else []
    if [str(each.standing) for each in results] != standings:
        wrong.append(f"results stand {[str(each.standing) for each in results]}, not {standings}")
    if [each for each in hooks if each != "delayed"] != told or hooks.count("delayed") > 1:
        wrong.append(f"hooks {hooks} and not {told}")
    if (whole.results, whole.late) != (len(results), standings.count("late")):
        wrong.append(f"{whole.results} results and {whole.late} late ones are counted, of {standings}")
    return wrong
