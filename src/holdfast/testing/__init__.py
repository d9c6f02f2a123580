"""For the tests of those who use Holdfast: a database of its own, a clock moved by hand, and draining."""

from __future__ import annotations

import asyncio
import inspect
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ParamSpec, Protocol, Unpack
from uuid import uuid4

from ..bodies import codec
from ..clock import Clock, Duration, MovableClock
from ..errors import UsageError
from ..handlers.registry import Handlers
from ..model import names
from ..model.message import NewMessage
from ..model.schedule import Fired, Occurrence, occurrence_of
from ..operations import Operations
from ..operations.results import Letter
from ..orchestrations.declared import Activity
from ..orchestrations.declaring import Declaring
from ..orchestrations.files import SavedJournal
from ..publishing import Publishing
from ..schedules import zones
from ..store import Store
from ..store.plans import queries
from ..worker.loop import Worker
from .journals import journal_of, replay
from .outcomes import Failed, Outcomes, PublishedMessage, Summary

P = ParamSpec("P")

__all__ = [
    "Application",
    "Drained",
    "Failed",
    "MovableClock",
    "PublishedMessage",
    "Summary",
    "replay",
    "testing",
]

LETTERS_MAX = 1000
_JSON = codec.decoder_for()
SCHEMA = "holdfast_test_"


class Application(Protocol):
    """The parts of an application that a test needs."""

    @property
    def _declaring(self) -> Declaring: ...
    @property
    def store(self) -> Store: ...
    @property
    def handlers(self) -> Handlers: ...
    @property
    def publishing(self) -> Publishing: ...

    _hear_fired: Callable[[Fired], None] | None

    @property
    def operations(self) -> Operations: ...
    def prepare(self) -> None: ...
    def worker(self, *, until_idle: bool) -> Worker: ...
    def moved(self, url: str, clock: Clock) -> AbstractContextManager[None]: ...


