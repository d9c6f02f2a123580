"""The parts of an operator's commands that only SQLite needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...clock import from_micros
from ..installed import Installed
from ..migrate import latest
from ..statement import Plan, Query, Statement, statements
from ..values import decoded_errors, encode
from .rows import Back, Pruned

if TYPE_CHECKING:
    from .engine_sqlite import SqliteEngine

sql = statements("operator")
VERSION = Query(("migrate/op_version",))


class SqliteOperator:
    """The verbs on SQLite. Each is a plan, and `now` is the time of the run, in microseconds."""

    def __init__(self, engine: SqliteEngine, errors_kept: int) -> None:
        self.engine, self.errors_kept = engine, errors_kept

    def advance(self, streams: Sequence[tuple[str, str, int]], now: int) -> Plan[None]:
        yield from self.engine.promote([(*each, 0, None) for each in streams])

    def place(self, now: int) -> Plan[None]:
        yield from self.engine.place()

    def bury(self, seq: int, errors: Any, why: str, fingerprint: str | None, now: int) -> Plan[None]:
        known = [*decoded_errors(errors), {"at": from_micros(now).isoformat(), "reason": 7, "text": why}]
        yield sql("op_bury", seq=seq, errors=encode(known[-self.errors_kept :]), fingerprint=fingerprint)

    def bury_taken(self, seqs: Sequence[int], target: str, now: int) -> Plan[None]:
        yield sql("op_queue_taken", seqs=list(seqs), target=target, at=from_micros(now).isoformat())

    def bring_back(
        self, back: Sequence[Back], delays: Mapping[tuple[Any, str, int], float], now: int
    ) -> Plan[None]:
        for each in back:
            last = each.place == -1
            ((seq,),) = yield sql(
                "op_redrive",
                id=each.id,
                queue=each.queue,
                number=each.number,
                position=None if last else each.place,
                head=each.head and not last,
                delay=round(delays.get(each.key, 0.0) * 1_000_000),
            )
            if last:
                yield sql("op_redrive_place", seq=seq, head=each.head)

    def prune_history(self, before: Any, limit: int, mark: Any, now: int) -> Plan[Pruned]:
        gone = yield sql("op_prune_history", before=before, limit=limit)
        return Pruned(len(gone), len(gone) >= limit)

    def installed(self, now: int) -> Plan[tuple[Installed, Installed]]:
        ((reached,),) = yield VERSION
        return Installed(reached, ""), Installed(latest("sqlite"), "")

    def server(self, now: int) -> Plan[dict[str, Any]]:
        ((version,),) = yield sql("op_server")
        ((journal,),) = yield Statement("pragma journal_mode")
        ((synchronous,),) = yield Statement("pragma synchronous")
        options = [option for (option,) in (yield Statement("pragma compile_options"))]
        return {
            "version": version,
            "journal_mode": journal,
            "synchronous": synchronous,
            "options": options,
        }
