"""Families of queues: a worker asks which of the queues below a name have work, and takes from those."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.model.work import Found, Look, Want
from holdfast.store.plans import engine
from tests.store.box import Box, done, failed, names

FAMILY = "customers"


def look(box: Box, *, after: str | None = None, count: int | None = None) -> Found:
    found = box.exchange(looks=[Look(FAMILY, after, count)]).found[FAMILY]
    return found._replace(took=0.0)


def test_a_look_finds_the_queues_below_a_name_that_have_work(box: Box) -> None:
    for queue in (
        "customers/9",
        "customers/17",
        "customers/17",
        "customers/é/x",
        "customers",
        "customers0",
        "customer/1",
    ):
        box.send(queue, queue=queue)
    box.send("later", queue="customers/2", delay=60.0)
    assert look(box) == Found(("customers/17", "customers/9", "customers/é/x"), None)
    box.pass_time(seconds=60)
    assert look(box).queues == ("customers/17", "customers/2", "customers/9", "customers/é/x")
    box.settle(*(done(each) for each in box.claim("customers/17", "customers/9", "customers/2")))
    assert look(box).queues == ("customers/é/x",)


def test_a_look_goes_on_where_the_one_before_has_stopped(box: Box) -> None:
    for n in range(7):
        box.send(n, queue=f"customers/{n}")
    seen, after = list[str](), None
    for _ in range(4):
        found = look(box, after=after, count=2)
        seen += found.queues
        after = found.last
    assert (seen, after) == ([f"customers/{n}" for n in range(7)], None)


def test_a_look_passes_over_what_is_paused(box: Box) -> None:
    for n in range(3):
        box.send(n, queue=f"customers/{n}")
    box.subscribe("customers/1", "never")
    box.pause("customers/1")
    assert look(box).queues == ("customers/0", "customers/2")
    assert names(box.claim("customers/0", "customers/1", "customers/2")) == [0, 2]
    box.resume("customers/1")
    assert "customers/1" in look(box).queues


@pytest.mark.parametrize("live", [3, 40])
def test_of_many_queues_asked_for_those_with_work_are_claimed(box: Box, live: int) -> None:
    for n in range(live):
        box.send(n, queue=f"customers/{n:02}")
    asked = [f"customers/{n:02}" for n in range(30)]
    assert names(box.claim(*asked)) == list(range(min(live, 30)))


def test_the_next_thing_that_falls_due_may_be_a_familys(box: Box) -> None:
    box.send("later", queue="customers/2", delay=60.0)
    box.send("much later", queue="customers/3", delay=600.0)
    batch = box.exchange(looks=[Look(FAMILY)], want=[Want(FAMILY, 1)], total=1, peek=True)
    assert batch.next_due == box.now + timedelta(seconds=60)
    other = box.exchange(looks=[Look("others")], want=[Want("others", 1)], total=1, peek=True)
    assert other.next_due is None


def test_a_suspect_of_a_family_is_found_and_handed_out_alone(box: Box) -> None:
    box.send("crashes", queue="customers/17")
    box.send("fine", queue="customers/18")
    box.claim("customers/17")
    box.pass_time(seconds=60)
    assert box.recover() == 1
    assert box.store.run(engine.suspects_wait(["customers"], [FAMILY]))
    assert not box.store.run(engine.suspects_wait(["customers"], ["custom"]))
    assert "customers/17" not in look(box).queues
    batch = box.exchange(looks=[Look(FAMILY)], want=[Want(FAMILY, 1)], total=1, peek=True)
    assert batch.suspects
    without = Look(FAMILY, without=("customers/17",))
    assert box.claim_suspect(FAMILY, looks=[without]) is None
    suspect = box.claim_suspect(FAMILY, looks=[Look(FAMILY)])
    assert suspect is not None
    assert (suspect.message.queue, suspect.attempt) == ("customers/17", 2)
    box.settle(failed(suspect))
    box.pass_time(hours=1)
    assert look(box).queues == ("customers/17", "customers/18")


def test_a_suspect_of_a_paused_queue_waits(box: Box) -> None:
    box.send("crashes", queue="customers/17")
    box.claim("customers/17")
    box.pass_time(seconds=60)
    box.recover()
    box.subscribe("customers/17", "never")
    box.pause("customers/17")
    assert not box.exchange(looks=[Look(FAMILY)], want=[Want(FAMILY, 1)], total=1, peek=True).suspects
    assert box.claim_suspect(FAMILY, looks=[Look(FAMILY)]) is None
