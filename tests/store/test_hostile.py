"""What the codec lets through comes back as it went, on both databases, by every way in and out."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from holdfast.bodies import codec
from holdfast.model import names
from holdfast.model.message import NewMessage
from holdfast.model.work import Leased
from tests import hostile
from tests.store.box import Box, cancelled, dead, done, failed, new, released

BODIES = [codec.encode(value, hostile.LIMITS) for _, value, accepted in hostile.BODIES if accepted]
RAW = [codec.encode_raw(value, hostile.LIMITS) for _, value, accepted in hostile.RAW if accepted]
TYPES = [names.type_name(value) for _, value, accepted in hostile.TYPES if accepted]
STREAMS = [names.stream_name(value) for _, value, accepted in hostile.STREAMS if accepted]


@pytest.fixture
def box(empty_box: Box) -> Box:
    empty_box.subscribe("all", "*")
    return empty_box


def publish(box: Box, messages: Sequence[NewMessage]) -> None:
    box.publish(*messages)


def emit(box: Box, messages: Sequence[NewMessage]) -> None:
    """The same as emissions of a settlement, which travel as JSON."""
    box.send("source")
    box.settle(done(box.claim_one("all"), *messages))


def schedule(box: Box, messages: Sequence[NewMessage]) -> None:
    """The same through timers, which are stored a second time when they fire."""
    box.publish(*(replace(message, stream=message.stream or "s", delay=60.0) for message in messages))
    box.pass_time(seconds=60)
    box.claim("nothing of it")  # any worker's turn fires them


def claim_all(box: Box) -> list[Leased]:
    work = []
    while got := box.claim("all", heads=1000, total=1000, run=1000, bytes_max=1 << 40):
        work += got
    return work


@pytest.mark.parametrize("store", [publish, emit, schedule])
@pytest.mark.parametrize("texts", [BODIES, RAW], ids=["bodies", "raw"])
def test_bodies(box: Box, store: object, texts: list[str]) -> None:
    given = [replace(new(), body=body) for body in texts]
    store(box, given)  # type: ignore[operator]
    got = {leased.message.id: leased.message.body for leased in claim_all(box)}
    assert got == {message.id: message.body for message in given}


@pytest.mark.parametrize("store", [publish, emit, schedule])
def test_types(box: Box, store: object) -> None:
    given = [new(type=type) for type in TYPES]
    store(box, given)  # type: ignore[operator]
    got = {leased.message.id: leased.message.type for leased in claim_all(box)}
    assert got == {message.id: message.type for message in given}


@pytest.mark.parametrize("store", [publish, emit, schedule])
def test_streams_are_told_apart(box: Box, store: object) -> None:
    """Two messages for each, so that each has an order of its own."""
    given = [new(n, stream=stream) for n in (1, 2) for stream in STREAMS]
    store(box, given)  # type: ignore[operator]
    assert {s.name: s.open for s in box.read("stream") if s.name in STREAMS} == dict.fromkeys(STREAMS, 2)
    heads = box.claim("all", heads=1000, run=1)
    assert sorted(leased.message.stream or "" for leased in heads) == sorted(STREAMS)
    box.settle(*map(done, heads))
    followers = box.claim("all", heads=1000, run=1)
    assert sorted(leased.message.stream or "" for leased in followers) == sorted(STREAMS)
    assert {s.open for s in box.read("stream") if s.name in STREAMS} == {1}


@pytest.mark.parametrize("end", [failed, dead, released, cancelled])
def test_streams_settle_under_their_names(box: Box, end: object) -> None:
    box.publish(*(new(n, stream=stream) for n in (1, 2) for stream in STREAMS))
    box.settle(*(end(leased) for leased in box.claim("all", heads=1000, run=1)))  # type: ignore[operator]
    assert {s.open for s in box.read("stream")} == ({2} if end is failed else {1})


def test_keys_subjects_headers_and_queues(box: Box) -> None:
    given = [
        new(
            n,
            dedupe=name,
            subject=name,
            queue=name,
            headers=codec.encode_headers({"h": name}, hostile.LIMITS),
        )
        for n, name in enumerate(hostile.GOOD_NAMES)
    ]
    assert not any(published.duplicate for published in box.publish(*given))
    again = box.publish(*(new("again", dedupe=name) for name in hostile.GOOD_NAMES))
    assert again == [(message.id, True) for message in given]
    got = {each.message.id: each.message for each in box.claim(*hostile.GOOD_NAMES)}
    for message in given:
        stored = got[message.id]
        assert (stored.subject, stored.queue, stored.headers) == (
            message.subject,
            message.queue,
            message.headers,
        )


def test_each_type_finds_its_own_subscriber(empty_box: Box) -> None:
    for n, type in enumerate(TYPES):
        empty_box.subscribe(f"q{n}", type)
    empty_box.publish(*(new(n, type=type) for n, type in enumerate(TYPES)))
    assert sorted((m.queue, m.body) for m in empty_box.messages()) == sorted(
        (f"q{n}", str(n)) for n in range(len(TYPES))
    )


def test_prefixes_mean_the_same_everywhere(empty_box: Box) -> None:
    """In SQL as in `names.matches`."""
    patterns = [names.pattern(value) for _, value, accepted in hostile.PATTERNS if accepted]
    types = [*TYPES, "order.", "order", "order.x.y", "a.b.c", "a b.c", "\u7530.x", "Order.x", "x" * 199 + "."]
    for n, pattern in enumerate(patterns):
        empty_box.subscribe(f"q{n}", pattern)
    empty_box.publish(*(new(n, type=type) for n, type in enumerate(types)))
    got = {(m.queue, m.type) for m in empty_box.messages()}
    expected = {
        (f"q{n}", type)
        for n, pattern in enumerate(patterns)
        for type in types
        if names.matches(pattern, type)
    }
    assert got == expected


def test_errors(box: Box) -> None:
    texts = [*hostile.TEXTS.values(), *hostile.BROKEN_TEXTS.values()]
    box.send_all(*range(len(texts)))
    settlements = [failed(leased, text) for leased, text in zip(box.claim("all"), texts, strict=True)]
    box.settle(*settlements)
    stored = {m.id: [error["text"] for error in m.errors] for m in box.messages()}
    assert stored == {each.leased.message.id: [each.error] for each in settlements}
