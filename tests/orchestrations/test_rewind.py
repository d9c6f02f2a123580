"""Rewind: back to an earlier step, as the next execution. On both databases."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import Flow, NotFound, UsageError
from holdfast.bodies.keys import new_key
from holdfast.cli.root import app as main
from holdfast.orchestrations.declared import activity, orchestration
from holdfast.orchestrations.journal import (
    Answered,
    Call,
    Entry,
    Rewound,
    Row,
    Signalled,
    Started,
    fingerprint,
)
from holdfast.orchestrations.outcome import Turn
from holdfast.orchestrations.rewind import point_of, rewinding
from holdfast.orchestrations.turn import Instance
from tests.cli.runner import CliRunner
from tests.orchestrations.engine import START
from tests.orchestrations.shop import ONCE, Shop
from tests.store.state import check_invariants


class Store(Shop):
    """A shop whose orchestration has a bug that can be mended."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.broken, self.fails = True, True

        @self.app.activity(retry=ONCE)
        async def charge(n: int) -> str:
            self.did.append(f"charge {n}")
            if self.fails:
                raise ValueError("no money")
            return f"receipt-{n}"

        @self.app.orchestration()
        async def order(n: int, flow: Flow) -> str:
            doubled = await self.double(n)
            word = await flow.signal("word", str)
            if self.broken:
                raise RuntimeError("a bug")
            return f"{doubled} {word} {await self.double(10)}"

        @self.app.orchestration()
        async def pays(n: int, flow: Flow) -> list[str]:
            one, two = await asyncio.gather(self.double(n), charge(n))
            return [str(one), two]

        self.order, self.pays, self.charge = order, pays, charge

    @property
    def operations(self) -> Any:
        return self.app.operations.orchestrations

    def journal(self, id: str) -> list[Row]:
        return list(self.operations.journal(id))


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    made = Store(url)
    yield made
    made.forget()
    check_invariants(made.app.store)
    made.app.close()


def failed(store: Store, id: str = "o") -> None:
    """An instance that has failed by a bug behind its first step and a signal."""
    store.of.start(store.order, 2, id=id)
    store.of.signal(id, "word", "hello")
    store.drain()
    assert store.of.status(id).state == "failed"
    assert store.did == [2]


def test_after_a_step_its_answer_is_kept_and_the_code_goes_on(store: Store) -> None:
    failed(store)
    store.broken = False
    told = store.operations.rehearse_rewind("o", after="double#1")
    assert (told.repeats, told.asked_again, told.is_rehearsal) == ((), (), True)
    assert told.delivered_again == ("the answer of #1",), "the signal had come before it"
    assert store.of.status("o").state == "failed", "a rehearsal changes nothing"
    done = store.operations.rewind("o", "the bug is mended", after="double#1")
    assert (done.execution, done.is_rehearsal) == (0, False)
    store.drain()
    assert store.of.result("o") == "4 hello 20"
    assert store.did == [2, 10], "the first step was not repeated"
    assert store.of.status("o").execution == 1


def test_to_a_step_asks_for_it_again_with_its_input(store: Store) -> None:
    failed(store)
    store.broken = False
    told = store.operations.rehearse_rewind("o", to="double#1")
    assert told.repeats == ("double#1 (activity, answered)",)
    assert told.asked_again == ("double#1",)
    store.operations.rewind("o", "again", to="1")
    store.drain()
    assert store.of.result("o") == "4 hello 20"
    assert store.did == [2, 2, 10]


@pytest.mark.parametrize("forgets", [False, True])
def test_it_replays_after_a_rewind(store: Store, forgets: bool) -> None:
    """What the new execution did is replayed from its own journal, turn by turn."""
    failed(store)
    store.operations.rewind("o", "again", to="start", keeps_signals=False)
    store.of.place.memory.forgets = forgets
    store.broken = False
    store.drain()
    assert store.of.status("o").state == "running"
    store.of.signal("o", "word", "again")
    store.drain()
    assert store.of.result("o") == "4 again 20"
    assert store.did == [2, 2, 10]
    rows = store.journal("o")
    assert rows[0].rewound is not None
    assert [row.turn for row in rows] == list(range(len(rows)))
    assert store.of.status("o").entries == sum(len(row.entries) for row in rows)


