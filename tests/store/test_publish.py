"""Publishing: what is stored, where it goes, and in which order."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from holdfast.model.message import NewMessage
from holdfast.store.plans import engine
from tests.store.box import QUEUE, Box, done, failed, names, new

# --- In a transaction of its own ------------------------------------------------------------------------------------


@pytest.mark.covers("C15", "W2", "D19", "D20")
def test_everything_about_a_message_is_stored_and_handed_out(box: Box) -> None:
    deadline = box.now + timedelta(hours=1)
    given = new({"id": 1}, stream="s", subject="customer 7", headers='{"k":"v"}', deadline=deadline)
    (published,) = box.publish(given)
    assert published == (given.id, False)

    stored = box.message(given.id)
    assert (stored.body, stored.stream, stored.subject, stored.headers) == (
        given.body,
        "s",
        "customer 7",
        '{"k":"v"}',
    )
    assert (stored.status, stored.attempts, stored.failures, stored.vanished, stored.epoch) == (1, 0, 0, 0, 0)
    assert (stored.created_at, stored.claimable_at, stored.due_at, stored.deadline) == (
        box.now,
        box.now,
        None,
        deadline,
    )
    message = box.claim_one().message
    assert (message.id, message.queue, message.type, message.body) == (
        given.id,
        QUEUE,
        given.type,
        given.body,
    )
    assert (message.stream, message.subject, message.headers, message.status) == (
        "s",
        "customer 7",
        '{"k":"v"}',
        1,
    )
    assert (message.created_at, message.due_at, message.deadline) == (box.now, None, deadline)


@pytest.mark.covers("W3", "W6")
def test_an_event_is_marked_as_stored(box: Box) -> None:
    box.publish(new("e", event=True, stream="s"))
    assert box.claim_one().message.status == 3


@pytest.mark.covers("W36", "X45")
def test_a_stream_keeps_the_order_of_publishing(box: Box) -> None:
    for name in "abc":
        box.send(name, stream="s")
    box.send_all("d", "e", stream="s")
    assert names(box.claim()) == ["a", "b", "c", "d", "e"]
    assert box.stream("s").open == 5


@pytest.mark.covers("X35")
def test_streams_do_not_wait_for_each_other(box: Box) -> None:
    box.send_all("a1", "a2", stream="a")
    box.send_all("b1", "b2", stream="b")
    box.send("alone")
    assert names(box.claim(run=1)) == ["a1", "b1", "alone"]


def test_many_at_once(box: Box) -> None:
    many = [new(n, stream=f"s{n % 7}" if n % 3 else None) for n in range(1000)]
    box.publish(*many)
    work = box.claim(heads=1000, run=200)
    assert sorted(names(work)) == list(range(1000))
    for stream in {m.stream for m in many} - {None}:
        ordered = [leased for leased in work if leased.message.stream == stream]
        assert names(ordered) == sorted(names(ordered))


def test_nothing_is_stored_for_nothing(box: Box) -> None:
    assert box.publish() == []
    assert box.messages() == []


# --- Subscriptions ----------------------------------------------------------------------------------------------------


@pytest.mark.covers("X42")
def test_each_subscriber_has_a_delivery_with_its_own_attempts_and_order(box: Box) -> None:
    box.subscribe("ledger", "order.placed")
    first, second = box.send("a", stream="s"), box.send("b", stream="s")
    assert sorted((m.queue, m.id == second) for m in box.messages()) == [
        ("ledger", False),
        ("ledger", True),
        (QUEUE, False),
        (QUEUE, True),
    ]
    mail = box.claim(QUEUE, run=1)
    assert names(mail) == ["a"]
    # The slow subscriber still holds its first message; the other one is done with both.
    ledger = box.claim("ledger", worker="two")
    assert names(ledger) == ["a", "b"]
    box.settle(*map(done, ledger), worker="two")
    assert [(m.id, m.queue, m.attempts) for m in box.messages()] == [(first, QUEUE, 0), (second, QUEUE, 0)]


@pytest.mark.covers("X42")
@pytest.mark.parametrize(
    ("pattern", "type", "goes"),
    [
        ("order.placed", "order.placed", True),
        ("order.placed", "order.placed.v2", False),
        ("order.*", "order.placed", True),
        ("order.*", "order.", True),
        ("order.*", "order", False),
        ("order.*", "Order.placed", False),
        ("*", "anything", True),
        ("or_er.*", "order.placed", False),
        ("or%er.*", "order.placed", False),
        ("ordé*", "ordéx", True),
    ],
)
def test_patterns_are_types_or_prefixes(empty_box: Box, pattern: str, type: str, goes: bool) -> None:
    empty_box.subscribe("q", pattern)
    empty_box.send("m", type=type)
    assert names(empty_box.claim("q")) == (["m"] if goes else [])


@pytest.mark.covers("X42")
def test_a_queue_with_several_matching_patterns_gets_one_delivery(empty_box: Box) -> None:
    empty_box.subscribe("q", "order.placed", "order.*", "*")
    id = empty_box.send("m")
    assert [(m.id, m.queue) for m in empty_box.messages()] == [(id, "q")]


def test_a_message_for_one_queue_goes_to_that_queue_alone(box: Box) -> None:
    box.subscribe("ledger", "order.placed")
    id = box.send("m", queue="ledger", stream="s")
    assert [(m.id, m.queue) for m in box.messages()] == [(id, "ledger")]
    assert names(box.claim("ledger")) == ["m"]


@pytest.mark.covers("X42")
def test_subscribing_again_changes_nothing(box: Box) -> None:
    before = box.read("subscription"), box.read("queue")
    assert box.subscribe() == 0
    assert (box.read("subscription"), box.read("queue")) == before


# --- Nobody subscribed ------------------------------------------------------------------------------------------------


@pytest.mark.covers("X42")
def test_what_nobody_subscribes_to_is_kept_and_adopted_oldest_first(empty_box: Box) -> None:
    box = empty_box
    for name in "abc":
        box.send(name)
    box.send("other", type="other")
    assert [m.queue for m in box.messages()] == [None] * 4
    box.pass_time(days=400)
    assert box.subscribe() == 3
    assert names(box.claim()) == ["a", "b", "c"]
    assert [m.queue for m in box.messages() if m.type == "other"] == [None]


@pytest.mark.covers("X42")
def test_adoption_keeps_the_order_of_streams(empty_box: Box) -> None:
    box = empty_box
    box.send_all("a", "b", "c", stream="s")
    assert box.read("stream") == []
    box.subscribe()
    assert names(box.claim(run=1)) == ["a"]
    assert box.stream("s").open == 3


@pytest.mark.covers("X42")
def test_all_who_subscribe_first_adopt(empty_box: Box) -> None:
    box = empty_box
    box.send_all(*range(5), stream="s")
    box.send("x")
    subscriptions = {"a": ["order.placed"], "b": ["order.*"], "c": ["*"]}
    assert box.store.run(engine.subscribe(subscriptions)) == 6
    for queue in "abc":
        assert names(box.claim(queue)) == [0, "x", 1, 2, 3, 4]


@pytest.mark.covers("X42")
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_a_limited_adoption_leaves_no_subscriber_out(empty_box: Box, count: int) -> None:
    box = empty_box
    box.send_all(*range(4))
    adopt_nothing = {"a": ["x"], "b": ["x"], "c": ["x"]}
    box.store.run(engine.subscribe(adopt_nothing))
    for queue in "abc":
        box.query("insert into {subscription} (pattern, queue) values ('order.placed', :queue)", queue=queue)
    adopted = box.store.run(engine.adopt(count))
    assert adopted == count
    for queue in "abc":
        assert names(box.claim(queue)) == list(range(count))


@pytest.mark.covers("X42")
def test_a_later_subscriber_starts_from_its_subscription(box: Box) -> None:
    box.send("before")
    assert box.subscribe("ledger", "order.placed") == 0
    box.send("after")
    assert names(box.claim("ledger")) == ["after"]
    assert names(box.claim(QUEUE)) == ["before", "after"]


@pytest.mark.covers("X42", "X45")
def test_an_adopted_message_goes_behind_what_is_in_the_stream_already(box: Box) -> None:
    """Found on SQLite: an older message kept its number, came before the head, and was never claimed."""
    box.send("old", stream="s", type="other")
    box.send_all("a", "b", stream="s")
    box.subscribe(QUEUE, "other")
    handled = []
    while work := box.claim(run=1):
        handled += names(work)
        box.settle(*map(done, work))
    assert handled == ["a", "b", "old"]


def test_an_adopted_message_keeps_its_time(empty_box: Box) -> None:
    box = empty_box
    id = box.send("later", delay=60)
    box.subscribe()
    assert box.claim() == []
    box.pass_time(seconds=60)
    assert [leased.message.id for leased in box.claim()] == [id]


# --- Queues that do not keep the order of streams ---------------------------------------------------------------------


@pytest.mark.covers("W81")
def test_a_queue_may_declare_that_it_keeps_no_order(box: Box) -> None:
    box.subscribe_unordered("loose", "order.*")
    box.send_all("a", "b", stream="s")
    with box.connection() as db:
        box.publish_on(db, new("c", stream="s"))
        db.commit()
    assert names(box.claim("loose", run=1)) == ["a", "b", "c"]
    assert names(box.claim(QUEUE, run=1)) == ["a"]
    assert [(m.position, m.stream) for m in box.messages("loose")] == [(None, "s")] * 3
    assert [s.queue for s in box.read("stream")] == [QUEUE]


def test_a_queue_without_order_gets_adopted_fired_and_emitted_messages_without_order(empty_box: Box) -> None:
    box = empty_box
    box.send_all("a1", "a2", stream="s")
    box.send_all("t1", "t2", stream="s", delay=60.0)
    box.subscribe_unordered("loose", "order.*")
    first = box.claim("loose", run=1)
    assert names(first) == ["a1", "a2"]
    box.settle(done(first[0], new("e1", stream="s"), new("e2", stream="s")), failed(first[1]))
    box.pass_time(seconds=60)
    assert sorted(names(box.claim("loose", run=1))) == ["a2", "e1", "e2", "t1", "t2"]
    assert box.read("stream") == []


def test_a_queue_that_gives_up_its_order_keeps_what_is_in_it(box: Box) -> None:
    box.send_all("a", "b", stream="s")
    box.subscribe_unordered(QUEUE, "order.placed")
    box.send_all("c", "d", stream="s")
    assert sorted(names(box.claim(run=1))) == ["a", "c", "d"]
    box.subscribe(QUEUE, "order.placed")
    box.send("e", stream="s")
    assert box.stream("s").open == 3


BELLS: list[tuple[str, list[NewMessage]]] = [
    ("one", [new("a")]),
    ("one in a stream", [new("a", stream="s")]),
    ("many alike", [new(n) for n in range(5)]),
    ("many that differ", [new("a", stream="s"), new("b"), new("c", subject="x")]),
]


@pytest.mark.parametrize("messages", [each for _, each in BELLS], ids=[name for name, _ in BELLS])
@pytest.mark.parametrize("asleep", [QUEUE, "another", None])
def test_whoever_sleeps_is_woken_and_nobody_else(
    pg_box: Box, messages: list[NewMessage], asleep: str | None
) -> None:
    """A notification costs every commit that carries one, so there is none when nobody waits for it."""
    box = pg_box
    box.worker()
    with psycopg.connect(box.dsn, autocommit=True) as ear:
        ear.execute(
            "update holdfast.worker set asleep = %s, queues = array[%s]",
            (asleep is not None, asleep or QUEUE),
        )
        ear.execute("listen holdfast")
        box.publish(*messages)
        told = list(ear.notifies(timeout=0.2, stop_after=1))
    assert bool(told) == (asleep == QUEUE)


# --- Many at once ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queues", [[], ["a"], ["a", "b"], ["unordered", "a"]])
@pytest.mark.covers("W2", "X42", "X43")
def test_many_of_one_type_are_stored_as_each_alone(empty_box: Box, queues: list[str]) -> None:
    """Messages of one type in one call have a statement of their own, and one alone has not."""
    box = empty_box
    for queue in queues:
        (box.subscribe_unordered if queue == "unordered" else box.subscribe)(queue, "t.*", "t.x")
    kinds = [
        {
            "stream": f"s{n % 3}" if n % 2 else None,
            "subject": "c 7",
            "headers": '{"k":1}',
            "dedupe": f"k{n % 10}",
        }
        for n in range(12)
    ]
    together = [new(n, type="t.x", **kind) for n, kind in enumerate(kinds)]
    answers = box.publish(*together)
    assert [each.duplicate for each in answers] == [False] * 10 + [True] * 2
    assert [each.id for each in answers[10:]] == [together[0].id, together[1].id]
    found = rows_of(box)
    assert len(found) == 10 * max(1, len(queues))
    for table in ("message", "dedupe", "stream"):
        box.query(f"delete from {{{table}}} where 1 = 1 returning 1")
    alone = [new(n, type="t.x", **kind) for n, kind in enumerate(kinds)]
    for each in alone:
        box.publish(each)
    assert found == rows_of(box)


def rows_of(box: Box) -> list[tuple[object, ...]]:
    """What is stored of each message, in order, without what differs from call to call."""
    rows = sorted(box.messages(), key=lambda row: (row.queue or "", row.seq))
    left_out = ("seq", "id", "position", "claimable_at", "created_at", "xact")
    return [
        (
            *(value for name, value in row.items() if name not in left_out),
            row.position is None,
            row.xact is None,
        )
        for row in rows
    ]
