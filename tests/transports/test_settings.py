"""Secrets, addresses and topologies as values: what is refused, what is called, and what is never shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import InvalidSettings
from holdfast.transports import DeadLetters, Exchange, Queue, RabbitMQ, Secret, Source
from holdfast.transports.rabbitmq.address import Address
from holdfast.transports.rabbitmq.receiving import death_reason
from holdfast.transports.rabbitmq.topology import Topology

CANARY = "canary-4711"


# --- Secrets ----------------------------------------------------------------------------------------------------------


def test_a_secret_is_read_when_it_is_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    secret = Secret("HOLDFAST_TEST_SECRET")
    with pytest.raises(InvalidSettings, match="HOLDFAST_TEST_SECRET"):
        secret.reveal()
    monkeypatch.setenv("HOLDFAST_TEST_SECRET", "one")
    assert secret.reveal() == "one"
    file = Secret.file(tmp_path / "secret")
    with pytest.raises(InvalidSettings, match="cannot be read"):
        file.reveal()
    (tmp_path / "secret").write_text("two\n")
    assert file.reveal() == "two"
    (tmp_path / "secret").write_text(" three \r\n")
    assert file.reveal() == " three "
    for bad in (b"", b"\n", b"\xff", b"x" * 70_000):
        (tmp_path / "secret").write_bytes(bad)
        with pytest.raises(InvalidSettings):
            file.reveal()


@pytest.mark.parametrize("value", ["", "p@ss word!", "a-b", "a\0b"])
def test_a_secret_is_named_and_not_given(value: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        Secret(value)
    assert not value or value not in str(refused.value)


# --- Addresses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("amqp://broker", Address("broker", 5672, "guest", "/", False)),
        ("amqp://shop@broker/", Address("broker", 5672, "shop", "/", False)),
        ("amqps://shop@broker:1234/vstep", Address("broker", 1234, "shop", "vstep", True)),
        ("amqps://broker/%2F", Address("broker", 5671, "guest", "/", True)),
        ("amqp://s%40x:p%2Fw@[::1]:5673/a%2Fb", Address("::1", 5673, "s@x", "a/b", False, "p/w")),
    ],
)
def test_urls(url: str, address: Address) -> None:
    assert Address.of(url) == address


@pytest.mark.parametrize(
    "url",
    [
        "", "broker", "http://broker", "amqp:///x", "amqp://broker:port", "amqp://broker:99999", "amqp://a b@c",
        "amqp://broker/a/b", "amqp://broker/?heartbeat=1", "amqp://broker/#x", "amqp://bro\nker", None, 7,
        f"amqp://u:{CANARY}/x@broker", f"amqp://u:{CANARY}@broker:x/", f"amq://u:{CANARY}@broker",
        f"amqp://u:{CANARY} @b",
    ],
)  # fmt: skip
def test_bad_urls_are_refused_and_not_shown(url: Any) -> None:
    with pytest.raises(InvalidSettings) as refused:
        RabbitMQ(url)
    assert CANARY not in str(refused.value)


def test_a_password_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", CANARY)
    broker = RabbitMQ(f"amqp://u:{CANARY}@broker/", password=Secret("CANARY"))
    sender, receiver = broker.sender(["x"]), broker.receiver(Source("q"))
    address = Address.of(f"amqp://u:{CANARY}@broker/")
    assert address.password == CANARY
    for shown in (
        broker,
        sender,
        receiver,
        address,
        str(address),
        RabbitMQ(Secret("CANARY")),
        sender.broken(),
    ):
        assert CANARY not in repr(shown)
    with pytest.raises(InvalidSettings) as refused:
        RabbitMQ("amqp://broker", password=CANARY)  # type: ignore[arg-type]
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize(
    "name", ["heartbeat", "connect_seconds", "confirm_seconds", "body_bytes", "in_flight"]
)
@pytest.mark.parametrize("value", [0, -1, "1", None, True])
def test_numbers_must_be_positive(name: str, value: Any) -> None:
    with pytest.raises(InvalidSettings, match=name):
        RabbitMQ("amqp://broker", **{name: value})


@pytest.mark.parametrize(
    ("name", "value"), [("heartbeat", 65_536), ("heartbeat", 1.5), ("in_flight", 1.5), ("body_bytes", 0.5)]
)
def test_numbers_that_amqp_cannot_say_are_refused(name: str, value: Any) -> None:
    """At the connection they would be an error that comes again with each try."""
    with pytest.raises(InvalidSettings, match=name):
        RabbitMQ("amqp://broker", **{name: value})


# --- Topologies -------------------------------------------------------------------------------------------------------

GRADING = (
    Exchange("vstep.exchange"),
    Queue(
        "grading.request",
        {"vstep.exchange": ["grading.request"]},
        dead_letters=DeadLetters("vstep.dlx", "grading.dlq"),
    ),
)


def told(topology: Topology, server: tuple[int, ...] = (4, 0, 5)) -> list[tuple[str, dict[str, Any]]]:
    return [(call.method, dict(call.arguments)) for call in topology.calls(server)]


@pytest.mark.covers("V27", "V28")
def test_a_dead_letter_exchange_is_declared_before_the_queue_that_names_it() -> None:
    assert told(Topology(GRADING), (3, 10, 8)) == [
        (
            "exchange_declare",
            {"exchange": "vstep.exchange", "exchange_type": "topic", "durable": True, "arguments": {}},
        ),
        (
            "exchange_declare",
            {"exchange": "vstep.dlx", "exchange_type": "direct", "durable": True, "arguments": {}},
        ),
        ("queue_declare", {"queue": "grading.dlq", "durable": True, "arguments": {"x-queue-type": "quorum"}}),
        ("queue_bind", {"queue": "grading.dlq", "exchange": "vstep.dlx", "routing_key": "grading.dlq"}),
        (
            "queue_declare",
            {
                "queue": "grading.request",
                "durable": True,
                "arguments": {
                    "x-queue-type": "quorum",
                    "x-dead-letter-exchange": "vstep.dlx",
                    "x-dead-letter-routing-key": "grading.dlq",
                },
            },
        ),
        (
            "queue_bind",
            {"queue": "grading.request", "exchange": "vstep.exchange", "routing_key": "grading.request"},
        ),
    ]


def test_only_checked_nothing_is_declared() -> None:
    calls = told(Topology(GRADING, may_declare=False, checked=("other", "")))
    assert all(arguments["passive"] for _, arguments in calls)
    assert [arguments.get("exchange") or arguments["queue"] for _, arguments in calls] == [
        "vstep.exchange", "vstep.dlx", "grading.dlq", "other", "grading.request",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("queue", "server", "limit"),
    [
        (Queue("q"), (4, 0, 5), -1),
        (Queue("q"), (3, 10, 8), None),
        (Queue("q", kind="classic"), (4, 0, 5), None),
        (Queue("q", arguments={"x-delivery-limit": 50}), (4, 0, 5), 50),
    ],
)
def test_the_delivery_limit(queue: Queue, server: tuple[int, ...], limit: int | None) -> None:
    ((_, arguments),) = told(Topology((queue,)), server)
    assert arguments["arguments"].get("x-delivery-limit") == limit


def test_the_queue_of_an_inbox_is_declared_unless_it_is_known() -> None:
    source = Source("q", {"ex": ["a", "b"]}, ordered=True)
    calls = told(Topology().with_source(source))
    assert calls[0][1]["arguments"]["x-single-active-consumer"] is True
    assert [arguments["routing_key"] for _, arguments in calls[1:]] == ["a", "b"]


def test_the_queue_of_an_inbox_that_is_declared_elsewhere_is_bound_as_both_say() -> None:
    known = Topology((Exchange("ex"), Queue("q", {"ex": ["z", "a"]}, kind="classic")))
    assert told(known.with_source(Source("q", ordered=True))) == told(known)
    made = told(known.with_source(Source("q", {"ex": ["a", "b"], "other": ["c"]}, ordered=True)))
    assert made[:2] == told(known)[:2]
    assert [(each["exchange"], each["routing_key"]) for _, each in made[2:]] == [
        ("ex", "z"), ("ex", "a"), ("ex", "b"), ("other", "c"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "things",
    [
        (Exchange(""),),
        (Queue("x" * 256),),
        (Queue("a\nb"),),
        (Exchange("a"), Exchange("a")),
        (Queue("a"), Queue("a", kind="classic")),
        (Queue("a", {"ex": "key"}),),
        ("a",),
    ],
)
def test_what_cannot_be_declared_is_told_at_the_start(things: Any) -> None:
    with pytest.raises(InvalidSettings):
        RabbitMQ("amqp://broker", declare=things)


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({}, None),
        ({"x-first-death-reason": "rejected", "x-death": [{"reason": "expired"}]}, "rejected"),
        ({"x-death": [{"reason": "maxlen"}, {"reason": "expired"}]}, "expired"),
        ({"x-death": []}, "unknown"),
        ({"x-death": [{}]}, "unknown"),
        ({"x-death": "nonsense"}, "unknown"),
        ({"x-first-death-reason": 7, "x-death": [{"reason": "rejected"}]}, "rejected"),
    ],
)
def test_why_the_broker_gave_a_message_up(headers: dict[str, object], reason: str | None) -> None:
    assert death_reason(headers) == reason
