"""How answers look: one JSON document for machines, tables for people. Foreign text is shown as text, never obeyed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import HoldfastError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

FAILED, WRONG, UNHEALTHY = 1, 2, 3

Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="How many at most.")]
Queue = Annotated[str | None, typer.Option("--queue", "-q", help="Only in this queue.")]
Number = Annotated[
    int | None, typer.Option("--number", help="Which one, if several messages have the id: see `show`.")
]
Id = Annotated[str, typer.Argument(metavar="ID", help="The id of the message.")]

CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")
WIDE = 220  # columns when nobody looks: nothing is cut off in a pipe


def clean(value: object) -> str:
    """Text that a terminal only shows: no escape sequences, no line breaks, no turned direction."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, Enum):
        value = value.name.replace("_", " ").lower()
    return CONTROL.sub("?", str(value))


def age(seconds: float | None) -> str:
    """A length of time for people."""
    if seconds is None:
        return ""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"


def console() -> Console:
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else WIDE, highlight=False, markup=False, emoji=False)


def plain(text: str) -> None:
    typer.echo(text)


def complain(error: HoldfastError) -> None:
    typer.echo(f"holdfast: {clean(error)}", err=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], empty: str) -> None:
    """Rows under headings, or a sentence if there are none."""
    rows = list(rows)
    if not rows:
        plain(empty)
        return
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*(Text(clean(value)) for value in row))
    console().print(made)


def pairs(rows: Iterable[tuple[str, object]]) -> None:
    """Names and values, those without a value left out."""
    told = [(name, clean(value)) for name, value in rows if value not in (None, "", ())]
    width = max((len(name) for name, _ in told), default=0)
    for name, value in told:
        plain(f"{name:<{width}}  {value}")


def document(value: object) -> None:
    """One JSON document on standard output."""
    import msgspec

    encoded = msgspec.json.encode(value, enc_hook=_encode)
    typer.echo(msgspec.json.format(encoded, indent=2).decode())


def _encode(value: object) -> object:
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def raw(text: str | None) -> Any:
    """JSON text as part of a document; what is no JSON is shown as text."""
    import msgspec

    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def fields(value: Any, *extra: str) -> dict[str, object]:
    """A dataclass as a dictionary, with some of its properties."""
    import dataclasses

    made = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    return made | {name: getattr(value, name) for name in extra}


def nobody_is_there() -> bool:
    return not sys.stdin.isatty()


def confirm(question: str, yes: bool) -> None:
    """Go on only if somebody says so."""
    if yes:
        return
    if nobody_is_there():
        raise UsageError(f"{question} Nobody is there to be asked: add --yes if it is meant.")
    typer.confirm(question, abort=True)


@contextmanager
def counting(what: str, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Shows how far a long order has come, on a terminal."""
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
