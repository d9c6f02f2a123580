"""Pictures in the terminal: the steps of an instance on a line of time, and how far a fan-out has come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from . import show
from .tables import age, shortened

if TYPE_CHECKING:
    from ..model.progress import Progress
    from ..orchestrations.lines import JournalLine
    from ..orchestrations.steps import Fan, Step

LINE = 100  # columns in a pipe
LABEL = 24
BAR_MIN = 16
ROOM = 30  # columns of a progress bar
ENDS = 20  # columns behind the bar
UNDER = " " * 6  # before what belongs to the event above
SIGNS = {"answered": "█", "failed": "▓", "fired": "─", "withdrawn": "░", "open": "▒", "recorded": "•"}
COLOURS = {"failed": "red", "open": "yellow", "withdrawn": "bright_black"}


def timeline(steps: Sequence[Step], at: datetime, limit: int) -> None:
    """A line for each step, from the first to the last, or to now if something is open."""
    first = steps[0].since
    is_open = any(each.until is None for each in steps)
    last = max([each.until or each.since for each in steps] + ([at] if is_open else []))
    columns = show.width() or LINE
    label = min(LABEL, max(len(each.label) for each in steps))
    room = max(BAR_MIN, columns - label - ENDS - 4)
    if len(steps) > limit:
        show.plain(f"({len(steps) - limit} earlier steps are not drawn: --limit draws more)", dim=True)
    for each in steps[-limit:]:
        name = shortened(show.clean(each.label), label)
        drawn = bar(each, first, last, room)
        line = f"{name:<{label}}  {drawn}  {shortened(ending(each, at), ENDS)}"
        show.plain(line.rstrip(), fg=COLOURS.get(each.became))
    show.plain(f"{'':<{label}}  {f'{first:%H:%M:%S}':<{room - 8}}{last:%H:%M:%S}", dim=True)


def bar(step: Step, first: datetime, last: datetime, room: int) -> str:
    """The part of the line during which a step was open."""
    whole = (last - first) or timedelta(microseconds=1)
    begin = min(room - 1, int((step.since - first) / whole * room))
    end = (
        room if step.until is None else max(begin + 1, min(room, round((step.until - first) / whole * room)))
    )
    sign = SIGNS[step.became]
    drawn = " " * begin + (sign if step.became == "recorded" else sign * (end - begin))
    return f"{drawn:<{room}}"


def ending(step: Step, at: datetime) -> str:
    if step.until is None:
        if step.due is not None:
            return f"due in {age((step.due - at).total_seconds())}" if step.due > at else "is due"
        return f"open for {age((at - step.since).total_seconds())}"
    if step.became == "recorded":
        return ""
    return f"{length((step.until - step.since).total_seconds())} {step.became}"


def length(seconds: float) -> str:
    """
    >>> length(0.25)
    '250 ms'
    """
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else age(seconds)


def journal(lines: Sequence[JournalLine]) -> None:
    """A line for each event, and below it what it brought and what the code asked for because of it."""
    if not lines:
        show.plain("The journal is empty.")
        return
    columns = show.width()
    show.plain("turn  at                   event", bold=True)
    for each in lines:
        failed = " failed: " in each.event
        show.sentence(each.event, f"{each.turn:>4}  {show.clean(each.at)}  ", fg="red" if failed else None)
        if each.value is not None:
            value = show.clean(each.value)
            value = value if columns is None else shortened(value, columns - len(UNDER), at_end=True)
            show.plain(f"{UNDER}{value}", dim=True)
        for asked in together(each.asked):
            show.sentence(asked, f"{UNDER}→ ")


def together(asked: Sequence[str]) -> list[str]:
    """Requests for the same, one after another, in one line.

    >>> together(["activity pack #2", "activity pack #3", "activity post #4"])
    ['activity pack #2 to #3', 'activity post #4']
    """
    found: list[tuple[str, str, str]] = []
    for each in asked:
        what, _, number = each.rpartition(" #")
        if what and found and found[-1][0] == what:
            found[-1] = (what, found[-1][1], number)
        else:
            found.append((what, number, number) if what else (each, "", ""))
    return [
        what + (f" #{first}" if first else "") + (f" to #{last}" if last != first else "")
        for what, first, last in found
    ]


def progress(fans: Sequence[Fan], said: Mapping[str, Progress]) -> None:
    """A bar for each activity that was called often and is not done, and for each call that says how far it is."""
    bars: list[tuple[str, float | None, str]] = [
        (each.name, each.ended / each.asked, f"{each.ended:,} of {each.asked:,}{failures(each)}")
        for each in fans
        if each.ended < each.asked
    ]
    bars += [(label, each.share, str(each)) for label, each in said.items()]
    if not bars:
        return
    show.plain("")
    label = min(LABEL, max(len(name) for name, _, _ in bars))
    for name, share, text in bars:
        drawn = "" if share is None else f"{filled(share)}  "
        show.plain(f"{shortened(show.clean(name), label):<{label}}  {drawn}{show.clean(text)}")


def filled(share: float) -> str:
    """
    >>> filled(0.5)
    '███████████████░░░░░░░░░░░░░░░'
    """
    full = int(ROOM * share)
    return "█" * full + "░" * (ROOM - full)


def failures(fan: Fan) -> str:
    return f", {fan.failed:,} failed" if fan.failed else ""
