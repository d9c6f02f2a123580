"""A kind of request, as a user declares it, and what the calls about requests return."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypedDict, TypeVar, Unpack, overload
from uuid import UUID

from ..bodies import codec
from ..errors import InvalidMessage, InvalidSettings, UsageError
from ..handlers.context import Context
from ..model import names
from ..model.limits import Breaker, SharedRate
from ..model.message import Reason
from ..model.request import Happening, RequestState, Standing
from ..rules.deadline import WITHIN_MAX, WITHIN_MIN
from ..rules.retry import RetryPolicy
from ..settings import RetryProfile

B = TypeVar("B")
R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that was stored. `duplicate`: one with this id was there, and nothing was stored or sent."""

    id: UUID
    deadline: datetime | None
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Resolved:
    """What became of a result. It is kept in any case; `late` and `duplicate` results change nothing."""

    request: UUID
    standing: Standing
    received_at: datetime
    state: RequestState  # of the request, afterwards

    @property
    def accepted(self) -> bool:
        """It was stored: whoever sent it need not send it again."""
        return True

    @property
    def late(self) -> bool:
        return self.standing is Standing.LATE

    @property
    def duplicate(self) -> bool:
        return self.standing is Standing.DUPLICATE


@dataclass(frozen=True, slots=True)
class Answer:
    """What a message says about a request: whose result it is, and whether the other side has failed, and why.

    `result` is what is kept; left out, it is the body of the message.
    """

    request: UUID | str
    failed: str | None = None
    result: Any = ...


@dataclass(frozen=True, slots=True)
class Request(Generic[B, R]):
    """A request, as hooks and `app.requests.get` give it. `result` is the one that decided or was accepted.

    `reason` of a failed one is TIMEOUT, or what the other side said; of a cancelled one why it was cancelled.
    `late`: its result came after the deadline, and was accepted by `accepted_by`.
    """

    id: UUID
    kind: str
    variant: str | None
    subject: str | None
    state: RequestState
    reason: str | None
    body: B
    result: R  # None without one: of a request that is open, cancelled or has timed out
    created_at: datetime
    deadline: datetime
    ended_at: datetime | None = None
    timed_out_at: datetime | None = None
    received_at: datetime | None = None
    accepted_at: datetime | None = None
    accepted_by: str | None = None
    results: int = 0
    late_results: int = 0

    @property
    def late(self) -> bool:
        return self.accepted_at is not None


def default_answer(body: Any) -> Answer:
    """{"request": "...", "failed": "..."}: the id of the request, and why it failed if it did."""
    if not isinstance(body, dict) or "request" not in body:
        raise InvalidMessage(
            "It has no request: the body must be an object with `request`, the id of the request. For another shape, "
            "request_kind(answer=...) makes an Answer."
        )
    return Answer(body["request"], body.get("failed"))


class HookKeywords(TypedDict, total=False):
    """The options of a hook: those of a handler. What they mean: `Holdfast.handler`."""

    retry: RetryProfile | RetryPolicy | None
    timeout: float | None
    concurrency: int | None
    errors: Mapping[type[BaseException], Reason] | None
    breaker: str | Breaker | None
    rate: str | SharedRate | None
    catch_up: str | None


Declare = Callable[["RequestKind[Any, Any]", Happening, Callable[..., Any], HookKeywords], None]


class Hook(Generic[B, R]):
    """Declares a handler that is called when something happens to requests of one kind, once for each request.

    `@grading.completed`, or with options `@grading.completed(retry="patient")`.
    """

    def __init__(self, kind: RequestKind[Any, Any], happening: Happening) -> None:
        self._kind, self._happening = kind, happening

    @overload
    def __call__(self, function: Callable[[Request[B, R]], T], /) -> Callable[[Request[B, R]], T]: ...
    @overload
    def __call__(
        self, function: Callable[[Request[B, R], Context], T], /
    ) -> Callable[[Request[B, R], Context], T]: ...
    @overload
    def __call__(self, /, **options: Unpack[HookKeywords]) -> Hook[B, R]: ...
    def __call__(self, function: Any = None, /, **options: Unpack[HookKeywords]) -> Any:
        if function is None:
            return _WithOptions(self._kind, self._happening, options)
        self._kind.declare(self._kind, self._happening, function, options)
        return function


