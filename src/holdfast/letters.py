"""The application's hook for dead letters, `@app.on_dead_letter`: what it receives, and how it is called.

A death stores a message for the hook in the same transaction (rules/aftermath.py), in a queue of the engine. So the
hook is called at least once for each death, even if processes die. The message holds what the worker knew; the
history of errors and the operator who held it are looked up when the hook is called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from .bodies import codec
from .bodies.keys import SEALED, Keys
from .errors import InvalidSettings
from .handlers.declare import AnyHandler, Application, HandlerOptions, declare
from .model.failure import FailureDescription, of_letter
from .model.message import Death, Reason, Trouble
from .rules.aftermath import HOOK_QUEUE

if TYPE_CHECKING:
    from .operations import Content, Operations

NEAR = timedelta(minutes=1)  # between the moment of a death by a worker's clock and by the database's


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter, as a hook receives it. `body` and `headers` are JSON text; `data` is the body as a Python value.

    `errors` and `deaths` are empty if the letter was discarded before the hook was called.
    """

    id: UUID
    queue: str
    type: str
    body: str
    headers: str | None
    stream: str | None
    position: int | None
    subject: str | None
    attempts: int
    created_at: datetime
    died_at: datetime
    reason: Reason
    last_reason: Reason | None
    error: str
    fingerprint: str
    worker: str | None = None
    errors: tuple[Trouble, ...] = ()
    deaths: tuple[Death, ...] = ()

    @property
    def data(self) -> Any:
        return codec.read_plain(self.body)

    @property
    def failure(self) -> FailureDescription:
        """Category, whether a retry can help, and counts, with a text that shows no payload."""
        names = (
            "id",
            "queue",
            "type",
            "body",
            "headers",
            "stream",
            "position",
            "subject",
            "attempts",
            "created_at",
        )
        return of_letter(
            reason=self.reason,
            last_reason=self.last_reason,
            error=self.error,
            attempts=self.attempts,
            type=self.type,
            id=self.id,
            queue=self.queue,
            message={name: getattr(self, name) for name in names},
        )


def _read(text: str) -> DeadLetter:
    fields: dict[str, Any] = codec.read_plain(text)
    fields |= {name: datetime.fromisoformat(fields[name]) for name in ("created_at", "died_at")}
    fields |= {name: fields[name] and Reason(fields[name]) for name in ("reason", "last_reason")}
    return DeadLetter(**{**fields, "id": UUID(fields["id"])})


def hook(app: Application, function: Callable[..., Any], operations: Callable[[], Operations]) -> AnyHandler:
    """The handler that calls a hook."""
    made = declare(app, function, (), HandlerOptions(name="on_dead_letter", ordered=False))
    takes, keys = made.signature, app.keys
    if not takes.takes_body:
        raise InvalidSettings(
            "A hook for dead letters takes the letter: def ticket(letter: DeadLetter) -> None."
        )

    def blocking(letter: DeadLetter, **context: Any) -> Any:
        return function(_completed(operations(), _opened(letter, keys)), **context)

    async def awaited(letter: DeadLetter, **context: Any) -> Any:
        return await function(
            await asyncio.to_thread(_completed, operations(), _opened(letter, keys)), **context
        )

    own = replace(made.own, run=awaited if takes.is_async else blocking)
    # The hook's own messages are not sealed; the letter inside is.
    return replace(made, queue=HOOK_QUEUE, signature=replace(takes, decode=_read), own=own, keys=None)


def _opened(letter: DeadLetter, keys: Keys | None) -> DeadLetter:
    if keys is None or not letter.body.startswith(SEALED):
        return letter
    return replace(letter, body=keys.open(letter.id, letter.type, letter.body))


def _completed(operations: Operations, letter: DeadLetter) -> DeadLetter:
    """The letter with the details from the store, if the message is still dead or is pending again."""
    for content in _known(operations, letter):
        for death in content.deaths:
            if death.error == letter.error and abs(death.died_at - letter.died_at) < NEAR:
                return replace(
                    letter,
                    died_at=death.died_at,
                    worker=death.worker,
                    errors=content.errors,
                    deaths=content.deaths,
                )
    return letter


def _known(operations: Operations, letter: DeadLetter) -> list[Content]:
    dossier = operations.messages.find_out(letter.id)
    # Several letters may have its id: the one that died then comes first.
    letters = sorted(dossier.dead, key=lambda each: abs(each[0].died_at - letter.died_at))
    dead = [content for each, content in letters if each.queue == letter.queue]
    return dead + [content for each, content in dossier.pending if each.queue == letter.queue]
