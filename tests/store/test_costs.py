"""What a message costs, counted and not timed: statements, round trips, commits, and rows that the server looks at.

Rows are those that PostgreSQL itself counts as read. They must grow with the batch and with nothing else: not with the
backlog, nor with what the planner believes of tables that were empty when they were analyzed, as those of a queue
mostly are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from holdfast.model.work import Batch, Delta, Leased, Look, Report, Want
from holdfast.rules import delivery
from holdfast.store import SqliteStore
from holdfast.store.connecting_sqlite import connect, execute
from holdfast.store.plans import engine, instances
from holdfast.store.postgres import PostgresStore
from holdfast.store.statement import Plan, Runnable, Statement, drive
from tests.store.box import QUEUE, TYPE, Box, concluded, done, failed, new
from tests.store.conftest import sqlite_box
from tests.store.guessing import WORK, begun, guessed, stand

BATCH = 100
TABLES = ("message", "lease", "stream", "dedupe", "worker", "queue", "subscription")


def statements(box: Box, plan: Runnable[Any]) -> tuple[list[str], Any]:
    """The statements of a plan, and what it answers."""
    said: list[str] = []

    def listening() -> Plan[Any]:
        inner = box.store.bound(plan)
        rows: Any = None
        try:
            while True:
                statement = inner.send(rows)
                said.append(statement.sql)
                rows = yield statement
        except StopIteration as end:
            return end.value

    return said, box.store.run(listening())


@pytest.mark.parametrize("streams", [0, 1, BATCH])
def test_an_exchange_has_as_many_statements_for_many_as_for_few(box: Box, streams: int) -> None:
    counts = []
    for size in (5, BATCH):
        box.publish(*(new(n, stream=f"s{n % streams}" if streams else None) for n in range(size)))
        want = [Want(QUEUE, size, run=size)]
        work = box.exchange(want=want, total=size, run=size).work
        assert len(work) == size
        number = box.worker()
        report = Report(number, [done(each) for each in work], want=want, total=size)
        said, _ = statements(box, engine.exchange(report))
        counts.append(len(said))
    if not box.sqlite:
        assert counts == [1, 1]
    elif streams == BATCH:  # on SQLite, which has no round trips, each stream is asked for what follows
        assert counts[1] <= counts[0] + BATCH
    else:
        assert counts[0] == counts[1] <= 16


@pytest.mark.parametrize("other", ["a", "z"])
def test_messages_of_another_queue_cost_an_exchange_no_statement(box: Box, other: str) -> None:
    """An application with one queue looked into it whenever any other had messages: a fifth of an idle exchange."""
    report = Report(box.worker(), want=[Want("nobody", 10)], total=10, peek=True)
    before, _ = statements(box, engine.exchange(report))
    box.send_all(*range(5), queue=other)
    behind, batch = statements(box, engine.exchange(report))
    assert behind == before
    assert batch.work == []


def test_many_are_published_with_one_statement(box: Box) -> None:
    messages = [new(n) for n in range(BATCH)]
    said, _ = statements(box, engine.append(messages))
    # SQLite has no round trips: the queues of the type are asked for first.
    assert len(said) == (2 if box.sqlite else 1)


def commits(box: Box) -> int:
    """How many transactions have written so far: PostgreSQL numbers them, SQLite's log marks the end of each."""
    if isinstance(box.store, PostgresStore):
        with psycopg.connect(box.dsn, autocommit=True) as connection:
            ((number,),) = connection.execute("select pg_current_xact_id()::text").fetchall()
        return int(number) - 1  # this one is the next
    log = Path(f"{box.store.path}-wal").read_bytes()
    page, salt = int.from_bytes(log[8:12], "big"), log[16:24]
    frames = (log[at : at + 24] for at in range(32, len(log), 24 + page))
    return sum(each[4:8] != bytes(4) for each in frames if each[8:16] == salt)


def test_a_batch_is_one_commit_to_publish_and_one_to_exchange(box: Box) -> None:
    """Somebody else, autovacuum say, may commit beside us now and then, but not each time."""
    counts = []
    for _ in range(3):
        before = commits(box)
        box.publish(*(new(n) for n in range(3 * BATCH)))
        published = commits(box)
        want, work = [Want(QUEUE, BATCH)], list[Leased]()
        box.worker()
        begun = commits(box)
        for _ in range(3):
            settled = [done(each) for each in work]
            work = list(box.exchange(*settled, want=want, total=BATCH).work)
            assert len(work) == BATCH
        ended = commits(box)
        box.settle(*(done(each) for each in work))
        own = 0 if box.sqlite else 1  # what the count itself takes
        counts.append((published - before - own, ended - begun - own))
    assert (1, 3) in counts


