"""What is wrong or will go wrong, and what to do about it. The doctor only reports; it changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID

from ..errors import NotMigrated
from ..rules.alert import length
from ..store.installed import compare, other, words
from ..store.plans import alerts
from ..store.plans import dead_queries as letters
from ..store.plans import doctor as plans
from . import database, schedule_findings
from . import deep as deeply
from .cleaning import overdue
from .desk import Desk
from .incident import Status
from .repair import examine as sequences
from .results import Finding, Stuck

SHOWN = 20
LATE_ARCHIVE_SECONDS, LATE_ARCHIVE_COUNT = 86_400.0, 2000  # housekeeping may take a while
LATE_CLEANING = 3600.0
LAPSED_SECONDS = 300.0
ENDLESS_LEASES = 20  # times the lease setting: longer than any worker needs
FLOW_SECONDS = 300.0
WAITING_MIN = 100  # fewer waiting messages are not a backlog
TROUBLE_SECONDS = 86_400.0
GROWS = 1.1  # times as many come as end


def examine(
    desk: Desk,
    look: Callable[[], Status],
    loops: Callable[[], Sequence[Stuck]],
    brokers: Sequence[Callable[[], Sequence[Finding]]] = (),
    *,
    deep: bool = False,
) -> list[Finding]:
    """All findings, errors first. Without tables nothing else is checked. `deep`: check all that is stored.

    `brokers` look at the brokers of the application.
    """
    findings = list(_schema(desk))
    if any(each.severity == "error" for each in findings):
        return findings
    findings += database.examine(desk)
    findings += sequences(desk)
    findings += deeply.examine(desk) if deep else _order(desk)
    status = look()
    findings += _work(status)
    findings += _letters(desk, status)
    findings += _loops(loops())
    findings += _flow(desk, status)
    findings += _leases(desk)
    findings += _troubles(desk)
    findings += _cleaning(desk)
    findings += _news(desk)
    findings += schedule_findings.examine(desk)
    for each in brokers:
        findings += each()
    rank = {"error": 0, "warning": 1, "note": 2}
    # A destination and an inbox of one broker find the same about a queue that both declare.
    return sorted(dict.fromkeys(findings), key=lambda each: rank[each.severity])


def _schema(desk: Desk) -> Iterator[Finding]:
    try:
        found, ours = desk.ask(plans.version())
    except NotMigrated as missing:
        yield Finding("error", "schema", "The database has no Holdfast tables.", _remedy(missing))
        return
    standing = compare(found, ours)
    has = f"The database has {words(found)}"
    match standing:
        case "behind":
            yield Finding(
                "error", "schema", f"{has}; this release needs {words(ours)}.", "Run `holdfast migrate`."
            )
        case "ahead":
            yield Finding(
                "error",
                "schema",
                f"{has} and this release knows only {words(ours)}.",
                "Install the newer release; there is no way down.",
            )
        case "compatible":
            yield Finding(
                "note",
                "schema",
                f"{has}; this process is an older release ({words(ours)}), which still works with it.",
                "Install the newer release here as well.",
            )
        case "other":
            yield Finding("error", "schema", other(found), "Install a release.")


def _remedy(missing: NotMigrated) -> str:
    return "Run `holdfast migrate`." if "run `holdfast migrate`" in str(missing) else str(missing)


def _order(desk: Desk) -> Iterator[Finding]:
    for row in desk.ask(plans.open_differs(SHOWN)):
        yield Finding(
            "error",
            "stream-count",
            f"Stream {row['stream']} of queue {row['queue']} counts {row['open']} in its order and has {row['found']}.",
            "Please report it as a bug, and say what wrote to the tables; pause the queue until the cause is known.",
        )
    for row in desk.ask(plans.stranded(SHOWN)):
        text = (
            "no head, although it is not halted"
            if row["halted_by"] is None
            else "a head, although it is halted"
        )
        yield Finding(
            "error",
            "stranded-stream",
            f"Stream {row['stream']} of queue {row['queue']} has {text}.",
            "`holdfast repair` makes the first message of one without a head its head; a head of a halted one: "
            "`holdfast streams resume`. Unless a sequence was behind, please report it as a bug.",
        )


def _work(status: Status) -> Iterator[Finding]:
    """The problems of `status` are findings here; retry loops follow below, one by one."""
    yield from (each for each in status.problems if each.name != "retry-loop")
    for each in status.paused:
        who = f" by {each.who}" if each.who else ""
        because = f": {each.why}" if each.why else ""
        yield Finding(
            "note",
            "paused-queue",
            f"Queue {each.queue} is paused since {each.since:%Y-%m-%d %H:%M:%S} UTC{who}{because}.",
            f"`holdfast queues resume {each.queue}` claims from it again.",
        )
    if not status.depth and not any(each.is_alive for each in status.workers):
        yield Finding(
            "note",
            "no-worker",
            "No worker has been seen lately.",
            "Start one: `holdfast worker MODULE:APP`.",
        )


def _letters(desk: Desk, status: Status) -> Iterator[Finding]:
    """Dead letters are kept until they are archived: if there are too many or too old ones, that is reported."""
    if not status.dead:
        return
    settings = desk.settings
    oldest = desk.ask(letters.keys(limit=1, order=letters.AGE))
    age = max([0.0, *((status.at - each["since_at"]).total_seconds() for each in oldest)])
    too_much = status.dead > settings.dead_count or age > settings.dead_age
    are = "dead letter is" if status.dead == 1 else "dead letters are"
    kept = f"{status.dead:,} {are} kept, the oldest for {length(age)}"
    limits = f"{settings.dead_count:,} and {settings.dead_age / 86_400:g} days are the limits"
    if not too_much:
        archive = (
            f"housekeeping moves them to {settings.archive}"
            if settings.archive
            else "no archive is configured"
        )
        yield Finding(
            "note",
            "dead-letters",
            f"{kept}; {archive}.",
            "Look at them with `holdfast dead groups`; redrive or discard them.",
        )
    elif not settings.archive:
        yield Finding(
            "warning",
            "dead-letters",
            f"{kept}; {limits}, and no archive is configured: none is ever deleted automatically.",
            "Redrive or discard them (`holdfast dead groups`), or configure an archive: the setting `archive`.",
        )
    elif (
        age > settings.dead_age + LATE_ARCHIVE_SECONDS
        or status.dead > settings.dead_count + LATE_ARCHIVE_COUNT
    ):
        yield Finding(
            "warning",
            "dead-letters",
            f"{kept}; {limits}, and they do not get into the archive {settings.archive}: held, or archiving fails.",
            "`holdfast dead archive` says why; `holdfast dead list --held` lists what is held.",
        )


def _loops(found: Sequence[Stuck]) -> Iterator[Finding]:
    for each in found[:SHOWN]:
        message, since = each.delivery, each.failing_since
        reason = (
            f", each time {message.reason.name.replace('_', ' ').lower()}"
            if each.same_reason and message.reason
            else ""
        )
        known = f" since {since:%Y-%m-%d %H:%M:%S} UTC at least" if since is not None else ""
        yield Finding(
            "warning",
            "retry-loop",
            f"Message {message.id} of type {message.type} in queue {message.queue} has been tried "
            f"{message.attempts} times and fails{known}{reason}.",
            f"`holdfast messages show {message.id}`: repair the cause and retry it with --reset, or make it a "
            "dead letter.",
        )


def _flow(desk: Desk, status: Status) -> Iterator[Finding]:
    """Queues that get more messages than they end."""
    rows = {row["queue"]: row for row in desk.ask(plans.flow(FLOW_SECONDS))}
    for queue in status.queues:
        row = rows.get(queue.name)
        waiting = sum(queue.states.get(state, 0) for state in ("ready", "waiting", "blocked"))
        if row is None or queue.paused_at is not None or not is_growing(waiting, **_numbers(row)):
            continue
        came = row["arrived"] + row["ended"] - row["older"]
        yield Finding(
            "warning",
            "growing-backlog",
            f"Queue {queue.name} got {came} messages in the last {FLOW_SECONDS / 60:.0f} minutes and ended "
            f"{row['ended']}: {waiting} wait, and their number grows.",
            "Start more worker processes, make the handler faster, or raise its concurrency or rate.",
        )


def _numbers(row: dict[str, Any]) -> dict[str, int]:
    return {name: int(row[name]) for name in ("arrived", "ended", "older")}


def is_growing(waiting: int, *, arrived: int, ended: int, older: int) -> bool:
    """Whether a backlog of some size grows faster than it drains.

    `arrived`: came and are still there. `ended`: have left; `older` of those were there before.
    """
    came = arrived + ended - older
    return waiting >= WAITING_MIN and arrived > older and came > GROWS * ended


def _leases(desk: Desk) -> Iterator[Finding]:
    row = desk.ask(plans.lapsed(LAPSED_SECONDS))
    if row["count"]:
        yield Finding(
            "warning",
            "lapsed-leases",
            f"{row['count']} leases expired more than {LAPSED_SECONDS / 60:.0f} minutes ago and nobody has ended them.",
            "A running worker ends them by itself: start one.",
        )
    longest = ENDLESS_LEASES * max(desk.settings.lease, 60.0)
    for row in desk.ask(plans.endless(longest, SHOWN)):
        id: UUID = row["id"]
        yield Finding(
            "warning",
            "endless-lease",
            f"The lease of {row['worker']} on message {id} in queue {row['queue']} ends only at "
            f"{row['until']:%Y-%m-%d %H:%M:%S} UTC.",
            "If that worker is gone, no other worker takes over before; ask for shorter leases and renew them.",
        )


def _troubles(desk: Desk) -> Iterator[Finding]:
    """Trouble that known workers had with their database within a day. Workers that stopped cleanly are not known."""
    for row in desk.ask(plans.troubled(TROUBLE_SECONDS, SHOWN)):
        said = f"at {row['trouble_at']:%Y-%m-%d %H:%M:%S} UTC: {row['trouble']}"
        if row["timeouts"]:
            yield Finding(
                "warning",
                "statement-timeout",
                f"Worker {row['name']} had {row['timeouts']} statement timeouts, and reported {said}",
                "The database is too slow for a whole exchange: look at its load, its locks and its vacuum, or give "
                "it more time with a longer `lease` (a statement may take two of them).",
            )
        elif row["restarts"]:
            yield Finding(
                "warning",
                "worker-restarted",
                f"Worker {row['name']} inside an application was started again {row['restarts']} times, {said}",
                "Its log has the error with the event worker.ended: repair the cause.",
            )
        else:
            yield Finding(
                "note",
                "worker-waited",
                f"Worker {row['name']} reported {said}",
                "Nothing needs to be done: it has continued by itself. If you did not expect it, look at the database.",
            )


def _cleaning(desk: Desk) -> Iterator[Finding]:
    """Housekeeping that does not keep up, or that no worker does."""
    kept = {"history": desk.settings.history, "dedupe": desk.settings.dedupe}
    words = {"history": "rows of the history", "dedupe": "dedupe keys"}
    for what, seconds in overdue(desk).items():
        if seconds > LATE_CLEANING:
            yield Finding(
                "warning",
                "housekeeping-behind",
                f"Housekeeping is {seconds / 3600:.1f} h behind: the oldest {words[what]} should have gone "
                f"{kept[what] / 86_400:g} days after the end of their message, and the table grows.",
                "One worker process cleans for a tenth of its time: keep one running. If it does not catch up, "
                "`app.operations.housekeeping(seconds=600)` cleans for longer.",
            )


def _news(desk: Desk) -> Iterator[Finding]:
    """Alerts that did not reach a sink."""
    for row in desk.ask(alerts.news(SHOWN)):
        if row["error"] is None:
            continue
        fate = "is sent again" if row["ended_at"] is None else "was given up"
        yield Finding(
            "warning",
            "alert-unsent",
            f"Alert {row['name']} of {row['at']:%Y-%m-%d %H:%M:%S} UTC {fate} after {row['tries']} tries: "
            f"{row['error']}",
            "Repair the sink; `holdfast alerts test MODULE:APP` tries it, `holdfast alerts list` shows who has it.",
        )
