"""What an operator may ask about dead letters, as plans written once for both databases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from ..statement import Plan, Statement, in_schema
from .engine import Plans, sql
from .engine_postgres import PostgresPlans
from .operator import ago, as_id, many
from .queries import DEATH, LETTER, Row, instant, shape

WHOLE = (
    "id queue seq type stream position subject dedupe status epoch attempts failures vanished refunds redrives reason"
    " last_reason worker created_at due_at deadline died_at fingerprint held_at held_why stored_at errors headers body"
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
    "died_before": "d.died_at < :died_before",
    "died_after": "d.died_at > :died_after",
    "here_before": "coalesce(d.stored_at, d.died_at) < :here_before",
    "until": "d.died_at <= :until",
    "redrives_below": "d.redrives < :redrives_below",
    "ids": "d.id in (select value from json_each(:ids))",
    "text": "exists (select 1 from json_each(d.errors) e"
    " where instr(lower(json_extract(e.value, '$.text')), lower(:text)) > 0)",
    "place": f"({PLACE}) > (:place_0, :place_1, :place_2, :place_3)",
}
POSTGRES: Mapping[str, str] = {
    "ids": "d.id = any (:ids::uuid[])",
    "text": "exists (select 1 from pg_catalog.jsonb_array_elements(d.errors) e"
    " where pg_catalog.strpos(pg_catalog.lower(e ->> 'text'::text), pg_catalog.lower(:text)) > 0)",
    "place": f"({PLACE}) > (:place_0::bigint, :place_1::bigint, :place_2::uuid, :place_3::text)",
    **{
        name: CONDITIONS[name] + "::timestamptz" for name in ("died_before", "died_after", "here_before", "until")
    },
}  # fmt: skip
CHOICES = {
    "redriven": {True: "d.redrives > 0", False: "d.redrives = 0"},
    "held": {True: "d.held_at is not null", False: "d.held_at is null"},
    "halts": {
        False: "not exists (select 1 from holdfast.stream s where s.queue = d.queue and s.name = d.stream"
        " and s.halted_by = cast(d.id as text) and s.halted_at = d.died_at)"
    },
}

Place = tuple[int, int, str, str]  # where a letter stands among the others: position, seq, id, queue


def _where(plans: Plans, wanted: Mapping[str, Any]) -> tuple[str, dict[str, object]]:
    """The conditions that count, and their values."""
    conditions, params = ["true"], {}
    postgres = isinstance(plans, PostgresPlans)
    for name, value in wanted.items():
        if value is None:
            continue
        if name in CHOICES:
            conditions.append(_ours(plans, CHOICES[name][value]))
            continue
        conditions.append(POSTGRES.get(name, CONDITIONS[name]) if postgres else CONDITIONS[name])
        if name == "place":
            params.update({f"place_{n}": each for n, each in enumerate(value)})
        elif name == "ids":
            params[name] = many(plans, [str(each) for each in value])
        else:
            params[name] = instant(plans, value) if isinstance(value, datetime) else value
    return " and ".join(conditions), params


def _ours(plans: Plans, text: str) -> str:
    """A condition with the tables of this database."""
    if isinstance(plans, PostgresPlans):
        return in_schema(text, plans.schema)
    return text.replace("holdfast.", "holdfast_")


def _asked(plans: Plans, name: str, wanted: Mapping[str, Any], tail: str = "") -> Statement:
    where, params = _where(plans, wanted)
    return Statement(f"{sql(plans, name).sql}\n where {where}\n{tail}", params)


def letters(plans: Plans, *, newest: bool = True, limit: int = 50, **wanted: Any) -> Plan[list[Row]]:
    """Dead letters that match; `wanted` by the names in CONDITIONS and CHOICES, None does not count."""
    order = "order by d.died_at desc, d.seq desc" if newest else "order by d.died_at, d.seq"
    rows = yield _asked(plans, "op_dead_find", wanted, f"{order} limit {int(limit)}")
    return shape(plans, LETTER, rows)


def count(plans: Plans, **wanted: Any) -> Plan[int]:
    ((found,),) = yield _asked(plans, "op_dead_count", wanted)
    return int(found)


def keys(plans: Plans, *, limit: int, order: str = PLACE, **wanted: Any) -> Plan[list[Row]]:
    """Which dead letters an order is about, by where they stood or by age."""
    rows = yield _asked(plans, "op_dead_keys", wanted, f"order by {order} limit {int(limit)}")
    return shape(plans, "id queue place seq bytes epoch since_at", rows)


def groups(plans: Plans, limit: int, **wanted: Any) -> Plan[list[Row]]:
    """Dead letters by cause."""
    where, params = _where(plans, wanted)
    first, second = sql(plans, "op_dead_found").sql, sql(plans, "op_dead_groups").sql
    rows = yield Statement(f"{first}\n where {where})\n{second} limit {int(limit)}", params)
    return shape(plans, GROUP, rows)


def whole(plans: Plans, found: Sequence[tuple[UUID, str, int]]) -> Plan[list[tuple[Row, list[Row]]]]:
    """Dead letters with everything, and all their deaths; those that are gone are left out."""
    rows = yield sql(
        plans,
        "op_dead_whole",
        ids=many(plans, [str(id) for id, _, _ in found]),
        queues=many(plans, [queue for _, queue, _ in found]),
        numbers=many(plans, [number for _, _, number in found]),
    )
    theirs: dict[tuple[UUID, str], list[Row]] = {}
    for each in (yield from deaths(plans, [id for id, _, _ in found])):
        theirs.setdefault((each["id"], each["queue"]), []).append(each)
    return [(row, theirs.get((row["id"], row["queue"]), [])) for row in shape(plans, WHOLE, rows)]


def deaths(plans: Plans, ids: Sequence[UUID]) -> Plan[list[Row]]:
    """All deaths of these messages, the first ones first."""
    rows = yield sql(plans, "op_deaths", ids=many(plans, [str(id) for id in dict.fromkeys(ids)]))
    return shape(plans, DEATH, rows)


def death_counts(plans: Plans, seconds: float, now: Any) -> Plan[list[Row]]:
    """How many deaths the last seconds saw, by queue, whatever became of the letters since."""
    since = yield from ago(plans, seconds, now)
    return shape(plans, "queue count last_at", (yield sql(plans, "op_death_count", since=since)))


def standing(
    plans: Plans, found: Sequence[tuple[UUID, str, int]], since: Any
) -> Plan[list[tuple[UUID, str, bool, bool]]]:
    """Of each of these messages: whether it is pending, and whether it has died since a moment."""
    rows = yield sql(
        plans,
        "op_standing",
        ids=many(plans, [str(id) for id, _, _ in found]),
        queues=many(plans, [queue for _, queue, _ in found]),
        since=since,
    )
    return [(as_id(id), queue, bool(pending), bool(died)) for id, queue, pending, died in rows]
