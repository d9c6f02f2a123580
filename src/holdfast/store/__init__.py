"""The only place with SQL. A store runs plans: on its own connections, or inside the caller's transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ..clock import Clock
from ..settings import Settings
from .plans_sqlite import SqlitePlans
from .sqlite import SqliteStore
from .statement import DEFAULT_SCHEMA

if TYPE_CHECKING:
    from .plans_postgres import PostgresPlans
    from .postgres import PostgresStore

Store: TypeAlias = "SqliteStore | PostgresStore"
Plans: TypeAlias = "SqlitePlans | PostgresPlans"

__all__ = ["Plans", "SqlitePlans", "SqliteStore", "Store", "open_store"]


def open_store(url: str, settings: Settings, clock: Clock, schema: str = DEFAULT_SCHEMA) -> Store:
    """The store that a URL names; nothing is connected yet. `url` has been checked by `names.database_url`."""
    if url.startswith("sqlite:"):
        return SqliteStore(url.removeprefix("sqlite:///"), settings, clock)
    # Imported here: SQLite users need no driver of PostgreSQL.
    from .postgres import PostgresStore

    return PostgresStore(url, settings, clock, schema)
