"""Poison of turns and activities: how often each may start, what its end stores, who is told, and how it comes back."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    ActivityFailed,
    Flow,
    OrchestrationFailed,
    PoisonedActivity,
    PoisonedTurn,
    PoisonError,
    Reason,
    RetryPolicy,
)
from holdfast.bodies.keys import new_key
from holdfast.model.failure import FailureDescription
from holdfast.model.work import Report, Want
from holdfast.operations.dead import Filter
from holdfast.orchestrations.journal import decode
from holdfast.store.plans import engine
from holdfast.telemetry.sheet import Sheet
from tests.orchestrations.shop import Shop
from tests.store.state import check_invariants

N = 3
AT_ONCE = RetryPolicy(attempts_max=N, base=0.0, factor=1.0, cap=0.0)


class Bench(Shop):
    """A shop with an activity and a parent and child whose turns and calls are counted, and go wrong so often."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.turns: list[str] = []
        self.calls: list[str] = []
        self.circles = self.raises = 0  # the first so many turns and calls go wrong
        app = self.app

        @app.activity(retry=AT_ONCE)
        async def fragile(word: str) -> str:
            self.calls.append(word)
            if len(self.calls) <= self.raises:
                raise RuntimeError(f"no {word}")
            return word.upper()

        @app.orchestration(max_attempts=N)
        async def child(word: str, flow: Flow) -> str:
            self.turns.append(word)
            while len(self.turns) <= self.circles:  # noqa: ASYNC110
                await asyncio.sleep(0)
            return await fragile(word)

        @app.orchestration()
        async def parent(word: str) -> Any:
            try:
                return await child.using(id="kid")(word)
            except OrchestrationFailed as error:
                return [error.category, error.poison is not None]

        @app.orchestration()
        async def caller(word: str) -> Any:
            try:
                return await fragile(word)
            except ActivityFailed as error:
                return [error.category, error.poison is not None]

        self.fragile, self.child, self.parent, self.caller = fragile, child, parent, caller

    def hand_out(self, queue: str, way: str) -> None:
        """Somebody takes the next message of a queue and does not come back with it as he should."""
        store, worker = self.app.store, 4711
        (leased,) = store.run(
            engine.exchange(Report(worker, want=[Want(queue, 1)], total=1, suspects=self._suspects(queue)))
        ).work
        match way:
            case "crash":
                store.run(engine.recover(worker=worker, running=[leased.message.seq]))
            case "hang":
                self.clock.advance(seconds=60)
                store.run(engine.recover())
            case "abandon":
                store.run(engine.exchange(Report(worker, [self.app.give_back(leased, refund=False)])))

    def _suspects(self, queue: str) -> bool:
        return bool(self.app.store.run(engine.suspects_wait([queue])))

    def drain(self, *queues: str) -> None:
        """Also what a suspect leaves behind: it is handed out alone, when all else is done."""
        for _ in range(1 if queues else 3):
            super().drain(*queues)

    def failed(self, id: str) -> OrchestrationFailed:
        with pytest.raises(OrchestrationFailed) as raised:
            self.of.result(id)
        return raised.value

    def filled(self) -> set[str]:
        """The tables that have rows, as the catalog of the database knows them."""
        if self.url.startswith("sqlite"):
            found = self.query(
                "select substr(name, 10) from sqlite_schema where type = 'table' and name glob 'holdfast_*'"
            )
        else:
            found = self.query("select tablename from pg_tables where schemaname = 'holdfast'")
        return {name for (name,) in found if self.query(f"select 1 from {self.prefix}{name} limit 1")}

    def journal(self, id: str) -> list[Any]:
        found = self.query(f"select turn, part, body from {{journal}} where id = '{id}' order by turn")
        return [decode(id, 0, turn, part, text) for turn, part, text in found]


@pytest.fixture
def bench(url: str) -> Iterator[Bench]:
    made = Bench(url)
    made.app.prepare()
    yield made
    made.forget()
    check_invariants(made.app.store)
    made.app.close()


# --- How often --------------------------------------------------------------------------------------------------------


