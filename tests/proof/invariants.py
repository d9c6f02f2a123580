"""What must hold after every schedule, whoever went first. Pure: rows before, rows after, and what was answered."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from holdfast.model.names import SCOPED
from tests.proof.operations import Outcome

Tables = Mapping[str, Sequence[Mapping[str, Any]]]
Key = tuple[str, str | None]
TIMER = "holdfast/timer"
ID_TAKEN = 12


def broken(before: Tables, after: Tables, results: Sequence[Any], names: Mapping[UUID, str]) -> list[str]:
    named = {str(id): name for id, name in names.items()}
    before, after = pending(before), pending(after)
    return [
        *order(after, named),
        *leases(after, named),
        *places(before, after, named),
        *epochs(before, after, named),
        *dedupe(after, named),
        *answers(before, after, results, named),
    ]


def pending(tables: Tables) -> Tables:
    """Scheduled messages beside the others: each must be somewhere, and in one place."""
    others = ({"head": True, "position": None, "xact": None, **row} for row in tables["scheduled"])
    return {**tables, "message": [*tables["message"], *others]}


def order(after: Tables, named: Mapping[str, str]) -> Iterator[str]:
    streams: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for m in after["message"]:
        name = named.get(m["id"], m["id"])
        if m["head"] and m["xact"] is not None:
            yield f"{name} is a head and still bears the mark of the transaction that places it"
        if m["position"] is None:
            if m["queue"] is not None and not m["head"]:
                yield f"{name} was left without a place, out of the order and no head: nobody can claim it"
        elif m["stream"] is None or m["queue"] is None:
            yield f"{name} has a position without a stream or a queue"
        else:
            streams[m["queue"], m["stream"]].append(m)
    rows = {(s["queue"], s["name"]): s for s in after["stream"]}
    for key in streams.keys() - rows.keys():
        yield f"stream {key} has messages and no row"
    for key, s in rows.items():
        waiting = sorted(streams[key], key=lambda m: int(m["position"]))
        heads = [m for m in waiting if m["head"]]
        if s["open"] != len(waiting):
            yield f"stream {key} says open = {s['open']} and has {len(waiting)} in its order"
        if s.get("last") is not None and waiting and int(waiting[-1]["position"]) > int(s["last"]):
            yield f"stream {key} says that its last is {s['last']}, and {waiting[-1]['position']} is in it"
        if len(heads) > 1:
            yield f"stream {key} has {len(heads)} heads"
        if s["halted_by"] is None and heads != waiting[:1]:
            yield f"stream {key} is stranded: {[(named.get(m['id']), m['head']) for m in waiting]}"
        if s["halted_by"] is not None and any(m["head"] for m in waiting):
            yield f"stream {key} is halted and has a head"


def leases(after: Tables, named: Mapping[str, str]) -> Iterator[str]:
    by_seq = {m["seq"]: m for m in after["message"]}
    for lease in after["lease"]:
        m = by_seq.get(lease["seq"])
        if m is None:
            yield f"the lease of {lease['seq']} belongs to no message"
        elif not m["head"]:
            yield f"{named.get(m['id'])} is leased and no head"
        elif lease["epoch"] != m["epoch"] + 1:
            yield f"{named.get(m['id'])}: the lease has epoch {lease['epoch']}, the message {m['epoch']}"


def places(before: Tables, after: Tables, named: Mapping[str, str]) -> Iterator[str]:
    """Nothing is lost and nothing is in two places: pending, dead or ended."""
    ended = Counter((h["id"], h["queue"]) for h in after["history"])
    pending = Counter((m["id"], m["queue"]) for m in after["message"])
    dead = Counter((d["id"], d["queue"]) for d in after["dead"] if d["reason"] != ID_TAKEN)
    for key, count in (ended + pending + dead).items():
        if count > 1:
            where = f"{ended[key]} ended, {pending[key]} pending, {dead[key]} dead"
            yield f"{named.get(key[0])} in {key[1]} is in {count} places: {where}"
    # Another message may have its id (reason 12): both are there, with their bodies.
    kept = {(row["id"], row["body"]) for row in (*after["message"], *after["dead"])}
    over = {id for id, _ in ended}
    for m in before["message"]:
        if (m["id"], m["body"]) not in kept and m["id"] not in over:
            yield f"{named.get(m['id'])} is lost, with its body"
    now = {id for id, _ in (*ended, *pending, *dead)}
    keys = ended.keys() | pending.keys() | dead.keys()
    for row in (*before["message"], *before["dead"]):
        moves = row["queue"] in (None, TIMER, "m")
        if (row["id"], row["queue"]) not in keys and not (moves and row["id"] in now):
            yield f"{named.get(row['id'])} in {row['queue']} is lost"


def epochs(before: Tables, after: Tables, named: Mapping[str, str]) -> Iterator[str]:
    """An epoch never falls, through death and redrive."""
    then = {(row["id"], row["queue"]): row["epoch"] for row in (*before["message"], *before["dead"])}
    was_dead = {(row["id"], row["queue"]) for row in before["dead"]}
    for row in (*after["message"], *after["dead"]):
        key = (row["id"], row["queue"])
        if row["epoch"] < then.get(key, 0):
            yield f"the epoch of {named.get(row['id'])} fell from {then[key]} to {row['epoch']}"
    for m in after["message"]:
        key = (m["id"], m["queue"])
        if key in was_dead and m["epoch"] <= then[key]:
            yield f"{named.get(m['id'])} came back with epoch {m['epoch']}"


def scope(row: Mapping[str, Any]) -> str:
    """The scope of a row's dedupe key: its type, unless the key names its own."""
    return "" if row["dedupe"].startswith(SCOPED) else str(row["type"])


