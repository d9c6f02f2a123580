"""docs/lifecycle.md shows every ending with its settlement; the table there is written by this file.

Run it as a script to write the table anew: `.venv/bin/python -m tests.rules.test_lifecycle`.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.model.message import Flag, Reason
from holdfast.model.work import Leased, Outcome, Settlement
from holdfast.rules.delivery import (
    BatchFailed,
    BreakerRefused,
    Cancelled,
    Died,
    Ending,
    Expired,
    Interrupted,
    Lost,
    NeverStarted,
    NoHandler,
    Paused,
    Raised,
    Released,
    Returned,
    Sealed,
    Snoozed,
    StartsSpent,
    TimedOut,
    TrialFailed,
    Unreadable,
    Unsent,
)
from tests.rules.cases import NOW, conclude, handler, lease

PAGE = Path(__file__).resolve().parents[2] / "docs" / "lifecycle.md"
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->\n"

ROWS: list[tuple[str, Ending, Leased]] = [
    ("returned", Returned(), lease()),
    ("raised", Raised(ValueError()), lease()),
    ("raised, the last start", Raised(ValueError()), lease(attempts=9)),
    ("raised for good (validation)", Raised(type("ValidationError", (Exception,), {})()), lease()),
    ("ran past its timeout", TimedOut(300), lease()),
    ("asked to wait 5 s (`Snooze`)", Snoozed(5), lease()),
    (
        "cannot be handled now: its stream is halted, it keeps its place",
        Paused("instance: paused"),
        lease(position=7),
    ),
    ("declared dead (`Dead`)", Died("no such customer"), lease()),
    ("failed as a trial of a half-open breaker", TrialFailed(ConnectionError(), 30), lease()),
    ("the same, refunds spent", TrialFailed(ConnectionError(), 30), lease(refunds=100)),
    ("in a batch of several that raised", BatchFailed(Raised(ValueError())), lease()),
    ("in a batch that could not reach a dependency", BatchFailed(Raised(ConnectionError())), lease()),
    ("refused by an open breaker", BreakerRefused(30), lease()),
    ("given back before it started", NeverStarted(), lease()),
    ("the same, refunds spent", NeverStarted(), lease(refunds=100)),
    ("released from its stream", Released(), lease()),
    ("cannot be decoded", Unreadable(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid")), lease()),
    ("encrypted with a key that is not here", Sealed(KeyError()), lease()),
    ("the same for the sixth time", Sealed(KeyError()), lease(refunds=5)),
    ("the same, refunds spent", Sealed(KeyError()), lease(refunds=100)),
    ("no handler for its type", NoHandler(), lease()),
    ("deadline passed", Expired(), lease()),
    ("starts spent, last worker vanished", StartsSpent(), lease(attempts=10, vanished=1)),
    ("cancelled", Cancelled(), lease()),
    ("interrupted: the worker stopped and its grace was over", Interrupted(), lease()),
    ("not sent, or nobody knows whether it was (a relay)", Unsent("no connection", 30), lease()),
    ("the same for the thousandth time", Unsent("no connection", 30), lease(refunds=100, attempts=9)),
    ("lease lost", Lost(), lease()),
]


def table() -> str:
    lines = [
        "| ending | message | claimable again | attempt | status | reason |",
        "|---|---|---|---|---|---|",
    ]
    for name, ending, leased in ROWS:
        settlement = conclude(leased, ending, handler("patient"), NOW, 0.5)
        lines.append(f"| {name} | {' | '.join(cells(settlement))} |")
    return "\n".join(lines) + "\n"


def cells(settlement: Settlement | None) -> list[str]:
    if settlement is None:
        return ["nothing: it is another worker's", "-", "-", "-", "-"]
    again = settlement.outcome in (Outcome.AGAIN, Outcome.RELEASE)
    return [
        {"again": "pending", "release": "pending, out of the order"}.get(
            settlement.outcome, settlement.outcome
        )
        + (", failures + 1" if settlement.failed else ""),
        ("at once" if settlement.delay == 0 else f"after {settlement.delay:g} s")
        if again
        else never(settlement),
        ("counts" if settlement.counted else "refunded") + (", refunds + 1" if settlement.refunded else ""),
        ", ".join(f"+ {flag.name}" for flag in Flag if flag & settlement.flags) or "-",
        " / ".join(words(each) for each in (settlement.reason, settlement.last_reason) if each) or "-",
    ]


def never(settlement: Settlement) -> str:
    return "after redrive" if settlement.outcome is Outcome.DEAD else "never"


def words(reason: Reason) -> str:
    return f"{reason.value} {reason.name.lower().replace('_', ' ')}"


def test_every_ending_is_in_the_table() -> None:
    assert {type(ending) for _, ending, _ in ROWS} == set(Ending.__args__)


def test_the_page_is_current() -> None:
    shown = PAGE.read_text().split(BEGIN)[1].split(END)[0]
    assert shown == table(), "run `.venv/bin/python -m tests.rules.test_lifecycle`"


if __name__ == "__main__":
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(before + BEGIN + table() + END + rest.split(END)[1])
