"""Writes constraints/*.txt: every version pinned, every file hashed, no registry named.

Three files, each a superset of the one before, so that one .venv can hold any of them:

    runtime.txt   what the package needs, and what builds it
    test.txt      the same and the test group
    lint.txt      the same and the lint group

Needs `uv` on PATH (only this script does). `--upgrade` takes newer versions; without it, pins that
still fit are kept.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints"
GROUPS = {"lint": ["build", "test", "lint"], "test": ["build", "test"], "runtime": ["build"]}
HEADER = "# Written by `make pins` from pyproject.toml. Do not edit.\n"


def compile_pins(level: str, *, upgrade: bool) -> None:
    target = CONSTRAINTS / f"{level}.txt"
    command = [
        "uv", "pip", "compile", "pyproject.toml", "--quiet", "--universal", "--python-version", "3.11",
        "--generate-hashes", "--no-emit-index-url", "--no-emit-find-links", "--no-header", "--no-annotate",
        "--output-file", str(target),
    ]  # fmt: skip
    for group in GROUPS[level]:
        command += ["--group", group]
    if level != "lint":  # the largest set decides; the smaller ones follow it
        command += ["--constraint", str(CONSTRAINTS / "lint.txt")]
        target.unlink(missing_ok=True)
    elif upgrade:
        command.append("--upgrade")
    subprocess.run(command, cwd=ROOT, check=True)
    text = target.read_text()
    if "://" in text:
        sys.exit(f"{target.name} names an address; refusing to keep it")
    target.write_text(HEADER + text)


def main() -> None:
    if shutil.which("uv") is None:
        sys.exit("tools/pin.py needs uv: pip install uv")
    CONSTRAINTS.mkdir(exist_ok=True)
    for level in GROUPS:
        compile_pins(level, upgrade="--upgrade" in sys.argv[1:])
        print(f"constraints/{level}.txt")


if __name__ == "__main__":
    main()
