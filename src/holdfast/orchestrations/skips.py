"""Which turns are not worth running ahead (foreseeing.py)."""

from __future__ import annotations

SKIPS_MAX = 256


class Skips:
    """Which activities are followed by turns that cannot be run ahead: each time in vain doubles what is left out."""

    def __init__(self) -> None:
        self._left: dict[tuple[str, str], tuple[int, int]] = {}  # how many to leave out next, how many still

    def is_due(self, key: tuple[str, str]) -> bool:
        length, left = self._left.get(key, (0, 0))
        if left:
            self._left[key] = (length, left - 1)
        return not left

    def note(self, key: tuple[str, str], worked: bool) -> None:
        if worked:
            self._left.pop(key, None)
            return
        length = min(SKIPS_MAX, 2 * self._left.get(key, (0, 0))[0] or 1)
        self._left[key] = (length, length)
