"""Schedules are set and dropped in the caller's transaction, on every kind of handle: with it, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from uuid import UUID

import pytest

from holdfast import Holdfast, daily
from holdfast.errors import WrongHandle
from tests import servers
from tests.handles import kinds
from tests.handles.kinds import Opener, Subject, Undo, stored


@pytest.fixture(autouse=True)
def django_lets_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")


async def put(app: Holdfast, subject: Subject, name: str, at: str = "06:00") -> None:
    if subject.known.is_async:
        with pytest.raises(WrongHandle, match=r"await aset_schedule\(\.\.\.\)"):
            app.set_schedule(name, daily(at), "due", on=subject.handle)
        await app.aset_schedule(name, daily(at), "due", on=subject.handle)
    else:
        with pytest.raises(WrongHandle, match=r"`set_schedule\(\.\.\.\)`"):
            await app.aset_schedule(name, daily(at), "due", on=subject.handle)
        app.set_schedule(name, daily(at), "due", on=subject.handle)


async def drop(app: Holdfast, subject: Subject, name: str) -> bool:
    if subject.known.is_async:
        return await app.adrop_schedule(name, on=subject.handle)
    return app.drop_schedule(name, on=subject.handle)


async def scenario(app: Holdfast, opener: Opener, target: str) -> None:
    def names() -> dict[str, str]:
        return {each.name: each.rule for each in app.operations.schedules.list()}

    app.migrate()
    async with opener(target) as subject:
        await subject.execute("insert into orders values (1)")
        await put(app, subject, "kept")
        await put(app, subject, "dropped")
        assert names() == {}
    assert names() == {"dropped": "daily 06:00 in UTC", "kept": "daily 06:00 in UTC"}
    async with opener(target) as subject:
        await put(app, subject, "kept", "07:00")
        await put(app, subject, "new")
        assert await drop(app, subject, "dropped") is True
        assert await drop(app, subject, "nobody") is False
        raise Undo
    assert names() == {"dropped": "daily 06:00 in UTC", "kept": "daily 06:00 in UTC"}
    async with opener(target) as subject:
        assert await drop(app, subject, "dropped") is True
        await put(app, subject, "kept", "08:00")
    assert names() == {"kept": "daily 08:00 in UTC"}
    assert stored(target)[0] == [1]
    await moves(app, opener, target)
    app.close()


async def moves(app: Holdfast, opener: Opener, target: str) -> None:
    """A scheduled message is moved, and another one cancelled, with the caller's transaction or not at all."""
    one, two = (app.publish("due", delay=3600).id for _ in range(2))
    before = state(app)
    for commits in (False, True):
        async with opener(target) as subject:
            if subject.known.is_async:
                await app.amove(one, delay=7200, on=subject.handle)
                await app.acancel(two, on=subject.handle)
            else:
                app.move(one, delay=7200, on=subject.handle)
                app.cancel(two, on=subject.handle)
            if not commits:
                raise Undo
        if not commits:
            assert state(app) == before
    assert state(app).keys() == {one}
    assert state(app)[one] > before[one]
    app.cancel(one)


def state(app: Holdfast) -> dict[UUID, datetime]:
    found = app.operations.messages.find(limit=10)
    return {each.id: each.claimable_at for each in found if each.claimable_at is not None}


@pytest.mark.parametrize("opener", [pytest.param(opener, id=name) for name, opener in kinds.SQLITE])
async def test_on_sqlite(tmp_path: Path, opener: Opener) -> None:
    target = str(tmp_path / "toy.db")
    kinds.make_tables(target)
    await scenario(Holdfast(f"sqlite:///{target}"), opener, target)


@pytest.fixture(scope="module")
def database(postgres_server: servers.Server) -> Iterator[str]:
    with postgres_server.database() as dsn:
        kinds.make_tables(dsn)
        yield dsn


@pytest.mark.one_postgres
@pytest.mark.parametrize("opener", [pytest.param(opener, id=name) for name, opener in kinds.POSTGRES])
async def test_on_postgres(database: str, opener: Opener) -> None:
    app = Holdfast(database)
    app.migrate()
    kinds.observer(database).execute("delete from orders; delete from holdfast.schedule")
    await scenario(app, opener, database)
