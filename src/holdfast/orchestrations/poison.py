"""The end of an instance whose turn is poison: what is stored in the commit in which its message becomes a dead letter.

None of the user's code is run. The journal gets a row that says so (before it, for an instance that never started, that
it was to start), the instance fails, and whoever waits for it is answered. The error carries the whole message and
those that waited behind it (bounded); logs and texts have ids and counts only.

The row adds nothing to what replay sees. So the dead letter can be redriven: its instance is open again, and goes on
with the same message. Its stream is halted until then, so that nothing that waits behind is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from ..clock import micros
from ..errors import BodySealed, PoisonedTurn
from ..model.failure import Category, FailureDescription, serialized
from ..model.ids import new_id
from ..model.message import Message
from ..model.replies import reply_of
from ..model.work import Delta, Left, Settlement
from ..rules.delivery import failure_of
from ..rules.policy import HandlerPolicy
from ..store.plans.instances import Last, Stand
from ..telemetry.logs import Log
from .failures import Failure
from .journal import Inline, JournalUnreadable, Poisoned, Row, Started, decode, encode, merged
from .leaving import APPLIER, Result, journal_text
from .messages import KNOWN, START, Pen
from .waiting import open_commands

log = Log("holdfast.orchestrations")


def left_by(settlement: Settlement, policy: HandlerPolicy, found: Last, pen: Pen) -> Left | None:
    """What the death of a turn's message leaves behind; None: there is no instance that could end."""
    message = settlement.leased.message
    if message.type not in KNOWN:
        return Left(halts=False)  # not a message for orchestrations: a dead letter, and the instance goes on
    stand = found.stand
    if stand is None or stand.state not in ("running", "suspended"):
        return Left(halts=False)
    described = _described(settlement, policy, stand, found)
    rows = _rows(message, stand, found, pen)
    failure = _failure(settlement, described, _inline(rows))
    log.warning(
        "orchestration.poison",
        "Instance %(instance)s of %(queue)s is poison: %(attempt_count)d of %(max_attempts)d attempts of message "
        "%(message_id)s are used up; it has failed",
        instance=message.stream, queue=message.queue, attempt_count=described.attempt_count,
        max_attempts=described.max_attempts, message_id=message.id, reason=settlement.reason,
    )  # fmt: skip
    answer = reply_of(stand.reply)
    emits = () if answer is None else (pen.into(answer, None, failure),)
    return Left(_delta(message, stand, failure, pen, found), emits)


def _described(
    settlement: Settlement, policy: HandlerPolicy, stand: Stand, found: Last
) -> FailureDescription:
    message = settlement.leased.message
    plain = failure_of(settlement, policy)
    assert plain is not None
    return msgspec.structs.replace(
        plain,
        category=Category.POISON,
        retryable=False,
        message_type=PoisonedTurn(message.stream or "", stand.execution),
        message=_whole(message, found.pending, found.left_out),
    )


def _whole(message: Message, pending: Sequence[Mapping[str, Any]], left_out: int) -> str:
    """The message as JSON, with those that waited behind it."""
    whole = msgspec.json.decode(serialized(message))
    whole |= {"pending": list(pending), "pending_left_out": left_out}
    return msgspec.json.encode(whole).decode()


def _rows(message: Message, stand: Stand, found: Last, pen: Pen) -> list[Row]:
    """The journal, if parts of the turn are stored and can be read."""
    id, execution = message.stream or "", stand.execution
    try:
        return [
            decode(id, execution, turn, part, pen.open(journal_text(id, execution, turn, part), text))
            for turn, part, text in found.journal
        ]
    except (JournalUnreadable, BodySealed):
        return []


def _inline(rows: Sequence[Row]) -> list[str]:
    """The inline activities that the turn was to run when it ended: charge#3."""
    waits = {each.number for each in rows[-1].tried if each.due is not None} if rows else set()
    return [
        f"{command.name}#{number}"
        for number, command in open_commands(merged(rows)).items()
        if isinstance(command, Inline) and number not in waits
    ]


def _failure(settlement: Settlement, described: FailureDescription, inline: Sequence[str]) -> Failure:
    leased, error = settlement.leased, described.error
    assert error is not None
    text = str(error)
    if leased.attempt < (described.max_attempts or 0):  # not for the number of attempts: nobody can read it
        text = f"{error.message_type} cannot go on: {settlement.error}"
    if inline:
        text = f"{text} Inline activities that it was running: {', '.join(inline)}."
    reason = settlement.last_reason or settlement.reason or 0
    return Failure(
        "PoisonError", text, int(reason), Category.POISON, str(leased.message.id),
        causes=(settlement.error or "",), poison=described.to_json(),
    )  # fmt: skip


def _delta(message: Message, stand: Stand, failure: Failure, pen: Pen, found: Last) -> Delta:
    id, turn = message.stream or "", stand.turn + 1
    part = found.journal[-1][1] + 1 if found.journal else 0
    started = None
    if (stand.execution, stand.turn, part) == (0, 0, 0):
        started = _started(message, stand.start, pen)
    bare = msgspec.structs.replace(failure, poison=None)  # the whole message is in the result, once
    at = micros(message.created_at)
    row = Row(
        id=id,
        execution=stand.execution,
        turn=turn,
        part=part,
        at=at,
        poison=Poisoned(str(message.id), at, bare, started),
    )
    result = msgspec.json.encode(Result(None, failure)).decode()
    ours = {
        "id": id, "execution": stand.execution, "turn": turn, "part": part,
        "body": pen.seal(journal_text(id, stand.execution, turn, part), encode(row)),
        "begin": None, "state": "failed", "mark": str(new_id()), "entries": stand.entries, "size": stand.size,
        "result": pen.seal(f"result/{id}", result), "status": None, "starts": (), "timers": (),
        "poison": str(message.id), "trouble": failure.text, "category": Category.POISON,
    }  # fmt: skip
    return Delta(APPLIER, (ours,))


def _started(message: Message, start: UUID, pen: Pen) -> Started:
    """That the instance was to start, as far as it can be read."""
    try:
        arrival = pen.arrival(message) if message.type == START else None
    except (JournalUnreadable, Exception):
        arrival = None
    if isinstance(arrival, Started):
        return arrival
    return Started(str(start), micros(message.created_at), None, f"{message.stream}/0")
