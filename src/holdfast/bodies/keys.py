"""Bodies encrypted at rest: sealed when they are stored, and opened when a handler is called.

A sealed body is JSON text like any other, so the rest of the engine need not know about it:

    {"holdfast/sealed":"A256GCM","key":"2026-11","data":"..."}

The cipher is AES-256-GCM. Each message has a key of its own, derived from the named one and the message's id
(HKDF-Expand, RFC 5869), so the number of messages for one named key is not limited. The message's id and type are bound
to the text: it cannot be opened as the body of another message. Of several keys the first seals, and all of them open.
"""

from __future__ import annotations

import base64
import hmac
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import UUID

import msgspec

from ..clock import Clock
from ..errors import BodySealed, InvalidSettings
from ..model.message import Message
from ..telemetry.logs import Log

log = Log("holdfast.keys")

VARIABLE = "HOLDFAST_KEYS"
SEALED = '{"holdfast/sealed":'
CIPHER = "A256GCM"
KEY_BYTES, NONCE_BYTES = 32, 12
NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
AGAIN = 60.0  # seconds after which a function is asked for the keys again

Source = str | Iterable[str] | Mapping[str, bytes] | Callable[[], Any]


class Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cipher: str = msgspec.field(name="holdfast/sealed")
    key: str
    data: str


class Keys:
    """Keys by name; the first one seals. They are never shown: `repr` has only the names."""

    def __init__(self, source: Source, clock: Clock) -> None:
        self._cipher = _cipher()
        self._clock = clock
        self._ask: Callable[[], Any] | None = source if callable(source) else None
        self._asked_at = float("-inf")
        self._keys: dict[str, bytes] = {}
        if not callable(source):
            self._keys = read(source)

    def __repr__(self) -> str:
        return f"Keys({', '.join(self._keys) or 'not asked for yet'})"

    @property
    def names(self) -> tuple[str, ...]:
        """The first one seals."""
        return tuple(self._known())

    def is_current(self, text: str) -> bool:
        """Whether a stored body is sealed with the key that seals now."""
        return text.startswith(self.mark)

    @property
    def mark(self) -> str:
        """How every body begins that is sealed with the key that seals now."""
        return f'{SEALED}"{CIPHER}","key":"{self.names[0]}",'

    def seal(self, id: UUID, type: str, text: str) -> str:
        name, key = next(iter(self._known().items()))
        nonce = os.urandom(NONCE_BYTES)
        sealed = self._cipher(_derived(key, id)).encrypt(nonce, text.encode(), _bound(name, id, type))
        data = base64.b64encode(nonce + sealed).decode()
        return f'{SEALED}"{CIPHER}","key":"{name}","data":"{data}"}}'

    def open(self, id: UUID, type: str, text: str) -> str:
        """The body as it was given; or BodySealed."""
        envelope = _envelope(id, text)
        key = self._known().get(envelope.key) or self._known(wanted=envelope.key).get(envelope.key)
        if key is None:
            there = ", ".join(self._keys) or "none"
            raise BodySealed(
                f"The body of message {id} is sealed with key {envelope.key!r}, which is not among the keys here "
                f"({there}): add it behind the first one in {VARIABLE} or keys=."
            )
        try:
            data = base64.b64decode(envelope.data, validate=True)
            nonce, sealed = data[:NONCE_BYTES], data[NONCE_BYTES:]
            opened: bytes = self._cipher(_derived(key, id)).decrypt(
                nonce, sealed, _bound(envelope.key, id, type)
            )
            return opened.decode()
        except Exception:  # InvalidTag has no text, and other errors (too short, not base64) mean the same
            raise BodySealed(
                f"The body of message {id} does not open with key {envelope.key!r}: another key has that name here, "
                "or the stored text was changed or belongs to another message."
            ) from None

    def moved(self, id: UUID, type: str, new_id: UUID, new_type: str, text: str) -> str | None:
        """A stored body, sealed again for another message. None: it cannot be opened here, so no copy is possible."""
        if not text.startswith(SEALED):
            return text
        try:
            return self.seal(new_id, new_type, self.open(id, type, text))
        except BodySealed as error:
            text = "No copy of message %(message_id)s is made: %(error)s"
            log.error("copy.unopened", text, message_id=id, type=type, error=error)
            return None

    def _known(self, wanted: str | None = None) -> dict[str, bytes]:
        """The keys. A function is called again after a while, and when a key is missing."""
        if self._ask is None:
            return self._keys
        age = self._clock.monotonic() - self._asked_at
        if age > AGAIN or (wanted is not None and age > 1.0):
            self._asked_at = self._clock.monotonic()
            try:
                self._keys = read(self._ask())
            except Exception as error:
                if not self._keys:
                    raise BodySealed(
                        f"The keys could not be loaded ({type(error).__name__}): nothing is sealed or opened "
                        "until they are."
                    ) from error
        return self._keys


