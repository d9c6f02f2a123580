"""New ids: UUIDs of version 7, which sort by the time they were made."""

from __future__ import annotations

import sys
from uuid import UUID

if sys.version_info >= (3, 14):
    from uuid import uuid7
else:
    from uuid_utils.compat import uuid7


def new_id() -> UUID:
    return uuid7()
