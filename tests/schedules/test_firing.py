"""A schedule fires: which occurrences, when, with which ids, on both databases."""

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid5

import pytest

from holdfast import InvalidSettings, UsageError, cron, daily, every, yearly
from holdfast.bodies.keys import new_key
from holdfast.errors import InvalidMessage
from holdfast.model.schedule import DueNow, Step
from holdfast.rules.tick import LIMIT
from holdfast.schedules import deciding, ticker, zones
from holdfast.store.plans import schedules
from tests.schedules.desk import Desk, at


@pytest.mark.covers("X54", "X56", "X18", "B23")
def test_each_occurrence_fires_once_at_its_local_time(desk: Desk) -> None:
    planned = desk.app.set_schedule("nightly", daily("02:30", zone="Europe/Berlin"), "due", {"n": 1})
    assert (planned.key, planned.at) == ("2026-03-01", at("2026-03-01 02:30 Europe/Berlin"))
    desk.run()
    assert desk.seen == []
    for _ in range(31):
        desk.later(days=1)
        desk.run()
        desk.run()
    assert desk.keys == [(date(2026, 3, 1) + timedelta(days=n)).isoformat() for n in range(31)]
    incarnation = desk.row("nightly").incarnation
    assert [each.id for each in desk.seen] == [uuid5(incarnation, key) for key in desk.keys]
    gap = desk.seen[28].occurrence
    assert gap is not None
    assert gap.local == "2026-03-29 03:00 Europe/Berlin"
    assert gap.at == datetime(2026, 3, 29, 1, tzinfo=UTC)
    assert (desk.row("nightly").fired, desk.row("nightly").last_key) == (31, "2026-03-31")


@pytest.mark.covers("B1", "B2", "B4", "B5", "B7", "B8", "B9", "B10", "X19")
def test_after_a_downtime_everything_missed_is_fired_the_oldest_first(desk: Desk) -> None:
    for n in range(5):
        rule = daily(f"{6 + n:02}:00")
        desk.app.set_schedule(f"all/{n}", rule, "due", {"n": n}, misfire="all", cap=None)
    desk.later(days=120)
    desk.run()
    assert len(desk.seen) == 600
    moments = [each.occurrence.at for each in desk.seen if each.occurrence]
    assert moments == sorted(moments)
    assert len({each.id for each in desk.seen}) == 600
    assert all(desk.notes(f"all/{n}") == [] for n in range(5))


@pytest.mark.covers("X19")
def test_messages_have_the_time_of_their_occurrence(desk: Desk) -> None:
    desk.app.set_schedule("daily", daily("06:00"), "due")
    desk.app.set_schedule("other", daily("05:00"), "due")
    desk.later(days=2)
    desk.tick()
    found = desk.messages()
    assert [each["due"] for each in found] == [
        at(f"2026-03-0{day} 0{hour}:00") for day in (1, 2) for hour in (5, 6)
    ]
    assert all(each["claimable"] == each["due"] for each in found)


@pytest.mark.covers("X55")
@pytest.mark.parametrize(
    ("options", "keys", "notes"),
    [
        (
            {"misfire": "latest"},
            ["2026-03-10"],
            [("2026-03-01", "2026-03-09", 9, "not the latest")],
        ),
        ({"misfire": "skip"}, [], [("2026-03-01", "2026-03-10", 10, "missed")]),
        (
            {"misfire": "all", "cap": 4},
            ["2026-03-07", "2026-03-08", "2026-03-09", "2026-03-10"],
            [("2026-03-01", "2026-03-06", 6, "over the cap")],
        ),
        (
            {"misfire": "all", "max_late": 2 * 86_400},
            ["2026-03-09", "2026-03-10"],
            [("2026-03-01", "2026-03-08", 8, "too late")],
        ),
    ],
)
def test_what_is_left_out_is_noted_as_a_range(
    desk: Desk, options: dict[str, Any], keys: list[str], notes: list[tuple[str, str, int, str]]
) -> None:
    desk.app.set_schedule("missed", daily("06:00"), "due", **options)
    desk.later(days=10)
    desk.run()
    assert desk.keys == keys
    assert desk.notes("missed") == notes
    row = desk.row("missed")
    assert (row.fired, row.left_out, row.next_key) == (len(keys), sum(n[2] for n in notes), "2026-03-11")


