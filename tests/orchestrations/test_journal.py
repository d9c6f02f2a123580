"""Journal rows: what is written comes back, what cannot be read says so, parts and messages handed out again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.orchestrations import journal
from holdfast.orchestrations.declared import activity, orchestration
from holdfast.orchestrations.failures import Failure
from holdfast.orchestrations.flow import Flow
from holdfast.orchestrations.host import Options
from holdfast.orchestrations.journal import (
    Again,
    Answered,
    Begun,
    Call,
    Cancel,
    Cancelled,
    Carried,
    Child,
    Complete,
    Entry,
    Fail,
    Fired,
    JournalUnreadable,
    Once,
    Patched,
    Row,
    Signalled,
    Start,
    Started,
    Timer,
    Withdraw,
    Woken,
    fingerprint,
    merged,
    message_id,
)
from holdfast.orchestrations.outcome import Turn
from holdfast.orchestrations.turn import Instance, play
from tests.orchestrations.engine import START

texts = st.text(max_size=10)
numbers = st.integers(0, 2**53)
failures = st.builds(Failure, texts, texts, st.just(2), st.just("application"), texts, st.none() | texts)
arrivals = st.one_of(
    st.builds(
        Started, texts, numbers, st.none() | texts, texts, st.none() | texts, st.none() | numbers,
        st.lists(st.builds(Carried, texts, st.none() | texts), max_size=2).map(tuple),
    ),
    st.builds(Begun, texts, numbers),
    st.builds(Answered, texts, numbers, numbers, numbers, st.none() | texts, st.none() | failures),
    st.builds(Fired, texts, numbers, numbers, numbers),
    st.builds(Signalled, texts, numbers, texts, st.none() | texts),
    st.builds(Cancelled, texts, numbers, texts),
    st.builds(Woken, texts, numbers),
)  # fmt: skip
commands = st.one_of(
    st.builds(Call, texts, texts),
    st.builds(Timer, numbers),
    st.builds(Child, texts, texts, texts),
    st.builds(Start, texts, texts, texts),
    st.builds(Once, texts, st.none() | texts, st.none() | failures),
    st.builds(Patched, texts),
    st.builds(Withdraw, numbers),
    st.builds(Complete, texts),
    st.builds(Fail, failures),
    st.builds(Cancel),
    st.builds(Again, texts),
)
rows = st.builds(
    Row,
    id=st.just("i"), execution=numbers, turn=numbers, part=numbers, at=numbers, final=st.booleans(), python=texts,
    entries=st.lists(st.builds(Entry, arrivals, st.lists(commands, max_size=3).map(tuple)), max_size=3).map(tuple),
    late=st.lists(texts, max_size=2).map(tuple),
)  # fmt: skip


@settings(max_examples=100)
@given(rows)
def test_a_row_comes_back_as_it_went(row: Row) -> None:
    assert journal.decode(*row.key, journal.encode(row)) == row


@pytest.mark.covers("X12")
@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"format":1}', '{"format":1,"python":"3.11","at":1,"entries":[[["called","m",1],[]]]}',
     '{"format":2,"python":"3.11","at":1}', "\ud800"],
)  # fmt: skip
def test_a_row_that_cannot_be_read_says_so(text: str) -> None:
    with pytest.raises(JournalUnreadable, match="instance 'i'"):
        journal.decode("i", 0, 1, 0, text)


def test_a_later_release_may_add_fields() -> None:
    """A row of today is read by a release that knows more, and the other way round for fields of lists."""

    class Fired2(msgspec.Struct, frozen=True, array_like=True, tag="fired"):
        message: str
        at: int
        execution: int
        number: int
        late_by: int = 0

    old = msgspec.json.encode(Fired("m", 1, 0, 3))
    assert msgspec.json.decode(old, type=Fired2) == Fired2("m", 1, 0, 3, 0)
    assert msgspec.json.decode(msgspec.json.encode(Fired2("m", 1, 0, 3, 9)), type=Fired) == Fired(
        "m", 1, 0, 3
    )


def test_fingerprints_do_not_depend_on_the_order_of_sets_and_dicts() -> None:
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    words = [f"word{number}" for number in range(50)]
    assert fingerprint(set(words)) == fingerprint({*words[25:], *words[:25]})
    assert fingerprint([1, 2]) != fingerprint([2, 1])
    assert fingerprint(Pair(1, 2)) == fingerprint({"a": 2, "b": 1})  # nor on the order of fields
    assert fingerprint(None) == ""


@dataclass
class Pair:
    b: int
    a: int


def test_message_ids_are_stable_and_differ() -> None:
    assert str(message_id("i", 0, 1)) == str(message_id("i", 0, 1))
    assert (
        len({message_id(id, execution, number) for id in "ij" for execution in (0, 1) for number in (1, 2)})
        == 8
    )


@activity(options=Options(inline=True))
def pack(item: str) -> str:
    return item.upper()


@orchestration()
async def three(flow: Flow) -> list[str]:
    return [await pack("a"), await pack("b"), await flow.signal("s", str)]


def test_a_turn_in_parts() -> None:
    """Inline activities: each result is a part of the turn, and a crash in between goes on with the next part."""
    instance = Instance(three.program, "i")
    start = Started("m0", 1, None, "i/0")
    first = instance.turn([start], START, more=True)
    assert isinstance(first, Turn)
    assert first.asks == ()
    assert [ask.number for ask in instance.inline()] == [1]
    second = instance.turn([Answered("", 2, 0, 1, '"A"')], START, more=True)
    assert isinstance(second, Turn)
    assert [row.key[2:] for row in (first.row, second.row)] == [(1, 0), (1, 1)]
    instance.close()
    # The worker dies here. The run is handed out again, with the message whose part is stored.
    again = Instance(three.program, "i")
    again.load([first.row, second.row])
    again.catch_up()
    third = again.turn([start, Answered("", 3, 0, 2, '"B"')], START)
    assert isinstance(third, Turn)
    assert third.duplicates == ("m0",)
    assert (third.row.key[2:], third.row.final) == ((1, 2), True)
    last = again.turn([Signalled("m1", 4, "s", '"C"')], START)
    assert isinstance(last, Turn)
    assert last.row.key[2:] == (2, 0)
    assert last.end is not None
    assert last.end.result == '["A","B","C"]'
    again.close()
    whole = play(
        three.program, "i", 0, [],
        [start, Answered("", 2, 0, 1, '"A"'), Answered("", 3, 0, 2, '"B"'), Signalled("m1", 4, "s", '"C"')], START,
    )  # fmt: skip
    assert isinstance(whole, Turn)
    assert whole.row.entries == merged([first.row, second.row, third.row, last.row])


def test_a_second_start_or_answer_is_late() -> None:
    instance = Instance(three.program, "i")
    turn = instance.turn([Started("m0", 1, None, "i/0"), Started("m1", 1, None, "i/0")], START)
    assert isinstance(turn, Turn)
    assert turn.row.late == ("m1",)
    assert turn.row.consumed == ("m0", "m1")
    turn = instance.turn(
        [
            Answered("m2", 2, 0, 1, '"A"'),
            Answered("m3", 2, 0, 1, '"X"'),
            Fired("m4", 3, 0, 2),
            Woken("m5", 4),
        ],
        START,
    )
    assert isinstance(turn, Turn)
    assert turn.row.late == ("m3", "m4", "m5")
    instance.close()


@pytest.mark.parametrize("missing", [0, 1])
def test_a_gap_is_found(missing: int) -> None:
    instance = Instance(three.program, "i")
    found: list[Any] = [
        instance.turn([Started("m0", 1, None, "i/0")], START),
        instance.turn([Answered("m2", 2, 0, 1, '"A"')], START),
        instance.turn([Answered("m3", 2, 0, 2, '"A"')], START),
    ]
    instance.close()
    del found[missing]
    other = Instance(three.program, "i")
    with pytest.raises(JournalUnreadable, match="has a gap"):
        other.load(turn.row for turn in found)
    other.close()


def test_a_turn_before_the_replay_is_refused() -> None:
    turn = play(three.program, "i", 0, [], [Started("m0", 1, None, "i/0")], START)
    assert isinstance(turn, Turn)
    instance = Instance(three.program, "i")
    instance.load([turn.row])
    with pytest.raises(UsageError, match="catch_up"):
        instance.turn([], START)
    instance.close()


def test_a_journal_can_be_loaded_in_pieces() -> None:
    instance = Instance(three.program, "i")
    turns: list[Any] = [
        instance.turn([Started("m0", 1, None, "i/0")], START),
        instance.turn([Answered("m2", 2, 0, 1, '"A"')], START),
        instance.turn([Answered("m3", 2, 0, 2, '"A"')], START),
    ]
    instance.close()
    other = Instance(three.program, "i")
    for turn in turns:
        other.load([turn.row])
        assert other.catch_up()
    assert other.waits().signals == ("s",)
    other.close()


def test_what_an_instance_waits_for() -> None:
    @orchestration()
    async def waits(flow: Flow) -> None:
        await asyncio.gather(pack("a"), asyncio.sleep(5), flow.signal("approved"))

    instance = Instance(waits.program, "i")
    instance.turn([Started("m0", 1, None, "i/0")], START)
    waiting = instance.waits()
    assert [(ask.number, type(ask.command).__name__, ask.input) for ask in waiting.asks] == [
        (1, "Inline", '"a"'), (2, "Timer", None),
    ]  # fmt: skip
    assert waiting.signals == ("approved",)
    instance.close()
