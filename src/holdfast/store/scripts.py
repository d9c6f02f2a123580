"""SQL as text: steps of migrations, PostgreSQL's functions, and parts of scripts with values written into them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files

from .text import TOKEN, Dialect, in_schema

VALUE = re.compile(r"(?<![:\w]):([a-z_]+)")
STEP = re.compile(r"(\d{4})_\w+\.(sqlite|postgres)\.sql")
FUNCTION = re.compile(r"^create (?:or replace )?function holdfast\.(\w+)", re.MULTILINE)
CREATED = re.compile(
    r"^create (?:unique )?(?:table|index|sequence|type|trigger|view) (?:holdfast\.)?(\w+)", re.MULTILINE
)


@lru_cache(maxsize=8)
def steps(dialect: Dialect) -> tuple[tuple[int, str], ...]:
    """The migrations of a database as (version, SQL), in order. Read once: a publish may ask for the latest version."""
    found = []
    for file in files("holdfast").joinpath("store", "migrations").iterdir():
        match = STEP.fullmatch(file.name)
        if match and match[2] == dialect:
            found.append((int(match[1]), file.read_text(encoding="utf-8")))
    return tuple(sorted(found))


@lru_cache(maxsize=8)
def functions() -> tuple[str, str]:
    """The text of all PostgreSQL functions, and its digest."""
    folder = files("holdfast").joinpath("store", "functions")
    found = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda f: f.name)
    text = "\n".join(file.read_text(encoding="utf-8") for file in found)
    return text, hashlib.sha256(text.encode()).hexdigest()[:16]


def part(name: str, schema: str, **values: str) -> str:
    """The text of `migrations/parts/{name}.sql` with values written into it: a script has no parameters."""
    text = (
        files("holdfast").joinpath("store", "migrations", "parts", f"{name}.sql").read_text(encoding="utf-8")
    )
    return in_schema(written(text, values), schema).strip()


def written(text: str, values: Mapping[str, str]) -> str:
    return VALUE.sub(lambda found: values[found[1]], text)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def array(texts: Sequence[str]) -> str:
    """Names and signatures, which have no quotes, as an array in SQL."""
    return quoted("{" + ",".join(f'"{text}"' for text in texts) + "}")


def split(text: str) -> list[str]:
    """The statements of a script. Semicolons in quotes, comments and bodies of functions and triggers do not count."""
    statements, start, depth = [], 0, 0
    for token in TOKEN.finditer(text):
        if token["begin"]:
            depth += 1
        elif token["end"]:
            depth = max(0, depth - 1)
        elif token["semicolon"] and depth == 0:
            statements.append(text[start : token.start()])
            start = token.end()
    statements.append(text[start:])
    return [s.strip() for s in statements if re.sub(r"--[^\n]*", "", s).strip()]
