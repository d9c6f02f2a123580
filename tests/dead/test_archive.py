"""Retention: what is too old or too much is archived, read back and compared, and only then deleted."""

from __future__ import annotations

import errno
import gzip
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO
from uuid import UUID

import pytest

from holdfast.alerting import archive as archives
from holdfast.alerting.archive import FolderArchive, ObjectArchive, open_archive
from holdfast.errors import ArchiveFailed, NotFound, UsageError
from holdfast.operations import Operations
from holdfast.operations import files as files_module
from holdfast.rules.retention import leaving
from holdfast.settings import Settings
from tests.operations.world import NOON, World


def die(world: World, count: int) -> list[UUID]:
    ids = []
    for _ in range(count):
        ids.append(world.publish(queue="q", dedupe=f"key {len(ids)} {world.clock.now()}"))
        world.die(world.claim()[0])
        world.clock.advance(seconds=1)
    return ids


def operations(world: World, where: object, **settings: Any) -> Operations:
    return Operations(world.store, Settings(archive=str(where), **settings))


@dataclass
class Place:
    """An archive, and how to spoil what is in it."""

    where: str
    spoil: Callable[[str, bytes], None]


# -- the rule


@pytest.mark.parametrize(
    ("ages", "total", "expected"),
    [
        ([], 0, 0),
        ([9, 8, 1], 3, 2),
        ([6, 5], 2, 0),
        ([6, 5, 4], 12, 2),
        ([9, 5, 4], 12, 2),
        ([6, 5], 20, 2),
        ([7], 1, 0),
    ],
)
def test_what_leaves(ages: list[int], total: int, expected: int) -> None:
    since = [NOON - timedelta(days=age) for age in ages]
    assert leaving(since, total, NOON, 7 * 86_400.0, 10) == expected


# -- folders


