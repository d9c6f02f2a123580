"""Gives orders to child processes, kills them, and looks at what they left."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from holdfast.clock import MovableClock
from holdfast.settings import Settings
from holdfast.store import SqliteStore, Store
from tests.proof.contents import Contents, fill
from tests.proof.world import World
from tests.store import state
from tests.store.box import Box

ROOT = Path(__file__).resolve().parents[3]
WAIT = 20.0
DROPPED = {  # numbers, and the machine's time
    "dead": ("seq", "position"),
    "worker": ("id",),
    "event": ("created_at",),
    "audit": ("number",),
    "alert_news": ("number",),
}
PROOF_TABLES = (
    "create table proof_effect (message text, by text)",
    "create table proof_business (name text primary key, version int)",
    "insert into proof_business values ('one', 0), ('two', 0)",
)


@dataclass(frozen=True)
class Answer:
    """How a child ended, and what it wrote down if it came to its end."""

    status: int
    said: dict[str, Any]

    @property
    def killed(self) -> bool:
        return self.status == -signal.SIGKILL


class Children:
    """The process that forks them."""

    def __init__(self, folder: Path) -> None:
        self.answer = folder / "answer"
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.proof.kill.child"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, order: dict[str, Any]) -> int:
        assert self.process.stdin is not None
        self.answer.unlink(missing_ok=True)
        self.process.stdin.write(json.dumps({**order, "answer": str(self.answer)}) + "\n")
        self.process.stdin.flush()
        return int(self._line()["pid"])

    def end(self) -> Answer:
        status = int(self._line()["status"])
        said = json.loads(self.answer.read_text()) if status != -signal.SIGKILL else {}
        assert "failed" not in said, said["failed"]
        return Answer(status, said)

    def _line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the process that forks has ended"
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(10)


class Place:
    """A store that children work on, and that can be put back to its beginning."""

    dialect: str
    store: Store
    contents: Contents

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.children = Children(folder)
        self.pickled = folder / "contents"
        self.pickled.write_bytes(pickle.dumps(self.contents))

    @property
    def url(self) -> str:
        raise NotImplementedError

    def restore(self) -> None:
        raise NotImplementedError

    def effects(self) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def order(self, verb: str, **more: Any) -> dict[str, Any]:
        return {"dialect": self.dialect, "url": self.url, "verb": verb, "contents": str(self.pickled), **more}

    def perform(self, verb: str, **more: Any) -> Answer:
        self.children.start(self.order(verb, **more))
        return self.children.end()

    def picture(self, names: dict[str, str]) -> dict[str, Any]:
        """What is stored, without numbers that may differ from run to run."""
        return picture(self.store, names, self.effects())

    def close(self) -> None:
        self.children.close()
        self.store.close()


class SqlitePlace(Place):
    dialect = "sqlite"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "store.db"
        self.template = folder / "template.db"
        clock = MovableClock()
        store = SqliteStore(str(self.template), Settings(), clock)
        store.migrate()
        self.contents = fill(Box(store, clock))
        for statement in PROOF_TABLES:
            state.query(store, statement)
        store.close()
        for left in folder.glob("template.db-*"):
            left.unlink()
        self.store = SqliteStore(str(self.path), Settings(), MovableClock(self.contents.now))
        super().__init__(folder)

    @property
    def url(self) -> str:
        return str(self.path)

    def restore(self) -> None:
        self.store.close()
        for left in self.folder.glob("store.db*"):
            left.unlink()
        shutil.copy(self.template, self.path)

    def effects(self) -> list[tuple[Any, ...]]:
        effects = state.query(self.store, "select message, by from proof_effect order by 1, 2")
        return effects + state.query(self.store, "select name, version from proof_business order by 1")


class PostgresPlace(Place):
    dialect = "postgres"

    def __init__(self, folder: Path, dsn: str) -> None:
        self.world = World(dsn)
        self.contents = self.world.contents
        self.store = self.world.store
        self.control = psycopg.connect(dsn, autocommit=True)
        super().__init__(folder)

    @property
    def url(self) -> str:
        return self.world.dsn

    def restore(self) -> None:
        self.settled()
        self.world.restore()

    def effects(self) -> list[tuple[Any, ...]]:
        effects = state.query(self.store, "select message::text, by from proof.effect order by 1, 2")
        return effects + state.query(self.store, "select name, version from proof.business order by 1")

    def backends(self) -> list[int]:
        """Of the children: all that have a session of the explorer's kind, or are gone on the client's side."""
        ours = [self.world.connection.info.backend_pid, self.control.info.backend_pid]
        ours += [connection.info.backend_pid for connection in self.world.store._idle]
        rows = self.control.execute(
            "select pid from pg_stat_activity where datname = current_database() and pid <> all (%s)"
            " and backend_type = 'client backend'",
            [ours],
        )
        return [pid for (pid,) in rows]

    def settled(self) -> None:
        """Wait until the server has noticed that its client is dead."""
        wait_for(lambda: not self.backends(), "backends of dead children")

    def kill_held(self, verb: str, pause: int, *, terminate: bool) -> Answer:
        """Hold the child's statement inside the server at its n-th point, kill the child, and let the server go on."""
        held = f"select pg_advisory_lock(1, {pause})"
        self.control.execute(held.encode())
        try:
            pid = self.children.start(self.order(verb))
            waiting = "select 1 from pg_locks where locktype = 'advisory' and objid = %s and not granted"
            wait_for(
                lambda: self.control.execute(waiting, [pause]).fetchone() is not None,
                f"{verb} at point {pause}",
            )
            os.kill(pid, signal.SIGKILL)
            answer = self.children.end()
            if terminate:
                for backend in self.backends():
                    self.control.execute("select pg_terminate_backend(%s)", [backend])
        finally:
            self.control.execute("select pg_advisory_unlock_all()")
        self.settled()
        return answer

    def close(self) -> None:
        self.control.close()
        super().close()
        self.world.close()


