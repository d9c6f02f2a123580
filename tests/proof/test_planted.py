"""The gate: known bugs are planted in a copy of the sources, and the tests named for each must notice it.

A bug that nobody notices means that the tests have become blind; one whose text is gone means that it must be written
anew. `python tools/planted.py` prints the table.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.proof.counts import COUNTS

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import planted

MUTANTS = planted.mutants()


def named(mutants: list[planted.Mutant]) -> list[Any]:
    return [pytest.param(each, id=each.name.replace(" ", "_")) for each in mutants]


@pytest.fixture(scope="module")
def dsn(postgres_server: servers.Server) -> str:
    """The server of this session: a planted run starts none of its own."""
    return postgres_server.dsn


def test_every_bug_can_still_be_planted() -> None:
    assert len(MUTANTS) >= 56
    assert sum(each.ordinary for each in MUTANTS) == 12
    assert len({each.name for each in MUTANTS}) == len(MUTANTS)
    for each in MUTANTS:
        assert planted.changed(each)
        assert planted.overtaken(each) == []


@pytest.mark.one_postgres
@pytest.mark.parametrize("mutant", named([each for each in MUTANTS if each.ordinary]))
def test_a_planted_bug_is_noticed(dsn: str, mutant: planted.Mutant) -> None:
    verdict = planted.judge(mutant, dsn)
    COUNTS.add("planted bugs", "noticed", bool(verdict.failed))
    assert verdict.failed, f"nobody noticed: {mutant.about}\n{verdict.output[-3000:]}"


@pytest.mark.faults("planted")
@pytest.mark.one_postgres
@pytest.mark.parametrize("mutant", named([each for each in MUTANTS if not each.ordinary]))
def test_any_other_planted_bug_is_noticed(dsn: str, mutant: planted.Mutant) -> None:
    test_a_planted_bug_is_noticed(dsn, mutant)


@pytest.mark.faults("planted")
@pytest.mark.one_postgres
@pytest.mark.parametrize("mutant", named([each for each in MUTANTS if each.ordinary]))
def test_the_dozen_of_the_ordinary_suite_is_noticed_too(dsn: str, mutant: planted.Mutant) -> None:
    test_a_planted_bug_is_noticed(dsn, mutant)


@pytest.mark.one_postgres
def test_the_sources_as_they_are_pass(dsn: str) -> None:
    """What notices a planted bug does not fail without it, in the same surroundings."""
    without_a_bug([each for each in MUTANTS if each.ordinary], dsn)


@pytest.mark.faults("planted")
@pytest.mark.one_postgres
def test_the_sources_as_they_are_pass_all(dsn: str) -> None:
    without_a_bug(MUTANTS, dsn)


def without_a_bug(mutants: list[planted.Mutant], dsn: str) -> None:
    tests = tuple(dict.fromkeys(test for each in mutants for test in each.tests[:1]))
    verdict = planted.run(tests, None, dsn, first=False)
    assert not verdict.failed, verdict.output[-3000:]
