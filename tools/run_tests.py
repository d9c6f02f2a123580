"""`make test`: the tests in two phases, then what they took.

First everything that can run side by side, in several processes, each with PostgreSQL servers of its own. Then, in one
process, the tests marked `alone`: those that have a bound in seconds, which a busy machine would break.

    python tools/run_tests.py [--pg mixed] [-n 5] [anything that pytest takes, such as -k name]

The time, the CPU time and the slowest tests are printed and never judged: machines differ.
"""

from __future__ import annotations

import argparse
import sys

import runs
from runs import Ran, minutes

PROCESSES = 5  # on 2 cores: tests wait for servers, processes and leases more often than they compute
SLOWEST = 10
NO_TESTS = 5  # pytest's exit code when nothing was collected


def main() -> int:
    asked, rest = arguments()
    runs.adopt_orphans()
    where = f"({asked.m}) and " if asked.m else ""
    phases = {
        "test": [*parallel(asked.n), "-m", f"{where}not faults and not alone"],
        "test-alone": ["-m", f"{where}not faults and alone"],
    }
    results: list[Ran] = []
    for name, options in phases.items():
        record = [] if rest or asked.m else ["--record", name]
        command = [sys.executable, "-m", "pytest", f"--pg={asked.pg}", *options, *record, *rest]
        results.append(runs.run(command))
        if results[-1].interrupted or results[-1].code not in (0, 1, NO_TESTS):  # used wrongly, or no server
            break
    print(report(results))
    return verdict([ran.code for ran in results])


def arguments() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pg", default="mixed", help="which PostgreSQL: new, old, both, mixed")
    parser.add_argument("-n", default=str(PROCESSES), help=f"processes of the first phase ({PROCESSES})")
    parser.add_argument("-m", default="", help="only tests with these marks")
    return parser.parse_known_args()


def parallel(processes: str) -> list[str]:
    return ["-n", processes, "--dist", "worksteal"] if processes not in ("0", "1") else []


def report(results: list[Ran]) -> str:
    """The last lines of the run."""
    passed, failed = (sum(ran.summary.get(key, 0) for ran in results) for key in ("passed", "failed"))
    broken = [f"could not be read: {file}" for ran in results for file in ran.summary.get("broken", [])]
    slow = [each for ran in results for each in ran.summary.get("slowest", [])]
    slow.sort(key=lambda each: -each[1])
    seconds, cpu = sum(ran.seconds for ran in results), sum(ran.cpu_seconds for ran in results)
    return "\n".join(
        [
            f"The {SLOWEST} slowest tests:",
            *(f"{took:7.1f} s  {test}" for test, took in slow[:SLOWEST]),
            *broken,
            f"{passed} passed, {failed} failed",
            f"in {minutes(seconds)}, CPU time {minutes(cpu)} with all servers",
        ]
    )


def verdict(codes: list[int]) -> int:
    """The worst of the phases; one without tests does not count, unless all are so.

    >>> verdict([0, 5]), verdict([5, 5]), verdict([0, 1]), verdict([2])
    (0, 5, 1, 2)
    """
    ran = [code for code in codes if code != NO_TESTS]
    return max(ran, key=abs) if ran else NO_TESTS


if __name__ == "__main__":
    sys.exit(main())