@pytest.mark.covers("X55")
def test_what_is_not_later_than_the_grace_is_not_missed(desk: Desk) -> None:
    desk.app.set_schedule("skips", daily("06:00"), "due", misfire="skip")
    desk.later(hours=6, seconds=59)
    desk.run()
    desk.later(days=1, seconds=2)
    desk.run()
    assert desk.keys == ["2026-03-01"]
    assert desk.notes("skips") == [("2026-03-02", "2026-03-02", 1, "missed")]


@pytest.mark.covers("X55")
def test_a_flood_is_bounded_in_each_tick(desk: Desk) -> None:
    desk.app.set_schedule("flood", every(seconds=5), "due", misfire="all", cap=None)
    desk.app.set_schedule("calm", daily("00:30"), "due")
    desk.later(hours=1)
    assert desk.tick().did == 1
    assert len(desk.messages()) == LIMIT  # the other one is later than these, and later than what waits
    for _ in range(20):
        desk.tick()
    found = desk.messages()
    assert len(found) == 721
    assert [each["due"] for each in found] == sorted(each["due"] for each in found)


@pytest.mark.covers("X54")
def test_a_rule_that_is_set_again_fires_no_occurrence_twice(desk: Desk) -> None:
    """Whoever moves west on a birthday is greeted once; the incarnation stays."""
    rule = yearly("03-14", "09:00", zone="Europe/Berlin")
    desk.app.set_schedule("birthday/1", rule, "due")
    before = desk.row("birthday/1").incarnation
    desk.clock.instant = at("2026-03-14 09:30 Europe/Berlin")
    desk.run()
    assert desk.keys == ["2026-03-14"]
    planned = desk.app.set_schedule("birthday/1", yearly("03-14", "09:00", zone="America/New_York"), "due")
    assert planned.key == "2027-03-14"
    desk.later(days=1)
    desk.run()
    assert desk.keys == ["2026-03-14"]
    assert desk.row("birthday/1").incarnation == before
    assert desk.app.drop_schedule("birthday/1") is True
    assert desk.app.drop_schedule("birthday/1") is False
    desk.app.set_schedule("birthday/1", rule, "due")
    assert desk.row("birthday/1").incarnation != before


@pytest.mark.covers("X54")
def test_an_id_in_use_leaves_that_delivery_out_and_the_tick_goes_on(desk: Desk) -> None:
    desk.app.set_schedule("a", daily("06:00"), "due")
    desk.app.set_schedule("b", daily("06:00"), "due")
    taken = uuid5(desk.row("a").incarnation, "2026-03-01")
    desk.app.publish("due", {"own": True}, id=taken)
    desk.later(days=1)
    desk.tick()
    assert len(desk.messages()) == 2  # the publisher's own, and that of b
    assert desk.notes("a") == [("2026-03-01", "2026-03-01", 1, "id in use in due")]
    assert desk.notes("b") == []
    assert desk.row("a").next_key == "2026-03-02"


@pytest.mark.covers("X54")
def test_a_restored_row_gives_the_same_ids(desk: Desk) -> None:
    desk.app.set_schedule("again", daily("06:00"), "due")
    saved = desk.row("again")
    desk.later(days=2)
    desk.run()
    ids = [each.id for each in desk.seen]
    back = "last_key = null, next_key = '2026-03-01', next_at = created_at"
    _execute(desk, f"update {{}} set {back}, version = 0 where name = 'again'")
    assert saved.incarnation == desk.row("again").incarnation
    desk.run()
    assert [each.id for each in desk.seen] == [*ids, *ids]


