"""Dead letters of an inbox that are redriven: each is read again and published as what it is now.

It keeps the id that it had, so the dedupe key that the letter holds stays valid. If the inbox resolves requests,
the result counts as received now: before, it could not be read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ..handlers.context import Context, Dead
from ..handlers.declare import AnyHandler, Application, HandlerOptions, declare
from ..model.message import NewMessage
from ..rules.aftermath import AfterDeath
from ..rules.retry import RetryPolicy
from .answers import returned
from .declared import Inbox
from .reading import Reader, Refused, read_again

ONCE = RetryPolicy(attempts_max=1)
# Stores a message and its result, on a connection.
Receive = Callable[[NewMessage, object], Awaitable[object]]


def returning(
    app: Application, inbox: Inbox, reader: Reader, after: AfterDeath, receive: Receive
) -> AnyHandler:
    """The handler of the inbox's own queue."""

    async def read(body: dict[str, Any], ctx: Context) -> None:
        try:
            # A broker's dead letter has a key of its own.
            message = returned(reader.message(read_again(body)), keeps_key=inbox.dead_letters)
        except Refused as refused:
            raise Dead(refused.why) from None
        if inbox.resolves is None:
            ctx._emits.append(message)
            return
        async with ctx.transaction() as db:
            await receive(message, db)

    return declare(
        app, read, (), HandlerOptions(name=inbox.queue, ordered=False, retry=ONCE, after_death=after)
    )
