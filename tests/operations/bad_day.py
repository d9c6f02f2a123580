"""A bad day, played with real processes and a real server, and read through the command line on 80 columns.

docs/operations.md shows parts of what is read here; `check` compares them. What differs in each run (ids, times, pids)
counts as equal. HOLDFAST_SNAPSHOTS=write writes the parts into the document.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.cli import show
from holdfast.cli.root import app as command_line
from tests.cli.runner import CliRunner
from tests.servers import Server
from tests.worker.lab import Process, until

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "operations.md"
WRITE = os.environ.get("HOLDFAST_SNAPSHOTS") == "write"
COLUMNS = 80


@dataclass
class Day:
    """One shop, its database and its workers."""

    server: Server
    folder: Path
    release: int = 1
    machines: dict[str, Process] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.app = Holdfast(self.server.dsn, lease=2.0, heartbeat=0.5)  # as the shop's
        self.app.migrate()

    # -- machines

    def start(self, machine: str) -> Process:
        """`holdfast worker shop:app`, on a machine of this name."""
        output = self.folder / f"{machine}.log"
        with open(output, "ab") as file:
            popen = subprocess.Popen(
                [sys.executable, "-u", "-m", "holdfast", "worker", "shop:app", "--processes", "1"],
                cwd=self.folder,
                env={**os.environ, **self.environment, "PYTHONPATH": os.pathsep.join([str(self.folder), str(ROOT)]),
                     "SHOP_MACHINE": machine},
                stdout=file,
                stderr=subprocess.STDOUT,
            )  # fmt: skip
        process = self.machines[machine] = Process(popen, output)
        until(lambda: machine in self.alive(), lambda: process.said)
        return process

    def stop(self, machine: str) -> None:
        process = self.machines.pop(machine)
        process.send(signal.SIGTERM)
        process.wait()

    def freeze(self, machine: str, number: int = signal.SIGSTOP) -> None:
        """SIGSTOP for the supervisor and its processes, as when a virtual machine is suspended."""
        process = self.machines[machine]
        for pid in (process.pid, *process.children()):
            os.kill(pid, number)

    def end(self) -> None:
        for process in self.machines.values():
            if process.popen.poll() is None:
                for pid in (process.pid, *process.children()):
                    os.kill(pid, signal.SIGCONT)
                process.kill_all()
        self.app.close()

    def alive(self) -> set[str]:
        found = self.app.operations.status().workers
        return {each.name.partition(":")[0] for each in found if each.is_alive}

    @property
    def environment(self) -> dict[str, str]:
        return {
            "SHOP_URL": self.server.dsn,
            "SHOP_FOLDER": str(self.folder),
            "SHOP_RELEASE": str(self.release),
            "HOLDFAST_APP": "shop:app",
            "HOLDFAST_AS": "anna",
        }

    # -- what happens

    def publish(self, type: str, *bodies: dict[str, object], stream: str | None = None) -> list[str]:
        made = [self.app.message(type, body, stream=stream) for body in bodies]
        return [str(each.id) for each in self.app.publish_many(made)]

    def mark(self, name: str) -> None:
        (self.folder / name).touch()

    def unmark(self, name: str) -> None:
        (self.folder / name).unlink()

    def started(self) -> list[int]:
        file = self.folder / "started"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    def pending(self) -> int:
        return self.app.operations.status().depth

    def state(self, name: str) -> int:
        return self.app.operations.status().states.get(name, 0)

    def until_empty(self) -> None:
        until(lambda: self.pending() == 0, self.said)

    def said(self) -> str:
        return "\n".join(process.said[-2000:] for process in self.machines.values())

    # -- what is read

    def type(self, line: str, code: int = 0) -> str:
        """What a command answers on a terminal of 80 columns."""
        sys.modules.pop("shop", None)  # another release may stand there now
        environment: dict[str, str | None] = {**self.environment, "HOLDFAST_DATABASE_URL": None}
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            patch.syspath_prepend(str(self.folder))
            patch.setattr(show, "width", lambda: COLUMNS)
            result = CliRunner().invoke(command_line, shlex.split(line), env=environment)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        answered = result.stdout + result.stderr
        assert result.exit_code == code, f"{line}: exit code {result.exit_code}\n{answered}"
        too_long = [each for each in result.stdout.splitlines() if len(each) > COLUMNS and "File" not in each]
        assert too_long == [], answered
        return answered

    def is_calm(self) -> None:
        """Both pages agree that nothing is wrong."""
        assert "Nothing is wrong." in self.type("status --check")
        assert "warning" not in self.type("doctor")


# --- The document -------------------------------------------------------------------------------------------

ALIKE = [
    (r"\s+", " "),
    # Who asks when, hears another.
    (
        r"connection failed: .*?(?= Nothing needs to be done| Is the server)",
        "ERROR",
    ),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", "ID"),
    (r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "TIME"),
    (r"\b\d\d:\d\d:\d\d UTC", "TIME"),
    (r"\bweb-\d:\d+", "WORKER"),
    (r"\b(\d+(\.\d+)?) (ms|s|min|h|d)\b", "SPAN"),
    (r"\b[0-9a-f]{12}\b", "CAUSE"),
    (r"\b[0-9a-f]{8}\b", "ID"),
]


def words(text: str) -> str:
    """The same on one line: where lines break depends on the lengths of names."""
    return " ".join(text.split())


def alike(text: str) -> str:
    for pattern, instead in ALIKE:
        text = re.sub(pattern, instead, text)
    return text.strip()


def excerpt(text: str, *headings: str) -> str:
    """The paragraphs of an answer that begin with these words."""
    paragraphs = re.split(r"\n\s*\n", text.strip("\n"))
    chosen = [each for word in headings for each in paragraphs if each.startswith(word)]
    assert len(chosen) == len(headings), f"{headings} of:\n{text}"
    return "\n\n".join(chosen) + "\n"


def check(name: str, text: str) -> None:
    """The document has a block of this name with this text."""
    page = DOCUMENT.read_text()
    found = re.search(rf"^```text bad-day={re.escape(name)}\n(.*?)^```$", page, re.M | re.S)
    assert found is not None, f"{DOCUMENT.name} has no block bad-day={name}:\n{text}"
    if WRITE and alike(found[1]) != alike(text):
        DOCUMENT.write_text(page[: found.start(1)] + text + page[found.end(1) :])
        return
    assert alike(found[1]) == alike(text), f"{name}: HOLDFAST_SNAPSHOTS=write writes it, if that is meant"


def blocks() -> Iterator[str]:
    yield from re.findall(r"^```text bad-day=(\S+)$", DOCUMENT.read_text(), re.M)
