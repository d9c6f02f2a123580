"""`make test`: the tests in two phases, then what they took.

First everything that can run side by side, in several processes, each with PostgreSQL servers of its own. Then, in one
process, the tests marked `alone`: those that have a bound in seconds, which a busy machine would break.

    python tools/run_tests.py [--pg mixed] [-n 3] [anything that pytest takes, such as -k name]

The time, the CPU time and the slowest tests are printed and never judged: machines differ.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PROCESSES = 3  # on 2 cores: tests wait for servers, processes and leases as often as they compute
SLOWEST = 10
NO_TESTS = 5  # pytest's exit code when nothing was collected
PR_SET_CHILD_SUBREAPER = 36
IN_MEMORY, ENOUGH_BYTES = Path("/dev/shm"), 4 * 2**30


def main() -> int:
    asked, rest = arguments()
    began = time.monotonic()
    adopt_orphans()
    where = f"({asked.m}) and " if asked.m else ""
    phases = {
        "test": [*parallel(asked.n), "-m", f"{where}not faults and not alone"],
        "test-alone": ["-m", f"{where}not faults and alone"],
    }
    codes, summaries = [], []
    for name, options in phases.items():
        record = [] if rest or asked.m else ["--record", name]
        code, summary = run([f"--pg={asked.pg}", *options, *record, *rest])
        codes.append(code)
        summaries.append(summary)
        if code not in (0, 1, NO_TESTS):  # interrupted, or used wrongly: the rest would end alike
            break
    print(report(summaries, time.monotonic() - began, cpu_seconds()))
    return verdict(codes)


def arguments() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pg", default="mixed", help="which PostgreSQL: new, old, both, mixed")
    parser.add_argument("-n", type=int, default=PROCESSES, help=f"processes of the first phase ({PROCESSES})")
    parser.add_argument("-m", default="", help="only tests with these marks")
    return parser.parse_known_args()


def parallel(processes: int) -> list[str]:
    return ["-n", str(processes), "--dist", "worksteal"] if processes > 1 else []


def run(options: list[str]) -> tuple[int, dict[str, Any]]:
    """One phase: the exit code of pytest and the summary that it left."""
    with tempfile.TemporaryDirectory(prefix="holdfast-test-") as folder:
        left = Path(folder) / "summary.json"
        command = [sys.executable, "-m", "pytest", "--summary-file", str(left), *options]
        process = subprocess.Popen(command, cwd=ROOT, env=environment())
        code = wait(process)
        summary: dict[str, Any] = json.loads(left.read_text()) if left.exists() else {}
    return code, summary


def environment() -> dict[str, str]:
    """Ours, with temporary files in memory where there is room: the tests lose no power supply, only processes."""
    found = dict(os.environ)
    found.pop(
        "PYTHONDONTWRITEBYTECODE", None
    )  # else each process rewrites the asserts of all tests, for ten seconds
    if "TMPDIR" not in found and IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free > ENOUGH_BYTES:
        found["TMPDIR"] = str(IN_MEMORY)
    return found


def adopt_orphans() -> None:
    """Processes whose parent was killed become ours, not init's: their CPU time counts too. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def wait(process: subprocess.Popen[bytes]) -> int:
    """Until it has ended. Adopted orphans are reaped meanwhile, since tests look whether a process is gone."""
    while True:
        try:
            pid, status = os.wait()
        except KeyboardInterrupt:  # pytest got it as well, and ends by itself
            continue
        if pid == process.pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def report(summaries: list[dict[str, Any]], seconds: float, cpu: float) -> str:
    """The last lines of the run."""
    passed, failed = (sum(each.get(key, 0) for each in summaries) for key in ("passed", "failed"))
    slow = sorted((slow for each in summaries for slow in each.get("slowest", [])), key=lambda slow: -slow[1])
    lines = [f"The {SLOWEST} slowest tests:", *(f"{took:7.1f} s  {test}" for test, took in slow[:SLOWEST])]
    lines += [
        f"{passed} passed, {failed} failed",
        f"in {minutes(seconds)}, CPU time {minutes(cpu)} with all servers",
    ]
    return "\n".join(lines)


def minutes(seconds: float) -> str:
    """
    >>> minutes(83.4)
    '1 min 23 s'
    """
    whole = round(seconds)
    return f"{whole // 60} min {whole % 60:02} s" if whole >= 60 else f"{whole} s"


def verdict(codes: list[int]) -> int:
    """The worst of the phases; a phase without tests is none, unless all were so.

    >>> verdict([0, 5]), verdict([5, 5]), verdict([0, 1]), verdict([2])
    (0, 5, 1, 2)
    """
    ran = [code for code in codes if code != NO_TESTS]
    return max(ran, key=abs) if ran else NO_TESTS


if __name__ == "__main__":
    sys.exit(main())
