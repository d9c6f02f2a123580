"""Secrets in the texts of errors, masked before such a text is stored or logged.

Exceptions quote what they were given: connection strings, headers, whole requests. What can be recognised by its form
is masked here: passwords in URLs, `password=...` and similar, bearer tokens, keys of the well-known kinds, JSON Web
Tokens, private keys, card numbers, long random text. Values that an application knows to be secret are masked wherever
they occur. This does not find everything. It is a second line of defence: errors should not hold secrets at all.

Every pattern runs in linear time: where a match may fail after a repetition, the repetition is bounded. Masking twice
changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidSettings
from .describing import storable

Function = Callable[[str], str]
Redactor = Function  # one that looks at nothing but the text
Rule = str | re.Pattern[str] | Function

MASK = "***"
ROOM = 4  # times as much text is searched as is kept
VALUE_MIN = 6  # characters of a known secret: a shorter one would be found by chance

_NAMES = (
    "password|passwd|passphrase|pwd|secret|token|api[_-]?key|apikey|access[_-]?key|auth[_-]?key|private[_-]?key"
    "|client[_-]?secret|credentials?|authorization|session[_-]?id|cookie|signature|x-api-key"
)
# `password=...`, `"token": "..."`, `Authorization: ...`: the name may be the end of a longer one, db_password.
_ASSIGNED = re.compile(
    rf"(?i)((?:{_NAMES})[\"']?\s{{0,3}}(?:=>|[=:])\s{{0,3}})"
    r"(?:(?:bearer|basic|digest)\s{1,3})?"
    r"(\*\*\*|\"[^\"\n]*\"?|'[^'\n]*'?|[^\s,;&\"'<>)\]}]+)"
)
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]*(?:-----END [A-Z ]{0,40}PRIVATE KEY-----)?"
        ),
        MASK,
    ),
    # The row that a database quotes when it refuses it.
    (re.compile(r"(Failing row contains \()[^\n]*"), rf"\1{MASK}"),
    # scheme://user:password@host
    (re.compile(r"([A-Za-z][A-Za-z0-9+.-]{1,30}://[^\s:/@]{0,256}:)[^\s/@]{1,1024}(@)"), rf"\1{MASK}\2"),
    (re.compile(r"(?i)\b(bearer|basic)(\s{1,3})(?!\*)[A-Za-z0-9._~+/=-]{8,4096}"), rf"\1\2{MASK}"),
    # Keys with a known prefix: AWS, GitHub, Slack, Stripe, Google, OpenAI and similar.
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), MASK),
    (re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abeoprs]-|[rsp]k_|sk-|whsec_)[A-Za-z0-9_-]{10,512}"), MASK),
    (re.compile(r"\bAIza[A-Za-z0-9_-]{30,64}"), MASK),
    # A JSON Web Token: three parts, the first two are JSON.
    (re.compile(r"\beyJ[A-Za-z0-9_-]{5,4096}\.[A-Za-z0-9_-]{2,8192}(?:\.[A-Za-z0-9_-]{0,4096})?"), MASK),
)  # fmt: skip
_DIGITS = re.compile(r"(?<![\w.-])[2-6](?:[ -]?\d){12,18}(?![\w-])")
_LONG = re.compile(r"[A-Za-z0-9+/_-]{40,}={0,2}")


def redact(text: str) -> str:
    """`text` with what looks like a secret masked.

    >>> redact("cannot connect to postgresql://shop:hunter2@db/shop")
    'cannot connect to postgresql://shop:***@db/shop'
    """
    for pattern, mask in _PATTERNS:
        text = pattern.sub(mask, text)
    text = _ASSIGNED.sub(_masked_value, text)
    text = _LONG.sub(_mask_if_random, text)
    return _DIGITS.sub(_mask_if_card, text)


def _masked_value(found: re.Match[str]) -> str:
    return f"{found[1]}{MASK}"


def _mask_if_random(found: re.Match[str]) -> str:
    """Long text of three kinds of characters, not a path and not a name: a key or a token."""
    text = found[0]
    kinds = sum(any(test(each) for each in text) for test in (str.islower, str.isupper, str.isdigit))
    words = text.count("/") + text.count("_") + text.count("-")
    is_hex = all(each in "0123456789abcdef" for each in text)  # a digest or an id, which errors may contain
    return text if is_hex or kinds < 3 or words * 10 > len(text) else MASK


def _mask_if_card(found: re.Match[str]) -> str:
    digits = [int(each) for each in found[0] if each.isdigit()]
    doubled = [
        n if place % 2 == 0 else (n * 2 - 9 if n > 4 else n * 2) for place, n in enumerate(digits[::-1])
    ]
    return MASK if sum(doubled) % 10 == 0 else found[0]


def kept(text: str, limit: int, redactor: Redactor = redact) -> str:
    """The text of an error as it is stored: masked first, then cut, since a part of a secret may not be recognised."""
    return storable(redactor(looked_at(text, limit)), limit)


def looked_at(text: str, limit: int) -> str:
    """The part of a text to mask when `limit` characters of it are kept. It ends at the end of a word."""
    room = text[: ROOM * limit]
    if len(room) < len(text):
        room = room[:limit] + (room[limit:].rpartition(" ")[0] or room[limit:])
    return room


@dataclass(frozen=True, slots=True)
class Masking:
    """What an application masks: known secrets, patterns, and its own functions, which the rules do not call."""

    patterns: tuple[re.Pattern[str], ...] = ()
    functions: tuple[Function, ...] = ()

    def known(self, text: str) -> str:
        """`text` with everything masked, except what the functions would mask."""
        for pattern in self.patterns:
            text = pattern.sub(MASK, text)
        return redact(text)

    def __call__(self, text: str) -> str:
        """`text` with everything masked. If a function raises, the whole text is masked: it may hold a secret."""
        text = self.known(text)
        for function in self.functions:
            try:
                text = str(function(text))
            except Exception as error:
                return f"{MASK} (a redactor failed: {type(error).__name__})"
        return text


DEFAULT = Masking()


def redactor(rules: Iterable[Rule] = (), values: Iterable[str] = ()) -> Masking:
    """The default masking and the application's own: known secrets (text), patterns (compiled), functions.

    Known secrets are masked first, the longest first, so that none is left in pieces.
    """
    known, patterns, functions = _sorted_out(rules)
    secrets = sorted({each for each in (*known, *values) if len(each) >= VALUE_MIN}, key=len, reverse=True)
    if secrets:
        either = "|".join(rf"(?<![A-Za-z0-9]){re.escape(each)}(?![A-Za-z0-9])" for each in secrets)
        patterns.insert(0, re.compile(either))
    return Masking(tuple(patterns), tuple(functions))


def _sorted_out(rules: Iterable[Any]) -> tuple[list[str], list[re.Pattern[str]], list[Function]]:
    known: list[str] = []
    patterns: list[re.Pattern[str]] = []
    functions: list[Function] = []
    for rule in [rules] if isinstance(rules, str | re.Pattern) or callable(rules) else rules:
        match rule:
            case str() if len(rule) >= VALUE_MIN:
                known.append(rule)
            case str():
                raise InvalidSettings(
                    f"redact=: a known secret has at least {VALUE_MIN} characters, or it would be found by chance. "
                    "For a shorter one give a compiled pattern."
                )
            case re.Pattern():
                patterns.append(rule)
            case _ if callable(rule):
                functions.append(rule)
            case _:
                raise InvalidSettings(
                    f"redact=: a {type(rule).__name__} must be a secret (text), a compiled pattern or a function."
                )
    return known, patterns, functions
