"""Dead letters: show them, redrive them, edit them, hold them, discard them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from ..bodies import codec
from ..bodies.keys import SEALED
from ..errors import InvalidMessage, NotFound, Refused, UsageError
from ..handlers.consumer import Decoding
from ..rules import recovery
from ..store.plans import dead, operator, queries
from ..store.plans import dead_queries as letters
from ..store.plans.audit import Entry
from ..store.statement import Plan
from . import from_rows
from .desk import Desk, Tally, as_id, log, needed, refuse_several, spoken
from .results import Canary, Changed, Content, Deaths, Filter, Group, Letter, Redriven, Rehearsal

BATCH = 200
BATCHES_MAX = 100_000
RECOVERED_MAX = 5  # batches in one round of housekeeping, for each policy
PATIENCE = 60.0  # seconds for a canary
LOOK = 0.2  # seconds between two checks of the canary
DAY = 86_400.0

Progress = Callable[[int], None]


class DeadLetters:
    """Questions and commands about dead letters."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    # -- looking

    def list(self, filter: Filter | None = None, *, newest: bool = True, limit: int = 50) -> Sequence[Letter]:
        """Dead letters that match, those that died last first."""
        wanted, desk = conditions(filter), self._desk
        rows = desk.ask(letters.letters(newest=newest, limit=limit, **wanted))
        return [from_rows.letter(row) for row in rows]

    def count(self, filter: Filter | None = None) -> int:
        wanted, desk = conditions(filter), self._desk
        return desk.ask(letters.count(**wanted))

    def groups(self, filter: Filter | None = None, *, limit: int = 50) -> Sequence[Group]:
        """Dead letters by cause, most deaths first."""
        wanted, desk = conditions(filter), self._desk
        rows = desk.ask(letters.groups(limit, **wanted))
        return [from_rows.group(row) for row in rows]

    def deaths(self, seconds: float = DAY) -> Sequence[Deaths]:
        """How many messages died within the last seconds, by queue, also those redriven or discarded since."""
        desk = self._desk
        rows = desk.ask(letters.death_counts(seconds))
        return [Deaths(row["queue"], row["count"], row["last_at"]) for row in rows]

    def show(self, id: UUID | str) -> Sequence[tuple[Letter, Content]]:
        """The dead letters of a message, with body, headers, error history and all deaths."""
        found = self._of(as_id(id))
        if not found:
            raise self._missing(as_id(id), None)
        return found

    def _of(
        self, id: UUID, queue: str | None = None, number: int | None = None
    ) -> Sequence[tuple[Letter, Content]]:
        _, dead, _ = self._desk.ask(queries.show(id))
        found = [(from_rows.letter(row), from_rows.content(row)) for row in dead]
        return [
            (each, content)
            for each, content in found
            if queue in (None, each.queue) and number in (None, each.seq)
        ]

    def _meant(self, id: UUID, queue: str | None, number: int | None) -> Sequence[tuple[Letter, Content]]:
        """The letters that a command is about; refused if several messages with one id are dead and none is chosen."""
        found = self._of(id, queue, number)
        if not found:
            raise self._missing(id, queue, number)
        names = ("seq", "queue", "type", "created_at", "due_at", "died_at")
        refuse_several(id, [{name: getattr(each, name) for name in names} for each, _ in found], "dead")
        return found

    # -- bringing back

    def redrive(
        self, id: UUID | str, *, queue: str | None = None, number: int | None = None, now: bool = False
    ) -> Sequence[Changed]:
        """Make it pending again: at the front of a stream that it halts, else at the end; with `now` outside the order.

        Here and below: `number` says which letter is meant, if several have the id.
        """
        found = [each for each, _ in self._meant(as_id(id), queue, number)]
        for each in found:
            _refuse_held(each)
        self._refuse_taken(found)
        tally = Tally(
            self._desk,
            Entry("dead.redrive", queue, str(id), before=facts(*found), after={"what": "redriven"}),
        )
        done = self._redrive([_key(each) for each in found], now, tally=tally)
        if not done:
            self._refuse_taken(found)
            raise self._missing(as_id(id), queue, number)
        log.info(
            "dead.redriven",
            "redrove message %(message_id)s in queues %(queues)s",
            message_id=id,
            queues=[name for _, name, _ in done],
        )
        return [Changed(each, name, "redriven") for each, name, _ in done]

    def _refuse_taken(self, found: Sequence[Letter]) -> None:
        """Raises Refused while another message has the id: two with one id cannot be pending in one queue."""
        for each in found:
            number = self._pending(each.id, each.queue)
            if number is not None:
                raise Refused(
                    f"Dead letter {each.id} of queue {each.queue} (number {each.seq}) cannot come back: another "
                    f"message with this id is pending there, number {number}. Wait until that one has ended, or "
                    f"cancel it: `holdfast messages cancel {each.id} --number {number}`."
                )

    def _pending(self, id: UUID, queue: str) -> int | None:
        """The number of the message that has an id in a queue."""
        rows = self._desk.ask(queries.pending(id, queue))
        return rows[0]["seq"] if rows else None

    def _redrive(
        self,
        keys: Sequence[dead.Key],
        out: bool,
        delays: dict[dead.Key, float] | None = None,
        tally: Tally | None = None,
    ) -> Sequence[dead.Key]:
        """`tally` writes the audit line of an operator's command; a recovery policy has no audit line."""
        desk = self._desk
        if tally is None:
            return desk.command("Dead letters", dead.redrive, keys, out, delays)
        return tally.command(
            "Dead letters",
            lambda done: (len(done), [str(id) for id, _, _ in done]),
            dead.redrive,
            keys,
            out,
            delays,
        )

    def rehearse(self, filter: Filter) -> Rehearsal:
        """What `redrive_many` would redrive now. Changes nothing."""
        wanted = redrivable(filter)
        held = {**wanted, "held": True}
        desk = self._desk
        rows = desk.ask(letters.groups(BATCH, **wanted))
        return Rehearsal(
            desk.ask(letters.count(**wanted)),
            desk.ask(letters.count(**held)),
            tuple(from_rows.group(row) for row in rows),
        )

    def redrive_many(
        self,
        filter: Filter,
        *,
        now: bool = False,
        over: float = 0.0,
        canary: int = 0,
        patience: float = PATIENCE,
        progress: Progress | None = None,
    ) -> Redriven:
        """Redrive what matches, in the order of the old positions. Held letters and new deaths are left alone.

        `over`: spread evenly over so many seconds. `canary`: redrive so many first; the others follow if all of these
        were handled within `patience` seconds.
        """
        if over < 0 or canary < 0 or patience <= 0:
            raise UsageError("over= and canary= must not be negative, and patience= must be positive.")
        wanted, desk = redrivable(filter), self._desk
        wanted["until"] = desk.ask(operator.moment())
        total = desk.ask(letters.count(**wanted)) if over else 0
        tally = Tally(desk, Entry("dead.redrive", filter.queue, filter=spoken(filter)))
        bird, place, changed = None, None, 0
        if canary:
            first, place = self._next(wanted, None, canary)
            tried = self._redrive(first, now, tally=tally) if first else ()
            changed, bird = len(tried), self._watch(tried, patience, wanted["until"])
            log.info(
                "dead.canary",
                "canary: %(count)d dead letters redriven, %(ended)d ended, %(died)d died again, %(pending)d pending",
                count=bird.tried, ended=bird.ended, died=bird.died, pending=bird.pending,
            )  # fmt: skip
            if not bird.is_well:
                return Redriven(changed, bird)
        for _ in range(BATCHES_MAX):
            found, place = self._next(wanted, place, BATCH)
            if not found:
                break
            delays = (
                {key: over * (changed + n) / max(total, 1) for n, key in enumerate(found)} if over else None
            )
            changed += len(self._redrive(found, now, delays, tally))
            if progress is not None:
                progress(changed)
        log.info("dead.redriven_many", "redrove %(count)d dead letters", count=changed)
        return Redriven(changed, bird)

    def _next(
        self, wanted: dict[str, Any], place: letters.Cursor | None, limit: int
    ) -> tuple[Sequence[dead.Key], letters.Cursor | None]:
        """The next letters in the order in which they are redriven, and where to continue."""
        desk = self._desk
        rows = desk.ask(letters.keys(limit=limit, place=place, **wanted))
        if not rows:
            return [], place
        last = rows[-1]
        return (
            [(row["id"], row["queue"], row["seq"]) for row in rows],
            (last["place"], last["seq"], str(last["id"]), last["queue"]),
        )

    def _watch(self, tried: Sequence[dead.Key], patience: float, since: Any) -> Canary:
        """Wait until all have ended, or one has died again, or the patience is used up."""
        desk, clock = self._desk, self._desk.store.clock
        end = clock.monotonic() + patience
        while True:
            rows = desk.ask(letters.standing(tried, since)) if tried else []
            pending = sum(waits for _, _, waits, _ in rows)
            died = sum(dead for _, _, _, dead in rows)
            seen = Canary(len(tried), len(rows) - pending - died, died, pending)
            if died or not pending or clock.monotonic() >= end:
                return seen
            threading.Event().wait(LOOK)

    def recover(self) -> int:
        """Redrive by the recovery policies of the application's handlers, in bounded batches."""
        desk = self._desk
        policies = [(each.queue, each.policy.recovery) for each in desk.handlers if each.policy.recovery]
        if not policies:
            return 0
        at = desk.ask(operator.moment())
        changed = 0
        for due in recovery.due(policies, at):
            wanted = {
                "queue": due.queue,
                "reason": int(due.reason),
                "here_before": due.here_before,
                "redrives_below": due.redrives_below,
                "held": False,
            }
            place = None
            for _ in range(RECOVERED_MAX):
                found, place = self._next(wanted, place, BATCH)
                if not found:
                    break
                changed += len(self._redrive(found, False))
        if changed:
            text = "redrove %(count)d dead letters by the policies of their handlers"
            log.info("dead.recovered", text, count=changed)
        return changed

    # -- editing, holding, discarding

    def edit(
        self,
        id: UUID | str,
        body: str,
        *,
        queue: str | None = None,
        number: int | None = None,
        redrive: bool = False,
        now: bool = False,
    ) -> Sequence[Changed]:
        """Replace its body by this JSON text; the body with which it died is kept. `redrive`: also redrive it."""
        id, desk = as_id(id), self._desk
        found = self._meant(id, queue, number)
        if len(found) > 1:
            names = ", ".join(each.queue for each, _ in found)
            raise UsageError(
                f"Message {id} is a dead letter in {names}: say in which queue it is to be edited."
            )
        ((letter, content),) = found
        text = codec.encode_raw(body, desk.settings)
        self._check_type(letter, text)
        if desk.keys is None and content.body.startswith(SEALED):
            raise Refused(
                f"The body of dead letter {id} is sealed, and this process has no keys to seal another one."
            )
        if desk.keys is not None:
            text = desk.keys.seal(id, letter.type, text)
        if redrive:
            _refuse_held(letter)
            self._refuse_taken([letter])

        if not desk.command(f"Message {id}", self._edit, letter, text, redrive, now):
            raise Refused(
                f"Dead letter {id} of queue {letter.queue} was changed in the meantime: look at it again."
            )
        text = "edited dead letter %(message_id)s of queue %(queue)s"
        log.info("dead.edited", text, message_id=id, queue=letter.queue)
        return [Changed(id, letter.queue, "edited and redriven" if redrive else "edited")]

    def _edit(self, letter: Letter, text: str, redrive: bool, out: bool) -> Plan[bool]:
        key, id = _key(letter), str(letter.id)
        edited = yield from dead.edit(key, letter.epoch, text)
        if edited:
            yield from self._desk.note(Entry("dead.edit", letter.queue, id))
        if edited and redrive:
            yield from dead.redrive([key], out)
            entry = Entry("dead.redrive", letter.queue, id, before=facts(letter), after={"what": "redriven"})
            yield from self._desk.note(entry)
        return edited

    def _check_type(self, letter: Letter, text: str) -> None:
        """Checks that the handler can read the new body, if the application is known."""
        handler = self._desk.handlers.get(letter.queue)
        if not isinstance(handler, Decoding):
            return
        try:
            handler.decode(text)
        except codec.Unreadable as error:
            raise InvalidMessage(
                f"Handler {letter.queue} cannot read this body, so it is not stored: {error}."
            ) from None

    def hold(
        self, id: UUID | str, why: str, *, queue: str | None = None, number: int | None = None
    ) -> Sequence[Changed]:
        """Keep it: no filter or policy redrives it, and it is not archived, until `unhold`."""
        text = needed(why, self._desk.settings.error_chars)
        return self._hold(self._meant(as_id(id), queue, number), text, f"held: {text}")

    def unhold(
        self, id: UUID | str, *, queue: str | None = None, number: int | None = None
    ) -> Sequence[Changed]:
        return self._hold(self._meant(as_id(id), queue, number), None, "not held any more")

    def _hold(self, found: Sequence[tuple[Letter, Content]], why: str | None, what: str) -> Sequence[Changed]:
        done = []
        for each, _ in found:
            if self._desk.command(f"Message {each.id}", self._hold_one, _key(each), why):
                text = "dead letter %(message_id)s of queue %(queue)s: %(what)s"
                log.info("dead.held", text, message_id=each.id, queue=each.queue, what=what)
                done.append(Changed(each.id, each.queue, what))
        if not done:
            raise self._missing(found[0][0].id, None)
        return done

    def _hold_one(self, key: dead.Key, why: str | None) -> Plan[bool]:
        id, queue, _ = key
        done = yield from dead.hold(key, why)
        if done:
            action = "dead.unhold" if why is None else "dead.hold"
            yield from self._desk.note(Entry(action, queue, str(id), why=why))
        return done

    def discard(
        self, id: UUID | str, why: str, *, queue: str | None = None, number: int | None = None
    ) -> Sequence[Changed]:
        """End it for good and free its dedupe key. The reason is kept in the history."""
        id, text = as_id(id), needed(why, self._desk.settings.error_chars)
        found = [each for each, _ in self._meant(id, queue, number)]
        for each in found:
            _refuse_held(each)
        done = []
        for each in found:
            name = each.queue
            halted = self._desk.command(f"Message {id}", self._discard, _key(each), text, facts(each))
            what = "discarded"
            if halted is not None:
                what += f"; stream {halted} is still halted: `holdfast streams resume` lets it continue"
            log.info(
                "dead.discarded",
                "discarded dead letter %(message_id)s of queue %(queue)s: %(why)s",
                message_id=id,
                queue=name,
                why=text,
            )
            done.append(Changed(id, name, what))
        return done

    def _discard(self, key: dead.Key, why: str, before: dict[str, Any]) -> Plan[str | None]:
        id, queue, _ = key
        halted = yield from dead.discard(key, why)
        after = {"what": "discarded"}
        yield from self._desk.note(Entry("dead.discard", queue, str(id), before=before, after=after, why=why))
        return halted

    def _missing(self, id: UUID, queue: str | None, number: int | None = None) -> NotFound:
        where = f" in queue {queue}" if queue is not None else ""
        where += f" with number {number}" if number is not None else ""
        return NotFound(
            f"There is no dead letter {id}{where}: `holdfast why {id}` says what became of the message."
        )


