"""Destinations and inboxes of an application: what goes to brokers, and what comes from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Unpack

from ..errors import InvalidSettings
from ..handlers.declare import Application
from ..inboxes import Inbox, InboxOptions, Reader, declared, received, returning
from ..model.message import NewMessage
from ..rules import aftermath
from ..store.recognise import recognise
from ..transports.contract import Connector, SendingConnector
from ..transports.destination import Destination, DestinationKeywords, declare_destination
from .publishes import Publishes


class Home(Publishes, Application, Protocol):
    """What is needed of an application."""


class Brokering:
    """Declares destinations and inboxes for one application."""

    def __init__(self, app: Home) -> None:
        self.app = app

    def destination(
        self, name: str, connector: SendingConnector, types: Sequence[str], options: DestinationKeywords
    ) -> Destination:
        app = self.app
        made = declare_destination(app, name, connector, types, options, app.recovery, self._has_hook)
        app.handlers.add(made)
        return made

    def inbox(self, name: str, broker: Connector, queue: str, **options: Unpack[InboxOptions]) -> Inbox:
        app = self.app
        made = declared(name, broker, queue=queue, **options)
        if name in app.inboxes:
            raise InvalidSettings(f"There is already an inbox named {name!r}: give one of them another name.")
        after_death = aftermath.AfterDeath(has_hook=self._has_hook)
        reader = Reader(made, app.settings, app.keys)
        if made.resolves is not None and app.requests.kinds.get(made.resolves.name) is not made.resolves:
            raise InvalidSettings(f"Inbox {name!r}: resolves= is a kind of request of another application.")

        async def receive(message: NewMessage, db: object) -> None:
            if recognise(db).is_async:
                await app.publishing.astore_with(lambda: received([message], app.requests.pen), db)
            else:
                app.publishing.store_with(lambda: received([message], app.requests.pen), db)

        app.handlers.add(returning(app, made, reader, after_death, receive))
        app.inboxes[name] = made
        return made

    @property
    def _has_hook(self) -> bool:
        return aftermath.HOOK_QUEUE in self.app.handlers
