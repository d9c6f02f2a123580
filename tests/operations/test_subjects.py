"""Messages, history and dead letters are found by their subject (what they are about), through an index."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.errors import UsageError
from holdfast.model.message import Reason
from holdfast.model.work import Outcome
from holdfast.operations import Filter
from holdfast.store import SqliteStore
from holdfast.store.plans import dead_queries, queries
from holdfast.store.plans.queries import beyond
from holdfast.store.statement import Plan, Query, Runnable, Statement, bound
from tests.operations.world import World

SUBJECTS = ["Submission/1", "Submission/10", "Submission/2", "Submissions/1", "Student/1", None]


@pytest.fixture
def filled(world: World) -> World:
    """A message of each subject pending, ended and dead."""
    world.worker("w1")
    for subject in SUBJECTS:
        for end in (None, Outcome.DONE, Outcome.DEAD):
            queue = "pending" if end is None else "q"
            world.publish("grading.request", subject=subject, queue=queue)
            if end is not None:
                (leased,) = world.claim("q")
                reason = Reason.POISON_MESSAGE if end is Outcome.DEAD else None
                world.settle(
                    leased, end, failed=end is Outcome.DEAD, reason=reason, error="bad" if reason else None
                )
    return world


def found(world: World, subject: str) -> list[list[str | None]]:
    operations, wanted = world.operations, Filter(subject=subject)
    listed = (
        operations.messages.find(wanted),
        operations.messages.ended(wanted),
        operations.dead.list(wanted),
    )
    return [sorted(str(each.subject) for each in each) for each in listed]


@pytest.mark.covers("V5", "V6", "V10")
@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ("Submission/1", ["Submission/1"]),
        ("Submission/*", ["Submission/1", "Submission/10", "Submission/2"]),
        ("Submission/1*", ["Submission/1", "Submission/10"]),
        ("S*", ["Student/1", "Submission/1", "Submission/10", "Submission/2", "Submissions/1"]),
        ("*", ["Student/1", "Submission/1", "Submission/10", "Submission/2", "Submissions/1"]),
        ("submission/1", []),
        ("%", []),
        ("Submission_1", []),
        ("Submission%*", []),
    ],
)
def test_an_aggregate_is_found_by_type_and_id_in_all_three_places(
    filled: World, asked: str, names: list[str]
) -> None:
    assert found(filled, asked) == [names] * 3


def test_other_conditions_hold_too(filled: World) -> None:
    operations, wanted = filled.operations, Filter(subject="Submission/*", queue="q")
    assert operations.messages.find(wanted) == []
    assert len(operations.messages.ended(wanted)) == 3
    (line,) = operations.messages.ended(Filter(subject="Submission/10", type="grading.request"))
    assert (line.subject, line.outcome, line.attempts, line.queue) == ("Submission/10", "done", 1, "q")
    assert operations.messages.show(line.id).ended[0].ended_at == line.ended_at
    assert operations.messages.ended(Filter(subject="Submission/10", type="other")) == []
    id = operations.messages.find(Filter(subject="Submission/2"))[0].id
    assert len(operations.messages.find(Filter(id=id, subject="Sub*"))) == 1
    assert operations.messages.find(Filter(id=id, subject="Student/*")) == []


def test_commands_about_many_take_a_subject(filled: World) -> None:
    operations = filled.operations
    operations.messages.park(operations.messages.find(Filter(subject="Submission/2"))[0].id)
    assert operations.messages.retry_many(Filter(subject="Submission/*")).changed == 1
    assert operations.dead.count(Filter(subject="Submission/*")) == 3
    assert operations.dead.redrive_many(Filter(subject="Submission/*")).changed == 3
    assert operations.dead.count() == 3


def test_what_has_ended_is_asked_for_by_subject_alone(world: World) -> None:
    with pytest.raises(UsageError, match="--subject"):
        world.operations.messages.ended(Filter(queue="q"))
    with pytest.raises(UsageError, match="neither a state nor a reason"):
        world.operations.messages.ended(Filter(subject="a", state="ready"))


@pytest.mark.parametrize(
    ("beginning", "end"),
    [("a", "b"), ("Submission/", "Submission0"), ("\ud7ff", "\ue000"), ("a\U0010ffff", "b")],
)
def test_the_first_text_behind_a_beginning(beginning: str, end: str) -> None:
    assert beyond(beginning) == end
    assert beginning.encode() < (beginning + "\U0010ffff").encode() < end.encode()


# --- The index ------------------------------------------------------------------------------------------------------


PLANS: dict[str, tuple[str, Callable[[str], Runnable[Any]]]] = {
    "pending": ("message_subject", lambda subject: queries.find(subject=subject)),
    "ended": ("history_subject", lambda subject: queries.ended(subject=subject)),
    "dead": ("dead_subject", lambda subject: dead_queries.letters(subject=subject)),
}


@pytest.mark.covers("V10")
def test_the_index_is_used(crowded: World) -> None:
    for index, plan in PLANS.values():
        for asked in ("Submission/77", "Submission/77*"):
            assert index in "\n".join(explained(crowded, plan(asked)))


@pytest.fixture
def crowded(world: World) -> World:
    """Many messages, pending, ended and dead, each tenth with a subject."""
    sqlite = isinstance(world.store, SqliteStore)
    numbers = (
        "with recursive n (i) as (select 1 union all select i + 1 from n where i < 3000) select {0} from n"
        if sqlite
        else "select {0} from generate_series(1, 3000) n (i)"
    )
    now, uuid = (
        ("0", "'00000000-0000-7000-8000-' || printf('%012d', i)")
        if sqlite
        else ("now()", "gen_random_uuid()")
    )
    prefix = "holdfast_" if sqlite else "holdfast."
    subject = "case when i % 10 = 0 then 'Submission/' || i end"
    columns = {
        "message": (
            "id, type, body, subject, queue, claimable_at, created_at",
            f"{uuid}, 't', 'null', {subject}, 'q', {now}, {now}",
        ),
        "history": (
            "id, ended_at, due_at, status, attempts, failures, outcome, queue, type, subject",
            f"{uuid}, {now}, {now}, 5, 1, 0, 'done', 'q', 't', {subject}",
        ),
        "dead": (
            "id, queue, seq, type, status, epoch, attempts, failures, vanished, refunds, redrives, reason, created_at,"
            " died_at, body, subject",
            f"{uuid}, 'q', i, 't', 1, 1, 1, 1, 0, 0, 0, 3, {now}, {now}, 'null', {subject}",
        ),
    }  # fmt: skip

    def fill() -> Plan[None]:
        for table, (names, values) in columns.items():
            yield Statement(f"insert into {prefix}{table} ({names}) {numbers.format(values)}")
        for table in columns:
            yield Statement(f"analyze {prefix}{table}")

    world.store.run(fill())
    return world


def explained(world: World, plan: Runnable[Any]) -> list[str]:
    """What the database says it would do."""
    steps = iter(plan)
    (query,) = [next(steps)]
    assert isinstance(query, Query)
    words = "explain query plan " if isinstance(world.store, SqliteStore) else "explain "

    def explain() -> Iterator[Any]:
        made = bound(_only(query), world.store.engine, world.store.now())
        statement = next(made)
        rows = yield Statement(words + statement.sql, statement.params)
        return [str(row) for row in rows]

    return world.store.read(explain())  # type: ignore[arg-type]


def _only(query: Query) -> Plan[Any]:
    return (yield query)
