"""A schedule as it is given, checked: a rule that cannot work or a body that cannot be stored is refused at once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import astuple, replace
from typing import Any

import msgspec

from ..bodies.drafts import draft
from ..bodies.keys import SEALED
from ..errors import InvalidMessage, InvalidSettings
from ..model import names
from ..model.schedule import CAP, GRACE, NAME_MAX, Definition, Overlap, Policy
from ..rules import recurrence, tick
from ..rules.patterns import Rule
from ..settings import Settings
from . import zones

OVERLAPS = ("allow", "queue", "skip", "replace")


def define(
    settings: Settings,
    name: str,
    rule: Rule | str,
    type: str,
    body: object,
    *,
    misfire: Policy | None = None,
    cap: int | None = CAP,
    max_late: float | None = None,
    grace: float = GRACE,
    overlap: Overlap = "allow",
    jitter: int | None = None,
    stream: str | None = None,
    subject: str | None = None,
    headers: Mapping[str, Any] | None = None,
    queue: str | None = None,
) -> Definition:
    """A definition that is checked; InvalidSettings or InvalidMessage says what is wrong."""
    named = schedule_name(name)
    recurs = _rule(named, rule, jitter)
    zones.timeline(recurs, named)  # its zone is known
    missed = tick.misfire(recurs, misfire, cap, max_late, grace)
    if overlap not in OVERLAPS:
        raise InvalidSettings(
            f"overlap={overlap!r} of schedule {named!r} is refused: use 'allow', 'queue', 'skip' or 'replace'."
        )
    if overlap == "queue":
        if stream is not None:
            raise InvalidSettings(
                f"Schedule {named!r} has overlap='queue' and stream={stream!r}: 'queue' puts its occurrences into a "
                "stream of its own, one at a time. Leave one of them out."
            )
        stream = f"schedule/{named}"
    message = draft(settings, type, body, stream=stream, subject=subject, headers=headers, queue=queue)
    if message.body.startswith(SEALED):
        raise InvalidMessage(
            f"The body of schedule {named!r} cannot be stored: its first key marks bodies that are encrypted."
        )
    return Definition(
        name=named, rule=recurs.text, type=message.type, body=message.body, headers=message.headers,
        stream=message.stream, subject=message.subject, queue=message.queue, misfire=missed.policy, cap=missed.cap,
        max_late=missed.max_late, grace=missed.grace, overlap=overlap,
    )  # fmt: skip


def schedule_name(value: object) -> str:
    found = names.text(value, "A schedule's name", NAME_MAX, InvalidSettings)
    if not found.strip() or found != found.strip():
        raise InvalidSettings(
            f"The schedule's name {found!r} is refused: it is empty, or has spaces at its ends."
        )
    return found


def digest(definition: Definition) -> str:
    """The same for the same definition: whether what is in the code is what is stored."""
    return hashlib.sha256(msgspec.json.encode(astuple(definition))).hexdigest()[:24]


def _rule(name: str, rule: object, jitter: int | None) -> Rule:
    if isinstance(rule, str):
        rule = recurrence.parse(rule)
    if not isinstance(rule, Rule):
        raise InvalidSettings(
            f"The rule of schedule {name!r} is {rule!r}: give cron(...), every(...), daily(...), weekly(...), "
            "monthly(...) or yearly(...)."
        )
    if jitter is None:
        return rule
    if rule.jitter:
        raise InvalidSettings(f"Schedule {name!r} has jitter= twice, in its rule too: give it once.")
    return recurrence.parse(replace(rule, jitter=_jitter(jitter)).text)


def _jitter(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= recurrence.JITTER_MAX:
        raise InvalidSettings(
            f"jitter={value!r} is refused: give whole seconds from 0 to {recurrence.JITTER_MAX}."
        )
    return value