class Drained:
    """An application under test: publish, `drain()`, look at the result; `advance()` the clock and drain again."""

    def __init__(self, app: Application, clock: MovableClock) -> None:
        self.app, self.clock = app, clock
        self._made: list[NewMessage] = []
        self._fired: list[Occurrence] = []

    def fake(self, activity: Activity[P, Any], answer: Any) -> None:
        """Replace calls of an activity in this test: by a function of its input, or a value.

        `t.fake(charge, Receipt("r-1"))`, `t.fake(charge, lambda order: ...)`, `t.fake(charge, CardDeclined())`.
        """
        if not isinstance(activity, Activity):
            raise UsageError(
                f"Nothing was replaced: {ascii(activity)[:100]} is no activity. Give the function that "
                "@app.activity() declares."
            )
        function: Callable[..., Any]
        if isinstance(answer, BaseException) or (
            isinstance(answer, type) and issubclass(answer, BaseException)
        ):

            def function(*given: Any, **more: Any) -> Any:
                raise answer

        elif callable(answer):
            function = answer
        else:

            def function(*given: Any, **more: Any) -> Any:
                return answer

        async def awaited(*given: Any, **more: Any) -> Any:
            found = function(*given)
            return await found if inspect.isawaitable(found) else found

        is_async = inspect.iscoroutinefunction(activity.function)
        fake = awaited if is_async else lambda *given, **more: function(*given)
        self.app._declaring.fakes[activity.name] = fake

    def forget(self) -> None:
        """Drop every instance from memory, as a restart would. In tests each turn replays its journal anyway."""
        self.app._declaring.place.memory.forget()

    def journal(self, id: str, *, execution: int | None = None) -> SavedJournal:
        """The journal of an instance. `t.journal("order-1").save("tests/journals")` makes a test of it."""
        return journal_of(self.app, id, execution)

    def drain(self, *, raises: bool = True) -> Summary:
        """Run handlers until nothing is claimable at the time of the clock, even if some fail.

        Then raise an ExceptionGroup of the messages that died or wait for a retry. A message that failed and was
        handled by a later attempt of the same drain is fine, and so are Snooze and Dead, which a handler asks for
        itself. `raises=False`: the summary counts them.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self.adrain(raises=raises))
        raise UsageError("drain() was called in async code, where it would block the loop: await t.adrain().")

    async def adrain(self, *, raises: bool = True) -> Summary:
        """Like `drain`, for async tests."""
        self.app.prepare()
        worker = self.app.worker(until_idle=True)
        outcomes = worker.endings.hear = Outcomes()
        await worker.run()
        if raises and (errors := outcomes.errors()):
            raise ExceptionGroup(outcomes.headline(), errors)
        return outcomes.summary()

    def advance(self, **by: Unpack[Duration]) -> None:
        """Move the clock forward: `t.advance(minutes=5)`."""
        self.clock.advance(**by)

    @property
    def dead(self) -> Sequence[Letter]:
        """The dead letters, oldest first."""
        return self.app.operations.dead.list(newest=False, limit=LETTERS_MAX)

    def published(self, type: str | None = None) -> list[PublishedMessage]:
        """The messages that this application has published since the test began, of one type or of all, in order.

        By `publish` and by `ctx.publish`. Messages that were rolled back, or were duplicates, are not included, nor
        those that were stored with plain SQL.
        """
        wanted = [each for each in self._made if type is None or each.type == type]
        return [_as_published(each) for each in wanted if self._is_stored(each)]

    def _is_stored(self, message: NewMessage) -> bool:
        return any(self.app.store.read(queries.show(message.id)))

    def fired(self, name: str | None = None) -> list[Occurrence]:
        """Which occurrences have fired since the test began, of one schedule or of all: `t.fired("nightly")`."""
        return [each for each in self._fired if name is None or each.name == name]

    def hear(self, fired: Fired) -> None:
        """This occurrence was fired."""
        found = occurrence_of(codec.decode_headers(fired.headers))
        assert found is not None
        self._fired.append(found)

    def record(self, message: NewMessage) -> None:
        """This message was made; whether it is stored is seen later."""
        self._made.append(message)


def moment(at: datetime | str) -> datetime:
    """The time at which a test begins."""
    if isinstance(at, str):
        return zones.moment(at)
    if at.tzinfo is None:
        raise UsageError(
            f"at={at!r} has no time zone: give datetime(..., tzinfo=UTC), or a text with a zone."
        )
    return at.astimezone(UTC)


def _as_published(message: NewMessage) -> PublishedMessage:
    return PublishedMessage(
        id=message.id,
        type=message.type,
        body=_JSON(message.body),
        stream=message.stream,
        subject=message.subject,
        headers=codec.decode_headers(message.headers),
        queue=message.queue,
        due_at=message.due_at,
        delay=message.delay,
    )


class Strict:
    """Refuses messages without a handler: in a test, a type or queue with a typing error is an error."""

    def __init__(self, handlers: Handlers, elsewhere: Iterable[str]) -> None:
        self.handlers = handlers
        self.elsewhere = [names.pattern(each) for each in elsewhere]

    def check(self, message: NewMessage) -> None:
        if message.queue is not None:
            known = message.queue in self.handlers or self._is_elsewhere(message.queue)
            what, there = f"the queue {message.queue!r}", [each.queue for each in self.handlers]
        else:
            there = sorted({pattern for each in self.handlers for pattern in each.patterns})
            known = message.event or any(names.matches(each, message.type) for each in there)
            known = known or self._is_elsewhere(message.type)
            what = f"the type {message.type!r}"
        if not known:
            raise UsageError(
                f"Nothing was published: no handler of this application has {what}; there are: "
                f"{', '.join(there) or 'none'}. If another application handles it, say so: "
                f"app.testing(elsewhere=[{(message.queue or message.type)!r}])."
            )

    def _is_elsewhere(self, name: str) -> bool:
        return any(names.matches(each, name) for each in self.elsewhere)


@contextmanager
def testing(
    app: Application, url: str | None, elsewhere: Iterable[str], at: datetime | str | None
) -> Iterator[Drained]:
    clock = MovableClock() if at is None else MovableClock(moment(at))
    strict = Strict(app.handlers, elsewhere)
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder, app.moved(_place(url, folder), clock):
        drained, declaring = Drained(app, clock), app._declaring
        memory = declaring.place.memory
        memory.forget()
        memory.forgets = True

        def made(message: NewMessage) -> None:
            strict.check(message)
            drained.record(message)

        app.publishing.made, app._hear_fired = made, drained.hear
        try:
            if not app.store.is_embedded:
                app.store.migrate()
            yield drained
        finally:
            memory.forgets, app._hear_fired = False, None
            declaring.fakes.clear()
            if not app.store.is_embedded:
                app.store.drop()


def _place(url: str | None, folder: str) -> str:
    """A file in the folder, or the database that was given; on PostgreSQL with a schema of its own."""
    if url is None:
        return f"sqlite:///{Path(folder) / 'test.db'}"
    clean, _ = names.database_url(url)
    if clean.startswith("sqlite:"):
        return clean
    return f"{clean}{'&' if '?' in clean else '?'}schema={SCHEMA}{uuid4().hex[:12]}"