class _WithOptions(Hook[B, R]):
    def __init__(self, kind: RequestKind[Any, Any], happening: Happening, options: HookKeywords) -> None:
        super().__init__(kind, happening)
        self._options = options

    def __call__(self, function: Any = None, /, **options: Unpack[HookKeywords]) -> Any:
        return super().__call__(function, **{**self._options, **options})


@dataclass(frozen=True)
class RequestKind(Generic[B, R]):
    """A kind of request: how long its answer may take. `app.request_kind(...)` makes one."""

    name: str
    sla: Mapping[str | None, timedelta]  # by variant; None: the same for all
    soft: float | None
    answer: Callable[[Any], Answer | None]
    takes: Callable[[str], B]
    gives: Callable[[str], R]
    declare: Declare

    @property
    def completed(self) -> Hook[B, R]:
        """Calls the function below when a request was answered in time, or a late answer was accepted."""
        return Hook(self, Happening.COMPLETED)

    @property
    def failed(self) -> Hook[B, R | None]:
        """Calls the function below when a request timed out or was cancelled, or the other side said that it failed."""
        return Hook(self, Happening.FAILED)

    @property
    def delayed(self) -> Hook[B, R | None]:
        """Calls the function below when the soft threshold of a request has passed without an answer."""
        return Hook(self, Happening.DELAYED)

    def within(self, variant: str | None) -> timedelta:
        """How long a request may take; InvalidMessage if this variant has no time."""
        found = self.sla.get(variant) or self.sla.get(None)
        if found is None:
            given = "no variant" if variant is None else f"the variant {variant!r}"
            raise InvalidMessage(
                f"Nothing was stored: a request of kind {self.name!r} with {given} has no deadline. Give variant=, one "
                f"of {', '.join(repr(each) for each in self.sla)}, or within= or deadline=."
            )
        return found


def kind_name(name: object) -> str:
    checked = names.own_name(name, "The kind of request")
    names.queue_name(f"{checked}.completed")
    return checked


def service_levels(name: str, sla: object) -> dict[str | None, timedelta]:
    """How long each variant may take; without a mapping the same for all of them."""
    if isinstance(sla, Mapping):
        found: dict[str | None, timedelta] = {
            names.text(variant, "A variant of a request", 200, InvalidSettings): duration(
                each, f"Kind {name!r}: sla[{variant!r}]", InvalidSettings
            )
            for variant, each in sla.items()
        }
        if found:
            return found
    elif sla is not None:
        return {None: duration(sla, f"Kind {name!r}: sla", InvalidSettings)}
    raise InvalidSettings(
        f"Kind {name!r} has no deadline: a request without one would wait for ever. Give sla=, in seconds, or one for "
        'each variant: sla={"writing": 1200, "speaking": 3600}.'
    )


def duration(given: object, what: str, error: type[UsageError]) -> timedelta:
    """Seconds or a timedelta, in bounds."""
    try:
        found = given if isinstance(given, timedelta) else timedelta(seconds=float(given))  # type: ignore[arg-type]
        if isinstance(given, bool) or not WITHIN_MIN <= found <= WITHIN_MAX:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise error(
            f"{what} is {given!r}, and must be seconds or a timedelta, from a millisecond to ten years."
        ) from None
    return found


def soft_threshold(name: str, soft: object) -> float | None:
    """The part of its time after which a request is delayed."""
    if soft is None:
        return None
    if isinstance(soft, bool) or not isinstance(soft, int | float) or not 0 < soft < 1:
        raise InvalidSettings(
            f"Kind {name!r}: soft={soft!r} must be between 0 and 1: with 0.75 it counts as delayed when three "
            "quarters of its time have passed."
        )
    return float(soft)


def decoder(shape: Any) -> Callable[[str], Any]:
    return codec.decoder_for(Any if shape is None else shape)
