"""Fences: whoever held a message before can change nothing any more, whatever the clocks say."""

from __future__ import annotations

import pytest

from holdfast.model.work import Leased
from holdfast.store.plans import engine
from tests.store.box import (
    Box,
    cancelled,
    dead,
    done,
    failed,
    given_back,
    moved,
    names,
    new,
    released,
    snoozed,
)

ENDINGS = [done, failed, dead, released, given_back, cancelled, lambda leased: snoozed(leased, 5.0)]


def taken_over(box: Box, stream: str | None) -> tuple[Leased, Leased]:
    """A lease that lapsed, and that of the worker who got the message after it."""
    box.send("m", stream=stream)
    old = box.claim_one(worker="slow")
    box.pass_time(minutes=1)
    assert box.recover() == 1
    new_one = box.claim_suspect(worker="next")
    assert new_one is not None
    assert new_one.epoch > old.epoch
    return old, new_one


@pytest.mark.covers("B44")
@pytest.mark.parametrize("stream", [None, "s"])
@pytest.mark.parametrize(
    "ending", ENDINGS, ids=["done", "failed", "dead", "released", "back", "cancelled", "snoozed"]
)
def test_the_old_holder_changes_nothing(box: Box, ending: object, stream: str | None) -> None:
    old, _ = taken_over(box, stream)
    before = [box.read(table) for table in ("message", "lease", "stream", "dead", "history")]
    assert box.settle(ending(old), worker="slow") == {old.message.seq}  # type: ignore[operator]
    assert [box.read(table) for table in ("message", "lease", "stream", "dead", "history")] == before


def test_the_old_holder_says_nothing_of_how_far_it_is(box: Box) -> None:
    old, new_one = taken_over(box, None)
    seq = old.message.seq
    box.store.run(engine.progress({(seq, old.epoch): "old", (seq + 1, new_one.epoch): "nobody's"}))
    assert [each.progress for each in box.read("lease")] == [None]
    box.store.run(engine.progress({(seq, new_one.epoch): "new"}))
    box.store.run(engine.progress({(seq, old.epoch): "old"}))
    assert [each.progress for each in box.read("lease")] == ["new"]


@pytest.mark.parametrize("stream", [None, "s"])
def test_the_old_holder_emits_nothing(box: Box, stream: str | None) -> None:
    old, _ = taken_over(box, stream)
    emits = [new("a"), new("b", stream="s"), new("c", dedupe="k"), new("d", stream="t", delay=60.0)]
    assert box.settle(done(old, *emits), worker="slow") == {old.message.seq}
    assert len(box.messages()) == 1
    assert box.read("dedupe") == []


def test_the_old_holder_cannot_renew(box: Box) -> None:
    old, new_one = taken_over(box, None)
    (before,) = box.read("lease")
    assert box.renew(old, worker="slow", lease=3600.0) == ({old.run}, set())
    assert box.read("lease") == [before]
    assert box.renew(new_one, worker="next", lease=60.0) == (set(), set())
    (after,) = box.read("lease")
    assert after.until > before.until


def test_the_new_holder_is_not_disturbed(box: Box) -> None:
    old, new_one = taken_over(box, "s")
    box.settle(done(old), worker="slow")
    assert box.settle(done(new_one, new("next")), worker="next") == set()
    assert names(box.claim()) == ["next"]


def test_the_same_worker_is_fenced_from_its_own_past(box: Box) -> None:
    """The lease of a worker lapses, it gets the message again, and the first handler ends after all."""
    box.send("m", stream="s")
    old = box.claim_one()
    box.pass_time(minutes=1)
    box.recover()
    again = box.claim_suspect()
    assert again is not None
    assert box.settle(done(old, new("from the past"))) == {old.message.seq}
    # Also when both come in one call, in any order.
    box.settle(done(old, new("from the past")), failed(again, retry="immediate"), done(old))
    (stored,) = box.messages()
    assert (stored.body, stored.failures, stored.attempts) == ('"m"', 1, 2)
    assert box.read("history") == []


def test_a_zombie_of_a_run_cannot_settle_its_followers(box: Box) -> None:
    box.send_all(*range(3), stream="s")
    old = box.claim(worker="slow")
    box.pass_time(minutes=1)
    box.recover()
    assert box.settle(*map(done, old), worker="slow") == {each.message.seq for each in old}
    for each in moved(old[1:]):
        assert box.settle(done(each), worker="slow") == {each.message.seq}
    assert len(box.messages()) == 3


def test_a_lapsed_lease_that_nobody_recovered_still_counts(box: Box) -> None:
    """Safety is in the epoch, not in the clock: late is not lost."""
    box.send_all("a", "b", stream="s")
    run = box.claim()
    box.pass_time(hours=5)
    assert box.settle(*map(done, run)) == set()
    assert (box.messages(), box.recover()) == ([], 0)


def test_a_lapsed_lease_that_nobody_recovered_can_be_renewed(box: Box) -> None:
    box.send("m")
    leased = box.claim_one()
    box.pass_time(hours=5)
    assert box.renew(leased) == (set(), set())
    assert box.recover() == 0


def test_a_renewed_lease_is_not_recovered(box: Box) -> None:
    id = box.send("m")
    leased = box.claim_one(lease=30.0)
    for _ in range(10):
        box.pass_time(seconds=25)
        assert box.renew(leased, lease=30.0) == (set(), set())
        assert box.recover() == 0
    assert box.settle(done(leased)) == set()
    assert [(h.id, h.attempts) for h in box.read("history")] == [(id, 1)]


def test_a_renewal_never_shortens_a_lease(box: Box) -> None:
    box.send("m")
    leased = box.claim_one(lease=300.0)
    (before,) = box.read("lease")
    box.renew(leased, lease=10.0)
    assert box.read("lease") == [before]


def test_renewal_tells_the_lost_and_the_cancelled_apart(box: Box) -> None:
    box.send_all(*range(4))
    kept, gone, asked, ended = box.claim()
    box.settle(done(ended))
    box.ask_to_cancel(asked)
    box.query("delete from {lease} where seq = :seq", seq=gone.run)
    assert box.renew(kept, gone, asked, ended) == ({gone.run, ended.run}, {asked.run})
    assert box.settle(cancelled(asked)) == set()


def test_renewal_shows_that_the_worker_lives(box: Box) -> None:
    box.worker()
    box.pass_time(seconds=10)
    assert box.renew() == (set(), set())
    assert [w.seen_at for w in box.read("worker")] == [box.now]


def test_the_epoch_never_falls(box: Box) -> None:
    id = box.send("m", stream="s")
    epochs = []
    for end in (
        lambda leased: box.settle(failed(leased, retry="immediate")),
        lambda leased: box.settle(given_back(leased)),
        lambda leased: (box.pass_time(minutes=1), box.recover()),
        lambda leased: box.recover("one"),
        lambda leased: box.settle(released(leased)),
        lambda leased: box.settle(dead(leased)),
    ):
        leased = box.claim_suspect() or box.claim_one()
        epochs.append(leased.epoch)
        end(leased)
    assert epochs == sorted(set(epochs))
    (letter,) = box.read("dead")
    assert (letter.id, letter.epoch >= epochs[-1]) == (id, True)
