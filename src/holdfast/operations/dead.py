"""Dead letters: look into them, bring them back, end them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from ..errors import NotFound, UsageError
from ..store import operator_dead as plans
from ..store import operator_queries as queries
from . import results
from .desk import Desk, as_id, log, needed
from .results import Changed, Content, Filter, Letter, Many

BATCH = 200
BATCHES_MAX = 100_000


class DeadLetters:
    """Orders and questions about dead letters."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def list(self, filter: Filter | None = None, *, newest: bool = True, limit: int = 50) -> Sequence[Letter]:
        """Dead letters that match, those that died last first."""
        wanted = _checked(filter or Filter())
        if wanted.id is not None:
            found = [each for each, _ in self._of(wanted.id) if _matches(each, wanted)]
            return found[:limit]
        rows = self._desk.ask(
            lambda now: queries.letters(
                self._desk.plans,
                queue=wanted.queue,
                type=wanted.type,
                stream=wanted.stream,
                reason=wanted.reason,
                newest=newest,
                limit=limit,
            )
        )
        return [results.letter(row) for row in rows]

    def _of(self, id: UUID) -> Sequence[tuple[Letter, Content]]:
        _, dead, _ = self._desk.ask(lambda now: queries.show(self._desk.plans, id, now), one=False)
        return [(results.letter(row), results.content(row)) for row in dead]

    def show(self, id: UUID | str) -> Sequence[tuple[Letter, Content]]:
        """The dead letters of a message, with body, headers and error history."""
        found = self._of(as_id(id))
        if not found:
            raise self._missing(as_id(id), None)
        return found

    def redrive(self, id: UUID | str, *, queue: str | None = None, now: bool = False) -> Sequence[Changed]:
        """It is pending again: at the front of a stream that it halts, else at the end; with `now` out of the order."""
        keys = [(each.id, each.queue) for each, _ in self._of(as_id(id)) if queue in (None, each.queue)]
        if not keys:
            raise self._missing(as_id(id), queue)
        done = self._redrive(keys, now)
        if not done:
            raise self._missing(as_id(id), queue)
        log.info(
            "dead.redriven",
            "redrove message %(message_id)s in queues %(queues)s",
            message_id=id,
            queues=[name for _, name in done],
        )
        return [Changed(each, name, "redriven") for each, name in done]

    def _redrive(self, keys: Sequence[plans.Key], out: bool) -> Sequence[plans.Key]:
        desk = self._desk
        return desk.order(lambda now: plans.redrive(desk.plans, keys, out, now), "Dead letters")

    def redrive_many(
        self, filter: Filter, *, now: bool = False, progress: Callable[[int], None] | None = None
    ) -> Many:
        """What matches comes back, in the order of the old positions. What dies meanwhile is left alone."""
        wanted, desk = _checked(filter), self._desk
        if wanted.id is not None:
            return Many(len(self.redrive(wanted.id, queue=wanted.queue, now=now)))
        until = desk.ask(lambda at: queries.moment(desk.plans, at))
        after, changed = (-1, -1), 0
        for _ in range(BATCHES_MAX):
            found = self._keys(wanted, until, after)
            if not found:
                break
            after = found[-1][2]
            changed += len(self._redrive([(id, queue) for id, queue, _ in found], now))
            if progress is not None:
                progress(changed)
        log.info("dead.redriven_many", "redrove %(count)d dead letters", count=changed)
        return Many(changed)

    def _keys(
        self, wanted: Filter, until: object, after: tuple[int, int]
    ) -> Sequence[tuple[UUID, str, tuple[int, int]]]:
        return self._desk.ask(
            lambda _: queries.letter_keys(
                self._desk.plans,
                queue=wanted.queue,
                type=wanted.type,
                stream=wanted.stream,
                reason=wanted.reason,
                until=until,
                after=after,
                limit=BATCH,
            )
        )

    def discard(self, id: UUID | str, why: str, *, queue: str | None = None) -> Sequence[Changed]:
        """It ends for good and frees its dedupe key. The reason goes to the log."""
        id, text = as_id(id), needed(why, self._desk.settings.error_chars)
        names = [each.queue for each, _ in self._of(id) if queue in (None, each.queue)]
        if not names:
            raise self._missing(id, queue)
        done = []
        for name in names:
            halted = self._discard(id, name)
            what = "discarded"
            if halted is not None:
                what += f"; stream {halted} is still halted: `holdfast streams resume` lets it go on"
            log.info(
                "dead.discarded",
                "discarded dead letter %(message_id)s of queue %(queue)s: %(why)s",
                message_id=id,
                queue=name,
                why=text,
            )
            done.append(Changed(id, name, what))
        return done

    def _discard(self, id: UUID, queue: str) -> str | None:
        desk = self._desk
        return desk.order(lambda now: plans.discard(desk.plans, id, queue, now), f"Message {id}")

    def _missing(self, id: UUID, queue: str | None) -> NotFound:
        where = f" in queue {queue}" if queue is not None else ""
        return NotFound(
            f"There is no dead letter {id}{where}: `holdfast why {id}` says what became of the message."
        )


def _checked(filter: Filter) -> Filter:
    if filter.state is not None:
        raise UsageError("Dead letters have no state to filter by.")
    return filter


def _matches(each: Letter, wanted: Filter) -> bool:
    pairs = (
        (wanted.queue, each.queue),
        (wanted.type, each.type),
        (wanted.stream, each.stream),
        (wanted.reason, each.last_reason or each.reason),
    )
    return all(want is None or want == have for want, have in pairs)
