"""What falls due by the clock: the steps that any worker runs as part of its turn, when their time has come.

A step looks for what is due, does a bounded part of it in one commit and returns when the next thing falls due. There
is no leader and no second loop: each worker remembers when each step has something to do, and looks once a second
anyway. Steps block, so they run in a thread of their own while the loop continues with handlers, heartbeats and
results. While a worker has work, its exchanges do not wait for them either. A step that fails is logged and rests; the
others run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from ..clock import Clock
from ..errors import StoreTooSlow, StoreUnavailable
from ..model.work import Ticked
from ..rules.rhythm import LOOKS_EVERY, Beat
from ..telemetry.logs import Log

Step: TypeAlias = Callable[[], Ticked]
Answers: TypeAlias = list[tuple[str, Ticked | Exception]]
log = Log("holdfast.worker")


class Ticking:
    """The steps of one worker, by name, and when each runs again."""

    def __init__(
        self, steps: Mapping[str, Step], clock: Clock, brought: Callable[[Iterable[str]], None]
    ) -> None:
        self.steps, self.clock = steps, clock
        self.brought = brought  # called with the queues that got messages which became claimable in the past
        self._beats = {name: Beat() for name in steps}
        self._thread: ThreadPoolExecutor | None = None
        self._going: asyncio.Future[Answers] | None = None  # steps that run beside the exchanges
        self._looks_again = False  # what they answer does not know of something that was changed meanwhile

    @property
    def is_due(self) -> bool:
        """Whether a step is to be run, or one that runs beside the exchanges has ended."""
        if self._going is not None:
            return self._going.done()
        now = self.clock.monotonic()
        return any(beat.is_due(now) for beat in self._beats.values())

    @property
    def is_quiet(self) -> bool:
        """Whether no step did anything when it ran last."""
        return self._going is None and all(beat.is_quiet for beat in self._beats.values())

    @property
    def due_in(self) -> float:
        """Seconds until the first step runs again."""
        if self._going is not None:  # its end wakes the worker
            return LOOKS_EVERY
        now = self.clock.monotonic()
        return min((max(0.0, beat.at - now) for beat in self._beats.values()), default=LOOKS_EVERY)

    def wake(self) -> None:
        """Look at the next turn: something may have been changed that is due earlier."""
        self._looks_again = self._going is not None
        for beat in self._beats.values():
            beat.wake()

    async def tick(self, beside: Callable[[], None] | None = None) -> None:
        """Run the steps whose time has come, once each.

        `beside`: do not wait for them. It is called when they have ended, and the next call takes what they answered:
        what they say about queues holds for the exchanges after that, and not for one that is in flight.
        """
        if self._going is not None:
            if beside is None:
                await self.over()
            if not self._going.done():
                return
            self._take()
        now = self.clock.monotonic()
        names = [name for name, beat in self._beats.items() if beat.is_due(now)]
        if not names:
            return
        self._going = self._begun(names)
        if beside is not None:
            self._going.add_done_callback(lambda _: beside())
            return
        await self.over()
        self._take()

    async def over(self) -> None:
        """Wait for steps that run beside the exchanges."""
        if self._going is not None:
            await asyncio.wait((self._going,))

    def _take(self) -> None:
        assert self._going is not None
        answers, self._going = self._going.result(), None
        for name, answer in answers:
            self._run(name, self._beats[name], answer)
        if self._looks_again:
            self.wake()

    def _begun(self, names: list[str]) -> asyncio.Future[Answers]:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-tick")
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._thread, lambda: [(name, self._try(name)) for name in names])

    def tick_here(self) -> None:
        """The same for a worker without a loop: it blocks."""
        for name, beat in self._beats.items():
            if beat.is_due(self.clock.monotonic()):
                self._run(name, beat, self._try(name))

    def _try(self, name: str) -> Ticked | Exception:
        try:
            return self.steps[name]()
        except Exception as error:
            return error

    def _run(self, name: str, beat: Beat, answer: Ticked | Exception) -> None:
        now = self.clock.monotonic()
        if isinstance(answer, Exception):
            beat.broke(now)
            # While the database is away, the exchange that follows reports it and waits.
            if not isinstance(answer, StoreUnavailable) or isinstance(answer, StoreTooSlow):
                log.error(
                    "tick.failed",
                    "%(step)s failed and is tried again in %(seconds)d s: %(error)s",
                    step=name,
                    seconds=round(beat.at - now),
                    error=answer,
                )
            return
        beat.ticked(now, answer.did, None if answer.next_at is None else _seconds(answer), answer.lost)
        if answer.queues:
            self.brought(answer.queues)

    def close(self) -> None:
        """Wait for a step that is running."""
        if self._thread is not None:
            self._thread.shutdown(wait=False)


def _seconds(answer: Ticked) -> float:
    assert answer.next_at is not None
    return (answer.next_at - answer.now).total_seconds() + (0.0005 if answer.next_at > answer.now else 0.0)