def reads(box: Box, work: Callable[[], Any]) -> int:
    """How many rows the server has looked at meanwhile, in the tables that work goes through."""

    def flush() -> Plan[None]:
        yield Statement("select pg_stat_force_next_flush()")

    def read() -> int:
        with psycopg.connect(box.dsn, autocommit=True) as connection:
            ((count,),) = connection.execute(
                "select sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) from pg_stat_user_tables"
                " where schemaname = 'holdfast' and relname = any (%s)",
                (list(TABLES),),
            ).fetchall()
        return int(count)

    box.store.run(flush())
    before = read()
    work()
    box.store.run(flush())
    return read() - before


def plans_of(box: Box, work: Callable[[], Any], **how: str) -> list[str]:
    """How PostgreSQL did it: the plans of all statements, also of those inside of functions."""
    told: list[str] = []

    def hear(diagnostic: psycopg.errors.Diagnostic) -> None:
        told.append(diagnostic.message_primary or "")

    assert isinstance(box.store, PostgresStore)
    with box.store._connection() as connection:  # the one that does the work, too
        connection.execute("load 'auto_explain'")
        for name, value in (
            ("log_min_duration", "0"),
            ("log_nested_statements", "on"),
            ("log_level", "notice"),
            *how.items(),
        ):
            connection.execute(f"set auto_explain.{name} = {value}".encode())
        connection.add_notice_handler(hear)
    work()
    with box.store._connection() as connection:
        connection.remove_notice_handler(hear)
        connection.execute("set auto_explain.log_min_duration = -1")
    return told


def drop_plans(box: Box) -> None:
    """What was planned before is forgotten."""
    box.store.close()


def analyze(box: Box) -> None:
    with psycopg.connect(box.dsn, autocommit=True) as connection:
        for table in TABLES:
            connection.execute(f"analyze holdfast.{table}".encode())


def leave_the_dead(box: Box) -> None:
    """Tables that are analyzed when they have pages full of the dead and nobody alive.

    The names of the streams are so long that their index has a level more than the others: among indexes of which none
    is believed to have any entry, PostgreSQL takes the flattest.
    """
    with psycopg.connect(box.dsn, autocommit=True) as connection:
        # As flat as can be, whatever other tests have left.
        connection.execute("reindex table holdfast.message")
    box.publish(*(new(n, stream=f"s{n:0200}", dedupe=f"k{n}") for n in range(100)))
    box.settle(*(done(each) for each in box.claim(heads=100)))
    box.query("delete from {stream}")
    box.query("delete from {dedupe}")
    analyze(box)
    drop_plans(box)


@pytest.mark.parametrize("how", ["one by one", "plain"])
@pytest.mark.parametrize("believed", ["nothing", "empty"])
def test_rows_read_grow_with_what_one_transaction_publishes(pg_box: Box, how: str, believed: str) -> None:
    """Found in review: each message looked at all that the transaction had published before it."""
    box, count = pg_box, 3 * BATCH
    if believed == "empty":
        leave_the_dead(box)

    def publish() -> None:
        with box.connection() as db:
            if how == "plain":
                rows = f"select 'order.placed', '1', 's' || n % 7 from generate_series(1, {count}) n"
                db.execute(f"insert into holdfast.message (type, body, stream) {rows}".encode())
            for n in range(count if how == "one by one" else 0):
                box.publish_on(db, new(n, stream=f"s{n % 7}"))
            db.commit()
            db.execute("select pg_stat_force_next_flush()")
            db.commit()

    publish()  # a backlog, and plans
    assert reads(box, publish) < 12 * count


