"""Failures of activities and orchestrations as values: never a pickled exception.

`describe` makes a `Failure` of any exception, however hostile. `ActivityFailed` and `OrchestrationFailed` are what the
code that awaits a call sees. An exception class comes back as itself only where the user declared it
(`errors={"CardDeclined": CardDeclined}`), and only from JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ..bodies.codec import encode
from ..errors import HoldfastError, PoisonError
from ..model.failure import Category, FailureDescription, category_of
from ..model.message import Reason
from ..rules.redact import redact
from ..settings import Settings
from ..worker.interrupts import is_ctrl_c
from .budget import OverBudget

TEXT_CHARS = 2000
_REASONS = {int(each): each for each in Reason}
CHAIN = 5  # causes that are kept
GROUPS = 2  # levels of exception groups whose members are named
ARGUMENTS_BYTES = 16 * 1024

Errors = Mapping[str, type[Exception]]


class Failure(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What went wrong: the name of the exception's class, its text, what caused it, and its category.

    `arguments` are the exception's own, as a JSON list, if they can be written: declared classes are rebuilt from them.
    """

    type: str
    text: str = ""
    reason: int = Reason.HANDLER_EXCEPTION
    category: str = Category.APPLICATION
    message_id: str = ""
    arguments: str | None = None
    causes: tuple[str, ...] = ()
    poison: str | None = None  # a `FailureDescription` as JSON, with the whole message

    def __str__(self) -> str:
        return f"{self.type}: {self.text}" if self.text else self.type


class CallFailed(HoldfastError):
    """A call of an orchestration did not end well.

    `error` is the failure as a value, `category` says who can do something about it, `message_id` is that of the
    message that carried the call: its dead letter has the same.
    """

    what = "Call"

    def __init__(self, name: str, error: Failure) -> None:
        self.name, self.error = name, error
        self.message_id = error.message_id
        # Other errors have one category for the whole class.
        object.__setattr__(self, "category", error.category)
        super().__init__(f"{self.what} {name} failed: {error}")

    @property
    def reason(self) -> Reason:
        """Why, as a number."""
        return _REASONS.get(self.error.reason, Reason.UNKNOWN)

    @property
    def poison(self) -> PoisonError | None:
        """For a call that is poison: counts, ids, and the whole message. None: it is not."""
        if self.error.poison is None:
            return None
        return FailureDescription.from_json(self.error.poison).error

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self.error)


class ActivityFailed(CallFailed):
    """An activity failed for good: its retries are spent, or another try is useless."""

    what = "Activity"


class OrchestrationFailed(CallFailed):
    """An orchestration failed: an exception left its function, it was cancelled, or it is poison."""

    what = "Orchestration"


class UndoFailed(HoldfastError):
    """Some of what a saga had to undo could not be undone. `failures` says what, in the order in which it was tried."""

    category = "application"

    def __init__(self, failures: tuple[tuple[str, Failure], ...]) -> None:
        self.failures = failures
        each = "; ".join(f"{name}: {failure}" for name, failure in failures)
        super().__init__(
            f"{len(failures)} of the compensations of a saga failed and must be done by hand: {each}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.failures,)


def describe(error: BaseException, *, reason: Reason | None = None, message_id: str = "") -> Failure:
    """An exception as a value. It never raises, whatever the exception's own methods do.

    >>> describe(ValueError("no such order")).text
    'no such order'
    """
    if isinstance(error, CallFailed):
        inner = error.error
        return Failure(
            type(error).__name__,
            _text(error),
            inner.reason,
            inner.category,
            inner.message_id,
            None,
            _causes(error),
        )
    why = reason or Reason.HANDLER_EXCEPTION
    return Failure(
        _name(error), _text(error), why, category_of(why), message_id, _arguments(error), _causes(error)
    )


def rebuild(name: str, failure: Failure, errors: Errors, failed: type[CallFailed]) -> Exception:
    """The exception to raise where the call is awaited: one of the declared classes, or `failed`."""
    plain = failed(name, failure)
    declared = errors.get(failure.type)
    if declared is None:
        return plain
    try:
        given = (
            msgspec.json.decode(failure.arguments)
            if failure.arguments
            else [failure.text] * bool(failure.text)
        )
        made = declared(*given)
    except Exception:  # the class takes other arguments today: the failure itself is raised
        return plain
    made.__cause__ = plain
    return made


def _name(error: BaseException) -> str:
    return str.__str__(type(error).__name__)[:200]


def _text(error: BaseException, groups: int = GROUPS) -> str:
    try:
        text = str(error)
        if type(text) is not str:
            text = str.__str__(text)
        text = text[: 2 * TEXT_CHARS].encode("utf-8", "replace").decode().replace("\0", "\\0")
        text = redact(text)
        # An asyncio.TaskGroup itself says only how many of its tasks failed.
        if groups and isinstance(error, BaseExceptionGroup):
            members = (f"{_name(each)}: {_text(each, groups - 1)}" for each in error.exceptions[:CHAIN])
            text = f"{text}: {'; '.join(members)}"
    except BaseException as problem:  # an exception of the user's whose __str__ fails
        if isinstance(problem, OverBudget) or is_ctrl_c(problem):
            raise
        return "(its text cannot be read)"
    return text if len(text) <= TEXT_CHARS else text[:TEXT_CHARS] + "…"


def _arguments(error: BaseException) -> str | None:
    try:
        text = encode(list(error.args), Settings(body_bytes=ARGUMENTS_BYTES))
    except Exception:  # what JSON cannot hold is left out
        return None
    return None if text == "[]" else text


def _causes(error: BaseException) -> tuple[str, ...]:
    chain: list[str] = []
    seen = {id(error)}
    current: BaseException | None = error
    while current is not None and len(chain) < CHAIN:
        members = getattr(current, "exceptions", ()) if isinstance(current, BaseExceptionGroup) else ()
        chain += [f"{_name(each)}: {_text(each)}"[:300] for each in members[: CHAIN - len(chain)]]
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
        if current is None or id(current) in seen:
            break
        seen.add(id(current))
        chain.append(f"{_name(current)}: {_text(current)}"[:300])
    return tuple(chain[:CHAIN])
