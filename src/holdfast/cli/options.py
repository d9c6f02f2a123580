"""Options that many commands share, declared once as dataclasses: a command takes the whole group.

    @command(app)
    def redrive(ids: Ids, filter: DeadFilter, target: Target, change: Change) -> None: ...

`command` gives typer a signature in which each group stands for its fields, and hands the command the filled group.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints

import typer

Function = Callable[..., Any]


def command(group: typer.Typer, name: str | None = None, **options: Any) -> Callable[[Function], Function]:
    """Register a command whose parameters may be groups of options. Its help is its docstring."""

    def register(function: Function) -> Function:
        group.command(name, **options)(expanded(function))
        return function

    return register


def expanded(function: Function) -> Function:
    """The function with one parameter for each option, as typer wants it."""
    hints = get_type_hints(function, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[type, list[str]]] = {}
    for name, given in inspect.signature(function).parameters.items():
        kind = hints[name]
        if is_dataclass(kind) and isinstance(kind, type):
            made = _of_group(kind)
            groups[name] = kind, [each.name for each in made]
            parameters += made
        else:
            parameters.append(given.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(function)
    def called(**given: Any) -> Any:
        for name, (kind, names) in groups.items():
            given[name] = kind(**{each: given.pop(each) for each in names})
        return function(**given)

    called.__signature__ = inspect.Signature(parameters, return_annotation=None)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": None}
    del called.__wrapped__  # typer would read the signature of the wrapped function
    return called


def _of_group(kind: type) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if each.default is MISSING else each.default,
            annotation=hints[each.name],
        )
        for each in fields(kind)
    ]