def wait_for(done: Any, what: str) -> None:
    end = time.monotonic() + WAIT
    while not done():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.0005)


def without_number(text: str | None) -> str | None:
    """What names another message by its number: PostgreSQL gives no number twice, also when it puts tables back."""
    return None if text is None else re.sub(r"number \d+\.$", "number N.", text)


def picture(store: Store, names: dict[str, str], effects: list[tuple[Any, ...]]) -> dict[str, Any]:
    """Rows by the names of their messages; positions as places in their streams; no numbers of rows or workers."""
    tables = state.read_all(store, *state.COLUMNS)
    messages = tables["pending"]  # wherever it waits
    order: dict[Any, list[int]] = defaultdict(list)
    for m in messages:
        if m.position is not None:
            order[m.queue, m.stream].append(m.position)
    for positions in order.values():
        positions.sort()
    name_of = {m.seq: f"{names.get(str(m.id), m.id)}@{m.queue}" for m in messages}
    workers = {w.id: w.name for w in tables["worker"]}
    found: dict[str, Any] = {"message": {}, "lease": {}, "effects": effects}
    for m in messages:
        row = {key: value for key, value in m.items() if key not in ("seq", "position", "xact")}
        if names.get(str(m.id), "").startswith("new"):  # some get the machine's time
            row = {key: value for key, value in row.items() if key not in ("claimable_at", "created_at")}
        row["place"] = order[m.queue, m.stream].index(m.position) if m.position is not None else None
        found["message"][name_of[m.seq]] = row
    by_seq = {m.seq: m for m in messages}
    for lease in tables["lease"]:
        m = by_seq.get(lease.seq)
        positions = order[m.queue, m.stream] if m is not None else []
        run = sum(
            lease.run_end is not None and m is not None and m.position <= p <= lease.run_end
            for p in positions
        )
        row = {key: value for key, value in lease.items() if key not in ("seq", "run_end", "worker")}
        found["lease"][name_of.get(lease.seq, lease.seq)] = {
            **row,
            "run": run,
            "worker": workers.get(lease.worker),
        }
    news = {each.number: each.text for each in tables["alert_news"]}
    for each in (*tables["alert"], *tables["alert_news"]):
        each["episode"] = news.get(each.episode, each.episode)
    for stream in tables["stream"]:
        positions = order[stream.queue, stream.name]
        stream["last"] = positions.index(stream.last) if stream.last in positions else stream.last is not None
    for letter in tables["dead"]:
        letter["errors"] = [{**each, "text": without_number(each["text"])} for each in letter.errors or ()]
    for death in tables["death"]:
        death["error"] = without_number(death.error)
    for table in tables.keys() - {"message", "scheduled", "pending", "lease"}:
        dropped = DROPPED.get(table, ())
        rows = [{key: value for key, value in row.items() if key not in dropped} for row in tables[table]]
        found[table] = sorted(rows, key=repr)
    return found


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="holdfast-kill-") as name:
        yield Path(name)
