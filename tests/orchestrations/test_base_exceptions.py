"""SystemExit, KeyboardInterrupt and the like, raised by the code: a failure of its message, not the worker's end."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from holdfast import Flow, Holdfast, OrchestrationFailed, RetryPolicy
from holdfast.clock import MovableClock
from tests.orchestrations.shop import ONCE, Shop


class Rude(BaseException):
    pass


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise Rude


def drained_beside_the_main_thread(app: Holdfast) -> None:
    """By a worker in a thread, where no Ctrl+C ever comes."""
    ends: list[BaseException] = []

    async def run() -> None:
        try:
            await app.worker(until_idle=True).run()
        finally:
            await app.store.aclose()

    def work() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:
            ends.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ends == []


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, Rude])
def test_what_the_code_raises_fails_its_instance_and_not_the_worker(
    shop: Shop, kind: type[BaseException]
) -> None:
    app = shop.app

    def raises() -> int:
        raise kind

    @app.activity(retry=ONCE)
    async def by_queue() -> int:
        return raises()

    @app.activity(retry=ONCE)
    def in_thread() -> int:
        return raises()

    async def own(flow: Flow) -> int:
        return raises()

    async def task(flow: Flow) -> int:
        async def other() -> int:
            return raises()

        return await asyncio.create_task(other())

    async def once(flow: Flow) -> int:
        return flow.once(raises)

    async def called(flow: Flow) -> int:
        return await by_queue()

    async def called_in_thread(flow: Flow) -> int:
        return await in_thread()

    async def inline(flow: Flow) -> int:
        return await by_queue.using(inline=True)()

    async def inline_in_thread(flow: Flow) -> int:
        return await in_thread.using(inline=True)()

    async def ahead(flow: Flow) -> int:
        await shop.double(1)
        return raises()

    codes: list[Callable[[Flow], Any]] = [
        own, task, once, called, called_in_thread, inline, inline_in_thread, ahead,
    ]  # fmt: skip
    app.prepare()
    for code in codes:
        shop.of.start(app.orchestration()(code), id=code.__name__)
    drained_beside_the_main_thread(app)

    for code in codes:
        with pytest.raises(OrchestrationFailed, match=kind.__name__):
            shop.of.result(code.__name__)


def test_a_callback_that_raises_stops_nobody(shop: Shop) -> None:
    def raises(_: object) -> None:
        raise Rude

    @shop.app.orchestration()
    async def code(flow: Flow) -> int:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        future.add_done_callback(raises)
        future.set_result(1)
        return await shop.double(await future)

    shop.of.start(code, id="x")
    shop.drain()

    assert shop.of.result("x") == 2


def test_an_exception_that_cannot_be_read_is_a_failure_like_any_other(shop: Shop) -> None:
    @shop.app.orchestration()
    async def at_once(flow: Flow) -> int:
        raise Unspeakable

    @shop.app.orchestration()
    async def ahead(flow: Flow) -> int:
        await shop.double(1)
        raise Unspeakable

    shop.of.start(at_once, id="at once")
    shop.of.start(ahead, id="ahead")
    shop.drain()

    for id in ("at once", "ahead"):
        with pytest.raises(OrchestrationFailed, match="Unspeakable"):
            shop.of.result(id)


def test_ctrl_c_in_an_application_ends_its_worker_and_costs_the_message_a_start(tmp_path: Any) -> None:
    """In the main thread of somebody else's process it is not known who has raised it."""
    clock = MovableClock()
    with closing(Holdfast(f"sqlite:///{tmp_path / 'x.db'}", clock=clock)) as app:

        @app.orchestration()
        async def code(flow: Flow) -> int:
            raise KeyboardInterrupt

        app.prepare()
        app.orchestrations.start(code, id="x")
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with pytest.raises(KeyboardInterrupt):
                asyncio.run(app.worker(until_idle=True).run())
        finally:
            signal.signal(signal.SIGINT, before)
        assert app.orchestrations.status("x").state == "running"


def test_a_batch_handler_in_a_thread_fails_its_messages(url: str) -> None:
    with closing(Holdfast(url)) as app:

        @app.handler("many", batch=10, retry=RetryPolicy(attempts_max=1))
        def many(bodies: list[int]) -> None:
            raise KeyboardInterrupt

        app.prepare()
        app.publish("many", 1)
        drained_beside_the_main_thread(app)

        assert len(app.operations.dead.list()) == 1