def test_signals_that_came_later_come_again_before_new_ones(store: Store) -> None:
    """Two wait in the stream behind them; none is lost and none comes twice."""

    @store.app.orchestration()
    async def reads(flow: Flow) -> list[int]:
        await store.double(1)
        return [await flow.signal("n", int) for _ in range(5)]

    store.of.start(reads, id="r")
    store.drain()
    for n in range(3):
        store.of.signal("r", "n", n)
    store.drain()
    store.operations.suspend("r", "look")
    store.of.signal("r", "n", 3)
    store.operations.rewind("r", "again", to="double#1")
    assert store.of.status("r").state == "suspended", "it stays so until it is resumed"
    store.of.signal("r", "n", 4)
    store.operations.resume("r")
    store.drain()
    assert store.of.result("r") == [0, 1, 2, 3, 4]


def test_failures_are_asked_again_and_answers_are_kept(store: Store) -> None:
    store.of.start(store.pays, 3, id="p")
    store.drain()
    assert store.of.status("p").state == "failed"
    store.fails = False
    told = store.operations.rehearse_rewind("p", to="charge#2")
    assert told.repeats == ("charge#2 (activity, failed)",)
    assert told.delivered_again == ("the answer of #1",)
    store.operations.rewind("p", "there is money now", to="charge#2")
    store.drain()
    assert store.of.result("p") == ["6", "receipt-3"]
    assert store.did.count(3) == 1


def test_failures_of_other_steps_that_were_open_are_asked_again_too(store: Store) -> None:
    """Back to the call beside the one that failed: its failure had arrived as well, and would end the code again."""
    store.of.start(store.pays, 3, id="p")
    store.drain()
    store.fails = False
    told = store.operations.rehearse_rewind("p", to="double#1")
    assert told.asked_again == ("double#1", "charge#2")
    assert told.delivered_again == ()
    store.operations.rewind("p", "there is money now", to="double#1")
    store.drain()
    assert store.of.result("p") == ["6", "receipt-3"]


def test_answers_of_the_execution_before_are_late(store: Store) -> None:
    """A worker has claimed the call when its instance is rewound: the old answer changes nothing."""
    store.of.start(store.order, 2, id="o")
    store.drain("order@1")
    call = "select id, queue from {message} where queue = 'double'"
    ((old, _),) = store.query(call)
    store.operations.rewind("o", "again", to="double#1")
    assert store.query(call) == [], "the call that nobody had taken is withdrawn"
    ((outcome,),) = store.query(f"select outcome from {{history}} where id = '{old}'")
    assert outcome == "cancelled"
    store.broken = False
    store.drain()
    store.of.signal("o", "word", "hi")
    store.drain()
    assert store.of.result("o") == "4 hi 20"
    assert store.did == [2, 10]


def test_a_late_answer_that_is_in_the_stream_already_is_ignored(store: Store) -> None:
    store.of.start(store.order, 2, id="o")
    store.drain("order@1")
    store.drain("double")  # its answer waits in the stream
    store.operations.rewind("o", "again", to="double#1")
    store.broken = False
    store.of.signal("o", "word", "hi")
    store.drain()
    assert store.of.result("o") == "4 hi 20"
    assert store.did == [2, 2, 10]


def test_it_is_fenced_by_execution_and_turn(store: Store) -> None:
    failed(store)
    with pytest.raises(UsageError, match="has had a turn since"):
        store.operations.rewind("o", "again", to="start", at=(0, 99))
    store.operations.rewind("o", "again", to="start", at=(0, store.of.status("o").turn))
    with pytest.raises(UsageError, match="has had a turn since"):
        store.operations.rewind("o", "again", to="start", at=(0, 2))


def test_a_turn_that_was_running_is_refused_by_the_fence(store: Store) -> None:
    """Its message comes again: a signal reaches the new execution, and nothing of the old turn is stored."""
    store.of.start(store.order, 2, id="o")
    store.drain()
    store.of.signal("o", "word", "hi")
    consumer = store.app.handlers["order@1"]
    original = type(consumer)._turn

    async def turn(self: Any, *args: Any) -> Any:
        result = await original(self, *args)
        if not store.broken:
            return result
        store.broken = False
        store.operations.rewind("o", "meanwhile", to="double#1")
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(consumer), "_turn", turn)
        store.drain()
    store.advance(minutes=1)
    assert store.of.result("o") == "4 hi 20"
    assert store.did == [2, 2, 10]


