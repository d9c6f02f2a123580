"""The relay: sends the messages of a destination's queue to its broker, in the order of their streams.

It is what a worker makes of a destination (`Destination.for_worker`): a consumer that takes whole runs. A message is
done when the broker has confirmed it, and not before. A message without an answer is *unsent*: that costs nothing, and
it is sent again with the same id.

Besides sending, it maintains the connection (`attend`). Without a connection it is shut: its worker claims nothing for
it, and workers of other processes continue. A problem of every process (a blocked broker, a refused password, a missing
exchange) opens the destination's breaker as long as it lasts.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ..bodies.keys import Keys
from ..clock import Clock
from ..handlers.consumer import Limits
from ..limits.breakers import Breaker
from ..model.endpoint import Endpoint, Standing
from ..model.message import Reason
from ..model.work import Leased
from ..rules.breaker import State
from ..rules.delivery import Cancelled, Died, Ending, Raised, Returned, Sealed, Unsent, goes_alone
from ..rules.policy import HandlerPolicy
from ..rules.reconnect import LONG_AWAY, STEADY, Attempts, pause
from ..rules.redact import Masking
from ..telemetry import Watch
from ..telemetry.logs import Log
from ..telemetry.wire import SentBatch, SentFate
from .contract import (
    NOT_OPEN,
    Broken,
    Confirmed,
    Fate,
    Outgoing,
    Rejected,
    Sender,
    TooLarge,
    TransportBroken,
    Unknown,
    Unroutable,
)

if TYPE_CHECKING:
    from .destination import Destination

log = Log("holdfast.relay")

LOOK = 0.25  # seconds between looks at the connection
UNANSWERED = 1.0  # seconds until an unanswered message is sent again, if the connection is not broken
OUTAGE = 30.0  # seconds for which a breaker is opened; repeated while the outage lasts
OPENED_FOR = "relay: "  # the beginning of the reason of a breaker that a relay has opened


class Refused(Exception):
    """The broker refused a message."""


class NotRouted(Exception):
    """No queue of the broker takes a message at its address."""


class Relay:
    """One worker's relay of one destination: its connections, and the calls that send."""

    def __init__(self, destination: Destination, clock: Clock) -> None:
        self._of, self._clock = destination, clock
        self._line = _Line(destination.sender(), destination.queue, clock, destination.attempts)
        # For messages that have failed before: they may cost others their channel.
        self._aside = destination.sender()
        self._aside_turn = asyncio.Lock()
        self._reported_at = float("-inf")  # when the breaker was last informed of an outage
        self.tried = asyncio.Event()
        self.watch: Watch | None = None

    def __repr__(self) -> str:
        return f"Relay({self.queue!r})"

    # -- what a worker asks

    @property
    def queue(self) -> str:
        return self._of.queue

    @property
    def endpoint(self) -> Endpoint:
        return self._of.endpoint

    def standing(self) -> Standing:
        """The state of its connection, for operators."""
        return self._line.standing()

    @property
    def is_family(self) -> bool:
        return False

    @property
    def patterns(self) -> tuple[str, ...]:
        return self._of.patterns

    @property
    def is_ordered(self) -> bool:
        return self._of.is_ordered

    @property
    def policy(self) -> HandlerPolicy:
        return self._of.policy

    @property
    def masking(self) -> Masking:
        return self._of.masking

    @property
    def keys(self) -> Keys | None:
        return self._of.keys

    @property
    def steps(self) -> Mapping[str, int]:
        return self._of.steps

    @property
    def is_async(self) -> bool:
        return True

    @property
    def batch(self) -> int:
        """A whole call may be in flight at once."""
        return max(1, min(self._of.batch, self._line.sender.limits.in_flight))

    def limits(self, queue: str) -> Limits:
        return self._of.limits_with(self._line)

    def but(self, policy: HandlerPolicy) -> Relay:
        return Relay(self._of.but(policy), self._clock)

    # -- sending

    async def call_runs(
        self, queue: str, runs: Sequence[Sequence[Leased]], ran: Callable[[], float]
    ) -> list[list[Ending]]:
        """Send all, in the order of each run, and return how each ended."""
        batch = _Batch(self._of, ran, is_watched=self.watch is not None)
        for run in runs:
            batch.add(run)
        is_alone = len(runs) == 1 and len(runs[0]) == 1 and goes_alone(runs[0][0])
        if not batch.outgoing:
            return batch.endings("")
        with suppress(asyncio.CancelledError):  # a time-out, or the worker stops: reported fates count
            if is_alone:
                await self._send_aside(batch)
            else:
                await self._line.send(batch.outgoing, batch.report)
        if self.watch is not None:
            self.watch.sent(batch.summary(runs))
        broken = self._line.sender.broken()
        if broken is None:
            return batch.endings("the broker has not answered", UNANSWERED)
        # Nothing is claimed here before it is repaired; other processes may take the messages at once.
        return batch.endings(broken.why)

    async def _send_aside(self, batch: _Batch) -> None:
        """On a connection of its own, opened when it is needed."""
        async with self._aside_turn:
            if self._line.sender.broken() is not None:
                return
            if self._aside.broken() is not None:
                try:
                    await self._aside.open()
                except TransportBroken:
                    return
            await self._aside.send(batch.outgoing, batch.report)

    # -- the connection

    async def attend(self, changed: asyncio.Event) -> None:
        """Open the connection, and again when it was lost; report problems of every process to the breaker."""
        try:
            while True:
                try:
                    if (is_open := await self._line.mend(changed)) is not None and self.watch is not None:
                        self.watch.connected("destination", self.queue, is_open=is_open)
                    self._inform_breaker(self._line.trouble())
                except Exception as error:  # ours, or the transport's: it is tried again soon
                    log.error(
                        "relay.failed",
                        "The connection of destination %(queue)s could not be looked after: %(error)s",
                        queue=self.queue,
                        error=f"{type(error).__name__}: {error}",
                    )
                self.tried.set()
                await self._line.rest()
        finally:
            await self._line.sender.close()
            await self._aside.close()

    def _inform_breaker(self, trouble: Broken | None) -> None:
        breaker = self._of.bounds.breaker
        if not isinstance(breaker, Breaker):
            return
        circuit, now = breaker.circuit, self._clock.monotonic()
        if trouble is not None and trouble.everyone:
            if now - self._reported_at >= OUTAGE / 3:
                self._reported_at = now
                circuit.outage(OUTAGE, f"{OPENED_FOR}{trouble.why}"[:200])
        elif trouble is None:
            self._reported_at = float("-inf")
            known = circuit.known
            is_ours = not known.forced and (known.why or "").startswith(OPENED_FOR)
            if known.state is not State.CLOSED and is_ours:
                circuit.mended(OPENED_FOR)


