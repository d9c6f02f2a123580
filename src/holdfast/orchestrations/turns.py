"""Turns in a worker: the consumer of a queue `name@version`. One message is one turn, stored with its settlement.

The queue is an ordinary one, the stream is the instance, and a worker takes one message of a stream at a time: what it
holds next was claimed after the turn before was stored. So the stored (execution, turn) says whether an instance in
memory is right, and `mark` says that the turn was stored by us: a side effect that another worker recorded differs.

A turn leaves a delta (the journal row, the state of the instance) and messages, in one commit with the end of the
message that it consumed. Code that has changed is not poison: the message waits and is tried again, uncounted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, assert_never
from uuid import UUID

import msgspec

from ..bodies.keys import Keys
from ..clock import Clock, from_micros, micros, wall_clock
from ..errors import HoldfastError
from ..handlers.consumer import Limits
from ..handlers.context import Context, Snooze
from ..model.ids import new_id
from ..model.message import Message, NewMessage, Reason
from ..model.replies import Reply, reply_of
from ..model.work import Delta, Leased
from ..rules.policy import HandlerPolicy
from ..rules.redact import Masking
from ..settings import Settings
from ..store import Store
from ..store.plans import instances
from ..store.plans.instances import Stand
from ..telemetry.logs import Log
from .attributes import attributes_text, checked
from .budget import Alarm, Budget, Watchdog
from .cache import Cache
from .calling import call_headers
from .declared import Activity, Program
from .failures import Failure, describe
from .hosting import run_turn
from .journal import Call, Child, Row, Start, Timer, decode, encode, message_id
from .messages import CANCEL, START, TIMER, WAKE, Pen, StartBody, TimerBody, child_cancelled, written
from .outcome import Ask, End, Overrun, Turn
from .replay import CodeChanged
from .turn import Instance

log = Log("holdfast.orchestrations")

CHANGED_SECONDS = 30.0  # until code that has changed is tried again


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """How an instance ended, as it is stored."""

    value: str | None = None  # JSON
    failure: Failure | None = None


class TurnOverrun(HoldfastError):
    """A turn ran too long or in circles. Nothing of it was stored."""

    category = "application"


class Memory:
    """What the turns of one application share: live instances, and a budget for each thread."""

    def __init__(self) -> None:
        self.cache = Cache()
        self.is_embedded = True
        self.forgets = False  # in tests: each turn replays the journal from its beginning
        self._lock = threading.Lock()
        self._budgets: dict[int, Budget] = {}

    def take(self, id: str, stand: Stand) -> Instance | None:
        with self._lock:
            found = self.cache.take(id, stand.execution, stand.turn)
        if found is not None and found.mark != str(stand.mark):
            found.close()
            return None
        return found

    def keep(self, instance: Instance) -> None:
        if self.forgets:
            instance.close()
            return
        with self._lock:
            self.cache.put(instance)

    def forget(self) -> None:
        with self._lock:
            self.cache.clear()

    def budget(self) -> Budget:
        """That of this thread: an alarm in the main thread of a worker process, else a watchdog."""
        who = threading.get_ident()
        if (found := self._budgets.get(who)) is None:
            is_main = threading.current_thread() is threading.main_thread()
            found = Alarm().install() if is_main and not self.is_embedded else Watchdog().install()
            self._budgets[who] = found
        return found


@dataclass(frozen=True)
class Place:
    """Where turns find what they need: the application's store and clock may be others in its tests."""

    store: Callable[[], Store]
    clock: Callable[[], Clock]
    settings: Settings
    pen: Pen
    memory: Memory
    activities: dict[str, Activity[..., Any]] = field(default_factory=dict)  # by name

    def now(self) -> datetime:
        return self.clock().now() or wall_clock()


