"""CloudEvents 1.0 against the package `cloudevents` as the oracle, and against what strangers send."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from cloudevents.core.bindings import amqp as oracle_amqp
from cloudevents.core.bindings import http as oracle_http
from cloudevents.core.bindings import rabbitmq as oracle_rabbitmq
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.transports import cloudevents
from holdfast.transports.cloudevents import (
    AMQP,
    HTTP,
    STRUCTURED,
    Binding,
    Event,
    Mode,
    Unreadable,
    read,
    write,
)

MOMENT = datetime(2026, 11, 17, 12, 3, 4, 567890, tzinfo=UTC)
MODES: tuple[Mode, ...] = ("binary", "structured")
TEXT = st.text(st.sampled_from("abcXYZ09-_.:;,/%\"' éßñ日本語😀\u2003\u202e{}[]\\"), min_size=1, max_size=20)
NAMES = st.from_regex(r"[a-z][a-z0-9]{0,19}", fullmatch=True).filter(cloudevents.is_extension)
SOURCES = st.sampled_from(["/shop", "urn:uuid:6e8bc430", "https://example.com/a?b=c#d", "/caf%C3%A9", "a"])
EVENTS = st.builds(
    Event,
    id=TEXT,
    source=SOURCES,
    type=TEXT,
    data=st.sampled_from([b'{"a":1}', b"null", b'"text"', b"[1, 2.50]", '{"ü":"日本"}'.encode()]),
    subject=st.none() | TEXT,
    time=st.none() | st.datetimes(timezones=st.just(UTC), min_value=datetime(1970, 1, 1)),
    datacontenttype=st.just("application/json"),
    dataschema=st.none() | st.just("https://example.com/schema"),
    extensions=st.dictionaries(NAMES, TEXT, max_size=4),
)


def there_and_back(event: Event, binding: Binding, mode: Mode) -> Event:
    wire = write(event, binding, mode)
    assert cloudevents.is_event(wire.content_type, wire.headers, binding)
    return read(wire.content_type, wire.headers, wire.body, binding)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("binding", [AMQP, HTTP], ids=["amqp", "http"])
@settings(max_examples=40, deadline=None)
@given(event=EVENTS)
def test_events_come_back_equal(binding: Binding, mode: Mode, event: Event) -> None:
    assert there_and_back(event, binding, mode) == event


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("media", "data"),
    [
        ("text/plain", "grüße".encode()),
        ("application/octet-stream", bytes(range(256))),
        ("application/protobuf", b"\x08\x01"),
        ("text/plain; charset=latin-1", b"\xe9"),
        ("application/vnd.shop+json; charset=utf-8", b'{"a":1}'),
        (None, b'{"a":1}'),
        (None, None),
    ],
)
def test_data_of_every_kind(media: str | None, data: bytes | None, mode: Mode) -> None:
    event = Event("1", "/s", "t", data, datacontenttype=media)
    assert there_and_back(event, AMQP, mode) == event


# --- The oracle -------------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(event=EVENTS)
def test_the_oracle_reads_what_we_write(event: Event) -> None:
    event = replace(event, time=event.time or MOMENT)  # the oracle makes one up
    wire = write(event, AMQP)
    message = oracle_amqp.AMQPMessage({"content-type": wire.content_type}, dict(wire.headers), wire.body)
    same_as_theirs(event, oracle_amqp.from_amqp_event(message))
    wire = write(event, HTTP)
    headers = {**wire.headers, "content-type": wire.content_type or ""}
    same_as_theirs(event, oracle_http.from_http_event(oracle_http.HTTPMessage(headers, wire.body)))
    wire = write(event, AMQP, "structured")
    message = oracle_amqp.AMQPMessage({"content-type": wire.content_type}, {}, wire.body)
    same_as_theirs(event, oracle_amqp.from_amqp_event(message))


def same_as_theirs(ours: Event, theirs: Any) -> None:
    attributes = theirs.get_attributes()
    assert (ours.id, ours.source, ours.type) == (attributes["id"], attributes["source"], attributes["type"])
    assert (ours.subject, ours.time) == (attributes.get("subject"), attributes.get("time", ours.time))
    assert {name: attributes[name] for name in ours.extensions} == dict(ours.extensions)
    assert theirs.get_data() == json.loads(ours.data or b"null")


@settings(max_examples=40, deadline=None)
@given(event=EVENTS)
def test_we_read_what_the_oracle_writes(event: Event) -> None:
    attributes: dict[str, Any] = {
        "id": event.id,
        "source": event.source,
        "type": event.type,
        "specversion": "1.0",
        # Exact as a float, which the oracle uses.
        "time": (event.time or MOMENT).replace(microsecond=125_000),
        "datacontenttype": "application/json",
        **event.extensions,
    }
    # It writes only objects as JSON.
    theirs = CloudEvent(attributes, {"data": json.loads(event.data or b"null")})
    amqp = oracle_amqp.to_binary_event(theirs)
    same_as_theirs_read(
        theirs, read("application/json", amqp.application_properties, amqp.application_data, AMQP)
    )
    amqp = oracle_amqp.to_structured_event(theirs)
    same_as_theirs_read(theirs, read(amqp.properties["content-type"], {}, amqp.application_data, AMQP))
    rabbit = oracle_rabbitmq.to_binary_event(theirs)
    same_as_theirs_read(theirs, read(rabbit.content_type, rabbit.headers, rabbit.body, AMQP))
    http = oracle_http.to_binary_event(theirs)
    same_as_theirs_read(theirs, read("application/json", http.headers, http.body, HTTP))


def same_as_theirs_read(theirs: Any, ours: Event) -> None:
    attributes = theirs.get_attributes()
    assert (ours.id, ours.source, ours.type) == (attributes["id"], attributes["source"], attributes["type"])
    assert ours.time == attributes["time"]
    assert ours.datacontenttype == "application/json"
    own = ("id", "source", "type", "time", "datacontenttype", "specversion")
    assert dict(ours.extensions) == {name: value for name, value in attributes.items() if name not in own}
    assert json.loads(ours.data or b"null") == theirs.get_data()


# --- Strangers --------------------------------------------------------------------------------------------------------

GOOD = {
    "cloudEvents:specversion": "1.0",
    "cloudEvents:id": "1",
    "cloudEvents:source": "/s",
    "cloudEvents:type": "t",
}


def test_an_event_of_a_stranger_is_read_by_its_type() -> None:
    headers = {
        **GOOD,
        "cloudEvents:type": "com.github.pull_request.opened",
        "cloudEvents:averylongattributenameofastranger": "x",
        "cloudEvents:count": 3,
        "cloudEvents:flag": True,
        "cloudEvents:blob": b"\x00\xff",
        "cloudEvents:time": datetime(2026, 1, 2, 3, 4, 5),  # AMQP has seconds in UTC
        "unrelated": ["anything"],
    }
    event = read("application/json", headers, b"{}", AMQP)
    assert event.type == "com.github.pull_request.opened"
    assert event.time == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert dict(event.extensions) == {
        "averylongattributenameofastranger": "x",
        "count": "3",
        "flag": "true",
        "blob": "AP8=",
    }


def test_the_case_of_http_headers_means_nothing() -> None:
    headers = {"Ce-Specversion": "1.0", "CE-ID": "1", "ce-source": "/s", "Ce-Type": "t"}
    assert read(None, headers, b"", HTTP) == Event("1", "/s", "t")


@pytest.mark.parametrize(
    ("content_type", "headers", "is_one"),
    [
        (STRUCTURED, {}, True),
        ("Application/CloudEvents+JSON; charset=utf-8", {}, True),
        ("application/cloudevents-batch+json", {}, True),
        ("application/json", GOOD, True),
        ("application/json", {"cloudEvents_specversion": "0.3"}, True),
        ("application/json", {"cloudEvents:id": "1"}, False),
        (None, {}, False),
    ],
)
def test_what_claims_to_be_an_event(
    content_type: str | None, headers: dict[str, object], is_one: bool
) -> None:
    assert cloudevents.is_event(content_type, headers, AMQP) == is_one


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"cloudEvents:specversion": "0.3"}, "version"),
        ({"cloudEvents:specversion": None}, "kind"),
        ({"cloudEvents:id": ""}, "empty"),
        ({"cloudEvents:id": "a\nb"}, "character"),
        ({"cloudEvents:id": "\ud800"}, "character"),
        ({"cloudEvents:id": "\ufffe"}, "character"),
        ({"cloudEvents:id": 1.5}, "kind"),
        ({"cloudEvents:id": {"a": 1}}, "kind"),
        ({"cloudEvents:id": "x" * 70_000}, "longer"),
        ({"cloudEvents:source": "not a uri"}, "URI"),
        ({"cloudEvents:source": "<x>"}, "URI"),
        ({"cloudEvents:subject": ""}, "empty"),
        ({"cloudEvents:time": "yesterday"}, "timestamp"),
        ({"cloudEvents:time": "2026-02-30T00:00:00Z"}, "moment"),
        ({"cloudEvents:time": "2026-01-01T25:00:00Z"}, "moment"),
        ({"cloudEvents:time": "2026-01-01T00:00:61Z"}, "moment"),
        ({"cloudEvents:time": "2026-01-01T00:00:00"}, "timestamp"),
        ({"cloudEvents:time": 10**30}, "moment"),
        ({"cloudEvents:dataschema": "relative"}, "absolute"),
        ({"cloudEvents:Upper": "x"}, "name"),
        ({"cloudEvents:with-dash": "x"}, "name"),
        ({"cloudEvents:data": "x"}, "name"),
        ({"cloudEvents_id": "2"}, "twice"),
    ],
)
def test_an_event_that_is_none_is_refused(change: dict[str, object], why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        read("application/json", {**GOOD, **change}, b"{}", AMQP)


@pytest.mark.parametrize("missing", ["specversion", "id", "source", "type"])
def test_a_missing_attribute_is_refused(missing: str) -> None:
    headers = {name: value for name, value in GOOD.items() if not name.endswith(missing)}
    with pytest.raises(Unreadable):
        read("application/json", headers, b"{}", AMQP)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"null", b"{", b"\xff", b'{"specversion":"1.0"}', b"[" * 100_000,
        b'{"a":' * 2000 + b"1" + b"}" * 2000,
        b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data":1,"data_base64":"AA=="}',
        b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data_base64":"?"}',
        b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data_base64":1}',
        b'{"specversion":"1.0","id":1.5,"source":"/s","type":"t"}',
        b'{"specversion":"1.0","id":"1","source":"/s","type":"t","ext":{}}',
        b'{"specversion":"1.0","id":"1","source":"/s","type":"t","big":2147483648}',
        b'{"specversion":"1.0","id":"\\ud800","source":"/s","type":"t"}',
        b'{"specversion":"1.0","id":"1","source":"/s","type":"t","Bad-Name":"x"}',
    ],
)  # fmt: skip
def test_a_structured_event_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(Unreadable):
        read(STRUCTURED, {}, body, AMQP)


def test_a_batch_is_refused() -> None:
    with pytest.raises(Unreadable, match="one by one"):
        read("application/cloudevents-batch+json", {}, b"[]", AMQP)


def test_null_attributes_and_null_data() -> None:
    body = (
        b'{"specversion":"1.0","id":"1","source":"/s","type":"t","subject":null,"n":7,"b":false,"data":null}'
    )
    assert read(STRUCTURED, {}, body, AMQP) == Event(
        "1", "/s", "t", b"null", extensions={"n": "7", "b": "false"}
    )


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-17T12:03:04.5678901Z", MOMENT),
        ("2026-11-17t13:03:04.567890+01:00", MOMENT),
        ("2026-12-31T23:59:60Z", datetime(2027, 1, 1, tzinfo=UTC)),
        ("2026-11-17T12:03:04-00:00", MOMENT.replace(microsecond=0)),
    ],
)
def test_times(text: str, moment: datetime) -> None:
    assert read("application/json", {**GOOD, "cloudEvents:time": text}, b"{}", AMQP).time == moment


def test_times_are_written_in_utc_and_need_a_zone() -> None:
    event = Event("1", "/s", "t", time=MOMENT.astimezone(timezone(timedelta(hours=5))))
    assert write(event, AMQP).headers["cloudEvents:time"] == "2026-11-17T12:03:04.567890Z"
    with pytest.raises(Unreadable):
        write(Event("1", "/s", "t", time=datetime(2026, 1, 1)), AMQP)


@pytest.mark.parametrize(
    "event",
    [
        Event("", "/s", "t"),
        Event("1", "with blank", "t"),
        Event("1", "/s", "t\n"),
        Event("1", "/s", "t", extensions={"Upper": "x"}),
        Event("1", "/s", "t", extensions={"a-b": "x"}),
        Event("1", "/s", "t", extensions={"id": "x"}),
        Event("1", "/s", "t", extensions={"x" * 21: "x"}),
        Event("1", "/s", "t", extensions={"x": "\0"}),
        Event("1", "/s", "t", datacontenttype="nonsense"),
        Event("1", "/s", "t", datacontenttype="text/plain\r\nx: y"),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_what_nobody_could_read_is_not_written(event: Event, mode: Mode) -> None:
    with pytest.raises(Unreadable):
        write(event, AMQP, mode)


def test_data_that_is_no_json_is_not_written_as_json() -> None:
    for data in (b"{", b"\xff", b"1 2", b""):
        with pytest.raises(Unreadable):
            write(Event("1", "/s", "t", data, datacontenttype="application/json"), AMQP, "structured")


@pytest.mark.parametrize(
    ("traceparent", "is_taken"),
    [
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", True),
        ("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more", True),
        ("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", False),
        ("00-00000000000000000000000000000000-00f067aa0ba902b7-01", False),
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", False),
        ("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", False),
        ("nonsense", False),
    ],
)
def test_trace_context_is_carried_and_used_if_well_formed(traceparent: str, is_taken: bool) -> None:
    event = there_and_back(
        Event("1", "/s", "t", extensions={"traceparent": traceparent, "tracestate": "a=b"}), AMQP, "binary"
    )
    assert event.extensions["traceparent"] == traceparent
    assert (event.traceparent, event.tracestate) == ((traceparent, "a=b") if is_taken else (None, None))


@pytest.mark.parametrize(
    "value", ["a b", "100%", 'say "x"', "Straße", "日本", "😀", "%41", "a\u2028b", "é" * 50]
)
def test_percent_encoding_is_plain_ascii_and_comes_back(value: str) -> None:
    encoded = cloudevents.percent_encoded(value)
    assert encoded.isascii()
    assert encoded.isprintable()
    assert " " not in encoded
    assert cloudevents.percent_decoded("x", encoded) == value


def test_quoted_values_of_old_senders_are_read() -> None:
    assert cloudevents.percent_decoded("x", r'"a \"b\" c"') == 'a "b" c'
    with pytest.raises(Unreadable):
        cloudevents.percent_decoded("x", "%ff")