def dedupe(after: Tables, named: Mapping[str, str]) -> Iterator[str]:
    holders = {(k["scope"], k["key"]): k["id"] for k in after["dedupe"]}
    for row in (*after["message"], *after["dead"]):
        if row["dedupe"] is not None and holders.get((scope(row), row["dedupe"])) != row["id"]:
            yield f"{named.get(row['id'])} does not hold its dedupe key {row['dedupe']}"
    live = Counter((scope(m), m["dedupe"], m["queue"]) for m in after["message"] if m["dedupe"] is not None)
    yield from (f"two messages with the key {key}" for key, count in live.items() if count > 1)


def answers(before: Tables, after: Tables, results: Sequence[Any], named: Mapping[str, str]) -> Iterator[str]:
    """What the operations were told is true, and no lease was given twice."""
    outcomes = [each for each in results if isinstance(each, Outcome)]
    there = {row["id"] for table in ("message", "dead", "history") for row in after[table]}
    done = {(h["id"], h["queue"]) for h in after["history"] if h["outcome"] == "done"}
    effects = Counter(e["message"] for e in after["effect"])
    claimed = Counter(token for outcome in outcomes for token in outcome.claimed)
    held = Counter(key for outcome in outcomes for key in outcome.held)
    yield from (f"the lease {token} was given twice" for token, count in claimed.items() if count > 1)
    stored = Counter(id for outcome in outcomes for id in outcome.published)
    yield from (f"{id} was published twice" for id, count in stored.items() if count > 1)
    rows = {m["seq"]: m for m in after["message"]}
    standing = {lease["seq"] for lease in after["lease"]}
    for seq, head in (each for outcome in outcomes for each in outcome.followers):
        if head in standing and (seq not in rows or rows[seq]["position"] is None):
            yield f"{seq} was handed out behind {head} and is not in the order"
    given = {lease["seq"]: lease["epoch"] for lease in before["lease"]}
    yield from (
        f"the lease {token} had been given before" for token in claimed if token[1] <= given.get(token[0], -1)
    )
    yield from (
        f"{named.get(str(key[0]))} was settled {count} times" for key, count in held.items() if count > 1
    )
    for outcome in outcomes:
        for seq, epoch in outcome.ended:
            if any(of == seq and later > epoch for of, later in claimed):
                yield f"{seq} has ended under epoch {epoch}, although it was handed out under a later one"
        for id in outcome.published:
            if str(id) not in there:
                yield f"{named.get(str(id))} was published and is not there"
        for id in outcome.refused:
            if str(id) in there:
                yield f"{named.get(str(id))} was not to be stored and is there"
        for id in outcome.effects:
            if effects[str(id)] != 1 or (str(id), "q") not in done:
                yield f"{named.get(str(id))}: {effects[str(id)]} effects, done is {(str(id), 'q') in done}"
    told = {str(id) for outcome in outcomes for id in outcome.effects}
    yield from (f"an effect of {named.get(id)} that nobody was told of" for id in effects if id not in told)