def keys_for(source: Source | None, clock: Clock) -> Keys | None:
    """The given keys, else those of the environment, else None: bodies are stored as they are."""
    if source is None:
        source = os.environ.get(VARIABLE) or None
    return None if source is None else Keys(source, clock)


def read(source: Any) -> dict[str, bytes]:
    """`name:base64` of 32 bytes, several with commas, white space or as a list; or a mapping of names to bytes."""
    if isinstance(source, Mapping):
        pairs = list(source.items())
    else:
        texts = re.split(r"[\s,]+", source.strip()) if isinstance(source, str) else list(source)
        pairs = [_pair(text) for text in texts if text]
    keys: dict[str, bytes] = {}
    for name, key in pairs:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise InvalidSettings(
                "The name of a key is 1 to 64 letters, digits, dots, dashes and underscores."
            )
        if not isinstance(key, bytes) or len(key) != KEY_BYTES:
            raise InvalidSettings(f"Key {name!r} must have {KEY_BYTES} bytes: `holdfast keys new` makes one.")
        if name in keys:
            raise InvalidSettings(f"There are two keys with the name {name!r}: give each its own.")
        keys[name] = key
    if not keys:
        raise InvalidSettings("No key is given: `holdfast keys new` makes one, as NAME:BASE64.")
    return keys


def new_key(name: str) -> str:
    """A new key, as it is given to `keys=` and HOLDFAST_KEYS."""
    if not NAME.fullmatch(name):
        raise InvalidSettings("The name of a key is 1 to 64 letters, digits, dots, dashes and underscores.")
    return f"{name}:{base64.b64encode(os.urandom(KEY_BYTES)).decode()}"


def key_of(text: str) -> str | None:
    """The name of the key that a stored body is sealed with; None if it is not sealed."""
    if not text.startswith(SEALED):
        return None
    try:
        return msgspec.json.decode(text, type=Envelope).key
    except (msgspec.DecodeError, RecursionError):
        return None


class Unopened(Exception):
    """A message whose body could not be opened, before its handler was called."""


def opened(message: Message, keys: Keys | None) -> str:
    """The body of a message whose stored text is sealed; or Unopened, which is not the handler's failure."""
    try:
        if keys is None:
            raise BodySealed(
                f"The body of message {message.id} is sealed and this process has no keys: set {VARIABLE} or keys=."
            )
        return keys.open(message.id, message.type, message.body)
    except BodySealed as error:
        raise Unopened(str(error)) from error


def _pair(text: object) -> tuple[str, bytes]:
    name, colon, secret = text.partition(":") if isinstance(text, str) else ("", "", "")
    try:
        key = base64.b64decode(secret.replace("-", "+").replace("_", "/"), validate=True)
    except ValueError:
        key = b""
    if not colon or len(key) != KEY_BYTES:
        raise InvalidSettings(  # the given text is not shown: it may be the key
            f"A key is given as NAME:BASE64 of {KEY_BYTES} bytes: `holdfast keys new` makes one."
        )
    return name, key


def _envelope(id: UUID, text: str) -> Envelope:
    try:
        envelope = msgspec.json.decode(text, type=Envelope)
        if envelope.cipher == CIPHER:
            return envelope
        why = f"cipher {envelope.cipher[:20]!r} is not known here"
    except (msgspec.DecodeError, RecursionError):
        why = "its envelope cannot be read"
    raise BodySealed(f"The body of message {id} is sealed and cannot be opened: {why}.")


def _derived(key: bytes, id: UUID) -> bytes:
    return hmac.digest(key, b"holdfast body 1\0" + id.bytes + b"\x01", "sha256")


def _bound(name: str, id: UUID, type: str) -> bytes:
    return f"holdfast 1\0{name}\0{id}\0{type}".encode()


def _cipher() -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise InvalidSettings(
            "Keys are given, and bodies are sealed with the package cryptography: pip install 'holdfast[crypto]'."
        ) from None
    return AESGCM
