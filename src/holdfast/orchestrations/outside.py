"""Orchestrations from outside: start, signal, cancel, ask for the result. In the caller's transaction where given."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import isnan
from typing import Any, ParamSpec, Protocol, TypeVar, overload

import msgspec

from ..bodies.codec import Unreadable, decoder_for, encode
from ..clock import Clock, micros
from ..errors import InstanceExists, InvalidMessage, NotEnded, NotFound, UsageError
from ..model import names
from ..model.ids import new_id
from ..model.instance import InstanceStatus
from ..model.message import NewMessage
from ..rules.describing import storable
from ..store.plans import instances
from ..store.plans.instances import Shown
from ..store.statement import Runnable
from .attributes import attributes_text, checked
from .declared import Orchestration, Program
from .early import KEPT_DAYS
from .failures import OrchestrationFailed
from .leaving import Result
from .messages import EARLY, START, StartBody, cancel_message, resume_message, signal_message, written
from .place import Place

B = TypeVar("B")
P = ParamSpec("P")
T = TypeVar("T")
LOOKS_EVERY = 0.05  # seconds, for a result
WHY_CHARS = 2000  # of the reason of a cancellation


class Storing(Protocol):
    """Runs plans in the caller's transaction, or in one of their own."""

    def store_with(self, plan: Callable[[], Runnable[T]], on: object) -> T: ...
    async def astore_with(self, plan: Callable[[], Runnable[T]], on: object) -> T: ...


@dataclass(frozen=True, slots=True)
class Begin:
    """The start of an instance: its first message, and its attributes as JSON."""

    message: NewMessage
    attributes: str | None

    def plan(self) -> Runnable[bool]:
        return instances.begin(self.message, self.attributes)


def program_of(orchestration: object) -> Program:
    found = getattr(orchestration, "program", None)
    if isinstance(found, Program):
        return found
    raise UsageError(
        f"Nothing was started: {ascii(orchestration)[:100]} is no orchestration. Give the function that "
        "@app.orchestration() declares; by its name it can be started with SQL (docs/orchestrations.md)."
    )


