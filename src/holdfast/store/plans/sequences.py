"""Sequences, from which new numbers are drawn. After a switch-over or a restore they may be below the stored numbers.

Logical replication and dumps of data alone do not carry sequences (PostgreSQL's, and SQLite's `sqlite_sequence`).
Numbers would be used twice: publishing fails, or a message gets a place before others of its stream, where no worker
finds it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..statement import Plan, single, statements
from .doctor import stranded
from .operator import advance
from .queries import shape

# The number to which a sequence is raised, by the last number drawn and the highest stored; None: it stays.
DecideSequences = Callable[[int, int], int | None]

sql = statements("sequences")

STREAMS_MAX = 1000  # in one transaction


@dataclass(frozen=True, slots=True)
class Drawn:
    """A sequence: the last number that it drew (0: none) and the highest that is stored."""

    name: str  # messages, positions, workers, audit, news
    sequence: Any
    last: int
    stored: int


@dataclass(frozen=True, slots=True)
class Mended:
    """What was raised, as (name, before, after), and the streams in which messages were put back in order."""

    raised: tuple[tuple[str, int, int], ...] = ()
    streams: tuple[tuple[str, str], ...] = ()


@single
def look(*, quick: bool = False) -> Plan[list[Drawn]]:
    """All sequences. `quick`: read only the newest rows; else everything that is pending or dead."""
    rows = yield sql("sequences_quick" if quick else "sequences")
    return [Drawn(name, sequence, int(last), int(stored)) for name, sequence, last, stored in rows]


def mend(decide: DecideSequences, *, quick: bool = False) -> Plan[Mended]:
    """Raise the sequences that are behind, then put messages that they misplaced in their right places.

    `quick`: nothing else is done unless a quick look finds one that is behind.
    """
    if quick:
        found = yield from look(quick=True)
        if all(decide(each.last, each.stored) is None for each in found):
            return Mended()
    yield sql("sequence_lock")
    raised = []
    for each in (yield from look()):
        value = decide(each.last, each.stored)
        if value is not None:
            yield sql("sequence_add", sequence=each.sequence)
            yield sql("sequence_raise", sequence=each.sequence, value=value)
            raised.append((each.name, each.last, value))
    streams = yield from _replace()
    for row in (yield from stranded(STREAMS_MAX)):
        if row["halted_by"] is None:
            yield from advance([(row["queue"], row["stream"], 0)])
            streams.append((row["queue"], row["stream"]))
    return Mended(tuple(raised), tuple(sorted(set(streams))))


@single
def before_head(limit: int) -> Plan[list[dict[str, Any]]]:
    """Streams with messages before their head. On SQLite there are none: a place is a message's number."""
    return shape("queue stream count", (yield sql("op_before_head", limit=limit)))


def _replace() -> Plan[list[tuple[str, str]]]:
    """Put messages that are before the head of their stream after the others, in the order they had."""
    rows = yield from before_head(STREAMS_MAX)
    if not rows:
        return []
    queues, streams = [row["queue"] for row in rows], [row["stream"] for row in rows]
    # Messages are locked before the rows of their streams, as everywhere. A message before the head has no lease.
    held = [seq for (seq,) in (yield sql("op_before_lock", queues=queues, streams=streams))]
    yield sql("op_before_row", queues=queues, streams=streams)
    yield sql("op_before_place", seqs=held)
    return list(zip(queues, streams, strict=True))
