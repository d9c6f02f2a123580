"""Rules are pure in fact: nothing that reaches them through an argument reads a clock, rolls dice, logs or calls users.

The tests of `conclude` and of `Pacing` run in the same trap (tests/rules/purity.py); here they get the objects that an
application really gives them.
"""

from __future__ import annotations

import os
import random
import time
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from holdfast import CopyTo, Holdfast
from holdfast.bodies.keys import SEALED, new_key
from holdfast.clock import MovableClock
from holdfast.handlers.declare import Handler
from holdfast.limits.gate import Gate
from holdfast.model.limits import SharedRate, SharedSlots
from holdfast.rules import delivery, pacing
from holdfast.rules.catchup import CatchUp
from holdfast.rules.delivery import Died, Raised
from holdfast.rules.lanes import Limit, Pace
from holdfast.rules.rate import rate
from holdfast.rules.slots import Holder, share
from holdfast.settings import Settings
from holdfast.telemetry.logs import Log
from holdfast.worker.endings import sealed
from tests.rules.cases import MESSAGE, NOW, conclude, lease
from tests.rules.purity import GATE, Impure, pure, trapped, watched
from tests.rules.test_lifecycle import ROWS
from tests.worker.test_pacing import batch_of, leased


def users_own_key(body: Any) -> str:
    return str(body["id"])


def users_own_mask(text: str) -> str:
    return text.replace("4111", "(card)")


class UsersOwn(Exception):
    pass


@pytest.fixture
def app() -> Holdfast:
    return Holdfast("sqlite:///:memory:", keys=new_key("k"), redact=[users_own_mask], clock=MovableClock())


def declared(app: Holdfast) -> Handler[..., Any]:
    @app.handler("order.placed", after_death=CopyTo("backup"), key=users_own_key, per_key=2)
    async def send_receipt(body: dict[str, Any]) -> None: ...

    app.on_dead_letter(lambda letter: None)
    return app.handlers["send_receipt"]


# -- the trap itself


@pytest.mark.parametrize(
    "effect",
    [
        time.monotonic,
        time.time,
        random.random,
        lambda: os.urandom(1),
        lambda: Log("holdfast.worker").warning("event", "text"),
        lambda: open(os.devnull).close(),
        MovableClock().monotonic,
        lambda: users_own_mask(""),
    ],
)
def test_the_trap_notices(effect: Any) -> None:
    with pytest.raises(Impure):
        pure(effect)()


# -- how an attempt ends


def test_no_ending_draws_chance_logs_or_calls_the_application(app: Holdfast) -> None:
    handler = declared(app)
    assert app.keys is not None
    body = app.keys.seal(MESSAGE.id, MESSAGE.type, MESSAGE.body)
    for _, ending, row in ROWS:
        each = structs.replace(row, message=structs.replace(row.message, body=body))
        conclude(each, ending, handler.policy, NOW, 0.5)


def test_the_copy_is_named_by_the_rule_and_sealed_by_the_worker(app: Holdfast) -> None:
    handler, keys = declared(app), app.keys
    assert keys is not None
    body = keys.seal(MESSAGE.id, MESSAGE.type, MESSAGE.body)
    settlement = conclude(lease(body=body), Died("no"), handler.policy, NOW, 0.5)
    assert settlement is not None
    (copy, _news) = settlement.emits
    assert (settlement.copy, copy.body) == (copy.id, body)
    (ready, _news) = sealed(settlement, keys).emits
    assert ready.body.startswith(SEALED)
    assert keys.open(copy.id, copy.type, ready.body) == MESSAGE.body


def test_the_applications_own_masking_is_done_before_the_rule(app: Holdfast) -> None:
    declared(app)
    raised = app.failed(lease(), 0, UsersOwn("card 4111"))
    assert raised.error == "UsersOwn: card (card)"
    whole = Raised(UsersOwn("card 4111"))
    plain = conclude(lease(), whole, app.handlers["send_receipt"].policy, NOW, 0.5)
    assert plain is not None
    assert plain.error == "UsersOwn: card 4111"  # the rule itself calls nobody


# -- a worker's bookkeeping, with the gate that it really has


async def test_a_worker_asks_and_starts_without_reading_a_clock_or_calling_a_key_function(
    app: Holdfast,
) -> None:
    handler, clock = declared(app), app.clock
    assert isinstance(clock, MovableClock)
    app.migrate()
    breaker = app.breaker("llm", catch_up="50/s")
    queues = ("plain", "slotted", "rated", "late", "keyed")
    paces: dict[str, Pace] = {}
    gate = Gate(app.store, clock, paces)
    p = watched(pacing.Pacing, *GATE)(
        {q: Limit(4, per_key=2 * (q == "keyed")) for q in queues}, Settings(), gate=gate, paces=paces
    )
    gate.meet("plain", breaker)
    gate.meet("rated", rate=SharedRate("r", rate("100/s")))
    gate.meet("slotted", slots=SharedSlots("s", 3))
    gate.meet("late", catch_up=CatchUp(50.0))
    await gate.begin(1, queues)
    breaker.circuit.home.change("llm", breaker.policy, lambda switch, now: switch.trip(now, 1.0))
    begun = 0
    for turn in range(40):
        if turn == 20:
            app.operations.breakers.reset("llm")
        clock.advance(seconds=0.5)
        await gate.look()
        now = clock.monotonic()
        report = p.report(1, now)
        work = [
            leased(100 * turn + n, queue=want.queue, body='{"id":1}') for n, want in enumerate(report.want)
        ]
        p.receive(report, batch_of(work), now)
        key_of = handler.limits(handler.queue).key_of
        assert key_of is not None
        p.unpack({each.token: key_of(each) for each in p.arrived()})  # the worker's part
        for lane in list(p.starts(now)):
            while (each := p.begin(lane, now)) is not None:
                begun += 1
                p.end(lane, delivery.conclude(each, delivery.Returned(), handler.policy, NOW, 0.5))
                p.start(lane.queue, now)
    assert begun > 40
    assert p.paces["keyed"].waiting_keys == {}
    app.close()


def test_slots_are_shared_by_values_alone() -> None:
    with trapped():
        me = Holder(1, 0, 30.0, ("q",))
        assert share([replace(me, worker=2, held=2)], {2: 1.0}, me, 3, 4).held == 2
