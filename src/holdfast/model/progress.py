"""The progress of a long activity: `ctx.progress(30, 100)`."""

from __future__ import annotations

from math import isfinite

import msgspec

from ..errors import UsageError

NOTE_CHARS = 200


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """`total` is None if it is not known."""

    done: float
    total: float | None = None
    note: str = ""

    @property
    def share(self) -> float | None:
        """From 0 to 1; None if the total is not known."""
        return None if self.total is None else min(1.0, max(0.0, self.done / self.total))

    def __str__(self) -> str:
        """
        >>> str(Progress(30, 120, "pages")), str(Progress(7))
        ('30 of 120 (25 %), pages', '7')
        """
        of = "" if self.total is None else f" of {self.total:,.12g} ({int(100 * (self.share or 0))} %)"
        return f"{self.done:,.12g}{of}" + (f", {self.note}" if self.note else "")


def progress(done: object, total: object, note: object) -> Progress:
    """Checked; or UsageError."""
    so_far, all_of_it = _number("done", done), None if total is None else _number("total", total)
    if total == 0:
        raise UsageError("ctx.progress(total=0): leave the total out where there is nothing to count.")
    if not isinstance(note, str) or len(note) > NOTE_CHARS:
        raise UsageError(f"ctx.progress(note=...): give a text of {NOTE_CHARS} characters at most.")
    return Progress(so_far, all_of_it, note)


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < 0:
        raise UsageError(f"ctx.progress({name}={value!r}): give a number that is not negative.")
    return value
