"""Turns in a worker: the consumer of a queue `name@version`. A run of messages is one turn, stored with their end.

The queue is an ordinary one, the stream is the instance, and a worker holds one run of a stream at a time: what it
holds next was claimed after the turn before was stored. So the stored (execution, turn) says whether an instance in
memory is right, and `mark` says that the turn was stored by us: a side effect that another worker recorded differs.

A turn leaves a delta (the journal row, the state of the instance) and messages (leaving.py), in one commit with the end
of the messages that it consumed; the delta makes them a unit. Code that has changed is not poison: the instance is
paused with the difference, and its messages keep their places. A turn that dies ends its instance (poison.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, assert_never

from ..bodies.keys import Keys, Unopened
from ..errors import HoldfastError, StoreUnavailable
from ..handlers.consumer import Later, Limits, Ran
from ..model.ids import new_id
from ..model.message import Message, NewMessage, Reason
from ..model.replies import reply_of
from ..model.work import INSTANCE, Leased, Left, Outcome, Settlement
from ..rules import journals
from ..rules.delivery import (
    BatchFailed,
    Ending,
    NoHandler,
    Paused,
    Raised,
    Returned,
    Sealed,
    Snoozed,
    Unsent,
    conclude,
)
from ..rules.policy import HandlerPolicy
from ..rules.redact import Masking
from ..store.plans import instances
from ..store.plans.instances import Last, Stand
from ..telemetry.logs import Log
from ..worker.interrupts import is_ctrl_c
from .declared import Program
from .failures import Failure
from .hosting import Slices, catch_up
from .inline import InlineRun
from .journal import Arrival, JournalUnreadable
from .leaving import Journal, Leaving, opened, pause_delta
from .messages import CANCEL, KNOWN, START
from .outcome import Overrun, Turn
from .place import Place
from .poison import left_by
from .replay import CodeChanged
from .selfcheck import differs
from .turn import Instance

log = Log("holdfast.orchestrations")

RUN_MAX = 500  # messages in one turn
READ_BYTES = 8 * 1024 * 1024  # of journals that are read at once
SHORT_BYTES = 256 * 1024  # of those that may block the loop, where the database is a file
STORE_SECONDS = 1.0  # until a turn is tried again whose journal could not be read

T = TypeVar("T")


class TurnOverrun(HoldfastError):
    """A turn ran too long or in circles. Nothing of it was stored."""

    category = "application"


@dataclass(frozen=True)
class Turns:
    """Serves the instances of one version of an orchestration. A consumer of whole runs, and an `EndsMore`."""

    program: Program
    place: Place
    policy: HandlerPolicy
    masking: Masking
    concurrency: int
    patterns: tuple[str, ...] = ()
    is_family: bool = False
    is_ordered: bool = True
    is_async: bool = True
    batch: int = RUN_MAX
    steps: Mapping[str, int] = field(default_factory=dict)

    @property
    def queue(self) -> str:
        return self.program.queue

    @property
    def keys(self) -> Keys | None:
        return self.place.pen.keys

    @property
    def leaving(self) -> Leaving:
        return Leaving(self.queue, self.place.pen, self.place.activities)

    def limits(self, queue: str) -> Limits:
        # Where one start is all that is allowed, a crash must not use up those of the messages behind.
        whole = RUN_MAX if self.policy.retry.starts_max > 1 else 1
        return Limits(self.concurrency, self.place.settings.timeout, ahead=False, run=whole)

    def but(self, policy: HandlerPolicy) -> Turns:
        return replace(self, policy=policy)

    async def call_runs(
        self, queue: str, runs: Sequence[Sequence[Leased]], ran: Ran
    ) -> Sequence[Sequence[Ending] | Later]:
        """One turn for each run. Where instances stand is read at once for all, and so are the journals needed.

        A turn with inline activities goes on beside the call (inline.py).
        """
        endings: list[Sequence[Ending] | Later] = []
        try:
            stands = await self.place.store().aread(instances.stands([_id(run[0]) for run in runs]))
            held = {_id(run[0]): self._warm(run, stands.get(_id(run[0]))) for run in runs}
        except StoreUnavailable as error:
            return [[_unsent(error, ran())] * len(run) for run in runs]
        cold = [
            id
            for run in runs
            if held[id := _id(run[0])] is None and id in stands and not _is_new(run, stands[id])
        ]
        journals: dict[str, Journal | None] = {}
        slices = Slices(self.place.clock(), self.place.store().give_way)
        try:
            for run in runs:
                await slices.pause_if_over()
                id = _id(run[0])
                if id in cold and id not in journals:
                    journals |= await self._read(cold[cold.index(id) :], stands)
                turn = self._turn(run, stands.get(id), held.pop(id), journals.pop(id, ()), ran, slices)
                found = await self.guarded(turn, run, ran)
                endings.append(found)
                if not isinstance(found, InlineRun):
                    ran.over(run)
        except BaseException:
            for each in endings:
                if isinstance(each, InlineRun):
                    each.drop()
            raise
        finally:  # what had no turn, because the call was stopped, is not left to the garbage collector
            for left in held.values():
                if left is not None:
                    left.close()
        return endings

    def _warm(self, run: Sequence[Leased], stand: Stand | None) -> Instance | None:
        if stand is None or stand.state != "running":
            return None
        found = self.place.memory.take(_id(run[0]), stand)
        if found is not None and run[0].epoch > 1:
            # It was handed out before, and parts of that turn may be stored, which the mark does not tell.
            found.close()
            return None
        return found

    async def _read(self, ids: Sequence[str], stands: Mapping[str, Stand]) -> Mapping[str, Journal | None]:
        """The journals of the first of these, as many as fit. None: the database is away."""
        wanted: list[str] = []
        size = 0
        for id in ids:
            size += stands[id].size
            if wanted and size > READ_BYTES:
                break
            wanted.append(id)
        store = self.place.store()
        read = store.aread if size <= SHORT_BYTES else store.arun
        try:
            found: Mapping[str, Journal] = await read(instances.journals(wanted))
        except StoreUnavailable:
            return dict.fromkeys(wanted)  # none of them has its turn now
        return found

    async def guarded(
        self, turn: Coroutine[Any, Any, T], run: Sequence[Leased], ran: Ran
    ) -> T | Sequence[Ending]:
        """What a turn, or the rest of one, comes to; also if it raises."""
        try:
            return await turn
        except Unopened as error:
            return _first(Sealed(error), run)
        except StoreUnavailable as error:
            return _first(_unsent(error, ran()), run)
        except JournalUnreadable as error:
            return _first(Raised(error, ran=ran()), run)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError | GeneratorExit) or is_ctrl_c(error):
                raise
            ending = Raised(error, ran=ran())
            if len(run) == 1:
                return [ending]
            # Nobody knows which of them it was: each comes again, alone.
            return [BatchFailed(replace(ending, reason=Reason.HANDLER_EXCEPTION))] * len(run)

    async def _turn(
        self,
        run: Sequence[Leased],
        stand: Stand | None,
        instance: Instance | None,
        journal: Journal | None,
        ran: Ran,
        slices: Slices,
    ) -> Sequence[Ending] | Later:
        """How the messages of one run end. What is behind the last one that the turn took goes back as it was."""
        try:
            early, arrivals = self._before(run, stand, ran)
        except BaseException:
            self._put_back(instance)
            raise
        if early is not None:
            self._put_back(instance)
            return _first(early, run)
        assert stand is not None
        ran.began(run)
        was_warm = instance is not None
        if instance is None:
            instance = self._cold(_id(run[0]), stand, journal)
        count = len(arrivals)
        try:
            if instance.is_behind:
                await catch_up(instance, self.place.clock())
            going = InlineRun(self, run, stand, instance, count, was_warm, ran, slices)
            await going.take(arrivals)
            if not await going.at_once():
                return going
        except BaseException:
            instance.close()
            raise
        return await going.over()

    async def ended(
        self,
        run: Sequence[Leased],
        stand: Stand,
        instance: Instance,
        count: int,
        was_warm: bool,
        ran: Ran,
        result: Turn | CodeChanged | Overrun,
        failed: Sequence[str] = (),
    ) -> Sequence[Ending]:
        """The turn is over: how the messages of its run end, and what becomes of the instance in memory.

        `failed`: the categories of inline activities that failed for good in it.
        """
        id, is_stored = _id(run[0]), False
        try:
            match result:
                case Turn():
                    mark = new_id()
                    instance.mark = str(mark)
                    leaving = self.leaving
                    emits = leaving.emits(result, stand.reply, self.place.now())
                    first = Returned(0, tuple(emits), ran(), leaving.delta(result, mark, failed))
                    self.place.warn_if_long(self.queue, result, (stand.entries, stand.size))
                    # Stored, or will be; if not, its mark is not the stored one. What differs is not used again.
                    is_stored = not (was_warm and await differs(self.place, self.program, result, stand))
                    return _taken(first, count - len(result.unread), run)
                case CodeChanged():
                    return _first(self._changed(result, id, stand, ran()), run)
                case Overrun(why):
                    raise TurnOverrun(f"A turn of instance {id!r} was stopped. {why}")
                case _:
                    assert_never(result)
        finally:
            if is_stored:
                self.place.memory.keep(instance)
            else:
                instance.close()

    # -- before

    def _before(
        self, run: Sequence[Leased], stand: Stand | None, ran: Ran
    ) -> tuple[Ending | None, list[Arrival]]:
        """How the head of a run ends without a turn, or what the run brings to the code."""
        head = run[0].message
        if head.type not in KNOWN:
            return NoHandler(), []
        if (left := self._not_for_code(head, stand)) is not None:
            return Returned(0, tuple(left), ran()), []
        assert stand is not None
        if stand.state != "running":  # somebody has resumed its stream and not the instance
            return Paused(halted_by(stand.state), ran()), []
        arrivals = self._arrivals(run, stand)
        if self.place.length(stand.entries, stand.size) == "full":
            return self._full(_id(run[0]), stand, ran()), []
        return None, arrivals

    def _put_back(self, instance: Instance | None) -> None:
        """It had no turn, so what is in memory is still right."""
        if instance is not None:
            self.place.memory.keep(instance)

    def _arrivals(self, run: Sequence[Leased], stand: Stand) -> list[Arrival]:
        """What the messages mean to the code, up to the first that is not for it or unreadable: that comes alone."""
        found: list[Arrival] = []
        for leased in run:
            message = leased.message
            if message.type not in KNOWN:
                break
            if found and message.type in (START, CANCEL) and self._not_for_code(message, stand) is not None:
                break
            try:
                found.append(self.place.pen.arrival(leased.message))
            except (JournalUnreadable, Unopened):
                if not found:
                    raise
                break
        return found

    def _not_for_code(self, message: Message, stand: Stand | None) -> list[NewMessage] | None:
        """What a message leaves behind that ends without a turn; None: it is for the code."""
        if message.type == START and (stand is None or stand.start != message.id):
            # The id was taken when its parent asked for it: the parent must not wait for ever.
            reply = reply_of(self.place.pen.reply_in(message))
            if reply is None:
                return []
            text = f"an instance with the id {message.stream!r} exists already: give the child another id."
            failure = Failure("IdTaken", text, Reason.ID_TAKEN, message_id=str(message.id))
            return [self.place.pen.into(reply, None, failure)]
        if message.type == CANCEL and stand is not None and not self.place.pen.is_for(message, stand.start):
            return []  # for a child that this is not: its id was taken when the parent asked for it
        if stand is None or stand.state not in instances.OPEN:
            log.info(
                "orchestration.late",
                "Message %(message_id)s of type %(type)s came too late for instance %(instance)s",
                message_id=message.id, type=message.type, instance=message.stream, queue=message.queue,
            )  # fmt: skip
            return []
        return None

    def _cold(self, id: str, stand: Stand, journal: Journal | None) -> Instance:
        if journal is None:
            raise StoreUnavailable(f"The journal of instance {id!r} could not be read.")
        instance = Instance(
            self.program, id, stand.execution, limits=self.place.settings, budget=self.place.memory.budget()
        )
        try:
            rows, size = opened(self.place.pen, id, stand.execution, journal)
            instance.load(rows, size)
            if instance.turns != stand.turn:
                raise JournalUnreadable(
                    f"The journal of instance {id!r} ends at turn {instance.turns}, and the instance is at turn "
                    f"{stand.turn}: restore it, or terminate the instance."
                )
        except BaseException:
            instance.close()
            raise
        return instance

    # -- after

    def _changed(self, changed: CodeChanged, id: str, stand: Stand, ran: float) -> Paused:
        told = f"{changed}\n" + "\n".join(changed.diff)
        log.error(
            "orchestration.paused",
            "Instance %(instance)s of %(queue)s is paused, because its code has changed: %(why)s",
            instance=id, queue=self.queue, why=str(changed),
        )  # fmt: skip
        return Paused(halted_by("paused"), ran, pause_delta(id, stand, told))

    # -- how long a journal is, and whether it can be replayed

    def _full(self, id: str, stand: Stand, ran: float) -> Paused:
        told = journals.full_text(stand.entries, stand.size)
        log.error(
            "orchestration.paused", "Instance %(instance)s of %(queue)s is paused: %(why)s",
            instance=id, queue=self.queue, why=told,
        )  # fmt: skip
        return Paused(halted_by("paused"), ran, pause_delta(id, stand, told))

    async def left(self, leased: Leased, ending: Ending) -> Left | None:
        """The end of the instance, if the message dies."""
        settlement = self._death(leased, ending)
        if settlement is None:
            return None
        return self._left(settlement, await self.place.store().arun(self._last(leased)))

    def left_now(self, leased: Leased, ending: Ending) -> Left | None:
        settlement = self._death(leased, ending)
        return (
            None if settlement is None else self._left(settlement, self.place.store().run(self._last(leased)))
        )

    def _death(self, leased: Leased, ending: Ending) -> Settlement | None:
        found = conclude(leased, ending, self.policy, self.place.now(), 0.5)
        return found if found is not None and found.outcome is Outcome.DEAD else None

    def _last(self, leased: Leased) -> Any:
        message = leased.message
        return instances.last(message.queue, message.stream or "", message.seq)

    def _left(self, settlement: Settlement, found: Last) -> Left | None:
        return left_by(settlement, self.policy, found, self.place.pen)


def halted_by(state: str) -> str:
    """What the stream of an instance that is paused or suspended is halted by."""
    return f"{INSTANCE}{state}"


def _is_new(run: Sequence[Leased], stand: Stand) -> bool:
    """Whether nothing is in its journal: it has had no turn, and nobody has begun one."""
    return stand.turn == 0 and stand.execution == 0 and run[0].epoch == 1


def _id(leased: Leased) -> str:
    return leased.message.stream or ""


def _unsent(error: StoreUnavailable, ran: float) -> Ending:
    """The database is away: no turn is to blame for that."""
    return Unsent(f"{type(error).__name__}: its journal could not be read.", STORE_SECONDS, ran)


def _first(ending: Ending, run: Sequence[Leased]) -> list[Ending]:
    """The head of a run ended like this; the rest comes again."""
    return [ending, *(Snoozed(0.0) for _ in run[1:])]


def _taken(first: Ending, count: int, run: Sequence[Leased]) -> list[Ending]:
    """The turn took so many messages of a run. What it leaves behind goes with the first of them."""
    return [first, *(Returned() for _ in run[1:count]), *(Snoozed(0.0) for _ in run[max(count, 1) :])]
