"""What a process knows about the breakers in the store, and how it reports its calls to them.

A breaker's state is a row that all processes share. Each process caches the row for a second, and collects its own
calls. They are handed in when one of them failed, here or elsewhere, at most once a second, and at once when they open
the breaker. So a call that succeeds writes nothing and reads nothing. A trial is taken from the row by compare and
swap: there are three for all processes together. Without the database each process uses what it knows.

The store is asked in a separate thread: async callers must not block, and a caller that holds a transaction of SQLite
must not wait for itself.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ParamSpec, TypeVar

from ..clock import DatabaseTime, wall_clock
from ..errors import CircuitOpen, NotMigrated, StoreUnavailable
from ..rules.breaker import BAD, GOOD, VOID, Policy, State, Switch
from ..rules.redact import redact
from ..store import Store
from ..store.plans import breakers
from ..store.plans.breakers import BreakerRow, Change
from ..store.statement import Plan, Runnable
from ..telemetry.logs import Log

T = TypeVar("T")
P = ParamSpec("P")
DecideSwitch = Callable[[Switch, datetime], Switch | None]
Note = Callable[[Change], Plan[Any]]

BELIEVED = 1.0  # seconds for which a process caches the row, and between two writes of its calls
PATIENCE = 5.0  # seconds that a call waits for the store; then it uses what is known

log = Log("holdfast.breakers")


@dataclass(frozen=True, slots=True)
class BreakerChanged:
    """A breaker went from one state to another; reported once, in the process that did it."""

    name: str
    before: State
    after: State
    at: datetime
    why: str | None


@dataclass(frozen=True, slots=True)
class Called:
    """A call that was let through: in which era, and whether as a trial."""

    era: int
    trial: bool


class Circuits:
    """The breakers' rows in a store, and the thread that waits for it. `where` returns the store."""

    def __init__(self, where: Callable[[], Store]) -> None:
        self._where = where
        self.known: dict[str, Circuit] = {}
        self.listeners: list[Callable[[BreakerChanged], None]] = []
        self._lock = threading.Lock()
        self._thread: ThreadPoolExecutor | None = None
        self._seen: tuple[int, Store] | None = None

    @property
    def store(self) -> Store:
        return self._where()

    def monotonic(self) -> float:
        return self.store.clock.monotonic()

    def notice_change(self) -> None:
        """In a child process, or with another store, forget what was known."""
        pid, store = os.getpid(), self.store
        seen = self._seen
        if seen is not None and seen[0] == pid and seen[1] is store:
            return
        if seen is not None and seen[0] != pid:
            self._lock, self._thread = threading.Lock(), None
        if seen is not None:
            for circuit in self.known.values():
                circuit.forget()
        self._seen = (pid, store)

    def submit(self, do: Callable[[], T]) -> Future[T]:
        """Run this in the separate thread."""
        self.notice_change()
        with self._lock:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-breakers")
            return self._thread.submit(do)

    def change(self, name: str, policy: Policy, decide: DecideSwitch, note: Note | None = None) -> Change:
        """Compare and swap the row of a breaker, and report it if its state changed.

        `note` is written together with the change, in the same transaction.
        """

        def on_row(row: BreakerRow, now: datetime) -> BreakerRow | None:
            switch = decide(as_switch(row, policy), now)
            return None if switch is None else as_row(row, switch)

        if note is None:
            change = self.migrated(self.store.run, breakers.change, name, on_row)
        else:
            change = self.migrated(self.store.run, _noted, name, on_row, note)
        if change.before.state != change.after.state:
            self._report(change)
        return change

    def migrated(
        self,
        run: Callable[[Runnable[T]], T],
        verb: Callable[P, Runnable[T]],
        *args: P.args,
        **options: P.kwargs,
    ) -> T:
        """The embedded default needs no setup: its tables are made when they are missing."""
        try:
            return run(verb(*args, **options))
        except NotMigrated:
            if not self.store.is_embedded:
                raise
            self.store.migrate()
            return run(verb(*args, **options))

    def _report(self, change: Change) -> None:
        row = change.after
        event = BreakerChanged(row.name, State(change.before.state), State(row.state), change.now, row.why)
        level = logging.WARNING if event.after is State.OPEN else logging.INFO
        fields = {
            "breaker": event.name,
            "state": event.after,
            "before": event.before,
            "why": redact(event.why or "no reason"),
        }
        log.log(level, "breaker.changed", "Breaker %(breaker)s is %(state)s, was %(before)s: %(why)s", fields)
        for listener in self.listeners:
            try:
                listener(event)
            except Exception as error:
                log.error(
                    "breaker.listener_failed",
                    "A function that listens to breakers failed: %(error)s",
                    error=error,
                )

    def close(self) -> None:
        """Hand in what is left, and end the thread. Breakers can be used again after this."""
        if self._thread is None or self._seen is None or self._seen[0] != os.getpid():
            return
        handed = [circuit.hand_in_rest() for circuit in self.known.values()]
        wait([each for each in handed if each is not None], timeout=PATIENCE)
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown(wait=True, cancel_futures=True)