def _key(letter: Letter) -> dead.Key:
    return letter.id, letter.queue, letter.seq


def facts(*found: Letter) -> dict[str, Any]:
    """What the audit keeps of a dead letter that is redriven or discarded."""
    return {
        name: [getattr(each, name) for each in found] if len(found) != 1 else getattr(found[0], name)
        for name in ("died_at", "reason", "last_reason", "attempts", "redrives")
    }


def conditions(filter: Filter | None) -> dict[str, Any]:
    """A filter as conditions for the store."""
    filter = filter or Filter()
    if filter.state is not None:
        raise UsageError("Dead letters have no state to filter by.")
    ids = (filter.id,) if filter.id is not None else filter.ids
    names = (
        "queue", "type", "stream", "reason", "died_of", "fingerprint", "died_before", "died_after", "text",
        "redriven", "held", "subject",
    )  # fmt: skip
    return {name: getattr(filter, name) for name in names} | {"ids": ids}


def redrivable(filter: Filter) -> dict[str, Any]:
    """The same without held letters."""
    if filter.held:
        raise Refused("Dead letters that are held are not redriven: `holdfast dead unhold ID` lets one go.")
    return conditions(filter) | {"held": False}


def _refuse_held(letter: Letter) -> None:
    if letter.held_at is not None:
        raise Refused(
            f"Dead letter {letter.id} of queue {letter.queue} is held since {letter.held_at:%Y-%m-%d %H:%M} UTC "
            f"({letter.held_why}): `holdfast dead unhold {letter.id}` lets it go."
        )
