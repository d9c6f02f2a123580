"""What arrives becomes a message or a dead letter, and nothing of it is lost."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidSettings, Settings
from holdfast.bodies import codec
from holdfast.inboxes import INBOX, SENDER_ID, SOURCE, Reader, declared
from holdfast.inboxes.reading import Refused, read_again
from holdfast.model import replies
from holdfast.model.message import NewMessage, Reason, Stillborn
from holdfast.model.names import stored_key
from holdfast.rules import overrides
from holdfast.transports import MemoryBroker
from holdfast.transports.contract import Incoming

EVENT = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "order.placed"}


def reader(**options: Any) -> Reader:
    settings = options.pop("settings", Settings())
    return Reader(declared("billing", MemoryBroker(), queue="q", **options), settings, None)


def incoming(body: bytes = b"{}", headers: dict[str, object] | None = None, **fields: Any) -> Incoming:
    fields = {"id": "1", "type": "order.placed", **fields}
    return Incoming(body, headers or {}, receipt=None, **fields)


def binary(**attributes: str) -> dict[str, object]:
    return {f"cloudEvents:{name}": value for name, value in {**EVENT, **attributes}.items()}


def message(found: NewMessage | Stillborn) -> NewMessage:
    assert isinstance(found, NewMessage), found
    return found


def letter(found: NewMessage | Stillborn) -> Stillborn:
    assert isinstance(found, Stillborn), found
    return found


@pytest.mark.covers("X43", "X53", "W104")
def test_source_and_id_make_the_id_and_the_dedupe_key() -> None:
    plain = message(reader().read(incoming()))
    assert plain.dedupe == stored_key("1", "billing")
    assert plain.id == uuid5(uuid5(NAMESPACE_URL, "billing"), "1")
    event = message(reader().read(incoming(headers=binary())))
    assert event.dedupe == stored_key("1", "/shop")
    assert event.id == message(reader().read(incoming(headers=binary(), id="another"))).id
    assert event.id != message(reader().read(incoming(headers=binary(source="/b")))).id
    headers = codec.decode_headers(event.headers)
    assert headers == {INBOX: "billing", SOURCE: "/shop", SENDER_ID: "1"}


@pytest.mark.covers("X43")
@pytest.mark.parametrize(
    ("options", "kept"), [({}, None), ({"dedupe": 600}, 600), ({"dedupe": timedelta(days=14)}, 1_209_600)]
)
def test_keys_are_held_for_the_window_of_the_inbox(options: dict[str, Any], kept: int | None) -> None:
    """Those of dead letters, too; None: as the settings say."""
    read = reader(**options).read
    assert message(read(incoming())).kept == kept
    assert message(read(incoming(headers=binary()))).kept == kept
    assert letter(read(incoming(b"{"))).kept == kept


def test_without_an_id_there_is_no_key_and_never_a_hash_of_the_body() -> None:
    found = message(reader().read(incoming(id=None)))
    assert (found.dedupe, found.id_is_given) == (None, False)
    assert found.id != message(reader().read(incoming(id=None))).id


@pytest.mark.parametrize("id", ["x" * 301, " a", "a\nb", "\x1fa", "é" * 300])
def test_an_id_that_is_no_key_is_known_by_its_digest(id: str) -> None:
    found = message(reader().read(incoming(id=id)))
    assert found.dedupe == message(reader().read(incoming(id=id))).dedupe
    assert found.dedupe != message(reader().read(incoming(id=id + "x"))).dedupe


def test_a_structured_event_and_a_binary_one_are_the_same_message() -> None:
    whole = json.dumps({**EVENT, "subject": "s", "data": {"n": 1}}).encode()
    one = message(reader().read(incoming(whole, content_type="application/cloudevents+json")))
    other = message(reader().read(incoming(b'{"n":1}', binary(subject="s"), content_type="application/json")))
    assert (one.id, one.type, one.subject, json.loads(one.body)) == (other.id, other.type, "s", {"n": 1})


@pytest.mark.parametrize(
    "body, media, stored",
    [
        (b'{ "a":1.50 }', None, '{ "a":1.50 }'),
        (b'{"a":1}', "application/json; charset=utf-8", '{"a":1}'),
        (b"[1]", "application/problem+json", "[1]"),
        (b"", None, "null"),
        ("né".encode(), "text/plain", '"né"'),
        (b"\x00\xff", "application/protobuf", '{"data_base64":"AP8="}'),
        (b"", "application/protobuf", '{"data_base64":""}'),
    ],
)
def test_bodies(body: bytes, media: str | None, stored: str) -> None:
    assert message(reader().read(incoming(body, content_type=media))).body == stored


UNREADABLE = [
    (incoming(b"\xff"), Reason.SERIALIZATION_ERROR),
    (incoming(b"{"), Reason.SERIALIZATION_ERROR),
    (incoming(b'{"a":1,"a":2}'), Reason.SERIALIZATION_ERROR),
    (incoming(b'"\\u0000"'), Reason.SERIALIZATION_ERROR),
    (incoming(b"[" * 100 + b"]" * 100), Reason.SERIALIZATION_ERROR),
    (incoming(b"\xff", content_type="text/plain"), Reason.SERIALIZATION_ERROR),
    (incoming(b'"' + b"x" * 2000 + b'"'), Reason.PAYLOAD_TOO_LARGE),
    (incoming(type="order.*"), Reason.VALIDATION_FAILURE),
    (incoming(type="", key=""), Reason.VALIDATION_FAILURE),
    (incoming(headers={**binary(), "cloudEvents:id": ""}), Reason.VALIDATION_FAILURE),
    (incoming(headers=binary(specversion="2.0")), Reason.VALIDATION_FAILURE),
    (incoming(headers=binary(subject="x" * 301)), Reason.VALIDATION_FAILURE),
    (incoming(b'{"n":"x"}'), Reason.VALIDATION_FAILURE),
]  # fmt: skip


@dataclass
class Order:
    n: int


@pytest.mark.covers("X53")
@pytest.mark.parametrize("arrived, reason", UNREADABLE)
def test_what_cannot_be_read_is_a_dead_letter_with_its_bytes(arrived: Incoming, reason: Reason) -> None:
    reads = reader(settings=Settings(body_bytes=1024), types={"order.placed": Order})
    found = letter(reads.read(arrived))
    assert (found.reason, found.queue) == (reason, "inbox/billing")
    assert base64.b64decode(json.loads(found.body)[codec.BASE64]) == arrived.body
    assert letter(reads.read(arrived)).id == found.id
    assert all((found.error, found.fingerprint, found.dedupe))


def test_types_that_nobody_declared_are_kept() -> None:
    assert message(reader(types={"order.placed": Order}).read(incoming(type="other"))).type == "other"


@pytest.mark.covers("V29")
def test_an_inbox_on_a_dead_letter_queue_keeps_the_first_reason() -> None:
    reads = reader(dead_letters=True)
    assert letter(reads.read(incoming(death="rejected"))).error == "The broker had given it up: rejected"
    assert letter(reads.read(incoming())).error == "The broker had given it up: unknown"
    twice = letter(reads.read(incoming(headers={"x-death": [{"count": 2}]})))
    assert twice.dedupe != letter(reads.read(incoming())).dedupe, "it died again"


@given(
    st.binary(max_size=50),
    st.dictionaries(
        st.text(max_size=8), st.one_of(st.text(), st.binary(), st.integers(), st.booleans()), max_size=4
    ),
    st.one_of(st.none(), st.text(max_size=8)),
)
def test_whatever_arrives_is_read_or_kept(body: bytes, headers: dict[str, object], text: str | None) -> None:
    arrived = Incoming(body, headers, receipt=None, id=text, type=text, content_type=text)
    found = reader(stream="{partitionkey|subject|headers.a}").read(arrived)
    if isinstance(found, Stillborn):
        again = read_again(json.loads(found.body))
        assert (again.body, again.id, again.type, again.content_type) == (body, text, text, text)
        with pytest.raises(Refused):
            reader().message(arrived)
    found.body.encode()
    assert "\x00" not in found.body + (found.headers or "") + found.type + (found.dedupe or "")


STRUCTURED = {"content_type": "application/cloudevents+json"}


def structured(attribute: bytes) -> bytes:
    return b'{"specversion":"1.0","id":"1","source":"/shop","type":"order.placed",' + attribute + b"}"


def nested(depth: int) -> dict[str, object]:
    found: dict[str, object] = {}
    for _ in range(depth):
        found = {"a": found}
    return found


@pytest.mark.covers("X53")
@pytest.mark.parametrize(
    "arrived",
    [
        incoming(structured(b'"x":"\xff"'), **STRUCTURED),
        incoming(structured(b'"x":1e999'), **STRUCTURED),
        incoming(structured(b'"data_base64":"\xff"'), **STRUCTURED),
        incoming(structured(b'"data_base64":1e999'), **STRUCTURED),
        incoming(structured(b'"datacontenttype":"text/plain","data":"\xff"'), **STRUCTURED),
        incoming(structured(b'"x":' + b"[" * 5000 + b"]" * 5000), **STRUCTURED),
        incoming(b"{", {b"\xff": 1}),  # type: ignore[dict-item]
        incoming(b"{", {"a": {b"\xff": [1, b"x", None]}}),
        incoming(b"{", {"a": nested(3000)}),
        incoming(b"{", {"a": float("nan"), "b": [float("inf")], "c": 10**40, "d": Decimal("1.5")}),
        incoming(b"{", {"a": "\ud800"}),
        incoming(id="\ud800"),
        incoming(type="\ud800"),
    ],
)
def test_whatever_is_wrong_it_is_a_dead_letter_and_stops_nothing(arrived: Incoming) -> None:
    """An exception here would come again with each delivery, and nothing behind the message would ever be stored."""
    found = letter(reader().read(arrived))
    body = json.loads(found.body, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert base64.b64decode(body["data_base64"]) == arrived.body
    again = read_again(msgspec.json.decode(found.body))
    assert again.body == arrived.body
    reader().read(again)


@pytest.mark.parametrize(
    "template, headers, stream",
    [
        (None, binary(subject="s"), None),
        ("{partitionkey|subject}", binary(subject="s", partitionkey="p"), "p"),
        ("{partitionkey|subject}", binary(subject="s"), "s"),
        ("{partitionkey|subject}", binary(), None),
        ("tenant-{headers.tenant}", {"tenant": "a"}, "tenant-a"),
        ("{type}", {}, "order.placed"),
    ],
)
def test_streams(template: str | None, headers: dict[str, object], stream: str | None) -> None:
    assert message(reader(stream=template).read(incoming(headers=headers))).stream == stream


def test_headers_that_cannot_be_stored_are_left_out() -> None:
    sent = {"a": "x", "b": 1, "c": b"x", "d": [1], "e": "a\nb", "bad name": "x", INBOX: "forged", "A": "twin"}
    found = message(reader().read(incoming(headers=sent)))
    assert codec.decode_headers(found.headers) == {
        "a": "x",
        "b": 1,
        INBOX: "billing",
        SOURCE: "billing",
        SENDER_ID: "1",
    }


@pytest.mark.parametrize(
    "name", [overrides.HEADER, replies.HEADER, replies.ON_DEAD, "Holdfast-Call", "holdfast-x"]
)
def test_a_stranger_gives_no_orders_by_headers(name: str) -> None:
    """One of these changes how often its message is tried, another is answered to an orchestration that waits."""
    headers: dict[str, object] = {name: '{"timeout":5.0}', "holdfast-schedule": "nightly"}
    found = message(reader().read(incoming(headers=headers)))
    assert set(codec.decode_headers(found.headers)) == {"holdfast-schedule", INBOX, SOURCE, SENDER_ID}


@pytest.mark.parametrize(
    "options, why",
    [
        ({"dedupe": 10}, "300 seconds"), ({"prefetch": 0}, "prefetch"), ({"prefetch": 65_536}, "prefetch"),
        ({"backlog": -1}, "backlog"),
        ({"stream": "{nothing}"}, "nothing"), ({"queue": ""}, "queue"),
    ],
)  # fmt: skip
def test_a_wrong_declaration_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidSettings, match=why):
        declared("billing", MemoryBroker(), **{"queue": "q", **options})
    with pytest.raises(InvalidSettings, match="cannot be received from"):
        declared("billing", object(), queue="q")
