"""Moves schedules on and stores the messages of their occurrences, as far as the two databases differ."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ...clock import micros
from ...model.schedule import Fired, Step
from ..statement import Plan, statements
from ..values import encode
from .scheduled_sqlite import place_in_time

sql = statements("schedules")

Left = list[tuple[str, str]]  # messages that could not be stored: the id, and the queue in which it is in use
UNROUTED = (None,)


class SqliteSchedules:
    """On SQLite."""

    def wake(self, now: int) -> Plan[None]:
        """Workers see every commit."""
        yield from ()

    def move(self, steps: Sequence[Step], now: int) -> Plan[set[str]]:
        """Move schedules on, if they are unchanged since they were read; returns which."""
        at = _Micros()
        rows = []
        for step in steps:
            last = step.fires[-1] if step.fires else None
            rows.append(
                (
                    step.name,
                    step.version,
                    step.next_key,
                    at[step.next_at],
                    step.last_key,
                    at[last.due] if last else None,
                    last.id if last else None,
                    len(step.fires),
                    sum([note.count for note in step.notes]) if step.notes else 0,
                    step.zones,
                    step.error,
                )
            )
        return {name for (name,) in (yield sql("schedule_moved", rows=encode(rows)))}

    def fire(self, fires: Sequence[Fired], now: int) -> Plan[tuple[Left, tuple[str, ...]]]:
        places = yield from self._places(fires)
        left: Left = []
        if (yield sql("fire_known", ids=[each.id for each in fires])):
            pairs = encode([(each.id, queue) for each, queue in places])
            taken = {place for (place,) in (yield sql("fire_taken", places=pairs))}
            left = [(each.id, queue or "") for n, (each, queue) in enumerate(places) if n in taken]
            places = [place for n, place in enumerate(places) if n not in taken]
        at = _Micros()
        yield sql(
            "fire",
            messages=encode(
                [
                    (e.id, e.type, e.body, e.stream, e.subject, e.headers, at[e.due], queue)
                    for e, queue in places
                ]
            ),
        )
        if any(each.stream is not None for each in fires):
            yield from place_in_time()
        return left, tuple(sorted({queue for _, queue in places if queue is not None}))

    def _places(self, fires: Sequence[Fired]) -> Plan[list[tuple[Fired, str | None]]]:
        """Each message with each queue that it goes to. Routes are looked up once for each type."""
        routes: dict[str, list[str]] = {}
        if types := {each.type for each in fires if each.queue is None}:
            for type, queue in (yield sql("fire_routes", types=sorted(types))):
                routes.setdefault(type, []).append(queue)
        places: list[tuple[Fired, str | None]] = []
        for each in fires:
            if each.queue is not None:
                places.append((each, each.queue))
            else:
                places += [(each, queue) for queue in routes.get(each.type, UNROUTED)]
        return places


class _Micros(dict[datetime | None, int | None]):
    """Instants as SQLite has them. Those of one tick are mostly the same few."""

    def __missing__(self, instant: datetime | None) -> int | None:
        found = self[instant] = None if instant is None else micros(instant)
        return found


class PostgresSchedules:
    """On PostgreSQL."""

    def wake(self) -> Plan[None]:
        yield sql("wake_tick")

    def move(self, steps: Sequence[Step]) -> Plan[set[str]]:
        """Move schedules on, if they are unchanged since they were read; returns which."""
        rows = []
        for step in steps:
            last = step.fires[-1] if step.fires else None
            rows.append(
                {
                    "name": step.name,
                    "version": step.version,
                    "next_key": step.next_key,
                    "next_at": step.next_at,
                    "last_key": step.last_key,
                    "last_at": last.due if last else None,
                    "last_id": last.id if last else None,
                    "fired": len(step.fires),
                    "left_out": sum(note.count for note in step.notes),
                    "zones": step.zones,
                    "error": step.error,
                }
            )
        return {name for (name,) in (yield sql("schedule_moved").with_documents(rows=rows))}

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
        left = [(str(id), queue) for id, queue in rows if id is not None]
        return left, tuple(sorted(queue for id, queue in rows if id is None))
