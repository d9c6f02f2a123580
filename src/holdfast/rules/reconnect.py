"""When to connect again to a broker: at once, then after 0.1 s, and twice as long each time, up to half a minute.

Each pause is shortened at random by up to a third (jitter), so that processes that lost their broker together do not
reconnect together. All connections of a process to one broker share their attempts (`Attempts`), so once the broker has
been away for long there are at most three attempts in a minute.

A connection counts as a failure until something came through it, or until it has lasted half a minute. Otherwise a
broker that accepts connections and drops them would be tried again and again without a pause.
"""

from __future__ import annotations

FIRST, LONGEST, SPREAD = 0.1, 30.0, 1 / 3
LONG_AWAY = 10.0  # seconds of outage after which a backlog is expected, and handled slowly at first

STEADY = LONGEST  # seconds after which a connection counts as good, even if nothing came through it


def pause(failures: int, roll: float) -> float:
    """Seconds to wait before the next attempt, after this many failures in a row. `roll` is chance in 0..1."""
    if failures <= 0:
        return 0.0
    whole = min(FIRST * 2.0 ** min(failures - 1, 20), LONGEST)
    return whole * (1.0 - SPREAD * roll)


class Attempts:
    """The attempts of one process to reach one broker, whose connections take turns while it cannot be reached.

    Only failures to reach it count here. What concerns one connection alone (a missing exchange, a connection that is
    accepted and dropped) delays only that one.
    """

    __slots__ = ("_failures", "_next_at", "_reached_at")

    def __init__(self) -> None:
        self._failures, self._next_at, self._reached_at = 0, float("-inf"), float("-inf")

    def may_try(self, now: float, try_at: float, failed_at: float | None) -> bool:
        """Whether a connection may be tried that would be tried at `try_at` if it were the only one.

        `failed_at`: when it failed to reach the broker, if that was its last result. If another connection has reached
        it since, this one need not wait longer.
        """
        is_reached = failed_at is not None and self._reached_at > failed_at
        return now >= self._next_at and (is_reached or now >= try_at)

    def begin(self, now: float, roll: float) -> None:
        """One is tried now; the others wait."""
        self._failures += 1
        self._next_at = now + pause(self._failures, roll)

    def reached(self, now: float) -> None:
        """The broker has answered, whatever it said: the others may try as well."""
        self._failures, self._next_at, self._reached_at = 0, float("-inf"), now
