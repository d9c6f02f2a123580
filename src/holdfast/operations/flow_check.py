"""`holdfast orchestrations check`: could the code here continue the instances of a database? It changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..errors import BodySealed
from ..orchestrations.checking import replayed
from ..orchestrations.declared import Program
from ..orchestrations.journal import JournalUnreadable
from ..orchestrations.outcome import Overrun
from ..orchestrations.replay import CodeChanged
from ..orchestrations.turns import Turns
from ..store.plans import instance_queries
from ..store.plans.instance_queries import OpenInstance
from .desk import Desk
from .instance_states import FlowCheck, Unfit
from .instances import journal_rows

BATCH = 200


def check(desk: Desk, name: str | None, progress: Callable[[int], None] | None = None) -> FlowCheck:
    """Replay every instance that has not ended, of one orchestration or of all."""
    programs = {each.queue: each.program for each in desk.handlers if isinstance(each, Turns)}
    unfit: list[Unfit] = []
    missing: dict[str, int] = {}
    checked = fit = sealed = 0
    for place in _places(desk):
        if name is not None and place.queue.rpartition("@")[0] != name:
            continue
        checked += 1
        if progress is not None:
            progress(checked)
        program = programs.get(place.queue)
        if program is None:
            missing[place.queue] = missing.get(place.queue, 0) + 1
            continue
        try:
            found = _one(desk, program, place)
        except BodySealed:
            sealed += 1
            continue
        if found is None:
            fit += 1
        else:
            unfit.append(found)
    return FlowCheck(checked, fit, tuple(unfit), missing, sealed)


def _places(desk: Desk) -> Iterator[OpenInstance]:
    last = ("", "")
    while batch := desk.ask(instance_queries.open_after(*last, limit=BATCH)):
        yield from batch
        last = batch[-1].queue, batch[-1].id


def _one(desk: Desk, program: Program, place: OpenInstance) -> Unfit | None:
    try:
        rows = journal_rows(desk, place.id, place.execution)
        found = replayed(program, place.id, place.execution, rows, desk.settings)
    except JournalUnreadable as error:
        return Unfit(place.id, place.queue, str(error))
    match found:
        case CodeChanged():
            return Unfit(place.id, place.queue, str(found), found.diff)
        case Overrun(why):
            return Unfit(place.id, place.queue, why)
        case None:
            return None
