"""Attributes of an instance: a few names with short texts, by which people find it. They are never sealed."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from ..errors import UsageError
from ..model import names

COUNT_MAX = 20
CHARS_MAX = 200
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,59}")


def checked(attributes: Mapping[str, str] | None) -> dict[str, str] | None:
    """The attributes as they are stored, sorted; or UsageError. None: there are none."""
    if not attributes:
        return None
    if not isinstance(attributes, Mapping):
        raise UsageError(
            f"Attributes are names with texts, and a {type(attributes).__name__} was given: give a dict."
        )
    if len(attributes) > COUNT_MAX:
        raise UsageError(
            f"{len(attributes)} attributes are given, and {COUNT_MAX} are allowed: put the rest into the input."
        )
    found = {}
    for name in sorted(attributes, key=str):
        if not NAME.fullmatch(str(name)):
            raise UsageError(
                f"{str(name)[:70]!r} cannot be the name of an attribute: it is 1 to 60 letters, digits, _, . and -, "
                "and begins with a letter or _."
            )
        found[str(name)] = names.text(attributes[name], f"The attribute {name!r}", CHARS_MAX, UsageError)
    return found


def attributes_text(attributes: Mapping[str, str] | None) -> str | None:
    """The same as JSON text."""
    found = checked(attributes)
    return None if found is None else msgspec.json.encode(found).decode()
