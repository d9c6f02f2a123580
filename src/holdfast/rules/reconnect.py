"""When to connect again to a broker: at once, then after 0.1 s, and twice as long each time, up to half a minute.

Each pause is shortened at random by up to a third (jitter), so that processes which lost their broker together do not
reconnect together. So there are at most three attempts in a minute once the broker has been away for long.

A connection counts as a failure until something came through it, or until it has stood for half a minute. Else a broker
that accepts connections and drops them would be tried again and again without a pause.
"""

from __future__ import annotations

FIRST, LONGEST, SPREAD = 0.1, 30.0, 1 / 3
LONG_AWAY = 10.0  # seconds of outage after which a backlog is expected, and handled slowly at first

STEADY = LONGEST  # seconds after which a connection was none that failed, even if nothing came through it


def pause(failures: int, roll: float) -> float:
    """Seconds to wait before the next attempt, after this many failures in a row. `roll` is chance in 0..1."""
    if failures <= 0:
        return 0.0
    whole = min(FIRST * 2.0 ** min(failures - 1, 20), LONGEST)
    return whole * (1.0 - SPREAD * roll)
