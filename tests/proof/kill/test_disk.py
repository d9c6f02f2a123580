"""A disk that is full, broken or read-only, at every statement of every verb: a clear error, nothing lost, and on.

Three ways. A connection that fails at the n-th statement as SQLite does: the whole transaction is rolled back, or only
the statement. A file that may not grow (`max_page_count`), which is SQLite's own "full". And a process that may not
write beyond a size (RLIMIT_FSIZE), whose writes fail in the operating system.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import Context, Holdfast
from holdfast.clock import MovableClock
from holdfast.errors import StoreUnavailable
from holdfast.settings import Settings
from holdfast.store import SqliteStore
from holdfast.store.connecting_sqlite import connect
from holdfast.store.plans import engine
from tests.proof.contents import fill
from tests.proof.kill.killing import PROOF_TABLES, ROOT, picture
from tests.proof.kill.verbs import Hands, verbs
from tests.store import state
from tests.store.box import Box
from tests.worker.lab import auntil

ERRORS = {
    "full": ("database or disk is full", sqlite3.SQLITE_FULL),
    "broken": ("disk I/O error", sqlite3.SQLITE_IOERR_WRITE),
    "read-only": ("attempt to write a readonly database", sqlite3.SQLITE_READONLY),
}
KINDS = [("full", True), ("full", False), ("broken", True), ("read-only", False)]


@dataclass
class Fault:
    """Which statement fails from now on, and how. None: none does."""

    at: int | None = None
    kind: str = "full"
    rolls_back: bool = True
    seen: int = 0
    armed: bool = False
    committed: bool = False

    def meet(self, connection: sqlite3.Connection, sql: str) -> None:
        if not self.armed:
            return
        self.seen += 1
        if self.at is not None and self.seen > self.at:  # until there is room again
            if self.rolls_back and connection.in_transaction:
                sqlite3.Connection.execute(connection, "rollback")
            text, code = ERRORS[self.kind]
            error = sqlite3.OperationalError(text)
            error.sqlite_errorcode, error.sqlite_errorname = code, self.kind
            raise error
        self.committed = self.committed or sql == "commit"


class Scene:
    """A store that is filled with one of each thing, and put back for each try."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path, self.template = folder, folder / "store.db", folder / "template.db"
        clock = MovableClock()
        store = SqliteStore(str(self.template), Settings(), clock)
        store.migrate()
        contents = fill(Box(store, clock))
        contents.fixed = True
        self.pickled = pickle.dumps(contents)
        self.now = contents.now
        self.names = {str(contents.new(f"new{n}").id): f"new{n}" for n in (1, 2, 3)}
        for statement in PROOF_TABLES:
            state.query(store, statement)
        store.close()
        self.fault = Fault()

    def hands(self) -> Hands:
        """Another process, another copy of what it knows."""
        for left in self.folder.glob("store.db*"):
            left.unlink()
        shutil.copy(self.template, self.path)
        return Hands(self.store(), pickle.loads(self.pickled))

    def store(self) -> SqliteStore:
        return SqliteStore(str(self.path), Settings(), MovableClock(self.now))

    def picture(self) -> dict[str, Any]:
        store = self.store()
        try:
            ((sound,),) = state.query(store, "pragma integrity_check")
            assert sound == "ok"
            effects = state.query(store, "select message, by from proof_effect order by 1, 2")
            effects += state.query(store, "select name, version from proof_business order by 1")
            return picture(store, self.names, effects)
        finally:
            store.close()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("disk"))


