"""Statements that look for what is due search an index by the time, on PostgreSQL.

A volatile function (`clock_timestamp()`) in a comparison is evaluated for every row, so PostgreSQL walks through the
index instead of searching it. The time must come from a subselect, which is evaluated once.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.store.text import compile, load

MESSAGES = """
insert into holdfast.message (type, body, queue, head, vanished, failures, claimable_at, plain)
select 't', '{}', 'q', true, n % 2, n % 3, now() + (n - 1500) * interval '1 hour', null from generate_series(1, 3000) n
"""
NEWS = """
insert into holdfast.alert_news (name, subject, what, at, since, value, threshold, text, details, try_at, ended_at)
select 'a', n::text, 'raised', now(), now(), 1, 1, '', '{}', now() + n * interval '1 hour',
       case when n > 50 then now() end
  from generate_series(1, 3000) n
"""
KEYS = """
insert into holdfast.dedupe (scope, key, id, kept, ended_at)
select 's', n::text, gen_random_uuid(), 60, now() + n * interval '1 hour' from generate_series(1, 3000) n
"""
SCHEDULED = """
insert into holdfast.scheduled (type, body, queue, id, claimable_at, created_at)
select 't', '{}', 'q' || n % 3, gen_random_uuid(), now() + (n - 1500) * interval '1 hour', now()
  from generate_series(1, 3000) n
"""
LATER = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.mark.one_postgres
@pytest.mark.parametrize(
    ("name", "params", "bound", "times"),
    [
        ("engine/suspects_wait", {"queues": ["q"], "families": ["f"]}, "claimable_at <= ", 2),
        (
            "alerts/alert_backlog",
            {"before": LATER, "limit": 10, "queues": 10},
            "claimable_at <= (InitPlan",
            1,
        ),
        ("alerts/alert_take", {"until": LATER}, "try_at <= ", 1),
        ("queries/op_retrying", {"queue": "q"}, "claimable_at > ", 1),
        ("queues/op_prune_windows", {"limit": 10}, "ended_at < ", 1),
        ("scheduled/scheduled_first", {"since": LATER}, "claimable_at >= ", 1),
        ("counting/scheduled_capped", {"cap": 10}, "claimable_at <= (InitPlan", 2),
        ("alerts/alert_scheduled", {"before": LATER, "limit": 10}, "claimable_at <= (InitPlan", 1),
    ],
)
def test_the_time_is_searched_for(
    postgres_dsn: str, name: str, params: dict[str, Any], bound: str, times: int
) -> None:
    app = Holdfast(postgres_dsn)
    app.migrate()
    app.close()
    made = compile(load("postgres", (name,)), "pyformat")
    with psycopg.connect(postgres_dsn, autocommit=True) as db:
        db.execute("set session_replication_role = replica")  # no triggers: the rows are as they are given
        for rows in (MESSAGES, NEWS, KEYS, SCHEDULED):
            db.execute(rows.encode())
        db.execute("analyze")
        db.execute("set enable_seqscan = off")  # which is cheaper only because the tables are small here
        plan = db.execute(b"explain (costs off) " + made.data, {**params, "now": None}).fetchall()
    searched = [line for (line,) in plan if "Index Cond" in line and bound in line]
    assert len(searched) == times, "\n".join(line for (line,) in plan)