def test_timers_are_asked_again_with_their_time(store: Store) -> None:
    @store.app.orchestration()
    async def sleeps(flow: Flow) -> float:
        began = flow.now
        await asyncio.sleep(3600)
        return float((flow.now - began).total_seconds())

    store.of.start(sleeps, id="s")
    store.drain()
    store.clock.advance(minutes=30)
    store.operations.rewind("s", "again", to="start")
    store.drain()
    assert len(store.query("select 1 from {scheduled}")) == 1
    store.advance(minutes=29)
    assert store.of.status("s").state == "running"
    store.advance(minutes=2)
    assert store.of.result("s") == 3600.0


def family(store: Store) -> Any:
    @store.app.orchestration()
    async def child(n: int, flow: Flow) -> int:
        return n * int(await flow.signal("factor", int))

    @store.app.orchestration()
    async def parent(n: int, flow: Flow) -> int:
        await store.double(n)
        got = await child(n)
        if store.broken:
            raise RuntimeError("a bug")
        return int(got) + int(await child(1))

    return parent


def test_a_child_that_was_open_goes_on_and_answers(store: Store) -> None:
    store.of.start(family(store), 5, id="p")
    store.drain()
    store.broken = False
    told = store.operations.rehearse_rewind("p", to="child@1#2")
    assert told.repeats == told.asked_again == ()
    assert told.notes == ("Its child p/0.2 continues, and answers when it ends.",)
    store.operations.rewind("p", "again", to="child@1#2")
    store.drain()
    store.of.signal("p/0.2", "factor", 7)
    store.drain()
    assert store.of.status("p/0.2").state == "completed"
    store.of.signal("p/1.3", "factor", 1)
    store.drain()
    assert store.of.result("p") == 36
    assert store.query("select count(*) from {instance}") == [(3,)]


def test_a_child_that_completed_is_not_run_again(store: Store) -> None:
    """Its answer had reached the parent, which failed then."""
    store.of.start(family(store), 5, id="p")
    store.drain()
    store.of.signal("p/0.2", "factor", 7)
    store.drain()
    assert store.of.status("p").state == "failed"
    store.broken = False
    store.operations.rewind("p", "mended", to="child@1#2")
    store.drain()
    store.of.signal("p/1.3", "factor", 1)
    store.drain()
    assert store.of.result("p") == 36


def test_a_child_asked_for_behind_the_point_is_cancelled_and_a_new_one_started(store: Store) -> None:
    store.of.start(family(store), 5, id="p")
    store.drain()
    store.broken = False
    store.operations.rewind("p", "again", to="double#1")
    store.drain()
    assert store.of.status("p/0.2").state == "cancelled"
    store.of.signal("p/1.2", "factor", 2)
    store.drain()
    store.of.signal("p/1.3", "factor", 1)
    store.drain()
    assert store.of.result("p") == 11


def test_a_child_that_failed_is_waited_for_until_it_is_rewound_too(store: Store) -> None:
    mended = False

    @store.app.orchestration()
    async def child(flow: Flow) -> int:
        if not mended:
            raise RuntimeError("a bug")
        return 7

    @store.app.orchestration()
    async def parent(flow: Flow) -> int:
        return int(await child())

    store.of.start(parent, id="p")
    store.drain()
    mended = True
    told = store.operations.rewind("p", "again", to="child@1#1")
    assert "rewind p/0.1 --to start" in told.notes[-1]
    store.drain()
    assert store.of.status("p").state == "running"
    store.operations.rewind("p/0.1", "again", to="start")
    store.drain()
    assert store.of.result("p") == 7
    store.operations.rewind("p", "once more", to="start")
    store.drain()
    assert store.of.result("p") == 7
    assert store.of.status("p/2.1").state == "completed", "from the start its children are new, too"


def test_a_paused_instance_goes_on_with_the_code_that_is_there(store: Store) -> None:
    """Its code has changed: rewound to before the change, it needs no old code."""
    change = False

    @store.app.orchestration()
    async def changing(flow: Flow) -> int:
        first = await store.double(1)
        second = await store.double(3 if change else 2)
        word = await flow.signal("word", int)
        return int(first + second + word)

    store.of.start(changing, id="c")
    store.drain()
    change = True
    store.forget()
    store.of.signal("c", "word", 100)
    store.drain()
    assert store.of.status("c").state == "paused"
    store.operations.rewind("c", "the new code is right", after="double#1")
    store.drain()
    assert store.of.result("c") == 108
    assert store.of.status("c").trouble is None


