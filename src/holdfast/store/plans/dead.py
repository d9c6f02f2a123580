"""Dead letters, for both databases: redriving, holding, editing, importing and discarding them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from ...errors import Refused
from ...model import names, replies
from ...model.message import Reason, Stillborn
from ...model.names import SCOPED
from ..statement import Plan, Verb, single, statements
from ..values import as_id, instant
from . import engine, instances, operator
from .operator import TargetChanged, advance, hold_first, still_first
from .queries import Row
from .rows import Back

sql = statements("dead")

ARCHIVED = "archived"  # an outcome in the history

Key = tuple[UUID, str, int]  # id, queue and number
# Queue and stream: who halts it, the first in its order.
Halted = dict[tuple[str, str], tuple[Key, int | None]]


class Letter(NamedTuple):
    """A dead letter that is locked. `taken`: a message with its id is pending in its queue."""

    id: UUID
    queue: str
    number: int
    stream: str | None
    position: int | None
    epoch: int
    died_at: Any
    taken: bool

    @property
    def key(self) -> Key:
        return self.id, self.queue, self.number


def redrive(keys: Sequence[Key], out: bool, delays: Mapping[Key, float] | None = None) -> Plan[list[Key]]:
    """Redrive dead letters, in the order of their old positions; returns those that were redriven.

    Those that are held stay, and those whose id is pending in their queue; of several with one id the first comes back.
    `delays` says which may be claimed only after so many seconds. One that halts its stream
    comes back as its head and lifts the halt; others go to the end of their stream, or with `out` beside it.
    The row of the stream is locked before the head is decided, as a producer does.
    """
    locked = yield from _lock(keys)
    locked.sort(key=lambda each: (each.position or each.number, each.number))
    first = {(each.id, each.queue): each for each in reversed(locked) if not each.taken}
    letters = [each for each in locked if first.get((each.id, each.queue)) is each]
    if not letters:
        return []
    if out and (turn := next((each for each in letters if names.is_versioned(each.queue)), None)) is not None:
        raise Refused(
            f"Dead letter {turn.id} is a turn of instance {turn.stream}, whose messages keep their order: redrive it "
            "without `--now`."
        )
    halted = yield from _halted(letters)
    for each in sorted(letters, key=lambda each: each.stream or ""):
        if each.stream is not None and names.is_versioned(each.queue):
            yield from instances.reopen(each.queue, each.stream, each.id)
    if out:
        back = [Back(each.id, each.queue, each.number, each.stream, None, True) for each in letters]
    else:
        back = yield from _enter(letters, halted)
    yield Verb("operator", "bring_back", (back, delays or {}))
    yield sql("op_dead_delete", **_named([each.key for each in back]))
    if out:
        yield from _lift(halted)
    return [each.key for each in back]


def _lock(keys: Sequence[Key]) -> Plan[list[Letter]]:
    """Those of these letters that are here and not held."""
    rows = yield sql("op_dead_lock", **_named(keys))
    return [Letter._make((as_id(id), *rest, bool(taken))) for id, *rest, taken in rows]


def _halted(letters: Sequence[Letter]) -> Plan[Halted]:
    """The streams that these letters halt, with the first message of each locked.

    It will be promoted, or another one is put before it: a command that has locked it must have ended by then.
    """
    found: Halted = {}
    for each in letters:
        if each.stream is not None and each.position is not None and (yield from _halts(each)):
            found[each.queue, each.stream] = each.key, None
    for (queue, stream), (key, _) in sorted(found.items()):
        found[queue, stream] = key, (yield from hold_first(queue, stream))
    return found


def _halts(letter: Letter) -> Plan[bool]:
    """Whether its stream is halted by this letter, not by another one with its id."""
    rows = yield operator.sql("op_stream_row", queue=letter.queue, stream=letter.stream)
    return bool(rows) and rows[0][1:3] == (str(letter.id), letter.died_at)


def _lift(halted: Halted) -> Plan[None]:
    """Lift the halts of the streams."""
    for (queue, stream), (key, first) in sorted(halted.items()):
        if not (yield operator.sql("op_stream_lift", queue=queue, stream=stream, by=str(key[0]))):
            raise TargetChanged
        yield from still_first(queue, stream, first)
        yield from advance([(queue, stream, 0)])


def _enter(letters: Sequence[Letter], halted: Halted) -> Plan[list[Back]]:
    """Count letters into their streams and find out which of them become heads."""
    counts = Counter((each.queue, each.stream) for each in letters if each.stream is not None)
    rows: Iterable[tuple[Any, ...]] = ()
    if counts:
        streams = sorted(counts)
        rows = yield sql(
            "op_streams_enter",
            queues=[queue for queue, _ in streams],
            streams=[stream for _, stream in streams],
            counts=[counts[each] for each in streams],
        )
    state = {(queue, stream): (opened, halted_by) for queue, stream, opened, halted_by in rows}
    back, headed = [], set()
    for letter in letters:
        if letter.stream is None or state[letter.queue, letter.stream][1] != str(letter.id):
            continue
        if letter.position is not None and (yield from _halts(letter)):
            queue, stream = letter.queue, letter.stream
            if (queue, stream) not in halted:
                raise TargetChanged
            yield from still_first(queue, stream, halted[queue, stream][1])
            yield operator.sql("op_stream_lift", queue=queue, stream=stream, by=str(letter.id))
            back.append(Back(*letter.key, stream, letter.position, True))
            headed.add((queue, stream))
    returned = {each.key for each in back}
    for letter in letters:
        if letter.stream is None:
            back.append(Back(*letter.key, None, None, True))
        elif letter.key not in returned:
            queue, stream = letter.queue, letter.stream
            opened, halted_by = state[queue, stream]
            head = (queue, stream) not in headed and halted_by is None and opened == counts[queue, stream]
            back.append(Back(*letter.key, stream, -1, head))
            headed.add((queue, stream))
    return back


def discard(key: Key, why: str | None = None) -> Plan[str | None]:
    """Move a dead letter to the history and free its dedupe key. Returns a stream that it still halts."""
    named = _named([key])
    locked = yield from _lock([key])
    if not locked:
        raise TargetChanged
    (letter,) = locked
    halted: Halted = {}
    if letter.stream is not None and (yield from instances.poisoned(letter.queue, letter.stream, letter.id)):
        halted = yield from _halted([letter])
    yield from _answer(named)
    yield sql("op_dead_ended", **named, outcome="discarded", why=why)
    yield sql("op_dead_free", **_one(key))
    yield sql("op_dead_delete", **named)
    if halted:  # its instance has ended for good: messages that wait in its stream are late, and end
        yield from _lift(halted)
        return None
    return letter.stream if letter.stream is not None and (yield from _halts(letter)) else None


def _answer(named: Mapping[str, object]) -> Plan[None]:
    """An instance that waits for these letters (`on_dead="wait"`) waits no longer: the call has failed."""
    rows = yield sql("op_dead_awaited", **named)
    text, reason = "Cancelled: the dead letter was discarded by an operator.", Reason.CANCELLED
    found = [
        replies.failed(as_id(id), headers, f"discarded/{epoch}", text, reason)
        for id, headers, epoch in rows
        if replies.waits_for_letter(headers)
    ]
    answers = [each for each in found if each is not None]
    if answers:
        yield from engine.append(answers)


def bear(letters: Sequence[Stillborn]) -> Plan[dict[UUID, datetime]]:
    """Store messages as dead letters. Those whose dedupe key is taken are left out: they are duplicates.

    Returns those that were stored, and when.
    """
    at = yield from operator.moment()
    firsts = {_key(each): each for each in reversed(letters)}  # of two under one key the first is stored
    rows = [_born(firsts[key], at) for key in sorted(firsts)]
    taken = yield sql("op_born_keys").with_documents(letters=rows)
    fresh = {str(as_id(id)) for (id,) in taken}
    first = {row["id"]: row for row in reversed(rows) if row["id"] in fresh}
    if not first:
        return {}
    stored = yield sql("op_born").with_documents(letters=[first[id] for id in sorted(first)])
    return {as_id(id): at for (id,) in stored}


def _key(letter: Stillborn) -> tuple[str, str]:
    """Scope and key: sorted, as keys are taken everywhere."""
    return "" if letter.dedupe.startswith(SCOPED) else letter.type, letter.dedupe


def _born(letter: Stillborn, at: datetime) -> Row:
    error = {"at": at.isoformat(), "reason": int(letter.reason), "text": letter.error}
    return {
        "id": str(letter.id), "queue": letter.queue, "type": letter.type, "subject": letter.subject,
        "dedupe": letter.dedupe, "kept": letter.kept, "reason": int(letter.reason), "at": at,
        "fingerprint": letter.fingerprint, "errors": [error], "headers": letter.headers, "body": letter.body,
    }  # fmt: skip


@single
def hold(key: Key, why: str | None) -> Plan[bool]:
    """Hold a dead letter, or end the hold if `why` is None. False: it is gone."""
    held = why is not None
    return bool((yield sql("op_dead_hold", **_one(key), held=held, why=why)))


def edit(key: Key, epoch: int, body: str) -> Plan[bool]:
    """Replace the body of a dead letter; the one it died with is kept. False: it was changed since it was read."""
    yield sql("op_death_original", **_one(key))
    return bool((yield sql("op_dead_edit", **_one(key), epoch=epoch, body=body)))


# -- files


def put(
    letters: Sequence[Row], deaths: Sequence[Row], since: datetime, force: bool
) -> Plan[tuple[set[Key], set[Key]]]:
    """Import dead letters, each message once. Letters that are here are left as they are, and those that have ended
    since a moment are left out, unless `force` is set. Ends before that moment were looked up by the caller (`over`).
    Returns those that were stored, and those that have ended, by their numbers in the file.

    Both are checked after the insert, in new statements: the insert may have waited for a command that
    redrove its letter, and cannot see what that did. From then on only our row can be redriven.
    """
    yield sql("op_dead_import_alone")
    files = {same(row): row for row in reversed(letters)}
    # The order in which commands lock.
    sorted_ = sorted(files.values(), key=lambda row: (row["id"], row["queue"]))
    rows = yield sql("op_dead_import").with_documents(letters=sorted_)
    fresh = {
        (as_id(id), queue, number): files[as_id(id), queue, instant(due)] for id, queue, number, due in rows
    }
    back = yield from _back(list(fresh))
    left = [key for key in fresh if key not in back]
    ended = set() if force else (yield from over([fresh[key] for key in left], since))
    gone = [left[n] for n in ended]
    if back or gone:
        yield sql("op_dead_delete", **_named(sorted([*back, *gone])))
    stored = {key: row for key, row in fresh.items() if key not in back and key not in gone}
    if stored:
        yield sql("op_death_import").with_documents(deaths=_their(deaths, stored))
        yield sql("op_dead_key_hold", **_named(list(stored)))
    return {_in_file(row) for row in stored.values()}, {_in_file(fresh[key]) for key in gone}


def same(row: Row) -> tuple[UUID, str, datetime]:
    """What distinguishes a message from others with its id, even after its number has changed: when it was due."""
    due: datetime = row["due_at"] or row["created_at"]
    return as_id(row["id"]), row["queue"], due


def _in_file(row: Row) -> Key:
    return as_id(row["id"]), row["queue"], row["seq"]


def _their(deaths: Sequence[Row], stored: Mapping[Key, Row]) -> list[Row]:
    """The deaths of letters that were stored, each once, although a file may have a letter twice. The last death of a
    letter has its number here."""
    numbers = {_in_file(row): key[2] for key, row in stored.items()}
    known = {key[:2] for key in stored}
    found = {}
    for each in deaths:
        id, queue = as_id(each["id"]), each["queue"]
        if (id, queue) in known:
            number = numbers.get((id, queue, each["seq"]), each["seq"])
            found[id, queue, each["died_at"], number] = {**each, "seq": number}
    return list(found.values())


def _back(keys: Sequence[Key]) -> Plan[set[Key]]:
    rows = (yield sql("op_dead_back", **_named(keys))) if keys else []
    return {(as_id(id), queue, number) for id, queue, number in rows}


@single
def over(letters: Sequence[Row], since: datetime | None = None) -> Plan[set[int]]:
    """Which of these letters have ended in their queue, by the history: since they died, or as done.

    One pass over the history for all of them, or over the rows since a moment. An archived letter has not ended:
    it can be restored.
    """
    if not letters:
        return set()
    times = [row["died_at"] for row in letters]
    named = _same(letters)
    name, moment = ("op_dead_over", {}) if since is None else ("op_dead_since", {"since": since})
    rows = yield sql(name, **named, times=times, **moment)
    return {int(n) for (n,) in rows}


@single
def here(letters: Sequence[Row]) -> Plan[set[int]]:
    """Which of these letters are here, dead or pending again, under any number."""
    return {int(n) for (n,) in (yield sql("op_dead_here", **_same(letters)))}


def _same(letters: Sequence[Row]) -> dict[str, object]:
    keys = [same(row) for row in letters]
    return {
        "ids": [str(id) for id, _, _ in keys],
        "queues": [queue for _, queue, _ in keys],
        "dues": [due for _, _, due in keys],
    }


def archived(seen: Mapping[Key, int], where: str) -> Plan[list[Key]]:
    """Delete archived dead letters that have not changed since (by epoch); returns those deleted."""
    still = {each.key: each.epoch for each in (yield from _lock(list(seen)))}
    gone = [key for key, epoch in seen.items() if still.get(key) == epoch]
    for name, params in (
        ("op_dead_ended", {"outcome": ARCHIVED, "why": where}),
        ("op_dead_key_end", {}),
        ("op_dead_delete", {}),
    ):
        yield sql(name, **_named(gone), **params)
    return gone


def _named(keys: Sequence[Key]) -> dict[str, object]:
    return {
        "ids": [str(id) for id, _, _ in keys],
        "queues": [queue for _, queue, _ in keys],
        "numbers": [number for _, _, number in keys],
    }


def _one(key: Key) -> dict[str, object]:
    id, queue, number = key
    return {"id": str(id), "queue": queue, "number": number}
