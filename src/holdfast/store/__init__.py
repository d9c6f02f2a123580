"""The only place with SQL. A store runs plans: on its own connections, or inside the caller's transaction."""

from __future__ import annotations

from ..clock import Clock
from ..errors import InvalidSettings
from ..model.names import display_url, passwords, pooler
from ..settings import Settings
from .contract import Store
from .sqlite import SqliteStore
from .text import DEFAULT_SCHEMA

__all__ = ["SqliteStore", "Store", "open_store"]


def open_store(url: str, settings: Settings, clock: Clock, schema: str = DEFAULT_SCHEMA) -> Store:
    """The store that a URL names; nothing is connected yet. `url` has been checked by `names.database_url`."""
    if url.startswith("sqlite:"):
        return SqliteStore(url.removeprefix("sqlite:///"), settings, clock)
    # Imported here: SQLite users need no driver of PostgreSQL.
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict
    except ImportError as missing:
        raise InvalidSettings(
            f"{display_url(url)} needs the driver psycopg, which cannot be imported ({missing}): "
            "pip install 'holdfast[postgres]'."
        ) from missing

    from .postgres import PostgresStore

    url, pooled = pooler(url)
    try:
        conninfo_to_dict(url)
    except ProgrammingError as error:
        why = str(error).strip()
        for secret in passwords(url):  # libpq repeats in its error the part that it does not understand
            why = why.replace(secret, "***")
        raise InvalidSettings(f"The database URL {display_url(url)!r} cannot be used: {why}.") from None
    return PostgresStore(url, settings, clock, schema, pooled=pooled)
