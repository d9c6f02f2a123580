"""What a worker asks the store for: which queues, how many of each, which families to look through.

A worker asks for what it can run at once and what it will need in the next moment at its pace, but not more than the
gate allows. Each answer says how much work is left. Time (`now`) is monotonic and an argument.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import Protocol

from ..model.work import Batch, Found, Look, Report, Want
from .families import ASKED_MAX, PASSED_MAX, Family
from .lanes import HORIZON, LOOK_ANEW, SHARE, Limit, Pace

# A queue has few messages if it has less than this share of all that end, but some in each second.
FEW_SHARE, FEW_A_SECOND = 0.1, 1.0
FAIR_SECONDS, FAIR_MIN = 0.02, 120  # of work that an exchange asks for while such a queue is there

Wishes = tuple[list[Want], int, list[Look]]  # from queues; messages altogether; families to look through


class Holding(Protocol):
    """How much a worker may hold, and for how long; see Settings."""

    @property
    def claim(self) -> int: ...
    @property
    def claim_bytes(self) -> int: ...
    @property
    def run(self) -> int: ...
    @property
    def lease(self) -> float: ...


class Admission(Protocol):
    """How much of a queue may begin now, apart from the worker's own capacity; see gate.py. It answers from memory."""

    def allowed(self, queue: str, now: float) -> int | None: ...
    def admits(self, queue: str, now: float) -> bool: ...
    def at_once(self, queue: str, now: float) -> int | None: ...
    def has_slot(self, queue: str, now: float) -> bool: ...
    def has_token(self, queue: str, now: float) -> bool: ...
    def refuses(self, queue: str, now: float) -> bool: ...


