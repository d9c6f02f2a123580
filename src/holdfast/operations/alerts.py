"""Alerts: what is measured, when an alert is raised, and how it is sent.

Any process may check: workers do in their housekeeping, and so does `holdfast alerts check` on any machine. One process
checks at a time, not more often than the setting says. A slow check is followed by a longer pause, so checks stay a
small part of the database's load. The decision and its news are stored in one transaction; the news is sent after that.

If no worker runs, no worker can notice it. To get that alert, run `holdfast alerts check` on another machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..alerting.sinks import LogSink, Sink
from ..model.alert import Alert, AlertOver, AlertRaised, Episode, Measure
from ..model.message import Reason
from ..rules import alert as rules
from ..rules.alert import RELEASE, length
from ..rules.describing import describe, storable
from ..rules.outage import lateness, more_than
from ..settings import Settings
from ..store.plans import alerts, breakers, outages
from ..store.plans.operator import moment
from ..telemetry.logs import Log
from .desk import Desk
from .from_rows import reason_of
from .streams import POISON_ATTEMPTS

log = Log("holdfast.alerts")

DAY, HOUR = 86_400.0, 3600.0
KEPT = (1 + RELEASE) / 2  # with a threshold of 1: keeps a raised alert raised, but does not raise one
LATE_WINDOW = 60.0  # seconds of history that are read
FEW = 5  # names in a text; the others are only counted
BREAKERS_MAX = 1000
TURN = "alerts"
SHARE = 50  # a check that took a second is followed by so many seconds of rest
TOLD_AT_ONCE = 100
TAKEN_SECONDS = 60.0  # for sending one piece of news: a sink takes ten seconds at most
ERROR_CHARS = 500


@dataclass(frozen=True, slots=True)
class News:
    """News of an alert. `sent_to`: the sinks that have received it; `ended_at`: when all had, or it was given up."""

    alert: Alert
    tries: int
    sent_to: tuple[str, ...]
    try_at: datetime
    ended_at: datetime | None
    error: str | None


class Alerts:
    """Measures, decides and sends. `sinks` are those of the application; the log always gets the news too."""

    def __init__(self, desk: Desk, sinks: Sequence[Sink] = ()) -> None:
        self._desk, self.sinks = desk, sinks

    # -- asking

    def raised(self) -> list[Episode]:
        """Episodes that are not over, the oldest first."""
        return self._desk.ask(alerts.episodes())

    def news(self, *, limit: int = 50) -> list[News]:
        """News that was sent or is still to be sent, the newest first."""
        rows = self._desk.ask(alerts.news(limit))
        return [
            News(_alert(row), row["tries"], tuple(row["told"]), row["try_at"], row["ended_at"], row["error"])
            for row in rows
        ]

    # -- deciding

    def look(self, *, now: bool = False) -> list[AlertRaised | AlertOver]:
        """Measure and decide, if a check is due; with `now` in any case. Returns the news to send."""
        desk, every = self._desk, self._desk.settings.alert_every
        mine = desk.command("The turn to look at alerts", alerts.take_turn, TURN, every)
        if not mine and not now:
            return []
        begun = desk.store.clock.monotonic()
        measured = self.measure()
        took = desk.store.clock.monotonic() - begun
        if took * SHARE > every:
            desk.command("The turn to look at alerts", alerts.put_off, TURN, took * SHARE)
        return self.decide(measured)

    def measure(self) -> dict[str, Sequence[Measure]]:
        """The current value of every measure. One that cannot be measured now is left out."""
        desk = self._desk
        at = desk.ask(moment())
        found: dict[str, Sequence[Measure]] = {}
        for name, measure in MEASURES.items():
            try:
                found[name] = measure(desk, at)
            except Exception as error:  # the others are measured, and this one the next time
                log.warning(
                    "alert.not_measured", "%(alert)s was not measured: %(error)s", alert=name, error=error
                )
        return found

    def decide(self, measured: Mapping[str, Sequence[Measure]]) -> list[AlertRaised | AlertOver]:
        """Begin and end episodes, and store the news, in one transaction."""
        desk, settings = self._desk, self._desk.settings
        limits = thresholds(settings)
        return desk.command(
            "Alerts",
            alerts.decide,
            lambda episodes, now: rules.judge(episodes, measured, limits, settings.alert_calm, now),
        )

    # -- sending

    def send(self) -> int:
        """Send the stored news, at least once to each sink. Returns how many need no more sending."""
        desk, ended = self._desk, 0
        for _ in range(TOLD_AT_ONCE):
            row = desk.command("News of alerts", alerts.take, TAKEN_SECONDS)
            if row is None:
                break
            ended += self._send(row)
        return ended

    def try_sinks(self) -> dict[str, str | None]:
        """Send a test alert to every sink, once; returns the outcome for each. Nothing is stored."""
        desk = self._desk
        now = desk.ask(moment())
        trial = Alert(0, 0, "trial", "", "raised", now, now, 0.0, 0.0, "A test: nothing is wrong.", {})
        answers: dict[str, str | None] = {}
        for sink in (LogSink(), *self.sinks):
            try:
                sink.send(trial)
                answers[sink.name] = None
            except Exception as error:  # the error is the result of the test
                answers[sink.name] = describe(error, ERROR_CHARS)
        return answers

    def _send(self, row: Mapping[str, Any]) -> bool:
        alert, sent_to, errors = _alert(row), list(row["told"]), []
        for sink in (LogSink(), *self.sinks):
            if sink.name in sent_to:
                continue
            try:
                sink.send(alert)
                sent_to.append(sink.name)
            except Exception as error:  # it is sent to this sink again later
                errors.append(f"{sink.name}: {describe(error, ERROR_CHARS)}")
        failed = storable("; ".join(errors), ERROR_CHARS) or None
        pause = None if failed is None else self._put_off(alert, failed, row["tries"])
        verb, tries = alerts.sent, row["tries"]
        self._desk.command("News of alerts", verb, alert.number, tries, sent_to, failed, pause)
        return pause is None

    def _put_off(self, alert: Alert, error: str, tries: int) -> float | None:
        desk, pause = self._desk, rules.pause(tries)
        now = desk.ask(moment())
        if (now - alert.at).total_seconds() > rules.GIVE_UP:
            log.error(
                "alert.unsent",
                "%(alert)s was not sent after %(tries)d tries and is given up: %(error)s",
                alert=alert.name,
                tries=tries,
                error=error,
            )
            return None
        log.warning(
            "alert.put_off",
            "%(alert)s is sent again in %(pause).0f s: %(error)s",
            alert=alert.name,
            pause=pause,
            error=error,
        )
        return pause


def _alert(row: Mapping[str, Any]) -> Alert:
    names = [
        "number",
        "episode",
        "name",
        "subject",
        "what",
        "at",
        "since",
        "value",
        "threshold",
        "text",
        "details",
    ]
    return Alert(**{name: row[name] for name in names})


# --- What is measured -------------------------------------------------------------------------------------------------


def thresholds(settings: Settings) -> dict[str, float]:
    """The value above which each alert is raised."""
    return {
        "dead_letters": settings.alert_dead,
        "deaths": 1,
        "late": more_than(settings.alert_late),
        "workers_silent": settings.alert_silent,
        "scheduler_silent": settings.alert_scheduler,
        "breaker_open": settings.alert_breaker,
        "stream_blocked": settings.alert_blocked,
        "backlog_age": settings.alert_backlog,
        "poison_candidates": settings.alert_poison,
    }


def dead_letters(desk: Desk, _: datetime) -> list[Measure]:
    """Deaths within a day, also of dead letters that were redriven or discarded since."""
    rows = desk.ask(alerts.dead(DAY))
    count = sum(row[2] for row in rows)
    queues: dict[str, int] = {}
    reasons: dict[str, int] = {}
    for queue, reason, many in rows:
        word = (reason_of(reason) or Reason.UNKNOWN).name.replace("_", " ").lower()
        queues[queue] = queues.get(queue, 0) + many
        reasons[word] = reasons.get(word, 0) + many
    most = max(queues, key=lambda each: queues[each], default="")
    text = f"{_many(count)} deaths within a day, {queues.get(most, 0)} of them in queue {most}."
    return [Measure("", count, text, {"count": count, "queues": queues, "reasons": reasons})]


def deaths(desk: Desk, _: datetime) -> list[Measure]:
    """By queue: deaths within the hour where the handler asks for an alert (`after_death="alert"`).

    Other applications may have other handlers. An alert of theirs is kept raised here, but never raised here.
    """
    found: dict[str, int] = {}
    for queue, _reason, many in desk.ask(alerts.dead(HOUR)):
        found[queue] = found.get(queue, 0) + many
    return [
        Measure(
            queue,
            count if queue in desk.handlers and desk.handlers[queue].policy.after_death.alert else KEPT,
            f"{_many(count)} messages of queue {queue} died within an hour.",
            {"queue": queue, "count": count},
        )
        for queue, count in found.items()
    ]


def late(desk: Desk, at: datetime) -> list[Measure]:
    """Messages that began late in the last minute, or have already waited longer than allowed."""
    seconds = desk.settings.late
    began, most = desk.ask(alerts.began_late(seconds, LATE_WINDOW))
    waiting = desk.ask(alerts.backlog(seconds))
    count = began + sum(row[4] for row in waiting)
    oldest = max([most, *((at - row[3]).total_seconds() for row in waiting if row[4])])
    text = f"{_many(count)} messages are late: the latest by {length(oldest)}."
    details = {
        "count": count,
        "began_late": began,
        "waiting": count - began,
        "oldest_seconds": oldest,
        "oldest_minutes": lateness(oldest)[0],
    }
    return [Measure("", count, text, details)]


def workers_silent(desk: Desk, at: datetime) -> list[Measure]:
    """How long no worker has been seen. If none is known, how long the oldest message waits."""
    seen = desk.ask(alerts.last_seen())
    if seen is not None:
        silent = (at - seen).total_seconds()
        text = f"No worker has been seen for {length(silent)}."
        return [Measure("", silent, text, {"last_seen": seen, "silent_seconds": silent})]
    waiting = desk.ask(alerts.backlog(desk.settings.late))
    if not waiting:
        return []
    silent = max((at - row[3]).total_seconds() for row in waiting)
    text = f"No worker is known, and a message waits for {length(silent)}."
    return [Measure("", silent, text, {"last_seen": None, "silent_seconds": silent})]


def scheduler_silent(desk: Desk, at: datetime) -> list[Measure]:
    """While something is due: how long ago a worker last looked for due work. Every worker does so all the time.

    Unlike `workers_silent` it also counts when the rows of the workers are gone, because they were stopped.
    """
    last, oldest = desk.ask(outages.silence())
    if last is None or oldest is None:
        return []
    silent = max(0.0, (at - last).total_seconds())
    text = f"The scheduler appears to be down: nobody has looked for what is due for {length(silent)}."
    details = {"last_run": last, "minutes_since": silent / 60, "silent_seconds": silent, "oldest_due": oldest}
    return [Measure("", silent, text, details)]


def breaker_open(desk: Desk, _: datetime) -> list[Measure]:
    """1 for each breaker that is not closed, however long it has been open: each failed trial opens it again."""
    found = []
    for row, _now in desk.ask(breakers.known(BREAKERS_MAX)):
        if row.state == "closed":
            continue
        because = f": {row.why}" if row.why else ""
        by = " by an operator" if row.forced else ""
        text = f"Breaker {row.name} is {row.state.replace('_', ' ')}{by}{because}."
        details = {
            "breaker": row.name,
            "state": row.state,
            "forced": row.forced,
            "why": row.why,
            "until": row.until,
        }
        found.append(Measure(row.name, 1, text, details))
    return found


def stream_blocked(desk: Desk, at: datetime) -> list[Measure]:
    """By queue: how long its longest blocked stream has been blocked, by its head or by a halt."""
    seconds = desk.settings.alert_blocked * RELEASE
    if seconds == float("inf"):
        return []
    queues: dict[str, list[Mapping[str, Any]]] = {}
    for row in desk.ask(alerts.blocked(seconds, FEW)):
        queues.setdefault(row["queue"], []).append(row)
    found = []
    for queue, rows in queues.items():
        first, count = rows[0], rows[0]["count"]
        age = (at - first["since"]).total_seconds()
        by = first["halted_by"] or first["head_id"]
        others = f" ({count} streams of the queue are)" if count > 1 else ""
        text = f"Stream {first['stream']} of queue {queue} is blocked for {length(age)} by {by}{others}."
        streams = [{name: row[name] for name in ("stream", "since", "open")} for row in rows]
        found.append(Measure(queue, age, text, {"queue": queue, "count": count, "streams": streams}))
    return found


def backlog_age(desk: Desk, at: datetime) -> list[Measure]:
    """By queue: how long the oldest message waits that is claimable and not leased."""
    found = []
    for queue, paused, id, since, _ in desk.ask(alerts.backlog(desk.settings.late)):
        age = (at - since).total_seconds()
        text = f"The oldest message of queue {queue}{', which is paused,' if paused else ''} waits for {length(age)}."
        found.append(
            Measure(queue, age, text, {"queue": queue, "id": str(id), "since": since, "paused": paused})
        )
    return found


def poison_candidates(desk: Desk, _: datetime) -> list[Measure]:
    """Pending messages that have failed ten times or more."""
    rows = desk.ask(alerts.poison(POISON_ATTEMPTS, FEW))
    if not rows:
        return []
    count, first = rows[0]["count"], rows[0]
    text = (
        f"{count} messages have failed {POISON_ATTEMPTS} times or more and may be poison: "
        f"{first['id']} in queue {first['queue']} has had {first['attempts']} attempts."
    )
    listed = [
        {"id": str(r["id"]), "queue": r["queue"], "type": r["type"], "attempts": r["attempts"]} for r in rows
    ]
    return [Measure("", count, text, {"count": count, "messages": listed})]


def _many(count: int) -> str:
    return f"More than {alerts.COUNT_MAX - 1}" if count >= alerts.COUNT_MAX else str(count)


MEASURES: Mapping[str, Callable[[Desk, datetime], list[Measure]]] = {
    each.__name__: each
    for each in (
        dead_letters,
        deaths,
        late,
        workers_silent,
        scheduler_silent,
        breaker_open,
        stream_blocked,
        backlog_age,
        poison_candidates,
    )
}