class _Line:
    """A connection that is opened again when it was lost; a `Door`."""

    def __init__(self, sender: Sender, queue: str, clock: Clock, attempts: Attempts | None = None) -> None:
        self.sender, self._queue, self._clock = sender, queue, clock
        self._attempts = attempts or Attempts()
        self._failed_at: float | None = None  # when the broker could not be reached, if that was the last try
        self._why: Broken | None = None  # why it could not be opened
        self._sending = 0
        self._under_way, self._answered = 0, asyncio.Event()  # messages of sends; set when one has ended
        self._failures = 0
        self._try_at = float("-inf")
        self._shut_at: float | None = None
        self._back_at: float | None = None
        self._since, self._tries = clock.monotonic(), 0  # in its state; tries to open it since it broke
        self._confirmed_at: float | None = None
        self._looked = asyncio.Event()

    # -- what the gate asks

    def is_open(self) -> bool:
        return self.sender.broken() is None

    def back_for(self, now: float) -> float | None:
        return None if self._back_at is None else now - self._back_at

    # -- sending

    async def send(self, batch: Sequence[Outgoing], report: Callable[[int, Fate], None]) -> None:
        is_confirmed = False

        def noted(index: int, fate: Fate) -> None:
            nonlocal is_confirmed
            if isinstance(fate, Confirmed):
                self._failures, is_confirmed = 0, True
            report(index, fate)

        self._sending += 1
        size = 0
        try:
            while self._under_way and self._under_way + len(batch) > self.sender.limits.in_flight:
                self._answered.clear()
                await self._answered.wait()
            size = len(batch)
            self._under_way += size
            await self.sender.send(batch, noted)
        finally:
            self._sending -= 1
            self._under_way -= size
            self._answered.set()
            if is_confirmed:
                self._confirmed_at = self._clock.monotonic()
            if self.sender.broken() is not None:
                self._looked.set()

    # -- looking after it

    def trouble(self) -> Broken | None:
        """Why nothing can be sent; the error of the last try to open it counts more than that it is not open."""
        broken = self.sender.broken()
        return None if broken is None else self._why or broken

    def standing(self) -> Standing:
        now, trouble = self._clock.monotonic(), self.trouble()
        last = None if self._confirmed_at is None else now - self._confirmed_at
        if trouble is None:
            return Standing("open", now - self._since, last_age=last)
        return Standing("broken", now - self._since, trouble.why, self._tries, last)

    async def rest(self) -> None:
        self._looked.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK):
                await self._looked.wait()

    async def mend(self, changed: asyncio.Event) -> bool | None:
        """Open it if it is broken, no send is in flight, and it is time. A sender never opens it by itself.

        Returns whether a try succeeded; None: there was no need for one.
        """
        now, broken = self._clock.monotonic(), self.sender.broken()
        if broken is None:
            self._opened(now, changed)
            return None
        if self._shut_at is None:
            self._shut(now, broken)
        # While a send is in flight its channel may be opened again. A blocked broker reports when it is unblocked.
        if self._sending or not self._attempts.may_try(now, self._try_at, self._failed_at):
            return None
        self._failures += 1
        self._tries += 1
        self._try_at = now + pause(self._failures, self._clock.roll())
        self._attempts.begin(now, self._clock.roll())
        try:
            await self.sender.open()
        except TransportBroken as error:
            self._failed_at = None if error.everyone else self._clock.monotonic()
            if error.everyone:
                self._attempts.reached(self._clock.monotonic())
            if self._why is None or self._why.why != error.why:
                log.warning(
                    "relay.shut",
                    "Destination %(queue)s cannot be used, and nothing is sent: %(error)s",
                    queue=self._queue,
                    error=error.why,
                )
            self._why = Broken(error.why, error.everyone)
            return False
        self._failed_at = None
        self._attempts.reached(self._clock.monotonic())
        if self.sender.broken() is None:
            self._opened(self._clock.monotonic(), changed)
        return True

    def _shut(self, now: float, broken: Broken) -> None:
        if now - self._since >= STEADY:
            self._failures = 0
        self._shut_at = self._since = now
        self._tries = 0
        self._try_at = now + pause(self._failures, self._clock.roll())
        if broken.everyone:  # it may pass by itself, and a new connection would not change it
            self._try_at = max(self._try_at, now + OUTAGE)
        if broken != NOT_OPEN:
            log.warning(
                "relay.shut",
                "Destination %(queue)s cannot be used, and nothing is sent: %(error)s",
                queue=self._queue,
                error=broken.why,
            )

    def _opened(self, now: float, changed: asyncio.Event) -> None:
        if self._shut_at is None:
            return
        away, self._shut_at, self._why = now - self._shut_at, None, None
        self._since, self._tries = now, 0
        if away > LONG_AWAY:
            self._back_at = now
        log.info(
            "relay.open",
            "Destination %(queue)s is connected, after %(seconds).1f s",
            queue=self._queue,
            seconds=away,
        )
        changed.set()


