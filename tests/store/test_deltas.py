"""A settlement's delta: rows for another table, applied in its commit, under its fence, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest
from msgspec.structs import replace

from holdfast.model.work import Delta, Leased, Report, Settlement
from holdfast.rules import delivery
from holdfast.store.plans import engine
from holdfast.store.plans.engine_sqlite import SqliteEngine
from tests.store.box import Box, concluded, done, failed, new
from tests.store.test_costs import statements

APPLIER = """
create function holdfast.apply_notes(p_rows json, p_now timestamptz) returns void
language sql set search_path = pg_catalog, pg_temp as $$
    insert into public.note (n, text) select (r ->> 'n')::int, r ->> 'text' from json_array_elements(p_rows) r
$$"""


@pytest.fixture
def noted(box: Box) -> Iterator[Box]:
    """A store with a table of notes that refuses one text, and its applier."""
    box.query("create table note (n integer primary key, text varchar(40) not null check (text <> 'no'))")
    if isinstance(box.store.engine, SqliteEngine):
        box.store.engine.appliers["notes"] = (
            "insert into note (n, text) select value ->> 'n', value ->> 'text' from json_each(:rows)"
        )
    else:
        box.query(APPLIER)
    yield box
    box.query("drop table note")
    if not box.sqlite:
        box.query("drop function holdfast.apply_notes")


def notes(box: Box) -> list[tuple[int, str]]:
    return sorted((n, text) for n, text in box.query("select n, text from note"))


def noting(leased: Leased, *rows: tuple[int, str], applier: str = "notes") -> Settlement:
    delta = Delta(applier, tuple({"n": n, "text": text} for n, text in rows))
    return concluded(leased, delivery.Returned(delta=delta))


def test_a_delta_is_applied_with_its_settlement(noted: Box) -> None:
    noted.send_all("a", "b", "c")
    first, second, third = noted.claim()
    assert noted.settle(noting(first, (1, "one"), (2, "two")), done(second), noting(third, (3, "é"))) == set()
    assert notes(noted) == [(1, "one"), (2, "two"), (3, "é")]
    assert noted.messages() == []


def test_a_delta_of_a_lease_that_is_lost_is_not_applied(noted: Box) -> None:
    noted.send_all("late", "in time")
    late, prompt = noted.claim(lease=60.0)
    stale = replace(late, epoch=late.epoch - 1, run_epoch=late.run_epoch - 1)
    assert noted.settle(noting(stale, (1, "stale")), noting(prompt, (2, "prompt"))) == {late.message.seq}
    assert notes(noted) == [(2, "prompt")]
    noted.pass_time(seconds=61)
    noted.recover()
    assert noted.settle(noting(late, (3, "recovered by another"))) == {late.message.seq}
    assert notes(noted) == [(2, "prompt")]


def test_a_delta_is_applied_once_however_often_it_is_handed_in(noted: Box) -> None:
    noted.send("a")
    leased = noted.claim_one()
    settlement = noting(leased, (1, "once"))
    assert noted.settle(settlement, settlement) == set()
    assert noted.settle(settlement) == {leased.message.seq}
    assert notes(noted) == [(1, "once")]


def test_deltas_along_a_run_stand_and_fall_with_its_lease(noted: Box) -> None:
    noted.send_all(*range(3), stream="s")
    run = noted.claim(run=10)
    assert len(run) == 3
    moves = [(run[0].message.seq, run[2].message.seq)]
    assert noted.settle(noting(run[0], (0, "a")), noting(run[1], (1, "b")), moves=moves) == set()
    assert noted.settle(noting(run[2], (2, "under the old lease"))) == {run[2].message.seq}
    assert notes(noted) == [(0, "a"), (1, "b")]


@pytest.mark.parametrize("wrong", ["refused", "no such applier"])
def test_a_delta_that_is_refused_takes_its_settlement_with_it(noted: Box, wrong: str) -> None:
    noted.send_all("good", "bad")
    good, bad = noted.claim()
    refused = noting(bad, (2, "no")) if wrong == "refused" else noting(bad, (2, "b"), applier="nothing")
    with pytest.raises(Exception):  # noqa: B017, PT011 - each driver has its own, and each wrong its own
        noted.settle(noting(good, (1, "one")), refused)
    assert notes(noted) == []
    assert len(noted.messages()) == 2
    assert len(noted.read("lease")) == 2
    assert noted.settle(noting(good, (1, "one")), failed(bad)) == set()
    assert notes(noted) == [(1, "one")]


def test_a_delta_commits_with_the_transaction_that_completes_its_message(noted: Box) -> None:
    noted.send_all("a", "b")
    first, second = noted.claim()
    with noted.store.transaction() as (_, run):
        run(engine.settle([noting(first, (1, "one"))], ()))
    with suppress(ZeroDivisionError), noted.store.transaction() as (_, run):
        run(engine.settle([noting(second, (2, "two"))], ()))
        raise ZeroDivisionError
    assert notes(noted) == [(1, "one")]


def test_emits_and_deltas_come_together(noted: Box) -> None:
    noted.send("a")
    settlement = replace(noting(noted.claim_one(), (1, "one")), emits=(new("next"),))
    assert noted.settle(settlement) == set()
    assert notes(noted) == [(1, "one")]
    assert [row.body for row in noted.messages()] == ['"next"']


def test_nobody_pays_for_deltas_that_are_not_there(noted: Box) -> None:
    noted.send_all(*range(4))
    counts = []
    for noted_too in (False, True):
        work = noted.claim(heads=2)
        settled = [noting(each, (each.message.seq, "x")) if noted_too else done(each) for each in work]
        report = Report(noted.worker(), settled)
        said, _ = statements(noted, engine.exchange(report))
        counts.append(len(said))
    assert counts[1] == counts[0] + noted.sqlite
