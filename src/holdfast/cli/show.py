"""How output looks: one JSON document for machines, tables for people. Control characters are escaped."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields as fields_of
from dataclasses import is_dataclass
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

import typer

from ..errors import HoldfastError, UsageError
from ..model.message import Flag, Reason
from ..model.text import counted, replaced, safe_json, visible
from . import tables
from .tables import Page, age, words

if TYPE_CHECKING:
    from ..operations import QueueState

__all__ = ["age", "counted", "visible", "words"]

FAILED, WRONG, UNHEALTHY = 1, 2, 3
NARROW, WIDE = 40, 400  # columns: the limits of what a terminal may say
COMMAND, HARD_SPACE = re.compile("`[^`]{1,76}`"), "\xa0"


def clean(value: object) -> str:
    """Text that is safe for a terminal: no escape sequences, no line breaks, no change of direction."""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, Enum):
        value = words(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(clean, value))
    return "" if value is None else replaced(str(value))


# -- the terminal


def width() -> int | None:
    """Columns of the terminal; None: it is a pipe or a file."""
    if not sys.stdout.isatty():
        return None
    return max(NARROW, min(WIDE, shutil.get_terminal_size().columns))


def is_coloured() -> bool:
    """On a terminal, unless NO_COLOR is set; FORCE_COLOR: also in a pipe."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or sys.stdout.isatty()


def plain(text: str, *, err: bool = False, **style: Any) -> None:
    """A line, styled where there are colours."""
    styled = typer.style(text, **style) if style and text and is_coloured() else text
    typer.echo(styled, err=err, color=is_coloured())


def sentence(text: str, lead: str = "", **style: Any) -> None:
    """A sentence, wrapped between words on a terminal; ids and commands are not broken. `lead` comes before it."""
    text, columns = clean(text), width()
    if columns is None:
        plain(lead + text, **style)
        return
    kept = COMMAND.sub(lambda found: found[0].replace(" ", HARD_SPACE), text)
    broken = textwrap.wrap(
        kept, columns, initial_indent=lead, subsequent_indent=" " * len(lead),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    for line in broken or [lead]:
        plain(line.replace(HARD_SPACE, " "), **style)


def complain(error: HoldfastError | str) -> None:
    """One line, followed by the details of an error."""
    typer.echo(f"holdfast: {clean(error)}", err=True)
    for line in error.details if isinstance(error, HoldfastError) else ():
        typer.echo(f"  {visible(line)}", err=True)


def clear() -> None:
    if sys.stdout.isatty():
        typer.echo("\x1b[2J\x1b[H", nl=False)


# -- numbers


def at_least(number: int, more: bool) -> str:
    """A number for people; one that was counted up to a limit says so."""
    return f"at least {number:,}" if more else f"{number:,}"


def depths(queue: QueueState, states: Sequence[str]) -> Iterator[int | str | None]:
    """The cells of a queue: its depth, and how many are in each of these states; `100,000+`: at least so many."""
    yield f"{queue.depth:,}+" if queue.more else queue.depth
    for state in states:
        count = queue.states.get(state)
        yield f"{count:,}+" if state in queue.more else count


# -- for people


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    empty: str,
    *,
    at: datetime | None = None,
    spare: Sequence[str] = (),
) -> None:
    """Rows under headings, or a sentence if there are none. `at`: the database's time; `spare`: see tables."""
    rows = list(rows)
    if not rows:
        plain(empty)
        return
    (heading, *others), left_out = tables.lines(Page(width(), at), columns, rows, spare)
    plain(heading, bold=True)
    for line in others:
        plain(line)
    if left_out:
        sentence(f"(no room for: {', '.join(left_out)}; --json has everything)", dim=True)


def pairs(rows: Iterable[tuple[str, object]]) -> None:
    """Names and values, those without a value left out."""
    shown = [(name, text) for name, value in rows if (text := clean(value))]
    widest = max((len(name) for name, _ in shown), default=0)
    for name, text in shown:
        sentence(text, f"{name:<{widest}}  ")


# -- for machines


def document(value: object) -> None:
    """One JSON document on standard output. Control characters are escaped."""
    import msgspec

    encoded = msgspec.json.encode(named(value), enc_hook=_encode)
    plain(safe_json(msgspec.json.format(encoded, indent=2).decode()))


def named(value: object) -> object:
    """Answers as plain values: reasons and flags by their names."""
    if isinstance(value, Reason):
        return reason_name(value)
    if is_dataclass(value) and not isinstance(value, type):
        return named(fields(value))
    if isinstance(value, Mapping):
        return {str(key): named(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [named(each) for each in value]
    return value


def reason_name(reason: Reason) -> str:
    """As `--reason` takes it: transport-unavailable."""
    return reason.name.lower().replace("_", "-")


def flags(status: int) -> list[str]:
    """What is done for a message, by name; a handler's own steps by their numbers."""
    known = [each.name.lower().replace("_", "-") for each in Flag if each.name is not None and status & each]
    others = status & ~int(sum(Flag))
    return known + [f"step-{bit - 2}" for bit in range(3, 15) if others & 1 << bit]


def _encode(value: object) -> object:
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def raw(text: str | None) -> Any:
    """JSON text as part of a document; what is not JSON is shown as text."""
    import msgspec

    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def fields(value: Any, *extra: str) -> dict[str, object]:
    """A dataclass as a dictionary, with some of its properties; its status as the names of its flags."""
    made: dict[str, object] = {}
    for name in (*(each.name for each in fields_of(value)), *extra):
        found = getattr(value, name)
        if name == "status" and isinstance(found, int):
            made["flags"] = flags(found)
        else:
            made[name] = found
    return made


# -- asking, waiting


def nobody_is_there() -> bool:
    return not sys.stdin.isatty()


def confirm(question: str, yes: bool) -> None:
    """Ask, and continue only after a yes."""
    if yes:
        return
    if nobody_is_there():
        raise UsageError(f"{question} There is no terminal to ask on: add --yes if it is meant.")
    typer.confirm(clean(question), abort=True)


@contextmanager
def counting(what: str, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Shows the progress of a long command, on a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.completed:.0f}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task(what, total=None)
        yield lambda count: progress.update(bar, completed=count)
