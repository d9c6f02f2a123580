"""A random script of everything that can be asked of a store, played on one store or on two that must agree.

After every step the invariants hold, and two stores hold the same: rows are compared without their numbers, which
belong to each database. Every step takes a microsecond, so that "at the same instant" is not decided by chance. The
seed decides everything; a failure carries it, with the steps that led there.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from holdfast.model.message import NewMessage
from holdfast.model.work import Batch, Leased, Settlement
from holdfast.rules.ordering import rest_of_run
from tests.store import state
from tests.store.box import Box, cancelled, dead, done, failed, given_back, released, snoozed
from tests.store.state import Row

QUEUES = ("mail", "ledger", "loose")  # the last does not keep order
TYPES = ("order.placed", "order.paid", "nobody's")
WORKERS = ("one", "two", "three")
ENDINGS: dict[str, Callable[[Leased], Settlement]] = {
    "done": done,
    "done with a step": lambda leased: done(leased, flags=8),
    "failed": failed,
    "failed, set aside": lambda leased: failed(leased, ordering="available"),
    "failed at once": lambda leased: failed(leased, flags=16, retry="immediate"),
    "dead": dead,
    "dead, halting": lambda leased: dead(leased, on_dead="halt"),
    "released": released,
    "given back": given_back,
    "given back for later": lambda leased: given_back(leased, delay=7.0),
    "snoozed": lambda leased: snoozed(leased, 3.0),
    "cancelled": cancelled,
}

Pair = tuple[Leased, ...]  # the same message in the hands of the same worker, once for each store


@dataclass
class Run:
    """What a worker holds under one lease."""

    worker: str
    parts: list[Pair]


class Script:
    """One script, on one or two stores."""

    def __init__(self, boxes: list[Box], seed: int) -> None:
        self.boxes, self.seed, self.dice = boxes, seed, random.Random(seed)
        self.log: list[str] = []
        self.counts: Counter[str] = Counter()  # what came about, so that a test can show that enough did
        self.numbers = 0
        self.runs: list[Run] = []
        self.past: list[Run] = []  # leases that were given back, settled or taken away
        self.seen: set[tuple[int, int]] = set()

    def play(self, steps: int) -> None:
        self.each(lambda box: box.subscribe("mail", "order.placed"))
        self.each(lambda box: box.subscribe_unordered("loose", "order.*"))
        try:
            for _ in range(steps):
                (step,) = self.dice.choices(list(STEPS), list(STEPS.values()))
                self.log.append(step.__name__)
                step(self)
                self.check()
        except BaseException as error:
            error.add_note(f"seed {self.seed}, step {len(self.log)}:\n" + "\n".join(self.log[-60:]))
            raise

    # -- one step on every store, with one answer

    def each(self, step: Callable[[Box], Any]) -> list[Any]:
        for box in self.boxes:
            box.pass_time(microseconds=1)
        return [step(box) for box in self.boxes]

    def each_with(self, step: Callable[[int, Box], Any]) -> list[Any]:
        """A step that needs to know which store it is on."""
        for box in self.boxes:
            box.pass_time(microseconds=1)
        return [step(n, box) for n, box in enumerate(self.boxes)]

    def agree(self, answers: list[Any]) -> Any:
        assert all(other == answers[0] for other in answers), f"they answer differently: {answers}"
        return answers[0]

    def note(self, **words: Any) -> None:
        self.log[-1] += f" {words}"

    def fresh(self) -> NewMessage:
        self.numbers += 1
        return NewMessage(
            id=UUID(int=self.numbers),
            body=str(self.numbers),
            type=self.dice.choices(TYPES, [7, 2, 1])[0],
            stream=self.dice.choice(["s", "s", "s", "t", "t", None]),
            delay=self.dice.choice([None] * 12 + [0.0, 5.0, 40.0]),
            dedupe=self.dice.choice([None] * 10 + ["k", f"k{self.numbers // 10}"]),
            queue=self.dice.choice([None] * 12 + [*QUEUES]),
        )

    # -- publishing

    def publish(self) -> None:
        new = [self.fresh() for _ in range(self.dice.choice([1, 2, 4, 8]))]
        placed = self.dice.random() < 0.5
        self.note(placed=placed, new=[(m.type, m.stream, m.delay, m.dedupe, m.queue) for m in new])
        published = self.agree(
            self.each(lambda box: box.publish(*new) if placed else box.publish_deferred(*new))
        )
        self.counts["duplicates"] += sum(each.duplicate for each in published)

    def subscribe(self) -> None:
        queue, pattern = self.dice.choice(QUEUES[:2]), self.dice.choice([*TYPES, "order.*"])
        self.note(queue=queue, pattern=pattern)
        self.counts["adopted"] += self.agree(self.each(lambda box: box.subscribe(queue, pattern)))

    def unsubscribe(self) -> None:
        """So that there is something to adopt again."""
        sql = "delete from {subscription} where queue = 'ledger' or pattern = 'nobody''s'"
        self.each(lambda box: box.query(sql))

    # -- claiming

    def received(self, worker: str, answers: Sequence[Batch]) -> list[Run]:
        self.agree([batch_view(batch) for batch in answers])
        leases = {(leased.run, leased.run_epoch) for leased in answers[0].work}
        assert not leases & self.seen, "a lease was given a second time"
        self.seen |= leases
        by_lease: dict[int, list[Pair]] = {}
        for pair in zip(*(batch.work for batch in answers), strict=True):
            by_lease.setdefault(pair[0].run, []).append(pair)
        runs = [Run(worker, parts) for parts in by_lease.values()]
        self.runs += runs
        self.counts["claimed"] += sum(len(run.parts) for run in runs)
        self.counts["followers"] += sum(len(run.parts) - 1 for run in runs)
        self.note(got=[[int(pair[0].message.id) for pair in run.parts] for run in runs])
        return runs

    def claim(self) -> None:
        worker = self.dice.choice(WORKERS)
        report: dict[str, Any] = {
            "queues": self.dice.sample(QUEUES, self.dice.randint(1, 3)),
            "heads": self.dice.choice([0, 1, 2, 5, 5]),
            "run": self.dice.choice([1, 3, 5, 50]),
            "total": self.dice.choice([1, 3, 8, 100, 100]),
            "bytes_max": self.dice.choice([1, 5, 1000, 1000, 1000, 1000]),
        }
        self.note(worker=worker, **report)
        self.received(worker, self.each(lambda box: box.turn(worker=worker, peek=True, **report)))

    def claim_suspect(self) -> None:
        # Of one queue: which delivery of a message has the lower number is each database's own affair.
        worker, queues = self.dice.choice(WORKERS), [self.dice.choice(QUEUES)]
        self.note(worker=worker, queues=queues)
        answers = self.each(lambda box: box.turn(worker=worker, queues=queues, suspects=True))
        self.counts["suspects"] += len(self.received(worker, answers))

    # -- settling

    def settle(self) -> None:
        """Settle the front of a run; the rest goes on, or goes back, perhaps with one of it released."""
        if not self.runs:
            return
        run = self.runs.pop(self.dice.randrange(len(self.runs)))
        endings = self.endings(run)
        emitted = tuple(self.fresh() for _ in range(self.dice.choice([0, 0, 1, 3])))
        front, rest = run.parts[: len(endings)], run.parts[len(endings) :]
        handed = [settlements(front, endings, emitted, n) for n in range(len(self.boxes))]
        going_on = (
            bool(rest) and all(rest_of_run(s) == "continue" for s in handed[0]) and self.dice.random() < 0.8
        )
        if rest and not going_on and self.dice.random() < 0.3:
            let_go = self.dice.randrange(len(rest))
            for n, each in enumerate(handed):
                each.append(released(rest[let_go][n]))
        claiming: dict[str, Any] = {"queues": [], "total": 0}
        if self.dice.random() < 0.5:
            claiming = {"queues": QUEUES[:2], "total": 3, "run": 2}
        self.note(
            run=int(run.parts[0][0].message.id), endings=endings, going_on=going_on, emitted=len(emitted)
        )

        def hand_in(n: int, box: Box) -> Batch:
            moves = [(front[0][n].run, rest[0][n].message.seq)] if going_on else []
            return box.turn(*handed[n], worker=run.worker, moves=moves, **claiming)

        answers = self.each_with(hand_in)
        assert answers[0].lost == frozenset(), "a lease was lost that nobody took"
        self.received(run.worker, answers)
        self.counts["settled"] += len(front)
        self.counts["moved"] += going_on
        self.past.append(Run(run.worker, front if going_on else run.parts))
        if going_on:
            run.parts = [tuple(under(rest[0][n], part[n]) for n in range(len(self.boxes))) for part in rest]
            lease = (run.parts[0][0].run, run.parts[0][0].run_epoch)
            assert lease not in self.seen, "a lease was given a second time"
            self.seen.add(lease)
            self.runs.append(run)

    def endings(self, run: Run) -> list[str]:
        """How the first messages of a run ended: after some endings the worker does not start the next."""
        chosen: list[str] = []
        for pair in run.parts[: self.dice.randint(1, len(run.parts))]:
            chosen.append(self.dice.choice(["done"] * 12 + sorted(ENDINGS)))
            if rest_of_run(ENDINGS[chosen[-1]](pair[0])) == "give back":
                break
        return chosen

    def settle_from_the_past(self) -> None:
        """Whoever comes back with a lease that has ended changes nothing."""
        if not self.past:
            return
        run, ending = self.dice.choice(self.past[-20:]), self.dice.choice(sorted(ENDINGS))
        emitted = self.fresh()
        self.note(run=[int(pair[0].message.id) for pair in run.parts], ending=ending)
        before = [box.messages() for box in self.boxes]

        def try_it(n: int, box: Box) -> None:
            zombies = [replace(ENDINGS[ending](pair[n]), emits=(emitted,)) for pair in run.parts]
            assert box.settle(*zombies, worker=run.worker) == {pair[n].message.seq for pair in run.parts}
            head = run.parts[0][n]
            assert box.renew(head, worker=run.worker) == ({head.run}, set())

        self.each_with(try_it)
        assert [box.messages() for box in self.boxes] == before
        self.counts["fenced"] += 1

    # -- leases

    def renew(self) -> None:
        if self.runs:
            run = self.dice.choice(self.runs)
            answer = self.agree(self.each_with(lambda n, box: box.renew(run.parts[0][n], worker=run.worker)))
            assert answer == (set(), set())

    def recover(self) -> None:
        self.counts["lapsed"] += self.agree(self.each(lambda box: box.recover()))
        self.forget_lost()

    def worker_dies(self) -> None:
        """The supervisor's word: of each run so many had started, the last of them is running."""
        worker, started = self.dice.choice(WORKERS), self.dice.randint(0, 3)
        mine = [run for run in self.runs if run.worker == worker]
        known = mine[: self.dice.randint(0, 1)]
        self.note(worker=worker, started=started, runs=len(mine), known=len(known))

        def report(n: int, box: Box) -> int:
            seqs = [[pair[n].message.seq for pair in run.parts[:started]] for run in mine]
            return box.recover(
                worker,
                running=[each[-1] for each in seqs if each],
                ended=[seq for each in seqs for seq in each[:-1]],
                known=[run.parts[0][n].run for run in known],
            )

        recovered = self.agree(self.each_with(report))
        assert recovered == len(mine) - len(known)
        self.counts["reported"] += recovered
        self.forget_lost()

    def forget_lost(self) -> None:
        standing = {lease.seq for lease in self.boxes[0].read("lease")}
        self.past += [run for run in self.runs if run.parts[0][0].run not in standing]
        self.runs = [run for run in self.runs if run.parts[0][0].run in standing]

    def announce_stop(self) -> None:
        worker, stopping = self.dice.choice(WORKERS), self.dice.random() < 0.5
        self.each(lambda box: box.announce_stop(worker))
        if not stopping:  # its number goes to another that does not stop
            self.each(
                lambda box: box.query(f"update {{worker}} set stopping = {'0' if box.sqlite else 'false'}")
            )

    # -- time and operators

    def pass_time(self) -> None:
        seconds = self.dice.choice([1, 4, 10, 61, 61, 3601])
        self.note(seconds=seconds)
        for box in self.boxes:
            box.pass_time(seconds=seconds)

    def pause(self) -> None:
        queue = self.dice.choice(QUEUES)
        self.each(lambda box: box.pause(queue))

    def resume(self) -> None:
        for queue in QUEUES:
            self.each(lambda box, queue=queue: box.resume(queue))  # type: ignore[misc]

    def park(self) -> None:
        inside = {pair[0].message.seq for run in self.runs for pair in run.parts}
        free = [m for m in self.boxes[0].messages() if m.seq not in inside and m.queue in QUEUES]
        if free:
            chosen = self.dice.choice(free)
            self.note(id=int(chosen.id), queue=chosen.queue)
            self.each(lambda box: box.park(chosen.id, chosen.queue))

    def unpark(self) -> None:
        for chosen in self.boxes[0].messages():
            if chosen.claimable_at == state.PARKED:
                self.each(lambda box, m=chosen: box.unpark(m.id, m.queue))  # type: ignore[misc]

    def resume_stream(self) -> None:
        """A halt is lifted the way an operator's verb does it: the lowest becomes the head."""
        self.each(lambda box: box.lift_halts())

    # -- what must hold

    def check(self) -> None:
        tables = [state.read_all(box.store, *COMPARED) for box in self.boxes]
        for each in tables:
            faults = list(state.broken_invariants(each))
            assert not faults, "\n".join(faults)
        views = [comparable(each) for each in tables] if len(tables) > 1 else []
        for view in views[1:]:
            for name in COMPARED:
                assert view[name] == views[0][name], differences(name, views)


