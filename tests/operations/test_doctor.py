"""What the doctor notices."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import MovableClock, SystemClock
from holdfast.model.message import Reason
from holdfast.model.work import Report, Want
from holdfast.operations import Operations
from holdfast.operations import database as doctor_of
from holdfast.operations.doctor import is_growing
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.plans import engine
from tests.operations.world import NOON, World

# What our test databases are.
TEST_SERVER = {
    "fsync",
    "full_page_writes",
    "synchronous_commit",
    "sqlite-version",
}


def names(world: World) -> list[str]:
    return [each.name for each in world.operations.doctor() if each.name not in TEST_SERVER]


def test_nothing_is_wrong(world: World) -> None:
    world.subscribe("q", "order.placed")
    world.worker("w1")
    world.publish()
    assert names(world) == []


def test_no_tables(bare_url: str) -> None:
    store = open_store(bare_url, Settings(), MovableClock(NOON))
    (found,) = Operations(store).doctor()
    assert (found.severity, found.name, found.remedy) == ("error", "schema", "Run `holdfast migrate`.")
    store.close()


def test_another_version(world: World, place: str) -> None:
    if place == "sqlite":
        world.sql("insert into holdfast.schema (version, applied_at) values (99, 'x')")
    else:
        world.sql("update holdfast.schema_version set version = 99")
    (found,) = world.operations.doctor()
    assert (found.severity, found.name) == ("error", "schema")
    assert "99" in found.text


def test_an_older_version_or_foreign_functions(world: World, place: str) -> None:
    if place == "sqlite":
        world.sql("delete from holdfast.schema")
    else:
        world.sql("update holdfast.schema_version set functions = 'older', number = 0")
    (found,) = world.operations.doctor()
    assert found.remedy == "Run `holdfast migrate`."


SQLITE: dict[str, Any] = {"version": "3.51.3", "journal_mode": "wal", "synchronous": 2, "options": []}


@pytest.mark.parametrize(
    ("version", "warned"),
    [("3.51.2", True), ("3.51.3", False), ("3.40.1", True), ("3.53.0", False), ("4.0.0", False)],
)
def test_the_version_of_sqlite(version: str, warned: bool) -> None:
    found = list(doctor_of.sqlite({**SQLITE, "version": version}))
    assert [each.name for each in found] == (["sqlite-version"] if warned else [])


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, []),
        ({"journal_mode": "delete"}, [("error", "journal-mode")]),
        ({"synchronous": 1}, [("error", "synchronous")]),
        ({"options": ["COMPILER=gcc", "DEFAULT_WAL_SYNCHRONOUS=1"]}, [("warning", "synchronous-default")]),
        ({"options": ["DEFAULT_SYNCHRONOUS=2"]}, []),
    ],
)
def test_what_sqlite_promises(changes: dict[str, Any], found: list[tuple[str, str]]) -> None:
    assert [(each.severity, each.name) for each in doctor_of.sqlite({**SQLITE, **changes})] == found


@pytest.mark.parametrize(
    ("kind", "size", "found"),
    [
        ("ext4", 0, []),
        (None, 256 * 2**20, []),
        ("nfs4", 0, ["network-file-system"]),
        ("fuse.sshfs", 0, ["network-file-system"]),
        ("xfs", 256 * 2**20 + 1, ["wal-size"]),
    ],
)
def test_where_a_file_lies_and_how_its_wal_grew(kind: str | None, size: int, found: list[str]) -> None:
    assert [each.name for each in doctor_of.file("shop.db", kind, size)] == found


def test_the_file_system_is_that_of_the_nearest_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    here = str(tmp_path.resolve()).replace(" ", r"\040")
    mounts.write_text(
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        f"40 22 0:40 / {here}/far\\040away rw shared:7 - nfs4 server:/x rw\n"
    )
    (tmp_path / "far away" / "data").mkdir(parents=True)
    assert doctor_of.file_system(str(tmp_path / "far away" / "data" / "shop.db"), str(mounts)) == "nfs4"
    assert doctor_of.file_system(str(tmp_path / "shop.db"), str(mounts)) == "ext4"
    assert doctor_of.file_system("shop.db", str(tmp_path / "nowhere")) is None
    assert doctor_of.file_system(str(tmp_path)) is None or doctor_of.file_system(str(tmp_path)) != ""


def test_what_postgresql_promises() -> None:
    sound = {
        "version": "18",
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
        "autovacuum": "on",
    }

    def found(**changes: str) -> list[tuple[str, str]]:
        return [(each.severity, each.name) for each in doctor_of.postgres({**sound, **changes})]

    assert found() == []
    assert found(fsync="off") == [("error", "fsync")]
    assert found(full_page_writes="off") == [("error", "full_page_writes")]
    assert found(synchronous_commit="off") == [("error", "synchronous_commit")]
    assert found(autovacuum="off") == [("warning", "autovacuum")]


@pytest.mark.one_postgres
def test_who_holds_back_cleaning_up(postgres_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that is idle in its transaction is named, with what to do about it."""
    import psycopg

    store = open_store(postgres_dsn, Settings(), SystemClock())
    store.migrate()
    operations = Operations(store)
    with psycopg.connect(postgres_dsn, application_name="report") as idle:
        idle.execute("set transaction isolation level repeatable read")
        idle.execute("select 1")
        assert [each for each in operations.doctor() if each.name == "long-transaction"] == []
        monkeypatch.setattr(doctor_of, "OPEN_SECONDS", 0.0)
        (found,) = [each for each in operations.doctor() if each.name == "long-transaction"]
        assert f"(process {idle.info.backend_pid}, report, idle in transaction)" in found.text
        assert f"pg_terminate_backend({idle.info.backend_pid})" in found.remedy
    store.close()