@pytest.mark.covers("V32", "V34", "X34", "X49")
def test_what_is_older_than_a_week_is_archived_and_comes_back(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast")
    old = die(world, 3)
    world.clock.advance(days=6)
    young = die(world, 1)
    world.clock.advance(days=1)
    desk = operations(world, tmp_path / "archive")
    before = [desk.dead.show(id)[0] for id in old]
    assert desk.housekeeping().archived == 3
    assert [each.id for each in desk.dead.list()] == young
    (name,) = desk.files.names()
    assert name.startswith("dead-20400501T120002Z-3-")
    assert f"archived 3 dead letters as {name}" in caplog.messages
    (ended,) = desk.messages.show(old[0]).ended
    assert (ended.outcome, ended.why) == ("archived", f"{tmp_path / 'archive'}/{name}")
    (told,) = desk.why(old[0])
    assert f"`holdfast dead restore {tmp_path / 'archive'}/{name}` brings it back" in told
    assert oct((tmp_path / "archive" / name).stat().st_mode)[-3:] == "600"
    assert desk.housekeeping().archived == 0

    done = desk.files.restore(name)
    assert (done.lines, done.stored, done.known) == (3, 3, 0)
    after = [desk.dead.show(id)[0] for id in old]
    assert [content for _, content in after] == [content for _, content in before]
    assert [letter.died_at for letter, _ in after] == [letter.died_at for letter, _ in before]
    assert desk.housekeeping().archived == 0  # kept anew from now on
    assert desk.files.restore(str(tmp_path / "archive" / name)).known == 3
    assert desk.files.restore(f"file://{tmp_path / 'archive'}/{name}").known == 3
    desk.dead.redrive(old[0])
    assert world.claimed() == [old[0]]
    world.clock.advance(days=8)
    assert desk.housekeeping().archived == 3


@pytest.mark.covers("V33", "X34")
def test_beyond_the_size_the_oldest_leave_and_new_ones_are_never_refused(
    world: World, tmp_path: Path
) -> None:
    ids = die(world, 7)
    desk = operations(world, tmp_path, dead_count=4)
    assert desk.dead.count() == 7
    assert desk.files.archive().count == 3
    assert {each.id for each in desk.dead.list()} == set(ids[3:])
    assert Settings().dead_count == 10_000
    assert Settings().dead_age == 7 * 86_400


@pytest.mark.covers("X40", "X49")
def test_held_letters_and_those_that_halt_their_stream_stay(world: World, tmp_path: Path) -> None:
    held, gone = die(world, 2)
    world.operations.dead.hold(held, "mine")
    halting, behind = world.in_stream(2)
    world.die(world.claim()[0], halt=True)
    world.clock.advance(days=30)
    desk = operations(world, tmp_path)
    assert desk.housekeeping().archived == 1
    assert {each.id for each in desk.dead.list()} == {held, halting}
    desk.dead.redrive(halting)
    assert world.order() == [halting, behind]
    assert desk.messages.show(gone).ended[0].outcome == "archived"


@pytest.mark.covers("X49", "X40")
def test_without_an_archive_nothing_is_deleted_and_the_doctor_says_so(world: World) -> None:
    ids = die(world, 2)

    def findings(desk: Operations) -> list[tuple[str, bool]]:
        found = [each for each in desk.doctor() if each.name == "dead-letters"]
        return [(each.severity, "no archive is configured" in each.text) for each in found]

    assert findings(world.operations) == [("note", True)]
    assert findings(Operations(world.store, Settings(dead_count=1))) == [("warning", True)]
    world.clock.advance(days=365)
    assert world.operations.housekeeping().archived == 0
    assert {each.id for each in world.operations.dead.list()} == set(ids)
    assert findings(world.operations) == [("warning", True)]
    with pytest.raises(UsageError, match="No archive is configured"):
        world.operations.files.archive()
    assert findings(operations(world, "/nowhere/at/all")) == [("warning", False)]


@pytest.mark.covers("X34", "X49", "V34")
def test_an_archive_that_does_not_read_back_deletes_nothing(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = die(world, 3)
    world.clock.advance(days=8)
    desk = operations(world, tmp_path / "archive")

    def spoiled(self: FolderArchive, name: str, file: BinaryIO) -> None:
        (tmp_path / "archive").mkdir(exist_ok=True)
        data = bytearray(file.read())
        damage(data)
        (tmp_path / "archive" / name).write_bytes(data)

    damages: list[Callable[[bytearray], None]] = [
        lambda data: data.__delitem__(slice(-40, None)),
        lambda data: data.clear(),
        lambda data: data.__setitem__(len(data) // 2, data[len(data) // 2] ^ 1),
    ]
    for damage in damages:  # noqa: B007 - `spoiled` looks at it
        monkeypatch.setattr(FolderArchive, "put", spoiled)
        with pytest.raises(ArchiveFailed):
            desk.files.archive()
        assert {each.id for each in desk.dead.list()} == set(ids)
        monkeypatch.undo()
        with pytest.raises(ArchiveFailed):  # the spoiled file is there, and is not written over
            desk.files.archive()
        for file in (tmp_path / "archive").iterdir():
            file.unlink()
    assert desk.files.archive().count == 3


def test_a_place_that_cannot_be_written_deletes_nothing_and_housekeeping_does_the_rest(
    world: World, tmp_path: Path
) -> None:
    ids = die(world, 1)
    done = world.publish(queue="q")
    world.done(world.claim()[0])
    world.clock.advance(days=8)
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(ArchiveFailed, match="Nothing was deleted"):
        operations(world, tmp_path / "file").housekeeping()
    assert [each.id for each in world.operations.dead.list()] == ids
    with pytest.raises(NotFound):
        world.operations.messages.show(done)


def test_what_is_changed_while_it_is_archived_stays(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edited, held, redriven, gone = die(world, 4)
    world.clock.advance(days=8)
    desk = operations(world, tmp_path)
    verify = files_module._verify

    def meanwhile(*arguments: Any) -> None:
        verify(*arguments)
        desk.dead.edit(edited, "2")
        desk.dead.hold(held, "wait")
        desk.dead.redrive(redriven)

    monkeypatch.setattr(files_module, "_verify", meanwhile)
    done = desk.files.archive(files=1)
    assert (done.count, done.kept) == (1, 3)
    assert {each.id for each in desk.dead.list()} == {edited, held}
    assert world.claimed() == [redriven]
    monkeypatch.undo()
    restored = desk.files.restore(done.files[0])
    assert (restored.stored, restored.known) == (1, 3)
    assert desk.dead.show(edited)[0][1].body == "2"
    assert {each.id for each in desk.dead.list()} == {edited, held, gone}


def test_the_key_of_an_archived_letter_is_held_for_a_while(world: World, tmp_path: Path) -> None:
    world.publish(queue="q", dedupe="k")
    world.die(world.claim()[0])
    world.clock.advance(days=8)
    desk = operations(world, tmp_path)
    assert desk.housekeeping().archived == 1
    assert world.published(queue="q", dedupe="k").duplicate
    world.clock.advance(days=8)
    desk.housekeeping()
    assert not world.published(queue="q", dedupe="k").duplicate


def test_a_file_that_was_tampered_with_is_not_restored(world: World, tmp_path: Path) -> None:
    die(world, 2)
    world.clock.advance(days=8)
    desk = operations(world, tmp_path / "archive")
    desk.files.archive()
    (file,) = (tmp_path / "archive").iterdir()
    lines = gzip.decompress(file.read_bytes()).splitlines(keepends=True)
    file.write_bytes(gzip.compress(lines[0]))
    with pytest.raises(ArchiveFailed, match="not what was archived"):
        desk.files.restore(file.name)
    file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(ArchiveFailed, match=r"not complete|unzipped"):
        desk.files.restore(file.name)
    assert desk.dead.list() == []
    with pytest.raises(NotFound, match="no dead-nothing"):
        desk.files.restore("dead-nothing")


def test_more_than_a_file_is_archived_in_several(world: World, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(files_module, "FILE_LETTERS", 3)
    die(world, 8)
    world.clock.advance(days=8)
    desk = operations(world, tmp_path)
    done = desk.files.archive()
    assert (done.count, len(done.files)) == (8, 3)
    assert sum(desk.files.restore(name).stored for name in done.files) == 8


def test_who_ordered_it_is_written_down_and_housekeeping_is_nobody(world: World, tmp_path: Path) -> None:
    die(world, 2)
    world.clock.advance(days=8)
    desk = Operations(world.store, Settings(archive=str(tmp_path / "archive")), who="anna")
    assert desk.housekeeping().archived == 2
    (name,) = desk.files.names()
    desk.files.restore(name)
    world.clock.advance(days=8)
    desk.files.archive()
    desk.files.restore(name)
    with open(tmp_path / "archive" / name, "rb") as file:
        desk.files.load(file)  # all are here: nothing was done
    lines = [(each.who, each.action, each.target, each.count) for each in reversed(desk.audit())]
    again = lines[1][2]
    assert lines == [
        ("anna", "dead.restore", name, 2), ("anna", "dead.archive", again, 2), ("anna", "dead.restore", name, 2),
    ]  # fmt: skip


# -- kill -9 between the archive and the deletion

KILLED = """
import os, signal, sys
from holdfast import Holdfast
from holdfast.operations import files
verify = files._verify
def killed(*arguments):
    verify(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)
files._verify = killed
Holdfast(sys.argv[1], archive=sys.argv[2], dead_count=1).operations.files.archive()
"""


@pytest.mark.covers("X34", "X49")
def test_killed_between_the_archive_and_the_deletion_nothing_is_lost_or_doubled(
    world: World, url: str, tmp_path: Path
) -> None:
    ids = die(world, 4)
    code = subprocess.run(
        [sys.executable, "-c", KILLED, url, str(tmp_path / "archive")], timeout=60
    ).returncode
    assert code == -signal.SIGKILL
    desk = operations(world, tmp_path / "archive", dead_count=1)
    assert {each.id for each in desk.dead.list()} == set(ids)
    (name,) = desk.files.names()
    assert desk.files.restore(name).known == 3  # all of them are here
    done = desk.files.archive()
    assert (done.count, done.files) == (3, (name,))  # the same letters, the same file
    assert desk.files.names() == [name]
    assert desk.files.restore(name).stored == 3
    assert {each.id for each in desk.dead.list()} == set(ids)


# -- object storage


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """A server that speaks S3, and a bucket in it."""
    import logging
    import urllib.request

    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    endpoint = f"http://127.0.0.1:{port}"
    settings = {
        "AWS_ENDPOINT": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/letters", method="PUT")).read()
        yield "s3://letters/production"
    server.stop()


@pytest.mark.covers("V34", "X34")
def test_letters_go_to_s3_and_come_back(world: World, s3: str, request: pytest.FixtureRequest) -> None:
    where = f"{s3}/{abs(hash(request.node.nodeid))}"
    ids = die(world, 3)
    world.clock.advance(days=8)
    desk = operations(world, where)
    assert desk.housekeeping().archived == 3
    (name,) = desk.files.names()
    assert desk.messages.show(ids[0]).ended[0].why == f"{where}/{name}"
    assert desk.dead.list() == []
    assert desk.files.restore(f"{where}/{name}").stored == 3
    assert {each.id for each in desk.dead.list()} == set(ids)
    with pytest.raises(NotFound, match="no dead-other"):
        desk.files.restore("dead-other")


def test_what_is_stored_in_s3_is_never_written_over(s3: str, tmp_path: Path) -> None:
    import io

    place = open_archive(f"{s3}/once")
    assert isinstance(place, ObjectArchive)
    place.put("a", io.BytesIO(b"first"))
    place.put("a", io.BytesIO(b"second"))
    assert b"".join(place.read("a")) == b"first"
    folder = open_archive(f"file://{tmp_path}")
    assert isinstance(folder, FolderArchive)
    folder.put("a", io.BytesIO(b"first"))
    folder.put("a", io.BytesIO(b"second"))
    assert b"".join(folder.read("a")) == b"first"
    assert folder.names() == ["a"]


@pytest.mark.one_postgres
def test_an_object_storage_that_is_not_there_deletes_nothing(
    world: World, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = die(world, 1)
    world.clock.advance(days=8)
    with pytest.raises(ArchiveFailed, match="s3://no-such-bucket/x cannot write"):
        operations(world, "s3://no-such-bucket/x").files.archive()
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(UsageError, match=r"pip install 'holdfast\[archive\]'"):
        operations(world, s3).files.archive()
    assert [each.id for each in world.operations.dead.list()] == ids


def test_settings_are_text() -> None:
    from holdfast.errors import InvalidSettings

    for wrong in (7, "memory:///", "ftp://host/folder", "https://host"):
        with pytest.raises(InvalidSettings, match="archive"):
            Settings(archive=wrong)  # type: ignore[arg-type]
    assert archives.open_archive("relative").where == str(Path("relative").absolute())


# --- No room on the way -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["making", "writing"])
def test_a_full_temporary_folder_deletes_nothing_and_is_named(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    die(world, 3)
    world.clock.advance(days=8)
    ordered = operations(world, tmp_path / "archive")
    if where == "making":
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    else:

        def full(*_: Any, **__: Any) -> Any:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr("gzip.GzipFile.write", full)
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ArchiveFailed, match=f"temporary folder {tmp_path}.*TMPDIR.*Nothing was deleted"):
        ordered.files.archive()
    assert world.operations.status().dead == 3
    monkeypatch.undo()
    assert ordered.files.archive().count == 3