class Circuit:
    """One breaker, as this process knows it."""

    def __init__(self, name: str, policy: Policy, home: Circuits) -> None:
        self.name, self.policy, self.home = name, policy, home
        self.forget()

    def forget(self) -> None:
        self._lock = threading.Lock()
        self._known = Switch(self.policy)  # as stored, when it was last read
        self._time = DatabaseTime(self.home)
        self._looked_at = float("-inf")
        self._looking: Future[None] | None = None
        self._pending = ""  # calls of this process that are not handed in
        self._handed_in_at = float("-inf")

    # -- asking

    @property
    def known(self) -> Switch:
        return self._known

    @property
    def age(self) -> float:
        """How long ago the row was read."""
        return self.home.monotonic() - self._looked_at

    def room(self, now: float) -> int | None:
        """How many calls may begin now, by our own clock; None: any number."""
        time = self._time  # before the state: a state that is not closed has a time
        known = self._known
        return None if known.state is State.CLOSED else known.room(time.at(now))

    def closed_for(self, now: float) -> float | None:
        """Seconds since it closed; None: it is not closed, or was never open."""
        time = self._time
        closed_at = self._known.closed_at
        return None if closed_at is None else (time.at(now) - closed_at).total_seconds()

    def now(self) -> datetime:
        """The database's time; before that is known, this machine's. Every change of state uses one of the two."""
        if not self._time.is_known:
            self._time.hear(self.home.store.clock.now() or wall_clock(), self.home.monotonic())
        return self._time.now()

    def refusal(self) -> CircuitOpen:
        switch = self._known
        return CircuitOpen(self.name, max(switch.retry_in(self.now()), 0.001), switch.why)

    def look(self) -> Future[None] | None:
        """Read the row again if it was read a while ago; the returned future ends when that is done."""
        with self._lock:
            if self._looking is None and self.age >= BELIEVED:
                self._looking = self.home.submit(self._read)
            return self._looking

    def _read(self) -> None:
        store = self.home.store
        try:
            row, now = self.home.migrated(store.read, breakers.look, self.name)
            if row.version:
                self.learn(row, now)
            else:  # from now on operators see it
                self._change(lambda switch, _: switch)
        except StoreUnavailable as error:
            self._alone(error)
        finally:
            with self._lock:
                self._looking, self._looked_at = None, self.home.monotonic()

    def learn(self, row: BreakerRow, now: datetime) -> None:
        """Take over the state of the row."""
        with self._lock:
            switch = as_switch(row, self.policy)
            if switch.era != self._known.era:
                self._pending = ""
            self._looked_at = self.home.monotonic()
            self._time.hear(now, self._looked_at)
            self._known = switch  # after the time, because a reader of the state also needs the time

    # -- trials

    def take(self) -> Future[Called | None]:
        """Take one of the few trials, if there is one left. None: there is not."""
        return self.home.submit(self._take)

    def _take(self) -> Called | None:
        taken: Switch | None = None

        def take(switch: Switch, now: datetime) -> Switch | None:
            nonlocal taken
            taken = switch.take(now)
            return taken

        if not self._change(take) or taken is None:
            return None
        return Called(taken.era, trial=taken.state is State.HALF_OPEN)

    def give_back(self, taking: Future[Called | None]) -> None:
        """Give up this trial: its caller no longer waits."""
        called = None if taking.cancelled() or taking.exception() is not None else taking.result()
        if called is not None and called.trial:
            self.home.submit(lambda: self._hand_in(VOID, called))

    # -- results

    def count(
        self, called: Called, result: str, seconds: float | None = None, why: str | None = None
    ) -> Future[None] | None:
        """Record how a call ended; hand in now if needed. `seconds`: the other side asked for this pause."""
        now = self.home.monotonic()
        with self._lock:
            calls = self._to_hand_in(called, result)
            if not calls:
                return None
            ahead = after(self._known, calls, self.now(), called.era, seconds, why)
            is_urgent = called.trial or ahead.era != self._known.era
            if not is_urgent and now - self._handed_in_at < BELIEVED:
                return None
            self._handed_in_at = now
            if not called.trial and called.era == self._known.era:
                self._pending = ""
            self._known = ahead  # at once in this process, until the row is read again
        return self.home.submit(lambda: self._hand_in(calls, called, seconds, why, is_known=True))

    def _to_hand_in(self, called: Called, result: str) -> str:
        """The calls to write to the row: none if all calls succeeded, in all processes."""
        if called.trial:
            return result
        if called.era != self._known.era:  # of an era that is over; a late failure delays the first trial
            return result if result == BAD and called.era == self._known.era - 1 else ""
        if result == VOID:
            return ""
        self._pending = (self._pending + result)[-self.policy.window :]
        all_well = result == GOOD and BAD not in self._pending and BAD not in self._known.calls
        return "" if all_well else self._pending

    def hand_in_rest(self) -> Future[None] | None:
        """Write the failures that are not written yet."""
        with self._lock:
            calls, self._pending = self._pending, ""
            called = Called(self._known.era, trial=False)
        return self.home.submit(lambda: self._hand_in(calls, called)) if BAD in calls else None

    def _hand_in(
        self,
        calls: str,
        called: Called,
        seconds: float | None = None,
        why: str | None = None,
        is_known: bool = False,
    ) -> None:
        while calls:
            handed = calls
            done = self._change(
                lambda switch, now: after(switch, handed, now, called.era, seconds, why),  # noqa: B023
                is_known,
            )
            with self._lock:
                calls, is_known = "", False
                if called.trial or called.era != self._known.era:
                    return
                if not done:
                    self._pending = (handed + self._pending)[-self.policy.window :]
                    return
                # Together with calls that ended in the meantime it may open.
                if after(self._known, self._pending, self.now(), called.era, None, why).era != called.era:
                    calls, self._pending, seconds = self._pending, "", None

    # -- relays

    def outage(self, seconds: float, why: str) -> Future[bool]:
        """Open it for this long, or keep it open: no process can reach the dependency."""
        return self.home.submit(
            lambda: self._change(lambda switch, now: switch.asked_to_wait(seconds, now, why=why))
        )

    def mended(self, opened_for: str) -> Future[bool]:
        """Close it, if it was opened for this reason."""
        return self.home.submit(lambda: self._change(lambda switch, now: switch.mended(now, opened_for)))

    def _change(self, decide: DecideSwitch, is_known: bool = False) -> bool:
        """False: other processes kept changing the row. Without the database the change is made in this process only.

        `is_known`: this process has made the change already.
        """
        try:
            change = self.home.change(self.name, self.policy, decide)
        except StoreUnavailable as error:
            self._alone(error)
            if not is_known:
                with self._lock:
                    self._known = decide(self._known, self.now()) or self._known
            return True
        self.learn(change.after, change.now)
        return change.done

    def _alone(self, error: StoreUnavailable) -> None:
        log.warning(
            "breaker.alone",
            "Breaker %(breaker)s uses what this process knows: %(error)s",
            breaker=self.name,
            error=error,
        )