STEPS: dict[Callable[[Script], None], int] = {
    Script.publish: 12,
    Script.claim: 14,
    Script.settle: 34,
    Script.pass_time: 10,
    Script.settle_from_the_past: 4,
    Script.renew: 2,
    Script.recover: 4,
    Script.claim_suspect: 6,
    Script.worker_dies: 3,
    Script.announce_stop: 1,
    Script.subscribe: 3,
    Script.unsubscribe: 2,
    Script.pause: 1,
    Script.resume: 2,
    Script.park: 1,
    Script.unpark: 1,
    Script.resume_stream: 3,
}


def settlements(
    front: list[Pair], endings: list[str], emitted: tuple[NewMessage, ...], n: int
) -> list[Settlement]:
    """For store number `n`. What is emitted goes with the first that is done."""
    made = [ENDINGS[ending](pair[n]) for pair, ending in zip(front, endings, strict=True)]
    for at, each in enumerate(made):
        if each.outcome == "done":
            made[at] = replace(each, emits=emitted)
            break
    return made


def under(head: Leased, follower: Leased) -> Leased:
    """The follower under the lease that has moved on to `head`."""
    return replace(follower, run=head.message.seq, run_epoch=head.epoch)


def batch_view(batch: Batch) -> Any:
    """What a worker is told, without numbers that belong to a database."""
    ids = {leased.message.seq: leased.message.id for leased in batch.work}
    work = [
        (
            replace(leased.message, seq=0, position=leased.message.position and 0),
            leased.epoch,
            leased.attempt,
            ids[leased.run],
            leased.run_epoch,
        )
        for leased in batch.work
    ]
    return work, batch.next_due, batch.suspects, batch.now


