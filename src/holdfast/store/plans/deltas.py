"""Deltas: rows that settlements store in other tables, in the same commit and under the same fence.

An applier has a name. On PostgreSQL it is the function `apply_NAME(rows json, now timestamptz)`, called inside
`settle`; on SQLite it is the statement `apply_NAME`, with the rows as JSON in `:rows` and the time in `:now`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...model.message import NewMessage
from ...model.work import Guess, Settlement
from ..statement import Plan, Statement
from ..text import load
from ..values import encode
from .settling import MessageFence, message_fence

Emitted = Callable[[MessageFence, NewMessage], dict[str, object]]  # a message as the database takes it
# Of a turn: what few have; what all that are no pause have, for the journal and for the instance; and what some have.
RARE = ("begin", "starts", "timers", "calls")
JOURNALED = ("id", "execution", "turn", "part", "body")
STANDS = ("id", "execution", "turn", "state", "mark", "entries", "size")
MORE = ("result", "poison", "trouble", "status", "attributes")


def deltas_postgres(settlements: Sequence[Settlement], message: Emitted) -> str | None:
    """The deltas with the leases that they need; None if there are none, which is the usual case."""
    found = [
        _under(message_fence(each), each.delta.applier, each.delta.rows)
        for each in settlements
        if each.delta is not None
    ]
    found += [
        _under(message_fence(each), "guesses", [_guess_postgres(message_fence(each), each.guess, message)])
        for each in settlements
        if each.guess is not None
    ]
    return encode(found) if found else None


def _under(fence: MessageFence, applier: str, rows: Sequence[Mapping[str, object]]) -> dict[str, object]:
    seq, run, epoch = fence
    return {"by": seq, "run": run, "epoch": epoch, "applier": applier, "rows": rows}


def _guess_postgres(fence: MessageFence, guess: Guess, message: Emitted) -> dict[str, object]:
    """`settle` keeps it until it has the rows of streams."""
    return {
        "queue": guess.answer.queue, "id": guess.answer.stream, "was": guess.was, "turn": guess.turn,
        "answer": message(fence, guess.answer), "emits": [message(fence, each) for each in guess.emits],
    }  # fmt: skip


def apply_sqlite(stood: Sequence[Settlement], appliers: Mapping[str, str], now: int) -> Plan[None]:
    """Apply the deltas of settlements whose leases are valid. `appliers` come before those of the package."""
    rows: dict[str, list[Any]] = {}
    for each in stood:
        if each.delta is not None:
            rows.setdefault(each.delta.applier, []).extend(each.delta.rows)
    for name in sorted(rows):
        if name == "turns" and name not in appliers:
            yield from turns_sqlite(rows[name], now)
            continue
        text = appliers.get(name) or load("sqlite", (f"deltas/apply_{name}",))
        yield Statement(text, {"rows": encode(rows[name]), "now": now})


def turns_sqlite(turns: Sequence[Mapping[str, Any]], now: int) -> Plan[None]:
    """Store turns. Those that do nothing but go on or end, mostly all, need three statements, however many they are."""
    plain: list[Mapping[str, Any]] = []
    others: list[Mapping[str, Any]] = []
    for each in turns:
        (others if "body" not in each or any(map(each.get, RARE)) else plain).append(each)
    if plain:
        stood = [(*(t[name] for name in STANDS), [t.get(name) for name in MORE]) for t in plain]
        yield Statement(load("sqlite", ("deltas/turns_store",)), {"rows": encode(stood), "now": now})
        ((count,),) = yield Statement(load("sqlite", ("deltas/turns_stored",)))
        if count == len(plain):
            bodies = [[t[name] for name in JOURNALED] for t in plain]
            yield Statement(load("sqlite", ("deltas/turns_journal",)), {"rows": encode(bodies)})
            turns = others
    if turns:  # if one is not the next of its instance, all are refused here
        yield Statement(load("sqlite", ("deltas/apply_turns",)), {"rows": encode(turns), "now": now})


def guesses_sqlite(stood: Sequence[Settlement], now: int) -> Plan[list[NewMessage]]:
    """Decide the guesses of these settlements; returns what they emit, or the answers of those that do not fit."""
    guesses = [each.guess for each in stood if each.guess is not None]
    rows = [
        (g.answer.queue, g.answer.stream, g.turn["execution"], g.turn["turn"], g.turn["state"], g.was)
        for g in guesses
    ]
    fitting = yield Statement(load("sqlite", ("deltas/guesses_fit",)), {"rows": encode(rows)})
    fits = {n for (n,) in fitting}
    turns = [guess.turn for n, guess in enumerate(guesses) if n in fits]
    if turns:
        yield from turns_sqlite(turns, now)
    return [m for n, guess in enumerate(guesses) for m in (guess.emits if n in fits else (guess.answer,))]
