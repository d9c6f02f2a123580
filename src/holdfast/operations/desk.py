"""Runs an operator's questions and commands against the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, ParamSpec, TypeAlias, TypeVar
from uuid import UUID

from ..bodies.keys import Keys
from ..errors import NotFound, Refused, UsageError
from ..handlers.consumer import Consumer
from ..handlers.registry import Handlers
from ..model import names
from ..rules.describing import storable
from ..settings import Settings
from ..store import Store
from ..store.given import taken
from ..store.plans import audit, queries
from ..store.plans.audit import Entry
from ..store.plans.operator import TargetChanged, hold
from ..store.plans.queries import Row
from ..store.statement import Plan, Runnable
from ..telemetry.logs import Log
from .results import Changed, Filter

T = TypeVar("T")
P = ParamSpec("P")

Counted: TypeAlias = Callable[[T], tuple[int, Sequence[str]]]  # how many were changed, and which
After: TypeAlias = Callable[[T], Mapping[str, Any]]  # the state after the change, for the audit

TRIES = 20  # for a command whose stream changes at the same time
AGAIN = {"40001", "40P01"}  # PostgreSQL ended our transaction because of a conflict: nothing was done

log = Log("holdfast.operations")


class Desk:
    """Runs queries and commands, and tries a command again when its target has changed in the meantime.

    `handlers` are those of the application, if one is known; `who` gives the commands and is named in the audit.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        handlers: Iterable[Consumer] = (),
        keys: Keys | None = None,
        who: str | None = None,
    ) -> None:
        self.store, self.settings, self.keys = store, settings, keys
        self.handlers = Handlers(handlers)
        self._who = None if who is None else names.operator(who)

    @property
    def who(self) -> str:
        return self._who or names.operator()

    def ask(self, plan: Runnable[T]) -> T:
        """Run a plan that only reads."""
        return self.store.read(plan)

    def command(self, what: str, verb: Callable[P, Runnable[T]], *args: P.args, **options: P.kwargs) -> T:
        """Run a plan that changes something; try again while its target changes."""
        for _ in range(TRIES):
            try:
                return self.store.run(verb(*args, **options))
            except TargetChanged:
                continue
            except Exception as error:
                if getattr(error, "sqlstate", None) not in AGAIN and taken(error) is None:
                    raise
        raise Refused(f"{what} changed {TRIES} times while the command was running: try again.")

    def note(
        self, entry: Entry, before: Mapping[str, Any] | None = None, after: Mapping[str, Any] | None = None
    ) -> Plan[None]:
        """The audit line: who did it, the state before and after, written in the same transaction."""
        if before is not None or after is not None:
            entry = replace(entry, before=before, after={**(after or {}), **(entry.after or {})})
        yield from audit.write(self.who, entry)

    def each(
        self,
        id: UUID,
        queue: str | None,
        verb: Callable[[int], Runnable[T]],
        in_words: Callable[[T], str],
        *,
        action: str,
        why: str | None = None,
        number: int | None = None,
        tally: Tally | None = None,
    ) -> list[Changed]:
        """Run a command on each pending delivery of a message, one transaction for each.

        Each gets its own audit line, or is counted in the `tally` of a command about many. If several messages have
        one id, `number` says which is meant.
        """
        why = said(why, self.settings.error_chars)
        done: dict[int, Changed] = {}
        refused: dict[int, Refused] = {}
        for _ in range(TRIES):
            rows = self.ask(queries.pending(id, queue, number))
            left = [row for row in rows if row["seq"] not in done and row["seq"] not in refused]
            if not left:
                break
            if not done and not refused:
                refuse_several(id, left, "pending")
            for seq, name in [(row["seq"], row["queue"]) for row in left]:
                try:
                    entry = Entry(action, name, str(id), why=why)
                    done[seq] = Changed(id, name, self._once(verb, seq, in_words, entry, tally))
                    log.info(
                        "message.ordered",
                        "message %(message_id)s in queue %(queue)s: %(what)s",
                        message_id=id,
                        queue=name,
                        what=done[seq].what,
                    )
                except TargetChanged:
                    continue  # it ended, fired or was adopted in the meantime: look again
                except Refused as error:
                    refused[seq] = error
                except Exception as error:
                    if getattr(error, "sqlstate", None) not in AGAIN:
                        raise
        if refused:
            reasons = "; ".join(str(error) for error in refused.values())
            others = f" Done in {', '.join(str(each.queue) for each in done.values())}." if done else ""
            raise Refused(reasons + others)
        if not done:
            raise self.missing(id, queue)
        return list(done.values())

    def _once(
        self,
        verb: Callable[[int], Runnable[T]],
        seq: int,
        in_words: Callable[[T], str],
        entry: Entry,
        tally: Tally | None,
    ) -> str:
        if tally is None:
            return self.store.run(self._noted(verb, seq, in_words, entry))
        counted = [str(entry.target)]
        return in_words(tally.run(self.store.run, lambda _: (1, counted), None, verb, seq))

    def _noted(
        self, verb: Callable[[int], Runnable[T]], seq: int, in_words: Callable[[T], str], entry: Entry
    ) -> Plan[str]:
        # The row is locked before it is read, so the command finds it as it was read.
        yield from hold(seq, leased=True)
        before = yield from audit.message_facts(seq)
        result = in_words((yield from verb(seq)))
        after = yield from audit.message_facts(seq)
        yield from self.note(replace(entry, after={"what": result}), before, after)
        return result

    def missing(self, id: UUID, queue: str | None) -> NotFound:
        """Why there is no pending delivery for a command."""
        where = f" in queue {queue}" if queue is not None else ""
        _, dead, ended = self.ask(queries.show(id))
        if any(queue in (None, row["queue"]) for row in dead):
            return NotFound(
                f"Message {id} is a dead letter{where}: `holdfast dead redrive {id}` brings it back."
            )
        for row in ended:
            if queue in (None, row["queue"]):
                when = f"{row['ended_at']:%Y-%m-%d %H:%M:%S} UTC"
                return NotFound(
                    f"Message {id} is not pending{where}: it ended as {row['outcome']} at {when}."
                )
        return NotFound(f"There is no message {id}{where}: `holdfast messages list` shows what is pending.")


