"""Which of the settlements that a worker hands in may be applied at all, whatever the database says of their leases."""

from __future__ import annotations

from collections.abc import Sequence

from ...model.work import Settlement

Fence = tuple[int, int, int]


def fence(settlement: Settlement) -> Fence:
    """What a settlement is good for: this message, under this lease (run and epoch)."""
    leased = settlement.leased
    return (leased.message.seq, leased.run, leased.run_epoch)


def admissible(settlements: Sequence[Settlement]) -> list[Settlement]:
    """The first settlement of each message, in runs whose head is settled with it.

    The lease stands on the head. Settled around it, the messages behind would overtake it.
    """
    heads = {s.leased.run for s in settlements if s.leased.run == s.leased.message.seq}
    if len(heads) == len(settlements):  # each is the head of its run and settled once, as most are
        return list(settlements)
    first: dict[Fence, Settlement] = {}
    for settlement in settlements:
        first.setdefault(fence(settlement), settlement)
    headed = {(run, epoch) for seq, run, epoch in first if seq == run}
    return [settlement for (_, *lease), settlement in first.items() if tuple(lease) in headed]
