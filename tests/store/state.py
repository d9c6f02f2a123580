"""What a store holds, read past the protocol: the same rows from both databases, and what must hold among them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from holdfast.clock import from_micros
from holdfast.model.names import SCOPED
from holdfast.store import Store
from holdfast.store.statement import Plan, Rows, Statement

PARKED = datetime.max.replace(tzinfo=UTC)
_PARKED_MICROS = 9_223_372_036_854_775_807

COLUMNS = {
    "message": "seq id queue type body stream position subject headers status epoch attempts failures vanished refunds "
    "redrives reason head dedupe target errors xact claimable_at created_at due_at deadline",
    "pending": "seq id queue type body stream position subject headers status epoch attempts failures vanished refunds "
    "redrives reason head dedupe target errors xact claimable_at created_at due_at deadline",
    "scheduled": "seq id queue type body stream subject headers status epoch dedupe target claimable_at created_at "
    "due_at deadline",
    "lease": "seq epoch worker run_end cancel until progress",
    "stream": "queue name open halted_by halted_at last",
    "queue": "name paused_at",
    "subscription": "pattern queue",
    "dead": "id queue seq type stream position subject dedupe status epoch attempts failures vanished refunds redrives "
    "reason last_reason worker errors headers body created_at due_at deadline died_at fingerprint held_at "
    "held_why stored_at",
    "death": "id queue died_at seq type reason last_reason fingerprint worker error body",
    "history": "id queue type stream subject status attempts failures outcome due_at started_at ended_at why",
    "dedupe": "scope key id ended_at kept",
    "worker": "id name asleep stopping started_at seen_at",
    "event_stream": "name version",
    "event": "stream version id type subject created_at headers body",
    "breaker": "name version era state forced calls trials_left successes opened_at until changed_at why",
    "rate": "name tokens at granted",
    "slot": "name version holders",
    "audit": "number at who action queue target count was became why filter ids",
    "alert": "name subject version episode since calm_since value peak",
    "alert_news": "number name subject what episode at since value threshold text details tries try_at told ended_at "
    "error",
    "turn": "name next_at",
    "presence": "queue worked_at",
    "outage": "number cause began_at noticed_at down_since back_at oldest_at calm_since ended_at version handled died "
    "late_mean late_max caught_up_at",
    "instance": "id queue start execution turn mark state reply result status trouble entries size started_at "
    "turned_at ended_at poison attributes",
    "journal": "id execution turn part body",
    "schedule": "name origin digest rule type body headers stream subject queue misfire overlap cap version max_late "
    "grace zones next_key next_at last_key last_at last_id fired left_out paused_at paused_why error declared_at "
    "created_at changed_at",
    "schedule_note": "name noted_at first_key last_key count why",
    "zone_data": "version seen_at",
    "request": "id kind variant type stream subject body state reason created_at deadline soft_at told_at next_at "
    "ended_at timed_out_at result received_at accepted_at accepted_by results late",
    "request_result": "id request received_at standing failed body source",
}
TIMES = frozenset(
    {"claimable_at", "created_at", "deadline", "died_at", "due_at", "ended_at", "halted_at", "paused_at"}
)
TIMES |= {"held_at", "stored_at", "seen_at", "started_at", "until"}
TIMES |= {"at", "calm_since", "changed_at", "next_at", "opened_at", "since", "try_at", "turned_at"}
TIMES |= {"worked_at", "began_at", "noticed_at", "down_since", "back_at", "oldest_at", "caught_up_at"}
TIMES |= {"declared_at", "last_at", "noted_at"}
TIMES |= {"soft_at", "told_at", "timed_out_at", "received_at", "accepted_at"}
BOOLEANS = frozenset({"asleep", "cancel", "forced", "head", "stopping"})


class Row(dict[str, Any]):
    """A row whose columns are attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def table(store: Store, name: str) -> str:
    return f"holdfast_{name}" if store.engine.dialect == "sqlite" else f"{store.schema}.{name}"  # type: ignore[union-attr]


def query(store: Store, text: str, **params: object) -> Rows:
    """Any statement; `{message}` is the table of messages."""
    sql = text.format_map({name: table(store, name) for name in COLUMNS})

    def plan() -> Plan[Rows]:
        return (yield Statement(sql, params))

    return store.run(plan())


def read(store: Store, name: str) -> list[Row]:
    """All rows of a table, with times, booleans, ids and JSON as Python has them, in the order of their numbers."""
    return read_all(store, name)[name]


def read_all(store: Store, *names: str) -> dict[str, list[Row]]:
    """The rows of several tables, as they are at one moment."""
    sqlite = store.engine.dialect == "sqlite"
    parts = []
    for name in names:
        columns = COLUMNS[name].split()
        listed = ", ".join(
            _sqlite_column(column) if sqlite else _postgres_column(column) for column in columns
        )
        array = f"json_array({listed})" if sqlite else f"json_build_array({listed})::text"
        parts.append(f"select '{name}', {'seq' if 'seq' in columns else '0'}, {array} from {{{name}}} t")
    tables: dict[str, list[Row]] = {name: [] for name in names}
    for name, _, text in query(store, " union all ".join(parts) + " order by 1, 2, 3"):
        tables[name].append(Row(_row(name, text)))
    return tables


