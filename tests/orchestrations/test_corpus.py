"""Journals recorded on Python 3.11 are replayed by this build on this Python, and ask for the same."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from holdfast.orchestrations.declared import Program
from holdfast.orchestrations.journal import PYTHON, decode, merged
from holdfast.orchestrations.outcome import Turn
from holdfast.orchestrations.replay import ENDINGS, CodeChanged
from holdfast.orchestrations.turn import Instance
from tests.orchestrations.engine import START
from tests.orchestrations.groups import groups
from tests.orchestrations.plans import interpret
from tests.orchestrations.record import FOLDER, Recorded

FILES = sorted(FOLDER.glob("journals-*.jsonl"))


def read(path: Path) -> list[Recorded]:
    return [msgspec.json.decode(line, type=Recorded) for line in path.read_bytes().splitlines()]


def replay(program: Program, recorded: Recorded) -> tuple[Turn | CodeChanged | object, Instance]:
    rows = [decode(recorded.id, recorded.execution, turn, part, text) for turn, part, text in recorded.rows]
    instance = Instance(program, recorded.id, recorded.execution)
    instance.load(rows)
    instance.catch_up()
    outcome = instance.turn([], START)
    last = merged(rows)[-1].asked
    has_ended = bool(last) and isinstance(last[-1], ENDINGS)
    assert isinstance(outcome, CodeChanged) or (instance.ended is not None) == has_ended
    return outcome, instance


def test_the_corpus_is_there() -> None:
    assert sum(len(read(path)) for path in FILES) >= 200


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_corpus_is_replayed(path: Path) -> None:
    """H15"""
    differ = []
    for recorded in read(path):
        outcome, instance = replay(interpret.program, recorded)
        instance.close()
        if not isinstance(outcome, Turn):
            differ.append((recorded.id, recorded.execution, str(outcome)))
    assert differ == []


def test_the_known_difference_between_pythons_is_named() -> None:
    [recorded] = read(FOLDER / "group-3.11.jsonl")
    outcome, instance = replay(groups.program, recorded)
    instance.close()
    if PYTHON in ("3.11", "3.12"):
        assert isinstance(outcome, Turn)
    else:
        assert isinstance(outcome, CodeChanged)
        assert f"recorded on Python 3.11 and this is {PYTHON}" in str(outcome)
