"""`holdfast worker --until-idle`: works until nothing is due, and answers with the summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import show
from .outages import EXTRA, rows_of

if TYPE_CHECKING:
    from ..app import Holdfast


def drain(app: Holdfast, queues: Sequence[str] | None, json: bool) -> None:
    """Work, then show what was done."""
    from ..processes.draining import run_until_idle

    done = run_until_idle(app, queues=queues)
    app.close()
    drained, outage = done.drain, done.outage
    if json:
        known = None if outage is None else show.fields(outage, *EXTRA)
        counts = {
            "processed": drained.processed,
            "failed": drained.failed,
            "duration_ms": drained.duration_ms,
        }
        show.document({**counts, "per_second": drained.per_second, "left": done.left, "outage": known})
        return
    show.sentence(
        f"{show.counted(drained.processed, 'message')} handled, {drained.failed} failed, in {drained.duration_ms} ms: "
        f"{drained.per_second:.2f} a second."
    )
    for queue, count in done.left.items():
        show.sentence(
            f"Due and not handled in queue {queue}: {count}. It is paused, or another application's, or something "
            "else came in; `holdfast status` shows which."
        )
    if not done.left:
        show.plain("Nothing is due.")
    if outage is not None:
        show.plain("")
        show.pairs(rows_of(outage))