@dataclass(frozen=True)
class Turns:
    """Serves the instances of one version of an orchestration. A `SingleConsumer`."""

    program: Program
    place: Place
    policy: HandlerPolicy
    masking: Masking
    concurrency: int
    patterns: tuple[str, ...] = ()
    is_family: bool = False
    is_ordered: bool = True
    is_async: bool = True
    takes_context: bool = True
    batch: int = 0
    steps: Mapping[str, int] = field(default_factory=dict)

    @property
    def queue(self) -> str:
        return self.program.queue

    @property
    def keys(self) -> Keys | None:
        return self.place.pen.keys

    def limits(self, queue: str) -> Limits:
        return Limits(self.concurrency, self.place.settings.timeout, ahead=False)

    def but(self, policy: HandlerPolicy) -> Turns:
        return replace(self, policy=policy)

    async def call(self, leased: Leased, context: Context | None) -> Snooze | None:
        assert context is not None
        message, store = leased.message, self.place.store()
        id = message.stream or ""
        stand: Stand | None = await store.arun(instances.stand(id))
        if (left := self._not_for_code(message, stand)) is not None:
            context._emits.extend(left)
            return None
        assert stand is not None
        if stand.state != "running":  # somebody holds it: its messages wait
            return Snooze(CHANGED_SECONDS)
        arrival = self.place.pen.arrival(message)
        instance = self.place.memory.take(id, stand) or await self._cold(id, stand)
        is_stored = False
        try:
            result = await run_turn(instance, [arrival], self.place.now(), self.place.clock())
            match result:
                case Turn():
                    mark = new_id()
                    instance.mark = str(mark)
                    context._delta = self._delta(result, mark)
                    context._emits.extend(self._emits(result, stand))
                    is_stored = True  # or will be; if not, its mark is not the stored one
                    return None
                case CodeChanged():
                    return await self._changed(result, id, stand)
                case Overrun(why):
                    raise TurnOverrun(f"A turn of instance {id!r} was stopped. {why}")
                case _:
                    assert_never(result)
        finally:
            if is_stored:
                self.place.memory.keep(instance)
            else:
                instance.close()

    # -- before

    def _not_for_code(self, message: Message, stand: Stand | None) -> list[NewMessage] | None:
        """What a message leaves behind that ends without a turn; None: it is for the code."""
        if message.type == START and (stand is None or stand.start != message.id):
            # The id was taken when its parent asked for it: the parent must not wait for ever.
            reply = reply_of(self.place.pen.reply_in(message))
            if reply is None:
                return []
            text = f"an instance with the id {message.stream!r} exists already: give the child another id."
            failure = Failure("IdTaken", text, Reason.ID_TAKEN, message_id=str(message.id))
            return [self.place.pen.into(reply, None, failure)]
        if message.type == CANCEL and stand is not None and not self.place.pen.is_for(message, stand.start):
            return []  # for a child that this is not: its id was taken when the parent asked for it
        if stand is None or stand.state not in instances.OPEN:
            log.info(
                "orchestration.late",
                "Message %(message_id)s of type %(type)s came too late for instance %(instance)s",
                message_id=message.id, type=message.type, instance=message.stream, queue=message.queue,
            )  # fmt: skip
            return []
        return None

    async def _cold(self, id: str, stand: Stand) -> Instance:
        store, pen = self.place.store(), self.place.pen
        instance = Instance(
            self.program, id, stand.execution, limits=self.place.settings, budget=self.place.memory.budget()
        )
        try:
            rows: list[Row] = []
            size = 0
            for turn, part, text in await store.arun(instances.journal(id, stand.execution)):
                plain = pen.open_in_turn(journal_text(id, stand.execution, turn, part), text)
                rows.append(decode(id, stand.execution, turn, part, plain))
                size += len(plain)
            instance.load(rows, size)
        except BaseException:
            instance.close()
            raise
        return instance

    # -- after

    async def _changed(self, changed: CodeChanged, id: str, stand: Stand) -> Snooze:
        told = f"{changed}\n" + "\n".join(changed.diff)
        log.error(
            "orchestration.changed",
            "Instance %(instance)s of %(queue)s waits, because its code has changed: %(why)s",
            instance=id, queue=self.queue, why=str(changed),
        )  # fmt: skip
        plan = instances.note_trouble(id, stand.execution, stand.turn, told)
        await self.place.store().arun(plan)
        return Snooze(CHANGED_SECONDS)

    def _delta(self, turn: Turn, mark: UUID) -> Delta:
        pen, row, end = self.place.pen, turn.row, turn.end
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
            "timers": self._withdrawn(turn, Timer),
            "calls": self._withdrawn(turn, Call),
        }  # fmt: skip
        return Delta("turns", (ours,))

    def _withdrawn(self, turn: Turn, kind: type[Timer | Call]) -> list[str]:
        id, execution = turn.row.id, turn.row.execution
        return [
            str(each.message_id(id, execution)) for each in turn.withdrawn if isinstance(each.command, kind)
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

    def _emits(self, turn: Turn, stand: Stand) -> list[NewMessage]:
        row, end, pen = turn.row, turn.end, self.place.pen
        found = [self._carried(ask, row) for ask in turn.asks]
        found += [
            child_cancelled(pen, each.command, each.message_id(row.id, row.execution), row.id)
            for each in turn.withdrawn
            if isinstance(each.command, Child)
        ]
        if end is None:
            return found
        if end.state == "continued":
            id = message_id(row.id, row.execution + 1, 0)
            found.append(pen.message(WAKE, "null", queue=self.queue, stream=row.id, id=id))
        elif (reply := reply_of(stand.reply)) is not None:
            found.append(pen.into(reply, end.result, _failure_of(end)))
        return found

    def _carried(self, ask: Ask, row: Row) -> NewMessage:
        """The message that carries a command."""
        pen, command = self.place.pen, ask.command
        id = ask.message_id(row.id, row.execution)
        deadline = self._deadline(ask)
        match command:
            case Call(name=name):
                reply = self._reply(ask, row)
                if (why := self._refusal(ask, name)) is not None:
                    return pen.into(reply, None, describe(why))
                queue = ask.options.queue or name
                headers = call_headers(reply, ask.options, self.place.activities.get(name))
                text = "null" if ask.input is None else ask.input
                return pen.message(name, text, queue=queue, id=id, headers=headers, deadline=deadline)
            case Timer(due=due):
                body = written(TimerBody(row.execution, ask.number))
                return pen.message(
                    TIMER, body, queue=self.queue, stream=row.id, id=id, due_at=from_micros(due)
                )
            case Child(name=queue, id=child) | Start(name=queue, id=child):
                waiter = self._reply(ask, row).text() if isinstance(command, Child) else None
                until = None if deadline is None else micros(deadline)
                attributes = checked(ask.options.attributes)
                start = StartBody(ask.input, row.id if waiter else None, until, waiter, attributes)
                return pen.message(START, written(start), queue=queue, stream=child, id=id)
            case _:
                raise AssertionError(f"{command!r} needs no message")

    def _refusal(self, ask: Ask, name: str) -> Exception | None:
        """Options of one call that the engine does not carry out: the call fails by name, and nothing is ignored."""
        declared = self.place.activities.get(name)
        if ask.options.inline and (declared is None or ask.options.inline != declared.options.inline):
            return NotImplementedError(
                f"{name}.using(inline=...) cannot be set for one call: declare it with the activity."
            )
        return None

    def _deadline(self, ask: Ask) -> datetime | None:
        deadline = ask.options.deadline
        return self.place.now() + deadline if isinstance(deadline, timedelta) else deadline


def _failure_of(end: End) -> Failure | None:
    """What a parent is told of an end that is none of a function that returned."""
    if end.state == "cancelled":
        return Failure("Cancelled", "the orchestration was cancelled.", Reason.CANCELLED)
    return end.failure


def journal_text(id: str, execution: int, turn: int, part: int) -> str:
    """The name under which a row of the journal is sealed."""
    return f"journal/{execution}/{turn}/{part}/{id}"


def result_text(end: End) -> str:
    """How an instance ended, as it is stored: its result, or its failure."""
    return msgspec.json.encode(Result(end.result, _failure_of(end))).decode()
