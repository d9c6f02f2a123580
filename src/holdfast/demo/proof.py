"""The proof: the guarantees, counted afterwards from the shop's tables, Holdfast's tables and the diary.

Nothing here relies on what the demo saw while it ran, except two lists that no database can hold: the ids that
were published in transactions that were rolled back, and the worker processes that were killed from outside.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ..model.message import Reason
from .story import STARTS_MAX, Story, diary_of

INVALID = {Reason.VALIDATION_FAILURE, Reason.SERIALIZATION_ERROR}


@dataclass(frozen=True, slots=True)
class Row:
    """One guarantee, the numbers, and whether they agree."""

    promise: str
    numbers: str
    kept: bool


@dataclass(frozen=True, slots=True)
class Entry:
    message: str
    stream: str


@dataclass(frozen=True, slots=True)
class DeadLetter:
    message: str
    reason: Reason
    last_reason: Reason
    attempts: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that is counted."""

    promised: list[Entry]  # in the order of the shop's commits
    ledger: list[Entry]  # in the order of the handlers' commits
    done: list[str]
    dead: list[DeadLetter]
    waiting: list[str]
    retries: int
    starts: Counter[str]
    rolled_back: frozenset[str]
    cursed: frozenset[str]
    invalid: frozenset[str]
    planned: int
    killed: int


def gather(
    database: str, story: Story, *, rolled_back: Iterable[str], cursed: str, invalid: str, killed: int
) -> Evidence:
    """Read everything, with a separate connection and plain SQL."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
        dead = db.execute("select id, reason, last_reason, attempts from holdfast_dead").fetchall()
        failures = db.execute(
            "select coalesce(sum(failures), 0) from"
            " (select failures from holdfast_history union all select failures from holdfast_message)"
        ).fetchone()
        return Evidence(
            promised=[Entry(*row) for row in db.execute("select message, stream from promise order by n")],
            ledger=[Entry(*row) for row in db.execute("select message, stream from ledger order by n")],
            done=[row[0] for row in db.execute("select id from holdfast_history where outcome = 'done'")],
            dead=[DeadLetter(i, Reason(why), Reason(last), starts) for i, why, last, starts in dead],
            waiting=[row[0] for row in db.execute("select id from holdfast_message")],
            retries=failures[0],
            starts=starts_of(database),
            rolled_back=frozenset(rolled_back),
            cursed=frozenset({cursed}),
            invalid=frozenset({invalid}),
            planned=story.messages,
            killed=killed,
        )


def starts_of(database: str) -> Counter[str]:
    """How often a handler was started with each message, from the diary."""
    diary = Path(diary_of(database))
    lines = diary.read_text().splitlines() if diary.exists() else []
    return Counter(line.split()[0] for line in lines)


def prove(evidence: Evidence) -> list[Row]:
    """Every guarantee with its numbers. Each row can fail, and none depends on another."""
    return [
        nothing_lost(evidence),
        nothing_rolled_back(evidence),
        order_kept(evidence),
        effects_once(evidence),
        starts_bounded(evidence),
        failures_retried(evidence),
        workers_replaced(evidence),
        dead_letters(evidence),
        only_bad(evidence),
    ]


def nothing_lost(e: Evidence) -> Row:
    promised = Counter(entry.message for entry in e.promised)
    ended = Counter(e.done) + Counter(letter.message for letter in e.dead)
    numbers = f"{len(e.promised)} committed = {len(e.done)} done + {len(e.dead)} dead"
    if e.waiting:
        numbers += f", and {len(e.waiting)} still waiting"
    return Row("nothing lost", numbers, ended == promised and len(e.promised) == e.planned and not e.waiting)


def nothing_rolled_back(e: Evidence) -> Row:
    everywhere = {entry.message for entry in (*e.promised, *e.ledger)} | {*e.done, *e.waiting, *e.starts}
    everywhere |= {letter.message for letter in e.dead}
    found = len(e.rolled_back & everywhere)
    numbers = f"{len(e.rolled_back)} published and rolled back, {found} of them left a trace"
    return Row("nothing from rolled-back transactions", numbers, found == 0 and len(e.rolled_back) > 0)


def order_kept(e: Evidence) -> Row:
    """In every stream the ledger goes up in the order of the shop's commits."""
    place = {entry.message: n for n, entry in enumerate(e.promised)}
    by_stream: dict[str, list[int]] = {}
    for entry in e.ledger:
        by_stream.setdefault(entry.stream, []).append(place.get(entry.message, -1))
    wrong = sum(later <= earlier for places in by_stream.values() for earlier, later in pairwise(places))
    longest = max(map(len, by_stream.values()), default=0)
    numbers = f"{len(by_stream)} streams, the longest of {longest}: {wrong} entries out of order"
    return Row("order kept in every stream", numbers, wrong == 0 and longest > 1)


def effects_once(e: Evidence) -> Row:
    entries = Counter(entry.message for entry in e.ledger)
    numbers = f"{len(e.done)} done, {len(e.ledger)} ledger entries for {len(entries)} messages"
    return Row("effects once", numbers, entries == Counter(e.done) and max(entries.values(), default=0) == 1)


def starts_bounded(e: Evidence) -> Row:
    most = max(e.starts.values(), default=0)
    missing = len({*e.done} - {*e.starts})
    numbers = f"{e.starts.total()} starts of {len(e.starts)} messages, at most {most} of {STARTS_MAX} for one"
    return Row("started at least once, at most N times", numbers, most <= STARTS_MAX and missing == 0)


def failures_retried(e: Evidence) -> Row:
    numbers = f"{e.retries} failed attempts were tried again, and none was given up"
    spent = [letter for letter in e.dead if letter.message not in e.cursed | e.invalid]
    return Row("failures retried", numbers, e.retries > 0 and not spent)


def workers_replaced(e: Evidence) -> Row:
    """A start without an end or a failure means that the worker died: the cursed message never ends."""
    by_message = sum(e.starts[message] for message in e.cursed)
    numbers = f"{e.killed} killed by the demo, {by_message} by the cursed message"
    return Row("killed workers replaced", numbers, e.killed > 0 and by_message > 0)


def dead_letters(e: Evidence) -> Row:
    cursed = [letter for letter in e.dead if letter.message in e.cursed]
    invalid = [letter for letter in e.dead if letter.message in e.invalid]
    kept = (
        [letter.reason for letter in cursed] == [Reason.POISON_MESSAGE]
        and [letter.last_reason for letter in cursed] == [Reason.WORKER_VANISHED]
        and len(invalid) == 1
        and invalid[0].reason in INVALID
        and e.starts[invalid[0].message] == 0
    )
    said = [
        *(f"cursed: reason {_named(x.reason)} after {e.starts[x.message]} starts" for x in cursed),
        *(f"invalid: reason {_named(x.reason)}, never started" for x in invalid),
    ]
    return Row("dead letters say why", "; ".join(said) or "none", kept)


def only_bad(e: Evidence) -> Row:
    good = [letter for letter in e.dead if letter.message not in e.cursed | e.invalid]
    numbers = f"{len(good)} of {len(e.dead)} dead letters were neither cursed nor invalid"
    return Row("only bad messages became dead letters", numbers, not good)


def _named(reason: Reason) -> str:
    return f"{int(reason)} ({reason.name.lower().replace('_', ' ')})"
