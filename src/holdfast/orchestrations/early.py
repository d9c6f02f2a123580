"""Signals for an instance that has not started yet: they wait in a queue of the engine's, in their order.

The same queue has withdrawals of calls that somebody had locked when their turn was stored, and the messages that let a
paused instance try again when it is cancelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

import msgspec

from ..bodies.keys import Keys
from ..errors import Refused, StoreUnavailable
from ..handlers.consumer import Limits
from ..handlers.context import Context, Snooze, TooLate
from ..model.message import Message, NewMessage
from ..model.work import Leased
from ..rules.policy import HandlerPolicy
from ..rules.redact import Masking
from ..store.plans import instances
from ..store.plans.instance_commands import LOOK_AGAIN, WITHDRAW, resume, withdrawn
from .messages import EARLY, RESUME
from .place import Place

KEPT_DAYS = 7.0  # a signal for an instance that never starts is a dead letter after that
LOOK_MIN, LOOK_MAX = 1.0, 30.0  # seconds between two looks whether it has


@dataclass(frozen=True)
class EarlySignals:
    """Passes signals on when their instance has started. A `SingleConsumer`."""

    place: Place
    policy: HandlerPolicy
    masking: Masking
    queue: str = EARLY
    patterns: tuple[str, ...] = ()
    is_family: bool = False
    is_ordered: bool = True
    is_async: bool = True
    takes_context: bool = True
    batch: int = 0
    keys: Keys | None = None
    steps: Mapping[str, int] = field(default_factory=dict)

    def limits(self, queue: str) -> Limits:
        return Limits(self.place.settings.concurrency, self.place.settings.timeout, late=True)

    def but(self, policy: HandlerPolicy) -> EarlySignals:
        return replace(self, policy=policy)

    async def call(self, leased: Leased, context: Context | None) -> Snooze | None:
        assert context is not None
        message = leased.message
        if message.type == WITHDRAW:
            return await self._withdraw(message)
        if message.type == RESUME:
            return await self._resume(message)
        try:
            found = await self.place.store().arun(instances.queue_of(message.stream or ""))
        except StoreUnavailable:  # not the signal's fault: it must not die, or those behind would overtake it
            return Snooze(LOOK_MIN)
        if found is None:
            now = self.place.now()
            if message.deadline is not None and now > message.deadline:
                raise TooLate
            age = (now - message.created_at).total_seconds()
            return Snooze(min(max(LOOK_MIN, age / 10), LOOK_MAX))
        queue, state = found
        if state in instances.OPEN:  # the body is bound to id and type, which stay
            passed = NewMessage(message.id, message.type, message.body, stream=message.stream, queue=queue)
            context._emits.append(passed)
        return None

    async def _withdraw(self, message: Message) -> Snooze | None:
        calls = msgspec.json.decode(message.body, type=list[UUID])
        left = await self.place.store().arun(withdrawn(calls, "its instance does not wait for it any more"))
        return Snooze(LOOK_AGAIN) if left else None

    async def _resume(self, message: Message) -> Snooze | None:
        store, is_held = self.place.store(), False
        for id in msgspec.json.decode(message.body, type=list[str]):
            found = await store.arun(instances.queue_of(id))
            if found is None or found[1] != "paused":
                continue
            try:
                await store.arun(resume(id, found[0], ("paused",)))
            except Refused:  # a worker has its next message, and is about to pause it again
                is_held = True
        return Snooze(LOOK_AGAIN) if is_held else None
