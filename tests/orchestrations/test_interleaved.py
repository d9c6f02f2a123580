"""Parts of a turn beside a take-over, in every order of their statements, on PostgreSQL (tests/proof/explorer.py).

One worker stores parts of its turn and settles it. Another one finds it dead in the middle, takes the run over, reads
the journal, stores what is missing and settles the turn. Operators end or suspend the instance meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest

from holdfast.model.work import Delta, Leased, Outcome, Report, Settlement, Want
from holdfast.store.plans import engine, instance_commands, instances
from holdfast.store.plans.instances import Part, Stand
from holdfast.store.plans.operator import TargetChanged
from holdfast.store.statement import Statement
from tests import servers
from tests.orchestrations.scene import NEW, OLD, REFUSED, Scene, exploring, own, schedules
from tests.proof.explorer import Explorer
from tests.proof.session import Body, Quiet

QUEUE, ID = "flow@1", "i"
PARTS = 3  # of the turn; the last one is stored with its settlement


class World:
    """One instance whose first message the old worker has, put back before every schedule."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.store, app = scene, scene.store, scene.app

        @app.orchestration(version="1", name="flow")
        async def flow() -> None: ...

        app.prepare()
        app.orchestrations.start(flow, id=ID)
        asked = Report(OLD, want=[Want(QUEUE, 1)], total=1)
        (self.leased,) = self.store.run(engine.exchange(asked)).work
        self.stand = self.store.run(instances.stands([ID]))[ID]
        self.dids: dict[str, Did] = {}
        self.now = scene.keep()

    def turn(self) -> Any:
        """What is stored now; after which everything is as it was."""
        dids, self.dids = list(self.dids.values()), {}
        left = (
            dids,
            self.scene.query("select part, body from holdfast.journal order by part"),
            self.scene.query("select state, turn from holdfast.instance"),
        )
        self.scene.put_back()
        return left


@dataclass
class Did:
    """What one of them knows of what it has done. An exchange that must be repeated goes on with it."""

    who: str
    leased: Leased | None = None
    stand: Stand | None = None
    confirmed: list[str] = field(default_factory=list)  # parts that were stored, by its own knowledge
    read: list[str] | None = None  # the journal that it went on with
    settled: bool = False

    @property
    def known(self) -> int:
        """How many parts of the turn there are, by its own knowledge."""
        return len(self.read or ()) + len(self.confirmed)


def works(w: World) -> Body:
    did = w.dids.setdefault("old", Did("old", w.leased, w.stand))
    return (yield from rest_of_turn(did))


def takes_over(w: World) -> Body:
    did = w.dids.setdefault("new", Did("new"))
    if did.leased is None:
        yield from own(engine.recover(worker=OLD, running=[w.leased.message.seq]))
        asked = Report(NEW, want=[Want(QUEUE, 1)], total=1, suspects=True)
        batch = yield from engine.exchange(asked)
        if not batch.work:
            return did
        did.stand = (yield from instances.stands([ID]))[ID]
        if did.stand.state != "running":
            return did
        rows = (yield from instances.journals([ID]))[ID]
        did.read = [body for turn, _, body in rows if turn == did.stand.turn + 1]
        (did.leased,) = batch.work
    return (yield from rest_of_turn(did))


def rest_of_turn(did: Did) -> Body:
    """Store the parts that are missing, one after another, and settle; ends at the first refusal."""
    leased, stand = did.leased, did.stand
    assert leased is not None
    assert stand is not None
    at = (stand.execution, stand.turn + 1)
    for number in range(did.known, PARTS - 1):
        part = Part(leased.run, leased.run_epoch, ID, *at, number, f"{did.who}{number}")
        if (yield from own(instances.store_parts([part]))) != {ID}:
            return did
        did.confirmed.append(part.body)
    row = {
        "id": ID, "execution": at[0], "turn": at[1], "part": did.known, "body": f"{did.who}{did.known}",
        "state": "running", "mark": str(uuid4()), "entries": 1, "size": 1,
    }  # fmt: skip
    settlement = Settlement(leased, Outcome.DONE, delta=Delta("turns", (row,)))
    worker = OLD if did.who == "old" else NEW
    batch = yield from engine.exchange(Report(worker, [settlement]))
    did.settled = leased.message.seq not in batch.lost
    return did


def terminates(w: World) -> Body:
    """As an operator's order does, without its line in the audit."""
    at = (w.stand.execution, w.stand.turn)
    yield Quiet("begin")
    try:
        yield from instance_commands.terminate(ID, QUEUE, at, "{}", "no", [])
    except TargetChanged:
        yield Statement("rollback")
        return
    yield Statement("commit")


def renews(w: World) -> Body:
    leases = [(w.leased.run, w.leased.run_epoch)]
    return (yield from own(engine.renew(OLD, leases, 30.0)))


OPERATIONS: dict[str, Callable[[World], Body]] = {
    "works": works, "takes over": takes_over, "renews": renews, "terminates": terminates,
}  # fmt: skip


def faults(left: Any, errors: list[str]) -> list[str]:
    """What must not be, by the journal that is left and what each knows. Who comes after an end is refused."""
    dids, journal, ((state, turn),) = left
    bodies = [body for _, body in journal]
    found = [each for each in errors if state != "terminated" or REFUSED not in each]
    if [part for part, _ in journal] != list(range(len(journal))):
        found.append(f"the journal has a gap: {journal}")
    for did in dids:
        if did.read is not None and bodies[: len(did.read)] != did.read:
            found.append(f"{did.who} read {did.read}, and the journal is {bodies}")
        if did.settled and bodies != [*(did.read or ()), *did.confirmed, f"{did.who}{did.known}"]:
            found.append(f"{did.who} settled a turn that another one wrote to: {bodies}")
        others = [part for each in dids if each is not did for part in each.confirmed]
        if did.read is not None and not set(others) <= set(did.read):
            found.append(f"{did.who} repeats what is stored: it read {did.read}, and {others} were confirmed")
        found += [f"{each} was confirmed and is gone" for each in did.confirmed if each not in bodies]
    settled = sum(each.settled for each in dids)
    if settled > 1 or settled != turn or (settled and len(journal) < PARTS):
        found.append(f"{settled} settled, turn {turn}, state {state}, journal {bodies}")
    return found


@pytest.fixture(scope="module")
def explored(postgres_server: servers.Server) -> Iterator[tuple[World, Explorer]]:
    with exploring(postgres_server, World) as found:
        yield found


def check(explored: tuple[World, Explorer], names: tuple[str, ...], preemptions: int | None) -> int:
    return len(
        schedules(
            explored,
            OPERATIONS,
            names,
            preemptions,
            lambda run: faults(run.left, run.faults),
            "schedules of parts",
        )
    )


PAIRS = (("works", "takes over"), ("works", "terminates"), ("takes over", "terminates"))
TRIPLES = (("works", "takes over", "renews"), ("works", "takes over", "terminates"))


@pytest.mark.one_postgres
@pytest.mark.parametrize("names", PAIRS, ids="-".join)
def test_parts_beside_a_take_over(explored: tuple[World, Explorer], names: tuple[str, ...]) -> None:
    assert check(explored, names, 1) > 3


@pytest.mark.faults("explorer")
@pytest.mark.one_postgres
@pytest.mark.parametrize("names", [*PAIRS, *TRIPLES], ids="-".join)
def test_in_every_order(explored: tuple[World, Explorer], names: tuple[str, ...]) -> None:
    assert check(explored, names, None if len(names) == 2 else 1) > 3
