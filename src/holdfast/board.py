"""What a worker has begun, in memory that its supervisor can still read when the worker is dead.

One slot for each message that was started and is not settled: (seq, 1) while its handler runs, (seq, 2) when it has
ended and waits to be handed in. The seq is written before the state, so a slot that says something is complete.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile

HEADER = struct.Struct("=qq")  # worker's number, capacity
SLOT = struct.Struct("=qq")  # seq, state
STATE = struct.Struct("=q")
RUNNING, ENDED = 1, 2


class Board:
    """Slots in a file that two processes share. The worker writes, the supervisor reads."""

    def __init__(self, fileno: int, capacity: int) -> None:
        self.fileno, self.capacity = fileno, capacity
        self._memory = mmap.mmap(fileno, HEADER.size + capacity * SLOT.size)
        self._free = list(range(capacity - 1, -1, -1))
        self._slot_of: dict[int, int] = {}

    @classmethod
    def create(cls, capacity: int) -> Board:
        with tempfile.TemporaryFile(prefix="holdfast-") as file:
            file.truncate(HEADER.size + capacity * SLOT.size)
            return cls(os.dup(file.fileno()), capacity)

    def wipe(self, worker: int) -> None:
        """Begin anew under this number."""
        self._memory[:] = bytes(len(self._memory))
        HEADER.pack_into(self._memory, 0, worker, self.capacity)

    def began(self, seq: int) -> None:
        # More than the board holds is left out: it then counts as never started, which only costs a start.
        if self._free:
            slot = self._free.pop()
            self._slot_of[seq] = slot
            SLOT.pack_into(self._memory, HEADER.size + slot * SLOT.size, seq, RUNNING)

    def ended(self, seq: int) -> None:
        slot = self._slot_of.get(seq)
        if slot is not None:
            STATE.pack_into(self._memory, HEADER.size + slot * SLOT.size + 8, ENDED)

    def settled(self, seq: int) -> None:
        slot = self._slot_of.pop(seq, None)
        if slot is not None:
            STATE.pack_into(self._memory, HEADER.size + slot * SLOT.size + 8, 0)
            self._free.append(slot)

    def read(self) -> tuple[int, list[int], list[int]]:
        """The worker's number, what it was running, and what had ended unreported."""
        worker, capacity = HEADER.unpack_from(self._memory, 0)
        slots = [SLOT.unpack_from(self._memory, HEADER.size + n * SLOT.size) for n in range(capacity)]
        return worker, [seq for seq, state in slots if state == RUNNING], [seq for seq, state in slots if state == ENDED]

    def close(self) -> None:
        self._memory.close()
        os.close(self.fileno)