@pytest.mark.parametrize("streams", [0, 1, 50])
@pytest.mark.parametrize("believed", ["nothing", "empty", "full"])
def test_rows_read_grow_with_the_batch_only(pg_box: Box, streams: int, believed: str) -> None:
    """Found in a benchmark: planned when the tables were empty, each exchange read the whole backlog 500 times."""
    box, work = pg_box, list[Leased]()
    drop_plans(box)
    if believed == "empty":
        leave_the_dead(box)
    box.publish(*(new(n, stream=f"s{n % 3}" if streams else None, dedupe=f"a{n}") for n in range(6)))
    box.settle(*(done(each) for each in box.claim()))  # plans are made here
    for first in range(0, 4000, 1000):
        fields = [{"stream": f"s{n % streams}"} if streams else {} for n in range(first, first + 1000)]
        box.publish(*(new(n, type=TYPE, **field) for n, field in enumerate(fields)))
    if believed == "full":
        analyze(box)
    work = []
    want = [Want(QUEUE, BATCH if not streams else min(streams, BATCH), run=BATCH)]

    def claim() -> None:
        work[:] = box.exchange(want=want, total=BATCH, run=BATCH).work

    def turn(*settled: Any) -> Callable[[], None]:
        def both() -> None:
            work[:] = box.exchange(*settled, want=want, total=BATCH, run=BATCH).work

        return both

    assert reads(box, claim) < 12 * BATCH
    for _ in range(2):
        assert len(work) == BATCH
        assert reads(box, turn(*(done(each) for each in work))) < 12 * BATCH
    assert reads(box, lambda: box.renew(*work)) < 12 * BATCH
    one = next(each for each in work if each.run == each.message.seq)
    assert reads(box, turn(failed(one, ValueError("no")))) < 12 * BATCH
    assert reads(box, lambda: box.publish(*(new(n, dedupe=f"b{n}") for n in range(BATCH)))) < 12 * BATCH
    box.pass_time(seconds=60)
    assert reads(box, box.recover) < 12 * BATCH


@pytest.mark.parametrize("streams", [0, 50])
@pytest.mark.parametrize("believed", ["nothing", "empty", "full"])
@pytest.mark.parametrize("backlog", [BATCH, 4000])
def test_every_look_goes_through_an_index(pg_box: Box, streams: int, believed: str, backlog: int) -> None:
    box = pg_box
    drop_plans(box)
    if believed == "empty":
        leave_the_dead(box)
    for first in range(0, backlog, BATCH):
        stream = [f"s{n % streams}" if streams else None for n in range(first, first + BATCH)]
        box.publish(*(new(n, stream=each) for n, each in enumerate(stream)))
    if believed == "full":
        analyze(box)
    want = [Want(QUEUE, min(streams or BATCH, BATCH), run=BATCH)]
    work = box.exchange(want=want, total=BATCH, run=BATCH).work
    settled = [done(each) for each in work]
    text = "\n".join(plans_of(box, lambda: box.exchange(*settled, want=want, total=BATCH, run=BATCH)))
    looks = re.findall(
        r"((?:Seq|Index|Index Only|Bitmap Heap) Scan[^\n]* on (?:message|lease|stream)\b[^\n]*)\n([^\n]*)",
        text,
    )
    assert any("message_claim" in look for look, _ in looks), text
    assert [(look, how) for look, how in looks if "Index Cond" not in how] == []


