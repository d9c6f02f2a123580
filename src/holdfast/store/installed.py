"""The schema and the functions that a database has, compared with those of this release.

The functions have a number that rises with every change of them or of the tables (`functions/numbers.txt`), so the
newer of two releases is known. The database also keeps the lowest number whose callers still work with the installed
functions: processes of such a release may start while a newer one is being rolled out.
"""

from __future__ import annotations

import json
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal

import msgspec

from ..errors import NotMigrated

# same: as this release needs it. behind: to be migrated by this release. ahead: of a newer release, which works with
# this one (`compatible`) or does not. other: the same number with another text, so neither is the newer one.
Standing = Literal["same", "behind", "compatible", "ahead", "other"]


class Installed(msgspec.Struct, frozen=True):
    """A schema and its functions: those of a database, or those of a release."""

    version: int
    digest: str  # of the functions
    number: int = 0  # 0: made before there were numbers
    compatible_from: int = 0
    made: tuple[str, ...] = ()  # the functions in it that migrations made


@lru_cache(maxsize=1)
def numbers() -> list[Installed]:
    """All numbers that there were, the current one last."""
    text = files("holdfast").joinpath("store", "functions", "numbers.txt").read_text(encoding="utf-8")
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [
        Installed(int(version), digest, int(number), int(compatible))
        for number, compatible, version, digest in lines
    ]


def read(rows: list[tuple[Any, ...]], schema: str) -> Installed:
    """The row of `schema_version`, which has had more columns with time, as JSON."""
    if not rows:
        raise NotMigrated(
            f"Schema {schema} has Holdfast's tables, but its table schema_version is empty: "
            "restore that table with its row."
        )
    row = json.loads(rows[0][0])
    if "version" not in row or "functions" not in row:
        raise NotMigrated(
            f"Schema {schema} has a table schema_version that is not Holdfast's: "
            "choose another schema for Holdfast with ?schema=NAME in the URL."
        )
    return Installed(
        row["version"],
        row["functions"],
        row.get("number", 0),
        row.get("compatible_from", 0),
        tuple(row.get("made", ())),
    )


def compare(found: Installed, ours: Installed) -> Standing:
    """How a database compares with this release."""
    if found.number > ours.number:
        return "compatible" if ours.number >= found.compatible_from else "ahead"
    if found.version > ours.version:
        return "ahead"
    if found.version < ours.version or found.number < ours.number:
        return "behind"
    return "same" if found.digest == ours.digest else "other"


def check(found: Installed, ours: Installed) -> None:
    """Whether a process of this release can work with the database."""
    match compare(found, ours):
        case "behind":
            raise NotMigrated(
                f"The database has {words(found)}, and this Holdfast needs {words(ours)}: run `holdfast migrate`."
            )
        case "ahead":
            raise NotMigrated(
                f"The database has {words(found)} of a newer release, which no longer works with this one "
                f"({words(ours)}): install the newer release; a downgrade is not possible."
            )
        case "other":
            raise NotMigrated(other(found))


def check_migration(found: Installed, ours: Installed) -> None:
    """Whether this release may migrate the database: never backwards."""
    match compare(found, ours):
        case "ahead" | "compatible":
            raise NotMigrated(
                f"Nothing was migrated: the database has {words(found)} and this Holdfast brings only {words(ours)}. "
                "Migrate with the newer release, and install the newer release here; a downgrade is not possible."
            )
        case "other":
            raise NotMigrated(f"Nothing was migrated. {other(found)}")


def words(it: Installed) -> str:
    return f"schema version {it.version}" + (f" with functions number {it.number}" if it.number else "")


def other(found: Installed) -> str:
    return (
        f"The database has functions number {found.number} as this Holdfast, but with another text, so one of the two "
        "is not a release, and it is not known which is newer: install a release. If you changed functions yourself, "
        "raise their number (CONTRIBUTING.md)."
    )
