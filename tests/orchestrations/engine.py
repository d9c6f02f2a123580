"""An engine in memory: streams, journals and virtual time, without a store. It plays what a worker does with turns.

Activities are plain functions here; how long each takes is drawn from the seed and the call, so that a run is the same
whatever the engine forgets in between. `forget` is the chance that a live instance is dropped before a turn, and
`ahead` that the answer of an activity brings its turn with it, if the instance is live and the turn can be run ahead.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from random import Random
from typing import Any

import msgspec

from holdfast.clock import from_micros, micros
from holdfast.orchestrations.cache import Cache
from holdfast.orchestrations.declared import Activity, Orchestration, Program
from holdfast.orchestrations.failures import Failure, describe
from holdfast.orchestrations.foreseeing import is_plain
from holdfast.orchestrations.journal import (
    Answered,
    Arrival,
    Call,
    Cancelled,
    Child,
    Fired,
    Row,
    Signalled,
    Start,
    Started,
    Timer,
    Woken,
    decode,
    encode,
)
from holdfast.orchestrations.outcome import Ask, End, Overrun, Turn
from holdfast.orchestrations.replay import CodeChanged
from holdfast.orchestrations.turn import Instance

START = datetime(2026, 1, 1, tzinfo=UTC)
Fake = Callable[[Any], Any]


@dataclass
class Record:
    """What a store would hold of one instance."""

    program: Program
    execution: int = 0
    turns: int = 0
    texts: list[tuple[int, int, int, str]] = field(default_factory=list)  # execution, turn, part, row
    end: End | None = None
    status: Any = None
    reply: tuple[str, int, int] | None = None  # parent, execution, number
    begun: bool = False

    def rows(self, id: str, execution: int | None = None) -> list[Row]:
        wanted = self.execution if execution is None else execution
        return [decode(id, e, turn, part, text) for e, turn, part, text in self.texts if e == wanted]


class Engine:
    """Runs instances until nothing is left to happen."""

    def __init__(
        self,
        *programs: Orchestration[..., Any],
        activities: Mapping[str, Fake] | Iterable[Activity[..., Any]] = (),
        seed: int = 0,
        forget: float = 0.0,
        ahead: float = 0.0,
        at_once: float = 0.0,
        cache: Cache | None = None,
    ) -> None:
        self.programs = {each.program.queue: each.program for each in programs}
        fakes = (
            dict(activities) if isinstance(activities, Mapping) else {a.name: _plain(a) for a in activities}
        )
        self.activities: dict[str, Fake] = fakes
        self.seed, self.forget, self.ahead, self.at_once = seed, forget, ahead, at_once
        self.guessed = self.refused = 0  # turns that were run ahead, and those of them that were not stored
        self.dice = Random(f"{seed}/forget")
        self.cache = cache or Cache()
        self.records: dict[str, Record] = {}
        self.now = micros(START)
        self.calls: list[tuple[str, int, str, Any]] = []  # effects: instance, number, activity, input
        self.inlined = 0  # inline activities that were run, repeated ones too
        self.answered_at_once = 0  # of them, those whose answer the code did not wait for
        self.late: list[str] = []
        self.paused: dict[str, Any] = {}
        self._heap: list[tuple[int, int, str, Arrival]] = []
        self._sequence = count(1)
        self._gone: set[tuple[str, int, int]] = set()

    # --- From outside ---

    def start(
        self,
        what: Orchestration[..., Any],
        value: Any = None,
        id: str = "i",
        deadline: timedelta | None = None,
    ) -> None:
        ends = None if deadline is None else self.now + round(deadline.total_seconds() * 1_000_000)
        self._start(what.program, id, msgspec.json.encode(value).decode(), None, None, ends)

    def signal(self, id: str, name: str, value: Any = None, after: float = 0) -> None:
        text = msgspec.json.encode(value).decode()
        self._later(id, after, lambda message, at: Signalled(message, at, name, text))

    def cancel(self, id: str, after: float = 0) -> None:
        self._later(id, after, lambda message, at: Cancelled(message, at))

    def run(self, turns: int = 100_000) -> Engine:
        while self._heap and turns:
            turns -= 1
            at, _, id, arrival = heapq.heappop(self._heap)
            self.now = max(self.now, at)
            self._turn(id, [arrival])
        self.cache.clear()
        return self

    def result(self, id: str = "i") -> Any:
        end = self.records[id].end
        assert end is not None, f"{id} has not ended"
        assert end.state == "completed", end
        return msgspec.json.decode(end.result or "null")

    def failure(self, id: str = "i") -> Failure:
        end = self.records[id].end
        assert end is not None
        assert end.failure is not None, end
        return end.failure

    # --- What a store and a worker do ---

    def _later(self, id: str, seconds: float, make: Callable[[str, int], Arrival]) -> None:
        number = next(self._sequence)
        at = self.now + round(seconds * 1_000_000)
        heapq.heappush(self._heap, (at, number, id, make(f"m{number}", at)))

    def _start(
        self, program: Program, id: str, text: str | None, parent: str | None, reply: tuple[str, int, int] | None,
        deadline: int | None = None,
    ) -> None:  # fmt: skip
        if id in self.records and self.records[id].begun:
            return
        self.records[id] = Record(program, reply=reply, begun=True)
        self._later(id, 0, lambda message, at: Started(message, at, text, f"{id}/0", parent, deadline))

    def _live(self, id: str, record: Record) -> Instance:
        if self.dice.random() < self.forget:
            self.cache.drop(id)
        instance = self.cache.take(id, record.execution, record.turns)
        if instance is None:
            instance = Instance(record.program, id, record.execution)
            rows = record.rows(id)
            instance.load(rows, sum(len(encode(row)) for row in rows))
            pauses = Random(f"{self.seed}/{id}/{record.turns}")
            while not instance.catch_up(lambda: pauses.random() < 0.3):
                pass
        return instance

    def _turn(self, id: str, arrivals: list[Arrival]) -> None:
        record = self.records.get(id)
        if record is None:  # a signal before the start: kept until there is one
            heapq.heappush(self._heap, (self.now + 1_000_000, next(self._sequence), id, arrivals[0]))
            return
        if id in self.paused:
            return
        if self._guess(id, record, arrivals[0]):
            return
        instance = self._live(id, record)
        trouble = instance.take(arrivals, partial(self._answer, id, record))
        while trouble is None and instance.has_inline:
            instance, trouble = self._inline(id, record, instance, arrivals)
        if trouble is not None:
            self.paused[id] = trouble
            instance.close()
            return
        self._settle(id, record, instance.part(from_micros(self.now)))
        self.cache.put(instance)

    def _guess(self, id: str, record: Record, arrival: Arrival) -> bool:
        """The turn of an answer is run ahead, and at times it is refused: whether it is stored."""
        found = self.cache.look(id)
        if not isinstance(arrival, Answered) or found is None or self.dice.random() >= self.ahead:
            return False
        if found.execution != record.execution or not found.awaits_only(arrival.number):
            return False
        instance = self.cache.take(id, record.execution, record.turns)
        assert instance is found
        turn = instance.ahead(arrival, from_micros(self.now))
        if turn is None or not is_plain(turn) or self.dice.random() < 0.2:
            self.refused += 1
            instance.close()
            return False
        self.guessed += 1
        self._settle(id, record, turn)
        self.cache.put(instance)
        return True

    def _inline(
        self, id: str, record: Record, instance: Instance, arrivals: list[Arrival]
    ) -> tuple[Instance, CodeChanged | Overrun | None]:
        """Run the first inline activity; at times a part is stored before, and at times the worker dies then."""
        if self.dice.random() < 0.5 and instance.has_news:
            turn = instance.part(from_micros(self.now), final=False)
            row = turn.row
            assert (row.execution, row.turn) == (record.execution, record.turns + 1)
            record.texts.append((row.execution, row.turn, row.part, turn.text))
        if self.dice.random() < self.forget:
            instance.close()
            instance = self._live(id, record)
            if (trouble := instance.take(arrivals)) is not None or not instance.has_inline:
                return instance, trouble
        answer = self._ran_inline(id, record, instance.inline()[0])
        return instance, instance.take([answer], partial(self._answer, id, record))

    def _answer(self, id: str, record: Record, ask: Ask) -> Answered | None:
        """At times an inline activity answers at once."""
        if not self.at_once or self.dice.random() >= self.at_once:
            return None
        self.answered_at_once += 1
        return self._ran_inline(id, record, ask)

    def _ran_inline(self, id: str, record: Record, ask: Ask) -> Answered:
        assert isinstance(ask.command, Call)
        value = None if ask.input is None else msgspec.json.decode(ask.input)
        result, failure = self._performed(id, ask.number, ask.command.name, value)
        self.inlined += 1
        return Answered("", self.now, record.execution, ask.number, result, failure)

    def _settle(self, id: str, record: Record, turn: Turn) -> None:
        row = turn.row
        assert (row.execution, row.turn) == (record.execution, record.turns + 1), "the fence"
        assert decode(*row.key, turn.text) == row
        record.texts.append((row.execution, row.turn, row.part, turn.text))
        record.turns = row.turn
        self.late += row.late
        if turn.status is not None:
            record.status = msgspec.json.decode(turn.status)
        self._gone |= {(id, row.execution, each.number) for each in turn.withdrawn}
        for ask in turn.asks:
            self._send(id, record, ask)
        for each in turn.withdrawn:
            self._cancel_child(id, row.execution, each.number)
        if turn.end is not None:
            self._end(id, record, turn)

    def _end(self, id: str, record: Record, turn: Turn) -> None:
        assert turn.end is not None
        if turn.end.state == "continued":
            begin = turn.end.begin
            assert begin is not None
            record.texts.append((begin.execution, begin.turn, begin.part, encode(begin)))
            record.execution, record.turns = begin.execution, 0
            self._later(id, 0, lambda message, at: Woken(message, at))
            for arrival in turn.unread:
                heapq.heappush(self._heap, (arrival.at, next(self._sequence), id, arrival))
            return
        record.end = turn.end
        if record.reply is not None:
            parent, execution, number = record.reply
            failure = turn.end.failure
            if turn.end.state == "cancelled":
                failure = Failure("CancelledError", "the child was cancelled", 10)
            value = turn.end.result
            self._later(
                parent, 0, lambda message, at: Answered(message, at, execution, number, value, failure)
            )

    def _send(self, id: str, record: Record, ask: Ask) -> None:
        execution, number = record.execution, ask.number
        match ask.command:
            case Timer(due=due):
                at = max(due, self.now)
                heapq.heappush(
                    self._heap,
                    (at, next(self._sequence), id, Fired(f"t{next(self._sequence)}", at, execution, number)),
                )
            case Call(name=name):
                drawn = Random(f"{self.seed}/{id}/{execution}/{number}")
                value = None if ask.input is None else msgspec.json.decode(ask.input)
                seconds = drawn.choice((0, 0.001, 0.5, 3, 20)) * drawn.random()
                result, failure = self._perform(id, number, name, value)
                self._later(
                    id, seconds, lambda message, at: Answered(message, at, execution, number, result, failure)
                )
            case Child(name=name, id=child):
                self._start(self.programs[name], child, ask.input, id, (id, execution, number))
            case Start(name=name, id=child):
                self._start(self.programs[name], child, ask.input, None, None)

    def _perform(self, id: str, number: int, name: str, value: Any) -> tuple[str | None, Failure | None]:
        self.calls.append((id, number, name, value))
        return self._performed(id, number, name, value)

    def _performed(self, id: str, number: int, name: str, value: Any) -> tuple[str | None, Failure | None]:
        try:
            return msgspec.json.encode(self.activities[name](value)).decode(), None
        except Exception as error:
            return None, describe(error, message_id=f"{id}/{number}")

    def _cancel_child(self, id: str, execution: int, number: int) -> None:
        for child, record in list(self.records.items()):
            if record.reply == (id, execution, number) and record.end is None:
                self.cancel(child)


def _plain(activity: Activity[..., Any]) -> Fake:
    """The function of an activity, called without a loop: for `async def` that awaits nothing."""

    def call(value: Any) -> Any:
        coroutine = activity(value)
        try:
            coroutine.send(None)
        except StopIteration as end:
            return end.value
        raise AssertionError(f"{activity.name} waits for something")

    return call