@pytest.mark.covers("B15")
def test_a_schedule_that_fails_gets_its_error_and_the_others_fire(desk: Desk) -> None:
    desk.app.set_schedule("bad", daily("06:00"), "due")
    desk.app.set_schedule("good", daily("06:00"), "due")
    _execute(desk, "update {} set rule = 'never on Sundays' where name = 'bad'")
    desk.later(days=1)
    assert desk.tick().did == 2  # both in one tick: the bad one is not what the database has refused
    desk.run()
    assert desk.keys == ["2026-03-01"]
    row = desk.row("bad")
    assert row.error is not None
    assert row.error.startswith("InvalidSettings: The rule 'never on Sundays' is refused")
    assert row.next_at is None
    desk.app.set_schedule("bad", daily("06:00"), "due")
    desk.later(days=1)
    desk.run()
    assert sorted(desk.keys) == ["2026-03-01", "2026-03-01", "2026-03-02", "2026-03-02"]


@pytest.mark.one_postgres
def test_the_streams_of_occurrences_keep_their_order(desk: Desk) -> None:
    desk.app.set_schedule("one", daily("06:00"), "due", {"of": 1}, overlap="queue")
    desk.app.set_schedule("two", daily("07:00"), "due", {"of": 2}, stream="shared")
    desk.app.set_schedule("three", daily("08:00"), "due", {"of": 3}, stream="shared")
    desk.later(days=3)
    desk.run()
    assert [each.body["of"] for each in desk.seen if each.body["of"] > 1] == [2, 3] * 3
    assert [each.occurrence.key for each in desk.seen if each.body["of"] == 1 and each.occurrence] == [
        "2026-03-01",
        "2026-03-02",
        "2026-03-03",
    ]


@pytest.mark.one_postgres
def test_a_clock_that_is_set_back_fires_nothing_again(desk: Desk) -> None:
    desk.app.set_schedule("daily", daily("06:00"), "due")
    desk.later(days=3)
    desk.run()
    desk.later(days=-2)
    desk.run()
    assert desk.keys == ["2026-03-01", "2026-03-02", "2026-03-03"]
    desk.later(days=3)
    desk.run()
    assert desk.keys == ["2026-03-01", "2026-03-02", "2026-03-03", "2026-03-04"]


@pytest.mark.one_postgres
def test_large_bodies_come_in_parts(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ticker, "BYTES", 10_000)
    for n in range(8):
        desk.app.set_schedule(f"large/{n}", daily("06:00"), "due", {"text": "x" * 3000})
    desk.later(days=2)
    counts = []
    for _ in range(10):
        desk.tick()
        counts.append(len(desk.messages()))
    assert counts[0] in (3, 4)
    assert counts[-1] == 16
    assert max(b - a for a, b in itertools.pairwise(counts)) <= 4


