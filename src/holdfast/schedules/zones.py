"""Time zones from the `tzdata` package, and from nowhere else.

The operating system's zone data may be years older than the package's, and two machines would disagree about when an
occurrence is due. So /usr/share/zoneinfo is never read, and `version` says what this process goes by.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import cache
from importlib import import_module, resources

from ..errors import InvalidSettings
from ..rules.patterns import Rule
from ..rules.timeline import Timeline
from ..rules.zones import Zone, moment_of, parse, seconds_of

REFUSED = {
    "localtime": "it means something else on every machine",
    "posixrules": "it is a default for old programs, not a place",
    "Factory": "it means that nobody has set a zone",
}


@cache
def version() -> str:
    """Which release of the IANA data, `2026f`. Later releases are greater as text."""
    return str(import_module("tzdata").IANA_VERSION)


@cache
def names() -> frozenset[str]:
    """Every zone that may be named."""
    listed = resources.files("tzdata").joinpath("zones").read_text("utf-8").split()
    return frozenset(listed) - REFUSED.keys()


@cache
def zone(name: str) -> Zone:
    """The zone of this name. It is read once in a process."""
    if name not in names():
        raise InvalidSettings(f"Time zone {name!r} cannot be used: {_why_not(name)}")
    return parse(name, resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes())


def timeline(rule: Rule, identity: str = "") -> Timeline:
    """When the occurrences of a rule are. Refuses a rule whose zone does not exist."""
    return Timeline(rule, zone(rule.zone), identity)


LOCAL = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[ T](\d{2}:\d{2}(?::\d{2})?))?(?: (\S+)|Z)?")


def moment(text: str) -> datetime:
    """The moment that a text names: a local date and time and a zone; without a zone it is UTC.

    >>> moment("2026-03-28 12:00 Europe/Berlin").isoformat()
    '2026-03-28T11:00:00+00:00'
    """
    found = LOCAL.fullmatch(text.strip())
    try:
        if found is None:
            given = datetime.fromisoformat(text)
            if given.tzinfo is not None:
                return given.astimezone(UTC)
        else:
            shown = datetime.fromisoformat(f"{found[1]}T{found[2] or '00:00'}").replace(tzinfo=UTC)
            return moment_of(zone(found[3] or "UTC").resolve(seconds_of(shown)))
    except ValueError:
        pass
    raise InvalidSettings(
        f"{text!r} is not a moment: write for example '2026-03-28 12:00 Europe/Berlin', or 2026-03-28T11:00:00Z."
    )


def _why_not(name: str) -> str:
    if name in REFUSED:
        return f"{REFUSED[name]}; name an IANA zone such as 'Europe/Berlin'."
    if name.startswith(("right/", "posix/")):
        return f"{name.split('/')[0]}/ counts time in another way; write {name.split('/', 1)[1]!r}."
    folded = {each.casefold(): each for each in sorted(names())}
    places = {each.rsplit("/")[-1]: each for each in reversed(folded)}
    near = get_close_matches(name.casefold().replace(" ", "_"), [*folded, *places], n=1, cutoff=0.6)
    if near:
        return f"there is no such zone in tzdata {version()}; did you mean {folded[places.get(near[0], near[0])]!r}?"
    return f"there is no such zone in tzdata {version()}; zones have names such as 'Europe/Berlin'."
