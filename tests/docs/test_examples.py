"""Every example runs to its end by itself, in an empty folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, text_of

EXAMPLES = sorted(each.name for each in (ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES)
def test_it_runs(example: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / example)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout


def test_all_are_listed() -> None:
    assert EXAMPLES
    assert [each for each in EXAMPLES if f"({each})" not in text_of("examples/README.md")] == []
