"""New ids: UUIDs of version 7, which sort by the time they were made, and of version 5, which are made of names.

They are put together without the checks of `uuid.UUID`, which cost more than everything else here.
"""

from __future__ import annotations

import hashlib
import sys
from uuid import UUID, SafeUUID

make, put, unknown = UUID.__new__, object.__setattr__, SafeUUID.unknown


if sys.version_info >= (3, 14):
    from uuid import uuid7 as new_id
else:
    from uuid_utils import uuid7

    def new_id() -> UUID:
        """An id that nobody has."""
        id = make(UUID)
        put(id, "int", uuid7().int)
        put(id, "is_safe", unknown)
        return id


class Namespace:
    """Ids made of names, the same for the same name: `Namespace(space).id(name)` is uuid.uuid5(space, name)."""

    __slots__ = ("_start",)

    VARIANT = ~(0xC000 << 48 | 0xF000 << 64)
    VERSION = 0x8000 << 48 | 5 << 76

    def __init__(self, space: UUID) -> None:
        self._start = hashlib.sha1(space.bytes, usedforsecurity=False)

    def id(self, name: str) -> UUID:
        digest = self._start.copy()
        digest.update(name.encode())
        id = make(UUID)
        put(id, "int", int.from_bytes(digest.digest()[:16], "big") & self.VARIANT | self.VERSION)
        put(id, "is_safe", unknown)
        return id


__all__ = ["Namespace", "new_id"]
