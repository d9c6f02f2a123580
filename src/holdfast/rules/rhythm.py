"""When a worker looks again, for work and for what falls due: at once while there is some, else less and less often.

A worker that finds nothing says that it is asleep, so that publishers wake it up. The flag is set and cleared
with a delay, because each change is a write. Hints may be missed, so a sleeping worker still polls.
"""

from __future__ import annotations

from dataclasses import dataclass

BUSY_TURNS = 20  # turns with work in a row after which publishers need not wake us
IDLE_POLL = 1.0  # seconds: the slowest polling while hints arrive, unless `poll_max` is slower
IDLE_AFTER = 10.0  # seconds without work until then
SLOWER = 1.5
LOOKS_EVERY = 1.0  # seconds after which a worker looks for due work, whatever it knows
HELD_MIN = (
    0.02  # seconds: the first rest when what is due is held by somebody else; each next one is twice as long
)
FAILED_MIN, FAILED_MAX = 1.0, 60.0  # seconds: the first and the longest rest of a step that fails
# Seconds that a turn of a worker may take while much is due, and how much it takes at least: a commit costs as much as
# some ten messages, so smaller portions would cost more than they help others.
TURN_MAX, PORTION_MIN = 0.02, 100


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

    def stored(self, asleep: bool | None) -> None:
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


@dataclass(slots=True)
class Beat:
    """When one step of the tick runs again. Time (`now`) is monotonic and an argument."""

    at: float = float("-inf")
    held: int = 0  # how often in a row it got nothing although something was due
    failed: int = 0  # how often in a row it failed
    is_quiet: bool = False  # the last time it did nothing

    def is_due(self, now: float) -> bool:
        return now >= self.at

    def wake(self) -> None:
        """Something was changed: look at once. A step that fails is not tried earlier for that."""
        if not self.failed:
            self.at = float("-inf")

    def ticked(self, now: float, did: int, due_in: float | None, lost: bool = False) -> None:
        """It ran: `due_in` are the seconds until the next thing falls due; None: nothing waits.

        If another worker was first with all of it (`lost`), that one goes on with what is left, and this one rests.
        """
        self.failed, self.is_quiet = 0, not did
        if due_in is not None and due_in <= 0:
            if lost:
                self.held, self.at = 0, now + LOOKS_EVERY
                return
            self.held = 0 if did else self.held + 1
            self.at = now + min(LOOKS_EVERY, HELD_MIN * 2 ** min(self.held, 10)) if self.held else now
            return
        self.held = 0
        self.at = now + (LOOKS_EVERY if due_in is None else min(LOOKS_EVERY, due_in))

    def broke(self, now: float) -> None:
        """It failed: it rests, longer each time."""
        self.failed, self.is_quiet = self.failed + 1, True
        self.at = now + min(FAILED_MAX, FAILED_MIN * 2 ** min(self.failed - 1, 10))


@dataclass(slots=True)
class Portion:
    """How much of what is due one turn of a worker takes. Time (`now`) is monotonic and an argument.

    While much is due, messages of other queues wait for one such turn. The first portion is small. If it took long, the
    next one is half as large; if it was short, twice as large.
    """

    most: int
    size: int = 0
    begun_at: float | None = None  # the last full portion

    def __post_init__(self) -> None:
        self.size = min(PORTION_MIN, self.most)

    @property
    def was_full(self) -> bool:
        """Whether the last portion was all that may be taken at once, so that more is probably left."""
        return self.begun_at is not None

    def begin(self, now: float) -> int:
        """How much to take now."""
        if self.begun_at is not None:
            took = now - self.begun_at
            if took > TURN_MAX:
                self.size = max(min(PORTION_MIN, self.most), self.size // 2)
            elif took < TURN_MAX / 2:
                self.size = min(self.most, self.size * 2)
        self.begun_at = now
        return self.size

    def took(self, count: int) -> None:
        """So much was due. If it was less than the portion, the time until the next one is not that of a turn."""
        if count < self.size:
            self.begun_at = None
