"""Which deaths have one cause: a short name for an error, the same for every message that failed with it.

The type of the exception is kept. Everything in its text that differs from message to message is removed: quoted
parts, addresses, paths, ids, hexadecimal, numbers and dates. Where in the user's code it happened counts too, by module
and qualified name. Line numbers and frames of libraries do not count, because they change with every release.

>>> cause("KeyError: 'order-17'") == cause("KeyError: 'order-18'")
True
>>> cause("ConnectionError: 10.0.0.7:5432 refused after 31 ms")
'ConnectionError: # refused after # ms'
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

CHARS_READ = 1000
LENGTH = 12

_KIND = re.compile(r"[A-Za-z_][\w.]*")
_VARYING = (
    (re.compile(r"(?<!\w)(?:'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`)"), "#"),
    (re.compile(r"\b[A-Za-z][\w+.-]*://\S+"), "#"),
    (re.compile(r"\S+@\S+"), "#"),
    (re.compile(r"(?:\b[A-Za-z]:)?(?<![\w#])(?:[\\/][\w.+~-]+){2,}[\\/]?"), "#"),
    # A word with a digit in it, however long: a number, a date, an id, an address, 0xff.
    (re.compile(r"[+-]?[\w.:-]*\d[\w.:%-]*"), "#"),
    # Hexadecimal without a digit, long enough not to be a word.
    (re.compile(r"\b[a-fA-F]{8,}\b"), "#"),
    (re.compile(r"#(?:[\s,;]*#)+"), "#"),
    (re.compile(r"\s+"), " "),
)


def cause(error: str) -> str:
    """The error without the parts that differ from message to message."""
    kind, separator, text = error[:CHARS_READ].partition(": ")
    if not (separator and _KIND.fullmatch(kind)):
        kind, text = "", error[:CHARS_READ]
    for pattern, instead in _VARYING:
        text = pattern.sub(instead, text)
    return f"{kind}: {text.strip()}" if kind else text.strip()


@lru_cache(maxsize=256)  # many failures have the same text
def fingerprint(error: str, reason: int, place: str | None = None) -> str:
    """The name of a cause: twelve hexadecimal digits. `place`: the innermost function of the user's code, if known."""
    where = "" if place is None else f" at {place}"
    text = f"{int(reason)} {cause(error)}{where}"
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:LENGTH]
