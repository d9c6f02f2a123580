"""The event store: an append-only log for each stream, written in the transaction of the publish."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import Context, Holdfast, InvalidMessage, VersionConflict


@pytest.fixture
def app(url: str) -> Iterator[Holdfast]:
    app = Holdfast(url)
    yield app
    app.close()


def versions(app: Holdfast, stream: str) -> list[tuple[int, str, str]]:
    return [(event.version, event.type, event.body) for event in app.events(stream)]


@pytest.mark.covers("W3", "W7")
def test_events_are_numbered_without_gaps_in_each_stream(app: Holdfast) -> None:
    for n in (1, 2, 3):
        app.publish("opened", {"n": n}, stream="a", event=True)
    app.publish("opened", {"n": 1}, stream="b", event=True)
    app.publish("noise", {}, stream="a")
    assert versions(app, "a") == [
        (1, "opened", '{"n":1}'),
        (2, "opened", '{"n":2}'),
        (3, "opened", '{"n":3}'),
    ]
    assert versions(app, "b") == [(1, "opened", '{"n":1}')]
    assert [event.version for event in app.events("a", after=1, limit=1)] == [2]


def test_a_version_that_was_not_expected_stores_nothing(app: Holdfast) -> None:
    app.publish("opened", {}, stream="a", event=True, expect=0)
    with pytest.raises(VersionConflict, match="expected at version 0 and is at version 1"):
        app.publish("opened", {}, stream="a", event=True, expect=0)
    app.publish("opened", {}, stream="a", event=True, expect=1)
    assert [version for version, *_ in versions(app, "a")] == [1, 2]


def test_an_event_needs_a_stream(app: Holdfast) -> None:
    with pytest.raises(InvalidMessage, match="stream="):
        app.publish("opened", {}, event=True)


def test_a_duplicate_is_no_event(app: Holdfast) -> None:
    for _ in range(2):
        app.publish("opened", {}, stream="a", event=True, dedupe="once")
    assert len(app.events("a")) == 1


def test_an_event_is_rolled_back_with_its_transaction(tmp_path: Path) -> None:
    app = Holdfast(f"sqlite:///{tmp_path / 'events.db'}")
    app.migrate()
    with closing(sqlite3.connect(tmp_path / "events.db")) as db:
        app.publish("opened", {}, stream="a", event=True, on=db)
        db.rollback()
        app.publish("closed", {}, stream="a", event=True, on=db)
        db.commit()
    assert versions(app, "a") == [(1, "closed", "{}")]
    app.close()


def test_a_handler_publishes_events_with_its_settlement(app: Holdfast) -> None:
    @app.handler("start")
    async def begin(body: dict[str, int], ctx: Context) -> None:
        ctx.publish("begun", {"n": body["n"]}, stream="a", event=True, expect=body["n"] - 1)
        if body["n"] == 2:
            raise RuntimeError("nothing of this attempt stays")

    with app.testing() as t:
        for n in (1, 2):
            app.publish("start", {"n": n})
        t.drain(raises=False)
        assert versions(app, "a") == [(1, "begun", '{"n":1}')]


def test_a_queue_may_do_without_order(app: Holdfast) -> None:
    seen: list[int] = []

    @app.handler("step", ordered=False)
    async def anyhow(body: dict[str, int]) -> None:
        if body["n"] == 1:
            raise RuntimeError("the first fails and holds nobody up")
        seen.append(body["n"])

    with app.testing() as t:
        for n in (1, 2, 3):
            app.publish("step", {"n": n}, stream="s")
        t.drain(raises=False)
    assert sorted(seen) == [2, 3]
