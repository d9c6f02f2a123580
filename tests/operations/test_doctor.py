"""What the doctor notices."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.operations import Finding, Operations, doctor
from holdfast.settings import Settings
from holdfast.store import open_store
from tests.operations.world import NOON, World

TEST_SERVER = {
    "fsync",
    "full_page_writes",
    "synchronous_commit",
    "sqlite-version",
}  # what our test databases are


def names(world: World) -> list[str]:
    return [each.name for each in world.operations.doctor() if each.name not in TEST_SERVER]


def test_nothing_is_wrong(world: World) -> None:
    world.subscribe("q", "order.placed")
    world.worker("w1")
    world.publish()
    assert names(world) == []


def test_no_tables(url: str) -> None:
    store = open_store(url, Settings(), MovableClock(NOON))
    (found,) = Operations(store).doctor()
    assert (found.severity, found.name, found.remedy) == ("error", "schema", "Run `holdfast migrate`.")
    store.close()


def test_another_version(world: World, database: str) -> None:
    if database == "sqlite":
        world.sql("insert into holdfast.schema (version, applied_at) values (99, 'x')")
    else:
        world.sql("update holdfast.schema_version set version = 99")
    (found,) = world.operations.doctor()
    assert (found.severity, found.name) == ("error", "schema")
    assert "99" in found.text


def test_an_older_version_or_foreign_functions(world: World, database: str) -> None:
    if database == "sqlite":
        world.sql("delete from holdfast.schema")
    else:
        world.sql("update holdfast.schema_version set functions = 'other'")
    (found,) = world.operations.doctor()
    assert found.remedy == "Run `holdfast migrate`."


@pytest.mark.parametrize(
    ("version", "warned"),
    [("3.51.2", True), ("3.51.3", False), ("3.40.1", True), ("3.53.0", False), ("4.0.0", False)],
)
def test_the_version_of_sqlite(version: str, warned: bool) -> None:
    found = list(doctor._sqlite({"version": version, "journal_mode": "wal"}))
    assert [each.name for each in found] == (["sqlite-version"] if warned else [])


def test_the_journal_mode_of_sqlite() -> None:
    (found,) = doctor._sqlite({"version": "3.51.3", "journal_mode": "delete"})
    assert (found.severity, found.name) == ("error", "journal-mode")


def test_what_postgresql_promises(world: World, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = {
        "version": "18", "fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "open_seconds": None,
    }  # fmt: skip

    def found(**changes: Any) -> list[Finding]:
        monkeypatch.setattr(world.operations._desk, "ask", lambda *_, **__: {**sound, **changes})
        return list(doctor._database(world.operations._desk))

    assert found() == []
    assert [(each.severity, each.name) for each in found(fsync="off")] == [("error", "fsync")]
    assert [(each.severity, each.name) for each in found(full_page_writes="off")] == [
        ("error", "full_page_writes")
    ]
    assert [each.name for each in found(synchronous_commit="off")] == ["synchronous_commit"]
    assert [(each.severity, each.name) for each in found(open_seconds=601.0)] == [
        ("warning", "long-transaction")
    ]
    assert found(open_seconds=599.0) == []


def test_the_settings_of_the_server_are_really_asked_for(world: World, database: str) -> None:
    """The shared servers of the tests run without fsync, and the doctor shouts."""
    found = [each.name for each in world.operations.doctor()]
    if database == "sqlite":
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
    assert "queue removed, in which 1 messages" in found["orphaned-queue"].text
    assert "queues move removed" in found["orphaned-queue"].remedy
    assert "nobody.cares: 1 messages" in found["unrouted"].text


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
    assert found.text == "Stream s of queue q is blocked for 1.0 h; 1 wait."


@pytest.mark.covers("X49")
def test_dead_letters_without_an_archive(world: World) -> None:
    world.publish(queue="q")
    world.die(world.claim()[0])
    found = next(each for each in world.operations.doctor() if each.name == "dead-letters")
    assert (found.severity, found.text) == (
        "note",
        "1 dead letters are kept, and no archive is configured: none is ever deleted by itself.",
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
