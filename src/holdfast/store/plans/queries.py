"""What an operator may ask, as plans written once for both databases. Rows come back as dictionaries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from ...clock import EPOCH, micros
from ...model.names import serves
from .. import installed
from ..installed import Installed
from ..migrate import latest, release
from ..statement import Plan, Statement
from .engine import Plans, sql
from .engine_postgres import PostgresPlans
from .engine_sqlite import as_text, decoded_errors, when
from .operator import ago, as_id, many, statement

Row = dict[str, Any]

DELIVERY = (
    "seq id queue type state stream position head subject status epoch attempts failures vanished refunds redrives"
    " reason created_at due_at deadline claimable_at target worker until error"
)
LETTER = (
    "seq id queue type stream position subject status epoch attempts failures vanished refunds redrives reason"
    " last_reason worker created_at due_at deadline died_at fingerprint held_at held_why stored_at error halts"
)
WHOLE = " errors headers body dedupe"
STREAM = (
    "queue stream open halted_by halted_at head_id type state claimable_at attempts failures vanished status reason"
    " created_at error failed_at worker until newest_at"
)
ENDED = "queue type stream subject outcome ended_at started_at due_at attempts failures status why"
WORKER = "id name started_at seen_at queues asleep stopping leases"

DEATH = "id queue died_at seq type reason last_reason fingerprint worker error body"

BOOLEANS = {"head", "halts", "asleep", "stopping"}
INSTANTS = {"until", "deadline"}
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


def shape(plans: Plans, names: str, rows: Sequence[tuple[Any, ...]]) -> list[Row]:
    """Rows with names, and with the same kinds of values from both databases."""
    return [
        {name: _value(plans, name, value) for name, value in zip(names.split(), row, strict=True)}
        for row in rows
    ]


def _value(plans: Plans, name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in ("id", "head_id") and not isinstance(value, int):
        return as_id(value)
    if name == "failed_at":  # out of an error history: text
        return value if _is_time(value) else None
    if name == "errors":
        return [_trouble(each) for each in decoded_errors(value)]
    if name == "queues" and isinstance(value, str):
        return msgspec.json.decode(value)
    if name in BOOLEANS:
        return bool(value)
    if isinstance(plans, PostgresPlans):
        return value
    # SQLite keeps whatever it is given in any column: what cannot be is shown as nothing, or as text.
    if name.endswith("_at") or name in INSTANTS:
        return when(value) if isinstance(value, int) else EPOCH
    if name in NUMBERS:
        return value if isinstance(value, int) else 0
    return as_text(value) if isinstance(value, bytes) else value


def _trouble(entry: Any) -> dict[str, Any]:
    """An entry of an error history, whoever wrote it."""
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


def instant(plans: Plans, value: datetime) -> Any:
    """An instant as the database writes it."""
    return value if isinstance(plans, PostgresPlans) else micros(value)


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
    "states": "d.state in (select value from json_each(:states))",
}
PLACES = {None: "true", True: "d.position is not null", False: "d.position is null"}


def find(
    plans: Plans,
    *,
    order: str = "newest",
    limit: int = 50,
    ordered: bool | None = None,
    now: Any,
    **wanted: Any,
) -> Plan[list[Row]]:
    """Pending deliveries that match; `wanted` by the names in CONDITIONS, None does not count.

    Conditions that do not count are left out, and the limit is written into the statement: both databases plan a
    statement without its parameters, and would read and join the whole table.
    """
    params = {name: value for name, value in wanted.items() if value is not None}
    conditions = [PLACES[ordered], *(CONDITIONS[name] for name in params)]
    if "states" in params:
        params["states"] = many(plans, params["states"])
        if isinstance(plans, PostgresPlans):
            conditions[conditions.index(CONDITIONS["states"])] = "d.state = any (:states::text[])"
    tail = f" where {' and '.join(conditions)} {ORDERS[order]} limit {int(limit)}"
    rows = yield statement(plans, "op_delivery", "op_find", tail, **params, now=now)
    return shape(plans, DELIVERY, rows)


def poison_candidates(plans: Plans, attempts: int, limit: int, now: Any) -> Plan[list[Row]]:
    """Failed messages that were tried so often and will be again, most attempts first."""
    tail = sql(plans, "op_poison").sql
    rows = yield statement(plans, "op_delivery", "op_find", tail, attempts=attempts, limit=limit, now=now)
    return shape(plans, DELIVERY, rows)


def pending(plans: Plans, id: UUID, queue: str | None, number: int | None = None) -> Plan[list[Row]]:
    """Which rows an order about a message means."""
    rows = yield sql(plans, "op_pending", id=str(id), queue=queue, number=number)
    return shape(plans, "seq queue type created_at due_at", rows)


def show(plans: Plans, id: UUID, now: Any) -> Plan[tuple[list[Row], list[Row], list[Row]]]:
    """Everything about a message: what is pending, what is dead, how it ended."""
    rows = yield statement(plans, "op_delivery", "op_show", "", id=str(id), now=now)
    dead = yield sql(plans, "op_dead_show", id=str(id))
    ended = yield sql(plans, "op_history_of", id=str(id))
    deaths = shape(plans, DEATH, (yield sql(plans, "op_deaths", ids=many(plans, [str(id)]))))
    found = shape(plans, DELIVERY + WHOLE, rows), shape(plans, LETTER + WHOLE, dead)
    for row in (*found[0], *found[1]):
        row["deaths"] = [each for each in deaths if each["queue"] == row["queue"]]
    return (*found, shape(plans, ENDED, ended))


def ahead(plans: Plans, seq: int, limit: int) -> Plan[int]:
    """How many are claimed before this one, counted up to a limit."""
    ((count,),) = yield sql(plans, "op_ahead", seq=seq, limit=limit)
    return int(count)


# -- streams and queues


def streams(
    plans: Plans,
    *,
    queue: str | None = None,
    stream: str | None = None,
    blocked: bool = False,
    limit: int = 50,
    now: Any,
) -> Plan[list[Row]]:
    """Streams with what stands at their front."""
    rows = yield sql(plans, "op_streams", queue=queue, stream=stream, blocked=blocked, limit=limit, now=now)
    return shape(plans, STREAM, rows)


def counts(plans: Plans, now: Any) -> Plan[list[Row]]:
    """Pending deliveries by queue and state: `find` would count the same, but joins every row with others."""
    rows = yield sql(plans, "op_counts", now=now)
    oldest: dict[str, Any] = {}
    found: Counter[tuple[str, str]] = Counter()
    for row in shape(plans, "queue state count oldest_at", rows):
        found[row["queue"], row["state"]] = row["count"]
        if row["oldest_at"] is not None:
            oldest[row["queue"]] = min(row["oldest_at"], oldest.get(row["queue"], row["oldest_at"]))
    for queue, state, live, count, followers in (yield sql(plans, "op_counts_leased", now=now)):
        if queue is not None and (live or state in ("ready", "retrying", "scheduled")):
            found[queue, state] -= count
            found[queue, "leased" if live else "suspect"] += count
            found[queue, "waiting"] -= int(followers)
            found[queue, "leased"] += int(followers)
    for name, sign in (("op_counts_blocked", 1), ("op_counts_parked", -1)):
        for queue, count in (yield sql(plans, name, now=now)):
            found[queue, "waiting"] -= sign * int(count)
            found[queue, "blocked"] += sign * int(count)
    return [
        {"queue": queue, "state": state, "count": count, "oldest_at": oldest.get(queue)}
        for (queue, state), count in sorted(found.items())
        if count > 0
    ]


def queues(plans: Plans) -> Plan[list[Row]]:
    return shape(plans, "name paused_at paused_why", (yield sql(plans, "op_queue_rows")))


def queue_names(plans: Plans) -> Plan[set[str]]:
    return {name for name, _ in (yield sql(plans, "queue_names"))}


def subscriptions(plans: Plans) -> Plan[list[tuple[str, str]]]:
    rows = yield sql(plans, "subscription_list")
    return sorted((queue, pattern) for pattern, queue in rows)


def worker_names(plans: Plans, queue: str, seconds: float, limit: int, now: Any) -> Plan[list[str]]:
    """The workers that take from a queue and were seen within so many seconds."""
    since = yield from ago(plans, seconds, now)
    rows = yield sql(plans, "op_workers", limit=limit)
    return [
        row["name"]
        for row, raw in zip(shape(plans, WORKER, rows), rows, strict=True)
        if raw[3] >= since and serves(row["queues"] or (), queue)
    ]


def queue_pending(plans: Plans, queue: str, cap: int) -> Plan[tuple[int, int]]:
    """How many messages are pending in a queue, counted up to a limit, and how many dead letters it has."""
    ((count, dead),) = yield sql(plans, "op_queue_pending", queue=queue, cap=cap)
    return int(count), int(dead)


def queue_held(plans: Plans, queue: str, limit: int, now: Any) -> Plan[int]:
    """How many messages of a queue are leased, without those that travel with them in a run."""
    ((count,),) = yield sql(plans, "op_queue_held", queue=queue, limit=limit, now=now)
    return int(count)


def workers(plans: Plans, limit: int) -> Plan[list[Row]]:
    return shape(plans, WORKER, (yield sql(plans, "op_workers", limit=limit)))


# -- numbers


def moment(plans: Plans, now: Any) -> Plan[Any]:
    """The database's time, as it writes it."""
    ((value,),) = yield sql(plans, "op_moment", now=now)
    return value