@pytest.mark.covers("D4", "D9", "D11", "D12", "D14", "D17", "D18", "D38", "D52", "D55", "D57", "X12")
@pytest.mark.parametrize("lost", [N - 1, N])
@pytest.mark.parametrize("way", ["crash", "hang", "abandon"])
def test_a_turn_starts_n_times_and_the_next_hand_over_ends_its_instance(
    bench: Bench, way: str, lost: int
) -> None:
    bench.of.start(bench.parent, "ok", id="p")
    bench.drain("parent@1")
    for _ in range(lost):
        bench.hand_out("child@1", way)
    bench.drain()
    if lost < N:
        assert (bench.of.result("p"), bench.turns) == ("OK", ["ok"]), "hand-over N runs"
        assert bench.query("select count(*) from {dead}") == [(0,)]
        return
    assert bench.turns == [], "hand-over N + 1 runs none of the user's code"
    assert bench.of.result("p") == ["poison", True]
    failed = bench.failed("kid")
    poison = failed.poison
    assert poison is not None
    assert (poison.attempt_count, poison.max_attempts) == (N + 1, N)
    assert poison.message_type == PoisonedTurn("kid", 0)


@pytest.mark.covers("D4", "D9", "D12", "D14", "D17", "D18", "D31", "D38", "D45", "D53", "D55", "D57")
@pytest.mark.parametrize("lost", [N - 1, N])
@pytest.mark.parametrize("way", ["crash", "hang", "abandon"])
def test_an_activity_starts_n_times_and_the_next_hand_over_fails_its_call(
    bench: Bench, way: str, lost: int
) -> None:
    bench.of.start(bench.caller, "ok", id="c")
    bench.drain("caller@1")
    for _ in range(lost):
        bench.hand_out("fragile", way)
    bench.drain()
    assert bench.calls == ([] if lost == N else ["ok"])
    assert bench.of.result("c") == (["poison", True] if lost == N else "OK")


@pytest.mark.covers("D14", "D55", "D57", "X12")
@pytest.mark.parametrize("bad", [N - 1, N, N + 1])
def test_a_turn_that_runs_in_circles_has_n_starts(bench: Bench, bad: int) -> None:
    bench.circles = bad
    bench.of.start(bench.parent, "ok", id="p")
    bench.drain()
    for _ in range(N):
        bench.advance(minutes=10)
    assert len(bench.turns) == N
    assert bench.of.result("p") == ("OK" if bad < N else ["poison", True])


@pytest.mark.covers("D55", "D57")
@pytest.mark.parametrize("bad", [N - 1, N, N + 1])
def test_an_activity_that_raises_has_n_starts(bench: Bench, bad: int) -> None:
    """It has answered each time, so it is no poison: its call fails with what it raised."""
    bench.raises = bad
    bench.of.start(bench.caller, "ok", id="c")
    bench.drain()
    assert len(bench.calls) == N
    assert bench.of.result("c") == ("OK" if bad < N else ["application", False])


# --- What its end stores ----------------------------------------------------------------------------------------------


@pytest.mark.covers(
    "D6", "D7", "D29", "D30", "D34", "D36", "D40", "D41", "D42", "D43", "D56", "D59", "X12", "X38"
)
def test_the_error_of_a_poisoned_turn_has_the_message_and_what_waited_behind_it(bench: Bench) -> None:
    bench.of.start(bench.child, "start-secret", id="kid")
    for n in range(105):
        bench.of.signal("kid", "word", f"signal-secret-{n}")
    for _ in range(N):
        bench.hand_out("child@1", "crash")
    bench.drain()
    failed = bench.failed("kid")
    poison = failed.poison
    assert isinstance(poison, PoisonError)
    assert str(poison) == "Orchestration kid, execution 0, is poison: 3 of 3 attempts are used up."
    whole = json.loads(poison.message)
    assert "start-secret" in whole["body"]
    assert [each["body"] for each in whole["pending"]] == [
        json.dumps({"name": "word", "body": f'"signal-secret-{n}"'}, separators=(",", ":"))
        for n in range(100)
    ]
    assert whole["pending_left_out"] == 5
    assert failed.error.poison is not None
    assert FailureDescription.from_json(failed.error.poison).error is not None
    assert "secret" not in f"{failed} {poison} {bench.of.status('kid').trouble}"
    (row,) = bench.journal("kid")
    assert row.poison.started is not None
    assert "start-secret" in row.poison.started.input
    assert row.poison.failure.category == "poison"
    # The lease is released, the message is a dead letter, and those behind it wait for who redrives or discards it.
    assert bench.query("select count(*) from {lease}") == [(0,)]
    assert bench.query("select count(*) from {message} where head") == [(0,)]
    assert bench.query("select count(*) from {dead}") == [(1,)]


