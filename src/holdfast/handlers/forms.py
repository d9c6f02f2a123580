"""The functions that `@app.handler(...)` accepts, for a type checker: which can be handlers, and of which bodies.

A function takes the body first, and a `Context` if it wants one; with batch= it takes a list of each. Any other
parameter needs a default. The forms are tried from the top; a function that fits none is refused before it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, TypedDict, TypeVar, overload

from ..model.limits import Breaker, SharedRate, SharedSlots
from ..model.message import Reason
from ..rules.aftermath import CopyTo
from ..rules.policy import OnDead, Ordering
from ..rules.recovery import Recovery
from ..rules.retry import RetryPolicy
from ..settings import RetryProfile
from .context import Context
from .declare import AnyHandler, Handler, Key

B = TypeVar("B")
B_in = TypeVar("B_in", contravariant=True)
C_in = TypeVar("C_in", contravariant=True)
R = TypeVar("R")
R_out = TypeVar("R_out", covariant=True)


class HandlerKeywords(TypedDict, total=False):
    """The keywords of `@app.handler(...)` except batch. Their meaning: `Holdfast.handler`."""

    name: str | None
    family: str | None
    renamed_from: str | None
    retry: RetryProfile | RetryPolicy | None
    order: Ordering
    on_dead: OnDead
    ordered: bool
    timeout: float | None
    concurrency: int | None
    per_key: int | None
    key: Key | None
    steps: Sequence[str]
    errors: Mapping[type[BaseException], Reason] | None
    breaker: str | Breaker | None
    rate: str | SharedRate | None
    cluster_concurrency: int | SharedSlots | None
    catch_up: str | None
    after_death: Literal["hold", "alert"] | CopyTo | AnyHandler
    recovery: Mapping[Reason, Recovery] | None


class TakesCtx(Protocol[B_in, C_in, R_out]):
    """A keyword alone can be a context too, if it is called `ctx`: a type checker must know its name."""

    def __call__(self, body: B_in, /, *, ctx: C_in) -> R_out: ...


class TakesContext(Protocol[B_in, C_in, R_out]):
    """Or `context`."""

    def __call__(self, body: B_in, /, *, context: C_in) -> R_out: ...


class Declaration(Protocol):
    """Makes a handler of the function below."""

    @overload
    def __call__(self, function: Callable[[B], R]) -> Handler[B, [B], R]: ...
    @overload
    def __call__(self, function: Callable[[B, Context], R]) -> Handler[B, [B, Context], R]: ...
    @overload
    def __call__(self, function: TakesCtx[B, Context, R]) -> Handler[B, ..., R]: ...
    @overload
    def __call__(self, function: TakesContext[B, Context, R]) -> Handler[B, ..., R]: ...
    @overload
    def __call__(self, function: Callable[[], R]) -> Handler[None, [], R]: ...


class BatchDeclaration(Protocol):
    """Makes a handler of the function below, which takes a list of bodies."""

    @overload
    def __call__(self, function: Callable[[list[B]], R]) -> Handler[B, [list[B]], R]: ...
    @overload
    def __call__(
        self, function: Callable[[list[B], list[Context]], R]
    ) -> Handler[B, [list[B], list[Context]], R]: ...
    @overload
    def __call__(self, function: TakesCtx[list[B], list[Context], R]) -> Handler[B, ..., R]: ...
    @overload
    def __call__(self, function: TakesContext[list[B], list[Context], R]) -> Handler[B, ..., R]: ...
