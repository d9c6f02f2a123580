"""The leases that a worker still has: what its heartbeat renews, what ran out of time, and what a lost answer left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..model.work import Settlement
from .lanes import Fence, Lane, Stop
from .overrides import timeout_of
from .pacing import Pacing

# -- the heartbeat; `leases` is called by a thread of its own


def leases(pacing: Pacing, now: float) -> list[tuple[Lane, tuple[Fence, ...]]]:
    """The leases to renew: all that are held, except those of handlers that have used up their time."""
    return [
        (lane, lane.fences)
        for lane in list(pacing.lanes.values())
        if lane.running is None or lane.ran(now) < pacing.paces[lane.queue].limit.timeout
    ]


def renewed(
    pacing: Pacing, asked: Iterable[tuple[Lane, tuple[Fence, ...]]], lost: set[int], asked_at: float
) -> list[Lane]:
    """The store has renewed all but `lost`. Returns the lanes that are lost."""
    until = asked_at + pacing.settings.lease
    gone = []
    for lane, fences in asked:
        if not all(seq in lost for seq, _ in fences):
            lane.leased_until = max(lane.leased_until, until)
            continue
        # If an exchange or a handler has moved or ended the lease since, this answer is out of date.
        ended = pacing.lanes.get(lane.claimed) is not lane or lane in pacing.flight
        if lane.fences == fences and not lane.completing and not ended:
            pacing.lose(lane)
            gone.append(lane)
    return gone


# -- by our own clock


def overdue(pacing: Pacing, now: float) -> list[Lane]:
    """Lanes whose running message has used up its time."""
    return [
        lane
        for lane in pacing.lanes.values()
        if lane.running is not None
        and lane.stop not in (Stop.TIMEOUT, Stop.GRACE)  # a thread cannot be cancelled
        and lane.ran(now) >= timeout_of(pacing.paces[lane.queue].limit.timeout, lane.running.message.headers)
    ]


def lapsed(pacing: Pacing, now: float) -> list[Lane]:
    """Lanes whose lease has expired by our own clock without a renewal: another worker may have them.

    Nothing more of them is started. What ended is still handed in: the store checks the fence.
    """
    lanes = [
        lane for lane in pacing.lanes.values() if now >= lane.leased_until and lane.stop is not Stop.LAPSED
    ]
    for lane in lanes:
        pacing.close(lane)
    return [lane for lane in lanes if lane.running is not None]


# -- after an answer that never came


def where(pacing: Pacing) -> dict[Lane, tuple[Fence, ...]]:
    """Our leases as known here. Take this before the store is asked which leases it has."""
    return {lane: lane.fences for lane in pacing.lanes.values()}


def moved_since(asked: Mapping[Lane, tuple[Fence, ...]]) -> set[Fence]:
    """Leases that a handler's commit has moved since the store was asked: its answer may lack them."""
    return {
        fence
        for lane, fences in asked.items()
        if lane.fences[0] != fences[0] and not lane.lost
        for fence in lane.fences
    }


def reconcile(
    pacing: Pacing, standing: set[Fence]
) -> tuple[list[Settlement], list[tuple[int, int]], list[Lane]]:
    """What was in flight and was not applied, and the lanes that are lost. `standing`: our leases in the store."""
    settlements: list[Settlement] = []
    moves: list[tuple[int, int]] = []
    for lane in pacing.flight:
        if lane.fences[0] in standing and not lane.lost:
            settlements += lane.handed
            if len(lane.fences) > 1:
                moves.append((lane.fences[0][0], lane.fences[1][0]))
    lost = []
    for lane in list(pacing.lanes.values()):
        ended = lane in pacing.flight and len(lane.fences) == 1 and not lane.completing
        if not ended and not standing.intersection(lane.fences):
            pacing.lose(lane)
            lost.append(lane)
    return settlements, moves, lost


def known(pacing: Pacing, standing: set[Fence]) -> list[int]:
    """The messages whose leases are known here. Any other lease of ours came with an answer that we never received.

    A message that was settled may have been handed out again in the same exchange, so the epoch counts. A message
    that waits in a lane may get the lease at any moment: a handler's commit moves it there.
    """
    ours = standing.intersection(fence for lane in pacing.lanes.values() for fence in lane.fences)
    waiting = (leased.message.seq for lane in pacing.lanes.values() for leased in lane.waiting)
    return [*(seq for seq, _ in ours), *waiting]
