"""Prints the requirements that no passing test covers. Reads docs/requirements.md and .requirements.json.

The second is left by whole runs of the tests: `make test`, and `make faults` for those that only the long ones show.
Says what it found and ends with 0: it is a list of work, not a gate.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "docs" / "requirements.md"
RECORD = ROOT / ".requirements.json"


def read_requirements() -> dict[str, dict[str, str]]:
    """Text by id, by section, in the order of the document."""
    sections: dict[str, dict[str, str]] = {}
    section = ""
    for line in REQUIREMENTS.read_text().splitlines():
        if line.startswith("## "):
            section = line[3:]
        elif found := re.match(r"- \*\*([A-Z]\d+)\*\* (.*)", line):
            sections.setdefault(section, {})[found.group(1)] = found.group(2)
    return sections


def read_covered() -> set[str]:
    try:
        runs = json.loads(RECORD.read_text())
    except FileNotFoundError:
        print("No run of the tests is on record: run `make test` (and `make faults`) first.\n")
        return set()
    for expression, run in runs.items():
        print(
            f'Run of "{expression or "all"}", ended {run["ended"]}, PostgreSQL {run["postgres"]}: '
            f"{run['passed']} passed, {run['failed']} failed"
        )
    print()
    return {each for run in runs.values() for each in run["covers"]}


def main() -> None:
    covered = read_covered()
    sections = read_requirements()
    total = open_ones = 0
    for section, requirements in sections.items():
        missing = {each: text for each, text in requirements.items() if each not in covered}
        total += len(requirements)
        open_ones += len(missing)
        print(f"{section}: {len(requirements) - len(missing)} of {len(requirements)} covered")
        for each, text in missing.items():
            print(f"  {each:<5} {text if len(text) <= 100 else text[:97] + '...'}")
    print(
        f"\n{total - open_ones} of {total} requirements are covered by a passing test, {open_ones} are not."
    )


if __name__ == "__main__":
    main()