def after(
    switch: Switch, calls: str, now: datetime, era: int, seconds: float | None, why: str | None
) -> Switch:
    ended = switch.after(calls, now, era, why)
    return ended if seconds is None else ended.asked_to_wait(seconds, now, era, why)


def as_switch(row: BreakerRow, policy: Policy) -> Switch:
    return Switch(
        policy=policy,
        state=State(row.state),
        era=row.era,
        calls=row.calls,
        trials_left=row.trials_left,
        successes=row.successes,
        opened_at=row.opened_at,
        closed_at=row.changed_at if row.state == "closed" and row.era and not row.forced else None,
        until=row.until,
        forced=row.forced,
        why=row.why,
    )


def as_row(row: BreakerRow, switch: Switch) -> BreakerRow:
    return row._replace(
        state=switch.state.value,
        era=switch.era,
        calls=switch.calls,
        trials_left=switch.trials_left,
        successes=switch.successes,
        opened_at=switch.opened_at,
        until=switch.until,
        forced=switch.forced,
        why=switch.why,
    )


def _noted(
    name: str, decide: Callable[[BreakerRow, datetime], BreakerRow | None], note: Note
) -> Plan[Change]:
    made = yield from breakers.change(name, decide)
    if made.done:
        yield from note(made)
    return made
