"""The worker's conversation with the store: one exchange at a time, whatever becomes of the connection.

A database that does not answer is waited for. An answer that never came leaves two questions: what of the report was
done, and what was handed out that nobody here knows of. Where our leases stand answers both (`_reconcile`). What the
database refuses, say for what a handler emitted, is found by halving and fails alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from .calls import Calls
from .clock import Clock
from .errors import NotMigrated, StoreUnavailable
from .logs import Log
from .rules import delivery
from .rules.delivery import Ending, give_back
from .rules.lanes import Fence, Lane, Stop, stamped
from .rules.ordering import rest_of_run
from .rules.pacing import Pacing
from .store import Store, plans
from .work import Batch, Report, Settlement

log = Log("holdfast.worker")

PAUSE_MIN = 0.05
PAUSE_MAX = 2.0
CULPRIT_WAITS = 60.0  # seconds, for a message of which nothing can be settled
CONFLICTS_MAX = 20  # serialization failures in a row that are tried again at once


class Exchanges:
    """Hands reports in and takes the answers, for one worker."""

    def __init__(
        self, store: Store, pacing: Pacing, calls: Calls, clock: Clock, patient: Callable[[], bool]
    ) -> None:
        self.store, self.pacing, self.calls, self.clock = store, pacing, calls, clock
        self.patient = patient  # whether there is still time to wait for the database
        self.unanswered: Report | None = None

    async def exchange(self, report: Report, asked_at: float) -> Batch:
        """Hand in and receive; StoreUnavailable only when there is no time left to wait for the database."""
        self.unanswered, batch = report, None
        landed = self.calls.completions.landed
        landed.clear()
        try:
            while batch is None:
                try:
                    batch = await self._whole_or_in_parts(report)
                except StoreUnavailable as error:
                    report = await self._reconcile(report, error)
                    asked_at = self.clock.monotonic()
        finally:
            landed.set()
        self.calls.forget(settlement.leased.message.seq for settlement in self.unanswered.settlements)
        self.unanswered = None
        self.lose(self.pacing.receive(report, batch, asked_at))
        return batch

    async def finish(self) -> None:
        """Find out what became of an exchange that was broken off, and hand in what was not done of it."""
        if self.unanswered is not None:
            report = replace(self.unanswered, want=[], total=0)
            settlements, moves = await self._look(report.worker)
            await self.exchange(replace(report, settlements=settlements, moves=moves), self.clock.monotonic())

    async def _whole_or_in_parts(self, report: Report) -> Batch:
        try:
            return await self.once(report)
        except (StoreUnavailable, NotMigrated):
            raise
        except Exception:
            if not report.settlements:
                raise
            return await Refusal(self, report).resolve()

    async def once(self, report: Report) -> Batch:
        conflicts = 0
        while True:
            try:
                return await self.store.arun(lambda now: self.store.plans.exchange(report, now), one=True)  # type: ignore[arg-type]
            except Exception as error:
                conflicts += 1
                if not is_conflict(error) or conflicts > CONFLICTS_MAX:
                    raise
                await asyncio.sleep(0.001 * conflicts)

    async def _reconcile(self, report: Report, error: StoreUnavailable) -> Report:
        """What still stands was not settled and is handed in again; what was handed out unheard of goes back."""
        pause = PAUSE_MIN
        while True:
            log.warning(
                "store.unavailable",
                "The database did not answer; looking again in %(pause).2f s: %(error)s",
                pause=pause,
                error=error,
            )
            if not self.patient():
                raise error
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSE_MAX)
            try:
                settlements, moves = await self._look(report.worker)
                return replace(report, settlements=settlements, moves=moves)
            except StoreUnavailable as again:
                error = again

    async def _look(self, number: int) -> tuple[list[Settlement], list[tuple[int, int]]]:
        """Where our leases stand: what was not done is answered, what we never heard of is given back."""
        self.calls.unpack()  # what has come is known
        standing = await self.store.arun(lambda _: plans.standing(self.store.plans, number))
        settlements, moves, lost = self.pacing.reconcile(standing)
        self.lose(lost)
        known = self.pacing.known(standing)
        await self.store.arun(lambda now: self.store.plans.recover(now, worker=number, known=known), one=True)  # type: ignore[arg-type]
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
    """An exchange that the database refused: handed in again in parts, until the culprit is alone."""

    def __init__(self, exchanges: Exchanges, report: Report) -> None:
        self.exchanges, self.report = exchanges, report
        self.moves = dict(report.moves)
        self.lanes: dict[Fence, list[Settlement]] = {}
        for each in report.settlements:
            self.lanes.setdefault((each.leased.run, each.leased.run_epoch), []).append(each)
        self.lost: set[int] = set()

    async def resolve(self) -> Batch:
        """Hand in what can be, and then ask for what was wanted."""
        await self._hand_in(list(self.lanes))
        batch = await self.exchanges.once(replace(self.report, settlements=(), moves=()))
        return replace(batch, lost=frozenset(self.lost))

    async def _hand_in(self, lanes: list[Fence]) -> None:
        settlements = [each for lane in lanes for each in self.lanes[lane]]
        refusal = await self._refused(
            settlements, [(run, self.moves[run]) for run, _ in lanes if run in self.moves]
        )
        if refusal is None:
            return
        if len(lanes) == 1:
            await self._one_by_one(lanes[0], refusal)
            return
        await self._hand_in(lanes[: len(lanes) // 2])
        await self._hand_in(lanes[len(lanes) // 2 :])

    async def _one_by_one(self, lane: Fence, refusal: Exception | None) -> None:
        """The messages of one lane, each under the lease that the one before it leaves. The first refused one fails."""
        fence, members = lane, self.lanes[lane]
        for n, member in enumerate(members):
            rest = members[n + 1 :]
            following = rest[0].leased.message.seq if rest else self.moves.get(lane[0])
            moves = [] if following is None else [(fence[0], following)]
            if len(members) > 1:
                refusal = await self._refused(stamped(fence, [member]), moves)
            if refusal is not None and not await self._fail(fence, member, refusal, rest, moves):
                if lane[0] in self.moves:  # what runs now has run ahead of the one that failed
                    self.lost.add(lane[0])
                return
            if rest:
                fence = (rest[0].leased.message.seq, rest[0].leased.epoch)

    async def _fail(
        self,
        fence: Fence,
        member: Settlement,
        refusal: Exception,
        rest: list[Settlement],
        moves: list[tuple[int, int]],
    ) -> bool:
        """Settle the culprit as failed. False: its stream stops here, and what ran behind it is done again."""
        failed = self._concluded(member, delivery.Raised(refusal, member.flags, member.ran))
        log.error(
            "settlement.refused",
            "The database refused to settle message %(message_id)s: %(error)s",
            message_id=member.leased.message.id,
            type=member.leased.message.type,
            queue=member.leased.message.queue,
            error=type(refusal).__name__,
        )
        if rest_of_run(failed) == "continue" and await self._refused(stamped(fence, [failed]), moves) is None:
            return True
        again = [self._concluded(each, delivery.Interrupted(each.flags, each.ran)) for each in rest]
        if await self._refused(stamped(fence, [failed, *again]), []) is not None:
            # Not even its failure can be stored: it waits, and the others of this worker go on.
            waits = give_back(member.leased, CULPRIT_WAITS)
            await self._once(stamped(fence, [waits, *again]), [])
        return False

    async def _refused(self, settlements: list[Settlement], moves: list[tuple[int, int]]) -> Exception | None:
        try:
            await self._once(settlements, moves)
        except StoreUnavailable:
            raise
        except Exception as refusal:
            return refusal
        return None

    async def _once(self, settlements: list[Settlement], moves: list[tuple[int, int]]) -> None:
        batch = await self.exchanges.once(Report(self.report.worker, settlements=settlements, moves=moves))
        self.lost |= batch.lost

    def _concluded(self, settlement: Settlement, ending: Ending) -> Settlement:
        concluded = self.exchanges.calls.concluded(settlement.leased, ending)
        assert concluded is not None
        return concluded


def is_conflict(error: Exception) -> bool:
    """A serialization failure or a deadlock: nothing was done, and doing it again is the cure."""
    return getattr(error, "sqlstate", None) in ("40001", "40P01")
