"""The way back of an inbox's dead letters: a redriven one is read again, and what it is now is published.

It keeps the id that it had, so the dedupe key that the letter holds goes on holding.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ..handlers.context import Context, Dead
from ..handlers.declare import AnyHandler, Application, HandlerOptions, declare
from ..rules.aftermath import AfterDeath
from ..rules.retry import RetryPolicy
from .declared import Inbox
from .reading import Reader, Refused, read_again

ONCE = RetryPolicy(attempts_max=1)


def returning(app: Application, inbox: Inbox, reader: Reader, after: AfterDeath) -> AnyHandler:
    """The handler of the inbox's own queue."""

    async def read(body: dict[str, Any], ctx: Context) -> None:
        try:
            message = reader.message(read_again(body))
        except Refused as refused:
            raise Dead(refused.why) from None
        # Its key is the letter's own, and held under the same id. A broker's dead letter has a key of its own.
        ctx._emits.append(message if inbox.dead_letters else replace(message, dedupe=None))

    return declare(
        app, read, (), HandlerOptions(name=inbox.queue, ordered=False, retry=ONCE, after_death=after)
    )
