"""Stores the messages of occurrences, with their own times: what the two databases do each in its own way."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from ...clock import micros
from ...model.schedule import Fired
from ..statement import Plan, statements
from ..values import as_id, encode
from .scheduled_sqlite import place_in_time

sql = statements("schedules")

Left = list[tuple[UUID, str]]  # what could not be stored: its id, and the queue in which the id is in use


class SqliteSchedules:
    """On SQLite."""

    def wake(self, now: int) -> Plan[None]:
        """Workers see every commit."""
        yield from ()

    def fire(self, fires: Sequence[Fired], now: int) -> Plan[tuple[Left, tuple[str, ...]]]:
        rows = [
            {
                "id": str(each.id),
                "type": each.type,
                "body": each.body,
                "stream": each.stream,
                "subject": each.subject,
                "headers": each.headers,
                "due": micros(each.due),
                "queue": each.queue,
            }
            for each in fires
        ]
        text = encode(rows)
        taken = [(id, queue) for id, queue in (yield sql("fire_taken", messages=text))]
        stored = yield sql("fire", messages=text, taken=encode(taken))
        if any(each.stream is not None for each in fires):
            yield from place_in_time()
        queues = {queue for (queue,) in stored if queue is not None}
        return [(as_id(id), queue) for id, queue in taken], tuple(sorted(queues))


class PostgresSchedules:
    """On PostgreSQL."""

    def wake(self) -> Plan[None]:
        yield sql("wake_tick")

    def fire(self, fires: Sequence[Fired]) -> Plan[tuple[Left, tuple[str, ...]]]:
        rows = yield sql(
            "fire",
            id=[each.id for each in fires],
            type=[each.type for each in fires],
            body=[each.body for each in fires],
            stream=[each.stream for each in fires],
            subject=[each.subject for each in fires],
            headers=[each.headers for each in fires],
            due=[each.due for each in fires],
            queue=[each.queue for each in fires],
        )
        left = [(as_id(id), queue) for id, queue in rows if id is not None]
        return left, tuple(sorted(queue for id, queue in rows if id is None))
