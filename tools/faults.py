"""`make faults`: the long tests, in parts, and the record of a whole run.

    python tools/faults.py                            all parts, the explorer with a sample of its pairs
    python tools/faults.py explorer kills             these parts
    python tools/faults.py explorer --full            every pair of operations, on both PostgreSQLs: hours
    python tools/faults.py --seed 7                   the pairs and the seeds of the run that printed 7
    python tools/faults.py storms -- -k killers       what follows -- goes to pytest

Every part prints what it has looked at and what that took. A part that fails does not keep the others from running. A
whole run writes its record into docs/proof.md.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import random
import subprocess
import sys
from dataclasses import dataclass

import runs
from runs import ROOT, Ran, minutes

PAGE = ROOT / "docs" / "proof.md"
BEGIN, END = "<!-- faults -->", "<!-- end -->"
PAIRS = 500  # of the explorer's 6,441, unless all are asked for
SEEDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Part:
    """`processes` is for 2 cores: those that wait as often as they compute have more."""

    about: str
    paths: tuple[str, ...] = ()
    processes: int = 2
    postgres: tuple[str, ...] = ("mixed",)  # by turns, as the seed says


PARTS = {
    "explorer": Part(
        "pairs and triples of operations in many orders",
        (
            "tests/proof/test_explorer.py",
            "tests/proof/test_explorer_sqlite.py",
            "tests/requests/test_interleaved.py",
            "tests/orchestrations/test_interleaved.py",
            "tests/orchestrations/test_interleaved_guesses.py",
        ),
        processes=3,
        postgres=("both",),  # each pair of a sample on one of them
    ),
    "kills": Part(
        "a process killed at every point of every verb",
        ("tests/proof/kill",),
        processes=3,
        postgres=("both",),  # each verb on one of them
    ),
    "storms": Part(
        "workers, supervisors and servers killed under load",
        (
            "tests/faults",
            "tests/orchestrations",
            "tests/relay",
            "tests/worker",
            "tests/operations",
            "tests/demo",
            "tests/transports",
            "tests/proof/test_commit_order.py",
        ),
        postgres=("new", "old"),
    ),
    "delivery": Part(
        "two services over RabbitMQ, killed and cut off",
        ("tests/delivery",),
        processes=1,  # each of its tests has four processes of services and a broker
        postgres=("new", "old"),
    ),
    "simulation": Part("seeds of the simulation", ("tests/proof/simulation", "tests/orchestrations")),
    "planted": Part(
        "bugs planted in a copy of the sources", ("tests/proof/test_planted.py",), postgres=("new",)
    ),
    "recurrence": Part(
        "occurrences around every clock change of every time zone",
        ("tests/rules/test_clock_changes.py",),
        postgres=("new",),
    ),
    "pythons": Part(
        "journals recorded on Python 3.11, replayed by the other Pythons of this machine",
        ("tests/orchestrations/test_pythons.py",),
        processes=1,
        postgres=("new",),
    ),
    "downtime": Part(
        "schedules after outages: lengths, numbers, policies and lateness, each with each, their workers killed",
        ("tests/schedules/test_outage.py", "tests/schedules/test_floods.py", "tests/worker/test_ticking.py"),
        postgres=("mixed",),
    ),
    "models": Part("the TLA+ models, intact and broken"),
}


@dataclass(frozen=True, slots=True)
class Whole:
    """What a run was, for its record."""

    commit: str
    began: str
    machine: str
    seed: int
    full: bool


class CannotRun(Exception):
    """The command line makes no sense; the message says why."""


def main(argv: list[str] | None = None) -> int:
    given, rest = split(sys.argv[1:] if argv is None else argv)
    try:
        asked = arguments(given)
        names = chosen(asked.parts)
    except CannotRun as error:
        print(f"faults: {error}", file=sys.stderr)
        return 2
    seed = random.SystemRandom().randrange(1, SEEDS) if asked.seed is None else asked.seed
    whole = Whole(commit(), today(), machine(), seed, asked.full)
    runs.adopt_orphans()
    results: dict[str, Ran] = {}
    for name in names:
        print(f"\n--- {name}: {PARTS[name].about} (seed {seed}) ---", flush=True)
        results[name] = runs.run(command(name, seed, asked.full, asked.processes, rest))
        print(line(name, results[name]), flush=True)
        if results[name].interrupted:
            break
    print("\n" + "\n".join([f"seed {seed}", *(line(name, ran) for name, ran in results.items())]))
    for name in (name for name, ran in results.items() if ran.code):
        print(f"To repeat it: make faults PART={name} SEED={seed}{' FULL=1' if asked.full else ''}")
    if names == list(PARTS) and not rest and all(is_whole(ran) for ran in results.values()):
        PAGE.write_text(with_record(PAGE.read_text(), record(whole, results)))
        print(f"The record of this run is in {PAGE.relative_to(ROOT)}.")
    return 0 if len(results) == len(names) and all(ran.code == 0 for ran in results.values()) else 1


# --- What was asked for -----------------------------------------------------------------------------------------------


def split(argv: list[str]) -> tuple[list[str], list[str]]:
    """Ours, and what goes to pytest.

    >>> split(["kills", "--", "-k", "claim"])
    (['kills'], ['-k', 'claim'])
    """
    at = argv.index("--") if "--" in argv else len(argv)
    return argv[:at], argv[at + 1 :]


def arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all of them if none is named"
    )
    parser.add_argument(
        "--full", action="store_true", help="all pairs of the explorer, and all on both PostgreSQLs"
    )
    parser.add_argument("--seed", type=int, help="repeat the choice of the run that printed this seed")
    parser.add_argument("--processes", type=int, help="at the same time; each part has its own number")
    return parser.parse_args(given)


def chosen(parts: list[str]) -> list[str]:
    """In the order of the table, whatever the order of the command line."""
    if unknown := [name for name in parts if name not in PARTS]:
        raise CannotRun(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    return [name for name in PARTS if not parts or name in parts]


def command(name: str, seed: int, full: bool, processes: int | None, rest: list[str]) -> list[str]:
    part = PARTS[name]
    at_once = part.processes if processes is None else processes
    if name == "models":
        return [sys.executable, "tools/model_check.py", "--processes", str(at_once)]
    options = [
        "-q",
        "--tb=short",
        "--timeout=1800",
        f"--pg={part.postgres[seed % len(part.postgres)]}",
        "-m",
        "faults",
    ]
    options += ["-p", "tests.faults.selection", "--faults-part", name, "--faults-seed", str(seed)]
    if not full:
        options += ["--faults-pairs", str(PAIRS)]
    if at_once > 1:
        options += ["-n", str(at_once), "--dist", "worksteal"]
    if not rest:
        options += ["--record", f"faults-{name}"]
    return [sys.executable, "-m", "pytest", *options, *part.paths, *rest]


# --- What came out ----------------------------------------------------------------------------------------------------


def is_whole(ran: Ran) -> bool:
    """All of its tests have run, whatever they said."""
    return ran.code in (0, 1) and bool(ran.summary) and not ran.summary.get("broken")


def line(name: str, ran: Ran) -> str:
    passed, failed = outcome(ran)
    took = f"{minutes(ran.seconds)}, CPU time {minutes(ran.cpu_seconds)}"
    said = (
        f"{passed} passed, {failed} failed" if is_whole(ran) else f"did not run to its end (code {ran.code})"
    )
    return f"{name:10}  {said}; {counts(ran) or 'nothing counted'}; {took}"


def outcome(ran: Ran) -> tuple[int, int]:
    return ran.summary.get("passed", 0), ran.summary.get("failed", 0)


def counts(ran: Ran) -> str:
    layers = ran.summary.get("counts", {}).values()
    return ", ".join(f"{number:,} {what}" for layer in layers for what, number in layer.items())


def record(whole: Whole, results: dict[str, Ran]) -> str:
    """The run as a table, for the page."""
    pairs = "all pairs of the explorer" if whole.full else f"{PAIRS} pairs of the explorer"
    lines = [
        f"Run of {whole.began}, commit {whole.commit}, seed {whole.seed}, {pairs}, on {whole.machine}.",
        "",
        "| part | passed | failed | looked at | time | CPU time |",
        "|---|---|---|---|---|---|",
    ]
    for name, ran in results.items():
        passed, failed = outcome(ran)
        times = f"{minutes(ran.seconds)} | {minutes(ran.cpu_seconds)}"
        lines.append(f"| {name} | {passed:,} | {failed:,} | {counts(ran)} | {times} |")
    passed, failed = (sum(outcome(ran)[n] for ran in results.values()) for n in (0, 1))
    seconds, cpu = sum(r.seconds for r in results.values()), sum(r.cpu_seconds for r in results.values())
    lines.append(f"| **all** | {passed:,} | {failed:,} | | {minutes(seconds)} | {minutes(cpu)} |")
    return "\n".join(lines)


def with_record(page: str, text: str) -> str:
    """The page with this between its two marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} has no {BEGIN} followed by {END}")
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def commit() -> str:
    found = git("rev-parse", "--short=12", "HEAD") or "unknown"
    changed = git("status", "--porcelain", "--", ".", ":!docs/proof.md")  # which the run before has written
    return f"{found} with changes" if changed else found


def git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def machine() -> str:
    return f"{os.cpu_count()} cores ({platform.machine()})"


if __name__ == "__main__":
    sys.exit(main())
