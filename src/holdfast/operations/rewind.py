"""Rewind an instance: first what it would do, then the change. `operations.orchestrations.rewind`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from ..clock import micros
from ..errors import NotFound, UsageError
from ..model.ids import new_id
from ..model.message import NewMessage
from ..model.replies import Reply
from ..orchestrations.journal import Child, Signalled, encode, message_id
from ..orchestrations.leaving import Result, journal_text
from ..orchestrations.messages import WAKE, Pen, children_cancelled
from ..orchestrations.rewind import Ended, Rewinding, point_of, rewinding
from ..orchestrations.steps import Step
from ..store.plans import instance_commands, instances
from ..store.plans.audit import Entry
from ..store.plans.instance_commands import Adoption, Rewind
from ..store.plans.instances import Shown
from ..store.statement import Plan
from .desk import Desk
from .instance_states import RewindPoint, RewoundInstance
from .instances import read_rows

ENDED = ("completed", "failed", "cancelled", "terminated")


def rewind(desk: Desk, id: str, point: RewindPoint, why: str | None) -> RewoundInstance:
    """Rewind an instance, or without `why` only return what that would do."""
    if (point.to is None) == (point.after is None):
        raise UsageError(
            "Say where to go back to: `to` a step, which is asked again, or `after` one, whose answer is kept."
        )

    def plan() -> Plan[RewoundInstance]:
        shown = yield from instances.show(id)
        if shown is None:
            raise NotFound(f"There is no instance {id!r}: `holdfast orchestrations list` shows them.")
        if point.at is not None and point.at != (shown.execution, shown.turn):
            raise UsageError(f"Instance {id!r} was not rewound: it has had a turn since. Look at it again.")
        pen = Pen(desk.keys)
        rows = read_rows(pen, id, shown.execution, (yield from instances.journal(id, shown.execution)))
        if not any(row.entries for row in rows):
            raise UsageError(
                f"Instance {id!r} was not rewound: none of its code has run, so there is no step."
            )
        entries = [entry for row in rows for entry in row.entries]
        text = point.to if point.after is None else point.after
        place = point_of(entries, text or "", is_after=point.after is not None)
        found = rewinding(rows, place, keeps_signals=point.keeps_signals)
        children = yield from _children(found)
        completed = {
            name: end for name, each in children.items() if (end := _completed(pen, each)) is not None
        }
        found = rewinding(rows, place, keeps_signals=point.keeps_signals, children=completed)
        planned = _planned(shown, found, children)
        if why is None:
            return planned
        yield from instance_commands.rewind(_order(pen, shown, found))
        yield from instance_commands.send_all(_messages(pen, shown, found))
        before = {"state": shown.state, "execution": shown.execution, "turn": shown.turn}
        after = {"state": "running", "execution": shown.execution + 1, "point": planned.point}
        yield from desk.note(Entry("orchestrations.rewind", target=id, why=why), before, after)
        return replace(planned, is_rehearsal=False)

    return desk.ask(plan()) if why is None else desk.command(f"Instance {id}", plan)


def _children(found: Rewinding) -> Plan[dict[str, Shown]]:
    """The children that are not rewound, with their current states."""
    children: dict[str, Shown] = {}
    for each in found.adopted.values():
        shown = yield from instances.show(each.id)
        if shown is not None:
            children[each.id] = shown
    return children


def _completed(pen: Pen, child: Shown) -> Ended | None:
    if child.state != "completed" or child.ended_at is None or child.result is None:
        return None
    found = msgspec.json.decode(pen.open(f"result/{child.id}", child.result), type=Result)
    return Ended(micros(child.ended_at), found.value)


def _order(pen: Pen, shown: Shown, found: Rewinding) -> Rewind:
    id, old, new = shown.id, shown.execution, shown.execution + 1
    rows = [(row.turn, pen.seal(journal_text(id, new, row.turn, 0), encode(row))) for row in found.rows]
    adopted = [
        Adoption(
            child.id, message_id(id, old, n), message_id(id, new, n), Reply(shown.queue, id, new, n).text()
        )
        for n, child in found.adopted.items()
    ]
    calls = [message_id(id, old, n) for n, each in found.given_up.items() if not isinstance(each, Child)]
    return Rewind(
        id, shown.queue, (old, shown.turn), rows, found.kept, found.size, new_id(), calls, adopted,
    )  # fmt: skip


def _messages(pen: Pen, shown: Shown, found: Rewinding) -> list[NewMessage]:
    """The message that starts the next execution; and the end of children that nobody waits for any more."""
    id, old = shown.id, shown.execution
    sent = [pen.message(WAKE, "null", queue=shown.queue, stream=id, id=message_id(id, old + 1, 0))]
    if shown.ended_at is None:  # else they were informed at its end
        given_up = found.given_up.items()
        children = [(each, message_id(id, old, n)) for n, each in given_up if isinstance(each, Child)]
        sent += children_cancelled(pen, children, id)
    return sent


def _planned(shown: Shown, found: Rewinding, children: Mapping[str, Shown]) -> RewoundInstance:
    notes = []
    if shown.ended_at is not None:
        notes.append(
            f"Whoever waited for its end was informed that it is {shown.state}, and is not informed again."
        )
    for each in children.values():
        if each.ended_at is None:
            notes.append(f"Its child {each.id} continues, and answers when it ends.")
        elif each.state != "completed":
            notes.append(
                f"Its child {each.id} is {each.state}, and is waited for: rewind that one, too "
                f"(`holdfast orchestrations rewind {each.id} --to start`)."
            )
    where = f"{'after ' if found.point.is_after else ''}{found.point.label}"
    delivered = [
        f"signal {each.name}" if isinstance(each, Signalled) else f"the answer of #{each.number}"
        for each in found.delivered_again
        if hasattr(each, "number") or isinstance(each, Signalled)
    ]
    return RewoundInstance(
        shown.id, shown.queue, shown.state, shown.execution, shown.turn, where, found.kept, found.dropped,
        tuple(_repeat(each) for each in found.repeats), tuple(each.label for each in found.asked_again),
        tuple(delivered), tuple(notes), is_rehearsal=True,
    )  # fmt: skip


def _repeat(step: Step) -> str:
    what = {"call": "activity", "child": "child", "detached": "detached start", "once": "flow.once"}[
        step.kind
    ]
    became = "" if step.became == "recorded" else f", {step.became}"
    return f"{step.label} ({what}{became})"
