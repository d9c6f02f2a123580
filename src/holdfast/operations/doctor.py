"""What is wrong or will be, and what to do about it. The doctor only tells; it changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from ..errors import NotMigrated
from ..store import operator_queries as queries
from .desk import Desk
from .queues import Queues
from .results import Finding, Status

SQLITE_SAFE = (3, 51, 3)  # the first without the WAL-reset bug
SHOWN = 20
LAPSED_SECONDS = 300.0
BLOCKED_SECONDS = 3600.0
OPEN_SECONDS = 600.0


def examine(desk: Desk, look: Any) -> list[Finding]:
    """All findings, errors first. `look` makes a `Status`; it is not called when there are no tables."""
    findings = list(_schema(desk))
    if any(each.severity == "error" for each in findings):
        return findings
    findings += _database(desk)
    findings += _order(desk)
    findings += _work(look(), Queues(desk))
    findings += _leases(desk)
    rank = {"error": 0, "warning": 1, "note": 2}
    return sorted(findings, key=lambda each: rank[each.severity])


def _schema(desk: Desk) -> Iterator[Finding]:
    try:
        reached, needed, own = desk.ask(lambda _: queries.version(desk.plans))
    except NotMigrated:
        yield Finding("error", "schema", "The database has no Holdfast tables.", "Run `holdfast migrate`.")
        return
    if reached > needed:
        yield Finding(
            "error",
            "schema",
            f"The database is at schema version {reached} and this release knows only {needed}.",
            "Install the newer release; there is no way down.",
        )
    elif reached < needed or not own:
        yield Finding(
            "error",
            "schema",
            f"The database is at schema version {reached}; this release needs {needed} with its own functions.",
            "Run `holdfast migrate`.",
        )


def _database(desk: Desk) -> Iterator[Finding]:
    server = desk.ask(lambda _: queries.server(desk.plans), one=False)
    if "journal_mode" in server:
        yield from _sqlite(server)
        return
    for name in ("fsync", "full_page_writes"):
        if server[name] == "off":
            yield Finding(
                "error",
                name,
                f"PostgreSQL runs with {name} = off: a crash of the machine can lose or corrupt everything.",
                f"Set {name} = on, unless this is a database for tests.",
            )
    if server["synchronous_commit"] == "off":
        yield Finding(
            "error",
            "synchronous_commit",
            "synchronous_commit is off: what was committed just before a crash can be lost.",
            "Set synchronous_commit = on for this database or role.",
        )
    if (server["open_seconds"] or 0.0) > OPEN_SECONDS:
        yield Finding(
            "warning",
            "long-transaction",
            f"A transaction has been open for {server['open_seconds'] / 60:.0f} minutes: dead rows stay in the tables.",
            "Find it in pg_stat_activity (state, xact_start) and end it.",
        )


def _sqlite(server: dict[str, Any]) -> Iterator[Finding]:
    if tuple(int(part) for part in server["version"].split(".")[:3]) < SQLITE_SAFE:
        yield Finding(
            "warning",
            "sqlite-version",
            f"SQLite {server['version']} can corrupt a WAL file when two connections checkpoint at one instant "
            "(fixed in 3.51.3). Holdfast lets only its writer do it.",
            "Use a Python with SQLite 3.51.3 or newer, or set wal_autocheckpoint=0 on your own connections.",
        )
    if server["journal_mode"] not in ("wal", "memory"):
        yield Finding(
            "error",
            "journal-mode",
            f"The database is in journal mode {server['journal_mode']}: readers and the writer block each other.",
            "Let Holdfast open it, which sets WAL, and do not change it on other connections.",
        )


def _order(desk: Desk) -> Iterator[Finding]:
    for row in desk.ask(lambda _: queries.open_differs(desk.plans, SHOWN)):
        yield Finding(
            "error",
            "stream-count",
            f"Stream {row['stream']} of queue {row['queue']} counts {row['open']} in its order and has {row['found']}.",
            "Please report it as a bug, with what wrote to the tables; pause the queue until it is understood.",
        )
    for row in desk.ask(lambda _: queries.stranded(desk.plans, SHOWN)):
        text = (
            "no head, although it is not halted"
            if row["halted_by"] is None
            else "a head, although it is halted"
        )
        yield Finding(
            "error",
            "stranded-stream",
            f"Stream {row['stream']} of queue {row['queue']} has {text}.",
            "`holdfast streams halt` and then `resume` makes the first message its head; please report it as a bug.",
        )


def _work(status: Status, queues: Queues) -> Iterator[Finding]:
    for queue in status.queues:
        if queue.is_orphaned and queue.depth:
            yield Finding(
                "warning",
                "orphaned-queue",
                f"Nobody takes from queue {queue.name}, in which {queue.depth} messages wait.",
                f"Start a worker with its handler, or `holdfast queues move {queue.name} TO`, or drop it.",
            )
    for each in status.unrouted:
        yield Finding(
            "warning",
            "unrouted",
            f"Nobody subscribes to {each.type}: {each.count} messages wait for a subscriber.",
            "Start a worker that has a handler for it, or cancel them.",
        )
    if not any(each.is_alive for each in status.workers):
        yield Finding(
            "warning" if status.depth else "note",
            "no-worker",
            "No worker has been seen lately.",
            "Start one: `holdfast worker MODULE:APP`.",
        )
    for stream in status.blocked:
        if stream.since is not None and status.at - stream.since > timedelta(seconds=BLOCKED_SECONDS):
            hours = (status.at - stream.since).total_seconds() / 3600
            yield Finding(
                "warning",
                "blocked-stream",
                f"Stream {stream.stream} of queue {stream.queue} is blocked for {hours:.1f} h; {stream.waiting} wait.",
                "`holdfast streams blocked` says by what; retry, set aside or redrive that message.",
            )
    if status.dead:
        yield Finding(
            "note",
            "dead-letters",
            f"{status.dead} dead letters are kept, and no archive is configured: none is ever deleted by itself.",
            "Look at them with `holdfast dead list`; redrive or discard them.",
        )


def _leases(desk: Desk) -> Iterator[Finding]:
    row = desk.ask(lambda now: queries.lapsed(desk.plans, LAPSED_SECONDS, now), one=False)
    if row["count"]:
        yield Finding(
            "warning",
            "lapsed-leases",
            f"{row['count']} leases lapsed more than {LAPSED_SECONDS / 60:.0f} minutes ago and nobody has ended them.",
            "A running worker ends them by itself: start one.",
        )
