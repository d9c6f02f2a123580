"""`holdfast destinations` and `holdfast inboxes`: what is sent to brokers, and what is received from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from . import show
from .completing import destinations as complete_destinations
from .completing import inboxes as complete_inboxes
from .filters import Why
from .options import command
from .target import Change, Target

if TYPE_CHECKING:
    from ..operations import Endpoints, EndpointState, Operations, Tried

destinations = typer.Typer(
    help="Destinations: where messages are sent. Which workers are connected, and what waits.",
    no_args_is_help=True,
)
inboxes = typer.Typer(
    help="Inboxes: where messages are received from. Which workers are connected.", no_args_is_help=True
)

Destination = Annotated[
    str,
    typer.Argument(metavar="DESTINATION", help="The destination.", autocompletion=complete_destinations),
]
Inbox = Annotated[str, typer.Argument(metavar="INBOX", help="The inbox.", autocompletion=complete_inboxes)]
PauseWhy = Annotated[str | None, typer.Option("--why", help="Shown by `show`, `why` and `status`.")]


# -- destinations


@command(destinations, "list")
def list_destinations(target: Target) -> None:
    """Every destination: who is connected, what waits."""
    with target.operations() as found:
        _list(found, found.destinations, target.json)


@command(destinations, "show")
def show_destination(destination: Destination, target: Target) -> None:
    """One destination, with the connection of each worker."""
    with target.operations() as found:
        _show(found, found.destinations.show(destination), target.json)


@command(destinations, "test")
def test_destination(destination: Destination, target: Target) -> None:
    """Connect from here and look for unsafe settings of the broker. Nothing is sent."""
    with target.operations() as found:
        _tested(found.destinations.test(destination), target.json)


@command(destinations, "pause")
def pause_destination(destination: Destination, change: Change, target: Target, why: PauseWhy = None) -> None:
    """Send nothing to it from now on; what waits stays."""
    with target.operations(change.by) as found:
        found.destinations.pause(destination, why)
    _told(f"destination {destination}", "paused", target.json)


@command(destinations, "resume")
def resume_destination(destination: Destination, change: Change, target: Target, why: Why = None) -> None:
    """Send to a paused destination again."""
    with target.operations(change.by) as found:
        resumed = found.destinations.resume(destination, why=why)
    _told(f"destination {destination}", "resumed" if resumed else "was not paused", target.json)


# -- inboxes


@command(inboxes, "list")
def list_inboxes(target: Target) -> None:
    """Every inbox: how many workers are connected, and why not."""
    with target.operations() as found:
        _list(found, found.inboxes, target.json)


@command(inboxes, "show")
def show_inbox(inbox: Inbox, target: Target) -> None:
    """One inbox, with the connection of each worker."""
    with target.operations() as found:
        _show(found, found.inboxes.show(inbox), target.json)


@command(inboxes, "test")
def test_inbox(inbox: Inbox, target: Target) -> None:
    """Connect from here and look for unsafe settings of the broker. Nothing is received."""
    with target.operations() as found:
        _tested(found.inboxes.test(inbox), target.json)


@command(inboxes, "pause")
def pause_inbox(inbox: Inbox, change: Change, target: Target, why: PauseWhy = None) -> None:
    """Receive nothing from now on; it stays at the broker."""
    with target.operations(change.by) as found:
        found.inboxes.pause(inbox, why)
    _told(f"inbox {inbox}", "paused", target.json)


@command(inboxes, "resume")
def resume_inbox(inbox: Inbox, change: Change, target: Target, why: Why = None) -> None:
    """Receive from a paused inbox again."""
    with target.operations(change.by) as found:
        resumed = found.inboxes.resume(inbox, why=why)
    _told(f"inbox {inbox}", "resumed" if resumed else "was not paused", target.json)


# -- showing


def _list(found: Operations, endpoints: Endpoints, json: bool) -> None:
    states = endpoints.list()
    if json:
        show.document([_fields(each) for each in states])
        return
    last = "confirmed" if endpoints.kind == "destination" else "stored"
    show.table(
        (
            endpoints.kind,
            "state",
            "connected",
            "waiting",
            "dead",
            last,
            "broker",
            "address",
            "breaker",
            "why",
        ),
        (
            (
                each.name,
                each.state,
                f"{each.connected} of {len(each.connections)}" if each.connections else None,
                each.waiting or None,
                each.dead or None,
                each.last_at,
                each.transport,
                each.address,
                None if each.breaker == "closed" else each.breaker,
                each.why,
            )
            for each in states
        ),
        f"There is no {endpoints.kind}.",
        at=found.now(),
        spare=("address", "breaker", "broker", "dead"),
    )


def _show(found: Operations, each: EndpointState, json: bool) -> None:
    if json:
        show.document(_fields(each))
        return
    show.pairs(
        (
            (each.kind, each.name),
            ("state", each.state),
            ("broker", each.transport),
            ("address" if each.kind == "destination" else "broker's queue", each.address),
            ("queue here", each.queue),
            ("waiting", each.waiting or None),
            ("oldest since", each.oldest_at),
            ("dead letters", each.dead or None),
            ("last confirmed" if each.kind == "destination" else "last stored", each.last_at),
            ("paused since", each.paused_at),
            ("paused because", each.paused_why),
            ("breaker", each.breaker),
            ("breaker says", each.breaker_why),
        )
    )
    show.plain("")
    show.table(
        ("worker", "is", "since", "tries", "last message"),
        ((c.worker, c.state, c.since, c.tries or None, c.last_at) for c in each.connections),
        "No live worker has it.",
        at=found.now(),
        spare=("last message",),
    )
    for connection in each.connections:
        if connection.why is not None:
            show.sentence(connection.why, f"{connection.worker}: ")


def _tested(done: Tried, json: bool) -> None:
    if json:
        show.document(done)
    else:
        said = "can be used" if done.is_usable else "CANNOT be used"
        show.sentence(f"{done.kind} {done.name}: {said}{'' if done.why is None else f': {done.why}'}")
        for each in done.findings:
            show.sentence(each.text, f"{each.severity}: ")
            show.sentence(each.remedy, "  ")
    if not done.is_usable:
        raise typer.Exit(show.FAILED)


def _fields(each: EndpointState) -> dict[str, object]:
    return show.fields(each, "connected", "why")


def _told(what: str, done: str, json: bool) -> None:
    if json:
        show.document({"what": what, "done": done})
    else:
        show.sentence(f"{what}: {done}")
