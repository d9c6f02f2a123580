"""What a broker delivers, as a message or as a dead letter. It touches nothing: bytes in, values out.

| what arrives | what is stored |
|---|---|
| a CloudEvent, binary or structured | its type, subject, data; its extensions as headers |
| any other message | its type, or else its routing key; its body |
| JSON, or a body without a content type | the text as it is |
| `text/...` | the text as a JSON string |
| another content type (protobuf, avro) | `{"data_base64": "..."}`, which a parameter of `bytes` gets as bytes |
| what cannot be read | a dead letter: the bytes as base64, beside headers and properties |

Headers of the wire that are texts, numbers or booleans are kept; those that cannot be stored (lists, bytes, control
characters, names that are none) are left out, and so are those that begin with `holdfast-` and mean something here.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from math import isfinite
from typing import Any, NamedTuple, TypeGuard
from uuid import NAMESPACE_URL, UUID, uuid5

from msgspec.structs import replace

from ..bodies import codec
from ..bodies.keys import SEALED, Keys
from ..errors import InvalidMessage
from ..model import names
from ..model.ids import Namespace, new_id
from ..model.message import NewMessage, Reason, Stillborn
from ..model.schedule import HEADERS as SCHEDULED
from ..requests.hooks import Pen
from ..rules.aftermath import DIED_IN, ORIGINAL_ID
from ..rules.fingerprint import fingerprint
from ..settings import Settings
from ..transports import cloudevents
from ..transports.cloudevents import Event
from ..transports.contract import Incoming
from ..transports.templates import Values
from .answers import answering
from .declared import Inbox

INBOX, SOURCE, SENDER_ID = names.RECEIVED
OURS = "holdfast-"  # begins headers that have a meaning here: from others they would be acted on
INFORMING = frozenset({*SCHEDULED, ORIGINAL_ID, DIED_IN})  # of ours, those that only inform
UNREADABLE = "unreadable"  # the type of a dead letter that has none
NAME_MAX = 300
DEEPEST = 20  # tables in each other of which a dead letter keeps what is inside


class Refused(Exception):
    """Why a message cannot be stored."""

    def __init__(self, reason: Reason, why: str) -> None:
        self.reason, self.why = reason, why
        super().__init__(why)


class _Origin(NamedTuple):
    """Who sent a message, and under which id; None: it has none, and what comes twice is stored twice."""

    source: str
    id: str | None

    def uuid(self) -> UUID:
        return new_id() if self.id is None else _ids_of(self.source).id(self.id)

    def key(self) -> str | None:
        return None if self.id is None else _scope_of(self.source) + _short(self.id)


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads what arrives in one inbox."""

    inbox: Inbox
    settings: Settings
    keys: Keys | None

    def read(self, incoming: Incoming) -> NewMessage | Stillborn:
        """A message to be stored; or a dead letter, if it cannot be read or was one at the broker."""
        if self.inbox.dead_letters:
            reason = incoming.death or "unknown"
            return self.letter(incoming, Refused(Reason.UNKNOWN, f"The broker had given it up: {reason}"))
        try:
            return self.message(incoming)
        except Refused as refused:
            return self.letter(incoming, refused)

    # -- messages

    def message(self, incoming: Incoming) -> NewMessage:
        """The message that arrived, or Refused, whatever is wrong with it."""
        try:
            event = self._event(incoming)
            return self._sealed(self._answering(self._message(incoming, event)))
        except Refused:
            raise
        except codec.Unreadable as error:
            raise Refused(error.reason, f"Its body is not of the shape of its type: {error}") from None
        except (cloudevents.Unreadable, InvalidMessage) as error:
            raise Refused(Reason.VALIDATION_FAILURE, str(error)) from None
        except (
            Exception
        ) as error:  # of a class in `types=`: whatever it is, the message is kept with its bytes
            raise Refused(Reason.UNKNOWN, f"It could not be read: {type(error).__name__}: {error}") from error

    def _message(self, incoming: Incoming, event: Event | None) -> NewMessage:
        kind = names.type_name(incoming.type or incoming.key if event is None else event.type)
        body = self._body(
            incoming.body if event is None else event.data,
            incoming.content_type if event is None else event.datacontenttype,
        )
        if (shape := self.inbox.types.get(kind)) is not None:
            shape(body)
        origin = self._origin(incoming, event)
        headers = self._headers(incoming, event, origin)
        subject = None if event is None else event.subject
        return NewMessage(
            id=origin.uuid(),
            type=kind,
            body=body,
            stream=self._stream(incoming, event, kind, headers),
            subject=None if subject is None else names.subject(subject),
            headers=codec.checked_headers(headers, self.settings),
            dedupe=origin.key(),
            id_is_given=origin.id is not None,
            kept=self.inbox.window,
        )

    def _answering(self, message: NewMessage) -> NewMessage:
        """With what it says about a request, if this inbox resolves them."""
        if self.inbox.resolves is None:
            return message
        read = self.inbox.types.get(message.type, codec.read_plain)
        return answering(message, read(message.body), self.inbox.resolves, self.settings, Pen(self.keys))

    def _event(self, incoming: Incoming) -> Event | None:
        binding = self.inbox.connector.binding
        if not cloudevents.is_event(incoming.content_type, incoming.headers, binding):
            return None
        return cloudevents.read(incoming.content_type, incoming.headers, incoming.body, binding)

    def _origin(self, incoming: Incoming, event: Event | None) -> _Origin:
        if event is not None:
            return _Origin(event.source, event.id)
        return _Origin(self.inbox.name, incoming.id or None)

    def _body(self, data: bytes | None, media: str | None) -> str:
        if data is None or (not data and media is None):
            return "null"
        try:
            if media is None or cloudevents.is_json(media):
                return codec.encode_raw(data, self.settings)
            if media.lower().startswith("text/"):
                return codec.encode(data.decode(), self.settings)
            return codec.encode_foreign(data, self.settings)
        except InvalidMessage as error:
            large = len(data) > self.settings.body_bytes
            reason = Reason.PAYLOAD_TOO_LARGE if large else Reason.SERIALIZATION_ERROR
            raise Refused(reason, str(error)) from None
        except UnicodeDecodeError:
            raise Refused(Reason.SERIALIZATION_ERROR, "It claims to be text and is not UTF-8.") from None

    def _stream(
        self, incoming: Incoming, event: Event | None, kind: str, headers: Mapping[str, codec.Header]
    ) -> str | None:
        """The stream by the template. A message without the values that the template names has no stream."""
        template = self.inbox.stream
        if template is None:
            return None
        values = Values(
            kind,
            (incoming.id if event is None else event.id) or "",
            None if event is None else event.extensions.get("partitionkey"),
            None if event is None else event.subject,
            headers,
        )
        if template.names and all(values.get(name) is None for name in template.names):
            return None
        return names.stream_name(template.fill(values))

    def _headers(self, incoming: Incoming, event: Event | None, origin: _Origin) -> dict[str, codec.Header]:
        """Those that can be stored, one of each name whatever its case, and none that has a meaning here."""
        found: dict[str, codec.Header] = {}
        known: dict[str, str] = {}  # names in small letters, and as they are
        prefixes = self.inbox.connector.binding.prefixes
        for name, value in incoming.headers.items():
            if name.startswith(prefixes):
                continue
            low = name.lower()
            if (
                low not in known
                and (not low.startswith(OURS) or low in INFORMING)
                and _can_be_stored(value, name)
            ):
                known[low] = name
                found[name] = value
        for name, text in (event.extensions if event is not None else {}).items():
            if name == "partitionkey":
                continue
            if name in known:  # both in small letters
                del found[known.pop(name)]
            if _can_be_stored(text, name):
                found[name] = text
        found.update(_origin_headers(self.inbox.name, origin.source))
        if origin.id is not None and _can_be_stored(origin.id, SENDER_ID):
            found[SENDER_ID] = origin.id
        return found

    def _sealed(self, message: NewMessage) -> NewMessage:
        body = self._seal(message.id, message.type, message.body)
        return message if body is message.body else replace(message, body=body)

    def _seal(self, id: UUID, type: str, body: str) -> str:
        if self.keys is not None:
            return self.keys.seal(id, type, body)
        if body.startswith(SEALED):
            why = f"Its first key is {SEALED[2:-2]!r}, which marks bodies that are encrypted."
            raise Refused(Reason.VALIDATION_FAILURE, why)
        return body

    # -- dead letters

    def letter(self, incoming: Incoming, refused: Refused) -> Stillborn:
        """What arrived, as a dead letter with everything that is needed to read it again."""
        try:
            event = self._event(incoming)
        except Exception:  # the reason is known already; a dead letter is made of it in any case
            event = None
        origin = self._origin(incoming, event)
        id = _sound(origin.id) if origin.id else f"sha256:{hashlib.sha256(incoming.body).hexdigest()}"
        scope = origin.source
        if self.inbox.dead_letters:  # the message itself may have been here before, or die again
            scope, deaths = f"{self.inbox.queue}:{origin.source}", _deaths(incoming.headers)
            id = id if deaths < 2 else f"{id}#{deaths}"
        kind = _legal_type(incoming.type or incoming.key if event is None else event.type)
        number = _ids_of(origin.source).id(id)
        why = names.CONTROL.sub("?", refused.why)[: self.settings.error_chars]
        headers = {INBOX: self.inbox.name, SOURCE: _short(origin.source), SENDER_ID: _short(id)}
        subject = None if event is None else event.subject
        body = written(incoming)
        return Stillborn(
            id=number,
            queue=self.inbox.queue,
            type=kind,
            body=body if self.keys is None else self.keys.seal(number, kind, body),
            dedupe=names.stored_key(_short(id), _short(scope)),
            reason=refused.reason,
            error=why,
            fingerprint=fingerprint(why, refused.reason),
            subject=subject if subject is not None and len(subject) <= NAME_MAX else None,
            headers=codec.encode_headers(headers, self.settings),
            kept=self.inbox.window,
        )


