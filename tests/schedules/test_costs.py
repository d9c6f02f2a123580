"""What a tick costs, counted and not timed: rows that the server looks at, statements, rules that are decided."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from holdfast import Holdfast, daily, every
from holdfast.rules import tick as rules
from holdfast.schedules.ticker import Ticker
from holdfast.store.plans.schedules import FIELDS
from holdfast.store.statement import Plan, Statement
from tests.schedules.desk import Desk

MANY = 3000
STORED = [name for name in FIELDS if name not in ("last", "now")]


def copies(db: psycopg.Connection[Any], name: str) -> None:
    """Many schedules like this one, with names and ids of their own, that are due in a year."""
    own = {
        "name": "name || n",
        "incarnation": "gen_random_uuid()",
        "next_at": "now() + interval '1 year' + n * interval '1 s'",
    }
    chosen = ", ".join(own.get(each, each) for each in STORED)
    db.execute(
        f"insert into holdfast.schedule ({', '.join(STORED)}) select {chosen} from holdfast.schedule, "
        f"generate_series(1, {MANY}) n where name = %s".encode(),
        [name],
    )


@pytest.mark.one_postgres
@pytest.mark.parametrize("believed", ["nothing", "empty", "full"])
def test_rows_read_by_a_tick_grow_with_what_is_due_only(postgres_dsn: str, believed: str) -> None:
    """Found in a benchmark: the time was a volatile function, and each tick that fired walked through all schedules."""
    app = Holdfast(postgres_dsn)
    app.handler("due", name="due")(lambda body: None)
    app.migrate()
    app.prepare()
    app.set_schedule("far", daily("09:00"), "due")
    app.set_schedule("near", every(seconds=3600), "due")

    def flush() -> Plan[None]:
        yield Statement("select pg_stat_force_next_flush()")

    def read() -> int:
        app.store.run(flush())
        db.execute("select pg_stat_force_next_flush()")  # what this connection has read is counted now
        return int(
            db.execute(
                "select seq_tup_read + coalesce(idx_tup_fetch, 0) from pg_stat_user_tables "
                "where schemaname = 'holdfast' and relname = 'schedule'"
            ).fetchall()[0][0]
        )

    ticker = Ticker(app.store, app.clock, None, list)
    with psycopg.connect(postgres_dsn, autocommit=True) as db:
        if believed == "empty":
            db.execute("analyze holdfast.schedule")
        copies(db, "far")
        if believed == "full":
            db.execute("analyze holdfast.schedule")
        ticker()  # the first of a worker also looks for times that were computed with older zone data
        for _ in range(7):  # the driver prepares a statement when it is executed for the sixth time
            db.execute(
                "update holdfast.schedule set last_key = null, next_key = '2026-01-01T00:00:00Z', "
                "next_at = now() - interval '1 s' where name = 'near'"
            )
            before = read()
            assert ticker().did == 1
            assert read() - before < 50
    app.close()


def test_what_fires_is_handed_out_before_it_is_asked_what_is_next(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.app.set_schedule("x", daily("06:00"), "due")
    ticker = desk.ticker()
    ticker()
    desk.later(days=1)
    said: list[str] = []
    bind = desk.app.store.engine.bind

    def noted(query: Any, now: Any) -> Any:
        said.append(query.parts[0])
        return bind(query, now)

    monkeypatch.setattr(desk.app.store.engine, "bind", noted)
    fired = ticker()
    assert "schedules/schedule_first" in said[: said.index("schedules/schedule_due")]
    assert said.count("schedules/schedule_first") == 1
    assert (fired.did, fired.next_at) == (1, fired.now)  # so the next turn asks at once
    then = ticker()
    assert then.did == 0
    assert then.next_at == desk.row("x").next_at


def test_a_rule_that_many_schedules_share_is_decided_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(20):
        desk.app.set_schedule(f"same/{n:02}", daily("06:00"), "due", {"n": n})
    desk.app.set_schedule("late", daily("06:00"), "due", max_late=60)  # another decision about the same time
    for n in range(3):
        desk.app.set_schedule(f"jitter/{n}", daily("06:00", jitter=600), "due")
    desk.later(days=1)
    decide, asked = rules.decide, list[str]()

    def noted(timeline: Any, *args: Any) -> Any:
        asked.append(timeline.identity)
        return decide(timeline, *args)

    monkeypatch.setattr(rules, "decide", noted)
    assert desk.tick().did == 24
    assert sorted(asked) == ["", "", "jitter/0", "jitter/1", "jitter/2"]
    desk.run()
    assert sorted(each.body["n"] for each in desk.seen if each.body is not None) == list(range(20))
    assert desk.row("late").left_out == 1
    assert len({desk.row(f"jitter/{n}").last_at for n in range(3)}) == 3
