"""Which settlements of a worker may be applied, before their leases are checked in the database."""

from __future__ import annotations

from collections.abc import Sequence

from ...model.work import Settlement

MessageFence = tuple[int, int, int]


def message_fence(settlement: Settlement) -> MessageFence:
    """What a settlement is valid for: this message, under this lease (run and epoch)."""
    leased = settlement.leased
    return (leased.message.seq, leased.run, leased.run_epoch)


def admissible(settlements: Sequence[Settlement]) -> list[Settlement]:
    """The first settlement of each message, in runs whose head is settled with it.

    The lease is on the head. If the messages after it were settled without it, they would overtake it.
    """
    heads = {s.leased.run for s in settlements if s.leased.run == s.leased.message.seq}
    if len(heads) == len(settlements):  # mostly each is the head of its run and settled once
        return list(settlements)
    first: dict[MessageFence, Settlement] = {}
    for settlement in settlements:
        first.setdefault(message_fence(settlement), settlement)
    headed = {(run, epoch) for seq, run, epoch in first if seq == run}
    return [settlement for (_, *lease), settlement in first.items() if tuple(lease) in headed]
