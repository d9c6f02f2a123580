"""The proof of the demo fails where it should: each promise, broken by hand, turns its own row and says so."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from holdfast import Reason
from holdfast.demo import story
from holdfast.demo.proof import DeadLetter, Entry, Evidence, prove

CURSED = DeadLetter("cursed", Reason.POISON_MESSAGE, Reason.WORKER_VANISHED, 6)
INVALID = DeadLetter("invalid", Reason.SERIALIZATION_ERROR, Reason.SERIALIZATION_ERROR, 1)
A1, A2, B1, B2 = Entry("a1", "a"), Entry("a2", "a"), Entry("b1", "b"), Entry("b2", "b")

GOOD = Evidence(
    promised=[A1, B1, Entry("cursed", "b"), A2, Entry("invalid", "c"), B2],
    ledger=[B1, A1, B2, A2],
    done=["b1", "a1", "b2", "a2"],
    dead=[CURSED, INVALID],
    waiting=[],
    retries=2,
    starts=Counter(a1=1, a2=3, b1=2, b2=1, cursed=6),
    rolled_back=frozenset({"never"}),
    cursed=frozenset({"cursed"}),
    invalid=frozenset({"invalid"}),
    planned=6,
    killed=4,
)

BROKEN = {
    "one lost": (replace(GOOD, done=["b1", "a1", "b2"], ledger=[B1, A1, B2]), {"nothing lost"}),
    "one never committed": (replace(GOOD, planned=7), {"nothing lost"}),
    "one left waiting": (
        replace(GOOD, done=["b1", "a1", "b2"], ledger=[B1, A1, B2], waiting=["a2"]),
        {"nothing lost"},
    ),
    "ended twice": (replace(GOOD, done=["b1", "a1", "b2", "a2", "a2"]), {"nothing lost", "effects once"}),
    "rolled back, and handled": (
        replace(GOOD, ledger=[*GOOD.ledger, Entry("never", "d")]),
        {"nothing from rolled-back transactions", "effects once"},
    ),
    "rolled back, and started": (
        replace(GOOD, starts=GOOD.starts + Counter(never=1)),
        {"nothing from rolled-back transactions"},
    ),
    "nothing was rolled back": (
        replace(GOOD, rolled_back=frozenset()),
        {"nothing from rolled-back transactions"},
    ),
    "out of order": (replace(GOOD, ledger=[B1, A2, A1, B2]), {"order kept in every stream"}),
    "an effect twice": (
        replace(GOOD, ledger=[B1, A1, A1, A2, B2]),
        {"order kept in every stream", "effects once"},
    ),
    "an effect missing": (replace(GOOD, ledger=[A1, A2, B2]), {"effects once"}),
    "started too often": (
        replace(GOOD, starts=GOOD.starts + Counter(a1=6)),
        {"started at least once, at most N times"},
    ),
    "done, and never started": (
        replace(GOOD, starts=Counter(a1=1, a2=1, b2=1, cursed=6)),
        {"started at least once, at most N times"},
    ),
    "nothing failed": (replace(GOOD, retries=0), {"failures retried"}),
    "nobody was killed": (replace(GOOD, killed=0), {"killed workers replaced"}),
    "the cursed one without its reason": (
        replace(GOOD, dead=[replace(CURSED, last_reason=Reason.UNKNOWN), INVALID]),
        {"dead letters say why"},
    ),
    "the invalid one was started": (
        replace(GOOD, starts=GOOD.starts + Counter(invalid=1)),
        {"dead letters say why"},
    ),
    "a good message became a dead letter": (
        replace(
            GOOD,
            done=["b1", "a1", "b2"],
            ledger=[B1, A1, B2],
            dead=[*GOOD.dead, DeadLetter("a2", Reason.POISON_MESSAGE, Reason.WORKER_VANISHED, 6)],
        ),
        {"failures retried", "only bad messages became dead letters"},
    ),
}


def test_what_went_well_is_proved() -> None:
    assert [row for row in prove(GOOD) if not row.kept] == []


@pytest.mark.parametrize("case", BROKEN)
def test_what_went_wrong_fails_its_row(case: str) -> None:
    evidence, failing = BROKEN[case]
    assert {row.promise for row in prove(evidence) if not row.kept} == failing


def test_a_story_is_the_same_for_the_same_seed() -> None:
    assert story.drawn(7) == story.drawn(7)
    assert story.drawn(7) != story.drawn(8)


@pytest.mark.parametrize("seed", range(50))
def test_every_story_has_all_its_troubles(seed: int) -> None:
    told = story.drawn(seed)
    kept = [publish for change in told.changes if not change.rolled_back for publish in change.publishes]
    assert told.messages == len(kept) == 4 * story.ORDERS
    assert [publish.cursed for publish in kept].count(True) == 1
    assert [publish.invalid for publish in kept].count(True) == 1
    assert sum(publish.body["busy"] > 0 for publish in kept) > 20
    assert sum(change.rolled_back for change in told.changes) > 2
    assert max(change.at for change in told.changes) < 1
    assert sum(len(told.of_till(till)) for till in range(story.TILLS)) == len(told.changes)
