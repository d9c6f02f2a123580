"""A cell of a notebook may be run again; a module that declares a handler twice may not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CELL = """
@app.handler("{type}")
def work(body: dict) -> None:
    seen.append(("{type}", body))

"""
BEGIN = "from holdfast import Holdfast\napp = Holdfast('sqlite:///a.db')\nseen = []\n"
END = """
import asyncio
app.publish("b", {"n": 2})
asyncio.run(app.worker(until_idle=True).run())
print(seen)
"""


def run(program: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options], input=program, cwd=folder, capture_output=True, text=True, timeout=60
    )


def test_at_the_prompt_the_last_declaration_holds(tmp_path: Path) -> None:
    program = BEGIN + CELL.format(type="a") + 'app.publish("a", {"n": 1})\n' + CELL.format(type="b") + END
    done = run(program, tmp_path, "-i", "-q")
    assert "already a handler" not in done.stderr
    assert "[('b', {'n': 1}), ('b', {'n': 2})]" in done.stdout, done.stderr


def test_in_a_program_a_second_declaration_is_refused(tmp_path: Path) -> None:
    done = run(BEGIN + CELL.format(type="a") * 2, tmp_path, "-")
    assert done.returncode == 1
    assert "There is already a handler named 'work'" in done.stderr
