"""`holdfast grants`: who may do what in a PostgreSQL database, as a script."""

from __future__ import annotations

from typing import Annotated

import typer

from . import show
from .target import NamedTarget


def grants(
    target: NamedTarget,
    owner: Annotated[
        str | None, typer.Option("--owner", metavar="ROLE", help="Owns the tables, and migrates.")
    ] = None,
    worker: Annotated[
        str | None, typer.Option("--worker", metavar="ROLE", help="Runs workers and an operator's commands.")
    ] = None,
    producer: Annotated[
        str | None,
        typer.Option("--producer", metavar="ROLE", help="Publishes, and sees no stored data."),
    ] = None,
    viewer: Annotated[
        str | None, typer.Option("--viewer", metavar="ROLE", help="Reads everything, changes nothing.")
    ] = None,
) -> None:
    """Print the SQL that gives roles their rights.

    For those that are named, or for all four with usual names."""
    from ..errors import UsageError
    from ..store.grants import Access, script

    found = target.application()
    found.close()
    if found.store.is_embedded:
        raise UsageError("SQLite has no roles: who may read and write the file says who may do what.")
    named: dict[Access, str | None] = {"worker": worker, "producer": producer, "viewer": viewer}
    if owner is None and not any(named.values()):
        owner, named = "holdfast_owner", {each: f"holdfast_{each}" for each in named}
    text = script({access: role for access, role in named.items() if role}, owner, found.schema)
    if target.json:
        show.document({"sql": text})
    else:
        show.plain(text.rstrip("\n"))
