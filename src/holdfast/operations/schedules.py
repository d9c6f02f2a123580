"""Schedules: what is next, what was left out and why, and the commands of an operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from ..errors import NotFound, Refused, UsageError
from ..model.ids import new_id
from ..model.schedule import Fired, Note, Stored
from ..rules import recurrence
from ..rules.patterns import Rule
from ..rules.timeline import Occurrence
from ..rules.wording import describe, upcoming
from ..schedules import setting, zones
from ..schedules.firing import labelled, messages, triggered
from ..schedules.setting import timeline_of
from ..store.plans import operator, queries, schedules
from ..store.plans.audit import Entry
from ..store.statement import Plan
from .desk import Desk, log, said
from .occurrences import check, fate, message_of
from .schedule_states import (
    WORDS,
    Backfilled,
    LeftOut,
    Next,
    ScheduleDossier,
    ScheduleState,
    left_out_sentence,
    next_of,
    reason,
    sentence,
    state_of,
)

LATE = timedelta(seconds=60)  # a tick is late after this time
LIVE = timedelta(seconds=60)  # a worker that was seen within this time is running
BATCH, BACKFILL_MAX = 500, 100_000
KINDS = ("every", "cron", "daily", "weekly", "monthly", "yearly")
BYTES = 8 * 1024 * 1024  # of bodies that are published at once
ALL = 100_000  # schedules in one command
STATED = {"paused": "paused", "failed": "failed", "due": "late", "orphaned": "code"}  # found through an index


def explained(
    rule: Rule | str, after: datetime | str, *, zone: str = "UTC", count: int = 5
) -> tuple[str, str, Sequence[Next]]:
    """What `Schedules.explain` answers, after a given moment. It needs no database."""
    after = zones.moment(after) if isinstance(after, str) else after
    if isinstance(rule, str):
        known = rule.split(" ", 1)[0] in KINDS
        if known and zone != "UTC":
            raise UsageError(f"{rule!r} is a whole rule, which has its own zone: leave out the zone {zone}.")
        rule = recurrence.parse(rule) if known else recurrence.cron(rule, zone=zone)
    return rule.text, describe(rule), next_of(upcoming(zones.timeline(rule), after, count), rule)


class Schedules:
    """Questions and commands about schedules."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    # -- questions

    def list(
        self, *, prefix: str = "", state: str | None = None, after: str = "", limit: int = 50
    ) -> Sequence[ScheduleState]:
        """Schedules by name, those of a prefix or in a state."""
        if state is not None and state not in WORDS:
            raise UsageError(f"There is no state {state!r} of schedules; there are: {', '.join(WORDS)}.")
        now = self._desk.ask(operator.moment())
        live = self._has_workers(now)
        found: list[ScheduleState] = []
        while len(found) < limit:
            rows = self._desk.ask(
                schedules.listed(
                    prefix=prefix, after=after, state=STATED.get(state or "", ""), late=now, limit=BATCH
                )
            )
            states = [state_of(row, now, live) for row in rows]
            found += [each for each in states if state is None or each.state == state]
            if len(rows) < BATCH:
                break
            after = rows[-1].name
        return found[:limit]

    def show(self, name: str, *, next: int = 5, notes: int = 20) -> ScheduleDossier:
        """One schedule, what comes next with notes on clock changes, and what was left out.

        A failed schedule has no next occurrences: its rule may be unreadable.
        """
        row = self._get(name)
        left_out = self._desk.ask(schedules.notes(name, notes))
        return ScheduleDossier(
            state_of(row, row.now, self._has_workers(row.now)),
            () if row.error is not None else tuple(self._coming(row, next)),
            tuple(LeftOut(n.at, n.first_key, n.last_key, n.count, reason(n.why)) for n in left_out),
        )

    def next(self, name: str, count: int = 5) -> Sequence[Next]:
        """The next occurrences of a schedule, with notes on clock changes."""
        return self._coming(self._get(name), count)

    def explain(
        self, rule: Rule | str, *, zone: str = "UTC", count: int = 5
    ) -> tuple[str, str, Sequence[Next]]:
        """A rule as it is stored, in English, and when it would occur next. `zone`: of a cron expression alone."""
        return explained(rule, self._desk.ask(operator.moment()), zone=zone, count=count)

    def moment(self, text: str) -> datetime:
        """The moment that a person means: `2026-03-28 12:00 Europe/Berlin`."""
        return zones.moment(text)

    def why(self, name: str, key: str | None = None) -> Sequence[str]:
        """Why a schedule does or does not fire; with a key: what became of that occurrence."""
        row = self._get(name)
        if key is not None:
            check(name, key)
        state = state_of(row, row.now, self._has_workers(row.now))
        sentences = [sentence(state, row.now)]
        for note in self._desk.ask(schedules.notes(name, 1000)):
            if key is None or note.first_key <= key <= note.last_key:
                sentences.append(left_out_sentence(note))
            if key is None and len(sentences) > 5:
                break
        if key is not None:
            found = message_of(self._desk, row, key)
            sentences += found or ([] if len(sentences) > 1 else [fate(row, key)])
        return sentences

    # -- commands

    def pause(self, name: str, *, why: str | None = None) -> None:
        """Fire nothing until it is resumed. What falls due meanwhile is left out, with a note."""
        text = said(why, self._desk.settings.error_chars)

        def plan() -> Plan[None]:
            yield from setting.found(name)
            if not (yield from schedules.pause(name, text)):
                raise Refused(f"Schedule {name!r} is paused already.")
            yield from self._desk.note(Entry("schedules.pause", None, name, why=text))

        self._desk.command(f"Schedule {name}", plan)
        log.info("schedule.paused", "paused schedule %(schedule)s", schedule=name)

    def resume(self, name: str, *, why: str | None = None) -> Sequence[LeftOut]:
        """Let it continue with the next occurrence; also one that had an error. Returns what was left out."""
        text = said(why, self._desk.settings.error_chars)

        def plan() -> Plan[tuple[Note, ...]]:
            left = yield from setting.resume(name)
            yield from self._desk.note(Entry("schedules.resume", None, name, why=text))
            return left

        left = self._desk.command(f"Schedule {name}", plan)
        log.info("schedule.resumed", "resumed schedule %(schedule)s", schedule=name)
        return [LeftOut(None, n.first_key, n.last_key, n.count, reason(n.why)) for n in left]

    def many(self, prefix: str, do: Callable[[str], object], *, state: str | None = None) -> Sequence[str]:
        """Do something to all schedules of a prefix; returns the names of those to which it was done."""
        if not prefix:
            raise UsageError("Give the prefix of the schedules that are meant.")
        done = []
        for each in self.list(prefix=prefix, state=state, limit=ALL):
            try:
                do(each.name)
                done.append(each.name)
            except (Refused, NotFound):
                continue
        return done

    def skip(self, name: str, *, why: str | None = None) -> str:
        """Leave the next occurrence out; returns its key."""
        text = said(why, self._desk.settings.error_chars)

        def plan() -> Plan[Note]:
            left = yield from setting.skip(name)
            entry = Entry("schedules.skip", None, name, why=text, after={"key": left.last_key})
            yield from self._desk.note(entry)
            return left

        left = self._desk.command(f"Schedule {name}", plan)
        log.info(
            "schedule.skipped", "skipped %(key)s of schedule %(schedule)s", key=left.last_key, schedule=name
        )
        return left.last_key

    def trigger(self, name: str, *, why: str | None = None) -> UUID:
        """Publish one more message now, with an id of its own; the rule continues as before."""
        text, id = said(why, self._desk.settings.error_chars), new_id()

        def plan() -> Plan[None]:
            row = yield from setting.found(name)
            yield from schedules.fire([triggered(row, timeline_of(row), id, self._desk.keys)])
            yield from self._desk.note(Entry("schedules.trigger", None, name, why=text, ids=[str(id)]))

        self._desk.command(f"Schedule {name}", plan)
        log.info("schedule.triggered", "triggered schedule %(schedule)s", schedule=name)
        return id

    def backfill(
        self, name: str, begin: datetime, end: datetime, *, rehearse: bool = False, why: str | None = None
    ) -> Backfilled:
        """Publish the past occurrences from one moment to another, with the ids that they have or would have had.

        A delivery is left out while a message with its id is pending or dead. One that has ended is published again:
        its receiver recognises it by its idempotency key. `rehearse`: only return what would be done.
        """
        row = self._get(name)
        found = self._range(row, begin, end)
        first, last = (found[0].key, found[-1].key) if found else (None, None)
        if rehearse:
            return Backfilled(name, len(found), first, last, 0, 0, is_rehearsal=True)
        text, in_use = said(why, self._desk.settings.error_chars), 0
        at_once = max(1, min(BATCH, BYTES // max(1, len(row.body))))
        for start in range(0, len(found), at_once):
            part = found[start : start + at_once]

            def plan(part: Sequence[Occurrence] = part, is_first: bool = start == 0) -> Plan[int]:
                now = yield from setting.found(name)
                timeline = timeline_of(now)
                fires: tuple[Fired, ...] = messages(
                    now, [labelled(timeline, each) for each in part], self._desk.keys
                )
                left, _ = yield from schedules.fire(fires)
                if is_first:
                    after = {"first": first, "last": last, "count": len(found)}
                    yield from self._desk.note(Entry("schedules.backfill", None, name, why=text, after=after))
                return len(left)

            in_use += self._desk.command(f"Schedule {name}", plan)
        log.info(
            "schedule.backfilled",
            "backfilled %(count)d occurrences of schedule %(schedule)s",
            count=len(found),
            schedule=name,
        )
        return Backfilled(name, len(found), first, last, len(found) - in_use, in_use, is_rehearsal=False)

    def drop(self, name: str, *, why: str | None = None) -> None:
        """End a schedule for good. Messages that it has published stay. If it is in code, the next start stores it."""
        text = said(why, self._desk.settings.error_chars)

        def plan() -> Plan[None]:
            row = yield from setting.found(name)
            yield from schedules.drop(name)
            before: dict[str, Any] = {
                "rule": row.rule,
                "last": row.last_key,
                "incarnation": str(row.incarnation),
            }
            yield from self._desk.note(Entry("schedules.drop", None, name, why=text), before, {})

        self._desk.command(f"Schedule {name}", plan)
        log.info("schedule.dropped", "dropped schedule %(schedule)s", schedule=name)

    # -- parts

    def _get(self, name: str) -> Stored:
        row = self._desk.ask(schedules.get(name))
        if row is None:
            raise NotFound(f"There is no schedule {name!r}: `holdfast schedules list` shows all.")
        return row

    def _has_workers(self, now: datetime) -> bool:
        return any(row["seen_at"] >= now - LIVE for row in self._desk.ask(queries.workers(100)))

    def _coming(self, row: Stored, count: int) -> Sequence[Next]:
        if not 1 <= count <= 1000:
            raise UsageError(f"{count} occurrences are refused: ask for 1 to 1000.")
        timeline = timeline_of(row)
        after = row.now
        pending = timeline.from_key(row.next_key) if row.next_key is not None else None
        if (
            pending is not None
            and row.paused_at is None
            and (row.last_key is None or pending.key > row.last_key)
        ):
            after = pending.at - timedelta(seconds=1)
        found = upcoming(timeline, after, count)
        return next_of(
            [each for each in found if row.last_key is None or each.occurrence.key > row.last_key],
            timeline.rule,
        )

    def _range(self, row: Stored, begin: datetime, end: datetime) -> Sequence[Occurrence]:
        for name, value in (("The beginning", begin), ("The end", end)):
            if value.tzinfo is None:
                raise UsageError(f"{name} of the range, {value}, has no time zone.")
        if begin > end:
            raise UsageError("The range ends before it begins: swap the two moments.")
        if end > row.now:
            raise UsageError("The range ends in the future: what is to come fires by itself.")
        timeline = timeline_of(row)
        if (count := timeline.count(begin - timedelta(seconds=1), end)) > BACKFILL_MAX:
            raise Refused(
                f"The range has {count:,} occurrences, and {BACKFILL_MAX:,} are allowed in one backfill: take a "
                "smaller one."
            )
        return timeline.occurrences(begin - timedelta(seconds=1), end, BACKFILL_MAX)