@pytest.fixture
def scene(filled: Scene) -> Iterator[Scene]:
    scene, plain = filled, sqlite3.connect
    scene.fault = Fault()

    class Faulty(sqlite3.Connection):
        def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
            words = sql.split()
            if words[0] != "pragma" and words[0] != "rollback":
                scene.fault.meet(self, sql)
            return super().execute(sql, *arguments)

        def cursor(self, *arguments: Any) -> Any:  # the user's own connection
            return FaultyCursor(self)

    class FaultyCursor(sqlite3.Cursor):
        def execute(self, sql: str, *arguments: Any) -> Any:
            assert isinstance(self.connection, sqlite3.Connection)
            scene.fault.meet(self.connection, sql)
            return super().execute(sql, *arguments)

    def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        return plain(*arguments, factory=Faulty, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", connect)
        yield scene


def names_of(scene: Scene, name: str) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """How many statements a verb sends, and what is stored before and after."""
    hands = scene.hands()
    before = scene.picture()
    hands.run(nothing())
    scene.fault = Fault(armed=True)
    verbs()[name](hands)
    count = scene.fault.seen
    scene.fault = Fault()
    hands.store.close()
    return count, before, scene.picture()


def nothing() -> Any:
    return
    yield


def fail_everywhere(scene: Scene, name: str, kinds: list[tuple[str, bool]]) -> int:
    """At each statement: it is told, nothing is changed, and with room again it is done."""
    count, before, after = names_of(scene, name)
    assert count > 0
    for at in range(count):
        kind, rolls_back = kinds[at % len(kinds)]
        hands = scene.hands()
        hands.run(nothing())
        scene.fault = fault = Fault(at, kind, rolls_back, armed=True)
        with pytest.raises((StoreUnavailable, sqlite3.OperationalError)) as caught:
            verbs()[name](hands)
        told = f"{name}, {kind} at statement {at}: {caught.value}"
        assert ERRORS[kind][0] in str(caught.value), told
        if isinstance(caught.value, StoreUnavailable):
            assert str(scene.path) in str(caught.value), told
        scene.fault = Fault()
        committed = fault.committed  # and a look afterwards failed
        assert scene.picture() == (after if committed else before), told
        if not committed:
            fresh = Hands(hands.store, pickle.loads(scene.pickled))
            verbs()[name](fresh)  # the same store and its connections, when there is room again
        hands.store.close()
        assert scene.picture() == after, told
    return count


ORDINARY = ("publish_keys", "publish_in_transaction", "claim", "done_emit", "complete", "recover", "repair",
            "prune_history")  # fmt: skip


@pytest.mark.parametrize("name", ORDINARY)
def test_at_every_statement(scene: Scene, name: str) -> None:
    fail_everywhere(scene, name, KINDS)


@pytest.mark.faults("kills")
@pytest.mark.parametrize("name", list(verbs()))
def test_at_every_statement_in_every_way(scene: Scene, name: str) -> None:
    for kind in KINDS:
        fail_everywhere(scene, name, [kind])


def test_who_shares_a_commit_with_the_one_that_fails_is_told_the_same(scene: Scene) -> None:
    """SQLite has rolled back all of them: none of them must hear that it was stored, or of a missing savepoint."""
    hands = scene.hands()
    before = scene.picture()
    hands.run(nothing())
    scene.fault = Fault(at=4, armed=True)
    with hands.store._turn:  # whatever is asked for now waits for one commit
        asked = [hands.store._submit(engine.append([hands.new(f"new{n}")])) for n in range(3)]
    for each in asked:
        with pytest.raises(StoreUnavailable, match="disk is full"):
            each.result(10)
    scene.fault = Fault()
    hands.store.close()
    assert scene.picture() == before


# --- SQLite's own "full" ----------------------------------------------------------------------------------------------


class Small:
    """Files that may not have more pages than so. 0: as many as they like."""

    pages = 0
    met = 0  # how often that was too few


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> type[Small]:
    """Every connection may only make its file so large; it is said anew before each transaction."""
    plain = sqlite3.connect
    most = 1073741823

    class Limited(sqlite3.Connection):
        def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
            if sql.startswith("begin"):
                super().execute(f"pragma max_page_count={Small.pages or most}")
            try:
                return super().execute(sql, *arguments)
            except sqlite3.OperationalError:
                Small.met += 1
                raise

    monkeypatch.setattr(sqlite3, "connect", lambda *a, **options: plain(*a, factory=Limited, **options))
    monkeypatch.setattr(Small, "pages", 0)
    monkeypatch.setattr(Small, "met", 0)
    return Small


def test_what_was_stored_when_it_became_full_is_there(tmp_path: Path, small: type[Small]) -> None:
    app = Holdfast(f"sqlite:///{tmp_path}/shop.db")
    app.migrate()
    app.publish("t", {"n": 0})
    small.pages = 200
    stored = [0]

    def publish_many() -> None:
        for n in range(1, 1000):
            app.publish("t", {"n": n, "large": "x" * 3000})
            stored.append(n)

    with pytest.raises(
        StoreUnavailable, match=r"shop\.db cannot be used: .* disk is full\. Make room"
    ) as caught:
        publish_many()
    assert caught.value.retryable
    assert 10 < len(stored) < 1000
    assert app.operations.status().depth == len(stored)  # reading goes on
    small.pages = 0
    app.publish("t", {"n": len(stored)})
    assert app.operations.status().depth == len(stored) + 1
    app.close()


async def test_a_worker_on_a_full_disk_goes_on_when_there_is_room(tmp_path: Path, small: type[Small]) -> None:
    """Nothing is handled twice that was settled, nothing is lost, and the worker does not end."""
    app = Holdfast(f"sqlite:///{tmp_path}/shop.db")
    begun: list[int] = []

    @app.handler("t")
    async def work(n: int, ctx: Context) -> None:
        begun.append(n)
        if n == 5:
            small.pages = 1  # no page more than there are
        ctx.publish("u", {"n": n, "large": "x" * 50_000})

    @app.handler("u")
    async def other(body: dict) -> None: ...

    app.migrate()
    app.publish_many(app.message("t", n, stream="s") for n in range(10))
    async with app.running():
        await auntil(lambda: small.met > 2, lambda: str(begun))  # it has tried again
        assert app.operations.status().depth > 0
        small.pages = 0
        await auntil(lambda: app.operations.status().depth == 0, lambda: str(begun))
    assert begun == list(range(10))
    found = {each.name for each in app.operations.doctor()}
    assert not found & {"stream-count", "stranded-stream"}
    app.close()


# --- Writes that fail in the operating system -------------------------------------------------------------------------

LIMITED = """
import json, pickle, resource, sys
from pathlib import Path
from holdfast.clock import MovableClock
from holdfast.settings import Settings
from holdfast.store import SqliteStore
from tests.proof.kill.verbs import Hands, verbs
path, pickled, limit, *names = sys.argv[1:]
contents = pickle.loads(Path(pickled).read_bytes())
hands = Hands(SqliteStore(path, Settings(), MovableClock(contents.now)), contents)
hands.run((each for each in ()))
resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), resource.RLIM_INFINITY))
told = []
for name in names:
    hands.contents = pickle.loads(Path(pickled).read_bytes())
    try:
        verbs()[name](hands)
    except Exception as error:
        told.append([name, type(error).__name__, str(error)])
    else:
        told.append([name, None, None])
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
hands.contents = pickle.loads(Path(pickled).read_bytes())
verbs()[names[0]](hands)
print(json.dumps(told))
"""


def test_a_write_that_the_system_refuses(tmp_path: Path) -> None:
    """For real: the WAL may not grow. Each verb is told, nothing of any is stored, and with room the first is done."""
    plain = Scene(tmp_path)
    plain.hands().store.close()
    before = plain.picture()
    keeper = connect(str(plain.path))  # the WAL stays as long as somebody is there
    keeper.execute("pragma wal_autocheckpoint=0")
    keeper.execute("create table filler (text)")
    keeper.execute("insert into filler select hex(randomblob(100000))")
    keeper.execute("select count(*) from filler").fetchall()
    pickled = tmp_path / "contents"
    pickled.write_bytes(plain.pickled)
    size = os.path.getsize(f"{plain.path}-wal")
    assert size > 100_000
    names = ["publish", "claim", "done_run", "dead", "recover", "redrive", "order_park", "prune_history"]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    ended = subprocess.run(
        [sys.executable, "-c", LIMITED, str(plain.path), str(pickled), str(size // 2), *names],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert [(name, error) for name, error, _ in told] == [(name, "StoreUnavailable") for name in names]
    assert all("disk I/O error" in text and str(plain.path) in text for _, _, text in told)
    keeper.execute("drop table filler")
    keeper.close()
    left = plain.picture()
    assert len(left["message"]) == len(before["message"]) + 3  # what was published with room again
    assert left["lease"] == before["lease"]
    assert left["dead"] == before["dead"]


# --- Read-only --------------------------------------------------------------------------------------------------------


def test_a_file_that_may_only_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system that the kernel has made read-only; root would write to a file of any mode."""
    app = Holdfast(f"sqlite:///{tmp_path}/shop.db")
    app.migrate()
    app.publish("t", 1)
    plain = sqlite3.connect
    only = True

    class Read(sqlite3.Connection):
        def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
            if sql.startswith("begin"):
                super().execute(f"pragma query_only={'on' if only else 'off'}")
            return super().execute(sql, *arguments)

    app.close()
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **options: plain(*a, factory=Read, **options))
    with pytest.raises(StoreUnavailable, match=r"readonly database\. Its file, its folder"):
        app.publish("t", 2)
    assert app.operations.status().depth == 1
    only = False
    app.publish("t", 2)
    assert app.operations.status().depth == 2
    app.close()


def test_a_connection_that_was_opened_read_only_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite opens a file that may not be written all the same, and such a connection stays read-only for ever."""
    app = Holdfast(f"sqlite:///{tmp_path}/shop.db")
    app.migrate()
    plain, only = sqlite3.connect, True

    def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = plain(*arguments, **options)
        if only:
            connection.execute("pragma query_only=on")
        return connection

    app.close()
    monkeypatch.setattr(sqlite3, "connect", connect)
    with pytest.raises(StoreUnavailable, match="readonly database"):
        app.publish("t", 1)
    only = False
    app.publish("t", 1)
    assert app.operations.status().depth == 1
    app.close()


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


def test_a_full_disk_of_a_server_is_waited_for() -> None:
    """A full disk needs one: the error that PostgreSQL reports is taken for what passes by itself."""
    from holdfast.store.postgres import as_ours

    for state_, text in (
        (psycopg.errors.DiskFull, 'could not extend file "base/1/2": No space left on device'),
        (psycopg.errors.DiskFull, "could not write to file: No space left on device"),
    ):
        assert state_.sqlstate == "53100"
        ours = as_ours(state_(text), "holdfast")
        assert isinstance(ours, StoreUnavailable)
        assert "No space left on device" in str(ours)


def test_limits_are_as_the_tests_need_them() -> None:
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