def written(incoming: Incoming) -> str:
    """What arrived, as JSON: the body of a dead letter. `data_base64` are its bytes."""
    return json.dumps(
        _plain(
            {
                codec.BASE64: base64.b64encode(incoming.body).decode(),
                "content_type": incoming.content_type,
                "id": incoming.id,
                "type": incoming.type,
                "to": incoming.to,
                "key": incoming.key,
                "time": incoming.time,
                "death": incoming.death,
                "headers": incoming.headers,
            }
        )
    )


def read_again(kept: Mapping[str, Any]) -> Incoming:
    """What a dead letter holds, as it arrived, or as an operator has edited it."""
    try:
        time = kept.get("time")
        return Incoming(
            base64.b64decode(kept[codec.BASE64], validate=True),
            {str(name): value for name, value in (kept.get("headers") or {}).items()},
            receipt=None,
            time=None if time is None else datetime.fromisoformat(time),
            id=kept.get("id"),
            type=kept.get("type"),
            content_type=kept.get("content_type"),
            to=kept.get("to") or "",
            key=kept.get("key") or "",
            death=kept.get("death"),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Refused(
            Reason.SERIALIZATION_ERROR,
            f"The dead letter does not hold what arrived ({type(error).__name__}): data_base64 must be base64.",
        ) from None


def _plain(value: object, depth: int = 0) -> object:
    """A value as JSON can hold it, whatever it is: what cannot be written must not keep a letter from being stored."""
    match value:
        case None | bool():
            return value
        case str():
            return _sound(value)
        case int() if abs(value) < 2**63:
            return int(value)
        case float() if isfinite(value):
            return float(value)
        case bytes():
            return {codec.BASE64: base64.b64encode(value).decode()}
        case datetime():
            return value.isoformat()
        case Mapping() | list() | tuple() if depth >= DEEPEST:
            return "(nested too deep)"
        case Mapping():
            return {_sound(str(name)): _plain(each, depth + 1) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each, depth + 1) for each in value]
    return _sound(str(value))


