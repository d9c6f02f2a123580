"""Queues: how deep they are, which workers take from them; pause, move or drop them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from ..errors import NotFound, Refused, UsageError
from ..handlers.registry import Handlers
from ..model.names import is_versioned, serves
from ..model.text import counted
from ..store.plans import audit, counting, engine, instance_queries, operator, queries, queues
from ..store.plans.audit import Entry
from ..store.plans.counting import Counted
from ..store.statement import Plan
from .desk import Desk, Tally, log, said
from .results import Emptied
from .states import QueueState, WorkerState
from .streams import POISON_ATTEMPTS

BATCH = 500
BATCHES_MAX = 100_000
WORKERS_MAX = 1000
INTERNAL = "holdfast/"  # begins the names of queues that no user subscribes to
COUNT_MAX = 1_000_000


class Queues:
    """Questions and commands about queues."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def list(self) -> Sequence[QueueState]:
        """Every queue that is known or has something in it."""
        _, queues, _ = self.survey()
        return queues

    def names(self) -> Sequence[str]:
        """The queues that handlers have or had."""
        return sorted(self._desk.ask(queries.queue_names()))

    def patterns(self) -> Sequence[str]:
        """The types and prefixes that are subscribed to."""
        found = self._desk.ask(queries.subscriptions())
        return sorted({pattern for _, pattern in found})

    def workers(self) -> Sequence[WorkerState]:
        """Workers, those seen most recently first."""
        return self.survey()[2]

    def survey(self) -> tuple[datetime, Sequence[QueueState], Sequence[WorkerState]]:
        """The database's time, all queues and all workers, from one read. Counting a million messages takes seconds."""
        at, queues, workers, _ = self._desk.ask(self._survey(exact=True))
        return at, queues, workers

    def quick_survey(self) -> tuple[datetime, Sequence[QueueState], Sequence[WorkerState], int | None]:
        """The same without a full count: numbers above a limit are only counted up to it (`QueueState.more`).

        The last is how many may be poison; None: count them, they are few enough.
        """
        return self._desk.ask(self._survey(exact=False))

    def _survey(
        self, *, exact: bool
    ) -> Plan[tuple[datetime, Sequence[QueueState], Sequence[WorkerState], int | None]]:
        moment = yield from operator.moment()
        numbers = (
            Counted((yield from queries.counts()))
            if exact
            else (yield from counting.counted(POISON_ATTEMPTS))
        )
        known = yield from queries.queues()
        subscribed = yield from queries.subscriptions()
        renamed = yield from engine.renames()
        dead = {row["queue"]: row["count"] for row in (yield from queries.dead_counts())}
        workers = [
            _worker(row, moment, self._desk.settings.lease)
            for row in (yield from queries.workers(WORKERS_MAX))
        ]
        queues = _queues(numbers, known, subscribed, renamed, dead, workers, self._desk.handlers)
        return moment, queues, workers, numbers.loops

    def pause(self, name: str, why: str | None = None, *, action: str = "queues.pause") -> None:
        """Stop claiming from it. Running messages are settled; those that have not started are given back."""
        self._known(name)
        text = said(why, self._desk.settings.error_chars)
        self._desk.command(f"Queue {name}", self._pause, name, text, action)
        log.info("queue.paused", "paused queue %(queue)s: %(why)s", queue=name, why=why)

    def _pause(self, name: str, why: str | None, action: str) -> Plan[None]:
        before = yield from audit.queue_facts(name)
        yield from queues.pause(name, why)
        after = yield from audit.queue_facts(name)
        yield from self._desk.note(Entry(action, name, why=why), before, after)

    def resume(self, name: str, *, why: str | None = None, action: str = "queues.resume") -> bool:
        """Claim from it again. False: it was not paused."""
        self._known(name)
        text = said(why, self._desk.settings.error_chars)
        resumed = self._desk.command(f"Queue {name}", self._resume, name, text, action)
        if resumed:
            log.info("queue.resumed", "resumed queue %(queue)s", queue=name)
        return resumed

    def _resume(self, name: str, why: str | None, action: str) -> Plan[bool]:
        before = yield from audit.queue_facts(name)
        resumed = yield from queues.unpause(name)
        if resumed:
            after = yield from audit.queue_facts(name)
            yield from self._desk.note(Entry(action, name, why=why), before, after)
        return resumed

    def move(
        self,
        source: str,
        target: str,
        *,
        why: str | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Emptied:
        """Move all pending messages to another queue, each stream in its order, after the messages that are there.

        The source loses its subscriptions. A message that the target has, or has ended, ends in the source. If
        another message has its id in the target, it becomes a dead letter there.
        """
        if source == target:
            raise UsageError(f"Queue {source} cannot be moved to itself.")
        self._known(target)
        self._idle(source)
        desk = self._desk
        tally, unsubscribed = self._begin("queues.move", source, target, why)
        since, known = desk.ask(self._known_to(source, target))
        total = queues.Moved(0, 0, 0, 0)
        for _ in range(BATCHES_MAX):
            batch = tally.command(
                f"Queue {source}",
                lambda done: (sum(done), ()),
                queues.move,
                source,
                target,
                BATCH,
                known,
                since,
            )
            if not sum(batch):
                break
            total = queues.Moved(*map(sum, zip(total, batch, strict=True)))
            if progress is not None:
                progress(sum(total))
        log.info(
            "queue.moved",
            "moved %(count)d messages from queue %(queue)s to %(target)s, %(twice)d were there already, %(over)d had "
            "ended there, %(taken)d became dead letters because their ids were taken there",
            count=total.moved,
            queue=source,
            target=target,
            twice=total.here,
            over=total.over,
            taken=total.taken,
        )
        ended = total.here + total.over
        return Emptied(source, total.moved, ended, tuple(unsubscribed), total.over, total.taken)

    def _known_to(self, source: str, target: str) -> Plan[tuple[datetime, dict[int, str]]]:
        """The time, and which messages of a queue another one has or has ended: one pass over the history."""
        since = yield from operator.moment()
        return since, (yield from queues.known(source, target))

    def drop(
        self,
        name: str,
        *,
        force: bool = False,
        why: str | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Emptied:
        """Remove a queue. With `force` its pending messages end as discarded; its dead letters stay."""
        self._idle(name)
        desk = self._desk
        pending, _ = desk.ask(queries.queue_pending(name, COUNT_MAX))
        if pending and not force:
            raise Refused(
                f"{pending} messages are pending in queue {name}: move them to another queue, "
                "or force the drop, which discards them."
            )
        tally, unsubscribed = self._begin("queues.drop", name, None, why)
        ended = 0
        for _ in range(BATCHES_MAX):
            count = tally.command(f"Queue {name}", lambda count: (count, ()), queues.empty, name, BATCH)
            if not count:
                break
            ended += count
            if progress is not None:
                progress(ended)
        desk.command(f"Queue {name}", queues.forget, name)
        log.info(
            "queue.dropped",
            "dropped queue %(queue)s, %(count)d messages discarded",
            queue=name,
            count=ended,
        )
        return Emptied(name, 0, ended, tuple(unsubscribed))

    def _begin(
        self, action: str, name: str, target: str | None, why: str | None
    ) -> tuple[Tally, Sequence[str]]:
        """End the subscriptions of a queue before it is emptied, with an audit line."""
        desk = self._desk
        tally = Tally(desk, Entry(action, name, target, why=said(why, desk.settings.error_chars)))
        unsubscribed = tally.begin(
            f"Queue {name}", lambda patterns: {"unsubscribed": patterns}, queues.unsubscribe, name
        )
        return tally, unsubscribed

    def state(self, name: str) -> QueueState | None:
        """A queue without its counts; None if there is no such queue."""
        return self._desk.ask(self._look(name))

    def _look(self, name: str) -> Plan[QueueState | None]:
        lease = self._desk.settings.lease
        row = next((each for each in (yield from queries.queues()) if each["name"] == name), None)
        patterns = tuple(pattern for queue, pattern in (yield from queries.subscriptions()) if queue == name)
        pending, dead = yield from queries.queue_pending(name, 1)
        if row is None and not (patterns or pending or dead):
            return None
        live = yield from queries.worker_names(name, lease, WORKERS_MAX)
        return QueueState(
            name=name,
            states={},
            depth=pending,
            oldest_at=None,
            dead=dead,
            paused_at=row["paused_at"] if row is not None else None,
            paused_why=row["paused_why"] if row is not None else None,
            subscriptions=patterns,
            workers=tuple(live),
            is_orphaned=False,
        )

    def _known(self, name: str) -> QueueState:
        found = self.state(name)
        if found is None:
            there = ", ".join(each.name for each in self.list()) or "none"
            raise NotFound(f"There is no queue {name}; there are: {there}.")
        return found

    def _idle(self, name: str) -> None:
        """Raise Refused while workers take from the queue: they would continue while it is emptied."""
        state = self._known(name)
        if name.startswith(INTERNAL):
            raise Refused(f"Queue {name} is the engine's own: its messages are cancelled one by one.")
        if is_versioned(name):
            self._spare_instances(name)
        if state.workers and state.paused_at is None:
            raise Refused(
                f"Queue {name} is taken from by {', '.join(state.workers)}: stop them, or pause the queue first."
            )

    def _spare_instances(self, name: str) -> None:
        """Raise Refused while instances of this version have not ended: they would wait for ever."""
        found = sum(each.many for each in self._desk.ask(instance_queries.counts()) if each.queue == name)
        if not found:
            return
        lead, _, version = name.rpartition("@")
        raise Refused(
            f"Queue {name} has {counted(found, 'instance')} of an orchestration that would wait for ever: let them "
            "end, or end each with `holdfast orchestrations terminate`. "
            f"`holdfast orchestrations list --name {lead} -V {version} --open` lists them."
        )


def _worker(row: Mapping[str, Any], moment: datetime, lease: float) -> WorkerState:
    age = (moment - row["seen_at"]).total_seconds()
    return WorkerState(
        id=row["id"],
        name=row["name"],
        started_at=row["started_at"],
        seen_at=row["seen_at"],
        age=age,
        queues=tuple(row["queues"] or ()),
        asleep=row["asleep"],
        stopping=row["stopping"],
        leases=row["leases"],
        is_alive=age <= lease,
    )


def _queues(
    numbers: Counted,
    known: Sequence[Mapping[str, Any]],
    subscribed: Sequence[tuple[str, str]],
    renamed: Mapping[str, str],
    dead: Mapping[str, int],
    workers: Sequence[WorkerState],
    declared: Handlers,
) -> Sequence[QueueState]:
    """`declared`: the handlers of the application; None: no application is known."""
    rows = {row["name"]: row for row in known}
    states: dict[str, dict[str, int]] = defaultdict(dict)
    oldest: dict[str, datetime] = {}
    for row in numbers.rows:
        if row["queue"] is None:
            continue
        states[row["queue"]][row["state"]] = row["count"]
        if row["oldest_at"] is not None:
            oldest[row["queue"]] = min(row["oldest_at"], oldest.get(row["queue"], row["oldest_at"]))
    patterns: dict[str, list[str]] = defaultdict(list)
    for queue, pattern in subscribed:
        patterns[queue].append(pattern)
    anybody = any(each.is_alive for each in workers)
    found = []
    for name in sorted({*rows, *states, *patterns, *dead}):
        live = tuple(each.name for each in workers if each.is_alive and serves(each.queues, name))
        found.append(
            QueueState(
                name=name,
                states=dict(sorted(states[name].items())) if name in states else {},
                depth=sum(states[name].values()) if name in states else 0,
                oldest_at=oldest.get(name),
                dead=dead.get(name, 0),
                paused_at=rows[name]["paused_at"] if name in rows else None,
                paused_why=rows[name]["paused_why"] if name in rows else None,
                subscriptions=tuple(patterns.get(name, ())),
                workers=live,
                is_orphaned=not (name.startswith(INTERNAL) or live or name in declared or name in renamed)
                and (anybody or len(declared) > 0 or name not in patterns),
                renamed_to=renamed.get(name),
                more=tuple(sorted(state for queue, state in numbers.more if queue == name)),
            )
        )
    return found
