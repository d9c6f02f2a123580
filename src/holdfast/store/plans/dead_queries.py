"""An operator's questions about dead letters, as plans for both databases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from ..statement import Plan, Query, single, statements
from ..text import Text
from ..values import as_id
from . import queries
from .operator import ago
from .queries import DEATH, LETTER, Row, by_subject, shape

sql = statements("dead_queries")

WHOLE = (
    "id queue seq type stream position subject dedupe status epoch attempts failures vanished refunds redrives reason"
    " last_reason worker created_at due_at deadline died_at fingerprint held_at held_why stored_at errors headers body"
    " traceback"
)
GROUP = "fingerprint queue type reason count first_at last_at held id error"

PLACE = "coalesce(d.position, d.seq), d.seq, d.id, d.queue"
AGE = "coalesce(d.stored_at, d.died_at), d.id, d.queue, d.seq"
CONDITIONS: Mapping[str, str] = {
    "queue": "d.queue = :queue",
    "type": "d.type = :type",
    "stream": "d.stream = :stream",
    "reason": "coalesce(d.last_reason, d.reason) = :reason",
    "died_of": "d.reason = :died_of",
    "fingerprint": "d.fingerprint = :fingerprint",
    "died_before": "d.died_at < :died_before::timestamptz",
    "died_after": "d.died_at > :died_after::timestamptz",
    "here_before": "coalesce(d.stored_at, d.died_at) < :here_before::timestamptz",
    "until": "d.died_at <= :until::timestamptz",
    "redrives_below": "d.redrives < :redrives_below",
    "ids": "d.id = any (:ids::uuid[])",
    "place": f"({PLACE}) > (:place_0::bigint, :place_1::bigint, :place_2::uuid, :place_3::text)",
}
TEXT = "dead_queries/op_dead_text"  # a condition on the text of the error history
CHOICES = {
    "redriven": {True: "d.redrives > 0", False: "d.redrives = 0"},
    "held": {True: "d.held_at is not null", False: "d.held_at is null"},
    "halts": {
        False: "not exists (select 1 from holdfast.stream s where s.queue = d.queue and s.name = d.stream"
        " and s.halted_by = cast(d.id as text) and s.halted_at = d.died_at)"
    },
    "awaited": {False: """(d.headers is null or d.headers not like '%"holdfast-on-dead":"wait"%')"""},
}

Cursor = tuple[int, int, str, str]  # the position of a letter among the others: position, seq, id, queue


def _asked(name: str, wanted: Mapping[str, Any], *behind: str | Text) -> Query:
    """A statement with the conditions that are used, their values, and what follows them."""
    conditions: list[str] = ["true"]
    params: dict[str, Any] = {}
    for name_, value in wanted.items():
        if value is None or name_ == "text":
            continue
        if name_ == "subject":
            params[name_] = value
            continue
        conditions.append(CHOICES[name_][value] if name_ in CHOICES else CONDITIONS[name_])
        if name_ == "place":
            params.update({f"place_{n}": each for n, each in enumerate(value)})
        elif name_ == "ids":
            params[name_] = [str(each) for each in value]
        elif name_ not in CHOICES:
            params[name_] = value
    behind_subject = by_subject(params, conditions)
    where: list[str | Text] = [Text(f" where {' and '.join(conditions)}"), *behind_subject]
    if wanted.get("text") is not None:
        where.append(TEXT)
        params["text"] = wanted["text"]
    return Query((f"dead_queries/{name}", *where, *behind), params)


@single
def letters(*, newest: bool = True, limit: int = 50, **wanted: Any) -> Plan[list[Row]]:
    """Dead letters that match; `wanted` by the names in CONDITIONS and CHOICES; None does not filter."""
    order = "order by d.died_at desc, d.seq desc" if newest else "order by d.died_at, d.seq"
    rows = yield _asked("op_dead_find", wanted, Text(f"{order} limit {int(limit)}"))
    return shape(LETTER, rows)


@single
def count(**wanted: Any) -> Plan[int]:
    ((found,),) = yield _asked("op_dead_count", wanted)
    return int(found)


@single
def keys(*, limit: int, order: str = PLACE, **wanted: Any) -> Plan[list[Row]]:
    """Which dead letters a command is about, by their old positions or by age."""
    rows = yield _asked("op_dead_keys", wanted, Text(f"order by {order} limit {int(limit)}"))
    return shape("id queue place seq bytes epoch since_at", rows)


@single
def groups(limit: int, **wanted: Any) -> Plan[list[Row]]:
    """Dead letters by cause."""
    limited = Text(f" limit {int(limit)}")
    rows = yield _asked("op_dead_found", wanted, Text(")"), "dead_queries/op_dead_groups", limited)
    return shape(GROUP, rows)


def whole(found: Sequence[tuple[UUID, str, int]]) -> Plan[list[tuple[Row, list[Row]]]]:
    """Dead letters with everything, and all their deaths; those that are gone are left out."""
    rows = yield sql(
        "op_dead_whole",
        ids=[str(id) for id, _, _ in found],
        queues=[queue for _, queue, _ in found],
        numbers=[number for _, _, number in found],
    )
    theirs: dict[tuple[UUID, str], list[Row]] = {}
    for each in (yield from deaths([id for id, _, _ in found])):
        theirs.setdefault((each["id"], each["queue"]), []).append(each)
    return [(row, theirs.get((row["id"], row["queue"]), [])) for row in shape(WHOLE, rows)]


@single
def deaths(ids: Sequence[UUID]) -> Plan[list[Row]]:
    """All deaths of these messages, the first ones first."""
    rows = yield queries.sql("op_deaths", ids=[str(id) for id in dict.fromkeys(ids)])
    return shape(DEATH, rows)


def death_counts(seconds: float) -> Plan[list[Row]]:
    """How many deaths there were within the last seconds, by queue, also of letters that are gone."""
    since = yield from ago(seconds)
    return shape("queue count last_at", (yield sql("op_death_count", since=since)))


@single
def standing(found: Sequence[tuple[UUID, str, int]], since: Any) -> Plan[list[tuple[UUID, str, bool, bool]]]:
    """For each of these messages: whether it is pending, and whether it has died since a moment."""
    rows = yield sql(
        "op_standing",
        ids=[str(id) for id, _, _ in found],
        queues=[queue for _, queue, _ in found],
        since=since,
    )
    return [(as_id(id), queue, bool(pending), bool(died)) for id, queue, pending, died in rows]
