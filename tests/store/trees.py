"""Parse trees as PostgreSQL prints them (debug_print_parse): nested nodes in braces, lists in parentheses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

LEXEMES = re.compile(r'[{}()]|"(?:\\.|[^"\\])*"|(?:\\.|[^\s{}()\\])+')


def parse(text: str) -> Any:
    """Nodes as dictionaries, with their name under `kind`."""
    lexemes = LEXEMES.findall(text)
    value, end = _value(lexemes, 0)
    assert end == len(lexemes)
    return value


def _value(lexemes: list[str], at: int) -> tuple[Any, int]:
    if lexemes[at] == "(":
        items, at = [], at + 1
        while lexemes[at] != ")":
            item, at = _value(lexemes, at)
            items.append(item)
        return items, at + 1
    if lexemes[at] != "{":
        return lexemes[at], at + 1
    node: dict[str, Any] = {"kind": lexemes[at + 1]}
    at += 2
    while lexemes[at] != "}":
        key, values, at = lexemes[at][1:], [], at + 1
        while lexemes[at] != "}" and not lexemes[at].startswith(":"):
            value, at = _value(lexemes, at)
            values.append(value)
        node[key] = values[0] if len(values) == 1 else values
    return node, at + 1


def nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """All nodes, each before those in it."""
    if isinstance(tree, dict):
        yield tree
        for value in tree.values():
            yield from nodes(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from nodes(value)
