"""What a user declares: activities and orchestrations, callable with their own types.

    @app.activity(retry="api")
    async def charge(order: Order) -> Receipt: ...

    receipt = await charge(order)        # in an orchestration it asks for the activity; elsewhere it runs the function

`charge(order)` is always a coroutine, so `asyncio.gather` and `TaskGroup.create_task` take it. `charge.using(...)` is
the same call with other options, and keeps the types.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from asyncio import events
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Generic, Literal, ParamSpec, Protocol, TypeVar, get_type_hints, overload

from ..bodies.codec import Unreadable, decoder_for
from ..errors import InvalidSettings, UsageError
from ..handlers.context import Context
from ..model import names
from ..model.message import Reason
from ..rules.retry import RetryPolicy, policy
from ..settings import RetryProfile
from .attributes import checked
from .failures import ActivityFailed, CallFailed, Errors, OrchestrationFailed, describe, rebuild
from .flow import Flow
from .host import NO_OPTIONS, Host, Inlined, Options, Promised
from .journal import Answered
from .loop import Loop

P = ParamSpec("P")
B = TypeVar("B")
R = TypeVar("R")
OnDeadLetter = Literal["answer", "wait"]  # what a dead letter of an activity is to its instance
NO_ERRORS: Errors = MappingProxyType({})


def host_of_code() -> Host | None:
    """The instance whose code is running; None: this is not an orchestration."""
    loop = events._get_running_loop()
    return loop.host if isinstance(loop, Loop) else None


async def answer(
    name: str, asked: tuple[int, Promised], host: Host, decode: Callable[[str], Any], errors: Errors,
    failed: type[CallFailed],
) -> Any:  # fmt: skip
    """What a call gives, once it is answered. If its task is cancelled before, the call is withdrawn."""
    number, promised = asked
    try:
        answered = promised if isinstance(promised, Answered) else await promised
    except asyncio.CancelledError:
        host.withdraw(number)
        raise
    if answered.failure is not None:
        raise rebuild(name, answered.failure, errors, failed)
    try:
        return None if answered.value is None else decode(answered.value)
    except Unreadable as error:
        failure = describe(error, reason=error.reason, message_id=answered.message)
        raise failed(name, failure) from None


@dataclass(frozen=True, slots=True)
class Takes:
    """The value that a function takes: the name of its parameter, if it has one, and whether it must be given."""

    name: str | None
    is_needed: bool


@dataclass(frozen=True, slots=True, eq=False)
class Activity(Generic[P, R]):
    """An activity: a handler whose result goes to the orchestration that called it."""

    name: str
    function: Callable[..., Any]
    decode: Callable[[str], Any]
    takes_context: bool = False
    options: Options = NO_OPTIONS
    errors: Errors = field(default_factory=dict)
    on_dead: OnDeadLetter = "answer"
    queued: tuple[str, ...] = ()  # options that it declares and that need a queue
    inline_seconds_max: float = math.inf
    takes: Takes | None = None

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        host = host_of_code()
        if host is None:
            own: R = await self._run(args, kwargs)
            return own
        # The second way costs more, and almost all calls have one value.
        if len(args) == 1 and not kwargs and self.takes is not None and self.takes.name is not None:
            value = args[0]
        else:
            value = _only(self.name, self.takes, args, kwargs)
        asked = host.call(self.name, value, self.options)
        result: R = await answer(self.name, asked, host, self.decode, self.errors, ActivityFailed)
        return result

    def using(
        self, *,
        retry: RetryProfile | RetryPolicy | None = None, timeout: float | None = None, queue: str | None = None,
        deadline: datetime | timedelta | None = None, inline: Inlined | None = None,
    ) -> Activity[P, R]:  # fmt: skip
        """The same activity with other options for one call; what is left out stays as declared.

        `retry` and `timeout` travel with the call: the worker that runs it judges it by them. `inline=True` and
        `inline="turn"` run it inside the turn, `inline=False` by its queue.
        """
        now = self.options
        if retry is not None:
            policy(retry)  # an unknown name is refused here
        if timeout is not None and not _is_seconds(timeout):
            raise InvalidSettings(
                f"{self.name}.using(timeout={timeout!r}) must be a positive number of seconds."
            )
        if queue is not None:
            names.queue_name(queue)
        _check_deadline(self.name, deadline)
        options = Options(
            retry=now.retry if retry is None else retry,
            timeout=now.timeout if timeout is None else timeout,
            queue=now.queue if queue is None else queue,
            deadline=now.deadline if deadline is None else deadline,
            inline=now.inline if inline is None else inline,
        )
        return replace(self, options=options).checked()

    def checked(self) -> Activity[P, R]:
        """The same; InvalidSettings if it is to run inline and has what only a queue can give."""
        options = self.options
        if options.inline not in (True, False, "turn"):
            raise InvalidSettings(
                f'Activity {self.name!r}: inline={options.inline!r} must be True, False or "turn".'
            )
        if not options.inline:
            return self
        given = [name for name in ("queue", "deadline") if getattr(options, name) is not None]
        if refused := [*self.queued, *given]:
            raise InvalidSettings(
                f"Activity {self.name!r} is to run inline, inside the turn, and has {', '.join(refused)}: that needs "
                "its queue. Leave one of them out."
            )
        if options.timeout is not None and options.timeout > self.inline_seconds_max:
            raise InvalidSettings(
                f"Activity {self.name!r} is to run inline with timeout={options.timeout:g}, and "
                f"{self.inline_seconds_max:g} s, half of the setting `timeout`, is the most: a turn holds its lease. "
                "Call it by its queue, without inline."
            )
        return self

    async def _run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if self.takes_context:
            raise UsageError(
                f"Activity {self.name!r} wants a Context, which only a worker can give: call {self.name}.function(...) "
                "with one of your own, or await it in an orchestration."
            )
        result = self.function(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result


@dataclass(frozen=True, slots=True)
class Program:
    """What an engine must know to run an orchestration."""

    name: str
    version: str
    function: Callable[..., Awaitable[Any]]
    decode: Callable[[str], Any] | None  # of the input; None: it takes none
    flow: str | None  # the parameter that takes the Flow
    takes: Takes | None = None

    @property
    def queue(self) -> str:
        return f"{self.name}@{self.version}"

    def code(self, input: str | None, flow: Flow) -> Awaitable[Any]:
        """Call the function: its coroutine. Raises Unreadable if the input is not what it takes."""
        given = {} if self.flow is None else {self.flow: flow}
        if self.decode is None:
            return self.function(**given)
        return self.function(self.decode("null" if input is None else input), **given)


class Starter(Protocol):
    """Starts an instance from outside: the application gives it."""

    def __call__(
        self, program: Program, value: Any, *, id: str | None, deadline: datetime | timedelta | None,
        attributes: Mapping[str, str] | None,
    ) -> str: ...  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Orchestration(Generic[P, R]):
    """An orchestration: awaited in another it is a child; `start` starts it for itself."""

    program: Program
    decode: Callable[[str], Any]  # of its result
    options: Options = NO_OPTIONS
    errors: Errors = field(default_factory=dict)
    id: str | None = None
    starter: Starter | None = None

    @property
    def name(self) -> str:
        return self.program.name

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        host = host_of_code()
        if host is None:
            raise UsageError(
                f"Orchestration {self.name!r} can be awaited only in another orchestration. "
                f"From elsewhere, start it: {self.name}.start(...)."
            )
        value = _only(self.name, self.program.takes, args, kwargs)
        asked = host.child(self.program.queue, self.id, value, self.options)
        result: R = await answer(self.name, asked, host, self.decode, self.errors, OrchestrationFailed)
        return result

    def using(
        self, *, id: str | None = None, deadline: datetime | timedelta | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> Orchestration[P, R]:  # fmt: skip
        """The same with an id, a deadline or attributes for one call."""
        _check_deadline(self.name, deadline)
        options = self.options if deadline is None else replace(self.options, deadline=deadline)
        if attributes is not None:
            options = replace(options, attributes=checked(attributes))
        own = self.id if id is None else names.instance_id(id)
        return replace(self, id=own, options=options)

    def start(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Start an instance and do not wait for it. Its id; set one with `using(id=...)`."""
        host = host_of_code()
        value = _only(self.name, self.program.takes, args, kwargs)
        if host is not None:
            return host.start(self.program.queue, self.id, value, self.options)
        if self.starter is None:
            raise UsageError(f"Orchestration {self.name!r} belongs to no application that could start it.")
        options = self.options
        return self.starter(
            self.program, value, id=self.id, deadline=options.deadline, attributes=options.attributes
        )


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and 0 < value < math.inf


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _check_deadline(name: str, deadline: object) -> None:
    if isinstance(deadline, datetime) and deadline.tzinfo is None:
        raise InvalidSettings(f"{name}.using(deadline={deadline}) needs a time zone, or a timedelta.")
    if not isinstance(deadline, datetime | timedelta | None):
        raise InvalidSettings(f"{name}.using(deadline={deadline!r}) must be a datetime or a timedelta.")


