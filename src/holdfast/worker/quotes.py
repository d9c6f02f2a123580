"""What an exception may quote of its message, masked in the tracebacks of logs and traces, which hold no payload.

The engine knows the message that a handler was called with, so it can look for its values: texts and numbers of the
body and of the headers. Names of fields and very short values are not masked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec

from ..bodies.codec import Unreadable, read_plain
from ..bodies.keys import SEALED, Keys, Unopened, opened
from ..model.message import Message
from ..rules.redact import MASK, VALUE_MIN, Masking

BYTES_MAX = 64 * 1024  # of a body that is searched
VALUES_MAX = 1000
WHOLE_CHARS = 64  # of a longer value its beginning is searched, and the rest of the line is masked with it


def masking_for(message: Message, masking: Masking, keys: Keys | None) -> Masking | None:
    """The application's masking, and the values of the message. None: they are not known, so no texts may be shown."""
    if len(message.body) > BYTES_MAX:
        return None
    try:
        text = opened(message, keys) if message.body.startswith(SEALED) else message.body
        held = [read_plain(text), *(() if message.headers is None else (read_plain(message.headers),))]
    except (Unopened, Unreadable):
        return None
    forms: set[str] = {text[: WHOLE_CHARS + 1]} if len(text) >= VALUE_MIN else set()
    for value in _values(held):
        if len(value) >= VALUE_MIN:
            forms.update(_forms(value))
            if len(forms) > VALUES_MAX:
                return None
    # Not a pattern: to compile one of a thousand values takes milliseconds, to look for them 30 us.
    longest_first = sorted(forms, key=len, reverse=True)
    return replace(masking, functions=(lambda text: _without(text, longest_first), *masking.functions))


def _forms(value: str) -> Iterator[str]:
    """A value as it may occur in a text: as it is, as Python shows it, as JSON has it."""
    yield value
    if not value.isascii() or not value.isprintable() or "'" in value or '"' in value or "\\" in value:
        yield repr(value)[1:-1]
        yield msgspec.json.encode(value).decode()[1:-1]


def _without(text: str, values: list[str]) -> str:
    for value in values:
        beginning = value[:WHOLE_CHARS]
        if beginning not in text:
            continue
        if beginning == value:
            text = text.replace(value, MASK)
        else:
            before, *others = text.split(beginning)
            text = before + "".join(MASK + each[len(each.partition("\n")[0]) :] for each in others)
    return text


def _values(held: Any) -> Iterator[str]:
    """Texts and numbers, at any depth; also inside a text that is JSON itself, such as the letter for a hook."""
    waiting = [held]
    while waiting:
        match waiting.pop():
            case dict() as object_:
                waiting += object_.values()
            case list() as items:
                waiting += items
            case str() as text:
                yield text
                if text[:1] in ("{", "["):
                    try:
                        waiting.append(read_plain(text))
                    except Unreadable:
                        continue
            case bool() | None:
                continue
            case number:
                yield str(number)
