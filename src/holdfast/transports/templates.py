"""Addresses made of a message: `"{type}"`, `"orders.{partitionkey|subject}"`, `"{headers.tenant}.events"`.

A template names `type`, `stream`, `subject`, `id` and `headers.x`. A `|` gives alternatives: the first that the message
has is taken, and the last may be a text in quotes, `{subject|'none'}`. `partitionkey` is another word for `stream`.
`{{` and `}}` stand for the characters themselves. Mistakes are reported when the template is made.

An address made of a message is refused if it could do harm: too long, empty, with control characters, or with signs in
the message's part of it that the broker would understand in another way (`*` and `#` are wildcards of bindings).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec

from ..errors import InvalidMessage, InvalidSettings
from ..model.message import Message
from ..model.names import control_in

ADDRESS_BYTES = 255
NAMES = ("type", "stream", "subject", "id")
ALIASES = {"partitionkey": "stream"}

_PART = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[^{}]+|[{}]")
_NAME = re.compile(r"type|stream|partitionkey|subject|id|headers\.[A-Za-z0-9!#$%&*+.^_`~-]{1,128}")
_TEXT = re.compile(r"'[^']*'")


class Values(msgspec.Struct, frozen=True, gc=False):
    """The fields of a message that a template can use."""

    type: str
    id: str = ""
    stream: str | None = None
    subject: str | None = None
    headers: Mapping[str, object] | None = None

    def get(self, name: str) -> str | None:
        if name.startswith("headers."):
            value = (self.headers or {}).get(name[8:])
            return None if value is None else str(value)
        return getattr(self, name) or None


@dataclass(frozen=True, slots=True)
class Template:
    """A template that was understood. `Template.of(text, what)` makes one."""

    text: str
    what: str  # what it is for, in errors: `routing key`
    parts: tuple[str | tuple[str, ...], ...]
    forbidden: str = ""
    is_address: bool = True  # of a broker, which bounds its length
    names: frozenset[str] = field(init=False, repr=False, compare=False)  # what it uses of a message
    # Its result, if it is the same for every message.
    fixed: str | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        used = [part for part in self.parts if isinstance(part, tuple)]
        names = frozenset(name for part in used for name in part if name[0] != "'")
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "fixed", None if used else "".join(map(str, self.parts)))

    @classmethod
    def of(cls, text: object, what: str, forbidden: str = "*#", *, is_address: bool = True) -> Template:
        """Takes a template apart, or raises InvalidSettings. `forbidden`: signs that a message must not bring in."""
        if not isinstance(text, str):
            raise InvalidSettings(f"The {what} must be text and is a {type(text).__name__}.")
        parts: list[str | tuple[str, ...]] = []
        for found in _PART.finditer(text):
            piece = found[0]
            if piece in ("{{", "}}"):
                parts.append(piece[0])
            elif found[1] is not None:
                parts.append(alternatives(text, what, found[1]))
            elif piece in "{}":
                raise InvalidSettings(
                    f"The {what} {text!r} has a {piece} without its partner at {found.start()}. Write {piece * 2} for "
                    "the sign itself."
                )
            else:
                parts.append(piece)
        template = cls(text, what, tuple(parts), forbidden, is_address)
        fixed = "".join(part for part in parts if isinstance(part, str))
        if trouble := harm(fixed) if fixed else None:
            raise InvalidSettings(f"The {what} {text!r} cannot be used: {trouble}.")
        return template

    @property
    def is_fixed(self) -> bool:
        """Whether its result is the same for every message, and can be checked at the start."""
        return self.fixed is not None

    def fill(self, values: Values) -> str:
        """The address for a message, or InvalidMessage."""
        # Checked when it was made; an empty one may be RabbitMQ's default exchange.
        if self.fixed is not None:
            return self.fixed
        made = "".join(part if isinstance(part, str) else self._chosen(part, values) for part in self.parts)
        if trouble := harm(made, is_bounded=self.is_address):
            raise InvalidMessage(
                f"The {self.what} {self.text!r} makes no address of message {values.id or values.type}: {trouble}."
            )
        return made

    def _chosen(self, names: tuple[str, ...], values: Values) -> str:
        for name in names:
            value = name[1:-1] if name[0] == "'" else values.get(name)
            if value is None:
                continue
            if name[0] != "'" and (found := next((sign for sign in self.forbidden if sign in value), None)):
                raise InvalidMessage(
                    f"The {self.what} {self.text!r} makes no address of message {values.id or values.type}: "
                    f"its {name} has a {found}, which means something else to the broker."
                )
            return value
        raise InvalidMessage(
            f"The {self.what} {self.text!r} makes no address of message {values.id or values.type}: "
            f"it has no {' and no '.join(names)}. Publish it with one, or give an alternative: {{{names[0]}|'none'}}."
        )


class Addresses:
    """Where the messages of a destination go: address and key. What is made of the type alone is made once for each."""

    def __init__(self, to: Template, key: Template) -> None:
        self._to, self._key = to, key
        self._is_of_type = to.names | key.names <= {"type"}
        self._of_type = lru_cache(maxsize=1024)(self._made)  # an exception is not kept

    def of(self, message: Message, id: str, headers: Mapping[str, object]) -> tuple[str, str]:
        """Address and key of a message, or InvalidMessage."""
        if self._is_of_type:
            return self._of_type(message.type)
        return self._made(message.type, id, message.stream, message.subject, headers)

    def _made(
        self,
        type: str,
        id: str = "",
        stream: str | None = None,
        subject: str | None = None,
        headers: Mapping[str, object] | None = None,
    ) -> tuple[str, str]:
        values = Values(type, id, stream, subject, headers)
        return self._to.fill(values), self._key.fill(values)


def alternatives(text: str, what: str, inside: str) -> tuple[str, ...]:
    names = [each.strip() for each in inside.split("|")]
    for position, name in enumerate(names):
        if _TEXT.fullmatch(name):
            if position < len(names) - 1:
                raise InvalidSettings(
                    f"The {what} {text!r} has alternatives behind {name}, which is always taken."
                )
        elif not _NAME.fullmatch(name):
            raise InvalidSettings(
                f"The {what} {text!r} uses {name!r}, which no message has. There are: {', '.join(NAMES)}, "
                "partitionkey (the stream), headers.name, and a text in single quotes as the last alternative."
            )
    return tuple(ALIASES.get(name, name) for name in names)


def harm(address: str, *, is_bounded: bool = True) -> str | None:
    """Why an address cannot be used."""
    if not address:
        return "it is empty"
    if found := control_in(address):
        return f"it has the character {found[0]!r}, a control character, line separator or lone surrogate"
    size = len(address.encode())
    if is_bounded and size > ADDRESS_BYTES:
        return f"it has {size} bytes, and {ADDRESS_BYTES} are allowed"
    return None