# --- The same rows ----------------------------------------------------------------------------------------------------

COMPARED = ("message", "lease", "stream", "dead", "history", "dedupe", "queue", "subscription", "worker")


def comparable(tables: dict[str, list[Row]]) -> dict[str, list[Any]]:
    """The rows without what only one database knows: numbers become ids, places become the order of ids."""
    messages = tables["message"]
    ids = {m.seq: (m.id, m.queue) for m in messages}
    places = {(m.queue, m.stream, m.position): m.id for m in messages if m.position is not None}
    homes = {m.seq: (m.queue, m.stream) for m in messages}
    order = sorted(
        (m for m in messages if m.position is not None), key=lambda m: (m.queue, m.stream, m.position)
    )
    view: dict[str, list[Any]] = {name: [dict(row) for row in rows] for name, rows in tables.items()}
    for row in view["message"]:
        row.update(seq=None, position=row["position"] is not None, xact=None)
    for row in view["stream"]:
        row.update(last=None)
    for row in view["lease"]:
        end = None if row["run_end"] is None else places.get((*homes[row["seq"]], row["run_end"]))
        row.update(seq=ids[row["seq"]], run_end=end, worker=None)
    for row in view["dead"]:
        row.update(seq=None, position=row["position"] is not None)
    for row in view["worker"]:
        row.update(id=None)
    for rows in view.values():
        rows.sort(key=repr)
    view["message"].append([(m.queue, m.stream, m.id) for m in order])
    claimed_next = sorted(
        (m for m in messages if m.head), key=lambda m: (m.queue or "", m.claimable_at, m.seq)
    )
    view["message"].append([(m.queue, m.id) for m in claimed_next])
    return view


def differences(name: str, views: list[dict[str, list[Any]]]) -> str:
    first, second = views[0][name], views[1][name]
    only = [[row for row in one if row not in other] for one, other in ((first, second), (second, first))]
    return f"{name} differs:\n  " + "\n  ".join(f"{row}" for rows in only for row in [*rows, "---"])
