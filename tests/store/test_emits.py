"""What a settlement emits is stored with it or not at all."""

from __future__ import annotations

import pytest

from tests.store.box import QUEUE, Box, dead, done, failed, names, new


def test_it_is_stored_with_the_settlement_and_claimable_in_the_same_call(box: Box) -> None:
    box.send("a")
    batch = box.turn(done(box.claim_one(), new("b"), new("c", stream="s"), new("d", stream="s")))
    assert sorted(names(batch.work)) == ["b", "c", "d"]
    assert [h.id for h in box.read("history")] != []


@pytest.mark.covers("X42")
def test_it_goes_to_every_subscriber_or_to_one_queue_or_waits_for_one(box: Box) -> None:
    box.subscribe("ledger", "order.*")
    box.send("a", queue=QUEUE)
    box.settle(
        done(
            box.claim_one(),
            new("all", stream="s"),
            new("one", queue="ledger"),
            new("none", type="x", stream="s"),
        )
    )
    assert names(box.claim(QUEUE)) == ["all"]
    assert sorted(names(box.claim("ledger"))) == ["all", "one"]
    assert [m.body for m in box.messages() if m.queue is None] == ['"none"']
    box.subscribe("late", "x")
    assert names(box.claim("late")) == ["none"]


def test_it_can_be_delayed(box: Box) -> None:
    box.send("a")
    box.settle(done(box.claim_one(), new("b", delay=60.0), new("c", delay=60.0, stream="s")))
    assert box.claim() == []
    box.pass_time(seconds=60)
    assert sorted(names(box.claim())) == ["b", "c"]


def test_everything_about_it_is_stored(box: Box) -> None:
    box.send("a")
    given = new(
        {"deep": [1, "\N{SNOWMAN}"]}, stream="s", subject="x", headers='{"h":1}', dedupe="k", deadline=box.now
    )
    box.settle(done(box.claim_one(), given))
    message = box.claim_one().message
    assert (message.id, message.type, message.body, message.stream) == (given.id, given.type, given.body, "s")
    assert (message.subject, message.headers, message.deadline, message.status) == (
        "x",
        '{"h":1}',
        box.now,
        1,
    )


def test_several_settlements_emit_into_one_stream_in_their_order(box: Box) -> None:
    box.send_all("a", "b", "c")
    work = box.claim()[::-1]
    box.settle(*(done(each, *(new(f"{names([each])[0]}{i}", stream="s") for i in range(2))) for each in work))
    assert names(box.claim()) == ["c0", "c1", "b0", "b1", "a0", "a1"]


def test_every_settlement_of_a_call_may_emit(box: Box) -> None:
    box.send_all(*range(100), stream="in")
    work = box.claim(run=100)
    box.settle(*(done(each, new(f"{n}", stream=f"out{n % 3}")) for n, each in enumerate(work)))
    got = box.claim(run=100)
    for remainder in range(3):
        stream = [int(n) for n in names([each for each in got if each.message.stream == f"out{remainder}"])]
        assert stream == list(range(remainder, 100, 3))


@pytest.mark.parametrize("end", [failed, dead])
def test_what_a_failed_attempt_emitted_is_dropped(box: Box, end: object) -> None:
    """The rules drop it; a settlement that fails carries none."""
    box.send("a")
    assert end(box.claim_one()).emits == ()  # type: ignore[operator]


def test_the_stream_of_a_settled_message_and_of_what_it_emits_may_cross(box: Box) -> None:
    box.send("a", stream="a")
    box.send("b", stream="b")
    a, b = box.claim()
    box.settle(done(a, new("into b", stream="b")), done(b, new("into a", stream="a")))
    assert sorted(names(box.claim())) == ["into a", "into b"]
