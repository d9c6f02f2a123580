"""The part of a traceback that is kept: a few frames, the place in the user's code, at most 8 KiB of text.

Only names and numbers of frames are read, never the values in them. Everything is bounded: frames, chained exceptions,
members of a group, bytes. The texts of exceptions are masked already. Source lines are arguments, since files are
not read here.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..model.text import visible

BYTES_MAX = 8 * 1024  # of a stored traceback
FRAMES_READ = 10_000  # an exception that is raised again and again collects more and more frames
FRAMES_FIRST, FRAMES_LAST = 5, 20
LINKS_MAX = 6  # exceptions of a chain
MEMBERS_SHOWN, MEMBERS_READ = 5, 100  # of a group
CAUSES_KNOWN = 1000
EVERY = 60.0  # seconds between two whole tracebacks of one cause in the log

BECAUSE = "The above exception was the direct cause of the following exception:"
EARLIER = "(Earlier exceptions of this chain are left out.)"
DURING = "During handling of the above exception, another exception occurred:"


class Frame(NamedTuple):
    """Where a frame of a traceback was, by names and a number."""

    file: str
    line: int
    module: str
    name: str


class Place(NamedTuple):
    """The innermost frame of the user's code. Its name is part of a fingerprint, its line is not: lines change."""

    name: str
    line: int

    def __str__(self) -> str:
        return f"{self.name}, line {self.line}"


@dataclass(frozen=True, slots=True)
class Walk:
    """The frames of one exception: the first and the last of them, how many are left out, and the place."""

    frames: tuple[Frame, ...] = ()
    left_out: int = 0
    place: Place | None = None


class Link(NamedTuple):
    """An exception of a chain, and the sentence between it and the one before."""

    error: BaseException
    joint: str | None


class Section(NamedTuple):
    """One exception as text: its frames, each a line or two, and its text."""

    frames: Sequence[str]
    text: str
    joint: str | None = None


def walk(error: BaseException, libraries: tuple[str, ...]) -> Walk:
    """The frames of `error` behind those of the engine that called the user's code.

    The user's code is what is not in `libraries` (beginnings of paths) or in an installed package. If all of it is,
    because the application itself is installed, it is the package of the outermost frame.
    """
    first: list[Frame] = []
    last: deque[Frame] = deque(maxlen=FRAMES_LAST)
    own: Frame | None = None  # the innermost of the user's
    home, at_home = "", None
    count, trace = 0, error.__traceback__
    for _ in range(FRAMES_READ):
        if trace is None:
            break
        code, module = trace.tb_frame.f_code, trace.tb_frame.f_globals.get("__name__")
        frame = Frame(code.co_filename, trace.tb_lineno, str(module), code.co_qualname)
        trace = trace.tb_next
        ours = _is_ours(frame.module)
        if ours and not count:
            continue
        count += 1
        if len(first) < FRAMES_FIRST:
            first.append(frame)
        else:
            last.append(frame)
        if ours:
            continue
        if not _is_library(frame.file, libraries):
            own = frame
        package = frame.module.partition(".")[0]
        home = home or package
        if package == home:
            at_home = frame
    found = own or at_home
    place = None if found is None else Place(visible(f"{found.module}.{found.name}"[:300]), found.line)
    return Walk((*first, *last), count - len(first) - len(last), place)


def place_of(error: BaseException, libraries: tuple[str, ...]) -> Place | None:
    """Where in the user's code `error` came from; for a group: where its members came from, if that is one place."""
    if isinstance(error, BaseExceptionGroup):
        places = {walk(each, libraries).place for each in members(error)}
        if len({each and each.name for each in places}) == 1 and (only := places.pop()) is not None:
            return only
    return walk(error, libraries).place


def chain(error: BaseException) -> list[Link]:
    """`error` and what led to it, as Python shows it: the first cause first, `error` last; the nearest few."""
    links: list[Link] = []
    seen: set[int] = set()
    now: BaseException | None = error
    while now is not None and id(now) not in seen and len(links) < LINKS_MAX:
        seen.add(id(now))
        cause = _linked(now, "__cause__")
        before = cause or (None if _linked(now, "__suppress_context__") else _linked(now, "__context__"))
        before = before if isinstance(before, BaseException) else None
        known = before is not None and id(before) not in seen
        links.append(Link(now, (BECAUSE if cause else DURING) if known else None))
        now = before
    if now is not None and id(now) not in seen:
        links[-1] = Link(links[-1].error, EARLIER)
    return links[::-1]


def members(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """The first exceptions in a group that are not groups themselves."""
    found: list[BaseException] = []
    waiting: list[BaseException] = [group]
    while waiting and len(found) < MEMBERS_READ:
        each = waiting.pop()
        if isinstance(each, BaseExceptionGroup):
            waiting.extend(reversed(each.exceptions[:MEMBERS_READ]))
        else:
            found.append(each)
    return found


def composed(sections: Sequence[Section], room: int = BYTES_MAX) -> str:
    """The text of a traceback, in at most `room` bytes. If that is too little, frames of each section are left out."""
    whole = "\n".join(_section(each, None) for each in sections)
    if len(whole) * 4 <= room or len(whole.encode()) <= room:
        return whole
    share = room // len(sections) - 1
    return "\n".join(_section(each, share) for each in sections)


def safe_lines(text: str) -> str:
    """Foreign text in a traceback, made safe: no terminal control, no line that looks like a frame or a log record."""
    return "\n    ".join(visible(line) for line in text.splitlines()) or ""


def _section(section: Section, room: int | None) -> str:
    joint = f"\n{section.joint}\n\n" if section.joint else ""
    heading = f"{joint}Traceback (most recent call last):\n" if section.frames else joint
    frames, text = list(section.frames), section.text
    if room is not None:
        text = _cut(text, room // 2)
        left = room - len(text.encode()) - len(heading.encode()) - 40
        frames = _innermost(frames, left)
    return heading + "".join(f"{each}\n" for each in frames) + text


def _innermost(frames: list[str], room: int) -> list[str]:
    kept: list[str] = []
    for each in reversed(frames):
        room -= len(each.encode()) + 1
        if room < 0:
            return [f"  ... {len(frames) - len(kept)} left out", *kept[::-1]]
        kept.append(each)
    return frames


def _cut(text: str, room: int) -> str:
    whole = text.encode()
    return text if len(whole) <= room else whole[: max(0, room - 3)].decode(errors="ignore") + "..."


def _is_ours(module: str) -> bool:
    return module.startswith("holdfast.") and not module.startswith("holdfast.demo")


def _is_library(file: str, libraries: tuple[str, ...]) -> bool:
    return (
        file.startswith(libraries)
        or "site-packages" in file
        or "dist-packages" in file
        or file[:8] == "<frozen "
    )


def _linked(error: BaseException, name: str) -> BaseException | None:
    # A class may define it as a property that raises.
    try:
        found: BaseException | None = getattr(error, name)
    except Exception:
        return None
    return found


@dataclass(slots=True)
class LoggedCauses:
    """Which causes were logged with a whole traceback, and when: each once a minute. The oldest are removed."""

    at: OrderedDict[str, float] = field(default_factory=OrderedDict)

    def is_due(self, cause: str, now: float) -> bool:
        """Whether to log the whole traceback of this cause now; if so, it counts as logged."""
        before = self.at.get(cause)
        if before is not None and now - before < EVERY:
            return False
        self.at[cause] = now
        self.at.move_to_end(cause)
        if len(self.at) > CAUSES_KNOWN:
            self.at.popitem(last=False)
        return True
