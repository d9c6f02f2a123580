"""What a tick costs, counted and not timed: rows that the server looks at, statements, rules that are decided."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast, daily, every
from holdfast.clock import MovableClock
from holdfast.rules import tick as rules
from holdfast.schedules import ticker
from holdfast.schedules.ticker import Ticker
from holdfast.store.plans.schedules import FIELDS, FIRST
from holdfast.store.statement import Plan, Query, Statement
from holdfast.store.text import Text
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

    step = Ticker(app.store, app.clock, None, list)
    with psycopg.connect(postgres_dsn, autocommit=True) as db:
        if believed == "empty":
            db.execute("analyze holdfast.schedule")
        copies(db, "far")
        if believed == "full":
            db.execute("analyze holdfast.schedule")
        step()  # the first of a worker also looks for times that were computed with older zone data
        for _ in range(7):  # the driver prepares a statement when it is executed for the sixth time
            db.execute(
                "update holdfast.schedule set last_key = null, next_key = '2026-01-01T00:00:00Z', "
                "next_at = now() where name = 'near'"
            )
            before = read()
            assert step().did == 1
            assert read() - before < 50
    app.close()


@pytest.mark.one_postgres
def test_what_has_fired_under_a_held_snapshot_is_not_walked_through(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index keeps entries of what has fired while somebody holds an old snapshot: a tick reads its own part."""
    clock = MovableClock(datetime(2026, 3, 1, tzinfo=UTC))
    app = Holdfast(postgres_dsn, clock=clock)
    app.handler("due", name="due")(lambda body: None)
    app.migrate()
    app.prepare()
    app.set_schedule("same", daily("09:00"), "due")
    monkeypatch.setattr(ticker, "AT_ONCE", 50)
    step = Ticker(app.store, clock, None, list)

    def flush() -> Plan[None]:
        yield Statement("select pg_stat_force_next_flush()")

    def entries() -> int:
        app.store.run(flush())
        with psycopg.connect(postgres_dsn) as db:
            ((found,),) = db.execute(
                "select idx_tup_read from pg_stat_user_indexes where indexrelname = 'schedule_next'"
            ).fetchall()
        return int(found)

    with psycopg.connect(postgres_dsn, autocommit=True) as db:
        copies(db, "same")
        db.execute("update holdfast.schedule set next_at = '2026-03-01 09:00:00+00'")
        db.execute("vacuum analyze holdfast.schedule")
    clock.advance(days=1)
    with psycopg.connect(postgres_dsn) as other:
        other.execute("set transaction isolation level repeatable read")
        other.execute("select count(*) from holdfast.schedule")
        for _ in range(20):
            assert step().did == 50
        before = entries()
        assert step().did == 50
        assert entries() - before < 500  # and not the 1,000 that have fired, twice
        clock.advance(seconds=10)  # a look at everything
        assert step().did == 50
        while step().did:
            pass
    app.close()
    assert all_fired(postgres_dsn) == MANY + 1


def all_fired(dsn: str) -> int:
    with psycopg.connect(dsn) as db:
        ((found,),) = db.execute("select sum(fired) from holdfast.schedule").fetchall()
    return int(found)


def test_what_is_set_for_an_earlier_time_is_found_by_the_next_look_a_second_later(desk: Desk) -> None:
    """A worker looks on from where it was, but at everything while that costs little."""
    desk.app.set_schedule("x", daily("06:00"), "due")
    desk.app.set_schedule("y", daily("06:00"), "due")
    desk.app.operations.schedules.pause("y")
    step = desk.ticker()
    desk.later(hours=7)
    assert (step().did, step().did) == (1, 0)
    again(desk, "y", desk.clock.instant - timedelta(hours=1))
    desk.later(seconds=1)
    assert step().did == 1


@pytest.mark.one_postgres
def test_looks_at_everything_rest_fifty_times_what_they_take(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But 5 s at most: so little of a worker's time goes into them while they are dear."""
    clock = MovableClock(datetime(2026, 3, 1, tzinfo=UTC))
    app = Holdfast(postgres_dsn, clock=clock)
    app.migrate()
    step = Ticker(app.store, clock, None, list)
    step()
    since, takes = list[object](), 0.02
    read = app.store.read

    def noted(plan: Any) -> Any:
        since.append(step._since)
        clock.advance(seconds=takes)
        return read(plan)

    monkeypatch.setattr(app.store, "read", noted)

    def everything(after: float) -> bool:
        clock.advance(seconds=after)
        since.clear()
        step()
        return since == [FIRST]

    assert [everything(each) for each in (1, 0.9, 0.2, 0.9, 0.2)] == [True, False, True, False, True]
    takes = 3.0
    assert [everything(each) for each in (1, 1, 1, 6)] == [True, False, False, True]
    app.close()


def again(desk: Desk, name: str, at: datetime) -> None:
    def plan() -> Plan[None]:
        yield Query(
            (Text("update holdfast.schedule set next_at = :at, paused_at = null where name = :name"),),
            {"at": at, "name": name},
        )

    desk.app.store.run(plan())


def test_what_fires_is_handed_out_before_it_is_asked_what_is_next(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.app.set_schedule("x", daily("06:00"), "due")
    step = desk.ticker()
    step()
    desk.later(days=1)
    said: list[str] = []
    bind = desk.app.store.engine.bind

    def noted(query: Any, now: Any) -> Any:
        said.append(query.parts[0])
        return bind(query, now)

    monkeypatch.setattr(desk.app.store.engine, "bind", noted)
    fired = step()
    assert "schedules/schedule_first" in said[: said.index("schedules/schedule_due")]
    assert said.count("schedules/schedule_first") == 1
    assert (fired.did, fired.next_at) == (1, fired.now)  # so the next turn asks at once
    then = step()
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