FATES: Mapping[type[Fate], SentFate] = {
    Confirmed: "confirmed",
    Rejected: "refused",
    TooLarge: "too_large",
    Unroutable: "unroutable",
    Unknown: "unanswered",
}


class _Batch:
    """The messages of one call: which of them are sent, and how each ended."""

    def __init__(self, destination: Destination, ran: Callable[[], float], *, is_watched: bool) -> None:
        self._of, self._ran = destination, ran
        self._fates: Counter[SentFate] = Counter()
        self._confirmed: list[float] = []
        self._is_watched = is_watched
        self._endings: list[list[Ending | None]] = []
        self._places: list[tuple[int, int]] = []
        self.outgoing: list[Outgoing] = []

    def add(self, run: Sequence[Leased]) -> None:
        """Prepare a run. Behind a message that keeps its place nothing of its stream is sent."""
        ended: list[Ending | None] = [None] * len(run)
        self._endings.append(ended)
        for index, leased in enumerate(run):
            made = self._of.outgoing(leased)
            if isinstance(made, Outgoing):
                self._places.append((len(self._endings) - 1, index))
                self.outgoing.append(made)
                continue
            ended[index] = made
            if isinstance(made, Sealed) or (isinstance(made, Died) and self._of.policy.on_dead == "halt"):
                break

    def report(self, index: int, fate: Fate) -> None:
        run, place = self._places[index]
        ran = self._ran()  # since the call began: the history keeps how long the confirm took
        self._endings[run][place] = ending_of(fate, ran)
        if self._is_watched:
            self._fates[FATES[type(fate)]] += 1
            if isinstance(fate, Confirmed):
                self._confirmed.append(ran)

    def summary(self, runs: Sequence[Sequence[Leased]]) -> SentBatch:
        """For watches: messages without a fate are unanswered."""
        unanswered = len(self.outgoing) - sum(self._fates.values())
        fates = dict(self._fates)
        if unanswered:
            fates["unanswered"] = fates.get("unanswered", 0) + unanswered
        headers = [each.message.headers for run in runs for each in run]
        of, began = self._of, self._ran()
        return SentBatch(of.queue, of.connector.name, of.to.text, fates, self._confirmed, began, headers)

    def endings(self, why: str, retry_in: float = 0.0) -> list[list[Ending]]:
        """How each ended; messages without a fate are unsent."""
        unsent = Unsent(why, retry_in, self._ran())
        return [[unsent if each is None else each for each in run] for run in self._endings]


def ending_of(fate: Fate, ran: float) -> Ending:
    """The meaning of the broker's answer for a message."""
    match fate:
        case Confirmed():
            return Returned(0, (), ran)
        case Rejected(reason, for_good=True):
            return Died(f"it cannot be sent: {reason}", 0, ran)
        case Rejected(reason):
            return Raised(Refused(f"The broker refused it: {reason}."), 0, ran)
        case Unroutable(reason):
            return Raised(NotRouted(f"Nobody takes it at its address: {reason}."), 0, ran)
        case TooLarge(reason):
            return Died(f"it cannot be sent: {reason}", 0, ran, Reason.PAYLOAD_TOO_LARGE)
        case Unknown(reason):
            return Unsent(reason, retry_in=UNANSWERED, ran=ran)


SKIPPED = Cancelled()  # it came through an inbox, and is not sent on