def dead_counts(plans: Plans) -> Plan[list[Row]]:
    return shape(plans, "queue count newest_at", (yield sql(plans, "op_dead_counts")))


def rates(plans: Plans, seconds: float, now: Any) -> Plan[list[Row]]:
    """What ended within the last seconds, by queue and outcome."""
    since = yield from ago(plans, seconds, now)
    return shape(plans, "queue outcome count", (yield sql(plans, "op_rates", since=since)))


def unrouted(plans: Plans, limit: int) -> Plan[list[Row]]:
    return shape(plans, "type count oldest_at", (yield sql(plans, "op_unrouted", limit=limit)))


def retrying(plans: Plans, queue: str, now: Any) -> Plan[list[tuple[int | None, str | None, UUID]]]:
    """Why the next messages of a queue that wait for a retry have failed: reason, error, id. A bounded number."""
    rows = yield sql(plans, "op_retrying", queue=queue, now=now)
    return [(reason, error, as_id(id)) for reason, error, id in rows]


def retry_distribution(plans: Plans) -> Plan[list[tuple[int, int]]]:
    rows = yield sql(plans, "op_retry_distribution")
    return [(int(attempts), int(count)) for attempts, count in rows]


def failure_reasons(plans: Plans) -> Plan[list[tuple[int, int, int]]]:
    rows = yield sql(plans, "op_failure_reasons")
    return [(int(reason), int(alive), int(dead)) for reason, alive, dead in rows]


