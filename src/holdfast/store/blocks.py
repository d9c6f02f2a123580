"""Whether the caller is inside a transaction of its own: Django knows, for each thread."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

LOCAL = frozenset(("", "localhost", "127.0.0.1", "::1"))


def django_blocks() -> list[dict[str, Any]]:
    """The databases (Django's settings of them) on which this thread is inside an atomic block."""
    if "django.db" not in sys.modules:
        return []
    from django.conf import settings
    from django.db import connections

    if not settings.configured:
        return []
    return [each.settings_dict for each in connections.all(initialized_only=True) if each.in_atomic_block]


def is_same_server(host: str, port: str, database: str, block: Mapping[str, Any]) -> bool:
    """Whether Django's settings name this PostgreSQL database, if that can be seen from them."""
    theirs = str(block.get("HOST") or ""), str(block.get("PORT") or "5432"), str(block.get("NAME"))
    return (
        "postgresql" in str(block.get("ENGINE"))
        and theirs[1:] == (port or "5432", database)
        and (theirs[0] == host or {theirs[0], host} <= LOCAL)
    )