def test_prepared_transactions_and_slots_hold_it_back_too() -> None:
    rows = [
        {"kind": "prepared", "name": "gid", "owner": "anna", "state": "prepared", "seconds": 601.0},
        {"kind": "prepared", "name": "young", "owner": "anna", "state": "prepared", "seconds": 600.0},
        {"kind": "slot", "name": "replica", "owner": None, "state": "inactive", "seconds": None},
    ]
    assert [each.name for each in doctor_of.holding(rows)] == ["prepared-transaction", "replication-slot"]


def test_clocks_that_differ(world: World) -> None:
    desk = world.operations._desk

    def found(seconds: float) -> list[str]:
        here = world.clock.instant + timedelta(seconds=seconds)
        return [each.text.split(":")[0] for each in doctor_of.clocks(desk, here)]

    assert found(5) == found(-5) == []
    assert found(6) == ["This machine's clock is 6 s ahead of the database's"]
    assert found(-60) == ["This machine's clock is 60 s behind the database's"]


def test_a_clock_that_was_set_back(world: World) -> None:
    world.subscribe("q", "order.placed")
    world.worker("w1")
    assert "clock-set-back" not in names(world)
    world.clock.advance(seconds=-5)
    assert "clock-set-back" not in names(world)
    world.clock.advance(seconds=-55)
    found = next(each for each in world.operations.doctor() if each.name == "clock-set-back")
    assert found.text.startswith("Something is recorded 60 s in the future")


def test_the_settings_of_the_server_are_really_asked_for(world: World, place: str) -> None:
    """The shared servers of the tests run without fsync, and the doctor shouts."""
    found = [each.name for each in world.operations.doctor()]
    if place == "sqlite":
        assert ("sqlite-version" in found) == (sqlite3.sqlite_version_info < (3, 51, 3))
    else:
        ((fsync,),) = world.sql("select current_setting('fsync')")
        assert ("fsync" in found) == (fsync == "off")


