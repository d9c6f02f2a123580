"""Random orchestrations: live, with a worker that forgets, replayed, run ahead, in other batches: all equal."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from holdfast.clock import from_micros
from holdfast.orchestrations.cache import Cache
from holdfast.orchestrations.journal import Begun, Row, merged
from holdfast.orchestrations.outcome import Turn
from holdfast.orchestrations.turn import Instance
from tests.orchestrations.engine import Engine
from tests.orchestrations.plans import draw, interpret, work


def played(
    seed: int, forget: float, cache: Cache | None = None, ahead: float = 0.0, at_once: float = 0.0
) -> Engine:
    dice = Random(f"outside/{seed}")
    engine = Engine(
        interpret, activities=[work], seed=seed, forget=forget, cache=cache, ahead=ahead, at_once=at_once
    )
    engine.start(interpret, draw(seed))
    for _ in range(dice.randint(0, 6)):
        engine.signal(
            "i", dice.choice("abc"), dice.randint(0, 9), after=dice.choice((0, 0.5, 5, 40)) * dice.random()
        )
    if dice.random() < 0.3:
        engine.cancel("i", after=dice.choice((0.1, 1, 10)) * dice.random())
    return engine.run()


def everything(engine: Engine) -> Any:
    """All that must be equal: how instances ended, their journals, the effects."""
    journals = {
        id: [merged(record.rows(id, execution)) for execution in range(record.execution + 1)]
        for id, record in engine.records.items()
    }
    return {id: (r.end, r.status) for id, r in engine.records.items()}, journals, engine.calls, engine.paused


def rebatched(engine: Engine, id: str, execution: int, seed: int) -> list[Row]:
    """The same arrivals, in turns of other sizes."""
    record = engine.records[id]
    rows = record.rows(id, execution)
    dice = Random(f"batches/{seed}")
    # Answers of inline activities came in no message; that a later execution has begun is in its row 0.
    arrivals = [entry.arrival for entry in merged(rows) if not isinstance(entry.arrival, Begun)]
    instance = Instance(record.program, id, execution)
    instance.load(row for row in rows if row.begin is not None)
    found: list[Row] = []
    while arrivals or not found:  # the start of a later execution is in its row 0
        size = dice.choice((1, 2, 3, len(arrivals)))
        turn = instance.turn(arrivals[:size], from_micros(0))
        assert isinstance(turn, Turn)
        assert (turn.row.late, turn.unread) == ((), ())
        del arrivals[:size]
        found.append(turn.row)
    instance.close()
    return found


def check(seed: int) -> Engine:
    live = played(seed, forget=0)
    assert live.paused == {}
    assert everything(played(seed, forget=0.5)) == everything(live)
    assert everything(played(seed, forget=1)) == everything(live)
    assert everything(played(seed, forget=0, cache=Cache(count=1))) == everything(live)
    ahead = played(seed, forget=0.1, ahead=0.9)
    assert everything(ahead) == everything(live)
    live.guessed, live.refused = ahead.guessed, ahead.refused
    check_batches(live, seed)
    # What several tasks call is answered in another order then; the same arrivals still do the same, one at a time.
    at_once = played(seed, forget=0.1, at_once=0.8)
    assert at_once.paused == {}
    check_batches(at_once, seed)
    live.answered_at_once = at_once.answered_at_once
    return live


def check_batches(engine: Engine, seed: int) -> None:
    for id, record in engine.records.items():
        for execution in range(record.execution + 1):
            entries = merged(record.rows(id, execution))
            assert merged(rebatched(engine, id, execution, seed)) == entries


@pytest.mark.covers("X59")
@pytest.mark.parametrize("seed", range(40))
def test_forgetting_replaying_and_batches_change_nothing(seed: int) -> None:
    check(seed)


@pytest.mark.faults("simulation")
@pytest.mark.covers("X59")
def test_two_thousand_seeds() -> None:
    ends: dict[str, int] = {}
    inlined = guessed = refused = at_once = 0
    for seed in range(1000, 3000):
        inlined += played(seed, forget=0).inlined
        checked = check(seed)
        guessed, refused = guessed + checked.guessed, refused + checked.refused
        at_once += checked.answered_at_once
        for record in checked.records.values():
            state = "waiting" if record.end is None else record.end.state
            ends[state] = ends.get(state, 0) + 1
    assert inlined > 1000
    assert at_once > 500
    assert guessed > 300
    assert refused > 300
    # The plans are worth something: they end in every way.
    assert all(ends.get(state, 0) > 50 for state in ("completed", "failed", "cancelled")), ends