@pytest.mark.covers("D60")
@pytest.mark.parametrize("what", ["turn", "activity"])
def test_poison_is_kept_where_any_other_failure_is_kept(bench: Bench, what: str) -> None:
    """First an activity raises too often and its instance fails. What is poison then fills no other table, neither
    while its starts are counted nor at its end.
    """
    bench.raises = N
    bench.of.start(bench.child, "ok", id="raised")
    bench.drain()
    assert bench.failed("raised").poison is None
    usual = bench.filled() | {"message", "lease"}  # these two are empty when all has ended
    assert "dead" in usual
    bench.of.start(bench.child, "ok", id="kid")
    if what == "activity":
        bench.drain("child@1")
    for _ in range(N):
        bench.hand_out("child@1" if what == "turn" else "fragile", "crash")
        assert bench.filled() <= usual
    bench.drain()
    assert bench.of.status("kid").state == "failed"
    assert bench.query("select last_reason from {dead} order by 1") == [(2,), (8,)]
    assert bench.filled() <= usual


@pytest.mark.covers("X38", "D39", "D44")
def test_logs_name_the_instance_and_the_counts_and_no_payload(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="holdfast")
    bench.of.start(bench.child, "secret", id="kid")
    bench.of.start(bench.caller, "secret", id="c")
    for _ in range(N):
        bench.hand_out("child@1", "crash")
    bench.drain("caller@1", "child@1")
    for _ in range(N):
        bench.hand_out("fragile", "crash")
    bench.drain()
    told = {record.event: record for record in caplog.records if hasattr(record, "event")}
    turn, activity = told["orchestration.poison"], told["message.poison"]
    assert (turn.instance, turn.attempt_count, turn.max_attempts, turn.levelname) == (
        "kid",
        N + 1,
        N,
        "WARNING",
    )
    assert (activity.instance, activity.activity, activity.activity_id) == ("c", "fragile", 1)
    assert (activity.attempt, activity.attempts_max, activity.levelname) == (N + 1, N, "WARNING")
    assert "secret" not in caplog.text.lower()


@pytest.mark.covers("D45", "D46", "D31", "D35", "X38")
def test_the_error_of_a_poisoned_activity_has_its_work_item(bench: Bench) -> None:
    found: list[PoisonError | None] = []

    @bench.app.orchestration()
    async def asks(word: str) -> None:
        try:
            await bench.fragile(word)
        except ActivityFailed as error:
            found.append(error.poison)

    bench.of.start(asks, "secret", id="a")
    bench.drain("asks@1")
    for _ in range(N):
        bench.hand_out("fragile", "crash")
    bench.drain()
    assert found[0] is not None
    assert found[0].message_type == PoisonedActivity("a", 0, "fragile", 1)
    assert str(found[0]) == "Activity fragile#1 of instance a is poison: 3 of 3 attempts are used up."
    assert "secret" in found[0].message
    assert PoisonError(**found[0].to_dict()).message_type == found[0].message_type  # type: ignore[arg-type]


@pytest.mark.covers("X12", "D48")
def test_a_message_that_cannot_be_read_is_poison_of_its_own_kind(bench: Bench) -> None:
    bench.of.start(bench.parent, "ok", id="p")
    bench.drain("parent@1")
    bench.execute(f"update {bench.prefix}message set body = '{{\"broken\":' where queue = 'child@1'")
    bench.drain()
    assert bench.turns == []
    assert bench.of.result("p") == ["poison", True]
    failed = bench.failed("kid")
    assert (failed.reason, failed.category) == (Reason.SERIALIZATION_ERROR, "poison")
    assert "cannot go on" in str(failed)
    assert bench.query("select attempts from {dead}") == [(1,)], "never in a loop"
    (row,) = bench.journal("kid")
    assert (row.poison.started.message, row.poison.started.input) == (row.poison.message, None)