def test_a_poisoned_instance_goes_on(store: Store) -> None:
    """Its stream was halted by the dead letter."""
    loops = True

    @store.app.orchestration(max_attempts=1)
    async def circles(flow: Flow) -> int:
        n = await store.double(1)
        while loops:  # noqa: ASYNC110 - in circles
            await asyncio.sleep(0)  # in circles
        return int(n)

    store.of.start(circles, id="c")
    store.drain()
    assert store.of.status("c").state == "failed"
    loops = False
    store.operations.rewind("c", "mended", to="double#1")
    store.drain()
    assert store.of.result("c") == 2
    assert len(store.app.operations.dead.list()) == 1, "the dead letter is kept"


def test_after_continue_as_new(store: Store) -> None:
    @store.app.orchestration()
    async def rounds(n: int, flow: Flow) -> int:
        got = await store.double(n)
        if n < 2:
            flow.again(n + 1)
        if store.broken:
            raise RuntimeError("a bug")
        return int(got)

    store.of.start(rounds, 0, id="r")
    store.drain()
    assert (store.of.status("r").state, store.of.status("r").execution) == ("failed", 2)
    store.broken = False
    store.operations.rewind("r", "mended", to="start")
    store.of.place.memory.forgets = True
    store.drain()
    assert store.of.result("r") == 4
    assert store.did == [0, 1, 2, 2]
    assert store.of.status("r").execution == 3


def test_inline_activities_run_again_only_if_they_are_asked_again(store: Store) -> None:
    @store.app.activity(inline=True)
    async def weigh(n: int) -> int:
        store.did.append(f"weigh {n}")
        return n + 1

    @store.app.orchestration()
    async def weighs(n: int, flow: Flow) -> int:
        first = await weigh(n)
        second = await store.double(first)
        third = await weigh(second)
        if store.broken:
            raise RuntimeError("a bug")
        return int(third)

    store.of.start(weighs, 1, id="w")
    store.drain()
    assert store.did == ["weigh 1", 2, "weigh 4"]
    store.broken = False
    told = store.operations.rewind("w", "mended", to="weigh#3")
    assert told.repeats == ("weigh#3 (activity, answered)",)
    store.drain()
    assert store.of.result("w") == 5
    assert store.did == ["weigh 1", 2, "weigh 4", "weigh 4"]
    store.operations.rewind("w", "once more", after="weigh#3")
    store.drain()
    assert store.of.result("w") == 5
    assert len(store.did) == 4


def test_a_turn_that_was_not_settled_asks_again_after_a_rewind() -> None:
    """A worker died between two parts of the first turn after the rewind: what is open is still not sent."""

    @activity()
    async def one(n: int) -> int: ...

    @orchestration(version="1")
    async def gathers(n: int, flow: Flow) -> list[int]:
        return list(await asyncio.gather(one(n), one(n + 1)))

    started = Entry(Started("m", 1, "1", "i/0"), (Call("one", fingerprint(1)), Call("one", fingerprint(2))))
    rewound = Rewound(0, (Answered("", 2, 1, 1, "10"),))
    rows = [
        Row(id="i", execution=1, turn=1, at=1, entries=(started,), rewound=rewound),
        Row(id="i", execution=1, turn=2, at=2, entries=(Entry(rewound.arrivals[0]),), final=False),
    ]
    for journal in (rows[:1], rows):
        instance = Instance(gathers.program, "i", 1)
        instance.load(journal)
        instance.catch_up()
        turn = instance.turn([], START)
        instance.close()
        assert isinstance(turn, Turn)
        assert [ask.number for ask in turn.asks] == [2]
        assert len(turn.row.entries) == (1 if len(journal) == 1 else 0)


def test_twice_before_any_turn(store: Store) -> None:
    failed(store)
    store.broken = False
    store.operations.rewind("o", "once", after="double#1")
    store.operations.rewind("o", "twice", to="start")
    store.drain()
    assert store.of.result("o") == "4 hello 20"
    assert store.did == [2, 2, 10]


def test_sealed_journals_are_copied_sealed(url: str) -> None:
    store = Store(url, {"keys": new_key("k")})
    failed(store)
    store.broken = False
    store.operations.rewind("o", "mended", after="double#1")
    bodies = store.query("select body from {journal}")
    assert bodies
    assert not any("hello" in body for (body,) in bodies)
    store.drain()
    assert store.of.result("o") == "4 hello 20"
    store.forget()
    store.app.close()


def test_it_is_in_the_audit(store: Store) -> None:
    failed(store)
    store.operations.rewind("o", "the bug is mended", after="double#1")
    (entry,) = [each for each in store.app.operations.audit() if each.action == "orchestrations.rewind"]
    assert (entry.target, entry.why) == ("o", "the bug is mended")


