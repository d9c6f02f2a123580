"""A plugin of pytest, which loads it automatically where Holdfast is installed: fixtures for tests of an application.

    holdfast_app       the application under test: the one that `holdfast_app = "shop:app"` names in pytest's
                       configuration, or what a fixture of yours with this name returns
    holdfast_testing   the application on a database of its own: publish, `drain()`, look at the result
    (docs/testing.md) holdfast_clock     its clock, which stands until it is moved: `holdfast_clock.advance(minutes=5)`

Files whose names end with `.journal.json` are tests: the journals of orchestrations, replayed against the code.

`--holdfast-url`, or HOLDFAST_TEST_URL, says on which database: a PostgreSQL server, where each test has a schema of its
own. Without it, each test has a new SQLite file.
"""

from __future__ import annotations

import os
import pkgutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import pytest

from ..orchestrations.files import ENDING, JournalDiffers
from . import Drained, MovableClock
from .journals import replay_file

URL_VARIABLE = "HOLDFAST_TEST_URL"


class Tested(Protocol):
    """An application: `holdfast.Holdfast`."""

    def testing(self, url: str | None, *, elsewhere: Iterable[str]) -> AbstractContextManager[Drained]: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("holdfast")
    group.addoption(
        "--holdfast-url", default=None, help=f"database for the fixture holdfast_testing; else {URL_VARIABLE}"
    )
    parser.addini("holdfast_app", "the application for the fixture holdfast_app: MODULE:APP", default="")
    parser.addini(
        "holdfast_elsewhere", "types and queues that other applications handle", type="linelist", default=[]
    )


class Journals(pytest.File):
    """A saved journal: one test, which replays it."""

    def collect(self) -> Iterator[pytest.Item]:
        yield Replay.from_parent(self, name="replay")


class Replay(pytest.Item):
    """Replays a saved journal against the code of the application."""

    def runtest(self) -> None:
        app: Any = named_app(self.config)
        replay_file(app, self.path)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, JournalDiffers):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[os.PathLike[str], int | None, str]:
        return self.path, None, f"replay of {self.path.name}"


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A file whose name ends with .journal.json is a test, if the application is named in the configuration."""
    if file_path.name.endswith(ENDING) and parent.config.getini("holdfast_app"):
        found: Journals = Journals.from_parent(parent, path=file_path)
        return found
    return None


def named_app(config: pytest.Config) -> Tested:
    """The application that the configuration names."""
    name = str(config.getini("holdfast_app"))
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    found: Tested = pkgutil.resolve_name(name if ":" in name else f"{name}:app")
    return found


@pytest.fixture
def holdfast_app(request: pytest.FixtureRequest) -> Tested:
    """The application under test."""
    if not str(request.config.getini("holdfast_app")):
        raise pytest.UsageError(
            'The fixture holdfast_app does not know your application: write holdfast_app = "MODULE:APP" into pytest\'s '
            "configuration, or a fixture holdfast_app that returns it into your conftest.py."
        )
    return named_app(request.config)


@pytest.fixture
def holdfast_testing(holdfast_app: Tested, request: pytest.FixtureRequest) -> Iterator[Drained]:
    """The application under test, on a database of its own."""
    url = request.config.getoption("--holdfast-url") or os.environ.get(URL_VARIABLE) or None
    elsewhere = request.config.getini("holdfast_elsewhere")
    with holdfast_app.testing(url, elsewhere=elsewhere) as drained:
        yield drained


@pytest.fixture
def holdfast_clock(holdfast_testing: Drained) -> MovableClock:
    """The clock of the application under test."""
    return holdfast_testing.clock