@pytest.mark.covers("X12")
def test_the_body_of_an_activity_that_cannot_be_read_is_poison(bench: Bench) -> None:
    bench.of.start(bench.caller, "ok", id="c")
    bench.drain("caller@1")
    bench.execute(f"update {bench.prefix}message set body = '{{}}' where queue = 'fragile'")
    bench.drain()
    assert bench.calls == []
    assert bench.of.result("c") == ["poison", True]


@pytest.mark.covers("X12")
def test_a_journal_that_cannot_be_read_fails_the_parents_call(bench: Bench) -> None:
    bench.of.start(bench.parent, "ok", id="p")
    bench.drain("parent@1")
    bench.drain("child@1")
    bench.forget()
    bench.execute(f"update {bench.prefix}journal set body = 'no JSON' where id = 'kid'")
    bench.drain()
    assert bench.of.result("p") == ["poison", True]
    assert bench.failed("kid").reason == Reason.SERIALIZATION_ERROR
    assert bench.query("select attempts from {dead}") == [(1,)]


@pytest.mark.covers("D48", "D5")
def test_a_message_of_a_type_that_is_none_of_ours_dies_alone(bench: Bench) -> None:
    bench.of.start(bench.child, "ok", id="kid")
    bench.of.signal("kid", "word", 1)
    bench.execute(f"update {bench.prefix}message set type = 'foreign' where type = 'holdfast.signal'")
    bench.drain()
    assert bench.of.result("kid") == "OK"
    assert bench.query("select type, reason from {dead}") == [("foreign", Reason.NO_HANDLER)]


def test_with_keys_nothing_of_it_is_stored_in_the_clear(url: str) -> None:
    bench = Bench(url, {"keys": [new_key("k1")]})
    bench.app.prepare()
    bench.of.start(bench.parent, "hush", id="p")
    bench.drain("parent@1")
    for _ in range(N):
        bench.hand_out("child@1", "crash")
    bench.drain()
    poison = bench.failed("kid").poison
    assert poison is not None
    assert poison.attempt_count == N + 1
    for table, column in (("instance", "result"), ("journal", "body"), ("dead", "body")):
        assert "hush" not in str(bench.query(f"select {column} from {{{table}}}"))
    assert bench.of.result("p") == ["poison", True]
    bench.forget()
    bench.app.close()


# --- Nobody else ------------------------------------------------------------------------------------------------------


@pytest.mark.covers("D5", "D54", "D58", "X39")
def test_neighbours_of_poison_are_unharmed(bench: Bench) -> None:
    for n in range(10):
        bench.of.start(bench.child, f"w{n}", id=f"good-{n}")
    bench.of.start(bench.child, "bad", id="bad")
    bench.execute(f"update {bench.prefix}message set attempts = {N}, vanished = {N} where stream = 'bad'")
    bench.drain()
    assert [bench.of.result(f"good-{n}") for n in range(10)] == [f"W{n}" for n in range(10)]
    assert bench.of.status("bad").state == "failed"
    assert bench.query("select stream from {dead}") == [("bad",)]
    assert bench.query("select max(attempts) from {history}") == [(1,)]


# --- Coming back ------------------------------------------------------------------------------------------------------


def test_redriving_a_poisoned_turn_opens_its_instance_again(bench: Bench) -> None:
    """Nothing that waited behind it is lost; the parent was told, and is not told again."""
    bench.of.start(bench.parent, "ok", id="p")
    bench.drain("parent@1")
    for _ in range(N):
        bench.hand_out("child@1", "crash")
    bench.drain()
    assert bench.of.result("p") == ["poison", True]
    ((id,),) = bench.query("select id from {dead}")
    bench.app.operations.dead.redrive(id)
    assert bench.of.status("kid").state == "running"
    bench.drain()
    assert bench.of.result("kid") == "OK"
    assert bench.of.result("p") == ["poison", True]
    assert [row.poison is not None for row in bench.journal("kid")] == [True, False, False]
    assert bench.query("select count(*) from {pending}") == [(0,)]


