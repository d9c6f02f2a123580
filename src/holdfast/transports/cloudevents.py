"""CloudEvents 1.0 on the wire: an event to content type, headers and body, and back. Pure.

Binary mode leaves the body as it is and puts each attribute into a header; structured mode puts all into one JSON text.
A header's name depends on the protocol (`Binding`): `cloudEvents:id` on AMQP, `ce-id` on HTTP and NATS, where
values are percent-encoded as well.

Writing is strict and reading is too: the result of `read` is a valid event, or `Unreadable` is raised.
Attributes of other senders are kept as text, and any type is accepted.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Literal
from urllib.parse import unquote_to_bytes

import msgspec

STRUCTURED = "application/cloudevents+json"
Mode = Literal["binary", "structured"]

# What may be in a value (CloudEvents, "String"): no control characters, no lone surrogates, no noncharacters.
_FORBIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef"
    + "".join(chr(plane << 16 | low) for plane in range(17) for low in (0xFFFE, 0xFFFF))
    + "]"
)
_NAME = re.compile(r"[a-z0-9]{1,20}")  # we write these; other senders may use longer names
_ANY_NAME = re.compile(r"[a-z0-9]{1,256}")
# RFC 3986, without a check of each part: a reference has no blank and none of these signs.
_URI = re.compile(r"[^\s<>\"{}|\\^`\x00-\x1f\x7f]+")
_MEDIA_TYPE = re.compile(
    r"[\w!#$&^.+*-]{1,127}/[\w!#$&^.+*-]{1,127}"
    r"(\s*;\s*[\w!#$&^.+*-]+\s*=\s*([\w!#$&'%^`|~.+*/:-]+|\"[^\"\r\n]*\"))*\s*",
    re.A,
)
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d)", re.A)
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
# They are never empty.
CHECKED = frozenset({"id", "source", "type", "subject", "dataschema", "datacontenttype"})
OWN = frozenset(
    {"id", "source", "type", "specversion", "subject", "time", "datacontenttype", "dataschema", "data"}
)
VALUE_BYTES = 64 * 1024
FURTHER = frozenset({"source", "dataschema", "datacontenttype"})  # they are more than text
NAMES_KEPT = 32  # headers of an event, at most, whose meaning is cached; with more it is found out each time
VALUE_KEPT = 300  # characters of a value, at most, whose check is cached


class Unreadable(ValueError):
    """Not a valid event. The text says which attribute and why, and contains nothing of the body."""


@dataclass(frozen=True, slots=True)
class Binding:
    """How a protocol writes attributes in binary mode."""

    prefixes: tuple[str, ...]  # the first is written, all are read
    is_percent_encoded: bool = False


AMQP = Binding(("cloudEvents:", "cloudEvents_", "ce-"))  # Knative writes the third on RabbitMQ
HTTP = Binding(("ce-",), is_percent_encoded=True)  # NATS, too


class Event(msgspec.Struct, frozen=True):
    """A CloudEvent. `data` is the body as bytes, or None. `extensions` has all other attributes, as text."""

    id: str
    source: str
    type: str
    data: bytes | None = None
    subject: str | None = None
    time: datetime | None = None
    datacontenttype: str | None = None
    dataschema: str | None = None
    extensions: Mapping[str, str] = {}  # msgspec makes a new one for each

    @property
    def traceparent(self) -> str | None:
        """W3C trace context, if it is there and well formed."""
        found = self.extensions.get("traceparent", "")
        return found if _TRACEPARENT.fullmatch(found) else None

    @property
    def tracestate(self) -> str | None:
        """Has a meaning only beside a traceparent."""
        return self.extensions.get("tracestate") if self.traceparent else None


class Wire(msgspec.Struct, frozen=True):
    """An event as a protocol carries it."""

    content_type: str | None
    headers: Mapping[str, str]
    body: bytes


@lru_cache(maxsize=1024)  # a service has few headers, and each message has several
def is_extension(name: str) -> bool:
    """Whether a header of ours can travel as an extension attribute; others go as plain headers."""
    return _NAME.fullmatch(name) is not None and name not in OWN


# --- Writing ------------------------------------------------------------------------------------------------


def write(event: Event, binding: Binding, mode: Mode = "binary") -> Wire:
    """The event for a protocol, or `Unreadable` if no receiver could read it."""
    attributes = attributes_of(event)
    if mode == "structured":
        return Wire(f"{STRUCTURED}; charset=utf-8", {}, structured(attributes, event.data))
    attributes.pop("datacontenttype", None)
    prefix = binding.prefixes[0]
    headers = {prefix + name: value for name, value in attributes.items()}
    if binding.is_percent_encoded:
        headers = {name: percent_encoded(value) for name, value in headers.items()}
    return Wire(event.datacontenttype, headers, event.data or b"")


def attributes_of(event: Event) -> dict[str, str]:
    """Checked, as text, in one order."""
    found = {"specversion": "1.0", "id": event.id, "source": event.source, "type": event.type}
    if event.subject is not None:
        found["subject"] = event.subject
    if event.time is not None:
        found["time"] = time_text(event.time)
    if event.datacontenttype is not None:
        found["datacontenttype"] = event.datacontenttype
    if event.dataschema is not None:
        found["dataschema"] = event.dataschema
    for name, value in event.extensions.items():
        if not is_extension(name):
            raise Unreadable(
                f"An extension attribute has a name of 1 to 20 of a-z and 0-9, and this is {name!r}."
            )
        found[name] = value
    check_all(found)
    return found


def time_text(moment: datetime) -> str:
    if moment.tzinfo is None:
        raise Unreadable("The attribute time has no time zone.")
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    return moment.isoformat()[:-6] + "Z"  # instead of +00:00


def structured(attributes: Mapping[str, str], data: bytes | None) -> bytes:
    """The JSON format. JSON stays as it is, text becomes a string, and anything else base64."""
    head = msgspec.json.encode(attributes)[:-1]
    if data is None:
        return head + b"}"
    media = attributes.get("datacontenttype", "application/json")
    if is_json(media):
        try:
            data.decode()
            msgspec.json.decode(data, type=msgspec.Raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise Unreadable("The data is said to be JSON and is not.") from None
        return head + b',"data":' + data + b"}"
    if media.lower().startswith("text/"):
        try:
            return head + b',"data":' + msgspec.json.encode(data.decode()) + b"}"
        except UnicodeDecodeError:
            pass
    return head + b',"data_base64":"' + base64.b64encode(data) + b'"}'


@lru_cache(maxsize=256)  # a sender uses one or two
def is_json(media: str) -> bool:
    kind = media.partition(";")[0].strip().lower()
    return kind.endswith(("/json", "+json"))


def percent_encoded(value: str) -> str:
    """As the HTTP binding says: blanks, quotes, percent signs and everything outside printable ASCII."""
    if re.fullmatch(r"[!#$&-~]*", value):
        return value
    return "".join(
        chr(byte) if 0x21 <= byte <= 0x7E and byte not in (0x22, 0x25) else f"%{byte:02X}"
        for byte in value.encode()
    )


# --- Reading ------------------------------------------------------------------------------------------------


def is_event(content_type: str | None, headers: Mapping[str, object], binding: Binding) -> bool:
    """Whether this claims to be a CloudEvent; anything else is a plain message."""
    if content_type is not None and content_type[:23].lower() == "application/cloudevents":
        return True
    return any(prefix + "specversion" in headers for prefix in binding.prefixes)


def read(content_type: str | None, headers: Mapping[str, object], body: bytes, binding: Binding) -> Event:
    """The event, or `Unreadable`. Headers that are not attributes are ignored."""
    if content_type is not None and "cloudevents" in content_type.lower():
        media = content_type.partition(";")[0].strip().lower()
        if media == STRUCTURED:
            return read_structured(body)
        if media.startswith("application/cloudevents"):
            raise Unreadable(
                f"Events of the format {media!r} cannot be read: send them one by one, as JSON or binary."
            )
    is_http = binding.is_percent_encoded
    given = tuple(headers)
    find = attributes_among if len(given) <= NAMES_KEPT else attributes_among.__wrapped__
    found: dict[str, str] = {}
    for header, attribute in find(given, binding.prefixes, is_http):
        value = headers[header]
        if type(value) is str and not is_http:
            found[attribute] = value
        else:
            found[attribute] = header_text(attribute, value, binding)
    if content_type:
        found["datacontenttype"] = content_type
    return event_of(found, body if body or content_type else None)


@lru_cache(maxsize=512)  # all events of one sender have the same headers
def attributes_among(
    headers: tuple[str, ...], prefixes: tuple[str, ...], is_http: bool
) -> tuple[tuple[str, str], ...]:
    """Which headers are attributes, each with the name of the attribute. In HTTP the case is ignored."""
    found: dict[str, str] = {}
    for header in headers:
        name = header.lower() if is_http else header
        prefix = next((each for each in prefixes if name.startswith(each)), None)
        if prefix is None:
            continue
        attribute = name[len(prefix) :]
        if attribute in found:
            raise Unreadable(f"The attribute {attribute!r} is there twice.")
        found[attribute] = header
    return tuple((header, attribute) for attribute, header in found.items())


def header_text(name: str, value: object, binding: Binding) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() if name == "time":  # AMQP 1.0 has a type for it: milliseconds
            return milliseconds_text(value)
        case int():
            return str(value)
        case datetime():
            return time_text(value if value.tzinfo else value.replace(tzinfo=UTC))
        case bytes():
            return base64.b64encode(value).decode()
        case str() if binding.is_percent_encoded:
            return percent_decoded(name, value)
        case str():
            return value
        case _:
            raise Unreadable(f"The attribute {name!r} is of a kind that CloudEvents does not have.")


def milliseconds_text(value: int) -> str:
    try:
        return time_text(datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=value))
    except (OverflowError, OSError, ValueError):
        raise Unreadable("The attribute 'time' is no moment that exists.") from None


def percent_decoded(name: str, value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] == '"':  # written by a sender of an early version
        value = re.sub(r"\\(.)", r"\1", value[1:-1])
    try:
        return unquote_to_bytes(value).decode()
    except UnicodeDecodeError:
        raise Unreadable(f"The attribute {name!r} is not UTF-8 after percent-decoding.") from None


def read_structured(body: bytes) -> Event:
    try:
        content = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Unreadable("The event is no JSON object.") from None
    data = content.pop("data", None)
    encoded = content.pop("data_base64", None)
    found: dict[str, str] = {}
    for name, raw in content.items():
        value = decoded(name, raw)
        if value is not None:
            found[name] = json_text(name, value)
    if encoded is not None and data is not None:
        raise Unreadable("The event has both data and data_base64.")
    if encoded is not None:
        return event_of(found, from_base64(decoded("data_base64", encoded)))
    return event_of(found, None if data is None else plain_data(bytes(data), found.get("datacontenttype")))


def decoded(name: str, raw: msgspec.Raw) -> Any:
    """The value of an attribute. Skipped parts of the event are parsed only now, and may turn out not to be JSON."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Unreadable(f"The attribute {name[:40]!r} is no JSON, or no UTF-8.") from None