@pytest.mark.one_postgres
@pytest.mark.parametrize(
    ("arguments", "options", "error", "text"),
    [
        (("x", "0 25 * * *", "due"), {}, InvalidSettings, "must begin with"),
        (
            ("x", daily("06:00", zone="Europe/Berlinn"), "due"),
            {},
            InvalidSettings,
            "did you mean 'Europe/Berlin'",
        ),
        (("x", daily("06:00"), "due"), {"overlap": "never"}, InvalidSettings, "overlap='never'"),
        (
            ("x", daily("06:00"), "due"),
            {"overlap": "queue", "stream": "s"},
            InvalidSettings,
            "Leave one of them out",
        ),
        (("x", daily("06:00"), "due"), {"misfire": "some"}, InvalidSettings, "misfire='some'"),
        (("x", daily("06:00"), "due"), {"cap": 0}, InvalidSettings, "cap=0"),
        (("x", daily("06:00"), "due"), {"cap": 10**30}, InvalidSettings, "cap=1000"),
        (("", daily("06:00"), "due"), {}, InvalidSettings, "schedule's name"),
        (("x" * 191, daily("06:00"), "due"), {}, InvalidSettings, "190"),
        (("x", 5, "due"), {}, InvalidSettings, "give cron"),
        (("x", daily("06:00"), "x" * 300), {}, InvalidMessage, "type"),
        (("x", daily("06:00"), "due", object()), {}, InvalidMessage, "body"),
        (("x", daily("06:00", jitter=5), "due"), {"jitter": 5}, InvalidSettings, "twice"),
        (("x", daily("06:00"), "due"), {"jitter": -1}, InvalidSettings, "jitter=-1"),
    ],
)
def test_what_cannot_work_is_refused_at_the_call(
    desk: Desk, arguments: tuple[Any, ...], options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        desk.app.set_schedule(*arguments, **options)
    with pytest.raises(error, match=text):
        desk.app.schedule(*arguments, **options)
    assert desk.app.operations.schedules.list() == []


@pytest.mark.one_postgres
def test_keys_seal_the_body_of_a_schedule_and_of_each_message(desk: Desk) -> None:
    app = desk.another(keys=new_key("one"))
    app.set_schedule("sealed", cron("0 6 * * *"), "due", {"secret": 1})
    assert "secret" not in desk.row("sealed").body
    desk.later(days=1)
    desk.run(app)
    assert desk.seen[0].body == {"secret": 1}
    other = desk.another(keys=new_key("two"))  # the first key is missing: it fails, and says so
    desk.later(days=1)
    other.prepare()
    desk.tick(other)
    assert "BodySealed" in str(desk.row("sealed").error)
    for each in (app, other):
        each.close()


def test_one_name_is_either_in_code_or_set_at_run_time(desk: Desk) -> None:
    desk.app.schedule("mine", daily("06:00"), "due")
    with pytest.raises(InvalidSettings, match="already a schedule named 'mine'"):
        desk.app.schedule("mine", daily("07:00"), "due")
    desk.app.schedule("mine", daily("06:00"), "due")
    desk.app.prepare()
    with pytest.raises(UsageError, match="declared in the code"):
        desk.app.set_schedule("mine", daily("06:00"), "due")
    with pytest.raises(UsageError, match="is in the code"):
        desk.app.drop_schedule("mine")
    desk.app.set_schedule("theirs", daily("06:00"), "due")
    other = desk.another()
    other.schedule("theirs", daily("06:00"), "due")
    with pytest.raises(UsageError, match="was set at run time"):
        other.prepare()
    other.close()


def _execute(desk: Desk, sql: str) -> None:
    from holdfast.store.statement import Statement

    table = "holdfast_schedule" if desk.app.store.has_one_writer else "holdfast.schedule"

    def plan() -> Any:
        yield Statement(sql.format(table))

    desk.app.store.run(plan())


@pytest.mark.covers("B44", "B43")
def test_what_two_ticks_decide_about_one_row_is_stored_once(desk: Desk) -> None:
    """The second writer finds another version, and nothing of what it decided is stored."""
    desk.app.set_schedule("x", daily("06:00"), "due")
    desk.later(days=3)
    first = desk.ticker()
    found = desk.app.store.read(schedules.due([], True, 500, 10**6))
    assert found is not None
    steps = first._decide(found)
    assert len(steps[0].fires) == 3
    assert desk.tick().did == 1
    late = desk.app.store.run(schedules.apply(steps))
    assert (late.moved, late.fires) == (0, ())
    assert (len(desk.messages()), desk.row("x").fired) == (3, 3)


def test_a_tick_that_another_was_first_with_rests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On SQLite two decide about the same rows: what one does is in vain, and it leaves the next to the other."""
    monkeypatch.setattr(ticker, "AT_ONCE", 2)
    desk = Desk(f"sqlite:///{tmp_path}/club.db")
    desk.app.migrate()
    for n in range(4):
        desk.app.set_schedule(f"x{n}", daily("06:00"), "due")
    desk.later(days=1)
    loser, winner = desk.ticker(), desk.ticker()
    decide = loser._decide

    def overtaken(found: DueNow) -> list[Step]:
        assert winner().did == 2
        return decide(found)

    monkeypatch.setattr(loser, "_decide", overtaken)
    late = loser()
    assert (late.did, late.lost) == (0, True)
    assert late.next_at is not None
    assert late.next_at < late.now  # more is due
    monkeypatch.undo()
    again = loser()
    assert (again.did, again.lost) == (2, False)
    desk.close()


@pytest.mark.covers("B15")
def test_one_that_the_database_refuses_does_not_hold_up_the_others(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "bad", "c"):
        desk.app.set_schedule(name, daily("06:00"), "due", {"of": name})
    real = deciding.messages

    def spoilt(row: Any, *more: Any) -> Any:
        """What cannot be stored: a message without a type."""
        made = real(row, *more)
        return tuple(each._replace(type=None) for each in made) if row.name == "bad" else made

    monkeypatch.setattr(deciding, "messages", spoilt)
    desk.later(days=1)
    step = desk.ticker()
    for _ in range(4):
        step()
    assert len(desk.messages()) == 2
    assert desk.row("bad").error is not None
    assert desk.row("bad").next_at is None
    assert desk.row("bad").fired == 0


@pytest.mark.one_postgres
def test_headers_that_cannot_be_read_fail_their_schedule_alone(desk: Desk) -> None:
    for name in ("bad", "good"):
        desk.app.set_schedule(name, daily("06:00"), "due", headers={"a": 1})
    _execute(desk, "update {} set headers = 'no json' where name = 'bad'")
    desk.later(days=1)
    desk.tick()
    assert (desk.row("bad").fired, desk.row("good").fired) == (0, 1)
    assert desk.row("bad").error is not None


@pytest.mark.covers("X62")
def test_a_row_that_no_statement_can_change_does_not_hold_up_the_others(desk: Desk) -> None:
    """PostgreSQL counts a row's changes in 32 bits; SQLite counts on."""
    for name in ("bad", "good"):
        desk.app.set_schedule(name, daily("06:00"), "due")
    _execute(desk, "update {} set version = 2147483647 where name = 'bad'")
    step = desk.ticker()
    for _ in range(3):
        desk.later(days=1)
        step()
    assert desk.row("good").fired == 3
    bad = desk.row("bad")
    assert bad.fired == 3 if desk.app.store.has_one_writer else bad.error is not None
    desk.later(days=1)
    assert step().did == (2 if desk.app.store.has_one_writer else 1)


@pytest.mark.covers("X62")
def test_a_row_that_no_statement_can_change_does_not_hold_up_newer_zone_data(desk: Desk) -> None:
    for name in ("bad", "good"):
        desk.app.set_schedule(name, daily("06:00", zone="Europe/Berlin"), "due")
    _execute(desk, "update {} set zones = '2000a'")
    _execute(desk, "update {} set version = 2147483647 where name = 'bad'")
    desk.tick()
    assert desk.row("good").zones == zones.version()
    desk.later(days=1)
    desk.tick()
    assert desk.row("good").fired == 1


@pytest.mark.covers("X62")
def test_a_body_that_is_empty_fails_its_schedule_alone(desk: Desk) -> None:
    for name in ("bad", "good"):
        desk.app.set_schedule(name, daily("06:00"), "due")
    _execute(desk, "update {} set body = '' where name = 'bad'")
    step = desk.ticker()
    for _ in range(3):
        desk.later(days=1)
        step()
    assert desk.row("good").fired == 3
    assert desk.row("bad").error is not None


def test_a_schedule_whose_rule_cannot_be_read_is_shown(desk: Desk) -> None:
    desk.app.set_schedule("bad", daily("06:00"), "due")
    _execute(desk, "update {} set rule = 'never on Sundays' where name = 'bad'")
    desk.later(days=1)
    desk.tick()
    shown = desk.app.operations.schedules.show("bad")
    assert shown.state.state == "failed"
    assert shown.next == ()


@pytest.mark.one_postgres
def test_a_backfill_publishes_a_bounded_number_of_bytes_at_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.app.set_schedule("large", daily("06:00"), "due", "x" * 1000)
    desk.later(days=10)
    desk.app.operations.schedules.pause("large")
    sizes: list[int] = []
    real = schedules.fire

    def fire(fires: Any) -> Any:
        sizes.append(sum(len(each.body) for each in fires))
        return real(fires)

    monkeypatch.setattr("holdfast.operations.schedules.BYTES", 3500)
    monkeypatch.setattr(schedules, "fire", fire)
    done = desk.app.operations.schedules.backfill("large", zones.moment(desk.at), desk.clock.instant)
    assert done.published == 10
    assert max(sizes) <= 3500