def test_orphaned_queues_and_unrouted_types(world: World) -> None:
    world.subscribe("removed", "order.placed")
    world.worker("w1", "other")
    assert names(world) == []  # nothing waits in it
    world.publish()
    world.publish("nobody.cares")
    found = {each.name: each for each in world.operations.doctor()}
    assert "Queue removed is subscribed to order.placed, and no handler" in found["orphaned-queue"].text
    assert "1 message waits" in found["orphaned-queue"].text
    assert "queues move removed" in found["orphaned-queue"].remedy
    assert "nobody.cares: 1 message waits" in found["unrouted"].text


def test_no_worker_is_a_note_until_something_waits(world: World) -> None:
    world.subscribe("q", "order.placed")
    assert [(each.severity, each.name) for each in world.operations.doctor() if each.name == "no-worker"] == [
        ("note", "no-worker")
    ]
    world.publish()
    found = [each for each in world.operations.doctor() if each.name == "no-worker"]
    assert [each.severity for each in found] == ["warning"]


def test_leases_that_lapsed_long_ago(world: World) -> None:
    world.publish(queue="q")
    world.claim()
    world.clock.advance(seconds=30 + 300)
    assert "lapsed-leases" not in names(world)
    world.clock.advance(seconds=1)
    assert "lapsed-leases" in names(world)


def test_streams_blocked_for_long(world: World) -> None:
    world.subscribe("q", "order.placed")
    world.in_stream(2)
    world.fail(world.claim()[0], 86_400.0)
    world.clock.advance(hours=1)
    assert "blocked-stream" not in names(world)
    world.clock.advance(seconds=1)
    found = next(each for each in world.operations.doctor() if each.name == "blocked-stream")
    assert found.text.startswith("Stream s of queue q is blocked since 12:00:00 UTC: 1 message waits behind ")


def test_leases_that_never_end(world: World) -> None:
    """A worker written by hand may ask for any lease; if it is gone, nobody takes over."""
    id = world.publish(queue="q")
    asked = Report(world.worker(), want=[Want("q", 1)], total=1, lease=1200.0)
    world.store.run(engine.exchange(asked))
    assert "endless-lease" not in names(world)
    world.publish(queue="q")
    asked = replace(asked, lease=1201.0)
    world.store.run(engine.exchange(asked))
    found = [each for each in world.operations.doctor() if each.name == "endless-lease"]
    assert len(found) == 1
    assert "The lease of w1 on message" in found[0].text
    assert str(id) not in found[0].text


@pytest.mark.covers("W86")
def test_a_retry_loop_is_shown(world: World) -> None:
    world.subscribe("q", "order.placed")
    id = world.publish()
    world.fail_often(id, 9, reason=Reason.VALIDATION_FAILURE)
    assert "retry-loop" not in names(world)
    assert not any("retry loop" in each.text for each in world.operations.status().problems)
    world.fail_often(id, 1, reason=Reason.VALIDATION_FAILURE)
    (found,) = [each for each in world.operations.doctor() if each.name == "retry-loop"]
    assert found.text == (
        f"Message {id} of type order.placed in queue q has been tried 10 times and fails since 2040-05-01 13:00:00 "
        "UTC at least, each time validation failure."
    )
    problems = [each.text for each in world.operations.status().problems]
    assert "1 message seems to be in a retry loop: failed 10 times or more." in problems


@pytest.mark.covers("W94")
def test_a_stream_that_is_completely_blocked_and_grows_is_shown(world: World) -> None:
    world.subscribe("q", "order.placed")
    first, _ = world.in_stream(2)

    def grows() -> list[str]:
        return [each.text for each in world.operations.status().problems if "grows" in each.text]

    world.fail(world.claim()[0], 3600.0)
    world.publish(stream="s")
    assert grows() == []  # one failure, just now
    world.clock.advance(seconds=301)
    assert grows() == []  # nothing has come since
    world.publish(stream="s")
    assert grows() == [
        "Stream s of queue q is blocked since 12:00:00 UTC and grows: nothing of it is handled, and 3 messages wait "
        f"behind {first}."
    ]
    world.clock.advance(hours=1)
    world.operations.messages.park(first)
    (found,) = [each for each in world.operations.doctor() if each.name == "blocked-stream"]
    assert "grows: nothing of it is handled, and 3 messages wait" in found.text
    world.operations.streams.set_aside("q", "s")
    assert grows() == []


