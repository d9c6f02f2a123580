"""Typer's runner of commands, which makes the commands of an application once, and not for every call (0.1 s)."""

from __future__ import annotations

import functools

from typer import testing
from typer.testing import CliRunner

__all__ = ["CliRunner"]

testing._get_command = functools.cache(testing._get_command)
