"""An activity in a worker: a handler whose settlement also stores the answer to the orchestration that called it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from typing import Any
from uuid import UUID

import msgspec

from ..bodies.codec import encode
from ..bodies.keys import Keys
from ..errors import UsageError
from ..handlers.consumer import Limits
from ..handlers.context import Context, Dead, Snooze
from ..handlers.declare import AnyHandler
from ..model.message import NewMessage
from ..model.progress import Progress
from ..model.replies import Reply, address_of
from ..model.work import Guess, Leased
from ..rules.policy import HandlerPolicy
from ..rules.redact import Masking
from ..settings import Settings
from .messages import Pen, progress_name

Fake = Callable[..., Any]


@dataclass(frozen=True)
class ActivityConsumer:
    """Serves the queue of an activity. `fakes`: what tests have put in the place of functions, by name."""

    handler: AnyHandler
    pen: Pen
    settings: Settings
    fakes: Mapping[str, Fake]
    foresee: Callable[[str, Reply, NewMessage, str, datetime], Awaitable[Guess | None]] | None = None

    @property
    def queue(self) -> str:
        return self.handler.queue

    @property
    def is_family(self) -> bool:
        return False

    @property
    def patterns(self) -> tuple[str, ...]:
        return ()

    @property
    def is_ordered(self) -> bool:
        return self.handler.is_ordered

    @property
    def policy(self) -> HandlerPolicy:
        return self.handler.policy

    @property
    def masking(self) -> Masking:
        return self.handler.masking

    @property
    def keys(self) -> Keys | None:
        return self.handler.keys

    @property
    def steps(self) -> Mapping[str, int]:
        return self.handler.steps

    @property
    def is_async(self) -> bool:
        return self.handler.is_async

    @property
    def takes_context(self) -> bool:
        return True

    @property
    def batch(self) -> int:
        return 0

    def limits(self, queue: str) -> Limits:
        return self.handler.limits(queue)

    def decode(self, text: str) -> Any:
        return self.handler.decode(text)

    def call(self, leased: Leased, context: Context | None) -> Any:
        assert context is not None
        reply = address_of(leased.message.headers)

        def answer(value: object) -> NewMessage | None:
            context._answer_text = text = encode(value, self.settings)
            return None if reply is None else self.pen.into(reply, text)

        context._answer = answer
        if reply is not None and self.foresee is not None:
            context._foresee = partial(self.foresee, self.queue, reply)
        return self._awaited(leased, context) if self.is_async else self._run(leased, context)

    async def _awaited(self, leased: Leased, context: Context) -> Any:
        return self._returned(await self.function(leased, context), context)

    def _run(self, leased: Leased, context: Context) -> Any:
        return self._returned(self.function(leased, context), context)

    def function(self, leased: Leased, context: Context | None) -> Any:
        """What the user's function gives, or what a test has put in its place."""
        handler = self.handler
        if (fake := self.fakes.get(self.queue)) is not None:
            handler = replace(handler, own=replace(handler.own, run=fake), members=None)
        return handler.call(leased, context if handler.takes_context else None)

    @cached_property
    def plain(self) -> Callable[[str], Any] | None:
        """Calls the function with the JSON text of its input, if it is an `async def` that takes nothing else."""
        handler, takes = self.handler, self.handler.signature
        if not takes.is_async or takes.context is not None or handler.members is not None:
            return None
        run, decode = handler.own.run, takes.decode
        return (lambda text: run(decode(text))) if takes.takes_body else (lambda text: run())

    def _returned(self, value: Any, context: Context) -> Any:
        if isinstance(value, Snooze | Dead):
            return value
        if not context._has_answered:
            context.answer(value)
        elif value is not None and encode(value, self.settings) != context._answer_text:
            raise UsageError(
                f"Activity {self.queue!r} has answered with ctx.answer(...) and returned another value: return the "
                "same, or nothing."
            )
        return None

    def progress_text(self, message: UUID, progress: Progress) -> str:
        return self.pen.seal(progress_name(message), msgspec.json.encode(progress).decode())

    def but(self, policy: HandlerPolicy) -> ActivityConsumer:
        return replace(self, handler=self.handler.but(policy))
