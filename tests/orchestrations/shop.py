"""An application on the real engine, with activities, for tests of orchestrations on both databases."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg

from holdfast import Dead, Holdfast, RetryPolicy
from holdfast.clock import MovableClock
from tests.store import state
from tests.store.state import check_invariants

ONCE = RetryPolicy(attempts_max=1)


class CardDeclined(Exception):
    pass


@dataclass
class Shop:
    """An application with activities, a clock that stands, and what its activities did."""

    url: str
    options: dict[str, Any] = field(default_factory=dict)
    clock: MovableClock = field(default_factory=MovableClock)

    def __post_init__(self) -> None:
        self.app = app = Holdfast(self.url, clock=self.clock, **self.options)
        self.did: list[Any] = []

        @app.activity()
        async def double(n: int) -> int:
            self.did.append(n)
            return 2 * n

        @app.activity(retry=ONCE, returns={"CardDeclined": CardDeclined})
        def decline(why: str) -> None:
            raise CardDeclined(why)

        @app.activity()
        async def dies() -> None:
            raise Dead("no such customer")

        self.double, self.decline, self.dies = double, decline, dies

    @property
    def of(self) -> Any:
        return self.app.orchestrations

    def drain(self, *queues: str) -> None:
        """Run what is claimable, of all queues or of these."""
        self.app.prepare()
        asyncio.run(self._drain(queues))

    async def _drain(self, queues: tuple[str, ...]) -> None:
        try:
            await self.app.worker(until_idle=True, queues=queues or None).run()
        finally:
            await self.app.store.aclose()  # connections belong to the loop that ends here

    def advance(self, **by: float) -> None:
        self.clock.advance(**by)
        self.drain()

    def forget(self) -> None:
        self.of.place.memory.forget()

    def query(self, text: str) -> list[tuple[Any, ...]]:
        return state.query(self.app.store, text)

    def execute(self, text: str) -> None:
        """SQL past the engine."""
        with self.connection() as db:
            db.execute(text)
            db.commit()

    def connection(self) -> Any:
        if self.url.startswith("sqlite"):
            return sqlite3.connect(self.url.removeprefix("sqlite:///"))
        return psycopg.connect(self.url)

    @property
    def prefix(self) -> str:
        return "holdfast_" if self.url.startswith("sqlite") else "holdfast."


@contextmanager
def opened(url: str, **settings: Any) -> Iterator[Shop]:
    """A shop; when it is closed, what its tables hold must fit together."""
    shop = Shop(url, settings)
    yield shop
    shop.forget()
    check_invariants(shop.app.store)
    shop.app.close()
