"""Repairs sequences that are below the stored numbers after a switch-over, a restore or a failover."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from ..rules.numbers import raised
from ..store.plans import sequences
from ..store.plans.audit import Entry
from ..store.statement import Plan
from ..telemetry.logs import Log
from .desk import Desk, said
from .results import Finding, RaisedSequence, Repaired

log = Log("holdfast.operations")

ROUNDS_MAX = 10_000
SHOWN = 20


def repair(desk: Desk, *, leap: bool, why: str | None) -> Repaired:
    """Raise sequences that are behind, and put misplaced messages back in order. Safe while workers run."""
    text = said(why, desk.settings.error_chars)
    done = Repaired((), ())
    for n in range(ROUNDS_MAX):
        mended = desk.command("Sequences", _mended, desk, leap and n == 0, text)
        numbers = tuple(RaisedSequence(name, before, after) for name, before, after in mended.raised)
        done = replace(done, raised=done.raised + numbers, streams=done.streams + mended.streams)
        if len(mended.streams) < sequences.STREAMS_MAX:
            break
    if done.raised or done.streams:
        log.info(
            "sequences.repaired",
            "raised %(count)d sequences, put messages of %(streams)d streams behind older ones",
            count=len(done.raised),
            streams=len(done.streams),
        )
    return done


def _mended(desk: Desk, leap: bool, why: str | None) -> Plan[sequences.Mended]:
    mended = yield from sequences.mend(partial(raised, leap=leap))
    entry = _entry(mended, why)
    if entry is not None:
        yield from desk.note(entry)
    return mended


def _entry(mended: sequences.Mended, why: str | None) -> Entry | None:
    if not mended.raised and not mended.streams:
        return None
    return Entry(
        "repair",
        count=len(mended.raised) + len(mended.streams),
        before={name: before for name, before, _ in mended.raised},
        after={name: after for name, _, after in mended.raised},
        why=why,
        ids=[f"{queue}/{stream}" for queue, stream in mended.streams],
    )


def examine(desk: Desk) -> Iterator[Finding]:
    """The doctor's findings about sequences."""
    for each in desk.ask(sequences.look()):
        if raised(each.last, each.stored) is not None:
            yield Finding(
                "error",
                "sequence-behind",
                f"The sequence of {each.name} has drawn {each.last}, and {each.stored} is already stored, as after a "
                "switch-over or a restore: numbers would be given twice, publishing fails, and new messages are placed "
                "before older ones.",
                "Run `holdfast repair` before anybody publishes.",
            )
    for row in desk.ask(sequences.before_head(SHOWN)):
        yield Finding(
            "error",
            "stream-order",
            f"{row['count']} messages of stream {row['stream']} of queue {row['queue']} are before its head, where "
            "they would wait for ever: a sequence that was behind gave them their places.",
            "`holdfast repair` puts them behind the others.",
        )
