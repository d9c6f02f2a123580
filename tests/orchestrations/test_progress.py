"""How far a long activity has come: told by `ctx.progress`, stored by the heartbeat, shown to people."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

from holdfast import Context, Flow, Holdfast, UsageError
from holdfast.bodies.keys import new_key
from holdfast.cli import drawing
from holdfast.errors import StoreUnavailable
from holdfast.model.progress import Progress, progress
from holdfast.store.plans import engine
from holdfast.worker.progress import ProgressNotes
from tests.store import state

QUICK: dict[str, Any] = {"lease": 5.0, "heartbeat": 0.1}


@dataclass
class Press:
    """An application with one long activity, which goes on when it is told to."""

    url: str
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.app = app = Holdfast(self.url, **QUICK, **self.options)
        self.go = asyncio.Event()

        @app.activity()
        async def convert(pages: int, ctx: Context) -> int:
            for page in range(pages // 2):
                ctx.progress(page + 1, pages, "pages")
            await self.go.wait()
            return pages

        @app.orchestration()
        async def book(pages: int, flow: Flow) -> int:
            return await convert(pages)

        self.book = book

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        worker = self.app.worker()
        task = asyncio.create_task(worker.run())
        try:
            yield
        finally:
            self.go.set()
            worker.stop()
            await task
            self.app.orchestrations.place.memory.forget()
            await self.app.store.aclose()


@pytest.fixture
def press(url: str) -> Iterator[Press]:
    made = Press(url)
    made.app.prepare()
    yield made
    made.app.close()


async def until(found: Callable[[], Any], seconds: float = 20.0) -> Any:
    async with asyncio.timeout(seconds):
        while not (answer := await asyncio.to_thread(found)):  # noqa: ASYNC110 - the database is asked
            await asyncio.sleep(0.02)
    return answer


async def test_it_is_shown_while_the_activity_runs(press: Press, capsys: pytest.CaptureFixture[str]) -> None:
    press.app.orchestrations.start(press.book, 10, id="b")
    operations = press.app.operations
    async with press.worker():
        said = await until(lambda: operations.orchestrations.show("b").progress)
        assert said == {"convert#1": Progress(5, 10, "pages")}
        assert "convert#1 says how far it is: 5 of 10 (50 %), pages." in operations.why("b")
        drawing.progress((), said)
        assert f"convert#1  {'█' * 15}{'░' * 15}  5 of 10 (50 %), pages" in capsys.readouterr().out
        press.go.set()
        await until(lambda: operations.orchestrations.show("b").state.ended_at)
    assert operations.orchestrations.show("b").progress == {}
    assert press.app.orchestrations.result("b") == 10


async def test_only_the_attempt_that_runs_says_how_far_it_is(press: Press) -> None:
    """One that has lost its lease stores nothing, and a lease that is locked is passed over."""
    press.app.orchestrations.start(press.book, 10, id="b")
    store = press.app.store

    def said() -> Any:
        return state.query(store, "select progress from {lease} where progress is not null")

    async with press.worker():
        await until(said)
        ((seq, epoch),) = state.query(store, "select seq, epoch from {lease} where progress is not null")
        ((before,),) = said()
        store.run(engine.progress({(seq, epoch - 1): "old"}))
        assert said() == [(before,)]
        if not press.url.startswith("sqlite"):
            with psycopg.connect(press.url) as other:
                other.execute("select 1 from holdfast.lease for update")
                store.run(engine.progress({(seq, epoch): "it would wait"}))
            assert said() == [(before,)]
        store.run(engine.progress({(seq, epoch): "new"}))
        assert said() == [("new",)]
        press.go.set()


async def test_it_is_sealed_where_there_are_keys(url: str) -> None:
    press = Press(url, {"keys": new_key("one")})
    press.app.prepare()
    press.app.orchestrations.start(press.book, 10, id="b")
    async with press.worker():
        await until(lambda: press.app.operations.orchestrations.show("b").progress)
        ((text,),) = state.query(press.app.store, "select progress from {lease} where progress is not null")
        assert "pages" not in text
    press.app.close()


async def test_a_handler_that_is_no_activity_is_refused(url: str) -> None:
    app, told = Holdfast(url), list[str]()

    @app.handler("job")
    async def job(body: int, ctx: Context) -> None:
        try:
            ctx.progress(1, 2)
        except UsageError as error:
            told.append(str(error))

    app.publish("job", 1)
    await app.worker(until_idle=True).run()
    await app.store.aclose()
    app.close()
    assert told == ["Handler 'job' is not an activity: nobody would see its progress."]


@pytest.mark.parametrize(
    ("done", "total", "note"),
    [(-1, None, ""), (float("nan"), None, ""), (True, None, ""), ("1", None, ""), (None, None, ""),
     (1, 0, ""), (1, -1, ""), (1, float("inf"), ""), (1, 2, "x" * 201), (1, 2, None)],
)  # fmt: skip
def test_nonsense_is_refused(done: Any, total: Any, note: Any) -> None:
    with pytest.raises(UsageError, match=r"ctx\.progress"):
        progress(done, total, note)


def test_more_than_the_whole_fills_the_bar() -> None:
    assert Progress(12, 10).share == 1.0
    assert str(Progress(12, 10)) == "12 of 10 (100 %)"


def test_what_could_not_be_stored_is_kept_unless_something_newer_was_said() -> None:
    notes = ProgressNotes()
    notes.report((1, 1), lambda: "old")
    notes.report((2, 1), lambda: "two")
    taken = notes.take()
    notes.report((1, 1), lambda: "new")
    notes.put_back(taken)
    assert {fence: text() for fence, text in notes.take().items()} == {(1, 1): "new", (2, 1): "two"}
    assert notes.take() == {}


async def test_a_beat_that_fails_tells_it_with_the_next(
    press: Press, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = asyncio.Event()
    real = type(press.app.store).run

    def run(store: Any, plan: Any) -> Any:
        if getattr(plan, "name", "") == "renew" and press_says(press) and not failed.is_set():
            failed.set()
            raise StoreUnavailable("away")
        return real(store, plan)

    monkeypatch.setattr(type(press.app.store), "run", run)
    press.app.orchestrations.start(press.book, 10, id="b")
    async with press.worker():
        assert await until(lambda: press.app.operations.orchestrations.show("b").progress)
    assert failed.is_set()


def press_says(press: Press) -> bool:
    return bool(
        state.query(
            press.app.store, "select 1 from {lease} l join {message} m using (seq) where m.queue = 'convert'"
        )
    )
