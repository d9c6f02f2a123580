"""Every Python block of README and docs/ is run, or says why not. Blocks of one document share a folder, in order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.blocks import OTHERS, Block, blocks_of, documents

FATES = ("run", "file", "norun", "postgres")


def python_blocks(document: str) -> list[Block]:
    return [block for block in blocks_of(document) if block.language == "python"]


def documents_with(fate: Callable[[Block], bool]) -> list[str]:
    return [each for each in documents() if each not in OTHERS and any(map(fate, python_blocks(each)))]


def wants_postgres(block: Block) -> bool:
    return "postgres" in block.words


def wants_run(block: Block) -> bool:
    return any(word.partition("=")[0] == "run" for word in block.words)


# Writes files and runs them, one after another, each in a process of its own that has imported what all of them need.
RUNNER = """
import json, os, pathlib, runpy, sys
import holdfast
for name, text, place in json.load(sys.stdin):
    pathlib.Path(name).write_text(text)
    child = os.fork() if place else None
    if child == 0:
        runpy.run_path(name, run_name="__main__")
        sys.exit()
    if child and (code := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])):
        sys.exit(f"{place} ended with {code}")
"""


def run(blocks: list[Block], folder: Path, change: Callable[[str], str] = str) -> None:
    listed = [
        (
            block.file or f"block_{block.line}.py",
            change(block.text),
            block.place if wants_run(block) or wants_postgres(block) else None,
        )
        for block in blocks
    ]
    done = subprocess.run(
        [sys.executable, "-c", RUNNER],
        input=json.dumps(listed),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("document", [each for each in documents() if each not in OTHERS])
def test_every_python_block_says_what_becomes_of_it(document: str) -> None:
    undecided = [
        block.place
        for block in python_blocks(document)
        if not any(word.partition("=")[0] in FATES for word in block.words)
    ]
    assert undecided == []


@pytest.mark.parametrize("document", documents_with(wants_run))
def test_blocks_run(document: str, tmp_path: Path) -> None:
    run([each for each in python_blocks(document) if wants_run(each) or each.file is not None], tmp_path)


@pytest.mark.one_postgres
@pytest.mark.parametrize("document", documents_with(wants_postgres))
def test_blocks_with_a_server_run(document: str, tmp_path: Path, postgres_dsn: str) -> None:
    blocks = [each for each in python_blocks(document) if wants_postgres(each)]
    assert all("postgresql://localhost/shop" in each.text for each in blocks)
    run(blocks, tmp_path, lambda text: text.replace("postgresql://localhost/shop", postgres_dsn))
