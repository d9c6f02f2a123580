"""The command line on a SQLite file, called in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.root import app
from holdfast.clock import SystemClock
from holdfast.operations import Operations
from holdfast.settings import Settings
from holdfast.store import open_store
from tests.cli.runner import CliRunner
from tests.operations.world import World


@dataclass
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on standard output."""
        return json.loads(self.out)


@dataclass
class Shell:
    """Calls `holdfast` with the database of the test."""

    url: str

    def __call__(self, *arguments: object, database: bool = True, **environment: str | None) -> Answer:
        given = [str(each) for each in arguments] + (["--url", self.url] if database else [])
        result = CliRunner().invoke(
            app, given, env={"HOLDFAST_APP": None, "HOLDFAST_DATABASE_URL": None} | environment
        )
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return Answer(result.exit_code, result.stdout, result.stderr)


@pytest.fixture
def url(sqlite_path: Path) -> str:
    return f"sqlite:///{sqlite_path}"


@pytest.fixture
def holdfast(url: str) -> Shell:
    return Shell(url)


@pytest.fixture
def world(url: str) -> Iterator[World]:
    """The same database, with the machine's clock: the command line has no other."""
    store = open_store(url, Settings(), SystemClock())
    store.migrate()
    yield World(store, None, Settings(), Operations(store))  # type: ignore[arg-type]
    store.close()