def test_answers_that_came_while_it_was_poison_are_not_lost(bench: Bench) -> None:
    @bench.app.orchestration(max_attempts=N)
    async def both() -> list[str]:
        return list(await asyncio.gather(bench.fragile("a"), bench.fragile("b")))

    bench.of.start(both, id="b")
    bench.drain("both@1")
    bench.drain("fragile")
    for _ in range(N):
        bench.hand_out("both@1", "crash")
    bench.drain()
    assert bench.failed("b").category == "poison"
    assert bench.query("select count(*) from {pending}") == [(1,)], "the other answer waits"
    bench.app.operations.dead.redrive_many(Filter(queue="both@1"))
    bench.drain()
    assert bench.of.result("b") == ["A", "B"]


def test_discarding_the_letter_of_a_poisoned_turn_ends_what_waits_behind_it(bench: Bench) -> None:
    bench.of.start(bench.child, "ok", id="kid")
    bench.of.signal("kid", "word", 1)
    for _ in range(N):
        bench.hand_out("child@1", "crash")
    bench.drain()
    ((id,),) = bench.query("select id from {dead}")
    bench.app.operations.dead.discard(id, why="nobody wants it")
    bench.drain()
    assert bench.query("select count(*) from {pending}") == [(0,)]
    assert bench.of.status("kid").state == "failed"


def test_an_activity_may_leave_its_instance_waiting_for_a_redrive(bench: Bench) -> None:
    """`on_dead="wait"`: a dead letter is no answer. Redriven, by a canary too, it lets its instance go on."""
    raises = True

    @bench.app.activity(retry=RetryPolicy(attempts_max=1), on_dead="wait")
    async def needs_repair(word: str) -> str:
        if raises:
            raise RuntimeError("the depot is closed")
        return word.upper()

    @bench.app.orchestration()
    async def waits(word: str) -> str:
        return await needs_repair(word)

    for word in "abc":
        bench.of.start(waits, word, id=word)
    bench.drain()
    assert bench.query("select count(*) from {dead}") == [(3,)]
    assert {bench.of.status(word).state for word in "abc"} == {"running"}
    assert "holdfast dead redrive" in " ".join(bench.app.operations.why("a"))
    raises = False
    stop = threading.Event()
    worker = threading.Thread(target=lambda: [bench.drain() for _ in iter(lambda: stop.wait(0.05), True)])
    worker.start()
    try:
        redriven = bench.app.operations.dead.redrive_many(Filter(queue="needs_repair"), canary=1)
    finally:
        stop.set()
        worker.join()
    assert (redriven.changed, redriven.canary.ended) == (3, 1)
    bench.drain()
    assert [bench.of.result(word) for word in "abc"] == ["A", "B", "C"]


@pytest.mark.parametrize("order", ["discard", "bury and discard", "bury and redrive", "cancel", "drop"])
def test_every_other_end_of_such_an_activity_answers(bench: Bench, order: str) -> None:
    @bench.app.activity(on_dead="wait")
    async def awaited() -> str:
        return "done"

    @bench.app.orchestration()
    async def waits() -> str:
        try:
            return await awaited()
        except ActivityFailed as error:
            return error.error.type

    bench.of.start(waits, id="w")
    bench.drain("waits@1")
    ((id,),) = bench.query("select id from {message} where queue = 'awaited'")
    operations = bench.app.operations
    if order == "cancel":
        operations.messages.cancel(id)
    elif order == "drop":
        operations.queues.drop("awaited", force=True)
    else:
        operations.messages.poison(id, "by hand")
        bench.drain("waits@1")
        assert bench.of.status("w").state == "running", "a dead letter is no answer"
        if order == "bury and redrive":
            operations.dead.redrive(id)
        else:
            operations.dead.discard(id, why="not wanted")
    bench.drain()
    assert bench.of.result("w") == ("done" if order == "bury and redrive" else "Cancelled")