def retry_backlog(plans: Plans, now: Any) -> Plan[Row]:
    rows = yield sql(plans, "op_retry_backlog", now=now)
    return shape(plans, "count next_at latest_at", rows)[0]


def poison_count(plans: Plans, attempts: int) -> Plan[int]:
    ((count,),) = yield sql(plans, "op_poison_count", attempts=attempts)
    return int(count)


# -- doctor


def version(plans: Plans) -> Plan[tuple[Installed, Installed]]:
    """The schema and the functions that the database has, and those that this release brings."""
    rows = yield sql(plans, "op_version")
    if isinstance(plans, PostgresPlans):
        return installed.read(rows, plans.schema), release()
    return Installed(rows[0][0], ""), Installed(latest("sqlite"), "")


def server(plans: Plans) -> Plan[Row]:
    """What the database promises about a commit."""
    rows = yield sql(plans, "op_server")
    if isinstance(plans, PostgresPlans):
        return shape(plans, "version fsync synchronous_commit full_page_writes autovacuum", rows)[0]
    ((journal,),) = yield Statement("pragma journal_mode")
    ((synchronous,),) = yield Statement("pragma synchronous")
    options = [option for (option,) in (yield Statement("pragma compile_options"))]
    return {
        "version": rows[0][0],
        "journal_mode": journal,
        "synchronous": synchronous,
        "options": options,
    }


def holding(plans: Plans, transactions: int, limit: int) -> Plan[list[Row]]:
    """Who holds back cleaning up, those who do it longest first; slots that are so many transactions behind."""
    if not isinstance(plans, PostgresPlans):
        return []
    rows = yield plans.sql("op_holding", transactions=transactions, limit=limit)
    return shape(plans, "kind name owner state seconds", rows)


def times(plans: Plans, now: Any) -> Plan[tuple[Any, Any]]:
    """The database's time, and the latest at which anything is said to have happened."""
    ((latest,),) = yield sql(plans, "op_ahead_of_time")
    moment_now = yield from moment(plans, now)  # later than what it is compared with
    return moment_now, latest


def endless(plans: Plans, seconds: float, limit: int, now: Any) -> Plan[list[Row]]:
    """Leases that end more than so many seconds from now."""
    after = yield from ago(plans, -seconds, now)
    return shape(plans, "id queue worker until", (yield sql(plans, "op_endless", after=after, limit=limit)))


def flow(plans: Plans, seconds: float, now: Any) -> Plan[list[Row]]:
    """By queue: what came within so many seconds and is still there, what ended, and what of that had been there."""
    since = yield from ago(plans, seconds, now)
    rows = yield sql(plans, "op_flow", since=since, now=now)
    return shape(plans, "queue arrived ended older", rows)


def open_differs(plans: Plans, limit: int) -> Plan[list[Row]]:
    return shape(plans, "queue stream open found", (yield sql(plans, "op_open_differs", limit=limit)))


def stranded(plans: Plans, limit: int) -> Plan[list[Row]]:
    return shape(plans, "queue stream open halted_by", (yield sql(plans, "op_stranded", limit=limit)))


def lapsed(plans: Plans, seconds: float, now: Any) -> Plan[Row]:
    """Leases that lapsed longer ago than that."""
    before = yield from ago(plans, seconds, now)
    return shape(plans, "count oldest_at", (yield sql(plans, "op_lapsed", before=before)))[0]


def troubled(plans: Plans, seconds: float, limit: int, now: Any) -> Plan[list[Row]]:
    """Workers that had trouble with their database within so many seconds."""
    after = yield from ago(plans, seconds, now)
    rows = yield sql(plans, "op_worker_trouble", after=after, limit=limit)
    return shape(plans, "name trouble trouble_at timeouts restarts", rows)
