"""An id that is taken is told in our words on every kind of handle, whatever words its driver has."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from holdfast.clock import MovableClock
from holdfast.errors import IdTaken
from holdfast.model.message import NewMessage
from holdfast.settings import Settings
from holdfast.store import Store, open_store
from holdfast.store.plans import engine
from holdfast.store.plans import engine_sqlite as plans_sqlite
from tests import servers
from tests.handles import kinds
from tests.handles.kinds import Opener, Undo, stored

NOON = datetime(2040, 5, 1, 12, 0, tzinfo=UTC)
MESSAGE = NewMessage(UUID(int=61), "t", "1", queue="q", id_is_given=True)


def not_looked_up(*_: Any, **__: Any) -> Iterator[Any]:
    yield from ()


def opened(url: str) -> Store:
    store = open_store(url, Settings(), MovableClock(NOON))
    store.migrate()
    return store


async def told(monkeypatch: pytest.MonkeyPatch, store: Store, opener: Opener, target: str) -> None:
    async with opener(target) as subject:
        await subject.run(store.bound(engine.append([MESSAGE])))
        with pytest.raises(IdTaken, match="is pending in queue q") as found:
            await subject.run(store.bound(engine.append([MESSAGE])))
        assert (found.value.id, found.value.state, found.value.__cause__) == (MESSAGE.id, "pending", None)
        await subject.execute("insert into orders values (1)")  # the transaction can go on
        for module in (
            plans_sqlite,
            __import__("holdfast.store.plans.engine_postgres", fromlist=["look_up"]),
        ):
            monkeypatch.setattr(module, "look_up", not_looked_up)  # as if the other one had come just now
        with pytest.raises(IdTaken, match="is just being stored") as missed:
            await subject.run(store.bound(engine.append([MESSAGE])))
        assert missed.value.id == MESSAGE.id
        assert missed.value.__cause__ is not None
        raise Undo
    assert stored(target) == ([], [])
    store.close()


@pytest.fixture(autouse=True)
def django_lets_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")


@pytest.mark.covers("X61")
@pytest.mark.parametrize("opener", [pytest.param(opener, id=name) for name, opener in kinds.SQLITE])
async def test_on_sqlite(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, opener: Opener) -> None:
    target = str(tmp_path / "toy.db")
    kinds.make_tables(target)
    await told(monkeypatch, opened(f"sqlite:///{target}"), opener, target)


@pytest.fixture(scope="module")
def database(postgres_server: servers.Server) -> Iterator[str]:
    with postgres_server.database() as dsn:
        kinds.make_tables(dsn)
        opened(dsn).close()
        yield dsn


@pytest.mark.covers("X61")
@pytest.mark.one_postgres
@pytest.mark.parametrize("opener", [pytest.param(opener, id=name) for name, opener in kinds.POSTGRES])
async def test_on_postgres(monkeypatch: pytest.MonkeyPatch, database: str, opener: Opener) -> None:
    await told(monkeypatch, open_store(database, Settings(), MovableClock(NOON)), opener, database)
