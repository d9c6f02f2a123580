"""Stepping a coroutine without a task of its own, and helpers for that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context as Variables
from inspect import iscoroutine
from typing import Any

from ..errors import UsageError
from ..handlers.consumer import SingleConsumer
from ..handlers.context import Context
from ..model.work import Leased


class Suspended:
    """A coroutine that has been stepped once already and has yielded `yielded`; awaiting it continues it."""

    __slots__ = ("coroutine", "variables", "yielded")

    def __init__(self, coroutine: Any, yielded: Any, variables: Variables) -> None:
        self.coroutine, self.yielded, self.variables = coroutine, yielded, variables

    def __await__(self) -> Generator[Any, Any, Any]:
        step: Callable[..., Any]
        value = self.yielded
        while True:
            try:
                sent = yield value
            except BaseException as error:
                step, argument = self.coroutine.throw, error
            else:
                step, argument = self.coroutine.send, sent
            try:
                value = self.variables.run(step, argument)
            except StopIteration as end:
                return end.value


def forget_cancellation(task: asyncio.Task[Any]) -> None:
    """Undo a cancellation that was meant for the handler that just ended, not for the next one in this runner."""
    while task.uncancel():
        pass


def first_step(consumer: SingleConsumer, leased: Leased, context: Context | None) -> tuple[Any, Any]:
    """The coroutine and what it waits for; or None and its result."""
    coroutine = consumer.call(leased, context)
    try:
        return coroutine, coroutine.send(None)
    except StopIteration as end:
        return None, end.value


def answered(value: Any) -> Any:
    if iscoroutine(value):
        value.close()
        raise UsageError(
            "The handler is a def and returned a coroutine: none of it has run. Make it async def."
        )
    return value