class Asking:
    """The queues of one worker, and what it knows about them."""

    def __init__(self, paces: dict[str, Pace], settings: Holding, gate: Admission | None) -> None:
        self.paces, self.settings, self.gate = paces, settings, gate
        self.families: dict[str, Family] = {}
        self.names: list[str] = []  # the queues that are always asked
        self._first = 0  # where the next report begins in the list of queues, so that all get their turn
        self._lately: dict[str, float] = {}  # messages that came from queues lately; older ones count less
        self._fair: tuple[int, float] | None = None
        self.took_all = False  # the last answer had all that could be claimed then

    @property
    def is_running(self) -> bool:
        """Whether a handler runs, or may begin with what is here."""
        return any(pace.running or pace.ready for pace in self.paces.values())

    # -- what is served

    def meet(self, queue: str, limit: Limit) -> None:
        """From now on this queue is asked for."""
        self.paces[queue] = Pace(limit, queue)
        self.names.append(queue)

    def meet_family(self, name: str, limit: Limit) -> None:
        """From now on the queue of this name and all below it are asked for, if they have work."""
        self.families[name] = family = Family(limit.concurrency)
        self.paces[name] = Pace(limit, name, family)
        self.names.append(name)

    def meet_member(self, queue: str, limit: Limit, family: str) -> None:
        """A queue of a family was found."""
        self.paces[queue] = Pace(limit, queue, self.families[family])
        self.families[family].wake(queue)

    def quiet(self) -> list[str]:
        """Queues of families that may be forgotten."""
        return [queue for family in self.families.values() for queue in family.too_many()]

    def forget(self, queue: str) -> None:
        family = self.paces.pop(queue).family
        assert family is not None
        del family.quiet[queue]

    # -- asking

    def wants(self, total: int, now: float, anew: bool) -> Wishes:
        """What to ask for when there is room for this many messages. `anew`: ignore watermarks and ask all queues."""
        names, self._fair = self.names, self._fair_share()
        self._first = (self._first + 1) % max(1, len(names))
        wants = []
        for queue in names[self._first :] + names[: self._first]:
            if (want := self._want(queue, total, total, now, anew)) is not None:
                wants.append(want)
        looks: list[Look] = []
        for name, family in self.families.items():
            more = self._wants_of(family, total, now, anew)
            wants += more
            if len(more) < ASKED_MAX and (anew or family.wants_look(now)):
                looks.append(Look(name) if anew else Look(name, family.after, PASSED_MAX))
        if self._lately and len(wants) > 1:
            # If one queue can fill all of the room, queues with few messages must not wait for their turn.
            wants.sort(key=self._came_lately)
        return wants, total, looks

    def _fair_share(self) -> tuple[int, float] | None:
        """What to ask of a queue with many messages while another one has few, and from what rate on these are many.

        The few wait for the exchange that carries the many, and for the handlers of those. So an exchange has no more
        of them than what is worked off in a short time. Only where calls take whole runs, which are turns of
        orchestrations: they run one after another. Other batches may be cheap for their size alone.
        """
        rates = [pace.rate for pace in self.paces.values() if pace.rate >= FEW_A_SECOND]
        if len(rates) < 2 or min(rates) > (many := FEW_SHARE * sum(rates)):
            return None
        return max(FAIR_MIN, ceil(sum(rates) * FAIR_SECONDS)), many

    def _came_lately(self, want: Want) -> float:
        return self._lately.get(want.queue, 0.0)

    def suspect(self, now: float) -> Wishes:
        """Ask for one suspect, from any queue that may begin something."""
        free: list[str] = []
        shut: list[str] = []
        for queue in self.paces:
            is_free = self._allowed(queue, now) != 0 != self._at_once(queue, now)
            (free if is_free else shut).append(queue)
        wants = [Want(queue, 1, run=1) for queue in free]
        return wants, 1, [Look(name, without=tuple(shut)) for name in self.families]

    def _wants_of(self, family: Family, total: int, now: float, anew: bool) -> list[Want]:
        """What to ask of the queues of a family that have work: each gets the same share of the free room."""
        free: list[str] = []
        held, ahead = self._held_of(family)
        for queue in list(family.awake) if anew else family.next_awake():
            pace = self.paces[queue]
            if pace.drained and not pace.held:
                family.rest(queue)
            elif anew or (not pace.drained and len(free) < ASKED_MAX):
                free.append(queue)
        room = min(total, family.concurrency + ahead - held)
        if not free or room <= 0:
            return []
        share = ceil(room / len(free))
        wants = (self._want(queue, total, share, now, anew) for queue in free)
        return [each for each in wants if each is not None]

    def _held_of(self, family: Family) -> tuple[int, int]:
        """How many messages of a family's queues are held, and how many more they need for the next moment."""
        paces = [self.paces[queue] for queue in family.awake]
        return sum(pace.held for pace in paces), sum(ceil(pace.rate * HORIZON) for pace in paces)

    def _want(self, queue: str, total: int, share: int, now: float, anew: bool) -> Want | None:
        """What to ask of one queue: at most its share of all that is asked for."""
        pace = self.paces[queue]
        room = pace.room
        if room <= 0:
            return None
        if self._fair is not None and pace.limit.run > 1 and pace.rate > self._fair[1]:
            # One part runs, and the next one is here; more only where more than one runs at once.
            room = min(room, self._fair[0], 2 * self._fair[0] + ceil(2 * (pace.busy or 0.0)) - pace.held)
            if room <= 0:
                return None
        most = min(room, share)
        run = pace.run_max(total, self.settings.run)
        heads = min(most, max(ceil(most / min(pace.run, SHARE)), pace.useful_lanes))
        allowed = self._allowed(queue, now)
        if allowed is not None:
            allowed -= pace.held - pace.running  # messages of this queue that wait here begin first
            if allowed <= 0:
                return None
            heads = min(heads, allowed)
            run = min(run, max(1, allowed // heads))  # in total not more than may begin
        slots = self._at_once(queue, now)
        if slots is not None:
            heads = min(heads, room - max(0, pace.limit.concurrency - slots))
            if slots == 0 or heads <= 0:
                return None
        return Want(queue, heads, None if anew else pace.watermark(now), run)

    def _allowed(self, queue: str, now: float) -> int | None:
        return None if self.gate is None else self.gate.allowed(queue, now)

    def _at_once(self, queue: str, now: float) -> int | None:
        return None if self.gate is None else self.gate.at_once(queue, now)

    # -- learning

    def look_anew(self, queues: Iterable[str]) -> None:
        """These queues got messages that became claimable in the past: the next look is at all of them."""
        for queue in queues:
            if (pace := self.paces.get(queue)) is not None:
                pace.after, pace.drained = None, False

    def _count_lately(self, batch: Batch) -> None:
        lately = self._lately
        if lately:
            self._lately = lately = {queue: came / 2 for queue, came in lately.items() if came >= 2.0}
        for queue, share in batch.shares.items():
            lately[queue] = lately.get(queue, 0.0) + share.messages

    def learn(self, report: Report, batch: Batch, asked_at: float) -> None:
        """Learn from an answer: what is left in the queues that were asked, and where to look next time."""
        self._count_lately(batch)
        full = len(batch.work) >= report.total
        shares = batch.shares.values()
        # Earlier queues may have used up the room, so this one was not searched, or not to its end.
        cut = sum(share.heads for share in shares) >= report.total or (
            sum(share.bytes for share in shares) >= report.bytes_max
        )
        self.took_all = not cut and not any(each.queues for each in batch.found.values())
        for want in report.want:
            pace, share = self.paces[want.queue], batch.shares.get(want.queue)
            few = share is None or share.heads < want.heads
            self.took_all = self.took_all and few
            if share is None and (cut or want.queue in batch.paused):
                # A look finds it again when it is no longer paused.
                pace.drained = pace.family is not None and want.queue in batch.paused
                continue
            pace.drained = few and pace.family is not None
            if want.after is None:
                pace.looked_at, pace.looks_took = asked_at, (batch.looked, pace.looks_took[0])
            if few and pace.look_pause == LOOK_ANEW:
                pace.after = None  # the queue is short: looking at all of it is cheap
            elif (mark := batch.marks.get(want.queue)) is not None:
                # After a full look the last row may be a late one. All rows before the old mark are known to be dead.
                pace.after = mark if cut or not few or pace.after is None else max(mark, pace.after)
            if share is not None:
                pace.expect_run(share.messages / share.heads, full and share.ordered, want.run or 1)
                pace.streams = share.heads if few and share.ordered else None
        for look in report.looks:
            found = batch.found.get(look.family, Found())
            for queue in found.queues:
                self.paces[queue].drained = False
            self.families[look.family].learn(found.queues, found.last, found.took, asked_at)
