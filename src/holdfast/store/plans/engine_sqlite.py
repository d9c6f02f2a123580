"""The verbs of storage on SQLite, as plans.

There is one writer, so data that a plan reads stays valid until its end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from ...clock import from_micros, micros
from ...model.message import NewMessage, Published
from ...model.work import Batch, Found, Outcome, Report, Settlement
from ..given import given, look_up, raise_if_taken
from ..statement import Plan, Query, Rows, Statement, Verb, statements
from ..text import Dialect, load
from ..values import PARKED, PLAIN, decoded_errors, document_for_sqlite, encode, for_sqlite, when
from .appending_sqlite import append, place
from .deltas import apply_sqlite, guesses_sqlite
from .families import NEVER, look_sqlite
from .firing import SqliteSchedules
from .operator_sqlite import SqliteOperator
from .requests_sqlite import SqliteRequests
from .rows import EPOCH, POSITION, QUEUE, RUN, SEQ, STREAM, Unread, by_queue, share
from .scheduled_sqlite import SqliteScheduled
from .settling import admissible
from .tallies_sqlite import Budget, Stream, count_left
from .work_sqlite import leased

TAKEABLE = 20  # in that of a follower: whether it may be handed out
FIRST = -PARKED - 1  # before every claimable time
FLAG_BITS = 16
FEW_QUEUES = 8  # so many are looked for by name; of more, the queues that have heads are listed
PLACING = 2  # the mark of a message that waits for its place inside the running transaction

T = TypeVar("T")

sql = statements("engine")


def instant(value: datetime | None) -> int | None:
    return None if value is None else micros(value)


class SqliteEngine:
    """The verbs on SQLite. Each is a plan, and `now` is the time of the run, in microseconds."""

    dialect: Dialect = "sqlite"

    def __init__(self, errors_kept: int = 10, time: Callable[[], int] | None = None) -> None:
        self.errors_kept = errors_kept
        self._parts = {
            "engine": self,
            "operator": SqliteOperator(self, errors_kept),
            "schedules": SqliteSchedules(),
            "scheduled": SqliteScheduled(),
            "requests": SqliteRequests(time),
        }
        self.appliers: dict[str, str] = {}  # of deltas, beside those in sql/: name -> statement

    def bind(self, query: Query, now: int) -> Statement:
        params: dict[str, object] = {
            name: value if type(value) in PLAIN else for_sqlite(value) for name, value in query.params.items()
        }
        for name, document in query.documents.items():
            params[name] = document_for_sqlite(document)
        params["now"] = now
        return Statement(load("sqlite", query.parts), params, query.enough)

    def perform(self, verb: Verb[T], now: int) -> Plan[T]:
        plan: Plan[T] = getattr(self._parts[verb.stem], verb.name)(*verb.args, **verb.options, now=now)
        return plan

    # -- publishing

    def append(
        self, messages: Sequence[NewMessage], now: int, *, place: bool = True
    ) -> Plan[list[Published]]:
        """Store messages. Their streams are counted at once in any case, because there is one writer."""
        if own := given(messages):
            return self._append_given(messages, own, now)
        return append(messages, now)

    def _append_given(
        self, messages: Sequence[NewMessage], own: Sequence[NewMessage], now: int
    ) -> Plan[list[Published]]:
        yield from look_up(own)
        try:
            return (yield from append(messages, now))
        except Exception as error:
            raise_if_taken(error, own)
            raise

    place = staticmethod(place)

    def adopt(self, count: int, now: int) -> Plan[int]:
        """Deliver unrouted messages to queues that subscribe to them now."""
        seqs = [seq for (seq,) in (yield sql("adopt_rows", count=count))]
        if seqs:
            yield sql("adopt_taken", seqs=encode(seqs), at=from_micros(now).isoformat())
            yield sql("adopt_deliver", seqs=encode(seqs))
            yield sql("settle_delete", seqs=encode(seqs))
            yield from self.place()
        return len(seqs)

    # -- the worker's turn

    def exchange(self, report: Report, now: int) -> Plan[Batch]:
        if report.asleep is not None:
            yield sql("worker_asleep", worker=report.worker, asleep=int(report.asleep))
        lost: frozenset[int] = frozenset()
        if report.settlements:
            held = yield from self.settle(report.settlements, report.moves, now)
            if len(held) < len(report.settlements):
                lost = frozenset(s.leased.message.seq for s in report.settlements) - held
        paused = frozenset(name for (name,) in (yield sql("queues_paused")))
        work: Rows = []
        if report.suspects:
            work = yield from self._claim_suspect(report, now)
        elif report.want and report.total > 0:
            work = yield from self._claim(report, paused, now)
        found: dict[str, Found] = {}
        found_due = NEVER
        if report.looks and not report.suspects:
            found, found_due = yield from look_sqlite(report.looks, paused, now)
        next_due, suspects = None, False
        if report.peek:
            queues = encode([want.queue for want in report.want])
            families = encode([look.family for look in report.looks])
            ((due, waiting),) = yield sql("next_due", queues=queues, families=families, never=PARKED)
            due = min(PARKED if due is None else due, found_due)
            next_due, suspects = when(due), bool(waiting)
        return Batch(
            now=from_micros(now),
            work=Unread(len(work), lambda: leased(work)) if work else [],
            shares={queue: share(its) for queue, its in by_queue(work).items()},
            lost=lost,
            next_due=next_due,
            suspects=suspects,
            paused=paused,
            found=found,
        )

    def settle(
        self, settlements: Sequence[Settlement], moves: Iterable[tuple[int, int]], now: int
    ) -> Plan[set[int]]:
        """Apply the settlements whose lease is still valid; returns their seqs."""
        stood, have_keys = yield from self._standing(admissible(settlements))
        streams: dict[tuple[str, str], Stream] = {}
        done = [s for s in stood if s.outcome is Outcome.DONE]
        if done:
            yield from self._settle_done(done, have_keys, streams, now)
        if len(done) < len(stood):
            for s in stood:
                if s.outcome is not Outcome.DONE:
                    yield from self._settle_other(s, streams, now)
        yield from self._unlease({s.leased.run for s in stood}, moves)
        yield from apply_sqlite(stood, self.appliers, now)
        yield from self._advance(streams, stood, now)
        return {s.leased.message.seq for s in stood}

    def _standing(self, settlements: list[Settlement]) -> Plan[tuple[list[Settlement], bool]]:
        """Those whose lease is still valid, mostly all, and whether any of their messages has a dedupe key."""
        fences = {(s.leased.run, s.leased.run_epoch) for s in settlements}
        have_followers = len(fences) < len(settlements)
        ((standing, keys),) = yield sql("settle_standing", runs=encode(dict(fences)))
        if standing < len(fences):
            valid = set((yield sql("settle_leases", runs=encode([run for run, _ in fences]))))
            settlements = [s for s in settlements if (s.leased.run, s.leased.run_epoch) in valid]
        if not have_followers:
            return settlements, keys > 0
        seqs = [s.leased.message.seq for s in settlements if s.leased.message.seq != s.leased.run]
        # Some may have been taken out in the meantime.
        followers = dict((yield sql("settle_there", seqs=encode(seqs))))
        stood = [
            s
            for s in settlements
            if s.leased.message.seq == s.leased.run or s.leased.message.seq in followers
        ]
        return stood, keys > 0 or any(followers.values())

    def _settle_done(
        self, done: Sequence[Settlement], have_keys: bool, streams: dict[tuple[str, str], Stream], now: int
    ) -> Plan[None]:
        ends = {s.leased.message.seq: round(s.ran * 1000) << FLAG_BITS | s.flags for s in done}
        seqs = encode(list(ends))
        yield sql("settle_history", done=encode(ends), bits=FLAG_BITS)
        if have_keys:
            yield sql("settle_dedupe", seqs=seqs)
        yield sql("settle_delete", seqs=seqs)
        for s in done:
            if s.leased.message.position is not None:
                count_left(streams, s.leased.message, removed=True)

    def _settle_other(self, s: Settlement, streams: dict[tuple[str, str], Stream], now: int) -> Plan[None]:
        message = s.leased.message
        ((errors, position, _, _, _),) = yield sql("settle_read", seq=message.seq)
        counters: dict[str, Any] = {
            "flags": s.flags,
            "counted": int(s.counted),
            "failed": int(s.failed),
            "refunded": int(s.refunded),
            "started": int(s.started),
        }
        if s.error is not None:
            errors = self._with_error(errors, s, now)
        ordered = position is not None
        removed = ordered and (s.aside or s.outcome is not Outcome.AGAIN)
        match s.outcome:
            case Outcome.AGAIN | Outcome.RELEASE:
                yield sql(
                    "settle_again",
                    seq=message.seq,
                    errors=errors,
                    traceback=s.traceback,
                    reason=s.reason,
                    claimable_at=now + round(s.delay * 1_000_000),
                    removed=int(removed),
                    paused=int(s.pause is not None),
                    **counters,
                )
            case Outcome.DEAD:
                yield sql(
                    "settle_dead",
                    seq=message.seq,
                    run=s.leased.run,
                    errors=errors,
                    traceback=s.traceback,
                    reason=s.reason,
                    last_reason=s.last_reason,
                    fingerprint=s.fingerprint,
                    **counters,
                )
                yield sql("settle_delete", seqs=encode([message.seq]))
            case _:
                counters = {key: counters[key] for key in ("flags", "counted", "failed")}
                yield sql(
                    "settle_ended",
                    seq=message.seq,
                    outcome=str(s.outcome),
                    ran=round(s.ran * 1000),
                    **counters,
                )
                yield sql("settle_dedupe", seqs=encode([message.seq]))
                yield sql("settle_delete", seqs=encode([message.seq]))
        if ordered:
            count_left(
                streams,
                message,
                removed=removed,
                halt=str(message.id) if s.halt and s.outcome is Outcome.DEAD else s.pause,
            )

    def _with_error(self, errors: str | None, s: Settlement, now: int) -> str:
        known = decoded_errors(errors)
        known.append(
            {"at": from_micros(now).isoformat(), "reason": s.last_reason or s.reason, "text": s.error}
        )
        return encode(known[-self.errors_kept :])

    def _unlease(self, runs: Collection[int], moves: Iterable[tuple[int, int]]) -> Plan[None]:
        """End the leases of these runs; some move on to the next message of their run."""
        moving = {run: following for run, following in moves if run in runs}
        if moving:
            yield sql("settle_move", moves=encode(moving))
        if runs:
            yield sql("settle_unlease", runs=encode(list(runs)))

    def _advance(
        self, streams: dict[tuple[str, str], Stream], stood: Sequence[Settlement], now: int
    ) -> Plan[None]:
        """Subtract the messages that left the order of streams and promote the next; then store the emitted ones."""
        if streams:
            yield from self.promote(
                [(queue, name, s.removed, s.start, s.halt) for (queue, name), s in streams.items()]
            )
        emits = [m for s in stood if s.emits for m in s.emits]
        if any(s.guess is not None for s in stood):
            emits += yield from guesses_sqlite(stood, now)
        if emits:
            yield from self.append(emits, now)

    def promote(self, streams: Sequence[tuple[str, str, int, int | None, str | None]]) -> Plan[None]:
        """Promote the next of streams (queue, name, how many left the order, from which place on, what halts it)."""
        text = encode(streams)
        yield sql("advance_streams", streams=text)
        yield sql("advance_promote", streams=text)

    def _claim(self, report: Report, paused: frozenset[str], now: int) -> Plan[Rows]:
        live = (yield from self._live([want.queue for want in report.want])) - paused
        heads: Rows = []
        budget = Budget(report.bytes_max)
        for want in report.want:
            if want.queue not in live or budget.is_spent:
                continue
            room = min(want.heads, report.total - len(heads))
            if room <= 0:
                continue
            after_at, after_seq = want.after or (None, -1)
            heads += yield sql(
                "claim_heads",
                queue=want.queue,
                heads=room,
                after_at=FIRST if after_at is None else instant(after_at),
                after_seq=after_seq,
            ).until(budget.take)
        if not heads:
            return []
        followers = yield from self._followers(heads, report, budget, now)
        ends = {row[RUN]: row[POSITION] for row in (*heads, *followers)}
        yield from self._lease(report, [(row[SEQ], ends[row[SEQ]], row[EPOCH]) for row in heads], now)
        return heads + followers

    def _live(self, wanted: Sequence[str]) -> Plan[set[str]]:
        """Which of these queues have heads; of many, some may be among them that have none."""
        if len(wanted) <= FEW_QUEUES:
            return {name for (name,) in (yield sql("claim_wanted", queues=encode(wanted)))}
        names = [name for (name,) in (yield sql("claim_queues", most=len(wanted) + 1))]
        if len(names) <= len(wanted):
            return set(names)
        # More queues than the limit may have heads: those behind the last name are looked at.
        return {*names, *(name for name in wanted if name > names[-1])}

    def _followers(self, heads: Rows, report: Report, budget: Budget, now: int) -> Plan[Rows]:
        """The messages that are handed out behind the heads."""
        followers: Rows = []
        longest = {want.queue: want.run or report.run for want in report.want}
        places = {
            n: (head[QUEUE], head[STREAM], head[POSITION])
            for n, head in enumerate(heads)
            if head[POSITION] is not None and longest[head[QUEUE]] > 1
        }
        if not places:
            return []
        for (n,) in (yield sql("claim_followed", heads=encode(places))):
            head = heads[n]
            room = min(longest[head[QUEUE]] - 1, report.total - len(heads) - len(followers))
            if room <= 0 or budget.is_spent:
                continue
            found = yield sql(
                "claim_followers",
                run=head[SEQ],
                queue=head[QUEUE],
                stream=head[STREAM],
                position=head[POSITION],
                count=room,
            ).until(lambda row: not row[TAKEABLE] or budget.take(row))
            followers += found if not found or found[-1][TAKEABLE] else found[:-1]
        return followers

    def _claim_suspect(self, report: Report, now: int) -> Plan[Rows]:
        queues = encode([want.queue for want in report.want])
        families = encode([look.family for look in report.looks])
        without = encode([queue for look in report.looks for queue in look.without])
        rows: Rows = yield sql("claim_suspect", queues=queues, families=families, without=without)
        yield from self._lease(report, [(row[SEQ], None, row[EPOCH]) for row in rows], now)
        return rows

    def _lease(self, report: Report, heads: Sequence[tuple[int, int | None, int]], now: int) -> Plan[None]:
        until = now + round(report.lease * 1_000_000)
        loose = {seq: epoch for seq, end, epoch in heads if end is None}
        if loose:
            yield sql("claim_lease", heads=encode(loose), until=until, worker=report.worker)
        if len(loose) < len(heads):
            runs = [head for head in heads if head[1] is not None]
            yield sql("claim_lease_runs", heads=encode(runs), until=until, worker=report.worker)

    # -- leases

    def renew(
        self, worker: int, leases: Sequence[tuple[int, int]], lease: float, now: int
    ) -> Plan[tuple[set[int], set[int]]]:
        """The heartbeat: renew leases. Returns those that are lost, and those that are asked to be cancelled."""
        yield sql("worker_seen", worker=worker)
        text = encode(leases)
        yield sql("renew", leases=text, until=now + round(lease * 1_000_000))
        rows = yield sql("renew_lost", leases=text)
        return {seq for seq, lost in rows if lost}, {seq for seq, lost in rows if not lost}

    def recover(
        self,
        *,
        now: int,
        worker: int | None = None,
        running: Sequence[int] = (),
        ended: Sequence[int] = (),
        known: Sequence[int] = (),
        count: int = 1000,
    ) -> Plan[int]:
        """End leases that their holder will not end: expired ones, or those of one worker."""
        leases = yield sql("recover_leases", worker=worker, known=encode(known), count=count)
        for seq, run_end, stopping, queue, stream, position in leases:
            yield sql(
                "recover_messages",
                lapsed=int(worker is None),
                stopping=stopping,
                running=encode(running),
                ended=encode(ended),
                seq=seq,
                queue=queue,
                stream=stream,
                position=position,
                run_end=run_end,
            )
        yield sql("settle_unlease", runs=encode([row[0] for row in leases]))
        return len(leases)
