"""`doctor --deep`: each defect that it knows is planted past the engine and found; a busy database has none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.clock import MovableClock
from holdfast.model.message import Reason
from holdfast.operations import deep
from holdfast.operations.deep import is_readable, wrong_with
from holdfast.store.plans import verify
from holdfast.store.plans.verify import Order
from tests.databases import migrated
from tests.operations.world import NOON, World, make

# What a database for tests has in any case.
USUAL = {
    "fsync",
    "full_page_writes",
    "superuser-functions",
    "no-worker",
    "sqlite-version",
    "dead-letters",
    "unrouted",
}
USUAL |= {"orphaned-queue", "clock-skew", "clock-set-back"}


def found(world: World) -> dict[str, str]:
    return {each.name: each.text for each in world.operations.doctor(deep=True) if each.name not in USUAL}


def busy(world: World) -> None:
    """Something of everything."""
    world.subscribe("q", "order.*")
    for stream in ("s", "t"):
        world.in_stream(3, stream)
    world.in_stream(3, "s", "other")
    for _ in range(3):
        world.publish(queue="q")
    world.publish(stream="later", delay=60.0)
    world.publish("nobody.knows", stream="u")
    first, second, third, fourth, *_ = world.claim(run=3)
    world.done(first)
    world.fail(second, 60.0, Reason.TRANSPORT_UNAVAILABLE, "no route")
    world.done(third)
    world.die(fourth)
    world.claim("other", run=2)
    world.operations.messages.park(world.publish(queue="q"))
    for n in range(4):
        world.publish(queue="q", dedupe=f"k{n}", headers='{"a": 1, "b": "x", "c": true, "d": 1.5}')
    assert {each.state for each in world.operations.messages.find(limit=100)} >= {
        "leased",
        "waiting",
        "parked",
    }


def test_a_busy_database_has_no_defect(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    busy(world)
    assert found(world) == {}
    monkeypatch.setattr(verify, "ROWS", 1)
    assert found(world) == {}
    monkeypatch.setattr(verify, "ROWS", 1000)
    monkeypatch.setattr(verify, "BYTES", 1)
    assert found(world) == {}


HEAD = "(select min(m.seq) from holdfast.message m where m.stream = 't' and m.queue = 'q')"
SECOND = (
    f"(select min(m.seq) from holdfast.message m where m.stream = 't' and m.queue = 'q' and m.seq > {HEAD})"
)
LOOSE = "(select min(m.seq) from holdfast.message m where m.dedupe = 'k0')"
LEASED = "(select min(l.seq) from holdfast.lease l)"
# What is written past the engine, and what is found: the same on both databases, or (PostgreSQL's, SQLite's).
PLANTED: list[tuple[str, str | tuple[str, str]]] = [
    ("message-marked", f"update holdfast.message set xact = '7' where seq = {LOOSE}"),
    ("message-misplaced", f"update holdfast.message set position = 5 where seq = {LOOSE}"),
    ("message-unplaced", f"update holdfast.message set head = false where seq = {LOOSE}"),
    ("message-streamless", "delete from holdfast.stream where name = 't' and queue = 'q'"),
    ("message-counter", f"update holdfast.message set attempts = -1 where seq = {LOOSE}"),
    ("message-counter", f"update holdfast.message set status = 65536 where seq = {LOOSE}"),
    ("message-time", (f"update holdfast.message set created_at = '-infinity' where seq = {LOOSE}",
                      f"update holdfast.message set created_at = 'then' where seq = {LOOSE}")),
    ("message-key", "delete from holdfast.dedupe where key = 'k0'"),
    ("message-unreadable", f"update holdfast.message set body = '[' where seq = {LOOSE}"),
    ("message-unreadable", (f"update holdfast.message set body = '' where seq = {LOOSE}",
                            f"update holdfast.message set body = x'00ff' where seq = {LOOSE}")),
    ("message-unreadable", f"update holdfast.message set headers = '[]' where seq = {LOOSE}"),
    ("message-unreadable", f"update holdfast.message set headers = '{{\"a\": []}}' where seq = {LOOSE}"),
    ("letter-unreadable", "update holdfast.dead set body = '['"),
    ("letter-counter", "update holdfast.dead set failures = -1"),
    ("letter-time", ("update holdfast.dead set created_at = 'infinity'", "update holdfast.dead set died_at = 'then'")),
    ("letter-key", "update holdfast.dead set dedupe = 'never'"),
    ("lease-orphaned", "insert into holdfast.lease (seq, until, worker, epoch)"
     f" select 999999, m.created_at, 1, 1 from holdfast.message m where m.seq = {LOOSE}"),
    ("lease-headless", f"update holdfast.message set head = false where seq = {LEASED}"),
    ("lease-epoch", f"update holdfast.lease set epoch = epoch + 5 where seq = {LEASED}"),
    ("lease-run", "update holdfast.lease set run_end = -1 where run_end is not null"),
    ("stream-count", "update holdfast.stream set open = open + 1 where name = 't' and queue = 'q'"),
    ("stranded-stream", f"update holdfast.message set head = false where seq = {HEAD}"),
    ("stranded-stream", "update holdfast.stream set halted_by = 'me' where name = 't' and queue = 'q'"),
    ("stream-head", f"update holdfast.message set head = seq = {SECOND} where stream = 't' and queue = 'q'"),
    ("sequence-behind", ("select setval('holdfast.position', 1)",
                         "update sqlite_sequence set seq = 1 where name = 'holdfast_message'")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "statement"), PLANTED)
def test_what_is_planted_is_found(world: World, name: str, statement: str | tuple[str, str]) -> None:
    busy(world)
    sqlite = world.store.is_embedded
    text = statement if isinstance(statement, str) else statement[sqlite]
    if name == "stream-head":  # one head at a time
        world.sql("update holdfast.message set head = false where stream = 't' and queue = 'q'")
    world.sql(text.replace("= '7'", "= 7") if sqlite else text)
    assert name in found(world)


def test_what_only_postgresql_can_have(postgres_version: str, tmp_path: Path) -> None:
    world = make(migrated(postgres_version, tmp_path), MovableClock(NOON))
    busy(world)
    assert found(world) == {}
    world.sql("update holdfast.stream set last = 0 where name = 't' and queue = 'q'")
    world.sql("grant execute on function holdfast.exchange to public")
    assert set(found(world)) == {"stream-last", "public-functions"}
    assert "exchange" in found(world)["public-functions"]
    world.sql("revoke execute on function holdfast.exchange from public")
    world.store.close()


def test_many_of_one_kind_are_one_finding_with_a_few_examples(world: World) -> None:
    ids = [world.publish(queue="q") for _ in range(9)]
    world.sql("update holdfast.message set body = '['")
    text = found(world)["message-unreadable"]
    assert text.startswith("9 messages cannot be read")
    assert "and 4 more" in text
    assert sum(str(id) in text for id in ids) == deep.SHOWN


@pytest.mark.parametrize(
    ("body", "headers", "readable"),
    [
        ("{}", None, True),
        ("1", '{"a": "b"}', True),
        ("", None, False),
        (b"{}", None, False),
        ("[" * 100_000, None, False),
        ("[" * 100_000 + "]" * 100_000, None, False),
        ("{}", "1", False),
        ("{}", '{"a": null}', False),
        ("{}", b"{}", False),
    ],
)
def test_what_a_worker_can_read(body: object, headers: object, readable: bool) -> None:
    assert is_readable(body, headers) is readable


FINE = Order("q", "s", 2, False, 9, 2, 8, 8, 9)
STREAMS: list[tuple[Callable[[], Order], list[str]]] = [
    (lambda: FINE, []),
    (lambda: Order("q", "s", 0, False, None, 0, None, None, None), []),
    (lambda: Order("q", "s", 2, True, None, 2, 8, None, 9), []),
    (lambda: Order("q", "s", 3, False, 9, 2, 8, 8, 9), ["stream-count"]),
    (lambda: Order("q", "s", 2, True, 9, 2, 8, 8, 9), ["stranded-stream"]),
    (lambda: Order("q", "s", 2, False, 9, 2, 8, None, 9), ["stranded-stream"]),
    (lambda: Order("q", "s", 2, False, 9, 2, 8, 9, 9), ["stream-head"]),
    (lambda: Order("q", "s", 2, False, 8, 2, 8, 8, 9), ["stream-last"]),
]


@pytest.mark.parametrize(("row", "names"), STREAMS)
def test_what_can_be_wrong_with_a_stream(row: Callable[[], Order], names: list[str]) -> None:
    assert [name for name, _ in wrong_with(row())] == names