def _sound(text: str) -> str:
    """Without lone surrogates, which cannot be stored."""
    return text.encode("utf-8", "backslashreplace").decode()


def _short(text: str) -> str:
    """A name for a key: the text itself if it can be one, else its digest."""
    if 0 < len(text) <= NAME_MAX and text.isascii() and text.isprintable() and " " not in (text[0], text[-1]):
        return text  # as it is almost always: a UUID or a number
    try:
        return names.text(text, "The key", NAME_MAX)
    except InvalidMessage:
        return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


@lru_cache(maxsize=256)  # many messages come from few sources
def _scope_of(source: str) -> str:
    """What the dedupe keys of a source begin with."""
    return names.stored_key("x", _short(source))[:-1]


@lru_cache(maxsize=256)
def _origin_headers(inbox: str, source: str) -> dict[str, str]:
    """The headers that all messages of a source get."""
    headers = {INBOX: inbox, SOURCE: source}
    return {name: text for name, text in headers.items() if _can_be_stored(text, name)}


@lru_cache(maxsize=256)
def _ids_of(source: str) -> Namespace:
    return Namespace(uuid5(NAMESPACE_URL, source))


def _legal_type(text: str) -> str:
    try:
        return names.type_name(text)
    except InvalidMessage:
        return UNREADABLE


def _can_be_stored(value: object, name: str) -> TypeGuard[codec.Header]:
    try:
        codec.check_header(names.header_name(name), value)
    except InvalidMessage:
        return False
    return True


def _deaths(headers: Mapping[str, object]) -> int:
    """How often the broker has given it up."""
    deaths = headers.get("x-death")
    counts = (
        [each.get("count") for each in deaths if isinstance(each, dict)] if isinstance(deaths, list) else []
    )
    return sum(each for each in counts if isinstance(each, int))
