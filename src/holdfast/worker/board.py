"""The messages that a worker has started, in memory that its supervisor can still read when the worker is dead.

One slot for each message that was started and is not settled. The seq is written before the state, so a slot with a
state is complete. The header says when the worker's loop last ran, and whether suspects wait.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import NamedTuple

from ..telemetry.memory import reserved

HEADER = struct.Struct("=qdqq")  # worker's number, when its loop ran, suspects wait, deaths are reported
SLOT = struct.Struct("=qq")  # seq, state
STATE = struct.Struct("=q")
TURNED = struct.Struct("=d")
RUNNING, ENDED, ENDED_FRAIL = 1, 2, 3


class Begun(NamedTuple):
    """What a worker left on its board. A worker that ended normally has wiped it: number 0."""

    worker: int
    running: list[int]
    ended: list[int]  # whose results were not handed in
    frail: list[int]  # of these, those whose next start is the last one allowed


class Board:
    """Slots in a file that two processes share. The worker writes, the supervisor reads."""

    def __init__(self, fileno: int, capacity: int) -> None:
        self.fileno, self.capacity = fileno, capacity
        self._memory = mmap.mmap(fileno, HEADER.size + capacity * SLOT.size)
        self._free: list[int] = []
        self._slot_of: dict[int, int] = {}
        self._forget_slots()

    @classmethod
    def create(cls, capacity: int) -> Board:
        return cls(reserved(HEADER.size + capacity * SLOT.size), capacity)

    def _forget_slots(self) -> None:
        self._free = list(range(HEADER.size, HEADER.size + self.capacity * SLOT.size, SLOT.size))
        self._slot_of.clear()

    # -- the worker writes

    def wipe(self) -> None:
        """Empty the board: nothing is started, and no worker writes to it."""
        self._memory[:] = bytes(len(self._memory))
        self._forget_slots()

    def sign(self, worker: int) -> None:
        """The worker with this number writes from now on."""
        STATE.pack_into(self._memory, 0, worker)

    def began(self, seq: int) -> None:
        # Messages that do not fit on the board are left out. They count as never started, which costs one start.
        if self._free:
            slot = self._free.pop()
            self._slot_of[seq] = slot
            SLOT.pack_into(self._memory, slot, seq, RUNNING)

    def ended(self, seq: int, frail: bool) -> None:
        slot = self._slot_of.get(seq)
        if slot is not None:
            STATE.pack_into(self._memory, slot + 8, ENDED_FRAIL if frail else ENDED)

    def settled(self, seq: int) -> None:
        slot = self._slot_of.pop(seq, None)
        if slot is not None:
            STATE.pack_into(self._memory, slot + 8, 0)
            self._free.append(slot)

    def turned(self, at: float) -> None:
        """Record that the loop runs."""
        TURNED.pack_into(self._memory, 8, at)

    def suspects_wait(self, waiting: bool) -> None:
        STATE.pack_into(self._memory, 16, waiting)

    def deaths_reported(self) -> None:
        """The deaths that this worker had to report are stored."""
        STATE.pack_into(self._memory, 24, 1)

    # -- the supervisor reads

    @property
    def turned_at(self) -> float:
        """When the loop last ran; 0 before its first round."""
        at: float = TURNED.unpack_from(self._memory, 8)[0]
        return at

    @property
    def suspects(self) -> bool:
        return bool(STATE.unpack_from(self._memory, 16)[0])

    @property
    def has_reported_deaths(self) -> bool:
        return bool(STATE.unpack_from(self._memory, 24)[0])

    def read(self) -> Begun:
        slots = list(SLOT.iter_unpack(self._memory[HEADER.size :]))
        return Begun(
            STATE.unpack_from(self._memory, 0)[0],
            [seq for seq, state in slots if state == RUNNING],
            [seq for seq, state in slots if state in (ENDED, ENDED_FRAIL)],
            [seq for seq, state in slots if state == ENDED_FRAIL],
        )

    def close(self) -> None:
        self._memory.close()
        os.close(self.fileno)
