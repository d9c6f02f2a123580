"""A process is killed with -9 at every point of every verb; see child.py. A point is: before a statement is sent, after
its answer has come, and, on PostgreSQL, inside the server at each `-- step:` while the client dies waiting.

After each kill the store shows all of the verb or nothing of it, and from the first point on that shows all of it,
every later one does. A new process then finishes the work: nothing is lost, nothing is there that was never committed,
each message is handled once, in the order of its stream.

The ordinary suite finishes the work once for each state that a verb can leave; `faults` after every kill.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.store.text import load, names
from tests.databases import server
from tests.proof.counts import COUNTS
from tests.proof.instrument import points as named_points
from tests.proof.invariants import ID_TAKEN
from tests.proof.kill.killing import Place, PostgresPlace, SqlitePlace, folder
from tests.proof.kill.verbs import verbs
from tests.store import state

WRITES = re.compile(
    r"\b(insert into|update|delete from)\b|select (\* from |n, id from |seq, lost from )?holdfast\.\w+\(|for update"
)


# --- Where ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scene(place: str) -> Iterator[Place]:
    with folder() as path:
        found: Place
        if place == "sqlite":
            found = SqlitePlace(path)
        else:
            found = PostgresPlace(path, server(place).create_database())
        yield found
        found.close()


# --- Killing ----------------------------------------------------------------------------------------------------------


class Verb:
    """One verb on one place: what it leaves when nobody kills it, and where it can be killed."""

    def __init__(self, place: Place, name: str) -> None:
        self.place, self.name = place, name
        place.restore()
        first = {str(id): name for id, name in place.contents.names.items()}
        self.before = place.picture(first)
        answer = place.perform(name)
        self.points: list[str] = answer.said["points"]
        self.steps: list[str] = answer.said["steps"]
        self.names: dict[str, str] = answer.said["names"]
        self.after = place.picture(self.names)
        self.finished: list[dict[str, Any]] = []
        assert len(self.points) >= 2

    def outcome(self, about: str) -> tuple[bool, dict[str, Any]]:
        """Whether all of it has happened, and what is left; fails unless it is all or nothing."""
        left = self.place.picture(self.names)
        assert left in (self.before, self.after), (
            f"{self.name}, killed {about}: {difference(left, self.before, self.after)}"
        )
        return bool(left == self.after), left

    def kill_everywhere(self, finish_always: bool) -> None:
        happened = False
        for at, label in enumerate(self.points):
            self.place.restore()
            assert self.place.perform(self.name, kill_at=at).killed
            if isinstance(self.place, PostgresPlace):
                self.place.settled()
            outcome, left = self.outcome(label)
            assert outcome >= happened or self.before == self.after, f"{self.name} is undone again {label}"
            happened = outcome
            self.finish(left, finish_always, label)
        assert happened, f"{self.name} was answered and has not happened"
        COUNTS.add("kill points", f"on {self.place.dialect}", len(self.points))

    def kill_held(self, finish_always: bool) -> None:
        assert isinstance(self.place, PostgresPlace)
        for at, step in enumerate(self.steps):
            for terminate in (False, True):
                self.place.restore()
                assert self.place.kill_held(self.name, at + 1, terminate=terminate).killed
                outcome, left = self.outcome(f"at {step}")
                assert not (terminate and outcome) or self.before == self.after
                self.finish(left, finish_always, step)
        COUNTS.add("kill points", "held inside PostgreSQL", 2 * len(self.steps))

    # -- finishing

    def finish(self, left: dict[str, Any], always: bool, about: str) -> None:
        if not always and left in self.finished:
            return
        self.finished.append(left)
        handled = self.place.perform("finish", watched=False).said["handled"]
        faults = list(self.checked(handled))
        assert not faults, f"{self.name}, killed {about}:\n" + "\n".join(faults)

    def checked(self, handled: list[tuple[str, str | None, int | None, str]]) -> Iterator[str]:
        tables = ("message", "scheduled", "stream", "lease", "dead", "dedupe")
        yield from state.broken_invariants(state.read_all(self.place.store, *tables))
        named = lambda id: self.names.get(str(id), str(id))  # noqa: E731
        left = self.place.picture(self.names)
        yield from (f"{name} is still pending" for name in left["message"])
        yield from (f"the lease of {name} is left" for name in left["lease"])
        ended = Counter(  # a dead letter whose id was taken is another message with that id
            (str(row["id"]), row["queue"])
            for table in ("history", "dead")
            for row in left[table]
            if row.get("reason") != ID_TAKEN
        )
        yield from (
            f"{named(id)} in {queue} ended {count} times" for (id, queue), count in ended.items() if count > 1
        )
        pruned = {"prune_history": {"old", "x1"}}.get(self.name, set())
        known = {row["id"] for table in ("message", "dead", "history") for row in rows(self.before, table)}
        gone = {str(id) for id in known} - {id for id, _ in ended}
        yield from (f"{named(id)} is lost" for id in gone if named(id) not in pruned)
        came = [row["id"] for table in ("message", "dead") for row in rows(self.after, table)]
        new = {str(id) for id in came} - {str(id) for id in known}
        stored = {id for id, _ in ended} - {str(id) for id in known}
        if stored not in (set(), new):
            yield f"a part of what was published: {[named(id) for id in stored]}"
        for id, count in Counter(id for _, _, _, id in handled).items():
            queues = {queue for queue, _, _, of in handled if of == id}
            if count > len(queues):
                yield f"{named(id)} was handled {count} times"
        last: dict[tuple[str, str], int] = {}
        for queue, stream, position, id in handled:
            if stream is not None and position is not None:
                if position < last.get((queue, stream), -1):
                    yield f"{named(id)} was handled behind a later one of stream {stream}"
                last[queue, stream] = position


def rows(picture: dict[str, Any], table: str) -> list[dict[str, Any]]:
    found: Any = picture[table]
    return list(found.values()) if isinstance(found, dict) else found


def difference(left: dict[str, Any], before: dict[str, Any], after: dict[str, Any]) -> str:
    lines = []
    for table in left:
        if left[table] not in (before[table], after[table]):
            lines.append(f"{table}: {left[table]}\n  before {before[table]}\n  after {after[table]}")
    return "\n".join(lines) or "tables of before and after, mixed"


# --- The tests --------------------------------------------------------------------------------------------------------

ORDINARY = (
    "publish_keys", "publish_in_transaction", "claim", "done_move", "done_emit", "complete", "recover", "redrive_many",
    "tick",
)  # fmt: skip


@pytest.mark.parametrize("name", ORDINARY)
def test_all_or_nothing(scene: Place, name: str) -> None:
    verb = Verb(scene, name)
    verb.kill_everywhere(finish_always=False)
    if isinstance(scene, PostgresPlace):
        verb.kill_held(finish_always=False)


@pytest.mark.faults("kills")
@pytest.mark.parametrize("name", list(verbs()))
def test_all_or_nothing_and_finished(scene: Place, name: str) -> None:
    verb = Verb(scene, name)
    verb.kill_everywhere(finish_always=True)
    if isinstance(scene, PostgresPlace):
        verb.kill_held(finish_always=True)


# --- Coverage ---------------------------------------------------------------------------------------------------------


EXEMPT = {
    "refuse": "spoils a transaction and writes nothing",
    "leases_free": "locks for a look and writes nothing",
    # Not killed here yet: each is one statement in a transaction of other verbs, and tests/orchestrations/test_storm.py
    # kills workers at random.
    "rename_add": "beside the subscriptions of a worker",
    "op_rename_forget": "beside the subscriptions that an operator drops",
}


def opening(text: str) -> str:
    """How a statement begins, up to its first parameter: what tells the files apart."""
    return re.split(r"[:%$]", " ".join(text.split()))[0][:60].rstrip(" (")


@pytest.mark.one_postgres
def test_no_point_is_forgotten(scene: Place) -> None:
    """Every statement that writes, and every named point inside the functions, is passed by some verb."""
    passed: set[str] = set()
    steps: set[str] = set()
    total = 0
    for name in verbs():
        scene.restore()
        said = scene.perform(name).said
        total += len(said["points"]) + 2 * len(said["steps"])
        passed |= {opening(point.removeprefix("before ")) for point in said["points"]}
        steps |= set(said["steps"])
    texts = {name.partition("/")[2]: load(scene.dialect, (name,)) for name in names(scene.dialect)}
    writes = {name for name, text in texts.items() if WRITES.search(re.sub(r"--[^\n]*", "", text).lower())}
    missing = sorted(name for name in writes - EXEMPT.keys() if opening(texts[name]) not in passed)
    COUNTS.add("kill points", f"exist on {scene.dialect}", total)
    assert not missing, f"statements that no verb sends: {missing}"
    if scene.dialect == "postgres":
        assert sorted(set(named_points()) - steps) == []