def test_letters_that_an_instance_waits_for_are_not_archived(url: str, tmp_path: Path) -> None:
    bench = Bench(url, {"archive": str(tmp_path / "archive"), "dead_age": 60.0})
    (tmp_path / "archive").mkdir()

    @bench.app.activity(retry=RetryPolicy(attempts_max=1), on_dead="wait")
    async def awaited() -> None:
        raise RuntimeError

    @bench.app.activity(retry=RetryPolicy(attempts_max=1))
    async def other() -> None:
        raise RuntimeError

    @bench.app.orchestration()
    async def waits() -> None:
        await asyncio.gather(awaited(), other(), return_exceptions=True)

    bench.app.prepare()
    bench.of.start(waits, id="w")
    bench.drain()
    bench.clock.advance(days=3)
    assert bench.app.operations.files.archive().count == 1
    assert bench.query("select queue from {dead}") == [("awaited",)]
    bench.forget()
    bench.app.close()


# --- Numbers, and workers written by hand -----------------------------------------------------------------------------


@pytest.mark.covers("D47", "D49", "D50", "D51")
def test_poison_and_failures_are_counted(bench: Bench) -> None:
    sheet = Sheet()

    @bench.app.orchestration()
    async def fails() -> None:
        raise ValueError("no")

    async def counted() -> None:
        try:
            await bench.app.worker(until_idle=True, sheet=sheet).run()
        finally:
            await bench.app.store.aclose()

    bench.of.start(fails, id="f")
    bench.of.start(bench.child, "bad", id="kid")
    bench.of.start(bench.caller, "bad", id="c")
    bench.drain("caller@1")
    for _ in range(N):
        bench.hand_out("child@1", "crash")
        bench.hand_out("fragile", "crash")
    for _ in range(3):
        asyncio.run(counted())
    bench.raises = 100
    bench.of.start(bench.caller, "bad", id="c2")
    asyncio.run(counted())
    found = {(each.name, *each.labels): each.values[0] for each in sheet.read()}
    assert found["holdfast_poison_detected_total", "orchestration"] == 1
    assert found["holdfast_poison_detected_total", "activity"] == 1
    assert found["holdfast_orchestration_failures_total", "poison"] == 1
    assert found["holdfast_orchestration_failures_total", "application"] == 1
    assert found["holdfast_activity_failures_total", "poison"] == 1
    assert found["holdfast_activity_failures_total", "application"] == 1


@pytest.mark.covers("D22", "D24", "D25", "D26", "D27")
def test_a_worker_written_by_hand_gets_an_instance_with_its_history_and_messages(bench: Bench) -> None:
    @bench.app.orchestration(version="7")
    async def named(n: int, flow: Flow) -> list[int]:
        return [await flow.signal("word", int) for _ in range(3)]

    bench.of.start(named, 4, id="i")
    bench.drain("named@7")
    bench.of.signal("i", "word", 1)
    bench.of.signal("i", "word", 2)
    batch = bench.app.process_work_batch(want={"named@7": 1}, lease=5.0, wait=0.0)
    (item,) = batch.turns
    assert (item.instance, item.orchestration_name, item.version, item.execution_id) == ("i", "named", "7", 0)
    assert [each.message.type for each in item.messages] == ["holdfast.signal"] * 2
    assert [(each.attempt, len(each.token)) for each in item.messages] == [(1, 2)] * 2
    (row,) = (json.loads(each) for each in item.history)
    assert row["entries"][0][0][0] == "started"


@pytest.mark.covers("D4", "X12")
def test_poison_that_a_worker_written_by_hand_meets_ends_its_instance(bench: Bench) -> None:
    bench.of.start(bench.parent, "ok", id="p")
    bench.drain("parent@1")
    for _ in range(N):
        bench.hand_out("child@1", "crash")
    assert bench.app.process_work_batch(want={"child@1": 1}).work == []
    assert bench.failed("kid").category == "poison"
    bench.drain()
    assert bench.of.result("p") == ["poison", True]
