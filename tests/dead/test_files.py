"""Dead letters in files: exported and imported without loss, twice without harm, and never by half."""

from __future__ import annotations

import gzip
import io
import json
import tracemalloc
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from holdfast.errors import ArchiveFailed, UsageError
from holdfast.message import Flag, Reason
from holdfast.operations import Filter
from tests.operations.world import NOON, World


def some_letters(world: World) -> list[UUID]:
    """Letters with all that a letter can have."""
    full = world.publish(
        stream="s", queue="q", subject="o/1", headers='{"h": "ä\\u0007"}', dedupe="k",
        body='{"ü": "\\n\\" \U0001f600"}', deadline=NOON + timedelta(days=400, microseconds=1),
    )  # fmt: skip
    world.fail(
        world.claim()[0], 1.0, Reason.TRANSPORT_UNAVAILABLE, "no 'route'\nat all", int(Flag.EVENT_STORED)
    )
    world.clock.advance(seconds=1)
    world.die(world.claim()[0], halt=True)
    world.operations.dead.redrive(full)
    world.clock.advance(seconds=1)
    world.die(world.claim()[0])
    world.operations.dead.edit(full, "[1]")
    world.operations.dead.hold(full, "the auditor")
    plain = world.publish(queue="q")
    world.operations.messages.poison(plain, "no good")
    return [full, plain]


def exported(world: World, filter: Filter | None = None) -> bytes:
    file = io.BytesIO()
    world.operations.files.export(filter, file)
    return file.getvalue()


def load(world: World, data: bytes) -> Any:
    return world.operations.files.load(io.BytesIO(data))


def remove(world: World, *ids: UUID) -> None:
    for id in ids:
        ((letter, _),) = world.operations.dead.show(id)
        if letter.held_at:
            world.operations.dead.unhold(id)
        world.operations.dead.discard(id, "to be imported")
    world.sql("delete from holdfast.death")


def seen(world: World, ids: list[UUID]) -> list[Any]:
    return [
        {name: getattr(letter, name) for name in letter.__slots__ if name not in ("stored_at", "halts")}
        | {"c": content}
        for id in ids
        for letter, content in world.operations.dead.show(id)
    ]


def test_what_is_exported_comes_back_as_it_was(world: World) -> None:
    ids = some_letters(world)
    before, file = seen(world, ids), exported(world)
    remove(world, *ids)
    done = load(world, file)
    assert (done.lines, done.stored, done.known) == (2, 2, 0)
    assert seen(world, ids) == before
    assert exported(world) == file
    assert world.published(queue="q", dedupe="k").duplicate  # it holds its dedupe key again
    ((letter, content),) = world.operations.dead.show(ids[0])
    assert (letter.held_why, letter.redrives, len(content.deaths)) == ("the auditor", 1, 2)
    assert [death.body for death in content.deaths] == [None, '{"ü": "\\n\\" \U0001f600"}']
    world.operations.dead.unhold(ids[0])
    world.operations.dead.redrive(ids[0])
    (leased,) = world.claim()
    assert (leased.message.id, leased.message.body) == (ids[0], "[1]")
    assert leased.message.status & Flag.EVENT_STORED
    world.healthy()


def test_a_file_may_be_imported_twice_and_does_not_touch_what_is_here(world: World) -> None:
    ids = some_letters(world)
    file = exported(world)
    world.operations.dead.edit(ids[1], '"newer"')
    world.operations.dead.unhold(ids[0])
    world.operations.dead.redrive(ids[0])
    done = load(world, file * 2)
    assert (done.lines, done.stored, done.known) == (4, 0, 4)
    assert world.operations.dead.show(ids[1])[0][1].body == '"newer"'
    assert [each.id for each in world.operations.dead.list()] == [ids[1]]
    remove(world, ids[1])
    assert load(world, file * 2).stored == 1


