"""The fenced blocks of the documents. What stands behind the language says what becomes of a block:

python run              is run, in a folder that the blocks of one document share
python file=shop.py     is written there
python run=shop.py      both
python postgres         is run, with its `postgresql://` URL pointing at a database made for it
python norun            is not run: it shows what must not be done, or needs what a test has not
console                 lines with `$` are commands: they must exist
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```\s*$", re.M | re.S)

# Written elsewhere, by hand or by a tool, and not for users of the library.
OTHERS = {"docs/requirements.md"}


@dataclass(frozen=True)
class Block:
    document: str
    line: int
    language: str
    words: tuple[str, ...]
    text: str

    @property
    def file(self) -> str | None:
        return next((word.partition("=")[2] for word in self.words if "=" in word), None)

    @property
    def place(self) -> str:
        return f"{self.document}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """The lines of a console block behind `$`, with their continuations and without what comes in a pipe."""
        joined = self.text.replace("\\\n", " ")
        return [line.strip()[2:].strip() for line in joined.splitlines() if line.strip().startswith("$ ")]


def documents() -> list[str]:
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")]
    return sorted(each.relative_to(ROOT).as_posix() for each in found)


def text_of(document: str) -> str:
    return (ROOT / document).read_text()


def blocks_of(document: str) -> Iterator[Block]:
    text = text_of(document)
    for match in FENCE.finditer(text):
        language, *words = match["info"].split() or [""]
        indent = len(match["indent"])
        body = "".join(line[indent:] for line in match["text"].splitlines(keepends=True))
        yield Block(document, text[: match.start()].count("\n") + 1, language, tuple(words), body)


def without_blocks(text: str) -> str:
    return FENCE.sub("", text)
