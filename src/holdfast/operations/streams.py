"""Streams: what blocks them, and the commands of an operator."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from ..errors import NotFound, Refused
from ..model import names
from ..model.work import INSTANCE
from ..store.plans import audit, counting, operator, queries
from ..store.plans.audit import Entry
from ..store.statement import Plan
from . import from_rows, results
from .desk import Desk, as_id, log, needed, said
from .results import OPERATOR, Changed, Delivery
from .states import Blocking, StreamOrder, StreamState

POISON_ATTEMPTS = 10


class Streams:
    """Questions and commands about streams and their order."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def list(
        self, *, queue: str | None = None, stream: str | None = None, blocked: bool = False, limit: int = 50
    ) -> Sequence[StreamState]:
        """Streams with something in their order, or halted; those with most behind the head first."""
        rows = self._desk.ask(queries.streams(queue=queue, stream=stream, blocked=blocked, limit=limit))
        return [from_rows.stream_state(row) for row in rows]

    def blocked(self, *, queue: str | None = None, limit: int = 50) -> Sequence[StreamState]:
        """Streams that are halted, or whose head cannot be claimed now."""
        if queue is not None:
            return self.list(queue=queue, blocked=True, limit=limit)
        return [from_rows.stream_state(row) for row in self._desk.ask(counting.blocked(limit))]

    def show(self, queue: str, stream: str, *, limit: int = 200) -> StreamOrder:
        """A stream in its order; what is out of the order comes last."""
        states = self.list(queue=queue, stream=stream, limit=1)
        rows = self._messages(queue, stream, True, limit)
        if len(rows) < limit:
            rows = [*rows, *self._messages(queue, stream, False, limit - len(rows))]
        if not states and not rows:
            raise NotFound(f"There is no stream {stream} with pending messages in queue {queue}.")
        return StreamOrder(states[0] if states else None, tuple(rows))

    def _messages(self, queue: str, stream: str, ordered: bool, limit: int) -> Sequence[Delivery]:
        rows = self._desk.ask(
            queries.find(
                queue=queue,
                stream=stream,
                ordered=ordered,
                order="position" if ordered else "oldest",
                limit=limit,
            )
        )
        return [from_rows.delivery(row) for row in rows]

    def blocking_message(self, queue: str, stream: str, *, attempts: int = POISON_ATTEMPTS) -> Blocking:
        """The first message of a stream, and whether it failed so often that it may be poison."""
        order = self.show(queue, stream, limit=1)
        if order.state is None:
            raise NotFound(f"Nothing is in the order of stream {stream} of queue {queue}: nothing blocks it.")
        letter, delivery = self._halter(order.state), self._first(order)
        first = letter if letter is not None else delivery
        tried = first.attempts if first is not None else 0
        return Blocking(order.state, None if letter is not None else delivery, letter, tried >= attempts)

    def _first(self, order: StreamOrder) -> Delivery | None:
        return next((each for each in order.messages if each.position is not None), None)

    def _halter(self, state: StreamState) -> results.Letter | None:
        if state.halted_by is None or state.halted_by.startswith((OPERATOR, INSTANCE)):
            return None
        id = as_id(state.halted_by)
        _, dead, _ = self._desk.ask(queries.show(id))
        found = [from_rows.letter(row) for row in dead if row["queue"] == state.queue]
        # Several letters may have this id: the one that halts the stream counts.
        return max(found, key=lambda each: each.halts, default=None)

    def set_aside(self, queue: str, stream: str, *, why: str | None = None) -> Changed:
        """Take the head out of the order; the messages behind it continue in order."""
        text = said(why, self._desk.settings.error_chars)
        id = self._desk.command(f"Stream {stream}", self._set_aside, queue, stream, text)
        log.info(
            "stream.set_aside",
            "set message %(message_id)s of stream %(stream)s in queue %(queue)s aside",
            message_id=id,
            stream=stream,
            queue=queue,
        )
        return Changed(id, queue, "set aside")

    def _set_aside(self, queue: str, stream: str, why: str | None) -> Plan[UUID]:
        before = yield from audit.stream_facts(queue, stream)
        id = yield from operator.set_aside(queue, stream)
        after = yield from audit.stream_facts(queue, stream)
        entry = Entry("streams.set_aside", queue, stream, why=why, ids=[str(id)])
        yield from self._desk.note(entry, before, after)
        return id

    def release(
        self, id: UUID | str, *, queue: str | None = None, why: str | None = None
    ) -> Sequence[Changed]:
        """Take one waiting message out of the order, so it is claimable; the others stay blocked."""
        return self._desk.each(
            as_id(id), queue, operator.release, lambda _: "released", action="streams.release", why=why
        )

    def halt(self, queue: str, stream: str, why: str) -> None:
        """Hand out nothing of a stream until it is resumed; new messages wait."""
        text = needed(why, self._desk.settings.error_chars)
        self._desk.command(f"Stream {stream}", self._halt, queue, stream, text)
        log.info(
            "stream.halted",
            "halted stream %(stream)s of queue %(queue)s: %(why)s",
            stream=stream,
            queue=queue,
            why=why,
        )

    def _halt(self, queue: str, stream: str, why: str) -> Plan[None]:
        before = yield from audit.stream_facts(queue, stream)
        yield from operator.halt(queue, stream, OPERATOR + why)
        after = yield from audit.stream_facts(queue, stream)
        yield from self._desk.note(Entry("streams.halt", queue, stream, why=why), before, after)

    def resume(self, queue: str, stream: str, *, why: str | None = None) -> bool:
        """Let a halted stream continue with the first message of its order. False: it was not halted."""
        text = said(why, self._desk.settings.error_chars)
        lifted = self._desk.command(f"Stream {stream}", self._resume, queue, stream, text)
        if lifted:
            log.info(
                "stream.resumed",
                "resumed stream %(stream)s of queue %(queue)s",
                stream=stream,
                queue=queue,
            )
        return lifted

    def _resume(self, queue: str, stream: str, why: str | None) -> Plan[bool]:
        if names.is_versioned(queue):
            raise Refused(
                f"Stream {stream} of queue {queue} is an instance of an orchestration. It was not resumed: "
                f"`holdfast orchestrations resume {stream}` lets it continue; if it became a dead letter, "
                "`holdfast dead redrive` does."
            )
        before = yield from audit.stream_facts(queue, stream)
        lifted = yield from operator.resume(queue, stream)
        if lifted:
            after = yield from audit.stream_facts(queue, stream)
            yield from self._desk.note(Entry("streams.resume", queue, stream, why=why), before, after)
        return lifted
