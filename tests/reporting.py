"""What a run leaves behind, gathered in the process that sees all reports (with xdist, the controlling one).

- the requirements that passing tests show, in .requirements.json, for tools/requirements.py (`--record NAME`);
- passed and failed, the slowest tests and the counts of the layers of proof, as JSON, for tools/run_tests.py and
  tools/faults.py (`--summary-file PATH`);
- the servers that were used, and the same counts, as the last lines on the terminal.

Counts are made in the process of a test. They travel on the report of its teardown.
"""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.proof.counts import COUNTS, Counts

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / ".requirements.json"
REQUIREMENTS = ROOT / "docs" / "requirements.md"
SLOWEST = 10


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record",
        default=None,
        help="write which requirements were shown to .requirements.json, by this name",
    )
    parser.addoption("--summary-file", default=None, help="write what came out to this file, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # xdist's workers send their reports to the process that records
        config.pluginmanager.register(Reporting(config), "holdfast-reporting")


def known_requirements() -> set[str]:
    return set(re.findall(r"^- \*\*([A-Z]\d+)\*\*", REQUIREMENTS.read_text(), re.M))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the marks on the reports."""
    known = known_requirements()
    for item in items:
        covered = sorted({each for mark in item.iter_markers("covers") for each in mark.args})
        if unknown := [each for each in covered if each not in known]:
            raise pytest.UsageError(f"{item.nodeid} covers {', '.join(unknown)}: not in docs/requirements.md")
        if covered:
            item.user_properties.append(("covers", covered))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Iterator[None]:
    report: Any = yield
    if call.when == "teardown":
        report.user_properties.append(("counts", COUNTS.take()))
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of xdist sends the servers that it used when it ends."""
    if hasattr(session.config, "workerinput"):
        session.config.workeroutput["servers"] = servers.used()


class Reporting:
    """All that was reported in a run."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.began = time.monotonic()
        self.covered: dict[str, list[str]] = {}
        self.spoiled: set[str] = set()  # failed, at any point, or expected to
        self.failed: set[str] = set()
        self.broken: set[str] = set()  # files that could not be read: nobody knows what is in them
        self.seconds: Counter[str] = Counter()
        self.counts = Counts()
        self.servers: set[str] = set()

    # -- what comes in

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration  # type: ignore[assignment]
        properties: dict[str, Any] = dict(report.user_properties)
        if report.failed:
            self.failed.add(report.nodeid)
        if report.failed or hasattr(report, "wasxfail"):
            self.spoiled.add(report.nodeid)
        elif report.when == "call" and report.passed:
            self.covered[report.nodeid] = properties.get("covers", [])
        if report.when == "teardown":
            for layer, what, number in properties.get("counts", []):
                self.counts.add(layer, what, number)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.broken.add(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.servers |= set(getattr(node, "workeroutput", {}).get("servers", []))

    # -- what goes out

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The header says which servers were found; this says which were used, such as a 17 where there was no 15."""
        for line in (*sorted(self.servers | set(servers.used())), *self.counts.lines()):
            terminalreporter.write_line(line)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and self.config.getoption(
            "--record"
        ):
            self._record(self.config.getoption("--record"))
        if path := self.config.getoption("--summary-file"):
            Path(path).write_text(json.dumps(self._summary()))

    def _summary(self) -> dict[str, Any]:
        return {
            "passed": len(set(self.covered) - self.spoiled),
            "failed": len(self.failed),
            "broken": sorted(self.broken),
            "seconds": time.monotonic() - self.began,
            "counts": self.counts.by_layer(),
            "slowest": self.seconds.most_common(SLOWEST),
        }

    def _record(self, name: str) -> None:
        by_requirement: dict[str, list[str]] = {}
        for test, covered in sorted(self.covered.items()):
            if test not in self.spoiled:
                for each in covered:
                    by_requirement.setdefault(each, []).append(test)
        run = {
            "ended": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "postgres": self.config.getoption("--pg"),
            "passed": len(set(self.covered) - self.spoiled),
            "failed": len(self.failed),
            "covers": by_requirement,
        }
        write_down(RECORD, name, run)


def write_down(path: Path, name: str, run: dict[str, Any]) -> None:
    """Put a run beside the others in the record: it takes the place of the last one of its name."""
    with REQUIREMENTS.open() as lock:
        # Two runs may end at the same time. The record cannot be locked itself: it is replaced.
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            record = json.loads(path.read_text())
        except (OSError, ValueError):
            record = {}
        record = {key: each for key, each in record.items() if key.startswith(("test", "faults-"))}
        record[name] = run
        new = path.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(record, indent=1))
        new.replace(path)
