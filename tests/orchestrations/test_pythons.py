"""Other Pythons on this machine replay the journals that were recorded on 3.11, and pass the tests of the event loop.

They are found on the path, among the versions of pyenv, and in HOLDFAST_TEST_PYTHONS (paths with commas).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MINORS = (12, 13, 14, 15)
NEEDS = ("msgspec", "tzdata", "typer", "uuid-utils", "psycopg", "pytest", "pytest-asyncio", "hypothesis")
MODULES = (
    "corpus", "simulation", "model", "refusals", "budget", "hosting", "journal", "changed", "cache", "failures",
)  # fmt: skip
ALONE = (
    "-q", "-c", os.devnull, "--rootdir=.", "--noconftest", "-p", "no:cacheprovider", "-W", "ignore",
    "-o", "asyncio_mode=auto", "-m", "not faults",
)  # fmt: skip


def found() -> Iterator[Path]:
    """One of each minor version but this one's."""
    seen = {sys.version_info[:2]}
    given = [Path(each) for each in os.environ.get("HOLDFAST_TEST_PYTHONS", "").split(",") if each]
    versions = Path.home() / ".pyenv" / "versions"
    for minor in MINORS:
        given += [each / "bin" / "python" for each in sorted(versions.glob(f"3.{minor}.*"), reverse=True)]
        if (on_path := shutil.which(f"python3.{minor}")) is not None:
            given.append(Path(on_path))
    for each in given:
        told = subprocess.run(
            [each, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True
        )
        if told.returncode == 0 and (version := tuple(map(int, told.stdout.split()))) not in seen:
            seen.add(version)
            yield each


@pytest.mark.faults("pythons")
def test_other_pythons_replay_the_corpus(tmp_path: Path) -> None:
    """H15. The dependencies come from PyPI, into an environment of their own."""
    pythons = list(found())
    if not pythons:
        pytest.skip("no other Python from 3.12 on is here: set HOLDFAST_TEST_PYTHONS")
    for n, python in enumerate(pythons):
        place = tmp_path / str(n)
        run([str(python), "-m", "venv", str(place)])
        inside = str(place / "bin" / "python")
        run([inside, "-m", "pip", "install", "-q", *NEEDS])
        said = run(
            [inside, "-m", "pytest", *ALONE, *(f"tests/orchestrations/test_{each}.py" for each in MODULES)]
        )
        print(f"{run([inside, '-V']).strip()}: {said.splitlines()[-1]}")


def run(command: list[str]) -> str:
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-4000:]}"
    return done.stdout
