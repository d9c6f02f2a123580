"""Records the corpus of journals: `python -m tests.orchestrations.record`, with the oldest Python that is supported.

A release that cannot replay them would pause the instances of its users. So files are only ever added: a change of the
format or of the order in which things happen is seen here first.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec

from holdfast.orchestrations.journal import PYTHON
from tests.orchestrations.groups import cancelled_group
from tests.orchestrations.test_simulation import played

FOLDER = Path(__file__).parent / "corpus"
JOURNALS = 240
LONGEST = 6_000  # bytes of one journal
SEEDS = 5_000


class Recorded(msgspec.Struct, frozen=True, array_like=True):
    """One execution of one instance: its rows as (turn, part, text)."""

    id: str
    execution: int
    rows: tuple[tuple[int, int, str], ...]
    status: Any = None


def journals() -> list[Recorded]:
    found: list[Recorded] = []
    seen: set[str] = set()
    for seed in range(SEEDS, SEEDS + 10 * JOURNALS):
        engine = played(seed, forget=0)
        assert not engine.paused
        for id, record in engine.records.items():
            for execution in range(record.execution + 1):
                rows = tuple((turn, part, text) for e, turn, part, text in record.texts if e == execution)
                whole = "".join(text for _, _, text in rows)
                if len(rows) > 3 and len(whole) <= LONGEST and whole not in seen:
                    seen.add(whole)
                    found.append(Recorded(id, execution, rows))
        if len(found) >= JOURNALS:
            break
    return found[:JOURNALS]


def group() -> Recorded:
    engine = cancelled_group()
    rows = tuple((turn, part, text) for _, turn, part, text in engine.records["i"].texts)
    return Recorded("i", 0, rows)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, what in (("journals", journals()), ("group", [group()])):
        lines = b"\n".join(msgspec.json.encode(each) for each in what)
        (FOLDER / f"{name}-{PYTHON}.jsonl").write_bytes(lines + b"\n")
        sys.stdout.write(f"{name}: {len(what)} journals, {len(lines):,} bytes\n")


if __name__ == "__main__":
    main()
