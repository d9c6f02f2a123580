"""A trap around a rule: whatever runs inside it, our code or the interpreter's, must be a rule's to call."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import isfunction, isgeneratorfunction
from types import FrameType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

# Of ours: the rules, and the values that they are about.
PURE = (
    "rules",
    "errors",
    *(f"model.{each}" for each in ("message", "work", "failure", "alert", "limits", "replies")),
)
# The gate answers Pacing from memory; `at` is the arithmetic of the database's time.
GATE = ("limits.gate", "limits.circuits", "clock.at")

# Of the interpreter: clocks, dice, files, sockets, threads, whatever library calls them.
EFFECTS = {"time", "_random", "random", "posix", "nt", "io", "_io", "_socket", "_sqlite3", "_ssl", "_asyncio"}
LIBRARIES = (
    "logging",
    "asyncio",
    "random",
    "secrets",
    "socket",
    "threading",
    "sqlite3",
    "psycopg",
    "cryptography",
)
HARMLESS = {"fspath"}  # of posix: reads nothing


class Impure(BaseException):
    """Not an Exception: nobody who is careful about the errors of others shall catch it."""


@contextmanager
def trapped(*besides: str) -> Iterator[None]:
    """Inside, only pure code runs. `besides`: other modules of ours that may run."""
    allowed, seen = tuple(f"{each}." for each in (*PURE, *besides)), []

    def look(frame: FrameType, event: str, argument: Any) -> None:
        name = frame.f_globals.get("__name__", "")
        if event == "call":
            function = f"{name}.{frame.f_code.co_name}"
            inside = f"{function.removeprefix('holdfast.')}."
            is_ours = name.startswith("holdfast.") and not inside.startswith(allowed)
            if is_ours or name.split(".")[0] in LIBRARIES or "users_own" in function:
                seen.append(function)
        elif event == "c_call":
            module = (
                getattr(argument, "__module__", None) or type(getattr(argument, "__self__", None)).__module__
            )
            if module in EFFECTS and argument.__name__ not in HARMLESS:
                seen.append(f"{module}.{argument.__name__}")

    before, collects = sys.getprofile(), gc.isenabled()
    gc.disable()  # destructors of others would run in here
    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(before)
        if collects:
            gc.enable()
    if seen:
        raise Impure(f"a rule has called {', '.join(dict.fromkeys(seen))}")


def pure(function: Callable[P, R], *besides: str) -> Callable[P, R]:
    """The same function, in the trap."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with trapped(*besides):
            return function(*args, **kwargs)

    return run


def watched(kind: type[T], *besides: str) -> type[T]:
    """The same class, every method of which runs in the trap. What a generator yields is made at once."""
    methods: dict[str, Any] = {}
    for name, method in vars(kind).items():
        if isfunction(method) and name != "__init__":
            methods[name] = pure(_made_at_once(method) if isgeneratorfunction(method) else method, *besides)
    return type(kind.__name__, (kind,), methods)


def _made_at_once(method: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    return lambda *args, **kwargs: iter(list(method(*args, **kwargs)))
