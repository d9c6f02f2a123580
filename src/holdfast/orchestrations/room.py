"""How much one instance may wait for at once. What it asks for is stored in one commit with its turn, so it is bounded.

The rules depend on what the code asked for and on nothing else, so a replay refuses what was refused before, however
the arrivals were spread over turns. Sizes are those of the values from which fingerprints are made: in a replay the
inputs themselves are not encoded.
"""

from __future__ import annotations

from ..errors import UsageError

OPEN_MAX = 10_000
# Of the inputs of all that it waits for, and of what was started since the last arrival.
OPEN_BYTES = 64 * 1024 * 1024
LARGE = 1_024  # an input that is not larger is not counted


class Room:
    """What one instance waits for, in bytes."""

    __slots__ = ("_bytes", "_sizes", "_started")

    def __init__(self) -> None:
        self._bytes = self._started = 0
        self._sizes: dict[int, int] = {}  # of large inputs, by the number of their call

    def arrived(self) -> None:
        """Something arrived: what was started before is stored, or will be, with other arrivals."""
        self._started = 0

    def check(self, id: str, open: int, size: int) -> None:
        """Raises if one more, with an input of this size, is too much. `open`: how many it waits for, if for this."""
        if open >= OPEN_MAX:
            raise UsageError(
                f"Instance {id!r} waits for {OPEN_MAX:,} calls and timers already, which is the limit: "
                "use flow.map(..., at_once=100), or children."
            )
        if size > LARGE and self._bytes + self._started + size > OPEN_BYTES:
            raise UsageError(
                f"Instance {id!r} waits for calls whose inputs have {self._bytes + self._started:,} bytes together, "
                f"and this one has {size:,} more; {OPEN_BYTES:,} are allowed: use flow.map(..., at_once=10), or give "
                "each call a reference to its data instead."
            )

    def took(self, number: int, size: int, *, waits: bool) -> None:
        """It was asked for. `waits`: the code waits for it, so it counts until its end."""
        if size <= LARGE:
            return
        if waits:
            self._sizes[number] = size
            self._bytes += size
        else:
            self._started += size

    def ended(self, number: int) -> None:
        if self._sizes:
            self._bytes -= self._sizes.pop(number, 0)