def test_a_filter_chooses_and_a_zipped_file_is_understood(world: World) -> None:
    ids = some_letters(world)
    file = exported(world, Filter(held=False))
    assert [json.loads(line)["id"] for line in file.splitlines()] == [str(ids[1])]
    remove(world, ids[1])
    with pytest.raises(ArchiveFailed, match="ends too early"):
        load(world, gzip.compress(file)[:-9])
    with pytest.raises(ArchiveFailed, match="unzipped"):
        load(world, b"\x1f\x8b is the beginning of a zipped file")
    assert load(world, gzip.compress(file[:10]) + gzip.compress(file[10:])).stored == 1


def change(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda line: line.update(fields)


BAD: list[tuple[Callable[[dict[str, Any]], None] | bytes, str]] = [
    (b"{broken\n", "malformed|trailing|invalid|expected"),
    (b"[]\n", "Expected `object`"),
    (b"{}\n", "no .holdfast.: 1"),
    (b'"\xff"\n', "utf-8|Expected|invalid"),
    (change(holdfast=2), "newer release"),
    (change(holdfast="1"), "no .holdfast.: 1"),
    (change(id="17"), "UUID"),
    (change(attempts=-1), ">= 0"),
    (change(attempts=2**31), "<= 2147483647"),
    (change(reason=None), "Expected `int`"),
    (change(died_at="2040-05-01T12:00:00"), "timezone"),
    (change(body={"n": 1}), "Expected `str`"),
    (change(body="a\x00b"), "NUL"),
    (change(errors=[{"text": "x"}]), "at"),
    (change(errors=[{"at": "x", "text": "x"}]), "datetime|RFC3339"),
    (change(surprise=1), "unknown field"),
    (change(queue=""), "empty"),
    (lambda line: line.pop("epoch"), "missing required field `epoch`"),
]  # fmt: skip


@pytest.mark.parametrize(("bad", "why"), BAD, ids=range(len(BAD)))
def test_a_bad_line_is_refused_by_its_number_and_nothing_is_stored(world: World, bad: Any, why: str) -> None:
    ids = some_letters(world)
    good = exported(world)
    remove(world, *ids)
    if callable(bad):
        line = json.loads(good.splitlines()[1])
        bad(line)
        bad = json.dumps(line).encode() + b"\n"
    with pytest.raises(
        UsageError, match=f"^Line 4 is not a dead letter, so nothing was imported: .*(?:{why})"
    ):
        load(world, good + b"\n" + bad)
    assert world.operations.dead.list() == []


def test_the_last_line_cut_off_is_a_bad_line(world: World) -> None:
    ids = some_letters(world)
    file = exported(world)
    remove(world, *ids)
    with pytest.raises(UsageError, match=r"^Line 2 "):
        load(world, file[:-20])
    assert world.operations.dead.list() == []


@pytest.mark.one_postgres
def test_large_files_do_not_fill_the_memory(world: World, tmp_path: Any) -> None:
    """Sixty letters of 900 KB are 54 MB; a few of them at a time are in memory."""
    body = '"' + "x" * 900_000 + '"'
    for _ in range(60):
        world.publish(queue="q", body=body)
        world.die(world.claim()[0])
    tracemalloc.start()
    with open(tmp_path / "letters", "wb") as file:
        assert world.operations.files.export(None, file) == 60
    world.sql("delete from holdfast.dead")
    with open(tmp_path / "letters", "rb") as file:
        assert world.operations.files.load(file).stored == 60
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 45_000_000, peak


def test_letters_travel_between_databases(world: World, tmp_path: Any) -> None:
    from holdfast.clock import MovableClock
    from tests.operations.world import make

    ids = some_letters(world)
    before, file = seen(world, ids), exported(world)
    other = make(f"sqlite:///{tmp_path / 'other.db'}", MovableClock(NOON + timedelta(hours=1)))
    try:
        assert load(other, file).stored == 2
        assert seen(other, ids) == before
        assert exported(other) == file
        assert other.operations.dead.show(ids[1])[0][0].stored_at == NOON + timedelta(hours=1)
        other.operations.dead.redrive(ids[1])
        assert other.claimed() == [ids[1]]
        other.healthy()
    finally:
        other.store.close()
