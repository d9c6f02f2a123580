"""Text from elsewhere, made safe to show: it cannot control the terminal, and a line stays one line."""

from __future__ import annotations

import re

# Control characters (C0, DEL, C1), lone surrogates, line separators, and characters that change the text direction.
# Joiners, which some scripts need, are left alone.
UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\ud800-\udfff\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]"
)
_OUTSIDE_STRINGS = "\n"  # what indented JSON has between its values


def visible(text: str) -> str:
    """One line, every unsafe character written as Python writes it: \\x1b, \\n, \\u202e."""
    return UNSAFE.sub(_escaped, text)


def replaced(text: str) -> str:
    """One line, with a question mark for every unsafe character: for tables, where the width matters."""
    return UNSAFE.sub("?", text)


def safe_json(document: str) -> str:
    """The same JSON document with every unsafe character in its strings escaped. It parses to the same value."""
    return UNSAFE.sub(
        lambda found: found[0] if found[0] == _OUTSIDE_STRINGS else f"\\u{ord(found[0]):04x}", document
    )


def counted(number: int, noun: str) -> str:
    """`1 message`, `2 messages`, `1,204 messages`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
