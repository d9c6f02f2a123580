"""A plugin of pytest, found by itself where Holdfast is installed: fixtures for the tests of an application.

    holdfast_app       the application under test: the one that `holdfast_app = "shop:app"` names in pytest's
                       configuration, or what a fixture of yours with this name returns
    holdfast_testing   it on a database of its own: publish, `drain()`, look (docs/testing.md)
    holdfast_clock     its clock, which stands until it is moved: `holdfast_clock.advance(minutes=5)`

`--holdfast-url`, or HOLDFAST_TEST_URL, says on which database: a PostgreSQL server, where each test has a schema of its
own. Without it, each test has a new SQLite file.
"""

from __future__ import annotations

import os
import pkgutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

import pytest

from . import Drained, MovableClock

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


@pytest.fixture
def holdfast_app(request: pytest.FixtureRequest) -> Tested:
    """The application under test."""
    name = str(request.config.getini("holdfast_app"))
    if not name:
        raise pytest.UsageError(
            'The fixture holdfast_app does not know your application: write holdfast_app = "MODULE:APP" into pytest\'s '
            "configuration, or a fixture holdfast_app that returns it into your conftest.py."
        )
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    found: Tested = pkgutil.resolve_name(name if ":" in name else f"{name}:app")
    return found


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
