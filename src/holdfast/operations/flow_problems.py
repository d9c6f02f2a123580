"""What is wrong with instances of orchestrations, for `status` and `doctor`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..model.text import counted
from ..rules.journals import WARN_SHARE
from ..store.plans import instance_queries
from .desk import Desk
from .results import Finding
from .states import QueueState


def flow_problems(desk: Desk, queues: Sequence[QueueState]) -> list[Finding]:
    """Versions that no live worker has, instances that are paused, and journals that are near their limit."""
    rows = desk.ask(instance_queries.counts())
    served = {each.name for each in queues if each.workers}
    return [*_unserved(rows, served), *_paused(rows), *_long(desk)] if rows else []


def _unserved(rows: Sequence[instance_queries.Count], served: set[str]) -> Iterator[Finding]:
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.queue] = counts.get(row.queue, 0) + row.many
    for queue, count in counts.items():
        if queue in served:
            continue
        name, _, version = queue.rpartition("@")
        yield Finding(
            "warning",
            "version-without-worker",
            f"{counted(count, 'instance')} of orchestration {name} {'has' if count == 1 else 'have'} version "
            f"{version}, and no live worker has {queue}: {'it does' if count == 1 else 'they do'} nothing.",
            f"Start a worker whose code has version {version}; "
            f"`holdfast orchestrations list --name {name} -V {version} --open` lists them.",
        )


def _paused(rows: Sequence[instance_queries.Count]) -> Iterator[Finding]:
    for row in rows:
        if row.state != "paused":
            continue
        name, _, version = row.queue.rpartition("@")
        yield Finding(
            "warning",
            "paused-instances",
            f"{counted(row.many, 'instance')} of {row.queue} {'is' if row.many == 1 else 'are'} paused.",
            f"`holdfast orchestrations list --name {name} -V {version} --state paused` says why; after a fix "
            "`holdfast orchestrations resume ID`.",
        )


def _long(desk: Desk) -> Iterator[Finding]:
    events, size = desk.settings.journal_events, desk.settings.journal_bytes
    count, one = desk.ask(instance_queries.long(-(-events // WARN_SHARE), -(-size // WARN_SHARE)))
    if count:
        yield Finding(
            "warning",
            "long-journals",
            f"{counted(count, 'instance')} {'has' if count == 1 else 'have'} a journal of more than a fifth of what is "
            f"allowed ({events:,} events, {size:,} bytes): {one} for one. At the limit it is paused.",
            "Let orchestrations that run for ever continue as new (flow.again), or give large fan-outs to children.",
        )
