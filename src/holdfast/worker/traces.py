"""Tracebacks as text, for the message, the log and traces: frames with their source lines, texts masked, 8 KiB at most.

Many failures have the same cause. So the frames of a traceback are made into text once and remembered; for each failure
only the frames are walked and that text is looked up. The masked text of the outermost exception exists already. The
texts of chained exceptions are cut before they are masked.
"""

from __future__ import annotations

import linecache
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path
from types import CodeType

from ..model.text import visible
from ..rules import traces
from ..rules.delivery import BatchFailed, Ending, Raised, TimedOut, TrialFailed, Unreadable
from ..rules.describing import describe
from ..rules.redact import ROOM, Masking, kept
from ..rules.traces import Frame, Place, Section, Walk

TEXT_CHARS = 300  # of the text of a chained exception, a member of a group, a note
NOTES_SHOWN = 3
PATH_CHARS, SOURCE_CHARS = 250, 200
REMEMBERED = 256  # tracebacks whose frames are kept as text
MEMBER_FRAMES = 4
FRAMES_KNOWN = 50  # frames of a traceback that is remembered


def _libraries() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    found = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib") if paths.get(name)}
    return tuple(f"{each}/" for each in (*found, *(str(Path(each).resolve()) for each in found)))


LIBRARIES = _libraries()


def error_of(ending: Ending) -> BaseException | None:
    """The exception of an ending, if its traceback is useful."""
    match ending:
        case BatchFailed(alone):
            return error_of(alone)
        case Raised(error) | TrialFailed(error):
            return error
        case TimedOut(error=error):
            return error
        case Unreadable(error, place=Place()):  # the user's own type refused the body
            return error
    return None


def place_of(ending: Ending) -> Place | None:
    match ending:
        case BatchFailed(alone):
            return place_of(alone)
        case Raised() | TrialFailed() | Unreadable() | TimedOut():
            return ending.place
    return None


class Traces:
    """Makes the texts of tracebacks, and remembers those of frames that come again."""

    def __init__(self) -> None:
        self._known: dict[Walk, list[str]] = {}
        # By the ids of code objects, which the list keeps alive, and lines: hashing code objects is slow.
        self._walks: dict[tuple[int, ...], tuple[Walk, list[CodeType]]] = {}

    def placed(self, ending: Ending) -> Ending:
        """The same ending with the place in the user's code that its exception came from."""
        match ending:
            case BatchFailed(alone):
                inside = self.placed(alone)
                assert isinstance(inside, type(alone))
                return BatchFailed(inside)
            case Raised(error) | TrialFailed(error) | Unreadable(error):
                return replace(ending, place=self._place(error))
            case TimedOut(error=BaseException() as error):
                return replace(ending, place=self._place(error))
        return ending

    def _place(self, error: BaseException) -> Place | None:
        if isinstance(error, BaseExceptionGroup):
            return traces.place_of(error, LIBRARIES)
        return self._walk(error).place

    def _walk(self, error: BaseException) -> Walk:
        key: list[int] = []
        codes: list[CodeType] = []
        trace = error.__traceback__
        while trace is not None and len(codes) < FRAMES_KNOWN:
            codes.append(trace.tb_frame.f_code)
            key += (id(codes[-1]), trace.tb_lineno)
            trace = trace.tb_next
        if trace is not None:  # too deep to be remembered
            return traces.walk(error, LIBRARIES)
        if (known := self._walks.get(tuple(key))) is None:
            if len(self._walks) >= REMEMBERED:
                self._walks.clear()
            known = self._walks[tuple(key)] = traces.walk(error, LIBRARIES), codes
        return known[0]

    def shown(self, error: BaseException, masking: Masking | None, chars: int) -> str | None:
        """The traceback of `error` for logs and traces. `masking` None: of each exception only its type."""
        if masking is None:
            return self.text(error, type(error).__name__, None)
        return self.text(error, kept(describe(error, ROOM * chars), chars, masking), masking)

    def text(self, error: BaseException, stored: str, masking: Masking | None) -> str | None:
        """The traceback of `error`. `stored` is its text as it is stored, masked. None: it has no traceback."""
        sections = []
        for link in traces.chain(error):
            said = stored if link.error is error else _said(link.error, masking)
            frames = self._frames(self._walk(link.error))
            lines = [traces.safe_lines(said), *_notes(link.error, masking)]
            if isinstance(link.error, BaseExceptionGroup):
                lines += self._members(link.error, masking)
            sections.append((frames, "\n".join(lines), link.joint))
        if not any(frames for frames, _, _ in sections):
            return None
        # The joining line stands before the later one of two.
        return traces.composed([Section(*each) for each in sections])

    def _members(self, group: BaseExceptionGroup[BaseException], masking: Masking | None) -> list[str]:
        found, lines = traces.members(group), []
        for each in found[: traces.MEMBERS_SHOWN]:
            frames = self._frames(self._walk(each))[-MEMBER_FRAMES:]
            lines += [*frames, traces.safe_lines(_said(each, masking)), "-"]
        if (more := len(found) - traces.MEMBERS_SHOWN) > 0:
            beyond = " or more" if len(found) == traces.MEMBERS_READ else ""
            lines.append(f"... and {more}{beyond} others")
        return [f"  | {line}" for chunk in lines for line in chunk.split("\n")]

    def _frames(self, walked: Walk) -> list[str]:
        if (known := self._known.get(walked)) is None:
            known = [_line(each) for each in walked.frames]
            if walked.left_out:
                known.insert(traces.FRAMES_FIRST, f"  ... {walked.left_out} frames left out")
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[walked] = known
        return known


def _line(frame: Frame) -> str:
    file = frame.file if len(frame.file) <= PATH_CHARS else f"...{frame.file[-PATH_CHARS:]}"
    text = visible(f'  File "{file}", line {frame.line}, in {frame.name[:PATH_CHARS]}')
    source = visible(_source(frame)[:SOURCE_CHARS])
    return f"{text}\n    {source}" if source else text


def _source(frame: Frame) -> str:
    module = sys.modules.get(frame.module)
    try:  # a foreign importer may be asked for the source
        return linecache.getline(frame.file, frame.line, None if module is None else vars(module)).strip()
    except Exception:
        return ""


def _said(error: BaseException, masking: Masking | None) -> str:
    if masking is None:
        return type(error).__name__[:TEXT_CHARS]
    return kept(describe(error, 4 * TEXT_CHARS), TEXT_CHARS, masking)


def _notes(error: BaseException, masking: Masking | None) -> list[str]:
    found = getattr(error, "__notes__", None)
    if masking is None or not isinstance(found, list):
        return []
    notes = [str(each[: 4 * TEXT_CHARS]) for each in found[:NOTES_SHOWN] if isinstance(each, str)]
    return [f"    {traces.safe_lines(kept(each, TEXT_CHARS, masking))}" for each in notes]
