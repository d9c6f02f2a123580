"""Every command that the documents name exists with its options, and docs/operations.md names every command."""

from __future__ import annotations

import ast
import itertools
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from holdfast.cli.root import app as command_line
from tests.cli.runner import CliRunner
from tests.docs.blocks import OTHERS, blocks_of, documents, text_of

ROOT_COMMAND = typer.main.get_command(command_line)
INLINE = re.compile(r"`(holdfast [^`]+)`")
NUMBER = re.compile(r"\d+|N|\{number\}")


def commands(group: Any = ROOT_COMMAND, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if hasattr(group, "commands"):
        for name, command in group.commands.items():
            yield from commands(command, (*path, name))
    else:
        yield path


def named_in(document: str) -> list[str]:
    """`holdfast ...` in console blocks and in the text."""
    in_blocks = [
        command for block in blocks_of(document) if block.language == "console" for command in block.commands
    ]
    found = [command for command in in_blocks if re.match(r"(\S*/)?holdfast ", command)]
    return found + INLINE.findall(text_of(document))


def unknown_in(line: str) -> str | None:
    """What about this line does not exist; None if all of it does."""
    words = shlex.split(line.replace("...", "WORD"), comments=True)[1:]
    command: Any = ROOT_COMMAND
    while words and hasattr(command, "commands"):
        if words[0].startswith("-"):
            break
        if words[0] not in command.commands:
            return f"no command {words[0]!r}"
        command = command.commands[words.pop(0)]
    known = {each: option for option in command.params for each in (*option.opts, *option.secondary_opts)}
    wrong = [word for word in words if word.startswith("-") and word.partition("=")[0] not in known]
    if wrong:
        return f"no option {wrong}"
    numbers = {
        name
        for name, option in known.items()
        if option.param_type_name == "option" and option.bare_type() == "int"
    }
    pairs = [f"{a} {b}" for a, b in itertools.pairwise(words) if a in numbers and not NUMBER.fullmatch(b)]
    return f"no number: {pairs}" if pairs else None


def shown(part: ast.expr) -> str:
    """A part of an f-string: its text, or the last name of what is filled in, as {name}."""
    if isinstance(part, ast.Constant):
        return str(part.value)
    names = [getattr(each, "attr", getattr(each, "id", "")) for each in ast.walk(part)]
    return f"{{{next(filter(None, names), 'value')}}}"


def printed_by(module: Path) -> Iterator[str]:
    """`holdfast ...` in the texts of a module, with {name} for what is filled in."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.JoinedStr):
            yield from INLINE.findall("".join(map(shown, node.values)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from INLINE.findall(node.value)


def test_every_command_that_is_printed_exists() -> None:
    """Advice in errors, findings and help: what it says can be typed."""
    modules = sorted((Path(__file__).parents[2] / "src" / "holdfast").rglob("*.py"))
    lines = {
        line: module.name for module in modules for line in printed_by(module) if "{" not in line.split()[1]
    }
    assert len(lines) > 80
    faults = {
        f"{module}: {line}": fault
        for line, module in lines.items()
        if (fault := unknown_in(line)) is not None
    }
    assert faults == {}


@pytest.mark.parametrize("document", [each for each in documents() if each not in OTHERS])
def test_every_command_that_is_named_exists(document: str) -> None:
    faults = {line: fault for line in named_in(document) if (fault := unknown_in(line)) is not None}
    assert faults == {}


@pytest.mark.parametrize("path", list(commands()), ids=" ".join)
def test_every_command_helps_and_is_documented(path: tuple[str, ...]) -> None:
    helped = CliRunner().invoke(command_line, [*path, "--help"], prog_name="holdfast")
    assert helped.exit_code == 0, helped.output
    assert "Usage: holdfast" in helped.output
    assert f"`holdfast {' '.join(path)}" in text_of("docs/operations.md")


def test_the_commands_of_make_are_there() -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    for document in documents():
        if document in OTHERS:
            continue
        for target in re.findall(r"\bmake ([a-z]+)\b(?=`|$)", text_of(document), re.M):
            assert re.search(rf"^{target}:", makefile, re.M), f"{document}: make {target}"


# --- First contact ------------------------------------------------------------------------------------------

FIRST_CONTACT = """\
# shop.py
import sqlite3
from holdfast import Holdfast

app = Holdfast("sqlite:///shop.db")                  # later: postgresql://...

@app.handler("order.placed", retry="api")
async def send_receipt(order: dict) -> None:
    print("receipt for", order["id"])

def place(order_id: int) -> None:
    with sqlite3.connect("shop.db") as db:           # your transaction
        db.execute("create table if not exists orders (id integer primary key)")
        db.execute("insert into orders values (?)", (order_id,))
        app.publish("order.placed", {"id": order_id}, stream=f"order-{order_id}", on=db)

if __name__ == "__main__":
    place(1)
"""


def holdfast(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from holdfast.cli import main; main()", *arguments]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "1"}


def read_until(process: subprocess.Popen[str], wanted: str) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if wanted in line:
            return line
    raise AssertionError(f"the worker ended without {wanted!r}")


def test_first_contact_is_what_the_readme_shows() -> None:
    shown = next(block for block in blocks_of("README.md") if block.file == "shop.py")
    assert shown.text == FIRST_CONTACT


def test_first_contact(tmp_path: Path) -> None:
    """The README's first program and commands, to the letter; and the worker killed in between."""
    (tmp_path / "shop.py").write_text(FIRST_CONTACT)
    options = {"cwd": tmp_path, "env": environment(), "text": True}
    subprocess.run([sys.executable, "shop.py"], check=True, **options)
    for order in (1, 2):
        with subprocess.Popen(holdfast("worker", "shop:app"), stdout=subprocess.PIPE, **options) as worker:
            try:
                assert read_until(worker, "receipt") == f"receipt for {order}\n"
            finally:
                worker.send_signal(signal.SIGKILL if order == 1 else signal.SIGTERM)
        assert worker.returncode == (-signal.SIGKILL if order == 1 else 0)
        if order == 1:
            subprocess.run([sys.executable, "-c", "import shop; shop.place(2)"], check=True, **options)
    status = subprocess.run(
        holdfast("status", "-a", "shop:app", "--json"), capture_output=True, check=True, **options
    )
    assert '"depth":0' in status.stdout.replace(" ", "")
