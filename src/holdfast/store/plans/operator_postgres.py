"""The parts of an operator's commands that only PostgreSQL needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import installed
from ..installed import Installed
from ..migrate import release
from ..statement import Plan, Query, statements
from .rows import Back, Pruned

PAGE_LINES = 16  # a page of history holds some sixty lines; a batch may have a few times as many as others
SERVER = ("version", "fsync", "synchronous_commit", "full_page_writes", "autovacuum")

sql = statements("operator")
VERSION = Query(("migrate/op_version",))


class PostgresOperator:
    """The verbs on PostgreSQL. Each is a plan."""

    def __init__(self, schema: str, errors_kept: int) -> None:
        self.schema, self.errors_kept = schema, errors_kept

    def advance(self, streams: Sequence[tuple[str, str, int]]) -> Plan[None]:
        queues, names, removed = (list(each) for each in zip(*streams, strict=True))
        yield sql("op_advance", queue=queues, stream=names, removed=removed, start=[0] * len(names))

    def place(self) -> Plan[None]:
        yield sql("op_place")

    def bury(self, seq: int, errors: Any, why: str, fingerprint: str | None) -> Plan[None]:
        yield sql("op_bury", seq=seq, why=why, fingerprint=fingerprint, keep=self.errors_kept)

    def bury_taken(self, seqs: Sequence[int], target: str) -> Plan[None]:
        yield sql("op_queue_taken", seqs=list(seqs), target=target, keep=self.errors_kept)

    def bring_back(self, back: Sequence[Back], delays: Mapping[tuple[Any, str, int], float]) -> Plan[None]:
        yield sql(
            "op_redrive",
            ids=[str(each.id) for each in back],
            queues=[each.queue for each in back],
            numbers=[each.number for each in back],
            positions=[each.place or 0 for each in back],
            heads=[each.head for each in back],
            delays=[delays.get(each.key, 0.0) for each in back],
        )

    def prune_history(self, before: Any, limit: int, mark: int | None) -> Plan[Pruned]:
        """Find the first old row by the index, then go from page to page as long as there are more."""
        yield sql("op_by_index")
        page = mark
        if page is None:
            found = yield sql("op_prune_history_from", before=before)
            if not found:
                return Pruned(0, more=False)
            page = int(found[0][0])
        pages = max(1, limit // PAGE_LINES)
        gone = yield sql("op_prune_history", page=page, pages=pages, before=before)
        return Pruned(len(gone), more=True, mark=page + pages if gone else None)

    def installed(self) -> Plan[tuple[Installed, Installed]]:
        return installed.read((yield VERSION), self.schema), release()

    def server(self) -> Plan[dict[str, Any]]:
        (row,) = yield sql("op_server")
        return dict(zip(SERVER, row, strict=True))
