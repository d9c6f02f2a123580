"""The command line: `holdfast`. Every group of commands is a module; the engine is imported when a command runs.

Exit codes: 0 success, 1 it could not be done, 2 wrong usage, 3 it was done and something is unhealthy.
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """The entry point of the script `holdfast`."""
    from .root import app

    app(prog_name="holdfast")
