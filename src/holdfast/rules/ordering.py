"""What the rest of a run does when one of its messages has been settled."""

from __future__ import annotations

from typing import Literal, assert_never

from ..model.work import Outcome, Settlement


def rest_of_run(settlement: Settlement) -> Literal["continue", "give back"]:
    """Whether the next message of the stream may be started under the same lease."""
    if settlement.outcome is Outcome.DONE:  # first: nearly all of them
        return "continue"
    match settlement.outcome:
        case Outcome.CANCELLED | Outcome.RELEASE:
            return "continue"
        case Outcome.AGAIN:
            return "continue" if settlement.aside else "give back"
        case Outcome.DEAD:
            return "give back" if settlement.halt else "continue"
        case _:
            assert_never(settlement.outcome)