@lru_cache(maxsize=4096)  # whoever looks after each step finds most rows as they were
def _row(name: str, text: str) -> Row:
    values = zip(COLUMNS[name].split(), json.loads(text), strict=True)
    return Row({column: _value(name, column, value) for column, value in values})


def _sqlite_column(column: str) -> str:
    return "null" if column == "last" else column  # nobody guesses there


def _postgres_column(column: str) -> str:
    if column in TIMES:
        return (
            f"case when isfinite(t.{column}) then (extract(epoch from t.{column}) * 1000000)::bigint "
            f"when t.{column} is not null then {_PARKED_MICROS} end"
        )
    return f"t.{column}::text" if column in ("xact", "errors") else f"t.{column}"


def _value(name: str, column: str, value: Any) -> Any:
    if value is None:
        return None
    if column in TIMES:
        return PARKED if value == _PARKED_MICROS else from_micros(value)
    if column in BOOLEANS:
        return bool(value)
    if column == "errors":
        return [{**error, "at": datetime.fromisoformat(error["at"])} for error in json.loads(value)]
    if column == "id" and name not in ("worker", "instance", "journal"):
        return UUID(value)
    return value


# --- What must hold ---------------------------------------------------------------------------------------------------


def check_invariants(store: Store) -> None:
    """Fails with everything that is wrong."""
    faults = list(
        broken_invariants(read_all(store, "message", "scheduled", "stream", "lease", "dead", "dedupe"))
    )
    assert not faults, "\n".join(faults)


def broken_invariants(tables: dict[str, list[Row]]) -> Iterator[str]:
    messages = tables["message"]
    yield from _broken_messages(messages)
    yield from _broken_order(messages, tables["stream"])
    yield from _broken_leases(messages, tables["lease"])
    scheduled = tables.get("scheduled", [])
    yield from _broken_scheduled(messages, scheduled)
    yield from _broken_ends(messages + scheduled, tables["dead"], tables["dedupe"])


def _broken_messages(messages: list[Row]) -> Iterator[str]:
    for m in messages:
        if m.head and m.xact is not None:
            yield f"{m.id} in {m.queue} is a head and still bears the mark of the transaction that places it"
        if m.position is not None and (m.stream is None or m.queue is None):
            yield f"{m.id} has a position without a stream or a queue"
        if m.position is None and m.queue is not None and not m.head:
            yield f"{m.id} in {m.queue} was left without a place, out of the order and yet no head: nobody can claim it"
        if min(m.attempts, m.failures, m.vanished, m.refunds, m.epoch) < 0:
            yield f"{m.id} in {m.queue} has a counter below zero"


def _broken_scheduled(messages: list[Row], scheduled: list[Row]) -> Iterator[str]:
    for seq in {m.seq for m in messages} & {s.seq for s in scheduled}:
        yield f"number {seq} is both a message's and a scheduled one's"
    for m in messages:
        if m.queue == "holdfast/timer":
            yield f"{m.id} waits for its time in `message`, from where nobody brings it over"


def _broken_order(messages: list[Row], streams: list[Row]) -> Iterator[str]:
    order: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for m in messages:
        if m.position is not None:
            order[m.queue, m.stream].append(m)
    rows = {(s.queue, s.name): s for s in streams}
    for key in order.keys() - rows.keys():
        yield f"stream {key} has messages and no row"
    for key, s in rows.items():
        waiting = sorted(order[key], key=lambda m: m.position)
        heads = [m for m in waiting if m.head]
        if s.open != len(waiting):
            yield f"stream {key} says open = {s.open} and has {len(waiting)} in its order"
        if s.last is not None and waiting and waiting[-1].position > s.last:
            yield f"stream {key} says that its last is {s.last}, and {waiting[-1].position} is in it"
        if len(heads) > 1:
            yield f"stream {key} has {len(heads)} heads"
        if waiting and s.halted_by is None and heads != waiting[:1]:
            yield f"stream {key} is stranded: its lowest is {waiting[0].id}, its head {[m.id for m in heads]}"


def _broken_leases(messages: list[Row], leases: list[Row]) -> Iterator[str]:
    by_seq = {m.seq: m for m in messages}
    for lease in leases:
        m = by_seq.get(lease.seq)
        if m is None:
            yield f"the lease of {lease.seq} belongs to no message"
        elif not m.head:
            yield f"{m.id} in {m.queue} is leased and no head"
        elif lease.epoch != m.epoch + 1:
            yield f"{m.id} in {m.queue}: the lease has epoch {lease.epoch}, the message {m.epoch}"
        elif m.position is not None and lease.run_end is not None and lease.run_end < m.position:
            yield f"{m.id} in {m.queue}: its run ends before it begins"


def _broken_ends(messages: list[Row], dead: list[Row], dedupe: list[Row]) -> Iterator[str]:
    # Messages of one id are told apart by their times; one whose id was taken (reason 12) came at any time.
    both = {(m.id, m.queue, m.due_at or m.created_at) for m in messages}
    both &= {(d.id, d.queue, d.due_at or d.created_at) for d in dead if d.reason != 12}
    if both:
        yield f"pending and dead at once: {both}"
    keys = {(k.scope, k.key): k.id for k in dedupe}
    for row in (*messages, *dead):
        scope = "" if row.dedupe is not None and row.dedupe.startswith(SCOPED) else row.type
        if row.dedupe is not None and keys.get((scope, row.dedupe)) != row.id:
            yield f"{row.id} does not hold its dedupe key {row.dedupe}"
