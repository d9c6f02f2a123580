"""Plants known bugs in a copy of the sources and shows which tests notice them: `python tools/planted.py [name ...]`.

The bugs are in tests/proof/planted/mutants.toml. A bug whose text is no longer in the sources is a failure: it must be
rewritten, or what it was about has gone. tests/proof/test_planted.py uses this as the gate.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src" / "holdfast"
MUTANTS = ROOT / "tests" / "proof" / "planted" / "mutants.toml"
# The others take time.
PLUGINS = (
    "pytest_asyncio.plugin",
    "pytest_timeout",
    "no:cacheprovider",
    "no:doctest",
)


LIMIT = 1800.0  # seconds for the tests of one call


class TextIsGone(Exception):
    """The sources do not have the text that a mutant changes."""


@dataclass(frozen=True)
class Patch:
    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    name: str
    about: str
    tests: tuple[str, ...]
    patches: tuple[Patch, ...]
    ordinary: bool = False


@dataclass(frozen=True)
class Verdict:
    """What the tests said."""

    failed: tuple[str, ...]
    seconds: float
    output: str


def mutants() -> list[Mutant]:
    listed = tomllib.loads(MUTANTS.read_text())["mutant"]
    return [
        Mutant(
            each["name"],
            each["about"],
            tuple(each["tests"]),
            tuple(Patch(**patch) for patch in each["patch"]),
            each.get("ordinary", False),
        )
        for each in listed
    ]


def changed(mutant: Mutant) -> dict[str, str]:
    """The files that a mutant changes, as they are then."""
    texts: dict[str, str] = {}
    for patch in mutant.patches:
        file = SOURCES / patch.file
        text = texts.get(patch.file) or (file.read_text() if file.exists() else "")
        if text.count(patch.old) != 1:
            raise TextIsGone(
                f"{mutant.name}: {patch.file} has this text {text.count(patch.old)} times:\n{patch.old}"
            )
        texts[patch.file] = text.replace(patch.old, patch.new)
    return texts


def overtaken(mutant: Mutant) -> list[str]:
    """Later migrations that have a text which the mutant changes in an earlier one: they make anew what it breaks."""
    found = []
    for patch in mutant.patches:
        file = SOURCES / patch.file
        if file.parent.name == "migrations":
            database = file.name.partition(".")[2]  # "sqlite.sql"
            later = (each for each in file.parent.glob(f"*.{database}") if each.name > file.name)
            found += [each.name for each in later if patch.old in each.read_text()]
    return found


@contextmanager
def planted(mutant: Mutant) -> Iterator[Path]:
    """A folder with the changed sources, to be put first on the path."""
    with tempfile.TemporaryDirectory(prefix="holdfast-planted-") as folder:
        source = Path(folder) / "src"
        # With what is compiled: Python takes that of every file whose time and size are as they were. What is being
        # compiled by another process has a name with a number at its end, and may be gone when it is copied.
        unfinished = shutil.ignore_patterns("*.pyc.*")
        shutil.copytree(SOURCES, source / "holdfast", ignore=unfinished)
        for name, text in changed(mutant).items():
            file = source / "holdfast" / name
            file.write_text(text)
            for compiled in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"):
                compiled.unlink()
        yield source


def run(tests: tuple[str, ...], source: Path | None, servers: str = "", *, first: bool = True) -> Verdict:
    """The named tests, on the sources in `source` or on ours; `first`: stop at the first failure."""
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    if source is not None:
        environment["PYTHONPATH"] = str(source)
    if servers:
        environment["HOLDFAST_TEST_POSTGRES"] = servers
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "--pg=new", "--tb=short"]
    command += [option for plugin in PLUGINS for option in ("-p", plugin)]
    command += [*(["-x"] if first else []), *tests]
    begun = time.monotonic()
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT)
    if ended.returncode not in (0, 1):  # such as a test that there is not: nobody was asked
        raise RuntimeError(f"the tests {tests} did not run:\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}")
    failed = re.findall(r"^FAILED (.+?)(?: - .*)?$", ended.stdout, re.M)
    return Verdict(tuple(failed), time.monotonic() - begun, ended.stdout + ended.stderr)


def judge(mutant: Mutant, servers: str = "") -> Verdict:
    """The named tests one after another, until one notices."""
    seconds, output = 0.0, ""
    with planted(mutant) as source:
        for test in mutant.tests:
            verdict = run((test,), source, servers)
            seconds += verdict.seconds
            output += verdict.output
            if verdict.failed:
                return Verdict(verdict.failed, seconds, output)
    return Verdict((), seconds, output)


def main() -> int:
    chosen = [each for each in mutants() if not sys.argv[1:] or each.name in sys.argv[1:]]
    missed = 0
    width = max(len(each.name) for each in chosen)
    for each in chosen:
        try:
            verdict = judge(each)
            caught = verdict.failed[0] if verdict.failed else "NOBODY"
            print(f"{each.name:{width}}  {verdict.seconds:5.1f} s  {caught}", flush=True)
            missed += not verdict.failed
        except TextIsGone as gone:
            print(f"{each.name:{width}}  {gone}")
            missed += 1
    print(f"{len(chosen) - missed} of {len(chosen)} planted bugs are noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
