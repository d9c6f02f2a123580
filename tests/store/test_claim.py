"""Claiming: who gets what, how much of it, and what a claim does to a message."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from holdfast.model.work import Want
from tests.store.box import QUEUE, Box, dead, done, failed, given_back, names, new

# --- Order ------------------------------------------------------------------------------------------------------------


@pytest.mark.covers("X19", "C14", "C23", "V11", "D23")
def test_oldest_first(box: Box) -> None:
    for name in "abcde":
        box.send(name)
        box.pass_time(seconds=1)
    assert names(box.claim(heads=2)) == ["a", "b"]
    assert names(box.claim(heads=2)) == ["c", "d"]
    assert names(box.claim(heads=2)) == ["e"]


@pytest.mark.covers("X19", "X45")
def test_what_was_published_at_one_instant_comes_in_the_order_of_the_call(box: Box) -> None:
    box.send_all(*range(50))
    assert names(box.claim()) == list(range(50))


@pytest.mark.covers("X14", "X45")
def test_a_retry_takes_its_turn_when_it_falls_due(box: Box) -> None:
    box.send("failed")
    box.settle(failed(box.claim_one(), retry="steady"))
    box.pass_time(seconds=30)
    box.send("meanwhile")
    box.pass_time(seconds=30)
    box.send("later")
    assert names(box.claim()) == ["meanwhile", "failed", "later"]


# --- What is told of a batch before it is read ------------------------------------------------------------------------


@pytest.mark.parametrize("bytes_max", [10**6, 60])
@pytest.mark.parametrize("queues", [("one",), ("one", "two", "three")])
@pytest.mark.parametrize("streams", [0, 1, 3])
def test_what_is_told_of_a_batch_is_what_it_holds(
    box: Box, queues: tuple[str, ...], streams: int, bytes_max: int
) -> None:
    for queue in queues:
        box.subscribe(queue, f"to.{queue}")
    for n in range(30):
        stream = f"s{n % streams}" if streams and n % 5 else None
        box.publish(new(f"é{n}", type=f"to.{queues[n % len(queues)]}", stream=stream))
        box.pass_time(seconds=1)
    want = [Want(queue, 4, run=3) for queue in queues]
    batch = box.exchange(want=want, total=20, bytes_max=bytes_max)
    assert len(batch.work) == len(list(batch.work)) > 0
    for queue in queues:
        its = [each for each in batch.work if each.message.queue == queue]
        heads = [each.message for each in its if each.run == each.message.seq]
        if not its:
            assert queue not in batch.shares
            assert queue not in batch.marks
            continue
        share = batch.shares[queue]
        assert (share.messages, share.heads) == (len(its), len(heads))
        assert share.ordered == any(each.message.position is not None for each in its)
        text = [each.message.body for each in its]
        assert share.bytes == sum(len(each) if box.sqlite else len(each.encode()) for each in text)
        if not box.sqlite:  # which has no dead rows to walk past
            (last,) = (m for m in box.messages(queue) if m.seq == heads[-1].seq)
            assert batch.marks[queue] == (last.claimable_at, last.seq)


# --- Limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.covers("C24")
@pytest.mark.parametrize("heads", [0, 1, 3, 10, 11])
def test_no_more_heads_than_wanted(box: Box, heads: int) -> None:
    box.send_all(*range(10))
    assert len(box.claim(heads=heads)) == min(heads, 10)


def test_no_more_messages_than_the_total(box: Box) -> None:
    box.send_all(*range(4), stream="s")
    box.send_all(*range(4, 8))
    assert len(box.claim(total=0)) == 0
    assert names(box.claim(total=3)) == [0, 4, 5]
    assert names(box.claim(total=3)) == [6, 7]


def test_the_total_counts_followers(box: Box) -> None:
    box.send_all(*range(9), stream="s")
    box.send("x")
    assert names(box.claim(total=5)) == [0, "x", 1, 2, 3]


@pytest.mark.covers("D22")
@pytest.mark.parametrize(("run", "taken"), [(1, 1), (2, 2), (50, 50), (51, 51), (500, 60)])
def test_no_longer_runs_than_wanted(box: Box, run: int, taken: int) -> None:
    box.send_all(*range(60), stream="s")
    assert names(box.claim(run=run)) == list(range(taken))


@pytest.mark.parametrize("stream", [None, "s"])
def test_the_byte_budget_is_overdrawn_by_one_message_at_most(box: Box, stream: str | None) -> None:
    box.send_all(*["x" * 98] * 10, stream=stream)  # 100 bytes with its quotes
    assert len(box.claim(bytes_max=250)) == 3
    assert box.read("lease") != []


def test_one_message_is_handed_out_however_large(box: Box) -> None:
    box.send_all("x" * 1000, "y" * 1000)
    assert len(box.claim(bytes_max=1)) == 1


@pytest.mark.parametrize("stream", [None, "s"])
def test_bytes_are_not_characters(box: Box, stream: str | None) -> None:
    """Found on SQLite, which counted characters."""
    wide = '"' + "\N{GRINNING FACE}" * 25 + '"'  # 102 bytes, 27 characters
    box.publish(*(replace(new("m", stream=stream), body=wide) for _ in range(4)))
    assert len(box.claim(bytes_max=204)) == 2


def test_the_budget_is_shared_by_heads_and_followers(box: Box) -> None:
    box.send_all(*["x" * 98] * 3, stream="s")
    box.send_all(*["x" * 98] * 3, stream="t")
    assert len(box.claim(bytes_max=301)) == 4


# --- Queues -----------------------------------------------------------------------------------------------------------


def test_queues_are_served_in_the_order_wanted_up_to_the_total(box: Box) -> None:
    box.subscribe("ledger", "other")
    box.send_all("m1", "m2", "m3")
    box.send_all("l1", "l2", type="other")
    assert names(box.claim("ledger", QUEUE, total=4)) == ["l1", "l2", "m1", "m2"]


def test_each_queue_has_its_own_number_of_heads(box: Box) -> None:
    box.subscribe("ledger", "other")
    box.send_all("m1", "m2", "m3")
    box.send_all("l1", "l2", type="other")
    batch = box.exchange(want=[Want(QUEUE, 1), Want("ledger", 2)], total=100)
    assert names(batch.work) == ["m1", "l1", "l2"]


def test_a_queue_of_which_nothing_is_wanted_hides_no_other(box: Box) -> None:
    """Found on SQLite: it ended the claim."""
    box.subscribe("ledger", "other")
    box.send("m")
    box.send("l", type="other")
    batch = box.exchange(want=[Want(QUEUE, 0), Want("ledger", 5)], total=100)
    assert names(batch.work) == ["l"]


@pytest.mark.parametrize("many", [16, 17, 60])
def test_many_queues_are_served_like_few(box: Box, many: int) -> None:
    """Many are skipped through, not looked at one by one. Order, heads and a pause count all the same."""
    wanted = [f"q{n:02}" for n in range(many)]
    for queue in ("q03", "q09", "q12", "q15", "unwanted"):
        box.send_all(f"{queue}.1", f"{queue}.2", queue=queue)
    box.subscribe("q12", "other")
    box.pause("q12")
    want = [Want(queue, 1 if queue == "q09" else 5) for queue in reversed(wanted)]
    batch = box.exchange(want=want, total=100)
    assert names(batch.work) == ["q15.1", "q15.2", "q09.1", "q03.1", "q03.2"]
    assert box.exchange(want=[Want(f"e{n}", 5) for n in range(many)], total=100).work == []


@pytest.mark.parametrize("others", [0, 9])
def test_more_queues_have_messages_than_are_wanted(box: Box, others: int) -> None:
    """On SQLite few are looked for by name. Of many, only the first with messages are listed; more are wanted."""
    for n in range(20):
        box.send(f"q{n:02}.1", queue=f"q{n:02}")

    def claimed(*queues: str) -> list[str]:
        wanted = [*queues, *(f"e{n}" for n in range(others))]
        return names(box.exchange(want=[Want(queue, 5) for queue in wanted], total=100).work)

    assert claimed("q00x", "z") == []
    assert claimed("q19", "e", "q01") == ["q19.1", "q01.1"]
    assert claimed("q18") == ["q18.1"]


@pytest.mark.covers("X42")
def test_nobody_gets_the_messages_of_another_queue(box: Box) -> None:
    box.send("m")
    assert box.claim("ledger") == []


def test_nothing_is_claimed_from_a_paused_queue(box: Box) -> None:
    box.subscribe("ledger", "other")
    box.send_all("a", "b", stream="s")
    box.send("l", type="other")
    held = box.claim(QUEUE, run=1)
    box.pause(QUEUE)
    assert names(box.claim(QUEUE, "ledger")) == ["l"]
    # What runs settles and promotes; the next is not handed out before the queue is resumed.
    assert box.settle(*map(done, held)) == set()
    assert box.claim(QUEUE) == []
    box.resume(QUEUE)
    assert names(box.claim(QUEUE)) == ["b"]


def test_a_worker_is_told_which_queues_are_paused(box: Box) -> None:
    box.subscribe("ledger", "other")
    assert box.turn().paused == frozenset()
    box.pause("ledger")
    assert box.turn().paused == frozenset({"ledger"})


def test_a_queue_that_nobody_ever_named_is_empty(empty_box: Box) -> None:
    assert empty_box.claim("nowhere") == []
    empty_box.send("m", queue="direct")
    assert names(empty_box.claim("direct")) == ["m"]


# --- What a claim does ------------------------------------------------------------------------------------------------


@pytest.mark.covers("D9", "D16", "D21", "D24", "D25")
def test_a_claim_gives_a_lease_an_epoch_and_the_number_of_the_attempt(box: Box) -> None:
    box.send("m")
    leased = box.claim_one(lease=12.5)
    assert (leased.attempt, leased.epoch, leased.run, leased.run_epoch) == (1, 1, leased.message.seq, 1)
    assert leased.token == (leased.message.seq, 1)
    (lease,) = box.read("lease")
    assert (lease.seq, lease.epoch, lease.worker) == (leased.message.seq, 1, box.worker())
    assert lease.until == box.now + timedelta(seconds=12.5)


@pytest.mark.covers("D24")
def test_with_nothing_to_do_the_answer_is_empty(box: Box) -> None:
    batch = box.turn()
    assert (batch.work, batch.lost, batch.now) == ([], frozenset(), box.now)


@pytest.mark.covers("D9", "D11", "D12", "W25", "X2")
def test_every_hand_over_counts_and_raises_the_epoch(box: Box) -> None:
    id = box.send("m")
    leased = box.claim_one()
    box.settle(failed(leased, retry="immediate"))
    leased = box.claim_one()
    assert (leased.attempt, leased.epoch, leased.message.failures) == (2, 2, 1)
    box.settle(given_back(leased, refund=False))
    leased = box.claim_one()
    assert (leased.attempt, leased.epoch, leased.message.failures) == (3, 3, 1)
    box.pass_time(minutes=1)
    box.recover()
    again = box.claim_suspect()
    assert again is not None
    assert (again.attempt, again.epoch, again.message.failures) == (4, 4, 1)
    assert box.message(id).attempts == 3


@pytest.mark.covers("W103", "B43", "X23")
def test_two_workers_never_get_the_same_message(box: Box) -> None:
    box.send_all(*range(6))
    first, second = box.claim(heads=3), box.claim(heads=5, worker="two")
    assert (names(first), names(second)) == ([0, 1, 2], [3, 4, 5])
    assert box.claim() == []


@pytest.mark.covers("B34", "B42", "B60")
def test_what_is_done_is_never_handed_out_again(box: Box) -> None:
    box.send_all(*range(3))
    box.settle(*map(done, box.claim(heads=2)))
    box.pass_time(days=30)
    assert names(box.claim()) == [2]


@pytest.mark.covers("X11", "X13")
def test_a_lease_is_not_given_twice_even_if_it_has_lapsed(box: Box) -> None:
    """It has to be recovered first, which counts what vanished."""
    box.send("m")
    box.claim_one()
    box.pass_time(hours=1)
    assert box.claim() == []
    assert box.recover() == 1
    assert box.claim_suspect() is not None


def test_the_worker_that_sleeps_is_marked(box: Box) -> None:
    box.exchange(asleep=True)
    assert [w.asleep for w in box.read("worker")] == [True]
    box.exchange()
    assert [w.asleep for w in box.read("worker")] == [True]
    box.exchange(asleep=False)
    assert [w.asleep for w in box.read("worker")] == [False]


@pytest.mark.covers("C22")
def test_only_what_is_neither_done_nor_dead_nor_waiting_is_handed_out(box: Box) -> None:
    box.send_all("done", "dead", "failed")
    ended, died, again = box.claim()
    box.settle(done(ended), dead(died), failed(again))
    box.send("later", delay=60.0)
    box.send_all("leased", "ready")
    assert names(box.claim(heads=1)) == ["leased"]
    assert names(box.claim()) == ["ready"]


@pytest.mark.covers("W100")
def test_what_the_outbox_knows_of_a_message_can_be_queried(box: Box) -> None:
    id = box.send({"n": 1}, stream="s")
    box.settle(failed(box.claim_one()))
    box.pass_time(seconds=60)
    box.claim_one(worker="two", lease=30.0)
    rows = box.query(
        """select m.id, m.stream, m.queue, m.type, m.body, m.status, m.attempts, m.errors, m.reason, w.name
             from {message} m join {lease} l on l.seq = m.seq join {worker} w on w.id = l.worker
            where m.claimable_at <= l.until and m.created_at < m.claimable_at"""
    )
    ((found, *known, errors, reason, worker),) = rows
    assert (str(found), reason, worker) == (str(id), 2, "two")
    assert known == ["s", QUEUE, "order.placed", '{"n": 1}', 32769, 1]
    assert "boom" in str(errors)


# --- The watermark ----------------------------------------------------------------------------------------------------


def test_nothing_at_or_before_the_watermark_is_looked_at(box: Box) -> None:
    box.send_all("a", "b")
    box.pass_time(seconds=1)
    box.send("c")
    a, _, _ = sorted(box.messages(), key=lambda m: m.seq)
    batch = box.exchange(want=[Want(QUEUE, 10, (a.claimable_at, a.seq))], total=10)
    assert names(batch.work) == ["b", "c"]


def test_whatever_becomes_claimable_lies_behind_the_watermark(box: Box) -> None:
    """A worker that has claimed up to now misses nothing that comes back, is promoted, adopted or fired later."""
    box.send_all("s1", "s2", stream="s")
    box.send("failed")
    box.send("unrouted", type="other")
    box.send("timer", stream="t", delay=30.0)
    box.send("lapsed")
    s1, failing, lapsing = box.claim(run=1)
    mark = box.now, max(m.seq for m in box.messages())
    box.pass_time(seconds=60)
    box.settle(failed(failing, retry="immediate"), done(s1))
    box.subscribe(QUEUE, "other")
    box.recover()
    box.exchange(want=[Want("none", 1)], total=1)
    behind = [m.body for m in box.messages() if (m.claimable_at, m.seq) > mark]
    assert sorted(behind) == ['"failed"', '"lapsed"', '"s2"', '"timer"', '"unrouted"']
    assert lapsing.message.body == '"lapsed"'