def _only(name: str, takes: Takes | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The one value of a call. `takes` is what the function declares, where that is known."""
    given = (*args, *kwargs.values())
    wrong = [] if takes is None else [each for each in kwargs if each != takes.name]
    if wrong:
        what = "one value" if takes is not None and takes.name is not None else "no value"
        raise UsageError(
            f"{name} takes {what} and was given {', '.join(f'{each}=' for each in wrong)}. "
            f"Options of a call, such as an id, belong into {name}.using(...)."
        )
    if len(given) > 1:
        raise UsageError(
            f"{name} takes one value and was given {len(given)}: put them into a dataclass or a dict."
        )
    if given and takes is not None and takes.name is None:
        raise UsageError(
            f"{name} takes no value and was given one: leave it out, or declare a parameter for it."
        )
    if not given and takes is not None and takes.is_needed:
        raise UsageError(f"{name} takes one value ({takes.name}) and was given none.")
    return given[0] if given else None


# --- Declaring ----------------------------------------------------------------------------------------------


class ActivityDeclaration(Protocol):
    """Makes an activity of the function below."""

    @overload
    def __call__(self, function: Callable[[B, Context], Awaitable[R]]) -> Activity[[B], R]: ...
    @overload
    def __call__(self, function: Callable[[B], Awaitable[R]]) -> Activity[[B], R]: ...
    @overload
    def __call__(self, function: Callable[[], Awaitable[R]]) -> Activity[[], R]: ...
    @overload
    def __call__(self, function: Callable[[B, Context], R]) -> Activity[[B], R]: ...
    @overload
    def __call__(self, function: Callable[[B], R]) -> Activity[[B], R]: ...
    @overload
    def __call__(self, function: Callable[[], R]) -> Activity[[], R]: ...


class OrchestrationDeclaration(Protocol):
    """Makes an orchestration of the function below."""

    @overload
    def __call__(self, function: Callable[[B, Flow], Awaitable[R]]) -> Orchestration[[B], R]: ...
    @overload
    def __call__(self, function: Callable[[Flow], Awaitable[R]]) -> Orchestration[[], R]: ...
    @overload
    def __call__(self, function: Callable[[B], Awaitable[R]]) -> Orchestration[[B], R]: ...
    @overload
    def __call__(self, function: Callable[[], Awaitable[R]]) -> Orchestration[[], R]: ...


def activity(
    *,
    name: str | None = None,
    options: Options = NO_OPTIONS,
    errors: Errors = NO_ERRORS,
    on_dead: OnDeadLetter = "answer",
) -> ActivityDeclaration:
    """Declare an activity. The application wraps this and registers the handler, too."""

    def declare(function: Callable[..., Any]) -> Activity[..., Any]:
        called = name or function.__name__
        if on_dead not in ("answer", "wait"):
            raise InvalidSettings(f'Activity {called!r}: on_dead={on_dead!r} must be "answer" or "wait".')
        _check_errors("Activity", called, errors)
        hints = _hints("Activity", called, function)
        taken, context = _parameters("Activity", called, function, hints, Context)
        decode = decoder_for(hints.get("return", Any))
        takes = Takes(taken, taken is not None and not _can_be_none(hints.get(taken, Any)))
        return Activity(called, function, decode, context is not None, options, errors, on_dead, takes=takes)

    return declare


def orchestration(
    *, version: str = "1", name: str | None = None, errors: Errors = NO_ERRORS, starter: Starter | None = None
) -> OrchestrationDeclaration:
    """Declare an orchestration. The application wraps this and registers the queue `name@version`, too."""

    def declare(function: Callable[..., Any]) -> Orchestration[..., Any]:
        called = name or function.__name__
        _check_errors("Orchestration", called, errors)
        if not inspect.iscoroutinefunction(function):
            raise InvalidSettings(f"Orchestration {called!r} must be an `async def`.")
        for what, text in (("name", called), ("version", version)):
            if not _is_text(text) or "@" in text:
                raise InvalidSettings(
                    f"Orchestration {called!r}: its {what} {text!r} must be text, not empty and without an @."
                )
        hints = _hints("Orchestration", called, function)
        taken, flow = _parameters("Orchestration", called, function, hints, Flow)
        decode = None if taken is None else decoder_for(hints.get(taken, Any))
        takes = Takes(taken, taken is not None and not _can_be_none(hints.get(taken, Any)))
        program = Program(called, version, function, decode, flow, takes)
        return Orchestration(program, decoder_for(hints.get("return", Any)), errors=errors, starter=starter)

    return declare


def _check_errors(what: str, name: str, errors: Mapping[str, object]) -> None:
    for each, kind in errors.items():
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise InvalidSettings(
                f"{what} {name!r}: returns={{{each!r}: {kind!r}}} must name a class of exceptions."
            )


def _hints(what: str, name: str, function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except Exception as error:  # an annotation that cannot be resolved is the user's to mend
        raise InvalidSettings(f"{what} {name!r}: its annotations cannot be resolved: {error}.") from error


def _can_be_none(type: Any) -> bool:
    """Whether a call without a value, which sends null, can be read."""
    try:
        return decoder_for(type)("null") is None
    except Unreadable:
        return False


def _parameters(
    what: str, name: str, function: Callable[..., Any], hints: Mapping[str, Any], given: type
) -> tuple[str | None, str | None]:
    """The names of the parameters that take the input and what we give (a Flow, a Context)."""
    taken = own = None
    for parameter in inspect.signature(function).parameters.values():
        if hints.get(parameter.name) is given:
            own = parameter.name
        elif taken is None and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            taken = parameter.name
        elif parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD,
        ):  # fmt: skip
            raise InvalidSettings(
                f"{what} {name!r}: parameter {parameter.name!r} would get no value; it takes one value and, "
                f"annotated {given.__name__}, what we give. Put the others into a dataclass."
            )
    return taken, own


__all__ = ["Activity", "Orchestration", "Program", "Reason", "activity", "orchestration"]
