"""What every test may use: PostgreSQL databases, a SQLite file, and the record of covered requirements.

    postgres_server   a running server of the session, once for each version asked for (--pg)
    postgres_dsn      a fresh, empty database on it
    postgres_faulty   a server of the test's own, fsync on, which it may kill and start again
    sqlite_path       where a SQLite file may be made

`@pytest.mark.covers("W43", "X1")` says which requirements a test shows. A whole run leaves the tests that passed,
by requirement, in .requirements.json for tools/requirements.py.
"""

from __future__ import annotations

import datetime
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar, cast

import pytest

from tests import servers

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / ".requirements.json"
T = TypeVar("T")
VERSIONS = {"both": ["old", "new"], "old": ["old"], "new": ["new"]}


# --- PostgreSQL ---------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--pg",
        choices=sorted(VERSIONS),
        default=os.environ.get("HOLDFAST_TEST_PG", "new"),
        help="versions of PostgreSQL to test on: old (15), new (18, the default) or both (as `make test` does)",
    )


def pytest_report_header(config: pytest.Config) -> str:
    return f"PostgreSQL: {config.getoption('--pg')} wanted; {servers.describe()}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The header says what was found; this says what was used, such as a 17 where there was no 15."""
    for line in servers.used():
        terminalreporter.write_line(line)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "postgres_version" in metafunc.fixturenames:
        wanted = VERSIONS[metafunc.config.getoption("--pg")]
        if metafunc.definition.get_closest_marker("one_postgres"):
            wanted = wanted[-1:]
        marks = pytest.mark.postgres
        ids = {"old": f"pg{servers.WANTED_OLD_MAJOR}", "new": f"pg{servers.NEW_MAJOR}"}
        metafunc.parametrize(
            "postgres_version",
            [pytest.param(each, id=ids[each], marks=marks) for each in wanted],
            scope="session",
        )


@pytest.fixture(scope="session")
def postgres_version(request: pytest.FixtureRequest) -> str:
    """Which one: "old" or "new". Parametrised by `pytest_generate_tests`."""
    version: str = request.param
    return version


@pytest.fixture(scope="session")
def postgres_server(postgres_version: str) -> servers.Server | servers.ExternalServer:
    return or_exit(lambda: servers.shared_server(postgres_version))


@pytest.fixture
def postgres_dsn(postgres_server: servers.Server) -> Iterator[str]:
    with postgres_server.database() as dsn:
        yield dsn


@pytest.fixture
def postgres_faulty(postgres_version: str) -> Iterator[servers.Server]:
    server = or_exit(lambda: servers.own_server(postgres_version, fsync=True))
    yield server
    server.close()


def or_exit(get: Callable[[], T]) -> T:
    """A server that cannot be had ends the run with one line: a skipped test would look like a passed one."""
    try:
        return get()
    except servers.ServerMissing as missing:
        pytest.exit(str(missing), returncode=pytest.ExitCode.USAGE_ERROR)


# --- SQLite -------------------------------------------------------------------------------------------------


@pytest.fixture
def sqlite_path(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.db"


# --- Requirements -------------------------------------------------------------------------------------------


def known_requirements() -> set[str]:
    return set(re.findall(r"^- \*\*([A-Z]\d+)\*\*", (ROOT / "docs" / "requirements.md").read_text(), re.M))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Carries the marks on the reports, which also come from other processes (xdist)."""
    known = known_requirements()
    for item in items:
        covered = sorted({each for mark in item.iter_markers("covers") for each in mark.args})
        if unknown := [each for each in covered if each not in known]:
            raise pytest.UsageError(f"{item.nodeid} covers {', '.join(unknown)}: not in docs/requirements.md")
        if covered:
            item.user_properties.append(("covers", covered))


class CoverRecord:
    """Which tests passed, by requirement. Lives in the process that sees all reports."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.covered: dict[str, list[str]] = {}
        self.spoiled: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or hasattr(report, "wasxfail"):
            self.spoiled.add(report.nodeid)
        elif report.when == "call" and report.passed:
            self.covered[report.nodeid] = [
                each
                for name, ids in report.user_properties
                if name == "covers"
                for each in cast(list[str], ids)
            ]

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """A run of some tests says nothing about the others: it leaves the record as it is."""
        whole = self.config.args_source.name != "ARGS" and not self.config.getoption("keyword")
        if not whole or exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            return
        by_requirement: dict[str, list[str]] = {}
        for test, covered in sorted(self.covered.items()):
            if test not in self.spoiled:
                for each in covered:
                    by_requirement.setdefault(each, []).append(test)
        try:
            record = json.loads(RECORD.read_text())
        except (OSError, ValueError):
            record = {}
        record[self.config.getoption("markexpr")] = {
            "ended": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "postgres": self.config.getoption("--pg"),
            "passed": len(set(self.covered) - self.spoiled),
            "failed": len(self.spoiled),
            "covers": by_requirement,
        }
        new = RECORD.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(record, indent=1))
        new.replace(RECORD)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # xdist's workers send their reports to the process that records
        config.pluginmanager.register(CoverRecord(config))
