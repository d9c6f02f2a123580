"""Tables for people. On a terminal they fit its width: columns without a value are left out, an id is its last eight
characters, a time says how long ago, a name that is too long loses its middle and a sentence its end. In a pipe nothing
is shortened: ids and times are whole. A line is never wrapped, so one row is one line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from uuid import UUID

from rich.cells import cell_len, set_cell_size

from ..model.text import replaced

GAP = 2
NAME_MIN, TEXT_MIN, LEAST = 12, 20, 4
SHORT = 8  # characters of an id, from its end: ids are ordered by time, so their beginnings are alike
SENTENCES = {"error", "its error", "why", "text", "before", "after", "answer", "queues", "sent to"}
WORDS = {"state", "states", "is", "are", "action", "outcome"}  # shortened only when nothing else helps


@dataclass(frozen=True, slots=True)
class Page:
    """Who reads it: `width` is None in a pipe; `at` is the database's time, from which ages count."""

    width: int | None
    at: datetime | None = None

    def cell(self, value: object) -> str:
        """A value as it is shown in a table."""
        match value:
            case None | False:
                return ""
            case True:
                return "yes"
            case UUID():
                return str(value) if self.width is None else str(value)[-SHORT:]
            case datetime():
                return moment(value, None if self.width is None else self.at)
            case Enum():
                return replaced(words(value))
            case int():
                return f"{value:,}" if self.width is not None else str(value)
        return replaced(str(value))


def words(value: Enum) -> str:
    return value.name.replace("_", " ").lower()


def moment(value: datetime, at: datetime | None) -> str:
    """How long ago or in how long, as seen from a moment; else the time itself."""
    if at is None:
        return f"{value:%Y-%m-%d %H:%M:%S}"
    seconds = (at - value).total_seconds()
    return f"{age(seconds)} ago" if seconds >= 0 else f"in {age(-seconds)}"


def age(seconds: float | None) -> str:
    """A length of time for people."""
    if seconds is None:
        return ""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"


def lines(
    page: Page, columns: Sequence[str], rows: Sequence[Sequence[object]], spare: Sequence[str] = ()
) -> tuple[list[str], list[str]]:
    """The heading with a line for each row, and the columns for which there was no room.

    `spare`: columns that may be left out where there is no room, the last first.
    """
    cells = [[page.cell(value) for value in row] for row in rows]
    shown = [n for n in range(len(columns)) if any(row[n] for row in cells)]
    right = {n for n in shown if all(_is_number(row[n]) or row[n] is None for row in rows)}
    firm = {
        n for n in shown if all(row[n] is None or isinstance(row[n], UUID | datetime) for row in rows)
    } | right
    # Ids and times are never shortened, also if names are in the same column.
    whole = {n: _widest_id([row[n] for row in rows], [row[n] for row in cells]) for n in shown}
    worded = {n for n in shown if columns[n] in WORDS or any(isinstance(row[n], Enum) for row in rows)}
    left_out: list[str] = []
    while True:
        natural = {n: max(cell_len(columns[n]), *(cell_len(row[n]) for row in cells)) for n in shown}
        widths = fitted(page.width, columns, natural, firm | worded, NAME_MIN, whole)
        droppable = [n for n in shown if columns[n] in spare]
        if widths is not None or not droppable:
            break
        gone = max(droppable, key=lambda n: list(spare).index(columns[n]))
        shown.remove(gone)
        left_out.append(columns[gone])
    widths = widths or fitted(page.width, columns, natural, firm, LEAST, whole) or natural
    made = [
        (" " * GAP).join(_cell(row[n], columns[n], widths[n], n in right) for n in shown).rstrip()
        for row in [list(columns), *cells]
    ]
    return made, left_out[::-1]


def _widest_id(values: Sequence[object], cells: Sequence[str]) -> int:
    found = zip(values, cells, strict=True)
    return max((cell_len(cell) for value, cell in found if isinstance(value, UUID | datetime)), default=0)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool | Enum)


def fitted(
    width: int | None,
    columns: Sequence[str],
    natural: dict[int, int],
    firm: set[int],
    least: int,
    whole: Mapping[int, int],
) -> dict[int, int] | None:
    """The widths of the columns: sentences are made narrower first, then the longest names. None: there is no room."""
    widths = dict(natural)
    if width is None:
        return widths
    room = width - GAP * (len(widths) - 1)
    for soft, smallest in (
        ([n for n in widths if columns[n] in SENTENCES], TEXT_MIN),
        ([n for n in widths if columns[n] not in SENTENCES and n not in firm], least),
    ):
        floors = {n: min(natural[n], max(smallest, cell_len(columns[n]), whole.get(n, 0))) for n in soft}
        while sum(widths.values()) > room:
            wide = max((n for n in soft if widths[n] > floors[n]), key=lambda n: widths[n], default=None)
            if wide is None:
                break
            widths[wide] -= 1
    return widths if sum(widths.values()) <= room else None


def _cell(text: str, column: str, width: int, right: bool) -> str:
    if cell_len(text) > width:
        text = shortened(text, width, at_end=column in SENTENCES)
    pad = " " * (width - cell_len(text))
    return pad + text if right else text + pad


def shortened(text: str, width: int, *, at_end: bool = False) -> str:
    """A text of this width, with an ellipsis where something is missing: in the middle of a name."""
    if cell_len(text) <= width:
        return text
    if at_end or width < LEAST:
        return set_cell_size(text, width - 1).rstrip() + "…"
    back = (width - 1) // 2
    front = set_cell_size(text, width - 1 - back).rstrip()
    tail = text[::-1]
    return front + "…" + set_cell_size(tail, back)[::-1].lstrip()
