"""When a worker looks again: at once while there is work, less and less often while there is none.

A worker that finds nothing says that it is asleep, so that publishers wake it up. The flag is set and cleared
with a delay, because each change is a write. Hints may be missed, so a sleeping worker still polls.
"""

from __future__ import annotations

from dataclasses import dataclass

BUSY_TURNS = 20  # turns with work in a row after which publishers need not wake us
IDLE_POLL = 1.0  # seconds: the slowest polling while hints arrive, unless `poll_max` is slower
IDLE_AFTER = 10.0  # seconds without work until then
SLOWER = 1.5


@dataclass(slots=True)
class Rhythm:
    """When a worker polls. Time (`now`) is monotonic and an argument."""

    poll_min: float
    poll_max: float
    worked_at: float
    pause: float = 0.0
    busy_turns: int = 0
    asleep: bool = False  # as the store knows it

    def __post_init__(self) -> None:
        self.pause = self.poll_min

    @property
    def peeks(self) -> bool:
        """Whether it is worth asking when the next thing falls due."""
        return self.pause >= self.poll_max

    @property
    def new_asleep(self) -> bool | None:
        """The flag to send to the store; None when the store has it already."""
        if self.busy_turns == 0 and not self.asleep:
            return True
        if self.busy_turns >= BUSY_TURNS and self.asleep:
            return False
        return None

    def told(self, asleep: bool | None) -> None:
        if asleep is not None:
            # A message may have been published before the flag was set: look again soon.
            self.asleep, self.pause = asleep, self.poll_min

    def work_came(self, now: float) -> None:
        self.worked_at = now
        if not self.asleep:  # otherwise the next publisher wakes us, as this one did
            self.pause = self.poll_min
        self.busy_turns = min(self.busy_turns + 1, BUSY_TURNS)

    def rest(self, now: float, idle: bool, due_in: float | None) -> float:
        """Nothing came: how long to rest. Shorter when a message falls due, longer when nothing comes for a while."""
        if idle:
            self.busy_turns = 0
        slowest = max(IDLE_POLL, self.poll_max)
        seconds = slowest if idle and now - self.worked_at > IDLE_AFTER else self.pause
        self.pause = min(self.pause * SLOWER, self.poll_max)
        return seconds if due_in is None else min(seconds, max(0.0, due_in))
