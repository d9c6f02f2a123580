"""An operator's questions, as plans for both databases. Rows come back as dictionaries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from ...clock import EPOCH
from ...model.names import serves
from ..statement import Plan, Query, single, statements
from ..text import Text
from ..values import as_id, as_text, decoded_errors, instant, when
from . import engine
from .operator import ago

sql = statements("queries")

Row = dict[str, Any]

DELIVERY = (
    "seq id queue type state stream position head subject status epoch attempts failures vanished refunds redrives"
    " reason created_at due_at deadline claimable_at target worker until error"
)
LETTER = (
    "seq id queue type stream position subject status epoch attempts failures vanished refunds redrives reason"
    " last_reason worker created_at due_at deadline died_at fingerprint held_at held_why stored_at error halts"
)
FOUND = ("queries/op_delivery", "queries/op_find")
WHOLE = " errors headers body dedupe traceback"
STREAM = (
    "queue stream open halted_by halted_at head_id type state claimable_at attempts failures vanished status reason"
    " created_at error failed_at worker until newest_at"
)
ENDED = "queue type stream subject outcome ended_at started_at due_at attempts failures status why origin"
ENDED_FOUND = "id queue type stream subject outcome ended_at started_at due_at attempts failures status why"
WORKER = "id name started_at seen_at queues asleep stopping leases"

DEATH = "id queue died_at seq type reason last_reason fingerprint worker error body"

BOOLEANS = {"head", "halts", "asleep", "stopping"}
INSTANTS = {"until", "deadline", "since"}
NUMBERS = {
    "status",
    "epoch",
    "attempts",
    "failures",
    "vanished",
    "refunds",
    "redrives",
    "reason",
    "last_reason",
}
REASON_MAX = 32_767
COUNT_MAX = 2_147_483_647  # no limit


def shape(names: str, rows: Sequence[tuple[Any, ...]]) -> list[Row]:
    """Rows with names, and with the same types of values from both databases."""
    return [
        {name: _value(name, value) for name, value in zip(names.split(), row, strict=True)} for row in rows
    ]


def _value(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in ("id", "head_id") and not isinstance(value, int):
        return as_id(value)
    if name == "failed_at":  # from an error history: a text
        return value if _is_time(value) else None
    if name == "errors":
        return [_trouble(each) for each in decoded_errors(value)]
    if name == "queues" and isinstance(value, str):
        return msgspec.json.decode(value)
    if name in BOOLEANS:
        return bool(value)
    if isinstance(value, datetime):
        return value
    # SQLite stores any type in any column: a wrong value is shown as None, or as text.
    if name.endswith("_at") or name in INSTANTS:
        return when(value) if isinstance(value, int) else EPOCH
    if name in NUMBERS:
        return value if isinstance(value, int) else 0
    return as_text(value) if isinstance(value, bytes) else value


def _trouble(entry: Any) -> dict[str, Any]:
    """An entry of an error history; it may have been written by another program."""
    known = entry if isinstance(entry, dict) else {"text": entry}
    if not _is_time(known.get("at")):
        known = {**known, "at": EPOCH.isoformat()}
    reason = known.get("reason")
    if not (reason is None or (type(reason) is int and 0 <= reason <= REASON_MAX)):
        known = {**known, "reason": None}
    text = known.get("text")
    return known if isinstance(text, str) else {**known, "text": msgspec.json.encode(text).decode()}


def _is_time(text: Any) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except (TypeError, ValueError):
        return False


# -- messages


ORDERS = {
    "newest": "order by d.seq desc",
    "oldest": "order by d.seq",
    "position": "order by d.position",
}
CONDITIONS = {
    "queue": "d.queue = :queue",
    "type": "d.type = :type",
    "stream": "d.stream = :stream",
    "reason": "d.reason = :reason",
    "states": "d.state = any (:states::text[])",
}
SUBJECT = "queries/op_subject"  # a condition on how the subject begins


def by_subject(params: dict[str, Any], conditions: list[str]) -> tuple[str, ...]:
    """Adds a condition on the subject: the whole, or its beginning (ends with *). Returns what is appended to them."""
    subject = params.get("subject")
    if subject is None:
        return ()
    if not subject.endswith("*"):
        conditions.append("d.subject = :subject::text")
        return ()
    del params["subject"]
    if subject == "*":
        conditions.append("d.subject is not null")
        return ()
    params["subject_from"], params["subject_to"] = subject[:-1], beyond(subject[:-1])
    return (SUBJECT,)


def beyond(beginning: str) -> str:
    """The first text that sorts after all with this beginning, by bytes. Surrogates are no characters."""
    last = ord(beginning[-1]) + 1
    if last > 0x10FFFF:
        return beyond(beginning[:-1]) if len(beginning) > 1 else beginning * 2
    return beginning[:-1] + chr(0xE000 if 0xD800 <= last <= 0xDFFF else last)


PLACES = {None: "true", True: "d.position is not null", False: "d.position is null"}


@single
def find(
    *,
    order: str = "newest",
    limit: int = 50,
    ordered: bool | None = None,
    **wanted: Any,
) -> Plan[list[Row]]:
    """Pending deliveries that match; `wanted` by the names in CONDITIONS; None does not filter.

    Unused conditions are left out, and the limit is written into the statement: both databases plan a
    statement without its parameters, and would read and join the whole table.
    """
    params = {name: value for name, value in wanted.items() if value is not None}
    conditions = [PLACES[ordered], *(CONDITIONS[name] for name in params if name != "subject")]
    behind = by_subject(params, conditions)
    where, tail = Text(f" where {' and '.join(conditions)}"), Text(f" {ORDERS[order]} limit {int(limit)}")
    rows = yield Query((*FOUND, where, *behind, tail), params)
    return shape(DELIVERY, rows)


@single
def ended(
    *,
    newest: bool = True,
    limit: int = 50,
    late: float | None = None,
    since: datetime | None = None,
    **wanted: Any,
) -> Plan[list[Row]]:
    """Rows of the history that match. By a subject they are found quickly; otherwise the history is read.

    `late`: those that began more than so many seconds after they were due, the latest first.
    """
    params = {name: value for name, value in wanted.items() if value is not None}
    conditions = ["true", *(CONDITIONS[name] for name in params if name != "subject")]
    behind = by_subject(params, conditions)
    order = f"d.ended_at {'desc' if newest else ''}, d.id"
    if since is not None:
        params["since"] = since
        conditions.append("d.ended_at >= :since::timestamptz")
    if late is not None:
        params["late"] = late
        behind, order = (*behind, "queries/op_ended_late"), "d.started_at - d.due_at desc, d.id"
    where = Text(f" where {' and '.join(conditions)}")
    tail = Text(f" order by {order} limit {int(limit)}")
    rows = yield Query(("queries/op_ended_find", where, *behind, tail), params)
    return shape(ENDED_FOUND, rows)


@single
def poison_candidates(attempts: int, limit: int) -> Plan[list[Row]]:
    """Failed messages with at least so many attempts that will be retried, most attempts first."""
    rows = yield Query((*FOUND, "queries/op_poison"), {"attempts": attempts, "limit": limit})
    return shape(DELIVERY, rows)


@single
def stuck(before: datetime, at: datetime, queue: str | None, limit: int) -> Plan[list[Row]]:
    """Messages that were due before a moment and are not leased, the oldest first."""
    params = {"before": before, "at": at, "queue": queue, "limit": limit}
    rows = yield Query((*FOUND, "queries/op_stuck"), params)
    return shape(DELIVERY, rows)


@single
def pending(id: UUID, queue: str | None, number: int | None = None) -> Plan[list[Row]]:
    """The rows that a command about a message means."""
    rows = yield sql("op_pending", id=str(id), queue=queue, number=number)
    return shape("seq queue type created_at due_at", rows)


def show(id: UUID) -> Plan[tuple[list[Row], list[Row], list[Row]]]:
    """Everything about a message: what is pending, what is dead, how it ended."""
    rows = yield Query(("queries/op_delivery", "queries/op_show"), {"id": str(id)})
    dead = yield sql("op_dead_show", id=str(id))
    ended = yield sql("op_history_of", id=str(id))
    deaths = shape(DEATH, (yield sql("op_deaths", ids=[str(id)])))
    found = shape(DELIVERY + WHOLE, rows), shape(LETTER + WHOLE, dead)
    for row in (*found[0], *found[1]):
        row["deaths"] = [each for each in deaths if each["queue"] == row["queue"]]
    return (*found, shape(ENDED, ended))


@single
def ahead(seq: int, limit: int) -> Plan[int]:
    """How many are claimed before this one, counted up to a limit."""
    ((count,),) = yield sql("op_ahead", seq=seq, limit=limit)
    return int(count)


# -- streams and queues


@single
def streams(
    *,
    queue: str | None = None,
    stream: str | None = None,
    blocked: bool = False,
    limit: int = 50,
) -> Plan[list[Row]]:
    """Streams with their heads."""
    rows = yield sql("op_streams", queue=queue, stream=stream, blocked=blocked, limit=limit)
    return shape(STREAM, rows)


def counts() -> Plan[list[Row]]:
    """Pending deliveries by queue and state: `find` would count the same, but joins every row with others."""
    rows, _ = yield from counts_up_to(COUNT_MAX)
    return rows


def counts_up_to(cap: int) -> Plan[tuple[list[Row], set[tuple[str, str]]]]:
    """The same. Scheduled ones are counted up to a limit; the second result says which states have more."""
    rows = yield sql("op_counts")
    oldest: dict[str, Any] = {}
    found: Counter[tuple[str, str]] = Counter()
    for row in shape("queue state count oldest_at", rows):
        found[row["queue"], row["state"]] = row["count"]
        if row["oldest_at"] is not None:
            oldest[row["queue"]] = min(row["oldest_at"], oldest.get(row["queue"], row["oldest_at"]))
    yield from leased_apart(found)
    yield from blocked_apart(found)
    for queue, count in (yield sql("op_counts_parked")):
        found[queue, "waiting"] += int(count)
        found[queue, "blocked"] -= int(count)
    more = yield from scheduled_too(found, oldest, cap)
    return counted_rows(found, oldest), more


def counted_rows(found: Counter[tuple[str, str]], oldest: Mapping[str, Any]) -> list[Row]:
    return [
        {"queue": queue, "state": state, "count": count, "oldest_at": oldest.get(queue)}
        for (queue, state), count in sorted(found.items())
        if count > 0
    ]


def scheduled_too(
    found: Counter[tuple[str, str]], oldest: dict[str, Any], cap: int
) -> Plan[set[tuple[str, str]]]:
    """Add the messages in `scheduled`, counted up to a limit; returns the states of queues that have more."""
    more: set[tuple[str, str]] = set()
    rows = yield Query(("counting/scheduled_capped",), {"cap": cap})
    for queue, *counts, due_at in rows:
        for state, count in zip(("ready", "scheduled", "parked"), counts, strict=True):
            found[queue, state] += int(count)
            if count >= cap:
                more.add((queue, state))
        if due_at is not None:
            oldest[queue] = min(instant(due_at), oldest.get(queue) or instant(due_at))
    return more


def leased_apart(found: Counter[tuple[str, str]]) -> Plan[None]:
    """Subtract leased messages, and those whose lease has expired, from the states that their rows have."""
    for queue, state, live, count, followers in (yield sql("op_counts_leased")):
        if queue is not None and (live or state in ("ready", "retrying", "scheduled")):
            found[queue, state] -= count
            found[queue, "leased" if live else "suspect"] += count
            found[queue, "waiting"] -= int(followers)
            found[queue, "leased"] += int(followers)


def blocked_apart(found: Counter[tuple[str, str]]) -> Plan[None]:
    """Subtract blocked messages from those that wait behind others."""
    for queue, count in (yield sql("op_counts_blocked")):
        found[queue, "waiting"] -= int(count)
        found[queue, "blocked"] += int(count)


@single
def queues() -> Plan[list[Row]]:
    return shape("name paused_at paused_why", (yield sql("op_queue_rows")))


@single
def queue_names() -> Plan[set[str]]:
    return {name for name, _ in (yield engine.sql("queue_names"))}


@single
def subscriptions() -> Plan[list[tuple[str, str]]]:
    rows = yield engine.sql("subscription_list")
    return sorted((queue, pattern) for pattern, queue in rows)


def worker_names(queue: str, seconds: float, limit: int) -> Plan[list[str]]:
    """The workers that take from a queue and were seen within so many seconds."""
    since = yield from ago(seconds)
    rows = yield sql("op_workers", limit=limit)
    return [
        row["name"]
        for row in shape(WORKER, rows)
        if row["seen_at"] >= since and serves(row["queues"] or (), queue)
    ]


@single
def is_paused(queue: str) -> Plan[bool]:
    return any(name == queue and at is not None for name, at, _ in (yield sql("op_queue_rows")))


@single
def waiting(cap: int) -> Plan[int]:
    """How many messages could be handled now, in queues that are not paused, counted up to a limit."""
    ((count,),) = yield sql("op_waiting", cap=cap)
    return int(count)


@single
def queue_pending(queue: str, cap: int) -> Plan[tuple[int, int]]:
    """How many messages are pending in a queue, counted up to a limit, and how many dead letters it has."""
    ((count, dead),) = yield sql("op_queue_pending", queue=queue, cap=cap)
    return int(count), int(dead)


@single
def queue_held(queue: str, limit: int) -> Plan[int]:
    """How many messages of a queue are leased, without those behind a head in a run."""
    ((count,),) = yield sql("op_queue_held", queue=queue, limit=limit)
    return int(count)


@single
def workers(limit: int) -> Plan[list[Row]]:
    return shape(WORKER, (yield sql("op_workers", limit=limit)))


# -- numbers


@single
def dead_counts() -> Plan[list[Row]]:
    return shape("queue count newest_at", (yield sql("op_dead_counts")))


def rates(seconds: float) -> Plan[list[Row]]:
    """What ended within the last seconds, by queue and outcome."""
    since = yield from ago(seconds)
    return shape("queue outcome count", (yield sql("op_rates", since=since)))


@single
def unrouted(limit: int) -> Plan[list[Row]]:
    return shape("type count oldest_at", (yield sql("op_unrouted", limit=limit)))


@single
def retrying(queue: str) -> Plan[list[tuple[int | None, str | None, UUID]]]:
    """Why the next messages of a queue that wait for a retry have failed: reason, error, id. A bounded number."""
    rows = yield sql("op_retrying", queue=queue)
    return [(reason, error, as_id(id)) for reason, error, id in rows]


@single
def retry_distribution() -> Plan[list[tuple[int, int]]]:
    rows = yield sql("op_retry_distribution")
    return [(int(attempts), int(count)) for attempts, count in rows]


@single
def failure_reasons() -> Plan[list[tuple[int, int, int]]]:
    rows = yield sql("op_failure_reasons")
    return [(int(reason), int(alive), int(dead)) for reason, alive, dead in rows]


@single
def retry_backlog() -> Plan[Row]:
    rows = yield sql("op_retry_backlog")
    return shape("count next_at latest_at", rows)[0]


@single
def poison_count(attempts: int) -> Plan[int]:
    ((count,),) = yield sql("op_poison_count", attempts=attempts)
    return int(count)