def steps(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from steps(inner)


def rows_through(step: dict[str, Any]) -> float:
    """How many rows a step of a plan has had in its hands, those that it threw away too. PostgreSQL tells averages."""
    thrown = (count for name, count in step.items() if name.startswith("Rows Removed by"))
    return float((step["Actual Rows"] + sum(thrown)) * step["Actual Loops"])


@pytest.mark.parametrize("streams", [0, BATCH])
def test_no_step_of_a_plan_compares_all_with_all(pg_box: Box, streams: int) -> None:
    """Found in a profile: each head was compared with all followers of the batch, a third of what a claim took."""
    box = pg_box
    for first in range(0, 1000, BATCH):
        stream = [f"s{n % streams}" if streams else None for n in range(first, first + BATCH)]
        box.publish(*(new(n, stream=each) for n, each in enumerate(stream)))
    want = [Want(QUEUE, BATCH // 2 if streams else BATCH, run=2)]  # of the streams, the others are next
    runs: dict[int, list[Leased]] = {}
    for each in box.exchange(want=want, total=BATCH, run=2).work:
        runs.setdefault(each.run, []).append(each)
    settled = [done(run[0]) for run in runs.values()]
    moves = [(run[0].run, run[1].message.seq) for run in runs.values() if len(run) > 1]
    assert len(moves) == streams // 2
    answers: list[Batch] = []
    told = plans_of(
        box,
        lambda: answers.append(box.exchange(*settled, moves=moves, want=want, total=BATCH, run=2)),
        log_analyze="on",
        log_timing="off",
        log_format="json",
    )
    plans = [json.loads(each.partition("plan:")[2]) for each in told]
    busy = {
        (plan["Query Text"], step["Node Type"]): rows_through(step)
        for plan in plans
        for step in steps(plan["Plan"])
        if rows_through(step) > 4 * BATCH
    }
    assert answers[0].work
    assert not answers[0].lost
    assert busy == {}


@pytest.mark.parametrize("believed", ["nothing", "empty"])
def test_rows_read_grow_with_the_queues_of_a_family_that_have_work(pg_box: Box, believed: str) -> None:
    """Ten thousand are known, fifty have work: the others are not looked at, whatever the planner believes."""
    box = pg_box
    if believed == "empty":
        leave_the_dead(box)
    box.query(
        "insert into {queue} (name) select 'customers/known-' || n from generate_series(1, 10000) n"
        " on conflict do nothing"
    )
    live = [f"customers/{n}" for n in range(50)]
    box.publish(*(new(queue, queue=queue) for queue in live for _ in range(3)))
    looks, want = [Look("customers", count=500)], [Want(queue, 1) for queue in live]
    box.exchange(looks=looks)
    found: list[Batch] = []
    looked = reads(box, lambda: found.append(box.exchange(looks=looks)))
    assert sorted(found[0].found["customers"].queues) == sorted(live)
    assert looked <= 2 * len(live)
    plain = reads(box, lambda: box.exchange(want=want, total=1000))
    both = reads(box, lambda: box.exchange(want=want, total=1000, looks=looks))
    assert both <= plain + 4 * len(live)


# --- Turns of orchestrations ------------------------------------------------------------------------------------------


def turned(box: Box, size: int, name: str) -> tuple[Report, list[str]]:
    """So many instances that wait for their first turn, and the report that stores it, each with a call."""
    ids = [f"{name}{n}" for n in range(size)]
    flow = "flow@1"
    box.store.run(engine.subscribe({flow: []}))

    def begin() -> Plan[None]:
        for n, id in enumerate(ids):
            yield from instances.begin(new(n, stream=id, queue=flow))

    box.store.run(begin())
    want = [Want(flow, size)]
    work = box.exchange(want=want, total=size).work
    assert len(work) == size
    turns = [
        concluded(
            each,
            delivery.Returned(
                emits=(new(each.message.seq),),
                delta=Delta(
                    "turns",
                    ({
                        "id": each.message.stream, "execution": 0, "turn": 1, "part": 0, "body": "{}",
                        "state": "running", "mark": str(uuid4()), "entries": 1, "size": 2,
                    },),
                ),
            ),
        )
        for each in work
    ]  # fmt: skip
    return Report(box.worker(), turns, want=want, total=size), ids


def test_turns_are_stored_with_as_many_statements_for_many_as_for_few(box: Box) -> None:
    """A turn with a call: one read of all instances, and one exchange that stores all turns and sends all calls."""
    counts = []
    for size in (5, BATCH):
        report, ids = turned(box, size, f"of{size}-")
        said, stands = statements(box, instances.stands(ids))
        assert (len(said), len(stands)) == (1, size)
        said, batch = statements(box, engine.exchange(report))
        assert not batch.lost
        counts.append(len(said))
        assert {each.turn for each in box.store.run(instances.stands(ids)).values()} == {1}
    if box.sqlite:  # one more looks for work where the calls of the turns before wait
        assert counts[1] <= counts[0] + 1 <= 20
    else:
        assert counts == [1, 1]


def test_turns_of_a_batch_are_one_commit(box: Box) -> None:
    counts = []
    for round in range(3):
        report, ids = turned(box, BATCH, f"round{round}-")
        before = commits(box)
        box.store.run(instances.stands(ids))
        box.store.run(engine.exchange(report))
        counts.append(commits(box) - before - (0 if box.sqlite else 1))
    assert 1 in counts


@pytest.mark.parametrize("missed", [0, 1, BATCH])
def test_turns_that_are_run_ahead_cost_one_exchange(box: Box, missed: int) -> None:
    """A step of each of many instances is one exchange and one commit, with as many statements for many as for few.

    Autovacuum may commit beside us now and then, but not each time.
    """
    counts, committed = [], list[int]()
    for size in (5, BATCH):
        ids = [f"{size}-{n}" for n in range(size)]
        calls = begun(box, *ids)
        for id in ids[:missed]:
            box.query("update {instance} set mark = :mark where id = :id", mark=str(uuid4()), id=id)
        before = commits(box)
        report = Report(box.worker(), [guessed(each) for each in calls], want=[Want(WORK, size)], total=size)
        said, batch = statements(box, engine.exchange(report))
        committed.append(commits(box) - before)
        assert len(batch.work) == max(0, size - missed)
        counts.append(len(said))
        box.settle(*(done(each) for each in batch.work))
        assert sum(stand(box, id).turn for id in ids) == 2 * size - min(size, missed)
    assert counts[1] <= counts[0] + box.sqlite
    assert min(committed) == (1 if box.sqlite else 2)


def busy_steps(box: Box, report: Report) -> dict[tuple[str, str], float]:
    """The steps of the plans of an exchange that have had more rows in their hands than there are messages."""
    told = plans_of(
        box,
        lambda: box.store.run(engine.exchange(report)),
        log_analyze="on",
        log_timing="off",
        log_format="json",
    )
    plans = [json.loads(each.partition("plan:")[2]) for each in told]
    return {
        (plan["Query Text"], step["Node Type"]): rows_through(step)
        for plan in plans
        for step in steps(plan["Plan"])
        if rows_through(step) > 4 * BATCH
    }


@pytest.mark.parametrize("lost", [0, 1])
def test_no_step_of_a_plan_compares_all_turns_with_all_leases(pg_box: Box, lost: int) -> None:
    """Found in a profile: each delta was compared with all runs of the report, and its JSON read anew each time."""
    box = pg_box
    report, _ = turned(box, BATCH, "flow-")
    box.query("analyze")  # else the plans depend on what was in the tables when they were last looked at
    if lost:  # then it must be looked at which of them stood
        box.query(f"delete from holdfast.lease where seq = {report.settlements[0].leased.message.seq}")
    assert busy_steps(box, report) == {}
    ((count,),) = box.query("select count(*) from holdfast.journal")
    assert count == BATCH - lost


@pytest.mark.parametrize("missed", [0, BATCH // 2])
def test_no_step_of_a_plan_compares_all_guesses_with_all_instances(pg_box: Box, missed: int) -> None:
    box = pg_box
    ids = [f"i{n}" for n in range(BATCH)]
    report = Report(box.worker(), [guessed(each) for each in begun(box, *ids)])
    for id in ids[:missed]:
        box.query("update {instance} set mark = :mark where id = :id", mark=str(uuid4()), id=id)
    box.query("analyze")
    assert busy_steps(box, report) == {}
    assert sum(stand(box, id).turn for id in ids) == 2 * BATCH - missed


def test_a_turn_on_sqlite_costs_the_same_whatever_is_pending(tmp_path: Path) -> None:
    """It looked for what it withdraws in all that was pending: 880 us a turn with 20,000 messages, and 18 with none."""
    counts = []
    for name, backlog in (("few", 0), ("many", 4 * BATCH)):
        box = sqlite_box(tmp_path / f"{name}.db")
        box.publish(*(new(n) for n in range(backlog)))
        report, _ = turned(box, 10, "flow-")
        counts.append(steps_on_sqlite(box, engine.exchange(report)))
        box.store.close()
    assert counts[1] < 1.5 * counts[0]


def test_turns_on_sqlite_are_stored_with_statements_for_all(tmp_path: Path) -> None:
    """A trigger for each turn read its JSON some thirty times, and looked behind each head one by one."""
    box = sqlite_box(tmp_path / "one.db")
    for size in (5, BATCH):
        report, ids = turned(box, size, f"of{size}-")
        said, _ = statements(box, engine.exchange(report))
        assert not any("insert into holdfast_turned" in each for each in said)
        assert sum("holdfast_journal" in each for each in said) == 1
        assert {each.turn for each in box.store.run(instances.stands(ids)).values()} == {1}
    box.store.close()


def test_heads_with_nothing_behind_them_are_claimed_with_as_many_statements_for_many_as_for_few(
    tmp_path: Path,
) -> None:
    counts = []
    for size in (5, BATCH):
        box = sqlite_box(tmp_path / f"{size}.db")
        box.publish(*(new(n, stream=f"s{n}", queue=QUEUE) for n in range(size)))
        want = [Want(QUEUE, size, run=50)]
        said, batch = statements(box, engine.exchange(Report(box.worker(), want=want, total=2 * size)))
        assert len(batch.work) == size
        counts.append(len(said))
        box.store.close()
    assert counts[0] == counts[1]


def steps_on_sqlite(box: Box, plan: Runnable[Any]) -> int:
    """How many hundreds of instructions SQLite needs for it."""
    count = 0

    def step() -> None:
        nonlocal count
        count += 1

    assert isinstance(box.store, SqliteStore)
    with closing(connect(box.store.path)) as connection:
        connection.set_progress_handler(step, 100)
        drive(box.store.bound(plan), lambda s: execute(connection, s))
    return count
