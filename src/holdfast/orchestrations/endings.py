"""How the function of an orchestration ended: the command in the journal, and the end of its execution."""

from __future__ import annotations

import asyncio
from typing import Any

from ..bodies.codec import Unreadable, encode
from ..model.message import Reason
from ..settings import Settings
from .failures import Failure, describe
from .flow import ContinueAsNew
from .journal import Cancel, Command, Complete, Fail, fingerprint
from .outcome import End
from .refusals import in_our_words


def ends_with_again(main: asyncio.Task[Any]) -> bool:
    """Whether a task that has called `flow.again` ended because of that, or returned."""
    error = _error_of(main)
    return error is None or _contains(error, ContinueAsNew)


def how_it_ended(
    main: asyncio.Task[Any], queue: str, limits: Settings, late: str | None, *, is_cancelled: bool
) -> tuple[Command, End]:
    """`late`: the text of its failure if its deadline has passed. `is_cancelled`: somebody outside wanted it to end."""
    error = _error_of(main)
    if error is None:
        try:
            value = main.result()
            text = encode(value, limits)
            return Complete(fingerprint(value)), End("completed", result=text)
        except Exception as problem:  # a result that cannot be stored, or whose own methods fail
            return _failed(describe(problem, reason=Reason.SERIALIZATION_ERROR))
    if isinstance(error, asyncio.CancelledError):
        if late is not None:
            return _failed(Failure("TimeoutError", late, Reason.TIMEOUT_EXCEEDED, "infrastructure"))
        if is_cancelled:
            return Cancel(), End("cancelled")
    if isinstance(error, Unreadable):
        text = f"The input of {queue} cannot be read: {error}"
        return _failed(Failure("Unreadable", text, error.reason))
    return _failed(describe(in_our_words(error)))


def _error_of(main: asyncio.Task[Any]) -> BaseException | None:
    return asyncio.CancelledError() if main.cancelled() else main.exception()


def _failed(failure: Failure) -> tuple[Command, End]:
    return Fail(failure), End("failed", failure=failure)


def _contains(error: BaseException, kind: type[BaseException]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_contains(each, kind) for each in error.exceptions)
    return isinstance(error, kind)
