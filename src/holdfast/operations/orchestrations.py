"""Instances of orchestrations: list, show, signal, suspend, resume and end them. `operations.orchestrations`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from ..bodies.keys import SEALED
from ..errors import BodySealed, NotEnded, NotFound, Refused, UsageError
from ..model import names
from ..model.instance import InstanceStatus
from ..model.message import Reason
from ..model.progress import Progress
from ..model.replies import reply_of
from ..orchestrations import files
from ..orchestrations.attributes import checked
from ..orchestrations.early import KEPT_DAYS
from ..orchestrations.failures import Failure, OrchestrationFailed
from ..orchestrations.files import SavedJournal
from ..orchestrations.journal import Child, JournalUnreadable, Row, merged, message_id
from ..orchestrations.leaving import Result
from ..orchestrations.lines import JournalLine, lines_of
from ..orchestrations.messages import (
    EARLY,
    Pen,
    cancel_message,
    children_cancelled,
    resume_message,
    signal_message,
)
from ..orchestrations.steps import fans, steps
from ..orchestrations.waiting import Waited, open_commands
from ..store.plans import instance_commands, instance_queries, instances
from ..store.plans.audit import Entry
from ..store.plans.instances import Shown
from ..store.plans.operator import moment
from ..store.statement import Plan
from .desk import Desk, log, needed, said
from .flow_check import check
from .instance_states import (
    STATES,
    Commanded,
    FlowCheck,
    InstanceDossier,
    RewindPoint,
    RewoundInstance,
    state_of,
)
from .instances import journal_rows, progress_of, read_rows, why_instance
from .rewind import rewind

LOOKS_EVERY = 0.1  # seconds, for a result
RESUMES = 20  # while a worker has the next message of an instance
SCANNED = 10_000  # instances whose status text a search reads at most
CANDIDATES = 10
SHORT = 8  # characters of the end of an id that name it
BEGINNING = 4
FAN = 5  # from so many calls of one activity on, a number is shown for them as well


class Orchestrations:
    """Questions and commands about instances."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    # -- looking

    def why(self, id: str) -> Sequence[str] | None:
        """What an instance waits for, or how it ended. None: there is no such instance."""
        return why_instance(self._desk, id)

    def list(
        self,
        *,
        name: str | None = None,
        version: str | None = None,
        state: str | None = None,
        status: str | None = None,
        attributes: Mapping[str, str] | None = None,
        is_open: bool | None = None,
        limit: int = 50,
    ) -> Sequence[InstanceStatus]:
        """Instances, those that had a turn last first.

        `status`: only those whose flow.status contains this text, among the newest 10,000. It may be sealed, so the
        database cannot search for it.
        """
        if state is not None and state not in STATES:
            raise UsageError(f"There is no state {state!r} of an instance; there are: {', '.join(STATES)}.")
        rows = self._desk.ask(
            instance_queries.find(
                name=name,
                version=version,
                states=None if state is None else [state],
                is_open=is_open,
                attributes=checked(attributes),
                limit=limit if status is None else SCANNED,
            )
        )
        found = [state_of(row, self._pen) for row in rows]
        if status is not None:
            found = [each for each in found if each.status is not None and status in _text(each.status)]
        return found[:limit]

    def show(self, id: str, *, execution: int | None = None) -> InstanceDossier:
        """An instance with the steps of an execution; the current one by default."""
        shown = self._found(id)
        chosen = shown.execution if execution is None else execution
        kept = self._desk.ask(instance_queries.executions(shown.id))
        if execution is not None and execution not in kept:
            raise NotFound(f"Instance {id!r} has no journal of execution {execution}.")
        unread, found, progress = None, [], dict[str, Progress]()
        try:
            entries = merged(journal_rows(self._desk, shown.id, chosen))
            found = steps(entries)
            labels = {step.number: step.label for step in found}
            if chosen == shown.execution and shown.ended_at is None:
                said = progress_of(self._desk, shown, open_commands(entries))
                progress = {labels[number]: each for number, each in said.items()}
        except BodySealed as error:
            unread = str(error)
        state = state_of(shown, self._pen)
        return InstanceDossier(
            state, tuple(found), tuple(fans(found, FAN)), tuple(why_instance(self._desk, shown.id) or ()),
            tuple(kept), unread, progress,
        )  # fmt: skip

    def journal(self, id: str, *, execution: int | None = None) -> Sequence[Row]:
        """The rows of the journal of an execution; BodySealed if they are sealed and the keys here do not open them."""
        shown = self._found(id)
        return journal_rows(self._desk, shown.id, shown.execution if execution is None else execution)

    def saved(self, id: str, *, execution: int | None = None, reveal: bool = False) -> SavedJournal:
        """The journal of an execution as it is written to a file; sealed rows stay sealed unless `reveal` is set."""
        shown = self._found(id)
        chosen = shown.execution if execution is None else execution
        rows = self._desk.ask(instances.journal(shown.id, chosen))
        if not rows:
            raise NotFound(f"Instance {id!r} has no journal of execution {chosen} yet.")
        found = files.saved(shown.id, shown.queue, chosen, rows)
        return files.opened(found, self._pen) if reveal else found

    def lines(self, id: str, *, execution: int | None = None, reveal: bool = False) -> Sequence[JournalLine]:
        """The journal for people, a line for each event. Values that are sealed are shown only with `reveal`."""
        shown = self._found(id)
        chosen = shown.execution if execution is None else execution
        if execution is not None and execution not in self._desk.ask(instance_queries.executions(shown.id)):
            raise NotFound(f"Instance {id!r} has no journal of execution {execution}.")
        is_open = reveal or not any(
            text.startswith(SEALED) for _, _, text in self._desk.ask(instances.journal(shown.id, chosen))
        )
        return list(lines_of(journal_rows(self._desk, shown.id, chosen), is_open))

    def names(self) -> Sequence[str]:
        """The orchestrations that have instances which have not ended."""
        rows = self._desk.ask(instance_queries.counts())
        return sorted({row.queue.rpartition("@")[0] for row in rows})

    def result(self, id: str, *, timeout: float = 0.0) -> Any:
        """What an instance returned, as JSON values. Waits so many seconds for its end and then raises NotEnded.

        OrchestrationFailed if it failed, was cancelled or was terminated.
        """
        clock = self._desk.store.clock
        end = clock.monotonic() + timeout
        while (shown := self._found(id)).ended_at is None:
            if clock.monotonic() >= end:
                raise NotEnded(f"Instance {id!r} has not ended yet: `holdfast why {id}` says why.")
            threading.Event().wait(min(LOOKS_EVERY, max(0.0, end - clock.monotonic())))
        assert shown.result is not None
        text = self._pen.open(f"result/{shown.id}", shown.result)
        found = msgspec.json.decode(text, type=Result)
        if found.failure is not None:
            raise OrchestrationFailed(shown.queue, found.failure)
        return None if found.value is None else msgspec.json.decode(found.value)

    def check(self, *, name: str | None = None, progress: Callable[[int], None] | None = None) -> FlowCheck:
        """Replay the instances that have not ended against the application's code, in memory. Changes nothing.

        For a deploy: run it with the new code and the production database. It says which instances would be paused
        and why, and which versions are missing in the new code.
        """
        return check(self._desk, name, progress)

    def named(self, text: str) -> str:
        """The instance that is meant: by its id, by the last eight characters of it, or by its beginning."""
        if self._desk.ask(instances.show(text)) is not None:
            return text
        found: Sequence[str] = ()
        if len(text) >= BEGINNING:
            wide = instance_queries.like(text, ending=len(text) >= SHORT, limit=CANDIDATES + 1)
            found = self._desk.ask(wide)
        if len(found) == 1:
            return found[0]
        if not found:
            raise NotFound(f"There is no instance {text!r}: `holdfast orchestrations list` shows them.")
        error = UsageError(f"Several instances have an id like {text}: give more of it.")
        error.details = tuple(found[:CANDIDATES]) + (("and more",) if len(found) > CANDIDATES else ())
        raise error

    # -- commands

    def signal(self, id: str, name: str, body: str | None = None, *, why: str | None = None) -> Commanded:
        """Send a signal; `body` is JSON text. An instance that has not started yet gets it when it does."""
        if body is not None:
            try:
                msgspec.json.decode(body)
            except (msgspec.DecodeError, RecursionError) as error:
                raise UsageError(f"The body of signal {name!r} is not JSON: {error}.") from None
        until = self._desk.ask(moment()) + timedelta(days=KEPT_DAYS)
        message = signal_message(self._pen, id, name, body, until)

        def plan() -> Plan[str | None]:
            state = yield from instances.send(id, message, EARLY)
            if state is None or state in instances.OPEN:
                entry = Entry("orchestrations.signal", target=id, why=self._said(why), after={"signal": name})
                yield from self._desk.note(entry)
            return state

        state = self._desk.command(f"Instance {id}", plan)
        if state is None:
            return Commanded(id, f"signal {name} kept: the instance has not started yet", None)
        self._open(id, state, f"signal {name!r}")
        return self._done(id, f"signal {name} sent", state)

    def cancel(self, id: str, *, why: str | None = None) -> Commanded:
        """Ask an instance to end. Its code sees a CancelledError, and may undo what it has done."""
        message = cancel_message(self._pen, id, self._said(why) or "")

        def plan() -> Plan[str | None]:
            state = yield from instances.send(id, message, None, resume_message([id]))
            if state in instances.OPEN:
                yield from self._desk.note(Entry("orchestrations.cancel", target=id, why=self._said(why)))
            return state

        state = self._desk.command(f"Instance {id}", plan)
        if state is None:
            raise self._missing(id)
        self._open(id, state, "a cancellation")
        if state == "running":
            return self._done(id, "asked to end", state)
        # Only its code can undo its effects. A paused one tries once more: the code may have been repaired since.
        when = {
            "paused": "its code is tried once more; if it still cannot continue, it stays paused until it is resumed",
            "suspended": "its code sees that when it is resumed",
        }[state]
        ends = f"`holdfast orchestrations terminate {id}` ends it now, without its code"
        held = f"asked to end, and {state}: {when}; {ends}"
        return self._done(id, held, state)

    def suspend(self, id: str, why: str) -> Commanded:
        """Hold an instance: a turn that is running is stored; after it there is none until `resume`."""
        text = needed(why, self._desk.settings.error_chars)

        def plan() -> Plan[bool]:
            done = yield from instance_commands.suspend(id, text)
            if done:
                yield from self._desk.note(Entry("orchestrations.suspend", target=id, why=text))
            return done

        shown = self._found(id)
        if not self._desk.command(f"Instance {id}", plan):
            raise UsageError(f"Instance {id!r} was not suspended: it is {self._found(id).state}.")
        return self._done(shown.id, "suspended", "suspended")

    def resume(self, id: str, *, why: str | None = None) -> Commanded:
        """Let a paused or suspended instance continue. Nothing is lost meanwhile: its messages wait in order."""
        shown = self._found(id)

        def plan() -> Plan[bool]:
            done = yield from instance_commands.resume(id, shown.queue)
            if done:
                entry = Entry("orchestrations.resume", target=id, why=self._said(why))
                yield from self._desk.note(entry, {"state": shown.state}, {"state": "running"})
            return done

        if not self._patiently(f"Instance {id}", plan):
            raise UsageError(f"Instance {id!r} is {self._found(id).state}: there is nothing to resume.")
        return self._done(id, "goes on", "running")

    def _patiently(self, what: str, plan: Callable[[], Plan[bool]]) -> bool:
        """Try a command again while a worker has the instance's next message, which mostly takes milliseconds."""
        for _ in range(RESUMES):
            try:
                return self._desk.command(what, plan)
            except Refused:
                threading.Event().wait(LOOKS_EVERY)
        return self._desk.command(what, plan)

    def terminate(self, id: str, why: str) -> Commanded:
        """End an instance at once, without its code: nothing is undone. Its children are cancelled, its calls end."""
        text = needed(why, self._desk.settings.error_chars)
        pen = self._pen
        failure = Failure("Terminated", f"an operator ended the orchestration: {text}", Reason.CANCELLED)
        result = pen.seal(f"result/{id}", msgspec.json.encode(Result(None, failure)).decode())

        def plan() -> Plan[None]:
            shown = yield from instances.show(id)
            if shown is None:
                raise self._missing(id)
            if shown.ended_at is not None:
                raise UsageError(f"Instance {id!r} was not terminated: it is {shown.state}.")
            rows = yield from instances.journal(id, shown.execution)
            waited = self._waited(shown, rows)
            calls = [message_id(id, shown.execution, n) for n in waited]
            at = shown.execution, shown.turn
            reply = reply_of(
                (yield from instance_commands.terminate(id, shown.queue, at, result, text, calls))
            )
            children = [
                (command, message_id(id, shown.execution, number))
                for number, command in waited.items()
                if isinstance(command, Child)
            ]
            messages = children_cancelled(pen, children, id)
            if reply is not None:
                messages.append(pen.into(reply, None, failure))
            yield from instance_commands.send_all(messages)
            entry = Entry("orchestrations.terminate", target=id, why=text)
            yield from self._desk.note(entry, {"state": shown.state}, {"state": "terminated"})

        self._desk.command(f"Instance {id}", plan)
        return self._done(id, "terminated", "terminated")

    def rehearse_rewind(
        self, id: str, *, to: str | None = None, after: str | None = None, keeps_signals: bool = True
    ) -> RewoundInstance:
        """What a rewind would do, and which effects may happen a second time. Changes nothing."""
        return rewind(self._desk, self._found(id).id, RewindPoint(to, after, keeps_signals), None)

    def rewind(
        self, id: str, why: str, *, to: str | None = None, after: str | None = None, keeps_signals: bool = True,
        at: tuple[int, int] | None = None,
    ) -> RewoundInstance:  # fmt: skip
        """Let an instance continue from an earlier point of its journal, as its next execution. It may have ended.

        `to="charge#3"` asks for that step again; `after="charge#3"` keeps its answer. Calls that the code awaits there
        are made again, and answers to the old execution are late. `at`: only if it is at (execution, turn).
        """
        text = needed(why, self._desk.settings.error_chars)
        done = rewind(self._desk, self._found(id).id, RewindPoint(to, after, keeps_signals, at), text)
        self._done(id, f"rewound to {done.point}", None)
        return done

    def _waited(self, shown: Shown, rows: Sequence[tuple[int, int, str]]) -> dict[int, Waited]:
        """The calls that an instance waits for. None if its journal cannot be read: their answers will be late."""
        try:
            return open_commands(merged(read_rows(self._pen, shown.id, shown.execution, rows)))
        except (BodySealed, JournalUnreadable):
            return {}

    # -- leaves

    @property
    def _pen(self) -> Pen:
        return Pen(self._desk.keys)

    def _said(self, why: str | None) -> str | None:
        return said(why, self._desk.settings.error_chars)

    def _done(self, id: str, what: str, state: str | None) -> Commanded:
        log.info("orchestration.commanded", "instance %(instance)s: %(what)s", instance=id, what=what)
        return Commanded(id, what, state)

    def _open(self, id: str, state: str, what: str) -> None:
        if state not in instances.OPEN:
            raise UsageError(f"Nothing was stored: instance {id!r} is {state}, so {what} would reach nobody.")

    def _missing(self, id: str) -> NotFound:
        return NotFound(f"There is no instance {id!r}: `holdfast orchestrations list` shows them.")

    def _found(self, id: str) -> Shown:
        shown = self._desk.ask(instances.show(names.stream_name(id)))
        if shown is None:
            raise self._missing(id)
        return shown


def _text(status: Any) -> str:
    return status if isinstance(status, str) else msgspec.json.encode(status).decode()