class Orchestrations:
    """The instances of an application: `app.orchestrations`."""

    def __init__(self, place: Place, storing: Callable[[], Storing]) -> None:
        self.place, self._storing = place, storing
        self.declared: dict[str, Orchestration[..., Any]] = {}  # by queue, name@version

    # -- starting

    @overload
    def start(
        self, orchestration: Orchestration[[], Any], *, id: str | None = None, on: object = None,
        deadline: datetime | timedelta | None = None, attributes: Mapping[str, str] | None = None,
    ) -> str: ...  # fmt: skip
    @overload
    def start(
        self, orchestration: Orchestration[[B], Any], value: B, *, id: str | None = None, on: object = None,
        deadline: datetime | timedelta | None = None, attributes: Mapping[str, str] | None = None,
    ) -> str: ...  # fmt: skip
    def start(
        self, orchestration: Orchestration[..., Any], value: Any = None, *, id: str | None = None, on: object = None,
        deadline: datetime | timedelta | None = None, attributes: Mapping[str, str] | None = None,
    ) -> str:  # fmt: skip
        """Start an instance; its id. InstanceExists if there is one with this id. `on`: your connection or session.

        `attributes`: names and short texts by which people find it; they are stored as they are, never sealed.
        """
        begin = self._begin(program_of(orchestration), value, id, deadline, attributes)
        return self._taken(begin, self._storing().store_with(begin.plan, on))

    @overload
    async def astart(
        self, orchestration: Orchestration[[], Any], *, id: str | None = None, on: object = None,
        deadline: datetime | timedelta | None = None, attributes: Mapping[str, str] | None = None,
    ) -> str: ...  # fmt: skip
    @overload
    async def astart(
        self, orchestration: Orchestration[[B], Any], value: B, *, id: str | None = None, on: object = None,
        deadline: datetime | timedelta | None = None, attributes: Mapping[str, str] | None = None,
    ) -> str: ...  # fmt: skip
    async def astart(
        self, orchestration: Orchestration[..., Any], value: Any = None, *, id: str | None = None, on: object = None,
        deadline: datetime | timedelta | None = None, attributes: Mapping[str, str] | None = None,
    ) -> str:  # fmt: skip
        """Like `start`, for async code and async connections or sessions."""
        begin = self._begin(program_of(orchestration), value, id, deadline, attributes)
        return self._taken(begin, await self._storing().astore_with(begin.plan, on))

    def starter(
        self, program: Program, value: Any, *, id: str | None, deadline: datetime | timedelta | None,
        attributes: Mapping[str, str] | None,
    ) -> str:  # fmt: skip
        """For `fulfil.start(order)`."""
        begin = self._begin(program, value, id, deadline, attributes)
        return self._taken(begin, self._storing().store_with(begin.plan, None))

    def _begin(
        self, program: Program, value: Any, id: str | None, deadline: datetime | timedelta | None,
        attributes: Mapping[str, str] | None,
    ) -> Begin:  # fmt: skip
        own = str(new_id()) if id is None else names.instance_id(id)
        try:
            until = self.place.now() + deadline if isinstance(deadline, timedelta) else deadline
        except OverflowError:
            raise UsageError(
                f"Orchestration {program.queue} was not started: its deadline {deadline} ends after the year 9999."
            ) from None
        if not isinstance(until, datetime | None):
            raise UsageError(
                f"Orchestration {program.queue} was not started: its deadline {until!r} is a {type(until).__name__}. "
                "Give a datetime with a time zone, or a timedelta."
            )
        if until is not None and until.tzinfo is None:
            raise UsageError(
                f"Orchestration {program.queue} was not started: its deadline {until} has no time zone. "
                "Give a datetime with one, or a timedelta."
            )
        text = None if value is None else encode(value, self.place.settings)
        found = checked(attributes)
        body = StartBody(text, None, None if until is None else micros(until), attributes=found)
        message = self.place.pen.message(START, written(body), queue=program.queue, stream=own)
        return Begin(message, attributes_text(found))

    def _taken(self, begin: Begin, is_new: bool) -> str:
        message = begin.message
        if not is_new:
            raise InstanceExists(
                f"Orchestration {message.queue} was not started: an instance with the id {message.stream!r} exists "
                "already. Give it another id, or ask for the result of that one."
            )
        return message.stream or ""

    # -- signals and cancellation

    def signal(self, id: str, name: str, body: object = None, *, on: object = None) -> None:
        """Send a signal to an instance. One that has not started yet gets it when it does."""
        message = self._signal(id, name, body)
        self._sent(
            id, f"signal {name!r}", self._storing().store_with(lambda: instances.send(id, message, EARLY), on)
        )

    async def asignal(self, id: str, name: str, body: object = None, *, on: object = None) -> None:
        """Like `signal`, for async code and async connections or sessions."""
        message = self._signal(id, name, body)
        sent = await self._storing().astore_with(lambda: instances.send(id, message, EARLY), on)
        self._sent(id, f"signal {name!r}", sent)

    def cancel(self, id: str, why: str | None = None, *, on: object = None) -> None:
        """Ask an instance to end. Its code sees a CancelledError, and may undo what it has done.

        One that is paused tries once more; if its code still cannot go on, the cancellation waits for `resume`.
        """
        message = self._cancel(id, why)
        sent = self._storing().store_with(lambda: instances.send(id, message, None, resume_message([id])), on)
        self._sent(id, "cancel", sent, early=False)

    async def acancel(self, id: str, why: str | None = None, *, on: object = None) -> None:
        """Like `cancel`, for async code and async connections or sessions."""
        message = self._cancel(id, why)
        sent = await self._storing().astore_with(
            lambda: instances.send(id, message, None, resume_message([id])), on
        )
        self._sent(id, "cancel", sent, early=False)

    def _signal(self, id: str, name: str, body: object) -> NewMessage:
        text = None if body is None else encode(body, self.place.settings)
        return signal_message(self.place.pen, id, name, text, self.place.now() + timedelta(days=KEPT_DAYS))

    def _cancel(self, id: str, why: str | None) -> NewMessage:
        if why is not None and not isinstance(why, str):
            raise UsageError(
                f"Nothing was stored: the reason of a cancellation must be text and is a {type(why).__name__}."
            )
        text = "" if why is None else storable(why, WHY_CHARS)
        return cancel_message(self.place.pen, id, text)

    def _sent(self, id: str, what: str, state: str | None, *, early: bool = True) -> None:
        if state is None and not early:
            raise NotFound(f"There is no instance {id!r} to {what}.")
        if state is not None and state not in instances.OPEN:
            raise UsageError(f"Nothing was stored: instance {id!r} is {state}, so {what} would reach nobody.")

    # -- looking

    def status(self, id: str) -> InstanceStatus:
        """Where an instance is; NotFound if there is none."""
        return self._status(self._found(id, self.place.store().read(instances.show(id))))

    async def astatus(self, id: str) -> InstanceStatus:
        return self._status(self._found(id, await self.place.store().arun(instances.show(id))))

    def result(self, id: str, *, timeout: float = 0.0) -> Any:
        """What an instance returned, waiting for its end so many seconds: then NotEnded, a TimeoutError.

        OrchestrationFailed if it failed or was cancelled.
        """
        clock, end = self.place.clock(), self._end(timeout)
        while (shown := self._found(id, self.place.store().read(instances.show(id)))).ended_at is None:
            self._in_time(shown, clock, end)
            threading.Event().wait(LOOKS_EVERY)
        return self._result(shown)

    async def aresult(self, id: str, *, timeout: float = 0.0) -> Any:
        """Like `result`, for async code."""
        clock, end = self.place.clock(), self._end(timeout)
        while (shown := self._found(id, await self.place.store().arun(instances.show(id)))).ended_at is None:
            self._in_time(shown, clock, end)
            await asyncio.sleep(LOOKS_EVERY)
        return self._result(shown)

    def _end(self, timeout: object) -> float:
        if not isinstance(timeout, int | float) or isnan(timeout):
            raise UsageError(
                f"The timeout {timeout!r} is not a number: give seconds; math.inf waits without a limit."
            )
        return self.place.clock().monotonic() + timeout

    def _in_time(self, shown: Shown, clock: Clock, end: float) -> None:
        if clock.monotonic() < end:
            return
        if shown.state == "running":
            raise NotEnded(f"Instance {shown.id!r} has not ended yet: wait longer, or ask for its status.")
        why = (shown.trouble or "").partition("\n")[0].rstrip(".")
        raise NotEnded(
            f"Instance {shown.id!r} has not ended yet, it is {shown.state}{': ' * bool(why)}{why}."
        )

    def _found(self, id: str, shown: Shown | None) -> Shown:
        if shown is None:
            raise NotFound(f"There is no instance {id!r}.")
        return shown

    def _status(self, shown: Shown) -> InstanceStatus:
        text = None if shown.status is None else self.place.pen.open(f"status/{shown.id}", shown.status)
        return shown.as_status(
            None if text is None else msgspec.json.decode(text),
            {} if shown.attributes is None else msgspec.json.decode(shown.attributes, type=dict[str, str]),
        )

    def _result(self, shown: Shown) -> Any:
        assert shown.result is not None
        text = self.place.pen.open(f"result/{shown.id}", shown.result)
        found = msgspec.json.decode(text, type=Result)
        if found.failure is not None:
            raise OrchestrationFailed(shown.queue, found.failure)
        if found.value is None:
            return None
        declared = self.declared.get(shown.queue)
        try:
            return decoder_for()(found.value) if declared is None else declared.decode(found.value)
        except Unreadable as error:
            raise InvalidMessage(
                f"Instance {shown.id!r} is {shown.state}, and its result cannot be read as orchestration {shown.queue} "
                f"declares it: {error}. `holdfast orchestrations result` prints it as JSON; correct the annotation, or "
                "what the function returns."
            ) from None
