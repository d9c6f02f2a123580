"""The worker's exchanges with the store: one at a time, also when the connection is lost.

The worker waits for a database that does not answer, or refuses for a while; `store/moments.py` says which errors pass.
An answer that was lost leaves two questions: what of the report was stored, and what was handed out that this worker
does not know of. Our leases in the store answer both (`_reconcile`). If the database refuses something for good, for
example what a handler emitted, it is found by halving and fails alone. A report that takes too long is halved as well,
without a failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import msgspec

from ..clock import Clock
from ..errors import NotMigrated, StoreTooSlow, StoreUnavailable
from ..handlers.consumer import ends_more
from ..model.work import Batch, Report, Settlement
from ..rules import delivery, holding
from ..rules.delivery import Ending, give_back
from ..rules.lanes import Fence, Lane, Stop, stamped
from ..rules.ordering import rest_of_run
from ..rules.pacing import Pacing
from ..store import Store
from ..store.given import taken
from ..store.moments import moment_of
from ..store.plans import engine
from ..telemetry.logs import Log
from .calls import Calls
from .endings import Endings, with_left
from .trouble import Trouble

log = Log("holdfast.worker")

PAUSE_MIN = 0.05
PAUSE_MAX = 2.0
CULPRIT_WAITS = 60.0  # seconds, for a message that cannot be settled at all
CONFLICTS_MAX = 20  # serialization failures in a row that are tried again at once
PORTION_MIN = 1 / 1024
GROWS_AFTER = 20  # leases without a statement that took too long, after which exchanges grow again
CHANGES_MAX = 3  # tries of a statement during which a migration changed the schema


class Exchanges:
    """Hands in reports and receives the answers, for one worker."""

    def __init__(
        self,
        store: Store,
        pacing: Pacing,
        calls: Calls,
        endings: Endings,
        clock: Clock,
        meet: Callable[[Batch], None],
        landed: asyncio.Event,
        patient: Callable[[], bool],
        trouble: Trouble,
    ) -> None:
        self.store, self.pacing, self.calls, self.endings, self.clock = store, pacing, calls, endings, clock
        self.meet = meet  # called with queues of families that this worker has not known until now
        self.landed = landed  # set while no exchange is on its way
        self.patient = patient  # whether there is still time to wait for the database
        self.trouble = trouble
        self.unanswered: Report | None = None
        self.portion = 1.0  # of an exchange: below 1 when whole ones take too long
        self._pause = PAUSE_MIN
        self._slow_at = 0.0

    async def exchange(self, report: Report, asked_at: float) -> Batch:
        """Hand in and receive; StoreUnavailable only when there is no time left to wait for the database."""
        self.unanswered, batch, asked = report, None, report
        self.landed.clear()
        try:
            while batch is None:
                asked = report if self.portion == 1.0 else portioned(report, self.portion)
                try:
                    batch = await self._whole_or_in_parts(asked)
                except StoreUnavailable as error:
                    report = await self._reconcile(report, error)
                    asked_at = self.clock.monotonic()
        finally:
            self.landed.set()
        self.endings.forget(settlement.leased.message.seq for settlement in self.unanswered.settlements)
        self.unanswered = None
        self.meet(batch)
        self.lose(self.pacing.receive(asked, batch, asked_at))
        if self._pause > PAUSE_MIN:
            self._pause = PAUSE_MIN
            self.trouble.over("exchange")
        if self.portion < 1.0:
            self._grow()
        return batch

    def _grow(self) -> None:
        """Make exchanges larger after a long time without trouble: a try that fails costs a whole statement timeout."""
        if self.clock.monotonic() - self._slow_at < GROWS_AFTER * self.pacing.settings.lease:
            return
        self.portion = min(1.0, self.portion * 2)
        if self.portion == 1.0:
            log.warning("exchange.whole", "Exchanges are made whole again")

    async def finish(self) -> None:
        """Find out which part of an interrupted exchange was stored, and hand in the rest."""
        if self.unanswered is not None:
            report = replace(self.unanswered, want=[], looks=[], total=0)
            settlements, moves = await self._look(report.worker)
            await self.exchange(replace(report, settlements=settlements, moves=moves), self.clock.monotonic())

    async def _whole_or_in_parts(self, report: Report) -> Batch:
        try:
            return await self.once(report)
        except StoreTooSlow as error:
            self.too_slow(error)
            return await Refusal(self, portioned(report, 0.5)).resolve()
        except (StoreUnavailable, NotMigrated):
            raise
        except Exception:
            if not report.settlements:
                raise
            return await Refusal(self, report).resolve()

    async def once(self, report: Report) -> Batch:
        tries = 0
        while True:
            try:
                return await self.store.arun(engine.exchange(report))
            except Exception as error:
                tries += 1
                # Another message was being stored with the id of an emitted one: the next try finds that message.
                is_taken = taken(error) is not None and tries <= CONFLICTS_MAX
                match "again" if is_taken else moment_of(error):
                    case "again" if tries > CONFLICTS_MAX:
                        raise StoreUnavailable(
                            f"An exchange was in conflict with others {tries} times."
                        ) from error
                    case "changed" if tries >= CHANGES_MAX:
                        raise
                    case "again" | "changed":
                        await asyncio.sleep(0.001 * tries)
                    case _:
                        raise

    def too_slow(self, error: StoreTooSlow) -> None:
        """Make the next exchanges smaller: the same one would time out again."""
        if self.portion == 1.0:
            log.warning(
                "exchange.too_slow",
                "An exchange took longer than the database allows; it is done in smaller parts: %(error)s",
                error=error,
            )
        self._slow_at = self.clock.monotonic()
        self.trouble.timeouts += 1
        self.portion = max(PORTION_MIN, self.portion / 2)

    async def _reconcile(self, report: Report, error: StoreUnavailable) -> Report:
        """What is still leased was not settled and is handed in again; work that never arrived is given back."""
        while True:
            self.trouble.met("exchange", error)
            if not self.patient():
                raise error
            await asyncio.sleep(self._pause)
            self._pause = min(self._pause * 2, PAUSE_MAX)
            try:
                settlements, moves = await self._look(report.worker)
                return replace(report, settlements=settlements, moves=moves)
            except StoreUnavailable as again:
                error = again
            except Exception as failure:
                if moment_of(failure) != "again":
                    raise
                error = StoreUnavailable(f"Where our leases stand could not be read: {failure}")

    async def _look(self, number: int) -> tuple[list[Settlement], list[tuple[int, int]]]:
        """Read our leases: returns what was not stored, and gives back what never arrived here."""
        self.calls.unpack()  # so that all received work is known
        asked = holding.where(self.pacing)
        standing = await self.store.arun(engine.standing(number))
        standing |= holding.moved_since(asked)  # handlers may have committed meanwhile
        settlements, moves, lost = holding.reconcile(self.pacing, standing)
        self.lose(lost)
        known = holding.known(self.pacing, standing)
        await self.store.arun(engine.recover(worker=number, known=known))
        return settlements, moves

    def lose(self, lanes: list[Lane]) -> None:
        for lane in lanes:
            log.warning(
                "lease.lost",
                "The lease of a message of %(queue)s was lost to another worker",
                queue=lane.queue,
            )
            self.calls.stop(lane, Stop.LOST)


class Refusal:
    """An exchange that the database refused: handed in again in parts, until the message at fault is alone.

    Guesses are left out. An activity is not to blame for a turn that was run ahead.
    """

    def __init__(self, exchanges: Exchanges, report: Report) -> None:
        self.exchanges, self.report = exchanges, report
        self.moves = dict(report.moves)
        self.lanes: dict[Fence, list[Settlement]] = {}
        for each in map(without_guess, report.settlements):
            self.lanes.setdefault((each.leased.run, each.leased.run_epoch), []).append(each)
        self.lost: set[int] = set()

    async def resolve(self) -> Batch:
        """Hand in what the database accepts, then ask for work."""
        if self.lanes:
            await self._hand_in(list(self.lanes))
        ask = replace(self.report, settlements=(), moves=())
        while True:
            try:
                batch = await self.exchanges.once(ask)
                return replace(batch, lost=frozenset(self.lost))
            except StoreTooSlow as error:
                self.exchanges.too_slow(error)
                if ask.total <= 1:  # it cannot be smaller: wait
                    raise
                ask = portioned(ask, 0.5)

    async def _hand_in(self, lanes: list[Fence]) -> None:
        settlements = [each for lane in lanes for each in self.lanes[lane]]
        refusal = await self._refused(
            settlements, [(run, self.moves[run]) for run, _ in lanes if run in self.moves]
        )
        if refusal is None:
            return
        if len(lanes) == 1:
            if isinstance(refusal, StoreTooSlow) and len(settlements) == 1:
                raise refusal  # one message, and the error is not its fault: wait
            await self._one_by_one(lanes[0], refusal)
            return
        await self._hand_in(lanes[: len(lanes) // 2])
        await self._hand_in(lanes[len(lanes) // 2 :])

    async def _one_by_one(self, lane: Fence, refusal: Exception | None) -> None:
        """The messages of one lane, each under the lease that the one before leaves. The first refused one fails."""
        fence, members = lane, self.lanes[lane]
        if len(members) > 1 and any(each.delta is not None for each in members):
            await self._give_back(lane, members, refusal)
            return
        for n, member in enumerate(members):
            rest = members[n + 1 :]
            following = rest[0].leased.message.seq if rest else self.moves.get(lane[0])
            moves = [] if following is None else [(fence[0], following)]
            if len(members) > 1:
                refusal = await self._refused(stamped(fence, [member]), moves)
            if isinstance(refusal, StoreTooSlow):
                raise refusal
            if refusal is not None and not await self._fail(fence, member, refusal, rest, moves):
                if lane[0] in self.moves:  # what runs now started after the one that failed
                    self.lost.add(lane[0])
                return
            if rest:
                fence = (rest[0].leased.message.seq, rest[0].leased.epoch)

    async def _give_back(self, lane: Fence, members: list[Settlement], refusal: Exception | None) -> None:
        """A run that is a unit, the turn of an orchestration: all of it comes again, each message in its own call."""
        assert refusal is not None
        if isinstance(refusal, StoreTooSlow):
            raise refusal
        self._log_refusal(members[0], refusal)
        again = [
            await self._failed(each, delivery.BatchFailed(delivery.Raised(refusal, each.flags, each.ran)))
            for each in members
        ]
        if await self._refused(stamped(lane, again), []) is not None:
            waits = [give_back(each.leased, CULPRIT_WAITS) for each in members]
            await self._once(stamped(lane, waits), [])

    async def _failed(self, settlement: Settlement, ending: Ending) -> Settlement:
        """The settlement of a failure; for a death, with what its consumer stores besides."""
        leased, endings = settlement.leased, self.exchanges.endings
        consumer = endings.consumers[leased.message.queue]
        more = await consumer.left(leased, ending) if ends_more(consumer) else None
        concluded = self._concluded(settlement, ending)
        found = concluded if more is None else with_left(concluded, more)
        assert found is not None
        return found

    def _log_refusal(self, member: Settlement, refusal: Exception) -> None:
        log.error(
            "settlement.refused",
            "The database refused to settle message %(message_id)s: %(error)s",
            message_id=member.leased.message.id,
            type=member.leased.message.type,
            queue=member.leased.message.queue,
            error=type(refusal).__name__,
        )

    async def _fail(
        self,
        fence: Fence,
        member: Settlement,
        refusal: Exception,
        rest: list[Settlement],
        moves: list[tuple[int, int]],
    ) -> bool:
        """Settle the message as failed. False: its stream stops here, and what ran behind it runs again."""
        failed = await self._failed(member, delivery.Raised(refusal, member.flags, member.ran))
        self._log_refusal(member, refusal)
        if rest_of_run(failed) == "continue" and await self._refused(stamped(fence, [failed]), moves) is None:
            return True
        again = [self._concluded(each, delivery.Interrupted(each.flags, each.ran)) for each in rest]
        if await self._refused(stamped(fence, [failed, *again]), []) is not None:
            # Its failure cannot be stored either: it waits, and the other messages of this worker are settled.
            waits = give_back(member.leased, CULPRIT_WAITS)
            await self._once(stamped(fence, [waits, *again]), [])
        return False

    async def _refused(self, settlements: list[Settlement], moves: list[tuple[int, int]]) -> Exception | None:
        try:
            await self._once(settlements, moves)
        except StoreTooSlow as error:
            self.exchanges.too_slow(error)
            return error
        except StoreUnavailable:
            raise
        except Exception as refusal:
            return refusal
        return None

    async def _once(self, settlements: list[Settlement], moves: list[tuple[int, int]]) -> None:
        batch = await self.exchanges.once(Report(self.report.worker, settlements=settlements, moves=moves))
        self.lost |= batch.lost

    def _concluded(self, settlement: Settlement, ending: Ending) -> Settlement:
        concluded = self.exchanges.endings.concluded(settlement.leased, ending)
        assert concluded is not None
        return concluded


def without_guess(settlement: Settlement) -> Settlement:
    """The end of an activity with its answer, and without the turn that was run ahead."""
    if settlement.guess is None:
        return settlement
    emits = (*settlement.emits, settlement.guess.answer)
    return msgspec.structs.replace(settlement, emits=emits, guess=None)


def portioned(report: Report, portion: float) -> Report:
    """The same, asking for less. All results are handed in, unless the database refuses that."""
    want = [msgspec.structs.replace(each, heads=smaller(each.heads, portion)) for each in report.want]
    return replace(report, want=want, total=smaller(report.total, portion))


def smaller(count: int, portion: float) -> int:
    return max(1, int(count * portion)) if count else 0