class Tally:
    """One audit line for a command of many transactions: written by the first, updated by the others."""

    def __init__(self, desk: Desk, entry: Entry) -> None:
        self.desk, self.entry = desk, entry
        self.number: int | None = None

    def run(
        self,
        run: Callable[[Plan[Any]], Any],
        counted: Counted[T],
        after: After[T] | None,
        verb: Callable[P, Runnable[T]],
        *args: P.args,
        **options: P.kwargs,
    ) -> T:
        """Run one transaction. `counted` returns how many were changed and which, `after` the result of the command.

        As long as nothing was changed, no audit line is written, unless there is an `after`.
        """
        answer: T
        answer, self.number, self.entry = run(self._noted(verb(*args, **options), counted, after))
        return answer

    def command(
        self,
        what: str,
        counted: Counted[T],
        verb: Callable[P, Runnable[T]],
        *args: P.args,
        **options: P.kwargs,
    ) -> T:
        """The same, tried again while its target changes."""
        return self._command(what, counted, None, verb, *args, **options)

    def begin(
        self,
        what: str,
        after: After[T],
        verb: Callable[P, Runnable[T]],
        *args: P.args,
        **options: P.kwargs,
    ) -> T:
        """The first transaction of a command. It writes the audit line even if nothing is counted yet."""
        return self._command(what, lambda _: (0, ()), after, verb, *args, **options)

    def _command(
        self,
        what: str,
        counted: Counted[T],
        after: After[T] | None,
        verb: Callable[P, Runnable[T]],
        *args: P.args,
        **options: P.kwargs,
    ) -> T:
        def again() -> Plan[tuple[T, int | None, Entry]]:
            return self._noted(verb(*args, **options), counted, after)

        answer, self.number, self.entry = self.desk.command(what, again)
        return answer

    def _noted(
        self, plan: Runnable[T], counted: Counted[T], after: After[T] | None
    ) -> Plan[tuple[T, int | None, Entry]]:
        answer = yield from plan
        count, ids = counted(answer)
        if not count and (after is None or self.number is not None):
            return answer, self.number, self.entry
        entry = replace(
            self.entry,
            count=count,
            ids=[*self.entry.ids, *ids][: audit.IDS_MAX],
            after=self.entry.after if after is None else after(answer),
        )
        number = self.number
        if number is None:
            number = yield from audit.write(self.desk.who, entry)
        else:
            yield from audit.add(number, entry)
        return answer, number, entry


def refuse_several(id: UUID, rows: Sequence[Row], state: str) -> None:
    """Raise Refused if these are several messages with one id, and not the deliveries of one message."""
    messages = {row["due_at"] or row["created_at"] for row in rows}
    if len(messages) > 1 or len({row["queue"] for row in rows}) < len(rows):
        found = "; ".join(_candidate(row, state) for row in rows)
        raise UsageError(
            f"{len(rows)} messages have the id {id}: {found}. "
            "Say which is meant, by its number (--number) or its queue."
        )


def _candidate(row: Row, state: str) -> str:
    where = "in no queue yet" if row["queue"] is None else f"in queue {row['queue']}"
    did, at = ("died", row["died_at"]) if "died_at" in row else ("stored", row["created_at"])
    return f"number {row['seq']} {where}, {state}, {row['type']}, {did} {at:%Y-%m-%d %H:%M:%S} UTC"


def as_id(value: UUID | str) -> UUID:
    """A message's id, given as text or as a UUID."""
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value)
    except ValueError:
        raise UsageError(
            f"{value!r} is not the id of a message, which is a UUID: `holdfast messages list` shows them."
        ) from None


def needed(why: str, chars: int) -> str:
    """The reason that an operator gives, cut to what is stored of an error."""
    text = said(why, chars)
    if text is None:
        raise UsageError("Say why: the reason is kept with the message.")
    return text


def spoken(filter: Filter) -> dict[str, Any]:
    """A filter as a text for the audit."""
    return {name: value for name, value in asdict(filter).items() if value is not None}


def said(why: str | None, chars: int) -> str | None:
    """The reason that an operator may give."""
    text = " ".join((why or "").split())
    return storable(text, chars) or None
