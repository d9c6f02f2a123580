"""Messages: find, show, retry, park, cancel them, or make them dead letters; those that ended, late or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from ..bodies.drafts import when_due
from ..errors import HoldfastError, NotFound, UsageError
from ..model.message import Reason
from ..rules.aftermath import FACTS, HOOK_QUEUE, hook_message
from ..rules.fingerprint import fingerprint
from ..store.plans import engine, moving, operator, queries
from ..store.plans.audit import Entry
from ..store.statement import Plan
from . import from_rows
from .desk import Desk, Tally, as_id, log, needed, said, spoken
from .late import StuckMessage, ended, stuck
from .naming import named
from .results import Changed, Delivery, Dossier, EndedMessage, Filter, Many

BATCH = 500
MANY_MAX = 1_000_000  # messages in one command


class Messages:
    """Questions and commands about pending messages."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def find(self, filter: Filter | None = None, *, newest: bool = True, limit: int = 50) -> list[Delivery]:
        """Pending deliveries that match, the newest or the oldest first."""
        wanted = _checked(filter or Filter())
        if wanted.id is not None:
            return [each for each in self._of(wanted.id) if _matches(each, wanted)][:limit]
        return self._found(wanted, None, "newest" if newest else "oldest", limit)

    def ended(
        self,
        filter: Filter | None = None,
        *,
        late: float | None = None,
        since: datetime | None = None,
        newest: bool = True,
        limit: int = 100,
    ) -> list[EndedMessage]:
        """Messages that have ended, as long as the history is kept, those that ended last first.

        `late`: only those that began more than so many seconds after they were due, the latest first.
        `since`: only those that ended after it. By a subject in the filter they are found quickly.
        """
        wanted = _checked(filter or Filter())
        return ended(self._desk, wanted, late=late, since=since, newest=newest, limit=limit)

    def stuck(
        self, *, older: float = 3600.0, queue: str | None = None, limit: int = 50
    ) -> list[StuckMessage]:
        """Pending messages that were due more than so many seconds ago and are not in hand, the oldest first."""
        return stuck(self._desk, older=older, queue=queue, limit=limit)

    def _of(self, id: UUID) -> list[Delivery]:
        pending, _, _ = self._desk.ask(queries.show(id))
        return [from_rows.delivery(row) for row in pending]

    def _found(self, wanted: Filter, states: list[str] | None, order: str, limit: int) -> list[Delivery]:
        if wanted.state is not None:
            states = [wanted.state]
        rows = self._desk.ask(
            queries.find(
                queue=wanted.queue,
                type=wanted.type,
                stream=wanted.stream,
                subject=wanted.subject,
                reason=wanted.reason,
                states=states,
                order=order,
                limit=limit,
            )
        )
        return [from_rows.delivery(row) for row in rows]

    def named(self, text: str) -> UUID:
        """The message that a person means: by its whole id, its last eight characters, or its beginning.

        Raises UsageError with the candidates if there are several.
        """
        return named(self._desk, text)

    def show(self, id: UUID | str) -> Dossier:
        """Everything that is known about a message, in all its queues, pending, dead and ended."""
        dossier = self.find_out(as_id(id))
        if not (dossier.pending or dossier.dead or dossier.ended):
            raise NotFound(f"There is no message {id}: `holdfast messages list` shows what is pending.")
        return dossier

    def find_out(self, id: UUID) -> Dossier:
        """The same; empty if nothing is known."""
        pending, dead, ended = self._desk.ask(queries.show(id))
        return Dossier(
            id,
            tuple((from_rows.delivery(row), from_rows.content(row)) for row in pending),
            tuple((from_rows.letter(row), from_rows.content(row)) for row in dead),
            tuple(from_rows.ended(row, id) for row in ended),
        )

    def retry(
        self,
        id: UUID | str,
        *,
        queue: str | None = None,
        number: int | None = None,
        reset: bool = False,
        why: str | None = None,
    ) -> list[Changed]:
        """Make it claimable now, as soon as it is its turn; also unparks. `reset` sets all counters but the epoch to 0.

        Here and below: `number` says which message is meant, if several have the id.
        """
        return self._retry(as_id(id), queue, reset, number=number, why=why)

    def _retry(self, id: UUID, queue: str | None, reset: bool, **note: Any) -> list[Changed]:
        what = "reset and claimable now" if reset else "claimable now"
        return self._desk.each(
            id,
            queue,
            partial(operator.retry, reset=reset),
            lambda _: what,
            action="messages.reset" if reset else "messages.retry",
            **note,
        )

    def retry_many(
        self,
        filter: Filter,
        *,
        reset: bool = False,
        why: str | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Many:
        """Make what matches claimable now: what waits for a retry or is parked. Name any other state in the filter."""
        desk, filter = self._desk, _checked(filter)
        desk.command("Leases", engine.recover)
        states = None if filter.state or filter.id else ["retrying", "parked"]
        found = (
            self.find(filter, limit=MANY_MAX)
            if filter.id
            else self._found(filter, states, "oldest", MANY_MAX)
        )
        action = "messages.reset" if reset else "messages.retry"
        text = said(why, desk.settings.error_chars)
        tally = Tally(desk, Entry(action, filter.queue, filter=spoken(filter), why=text))
        changed, refused = 0, []
        for start in range(0, len(found), BATCH):
            batch = found[start : start + BATCH]
            done = self._retry_heads({each.seq: str(each.id) for each in batch}, reset, tally)
            for each in batch:
                if each.seq in done:
                    continue
                try:
                    self._retry(each.id, each.queue, reset, number=each.seq, tally=tally)
                except HoldfastError as error:
                    refused.append(Changed(each.id, each.queue, str(error)))
            changed = start + len(batch) - len(refused)
            if progress is not None:
                progress(changed)
        log.info(
            "messages.retried",
            "retried %(count)d messages, refused %(refused)d",
            count=changed,
            refused=len(refused),
        )
        return Many(changed, tuple(refused))

    def _retry_heads(self, found: Mapping[int, str], reset: bool, tally: Tally) -> set[int]:
        return tally.command(
            "Messages",
            lambda done: (len(done), [found[seq] for seq in sorted(done)]),
            operator.retry_heads,
            list(found),
            reset,
        )

    def park(
        self, id: UUID | str, *, queue: str | None = None, number: int | None = None, why: str | None = None
    ) -> list[Changed]:
        """Keep it in its place and do not hand it out, until `retry`. In a stream it blocks what is behind it."""
        return self._desk.each(
            as_id(id),
            queue,
            operator.park,
            lambda _: "parked",
            action="messages.park",
            why=why,
            number=number,
        )

    def move(
        self,
        id: UUID | str,
        at: datetime | None = None,
        *,
        delay: float | None = None,
        why: str | None = None,
    ) -> datetime:
        """Give a scheduled message another time: a moment, or seconds from now. Refused when it has fallen due."""
        desk, known = self._desk, as_id(id)
        due, seconds = when_due(at, delay)
        if due is None and seconds is None:
            raise UsageError("Say when: a moment, or a delay.")
        text = said(why, desk.settings.error_chars)

        def plan() -> Plan[datetime]:
            moved = yield from moving.move(known, due, seconds)
            after = {"due_at": moved.isoformat()}
            yield from desk.note(Entry("messages.move", None, str(known), why=text, after=after))
            return moved

        moved = desk.command(f"Message {known}", plan)
        log.info(
            "message.moved", "message %(message_id)s is due at %(due_at)s", message_id=known, due_at=moved
        )
        return moved

    def cancel(
        self, id: UUID | str, *, queue: str | None = None, number: int | None = None, why: str | None = None
    ) -> list[Changed]:
        """End it without handling it. A worker that holds it is asked to cancel; the first settlement wins."""
        return self._desk.each(
            as_id(id),
            queue,
            operator.cancel,
            lambda ended: "cancelled" if ended else "worker asked to cancel",
            action="messages.cancel",
            why=why,
            number=number,
        )

    def poison(
        self, id: UUID | str, why: str, *, queue: str | None = None, number: int | None = None
    ) -> list[Changed]:
        """Make it a dead letter by hand, with reason 7; its stream continues. No recovery policy redrives it."""
        text = needed(why, self._desk.settings.error_chars)
        return self._desk.each(
            as_id(id),
            queue,
            partial(_bury, why=text),
            lambda _: "dead letter",
            action="messages.poison",
            why=text,
            number=number,
        )


def _bury(seq: int, why: str) -> Plan[None]:
    """Make a message a dead letter by hand. The application's hook is called, if there is one."""
    name = fingerprint(why, Reason.POISON_MESSAGE)
    held = yield from operator.poison(seq, why, name)
    if HOOK_QUEUE in (yield from queries.queue_names()):
        _, dead, _ = yield from queries.show(held.id)
        row = max(
            (each for each in dead if each["queue"] == held.queue),
            key=lambda each: (each["seq"] == seq, each["died_at"]),
        )
        facts = {**{field: row[field] for field in FACTS}, "id": str(held.id), "error": why}
        facts |= {field: row[field].isoformat() for field in ("created_at", "died_at")}
        yield from engine.append([hook_message(held.id, f"{row['queue']}/{seq}/{facts['died_at']}", facts)])


def _checked(filter: Filter) -> Filter:
    names = ("died_of", "fingerprint", "died_before", "died_after", "text", "redriven", "held", "ids")
    for name in names:
        if getattr(filter, name) is not None:
            raise UsageError(f"Only dead letters can be found by {name}.")
    return filter


def _subject(wanted: Filter, subject: str | None) -> str | None:
    """The subject that is asked for, or the message's own if it begins as asked."""
    asked = wanted.subject
    if asked is not None and asked.endswith("*") and (subject or "").startswith(asked[:-1]):
        return subject
    return asked


def _matches(each: Delivery, wanted: Filter) -> bool:
    pairs = (
        (wanted.queue, each.queue),
        (wanted.type, each.type),
        (wanted.stream, each.stream),
        (_subject(wanted, each.subject), each.subject),
        (wanted.state, each.state),
        (wanted.reason, each.reason),
    )
    return all(want is None or want == have for want, have in pairs)
