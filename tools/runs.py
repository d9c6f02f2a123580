"""What the tools that run tests share: processes that are waited for with all their children, and times in words."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PR_SET_CHILD_SUBREAPER = 36
IN_MEMORY, ENOUGH_BYTES = Path("/dev/shm"), 4 * 2**30


@dataclass(frozen=True)
class Ran:
    """What came of one command. `summary` is what it left in the file that it was given."""

    code: int
    seconds: float
    cpu_seconds: float
    summary: dict[str, Any] = field(default_factory=dict)
    interrupted: bool = False


def run(command: list[str]) -> Ran:
    """A command that takes `--summary-file`, with what it and all its children took."""
    began, cpu_began = time.monotonic(), cpu_seconds()
    with tempfile.TemporaryDirectory(prefix="holdfast-run-") as folder:
        left = Path(folder) / "summary.json"
        process = subprocess.Popen([*command, "--summary-file", str(left)], cwd=ROOT, env=environment())
        interrupted = wait(process)
        summary = json.loads(left.read_text()) if left.exists() else {}
    seconds, cpu = time.monotonic() - began, cpu_seconds() - cpu_began
    return Ran(process.returncode, seconds, cpu, summary, interrupted)


def environment() -> dict[str, str]:
    """Ours, with temporary files in memory where there is room: the tests lose no power supply, only processes."""
    found = dict(os.environ)
    # Else each process rewrites the asserts of all tests, for ten seconds.
    found.pop("PYTHONDONTWRITEBYTECODE", None)
    if "TMPDIR" not in found and IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free > ENOUGH_BYTES:
        found["TMPDIR"] = str(IN_MEMORY)
    return found


def adopt_orphans() -> None:
    """Processes whose parent was killed become ours, not init's: their CPU time counts too. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def wait(process: subprocess.Popen[bytes]) -> bool:
    """Until it has ended; whether somebody wanted that. Adopted orphans are reaped meanwhile, since tests look whether
    a process is gone.

    SIGTERM is passed on to it: whoever ends us, such as `timeout`, means all of it. Ctrl-C it gets by itself.
    """
    interrupted = []

    def pass_on(*_: object) -> None:
        interrupted.append(True)
        process.send_signal(signal.SIGINT)

    before = signal.signal(signal.SIGTERM, pass_on)
    try:
        while True:
            try:
                pid, status = os.wait()
            except KeyboardInterrupt:
                interrupted.append(True)
                continue
            if pid == process.pid:
                process.returncode = os.waitstatus_to_exitcode(status)
                return bool(interrupted)
    finally:
        signal.signal(signal.SIGTERM, before)


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def minutes(seconds: float) -> str:
    """
    >>> minutes(83.4), minutes(59.4), minutes(3725)
    ('1 min 23 s', '59 s', '62 min 05 s')
    """
    whole = round(seconds)
    return f"{whole // 60} min {whole % 60:02} s" if whole >= 60 else f"{whole} s"
