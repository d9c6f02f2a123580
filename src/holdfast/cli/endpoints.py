"""`holdfast destinations` and `holdfast inboxes`: what is sent to brokers, and what is received from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from . import show
from .completing import endpoints as complete_endpoints
from .filters import Why
from .options import command
from .target import Change, Target

if TYPE_CHECKING:
    from ..operations import Endpoints, EndpointState, Operations, Tried

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Its name, as `list` shows it.", autocompletion=complete_endpoints),
]
PauseWhy = Annotated[str | None, typer.Option("--why", help="Shown by `show`, `why` and `status`.")]


@dataclass(frozen=True, slots=True)
class Words:
    """What differs between the commands of destinations and those of inboxes."""

    group: str
    list: str
    test: str
    pause: str
    resume: str


def commands(kind: Literal["destination", "inbox"], words: Words) -> typer.Typer:
    """The commands of one kind of endpoint."""
    group = typer.Typer(help=words.group, no_args_is_help=True)

    def of(found: Operations) -> Endpoints:
        return found.destinations if kind == "destination" else found.inboxes

    @command(group, "list", help=words.list)
    def list_endpoints(target: Target) -> None:
        with target.operations() as found:
            _list(found, of(found), target.json)

    @command(group, "show", help=f"One {kind}, with the connection of each worker.")
    def show_endpoint(name: Name, target: Target) -> None:
        with target.operations() as found:
            _show(found, of(found).show(name), target.json)

    @command(group, "test", help=words.test)
    def test_endpoint(name: Name, target: Target) -> None:
        with target.operations() as found:
            _tested(of(found).test(name), target.json)

    @command(group, "pause", help=words.pause)
    def pause_endpoint(name: Name, change: Change, target: Target, why: PauseWhy = None) -> None:
        with target.operations(change.by) as found:
            of(found).pause(name, why)
        _show_done(f"{kind} {name}", "paused", target.json)

    @command(group, "resume", help=words.resume)
    def resume_endpoint(name: Name, change: Change, target: Target, why: Why = None) -> None:
        with target.operations(change.by) as found:
            resumed = of(found).resume(name, why=why)
        _show_done(f"{kind} {name}", "resumed" if resumed else "was not paused", target.json)

    return group


destinations = commands(
    "destination",
    Words(
        group="Destinations: where messages are sent. Which workers are connected, and what waits.",
        list="Every destination: who is connected, what waits.",
        test="Connect from here and look for unsafe settings of the broker. Nothing is sent.",
        pause="Send nothing to it from now on; what waits stays.",
        resume="Send to a paused destination again.",
    ),
)
inboxes = commands(
    "inbox",
    Words(
        group="Inboxes: where messages are received from. Which workers are connected.",
        list="Every inbox: how many workers are connected, and why not.",
        test="Connect from here and look for unsafe settings of the broker. Nothing is received.",
        pause="Receive nothing from now on; it stays at the broker.",
        resume="Receive from a paused inbox again.",
    ),
)


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


def _show_done(what: str, done: str, json: bool) -> None:
    if json:
        show.document({"what": what, "done": done})
    else:
        show.sentence(f"{what}: {done}")
