"""An exception as text that may be stored and logged, and how the errors of others are read without risk."""

from __future__ import annotations

import re
from collections.abc import Iterator

_LEAVES_MAX = 100
_LEAVES_SHOWN = 5


def describe(error: BaseException, limit: int = 2000) -> str:
    """One line or more about `error`, at most `limit` characters, that every database can store.

    >>> describe(KeyError("id"))
    "KeyError: 'id'"
    """
    text = _text(error)
    if isinstance(error, BaseExceptionGroup):
        text += ": " + "; ".join(describe(leaf, limit) for leaf in leaves(error)[:_LEAVES_SHOWN])
    name = type(error).__name__
    return storable(f"{name}: {text}" if text else name, limit)


def storable(text: str, limit: int = 2000) -> str:
    """`text` cut at `limit`, without what a database refuses: NUL (PostgreSQL) and lone surrogates (UTF-8)."""
    return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text[:limit])


_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def _text(error: BaseException) -> str:
    try:
        return _pydantic_text(error) or str(error)
    except Exception:
        return "(its text cannot be read)"


def _pydantic_text(error: BaseException) -> str:
    """pydantic quotes the input in its text; the error history must not contain a payload."""
    if not type(error).__module__.startswith("pydantic"):
        return ""
    faults = attribute(error, "errors")
    if not callable(faults):
        return ""
    listed = faults(include_input=False, include_url=False, include_context=False)
    return "; ".join(f"{'.'.join(map(str, fault['loc'])) or 'body'}: {fault['msg']}" for fault in listed)


def leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    return [leaf for leaf, _ in zip(_walk(group), range(_LEAVES_MAX), strict=False)]


def _walk(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    waiting: list[BaseException] = [group]
    while waiting:
        error = waiting.pop()
        if isinstance(error, BaseExceptionGroup):
            waiting.extend(reversed(error.exceptions))
        else:
            yield error


def attribute(holder: object, name: str) -> object:
    # Attributes of other people's exceptions may be properties that raise (httpx does).
    try:
        return getattr(holder, name, None)
    except Exception:
        return None
