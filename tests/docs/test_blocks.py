"""Every Python block of README and docs/ is run, or says why not. Blocks of one document share a folder, in order."""

from __future__ import annotations

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


def run(block: Block, folder: Path, text: str) -> None:
    script = folder / (block.file or f"block_{block.line}.py")
    script.write_text(text)
    if not wants_run(block) and not wants_postgres(block):
        return
    done = subprocess.run(
        [sys.executable, script.name],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, f"{block.place} failed:\n{done.stdout}{done.stderr}"


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
    for block in python_blocks(document):
        if wants_run(block) or block.file is not None:
            run(block, tmp_path, block.text)


@pytest.mark.one_postgres
@pytest.mark.parametrize("document", documents_with(wants_postgres))
def test_blocks_with_a_server_run(document: str, tmp_path: Path, postgres_dsn: str) -> None:
    for block in python_blocks(document):
        if wants_postgres(block):
            assert "postgresql://localhost/shop" in block.text, block.place
            run(block, tmp_path, block.text.replace("postgresql://localhost/shop", postgres_dsn))