@pytest.mark.parametrize(
    ("waiting", "arrived", "ended", "older", "grows"),
    [
        (100, 100, 0, 0, True),
        (99, 99, 0, 0, False),  # no backlog worth the name
        (500, 100, 1000, 100, False),  # as many came as went
        (500, 110, 1000, 0, True),
        (5000, 100, 4000, 4000, False),  # an old backlog that drains
        (5000, 4100, 4000, 4000, False),  # a little more than 1:1 is no trend
        (5000, 4500, 4000, 4000, True),
    ],
)
def test_when_a_backlog_grows(waiting: int, arrived: int, ended: int, older: int, grows: bool) -> None:
    assert is_growing(waiting, arrived=arrived, ended=ended, older=older) is grows


def test_a_backlog_that_grows_faster_than_it_drains(world: World) -> None:
    world.subscribe("q", "order.placed")
    for _ in range(30):
        world.publish()
    for leased in world.claim(total=10):
        world.done(leased)
    world.publish(delay=5000.0)
    assert "growing-backlog" not in names(world)  # 20 are no backlog
    world.clock.advance(seconds=301)  # what was there before has not come now
    world.worker("w2")
    for _ in range(90):
        world.publish()
    for leased in world.claim(total=10):
        world.done(leased)
    found = next(each for each in world.operations.doctor() if each.name == "growing-backlog")
    assert found.text == (
        "Queue q got 90 messages in the last 5 minutes and ended 10: 100 wait, and their number grows."
    )
    world.operations.queues.pause("q")
    assert "growing-backlog" not in names(world)  # that is no wonder
    world.operations.queues.resume("q")
    for leased in world.claim(total=85):
        world.done(leased)
    assert "growing-backlog" not in names(world)


@pytest.mark.covers("X49")
def test_dead_letters_without_an_archive(world: World) -> None:
    world.publish(queue="q")
    world.die(world.claim()[0])
    found = next(each for each in world.operations.doctor() if each.name == "dead-letters")
    assert (found.severity, found.text) == (
        "note",
        "1 dead letter is kept, the oldest for 0 s; no archive is configured.",
    )


def test_a_count_that_is_wrong(world: World) -> None:
    world.in_stream(2)
    world.in_stream(1, "rowless")
    world.sql("update holdfast.stream set open = 3 where name = 's'")
    world.sql("delete from holdfast.stream where name = 'rowless'")
    found = [each.text for each in world.operations.doctor() if each.name == "stream-count"]
    assert found == [
        "Stream rowless of queue q counts 0 in its order and has 1.",
        "Stream s of queue q counts 3 in its order and has 2.",
    ]


def test_a_stranded_stream_and_the_way_out(world: World) -> None:
    first, _ = world.in_stream(2)
    world.in_stream(1, "halted")
    world.sql("update holdfast.message set head = (1 = 2) where stream = 's'")
    world.sql("update holdfast.stream set halted_by = 'x' where name = 'halted'")
    found = [each.text for each in world.operations.doctor() if each.name == "stranded-stream"]
    assert found == [
        "Stream halted of queue q has a head, although it is halted.",
        "Stream s of queue q has no head, although it is not halted.",
    ]
    world.operations.streams.halt("q", "s", "repair")
    world.operations.streams.resume("q", "s")
    assert first in world.claimed()


def test_errors_come_first(world: World) -> None:
    world.in_stream(1)
    world.publish("nobody.cares")
    world.die(world.claim()[0])
    world.sql("update holdfast.stream set open = 5")
    found = [each.severity for each in world.operations.doctor()]
    assert found == sorted(found, key=["error", "warning", "note"].index)
    assert {"error", "warning", "note"} <= set(found)
