"""Dead letters in files: exported and imported without loss, twice without harm, and never by half."""

from __future__ import annotations

import gzip
import io
import json
import threading
import time
import tracemalloc
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from holdfast.cli.show import raw
from holdfast.errors import ArchiveFailed, UsageError
from holdfast.model.message import Flag, Reason
from holdfast.operations import Filter
from holdfast.store.plans import dead
from holdfast.store.statement import Plan
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


def load(world: World, data: bytes, force: bool = False) -> Any:
    return world.operations.files.load(io.BytesIO(data), force=force)


def remove(world: World, *ids: UUID) -> None:
    """As if they had never been here."""
    for id in ids:
        ((letter, _),) = world.operations.dead.show(id)
        if letter.held_at:
            world.operations.dead.unhold(id)
        world.operations.dead.discard(id, "to be imported")
    world.sql("delete from holdfast.death")
    world.sql("delete from holdfast.history")


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
    (b"{}\n", "must begin with .holdfast.: 1"),
    (b'"\xff"\n', "utf-8|Expected|invalid"),
    (change(holdfast=2), "newer release"),
    (change(holdfast="1"), "must begin with .holdfast.: 1"),
    (change(id="17"), "UUID"),
    (change(attempts=-1), ">= 0"),
    (change(attempts=2**31), "<= 2000000000.*attempts"),
    (change(epoch=2**31 - 2), "<= 2000000000.*epoch"),
    (change(status=2**16), "<= 65535.*status"),
    (change(seq=2**62), "<= 4611686018427387903.*seq"),
    (change(position=2**63 - 1), "<= 4611686018427387903.*position"),
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


@pytest.mark.parametrize("end", ["done", "discarded", "cancelled"])
def test_what_has_ended_since_is_left_out_and_told(world: World, end: str) -> None:
    id, other = world.publish(queue="q", dedupe="k"), world.publish(queue="q")
    for leased in world.claim():
        world.die(leased)
    file = exported(world)
    world.clock.advance(seconds=1)
    if end == "discarded":
        world.operations.dead.discard(id, "a test order")
    else:
        world.operations.dead.redrive(id)
        _ = world.done(world.claim()[0]) if end == "done" else world.operations.messages.cancel(id)
    assert world.outcome(id) == [end]
    remaining = world.sql("select count(*) from holdfast.death")
    done = load(world, file * 2)
    assert (done.lines, done.stored, done.known, done.ended) == (4, 0, 2, 2)
    assert [each.id for each in world.operations.dead.list()] == [other]
    assert world.sql("select count(*) from holdfast.death") == remaining
    assert not world.published(queue="q", dedupe="k").duplicate or end != "discarded"

    done = load(world, file, force=True)
    assert (done.lines, done.stored, done.known, done.ended) == (2, 1, 1, 0)
    assert world.operations.audit(limit=1)[0].why == "--force: also what has ended since"
    # It is here, whatever the history says.
    assert (load(world, file).known, load(world, file).ended) == (
        2,
        0,
    )


def test_what_has_ended_before_it_died_is_a_dead_letter_like_any(world: World) -> None:
    """By force it came back, and has died again: that is its last word."""
    id = world.publish(queue="q")
    world.die(world.claim()[0])
    file = exported(world)
    world.operations.dead.discard(id, "no")
    assert load(world, file).ended == 1
    load(world, file, force=True)
    world.clock.advance(seconds=1)
    world.operations.dead.redrive(id)
    world.die(world.claim()[0])
    file = exported(world)
    world.sql("delete from holdfast.dead")
    assert load(world, file).stored == 1


def test_an_import_that_waits_for_a_redrive_sees_what_it_did(world: World) -> None:
    """The insert waits for the redrive to end, and then nothing is in its way but a message that it cannot see."""
    id = world.publish(queue="q")
    world.die(world.claim()[0])
    file, letter = exported(world), (id, "q", world.operations.dead.list()[0].seq)
    within, imported = threading.Event(), []

    def bring_back() -> Plan[None]:
        yield from dead.redrive([letter], False)
        within.set()
        time.sleep(1.0)  # the import begins, and waits

    redriving = threading.Thread(target=lambda: world.store.run(bring_back()))
    redriving.start()
    assert within.wait(10)
    imported.append(load(world, file))
    redriving.join()
    assert (imported[0].stored, imported[0].known, imported[0].ended) == (0, 1, 0)
    assert world.operations.dead.count() == 0
    assert world.claimed() == [id]
    world.healthy()


@pytest.mark.parametrize("depth", [20, 900, 100_000])
def test_a_line_that_is_nested_deep_is_refused_by_its_number(world: World, depth: int) -> None:
    some_letters(world)
    good = exported(world).splitlines()[0]
    nested = b"[" * depth + b"]" * depth
    bad = good.replace(b'"errors":[{', b'"errors":[{"x":' + nested + b",", 1)
    assert bad != good
    before = world.sql("select count(*) from holdfast.dead")
    with pytest.raises(UsageError, match=r"Line 2 is not a dead letter.*nested too deep"):
        load(world, good + b"\n" + bad + b"\n")
    assert world.sql("select count(*) from holdfast.dead") == before


@pytest.mark.parametrize("body", ["[" * 100_000 + "]" * 100_000, '{"holdfast/sealed":' + "[" * 100_000])
def test_a_letter_with_a_deep_body_is_imported_and_shown(world: World, body: str) -> None:
    """What a plain INSERT could store must come back; and must not stop whoever looks at it."""
    (_, plain) = some_letters(world)
    line = json.loads(exported(world).splitlines()[1])
    world.operations.dead.discard(plain, "to be imported")
    world.sql("delete from holdfast.history")
    world.sql("delete from holdfast.death")
    line["body"], line["deaths"] = body, []
    assert load(world, json.dumps(line).encode()).stored == 1
    ((_, content),) = world.operations.dead.show(plain)
    assert raw(content.body) == body
