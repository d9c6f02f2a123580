"""Subscriptions: which queue gets which types, queues that no worker serves, and renamed handlers."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import NotFound, Refused
from ..store.plans import engine, queries, queues
from ..store.plans.audit import Entry
from ..store.statement import Plan
from .desk import Desk, log, said
from .queues import INTERNAL, Queues
from .states import Dropped, Subscription


class Subscriptions:
    """Questions and commands about subscriptions."""

    def __init__(self, desk: Desk, known: Queues) -> None:
        self._desk, self._queues = desk, known

    def list(self) -> Sequence[Subscription]:
        """Every subscription, and every old name of a handler that was renamed, by queue."""
        subscribed, renamed = self._desk.ask(_stored())
        states = {each.name: each for each in self._queues.list()}
        found = []
        old = [(queue, None) for queue in renamed if not any(queue == each for each, _ in subscribed)]
        for queue, pattern in sorted([*subscribed, *old], key=lambda each: (each[0], each[1] or "")):
            state = states.get(queue)
            workers = state.workers if state is not None else ()
            is_served = bool(workers) or queue in self._desk.handlers or queue.startswith(INTERNAL)
            found.append(
                Subscription(
                    queue=queue,
                    pattern=pattern,
                    renamed_to=renamed.get(queue),
                    depth=state.depth if state is not None else 0,
                    workers=workers,
                    is_orphaned=not is_served and queue not in renamed,
                )
            )
        return found

    def orphaned(self) -> Sequence[Subscription]:
        """Those whose queue is not served: no live worker takes from it and the application has no handler for it.

        Without an application (only `--url`), a queue whose workers are all stopped looks the same.
        """
        return [each for each in self.list() if each.is_orphaned]

    def drop(self, queue: str, *, why: str | None = None) -> Dropped:
        """Send no new messages to this queue; the messages in it stay. Its renaming is removed, too.

        Refused while a live worker takes from it. A process that declares its handler subscribes it again.
        """
        found = [each for each in self.list() if each.queue == queue]
        if not found:
            there = ", ".join(sorted({each.queue for each in self.list()})) or "none"
            raise NotFound(f"No subscription leads to queue {queue}; there are some to: {there}.")
        if workers := found[0].workers:
            raise Refused(
                f"Queue {queue} is taken from by {', '.join(workers)}, which would subscribe it again: stop them first."
            )
        text = said(why, self._desk.settings.error_chars)
        dropped = self._desk.command(f"Queue {queue}", self._drop, queue, text)
        log.info("subscription.dropped", "dropped the subscriptions of queue %(queue)s", queue=queue)
        return dropped

    def _drop(self, queue: str, why: str | None) -> Plan[Dropped]:
        patterns = yield from queues.unsubscribe(queue)
        renamed_to = yield from queues.forget_rename(queue)
        before = {"subscriptions": patterns, "renamed_to": renamed_to}
        yield from self._desk.note(Entry("subscriptions.drop", queue, why=why), before, {"subscriptions": []})
        return Dropped(queue, tuple(patterns), renamed_to)

    def follow(self) -> int:
        """Move what is left in the queues of renamed handlers to their new queues. Returns how many messages.

        Nothing moves while a live worker takes from the old queue, or while it is paused.
        """
        moved = 0
        for old, new in self._desk.ask(engine.renames()).items():
            state = self._queues.state(old)
            if state is None or not state.depth or state.workers or state.paused_at is not None:
                continue
            try:
                done = self._queues.move(old, new, why=f"handler {old} was renamed to {new}")
            except Refused:  # a worker has come, or holds something: it is tried in the next round
                continue
            moved += done.moved
        return moved


def _stored() -> Plan[tuple[Sequence[tuple[str, str | None]], dict[str, str]]]:
    subscribed = yield from queries.subscriptions()
    return list(subscribed), (yield from engine.renames())
