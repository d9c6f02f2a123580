"""Where alerts go: the log, a function of yours, a webhook (webhook.py). A sink that raises is tried again later."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from ..errors import HoldfastError
from ..model.alert import Alert
from ..telemetry.logs import Log

log = Log("holdfast.alerts")

TIMEOUT = 10.0


Listener = Callable[[Alert], None] | Callable[[Alert], Awaitable[None]]


class Sink(Protocol):
    """A receiver of alerts. Its name records which alerts it has received, so it is the same in all processes."""

    @property
    def name(self) -> str: ...
    def send(self, alert: Alert) -> None: ...


class NotTaken(HoldfastError):
    """A webhook did not accept an alert; it is sent again."""

    retryable = True


class LogSink:
    """Always there."""

    name = "log"

    def send(self, alert: Alert) -> None:
        fields: dict[str, Any] = {
            "alert": alert.name,
            "subject": alert.subject or None,
            "episode": alert.episode,
            "value": alert.value,
            "threshold": alert.threshold,
            "text": alert.text,
        }
        # one level for both: a log that shows the beginning must also show the end
        if alert.what == "raised":
            log.warning("alert.raised", "%(text)s", **fields)
        else:
            log.warning("alert.over", "%(text)s", **fields)


class FunctionSink:
    """A function of the application, async or not."""

    def __init__(self, function: Listener, timeout: float = TIMEOUT) -> None:
        self.function, self.timeout = function, timeout
        self.name = (
            f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', repr(function))}"
        )

    def send(self, alert: Alert) -> None:
        answer = self.function(alert)
        if inspect.isawaitable(answer):
            asyncio.run(self._wait(answer))

    async def _wait(self, answer: Awaitable[None]) -> None:
        async with asyncio.timeout(self.timeout):
            await answer
