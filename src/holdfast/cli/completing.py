"""Shell completion: queues, types, reasons and ids of the database that the command is about.

A completion shows no errors and does not wait long: without an answer in time it offers nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from .tables import SHORT

if TYPE_CHECKING:
    from ..operations import Operations

SECONDS = 2.0
OFFERED = 50

Offer = tuple[str, str]


def queues(ctx: typer.Context, incomplete: str) -> list[Offer]:
    return _asked(ctx, incomplete, lambda found: [(each, "") for each in found.queues.names()])


def types(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """The types that handlers subscribe to, and those of the newest messages."""

    def look(found: Operations) -> list[Offer]:
        subscribed = {each for each in found.queues.patterns() if not each.endswith("*")}
        newest = {each.type for each in found.messages.find(limit=OFFERED)}
        dead = {each.type for each in found.dead.list(limit=OFFERED)}
        return [(each, "") for each in sorted(subscribed | newest | dead)]

    return _asked(ctx, incomplete, look)


def breakers(ctx: typer.Context, incomplete: str) -> list[Offer]:
    return _asked(
        ctx, incomplete, lambda found: [(each.name, each.state.value) for each in found.breakers.list()]
    )


def endpoints(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """Destinations or inboxes, as the group of the command says."""

    def look(found: Operations) -> list[Offer]:
        is_inbox = ctx.parent is not None and ctx.parent.info_name == "inboxes"
        return [
            (each.name, each.state) for each in (found.inboxes if is_inbox else found.destinations).list()
        ]

    return _asked(ctx, incomplete, look)


def instances(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """The ids of instances that have not ended, those that moved last."""

    def look(found: Operations) -> list[Offer]:
        listed = found.orchestrations.list(is_open=True, limit=OFFERED)
        return [(each.id, f"{each.queue}, {each.state}") for each in listed]

    return _asked(ctx, incomplete, look)


def orchestrations(ctx: typer.Context, incomplete: str) -> list[Offer]:
    def look(found: Operations) -> list[Offer]:
        return [(each, "") for each in found.orchestrations.names()]

    return _asked(ctx, incomplete, look)


def requests(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """The last eight characters of those that are open, and of those that ended last."""

    def look(found: Operations) -> list[Offer]:
        offered = [
            (str(each.id), f"{each.kind}, {each.state}") for each in found.requests.list(limit=OFFERED)
        ]
        short = {id[-SHORT:]: what for id, what in offered}
        return list(short.items()) if any(each.startswith(incomplete) for each in short) else offered

    return _asked(ctx, incomplete, look)


def reasons(incomplete: str) -> list[str]:
    from ..model.message import Reason

    names = (each.name.lower().replace("_", "-") for each in Reason)
    return [each for each in names if each.startswith(incomplete)]


def ids(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """The last eight characters of the newest: `dead` has dead letters, `streams` pending messages, others both."""
    group = ctx.parent.info_name if ctx.parent is not None else None

    def look(found: Operations) -> list[Offer]:
        offered = []
        if group != "dead":
            offered += [
                (str(each.id), f"{each.type}, {each.state}") for each in found.messages.find(limit=OFFERED)
            ]
        if group != "streams":
            offered += [(str(each.id), f"{each.type}, dead") for each in found.dead.list(limit=OFFERED)]
        short = {id[-SHORT:]: what for id, what in offered}
        if not any(each.startswith(incomplete) for each in short):  # the user types a whole id
            return offered
        return list(short.items())

    return _asked(ctx, incomplete, look)


def _asked(ctx: typer.Context, incomplete: str, look: Callable[[Operations], list[Offer]]) -> list[Offer]:
    """The names with this beginning, if the database answers in time."""
    from ..model.text import replaced
    from .target import operations

    answer: list[Offer] = []

    def ask() -> None:
        loud = logging.root.manager.disable
        logging.disable()
        try:
            given: dict[str, Any] = ctx.params
            with operations(given.get("app"), given.get("url"), given.get("target")) as found:
                answer.extend(look(found))
        except BaseException:  # a completion must not print errors
            return
        finally:
            logging.disable(loud)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(SECONDS)
    return [
        (text, replaced(what))
        for text, what in answer
        if text.startswith(incomplete) and replaced(text) == text
    ]
