"""A worker serves whatever is a consumer: here one that is no handler, serves a queue of its own and leaves deltas."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

from holdfast.bodies.keys import Keys
from holdfast.handlers.consumer import Consumer, Limits
from holdfast.handlers.context import Context
from holdfast.model.work import Delta, Leased
from holdfast.rules.policy import HandlerPolicy
from holdfast.rules.redact import DEFAULT, Masking
from holdfast.rules.retry import RetryPolicy
from holdfast.store.plans.engine_sqlite import SqliteEngine
from tests.store.test_deltas import APPLIER
from tests.worker.lab import Lab, settled

ONCE = HandlerPolicy(retry=RetryPolicy(attempts_max=1))


@dataclass(frozen=True)
class Turns:
    """Writes a note for each message, as the turn of an orchestration will write its journal."""

    queue: str = "fulfil@2"
    is_family: bool = False
    patterns: tuple[str, ...] = ()
    is_ordered: bool = True
    policy: HandlerPolicy = ONCE
    masking: Masking = DEFAULT
    keys: Keys | None = None
    steps: Mapping[str, int] = field(default_factory=dict)
    is_async: bool = True
    takes_context: bool = True
    batch: int = 0

    def limits(self, queue: str) -> Limits:
        return Limits(concurrency=10, timeout=30.0)

    def decode(self, text: str) -> Any:
        return json.loads(text)

    async def call(self, leased: Leased, context: Context | None) -> None:
        assert context is not None
        context._delta = Delta("notes", (self.decode(leased.message.body),))

    async def call_batch(self, queue: str, bodies: Sequence[Any], contexts: Sequence[Context]) -> None:
        for body, context in zip(bodies, contexts, strict=True):
            context._delta = Delta("notes", (body,))

    def but(self, policy: HandlerPolicy) -> Turns:
        return replace(self, policy=policy)


async def test_a_delta_that_is_refused_fails_its_message_alone(lab: Lab) -> None:
    lab.execute("create table note (n integer primary key, text varchar(40) not null check (text <> 'no'))")
    if not lab.sqlite:
        lab.execute(APPLIER)
    for batch in (0, 5):
        app = lab.app()
        turns: Consumer = Turns(queue=f"fulfil@{batch}", batch=batch)
        app.handlers.add(turns)
        if isinstance(app.store.engine, SqliteEngine):
            app.store.engine.appliers["notes"] = (
                "insert into note (n, text) select value ->> 'n', value ->> 'text' from json_each(:rows)"
            )
        texts = [{"n": 100 * batch + n, "text": "no" if n == 7 else "yes"} for n in range(20)]
        messages = [app.message("turn", body) for body in texts]
        # publish refuses the names of orchestrations
        app.publish_many([structs.replace(each, queue=turns.queue) for each in messages])
        async with lab.working(app):
            await settled(lab)
        stored = {n for (n,) in lab.execute("select n from note where text = 'yes'")}
        assert {n for n in stored if n // 100 == batch} == {100 * batch + n for n in range(20) if n != 7}
        (letter,) = [row for row in lab.rows("dead") if row.queue == turns.queue]
        assert json.loads(letter.body)["text"] == "no"
    lab.execute("drop table note")
    if not lab.sqlite:
        lab.execute("drop function holdfast.apply_notes")