def test_what_cannot_be_is_refused(store: Store) -> None:
    failed(store)
    for point, told in (
        ({"to": "nothing#7"}, "no step 'nothing#7'"), ({"to": "charge#1"}, "no step"), ({"after": "start"}, "no step"),
        ({}, "Say where"), ({"to": "start", "after": "double#1"}, "Say where"), ({"to": "-1"}, "no step"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=told):
            store.operations.rehearse_rewind("o", **point)
    with pytest.raises(UsageError, match="why"):
        store.operations.rewind("o", " ", to="start")
    with pytest.raises(NotFound):
        store.operations.rewind("nobody", "why", to="start")
    store.of.start(store.order, 1, id="new")
    with pytest.raises(UsageError, match="none of its code has run"):
        store.operations.rewind("new", "why", to="start")
    store.operations.rewind("o", "again", to="start")
    store.drain("order@1")
    with pytest.raises(UsageError, match="no answer that could be kept"):
        store.operations.rehearse_rewind("o", after="double#1")


def test_on_the_command_line(store: Store) -> None:
    failed(store)
    run = CliRunner()
    url = ["--url", store.url]
    shown = run.invoke(
        main, ["orchestrations", "rewind", "o", "--to", "double#1", "--why", "w", "--dry-run", *url]
    )
    assert "may happen again: double#1 (activity, answered)" in shown.output, shown.output
    assert store.of.status("o").execution == 0
    asked = run.invoke(
        main, ["orchestrations", "rewind", "o", "--to", "start", "--why", "w", *url], input="n\n"
    )
    assert asked.exit_code != 0
    assert store.of.status("o").execution == 0
    done = run.invoke(
        main, ["orchestrations", "rewind", "o", "--to", "start", "--why", "w", "-y", "--json", *url]
    )
    assert json.loads(done.output)["is_rehearsal"] is False
    assert store.of.status("o").execution == 1


def test_the_cut_as_values() -> None:
    """Calls that were open keep their answers; those of the point and failures do not."""
    started = Entry(Started("m", 1, None, "i/0"), (Call("a", ""), Call("b", "")))
    behind = (
        Entry(Answered("x", 2, 3, 2, "2")),
        Entry(Signalled("s", 3, "n")),
        Entry(Answered("y", 4, 3, 1, "1"), (Call("c", ""),)),
    )
    rows = [
        Row(id="i", execution=3, turn=1, at=1, entries=(started,)),
        Row(id="i", execution=3, turn=2, at=2, entries=behind),
    ]
    entries = [entry for row in rows for entry in row.entries]
    found = rewinding(rows, point_of(entries, "a#1", is_after=False))
    assert [row.execution for row in found.rows] == [4]
    assert found.rows[-1].rewound == Rewound(3, (Answered("", 2, 4, 2, "2"), Signalled("", 3, "n")))
    assert [each.label for each in found.repeats] == ["a#1", "c#3"]
    found = rewinding(rows, point_of(entries, "1", is_after=True), keeps_signals=False)
    assert (found.kept, found.dropped) == (3, 1)
    assert [row.turn for row in found.rows] == [1, 2]
    assert found.rows[-1].rewound == Rewound(3, (Answered("", 4, 4, 1, "1"),))


def test_to_a_step_that_is_only_recorded_is_refused_with_what_makes_it_again(store: Store) -> None:
    """Such a step is part of the event before it, and was kept, although the command said that it is asked again."""

    @store.app.orchestration()
    async def code(flow: Flow) -> int:
        flow.patched("first")
        await store.double(1)
        drawn = flow.once(lambda: len(store.did), name="draw")
        await flow.signal("go")
        store.order.start(drawn)
        return drawn

    store.of.start(code, id="c")
    store.drain()
    store.of.signal("c", "go")
    store.drain()
    for step, instead in (
        ("first#1", "go back to the start"),
        ("draw#3", "go back after double#2"),
        ("order@1#4", "choose an earlier step"),
    ):
        with pytest.raises(UsageError, match=f"{step} was recorded at once.*{instead}"):
            store.operations.rehearse_rewind("c", to=step)
    assert store.of.result("c") == 1
    assert len(store.did) == 2, "the detached order has done something, too"
    told = store.operations.rewind("c", "another draw", after="double#2")
    assert "draw#3 (flow.once)" in told.repeats
    store.drain()
    assert store.of.result("c") == 2, "it was drawn again"
