"""The tables of the guides are complete: options, the context, errors, modules."""

from __future__ import annotations

import inspect
import re
import subprocess
from pathlib import Path

import holdfast
from holdfast import Context, Holdfast, HoldfastError
from holdfast.bodies.drafts import draft
from tests.docs.blocks import ROOT, text_of


def first_cells(document: str) -> str:
    """The first cells of all rows of all tables, as one text."""
    return "\n".join(row.split("|")[1] for row in text_of(document).splitlines() if row.startswith("|"))


def missing(names: list[str], text: str) -> list[str]:
    return [name for name in names if not re.search(rf"(?<![\w.]){re.escape(name)}\b", text)]


def keywords_of(function: object) -> list[str]:
    parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    return [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]


def test_every_option_of_a_handler() -> None:
    assert missing(keywords_of(Holdfast.handler), first_cells("docs/handlers.md")) == []


def test_every_option_of_publish() -> None:
    assert missing(keywords_of(draft), first_cells("docs/publishing.md")) == []


def test_everything_about_the_context() -> None:
    names = [f"ctx.{name}" for name in dir(Context) if not name.startswith("_")]
    assert missing(names, first_cells("docs/handlers.md")) == []


def test_every_error() -> None:
    errors = [
        name
        for name in holdfast.__all__
        if isinstance(getattr(holdfast, name), type) and issubclass(getattr(holdfast, name), HoldfastError)
    ]
    assert len(errors) > 10
    assert missing([each for each in errors if each != "HoldfastError"], first_cells("docs/failure.md")) == []


def modules() -> list[Path]:
    """Paths within the package. What is not committed yet may still find its place."""
    listed = subprocess.run(["git", "ls-files", "src/holdfast"], cwd=ROOT, capture_output=True, text=True)
    found = [Path(name) for name in listed.stdout.splitlines()] or list((ROOT / "src/holdfast").rglob("*.py"))
    return [Path(*each.parts[each.parts.index("holdfast") + 1 :]) for each in found if each.suffix == ".py"]


def tree() -> str:
    drawn = re.search(r"^src/holdfast/\n(.*?)^```", text_of("ARCHITECTURE.md"), re.M | re.S)
    assert drawn is not None
    return drawn[1]


def test_every_table_is_named() -> None:
    """Remedy: a word in the paragraph Tables of ARCHITECTURE.md."""
    migrations = (ROOT / "src/holdfast/store/migrations").glob("*.sql")
    made = {
        name
        for each in migrations
        for name in re.findall(r"^create table holdfast[._](\w+)", each.read_text(), re.M)
    }
    told = re.search(r"^\*\*Tables\.\*\*(.*?)^$", text_of("ARCHITECTURE.md"), re.M | re.S)
    assert told is not None
    assert made == set(re.findall(r"`(\w+)`", told[1])) - {"holdfast", "holdfast_"}


def test_every_module_stands_in_the_tree() -> None:
    """Those of the top and of rules/ by name, the others by their folder. Remedy: a line in ARCHITECTURE.md."""
    named = {
        each.name if len(each.parts) == 1 or each.parts[0] == "rules" else f"{each.parts[0]}/"
        for each in modules()
        if each.name != "__init__.py"
    }
    assert [each for each in sorted(named) if not re.search(rf"(?<!\w){re.escape(each)}", tree())] == []


def test_no_module_stands_in_the_tree_that_is_not_there() -> None:
    known = {each.name for each in modules()}
    assert [each for each in re.findall(r"\b[a-z_]+\.py\b", tree()) if each not in known] == []
