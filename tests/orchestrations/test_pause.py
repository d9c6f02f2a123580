"""A pause is a state: changed code stops its instance with the difference, keeps its messages, waits for a resume."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast import Flow, NotFound, OrchestrationFailed, UsageError
from tests.orchestrations.shop import Shop
from tests.store.state import check_invariants


class Deploy(Shop):
    """One release of an application: its orchestration `code` is whatever it is given."""

    def __post_init__(self) -> None:
        super().__post_init__()

        @self.app.activity()
        async def charge(n: int) -> int:
            self.did.append(f"charge {n}")
            return n

        @self.app.activity()
        async def refund(n: int) -> int:
            self.did.append(f"refund {n}")
            return n

        @self.app.orchestration()
        async def child(n: int) -> int:
            return n

        self.charge, self.refund, self.child = charge, refund, child

    def with_code(self, function: Callable[[Deploy, Flow], Any]) -> Any:
        async def code(flow: Flow) -> int:
            return int(await function(self, flow))

        return self.app.orchestration(name="code")(code)


async def old(its: Deploy, flow: Flow) -> int:
    await its.charge(1)
    flow.once(lambda: 7, name="draw")
    if flow.patched("fee"):
        await asyncio.gather(its.refund(2), its.child.using(id=f"{flow.id}/kid")(3))
    await asyncio.sleep(60)
    return int(await flow.signal("end", int))


async def another_activity(its: Deploy, flow: Flow) -> int:
    return await its.refund(1)


async def another_input(its: Deploy, flow: Flow) -> int:
    return await its.charge(2)


async def call_removed(its: Deploy, flow: Flow) -> int:
    flow.once(lambda: 7, name="draw")
    return 0


async def call_added(its: Deploy, flow: Flow) -> int:
    return sum(await asyncio.gather(its.charge(1), its.refund(9)))


async def another_kind(its: Deploy, flow: Flow) -> int:
    await asyncio.sleep(1)
    return 0


async def side_effect_renamed(its: Deploy, flow: Flow) -> int:
    await its.charge(1)
    return flow.once(lambda: 7, name="drawn")


async def patch_removed(its: Deploy, flow: Flow) -> int:
    await its.charge(1)
    flow.once(lambda: 7, name="draw")
    await asyncio.sleep(60)
    return 0


async def swapped(its: Deploy, flow: Flow) -> int:
    await its.charge(1)
    flow.once(lambda: 7, name="draw")
    if flow.patched("fee"):
        await asyncio.gather(its.child.using(id=f"{flow.id}/kid")(3), its.refund(2))
    return 0


async def another_child(its: Deploy, flow: Flow) -> int:
    await its.charge(1)
    flow.once(lambda: 7, name="draw")
    if flow.patched("fee"):
        await asyncio.gather(its.refund(2), its.child.using(id="somebody else")(3))
    return 0


async def another_time(its: Deploy, flow: Flow) -> int:
    await its.charge(1)
    flow.once(lambda: 7, name="draw")
    if flow.patched("fee"):
        await asyncio.gather(its.refund(2), its.child.using(id=f"{flow.id}/kid")(3))
    await asyncio.sleep(61)
    return 0


async def returns_early(its: Deploy, flow: Flow) -> int:
    await its.charge(1)
    return 0


async def raises(its: Deploy, flow: Flow) -> int:
    await its.charge(1)
    raise ValueError("a new check")


async def swallows(its: Deploy, flow: Flow) -> int:
    """It catches everything: the difference is kept though."""
    try:
        await its.refund(1)
    except BaseException:
        return 5
    return 6


KINDS = [
    another_activity, another_input, call_removed, call_added, another_kind, side_effect_renamed, patch_removed,
    swapped, another_child, another_time, returns_early, raises, swallows,
]  # fmt: skip


@pytest.fixture
def before(url: str) -> Iterator[Deploy]:
    """An instance of the old code that waits for its timer; nobody has it in memory."""
    made = Deploy(url)
    code = made.with_code(old)
    made.app.prepare()
    made.of.start(code, id="i")
    made.drain()
    made.forget()
    yield made
    made.forget()
    check_invariants(made.app.store)
    made.app.close()


def after(before: Deploy, function: Callable[[Deploy, Flow], Any]) -> Deploy:
    made = Deploy(before.url, clock=before.clock)
    made.with_code(function)
    return made


@pytest.mark.covers("X58")
@pytest.mark.parametrize("kind", KINDS, ids=lambda each: each.__name__)
def test_changed_code_pauses_its_instance_with_the_difference(
    before: Deploy, kind: Callable[[Deploy, Flow], Any]
) -> None:
    """Nothing of the new code is stored, nothing counts, messages wait at their places; the old code goes on."""
    new = after(before, kind)
    new.of.signal("i", "end", 42)
    for _ in range(3):
        new.advance(seconds=30)
    status = new.of.status("i")
    assert (status.state, status.turn) == ("paused", before.of.status("i").turn)
    assert status.trouble is not None
    assert "The code" in status.trouble or "asks" in status.trouble or "journal" in status.trouble
    assert len(status.trouble.splitlines()) > 1, "with a diff"
    assert new.did == []
    assert new.query("select count(*) from {message} where head") == [(0,)], "its head is none any more"
    assert new.query("select attempts, failures, refunds from {message}") == [(0, 0, 0)] * 2
    told = " ".join(new.app.operations.why("i"))
    assert "Paused: Command" in told
    assert "holdfast orchestrations resume i" in told
    before.drain()
    assert before.of.status("i").state == "paused", "a fix alone does not resume it"
    before.app.operations.orchestrations.resume("i")
    before.drain()
    assert before.of.result("i") == 42
    assert before.of.status("i").trouble is None
    assert before.query("select count(*) from {dead}") == [(0,)]
    new.forget()
    new.app.close()


def test_resumed_without_a_fix_it_is_paused_again(before: Deploy) -> None:
    new = after(before, another_activity)
    new.of.signal("i", "end", 1)
    new.drain()
    new.app.operations.orchestrations.resume("i")
    assert new.of.status("i").state == "running"
    new.drain()
    assert new.of.status("i").state == "paused"
    new.forget()
    new.app.close()


def test_a_paused_instance_takes_messages_and_no_other_is_held_up(before: Deploy) -> None:
    new = after(before, another_activity)
    new.of.signal("i", "end", 1)
    new.drain()
    new.of.signal("i", "end", 2)
    new.of.cancel("i", "no longer wanted")
    other = new.of.start(new.child, 3, id="other")
    new.drain()
    assert new.of.result(other) == 3
    assert new.of.status("i").state == "paused"
    assert new.query("select count(*) from {message} where queue = 'code@1'") == [(3,)]
    before.app.operations.orchestrations.resume("i")
    before.drain()
    assert before.of.status("i").state == "cancelled"
    new.forget()
    new.app.close()


def test_cancelling_a_paused_instance_needs_no_resume_if_its_code_was_mended(before: Deploy) -> None:
    new = after(before, another_activity)
    new.of.signal("i", "end", 1)
    new.drain()
    assert new.of.status("i").state == "paused"
    new.forget()
    new.app.close()
    told = before.app.operations.orchestrations.cancel("i")
    assert (told.state, "tried once more" in told.what) == ("paused", True)
    assert "holdfast orchestrations terminate i" in told.what
    before.drain()
    assert before.of.status("i").state == "cancelled"


def test_cancelling_a_paused_instance_whose_code_does_not_fit_waits_for_a_resume(before: Deploy) -> None:
    """Only its code can undo what it did, so a cancellation waits for code that can go on."""
    new = after(before, another_activity)
    new.of.signal("i", "end", 1)
    new.drain()
    new.of.cancel("i", "no longer wanted")
    new.drain()
    assert new.of.status("i").state == "paused", "tried once, and no more"
    assert new.query("select count(*) from {message} where queue = 'code@1'") == [(2,)]
    assert new.query("select count(*) from {message} where queue = 'holdfast/signals'") == [(0,)]
    new.advance(days=1)
    assert new.of.status("i").state == "paused"
    before.app.operations.orchestrations.resume("i")
    before.drain()
    assert before.of.status("i").state == "cancelled"
    new.forget()
    new.app.close()


def test_a_suspended_instance_that_is_cancelled_stays_suspended(before: Deploy) -> None:
    """Somebody holds it on purpose."""
    before.app.operations.orchestrations.suspend("i", "look")
    before.of.cancel("i", "no longer wanted")
    before.drain()
    assert before.of.status("i").state == "suspended"
    before.app.operations.orchestrations.resume("i")
    before.drain()
    assert before.of.status("i").state == "cancelled"


def test_a_paused_child_is_cancelled_with_its_parent(before: Deploy) -> None:
    """The parent does not know that it is paused; nobody resumes it."""

    def parent_of(made: Deploy, code: Any) -> Any:
        @made.app.orchestration(name="parent")
        async def parent() -> int:
            return int(await code.using(id="kid")())

        return parent

    parent = parent_of(before, before.of.declared["code@1"])
    before.of.start(parent, id="p")
    before.drain()
    before.forget()
    new = after(before, another_activity)
    new.of.signal("kid", "end", 1)
    new.drain()
    assert new.of.status("kid").state == "paused"
    new.forget()
    new.app.close()
    before.of.cancel("p")
    before.drain()
    assert (before.of.status("p").state, before.of.status("kid").state) == ("cancelled", "cancelled")


def test_a_paused_instance_is_terminated_at_once_also_after_a_cancellation(before: Deploy) -> None:
    new = after(before, another_activity)
    new.of.signal("i", "end", 1)
    new.drain()
    new.of.cancel("i", "no longer wanted")
    new.app.operations.orchestrations.terminate("i", "nobody mends it")
    new.drain()
    assert new.of.status("i").state == "terminated"
    assert new.query("select count(*) from {pending}") == [(0,)], "what waited came late"
    assert new.query("select count(*) from {stream} where halted_by is not null") == [(0,)]
    with pytest.raises(OrchestrationFailed, match="nobody mends it"):
        new.of.result("i")
    new.forget()
    new.app.close()


def test_only_what_is_paused_or_suspended_is_resumed(before: Deploy) -> None:
    with pytest.raises(UsageError, match="is running"):
        before.app.operations.orchestrations.resume("i")
    with pytest.raises(NotFound):
        before.app.operations.orchestrations.resume("nobody")


def test_a_suspended_instance_stands_still_until_it_is_resumed(before: Deploy) -> None:
    before.app.operations.orchestrations.suspend("i", "an audit")
    with pytest.raises(UsageError, match="is suspended"):
        before.app.operations.orchestrations.suspend("i", "again")
    before.of.signal("i", "end", 42)
    before.advance(seconds=90)
    status = before.of.status("i")
    assert (status.state, status.trouble) == ("suspended", "an audit")
    assert "Suspended by an operator: an audit" in " ".join(before.app.operations.why("i"))
    assert before.query("select count(*) from {message} where head") == [(0,)]
    before.app.operations.orchestrations.resume("i")
    before.drain()
    assert before.of.result("i") == 42


def test_a_turn_that_runs_while_its_instance_is_suspended_is_stored(before: Deploy) -> None:
    """Its state stays; what comes next waits."""
    take = before.of.place.memory.take

    def meanwhile(id: str, stand: Any) -> Any:
        before.app.operations.orchestrations.suspend("i", "why")
        return take(id, stand)

    before.of.place.memory.take = meanwhile
    turn = before.of.status("i").turn
    before.advance(seconds=90)
    before.of.place.memory.take = take
    before.of.signal("i", "end", 42)
    before.drain()
    assert (before.of.status("i").state, before.of.status("i").turn) == ("suspended", turn + 1)
    before.app.operations.orchestrations.resume("i")
    before.drain()
    assert before.of.result("i") == 42


def test_a_message_handed_out_while_its_instance_is_suspended_goes_back_to_its_place(before: Deploy) -> None:
    """Somebody let the stream go on past us: the turn finds the state, and demotes its head again."""
    before.app.operations.orchestrations.suspend("i", "why")
    before.of.signal("i", "end", 42)
    before.execute(f"update {before.prefix}stream set halted_by = null, halted_at = null where name = 'i'")
    before.execute(
        f"update {before.prefix}message set head = (1 = 1) where stream = 'i' and queue = 'code@1'"
    )
    before.drain()
    assert before.of.status("i").state == "suspended"
    assert before.query("select attempts from {message} where queue = 'code@1'") == [(0,)]
    before.advance(seconds=90)
    before.app.operations.orchestrations.resume("i")
    before.drain()
    assert before.of.result("i") == 42