def json_text(name: str, value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int() if -(2**31) <= value < 2**31:
            return str(value)
        case _:
            raise Unreadable(f"The attribute {name!r} is of a kind that CloudEvents does not have.")


def from_base64(value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise Unreadable("The attribute 'data_base64' is no base64.") from None


def plain_data(data: bytes, media: str | None) -> bytes:
    """JSON stays as it was written. A string of any other media type is the text that it contains."""
    if media is None or is_json(media):
        return data
    value = decoded("data", msgspec.Raw(data))
    return value.encode() if isinstance(value, str) else data


def event_of(found: dict[str, str], data: bytes | None) -> Event:
    """From attributes as text, all of them checked."""
    if (version := found.pop("specversion", None)) != "1.0":
        raise Unreadable(f"The version of the event is {str(version)[:20]!r}, and only 1.0 can be read.")
    given = tuple(found)
    (check_names if len(given) <= NAMES_KEPT else check_names.__wrapped__)(given)
    check_all(found)
    take, moment = found.pop, found.pop("time", None)
    return Event(
        take("id"), take("source"), take("type"), data, take("subject", None),
        None if moment is None else read_time(moment), take("datacontenttype", None), take("dataschema", None), found,
    )  # fmt: skip


@lru_cache(maxsize=512)  # as `attributes_among`
def check_names(names: tuple[str, ...]) -> None:
    for name in ("id", "source", "type"):
        if name not in names:
            raise Unreadable(f"The attribute {name!r} is missing.")
    for name in names:
        if not _ANY_NAME.fullmatch(name) or name == "data":
            raise Unreadable(f"An attribute has a name that cannot be: {name[:40]!r}. Use a-z and 0-9.")


def check_all(found: Mapping[str, str]) -> None:
    if are_plain(found):
        for name in FURTHER & found.keys():
            check(name, found[name])
    else:
        for name, value in found.items():
            check(name, value)


def are_plain(found: Mapping[str, str]) -> bool:
    """Whether all values are text that `check` would accept, in one step. Most are: printable ASCII."""
    try:
        whole = "".join(found.values())
    except TypeError:
        return False
    return len(whole) <= VALUE_BYTES and whole.isascii() and whole.isprintable() and "" not in found.values()


def read_time(text: str) -> datetime:
    """RFC 3339, to the microsecond. A leap second is the moment after it."""
    parts = _TIME.fullmatch(text)
    if parts is None:
        raise Unreadable("The attribute 'time' is no RFC 3339 timestamp.")
    if parts[8] == "Z" and len(text) == 27 and parts[6] < "60":  # as we write it ourselves
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            raise Unreadable("The attribute 'time' is no moment that exists.") from None
    year, month, day, hour, minute, second = (int(parts[n]) for n in range(1, 7))
    micros = int((parts[7] or "0")[:6].ljust(6, "0"))
    try:
        moment = datetime.fromisoformat(f"2000-01-01T00:00:00{parts[8].upper().replace('Z', '+00:00')}")
        whole = datetime(year, month, day, hour, minute, min(second, 59), micros, tzinfo=moment.tzinfo)
        if second > 60:
            raise ValueError
        return (whole + timedelta(seconds=second - min(second, 59))).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Unreadable("The attribute 'time' is no moment that exists.") from None


def check(name: str, value: object) -> None:
    """The rules for every attribute, and further ones for some."""
    if not isinstance(value, str) or not 0 < len(value) <= VALUE_KEPT:
        check_closely(name, value)
    elif name in FURTHER:
        check_once(name, value)
    elif not (value.isascii() and value.isprintable()):  # printable ASCII has no forbidden character
        check_closely(name, value)


def check_closely(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise Unreadable(f"The attribute {name!r} must be text and is a {type(value).__name__}.")
    if not value and name in CHECKED:
        raise Unreadable(f"The attribute {name!r} is empty.")
    if len(value) > VALUE_BYTES:
        raise Unreadable(f"The attribute {name!r} is longer than {VALUE_BYTES} characters.")
    if found := _FORBIDDEN.search(value):
        raise Unreadable(
            f"The attribute {name!r} has the character {found[0]!r}, which no attribute may have."
        )
    if name in ("source", "dataschema") and not _URI.fullmatch(value):
        raise Unreadable(f"The attribute {name!r} is no URI: it has blanks or signs that no URI has.")
    if name == "dataschema" and ":" not in value:
        raise Unreadable("The attribute 'dataschema' is no absolute URI.")
    if name == "datacontenttype" and not _MEDIA_TYPE.fullmatch(value):
        raise Unreadable("The attribute 'datacontenttype' is no media type.")


check_once = lru_cache(maxsize=1024)(check_closely)  # a sender has one source, and few content types
