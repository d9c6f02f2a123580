"""What a turn leaves behind: a delta (its journal row, the state of its instance) and messages, as values.

They are stored in one commit with the end of the messages that the turn consumed, fenced by (execution, turn).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from ..clock import from_micros, micros
from ..model.failure import Category
from ..model.message import NewMessage, Reason
from ..model.replies import Reply, reply_of
from ..model.work import Delta
from ..store.plans.instances import Stand
from .attributes import attributes_text, checked
from .calling import call_headers
from .declared import Activity
from .failures import Failure
from .journal import Call, Child, Row, Start, Timer, Tried, decode, encode, message_id
from .messages import START, TIMER, WAKE, Pen, StartBody, TimerBody, children_cancelled, written
from .outcome import Ask, End, Turn

APPLIER = "turns"

Journal = Sequence[tuple[int, int, str]]  # turn, part and text of each row


class Result(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How an instance ended, as it is stored."""

    value: str | None = None  # JSON
    failure: Failure | None = None


class Leaving:
    """Writes down what turns of one queue leave behind. `activities` are the application's, by name."""

    __slots__ = ("activities", "pen", "queue")

    def __init__(self, queue: str, pen: Pen, activities: Mapping[str, Activity[..., Any]]) -> None:
        self.queue, self.pen, self.activities = queue, pen, activities

    def delta(self, turn: Turn, mark: UUID, failed: Sequence[str] = ()) -> Delta:
        pen, row, end = self.pen, turn.row, turn.end
        begin = None
        if end is not None and end.begin is not None:
            begin = pen.seal(journal_text(row.id, row.execution + 1, 0, 0), encode(end.begin))
        state = "running" if end is None or end.state == "continued" else end.state
        ours = {
            "id": row.id, "execution": row.execution, "turn": row.turn, "part": row.part,
            "body": pen.seal(journal_text(row.id, row.execution, row.turn, row.part), turn.text),
            "begin": begin, "state": state, "mark": str(mark), "entries": turn.entries, "size": turn.size,
            "result": None if state == "running" or end is None else pen.seal(f"result/{row.id}", result_text(end)),
            "status": None if turn.status is None else pen.seal(f"status/{row.id}", turn.status),
            "attributes": turn.attributes,
            "starts": [self._start_row(each, row) for each in turn.asks if isinstance(each.command, Child | Start)],
            "timers": [*self._withdrawn(turn, Timer), *map(str, turn.unparked)],
            "calls": self._withdrawn(turn, Call),
        }  # fmt: skip
        if state == "failed" and end is not None and end.failure is not None:
            ours["category"] = end.failure.category  # for metrics
        if failed:
            ours["failed_inline"] = list(failed)  # the same
        return Delta(
            APPLIER, ({name: value for name, value in ours.items() if value is not None and value != []},)
        )

    def _withdrawn(self, turn: Turn, kind: type[Timer | Call]) -> list[str]:
        id, execution = turn.row.id, turn.row.execution
        return [
            str(each.message_id(id, execution))
            for each in turn.withdrawn
            if isinstance(each.command, kind) and not each.is_inline
        ]

    def _start_row(self, ask: Ask, row: Row) -> dict[str, object]:
        assert isinstance(ask.command, Child | Start)
        reply = self._reply(ask, row).text() if isinstance(ask.command, Child) else None
        start = ask.message_id(row.id, row.execution)
        found = attributes_text(ask.options.attributes)
        return {
            "id": ask.command.id, "queue": ask.command.name, "start": str(start), "reply": reply, "attributes": found,
        }  # fmt: skip

    def _reply(self, ask: Ask, row: Row) -> Reply:
        return Reply(self.queue, row.id, row.execution, ask.number)

    def emits(self, turn: Turn, reply: str | None, now: datetime) -> list[NewMessage]:
        """The messages of a turn. `reply`: who waits for the end of the instance."""
        row, end, pen = turn.row, turn.end, self.pen
        found = [self._carried(ask, row, now) for ask in turn.asks]
        found += [self._timer(each.number, each.due, row, _again_id(each, row)) for each in turn.parked]
        gone = [
            (each.command, each.message_id(row.id, row.execution))
            for each in turn.withdrawn
            if isinstance(each.command, Child)
        ]
        found += children_cancelled(pen, gone, row.id)
        if end is None:
            if turn.goes_on:
                found.append(pen.message(WAKE, "null", queue=self.queue, stream=row.id))
            return found
        if end.state == "continued":
            id = message_id(row.id, row.execution + 1, 0)
            found.append(pen.message(WAKE, "null", queue=self.queue, stream=row.id, id=id))
        elif (waiter := reply_of(reply)) is not None:
            found.append(pen.into(waiter, end.result, failure_of(end)))
        return found

    def _carried(self, ask: Ask, row: Row, now: datetime) -> NewMessage:
        """The message that carries a command."""
        pen, command = self.pen, ask.command
        id = ask.message_id(row.id, row.execution)
        deadline = ask.options.deadline
        if isinstance(deadline, timedelta):
            deadline = now + deadline
        match command:
            case Call(name=name):
                reply = self._reply(ask, row)
                queue = ask.options.queue or name
                headers = call_headers(reply, ask.options, self.activities.get(name))
                text = "null" if ask.input is None else ask.input
                return pen.message(name, text, queue=queue, id=id, headers=headers, deadline=deadline)
            case Timer(due=due):
                return self._timer(ask.number, due, row, id)
            case Child(name=queue, id=child) | Start(name=queue, id=child):
                waiter = self._reply(ask, row).text() if isinstance(command, Child) else None
                until = None if deadline is None else micros(deadline)
                attributes = checked(ask.options.attributes)
                start = StartBody(ask.input, row.id if waiter else None, until, waiter, attributes)
                return pen.message(START, written(start), queue=queue, stream=child, id=id)
            case _:
                raise AssertionError(f"{command!r} needs no message")

    def _timer(self, number: int, due: int | None, row: Row, id: UUID) -> NewMessage:
        assert due is not None
        body = written(TimerBody(row.execution, number))
        return self.pen.message(TIMER, body, queue=self.queue, stream=row.id, id=id, due_at=from_micros(due))


def _again_id(tried: Tried, row: Row) -> UUID:
    return tried.message_id(row.id, row.execution)


def pause_delta(id: str, stand: Stand, trouble: str) -> Delta:
    """The instance is paused where it stands: nothing is added to its journal."""
    row = {
        "id": id,
        "execution": stand.execution,
        "turn": stand.turn + 1,
        "state": "paused",
        "trouble": trouble,
    }
    return Delta(APPLIER, (row,))


def failure_of(end: End) -> Failure | None:
    """What a parent gets if the function did not return."""
    if end.state == "cancelled":
        return Failure(
            "Cancelled", "the orchestration was cancelled.", Reason.CANCELLED, Category.APPLICATION
        )
    return end.failure


def journal_text(id: str, execution: int, turn: int, part: int) -> str:
    """The name under which a row of the journal is sealed."""
    return f"journal/{execution}/{turn}/{part}/{id}"


def opened(pen: Pen, id: str, execution: int, journal: Journal) -> tuple[list[Row], int]:
    """The rows of a journal, and their bytes."""
    rows: list[Row] = []
    size = 0
    for turn, part, text in journal:
        plain = pen.open_in_turn(journal_text(id, execution, turn, part), text)
        rows.append(decode(id, execution, turn, part, plain))
        size += len(plain)
    return rows, size


def result_text(end: End) -> str:
    """How an instance ended, as it is stored: its result, or its failure."""
    return msgspec.json.encode(Result(end.result, failure_of(end))).decode()
