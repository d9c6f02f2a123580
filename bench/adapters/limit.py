"""The limit on PostgreSQL: the fewest statements that do the same life cycle in batches, with our driver.

One table, one index; a claim marks 500 rows and deletes the 500 before it, in one statement and one commit. No
history, no leases that lapse, no retries, no streams: a bound, not an engine. Its plan is pinned as ours is. JSON is
the standard library's, as for all but us, and it does not claim ahead while it handles.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import psycopg
from psycopg.types.array import ListBinaryDumper

from bench.adapters import contest

TABLE = """
create table message (
    id bigint generated always as identity primary key, taken bool not null default false, body text not null);
create index message_free on message (id) where not taken;
"""
EXCHANGE = """
with gone as (delete from message where id = any (%s))
update message set taken = true where id = any (array(
    select id from message where not taken order by id limit 500 for update skip locked)) returning id, body
"""
PINNED = (
    " ".join(f"-c enable_{each}=off" for each in ("seqscan", "bitmapscan", "hashjoin", "mergejoin", "sort"))
    + " -c jit=off"
)


def prepare(_: SimpleNamespace) -> None:
    with psycopg.connect(contest.URL) as connection:
        connection.execute(TABLE)


def publish(params: SimpleNamespace) -> dict[str, Any]:
    with psycopg.connect(contest.URL, autocommit=True) as connection:
        connection.adapters.register_dumper(list, ListBinaryDumper)  # as we do

        def many(bodies: Sequence[dict[str, Any]]) -> None:
            connection.execute(
                "insert into message (body) select unnest(%s::text[])", ([json.dumps(b) for b in bodies],)
            )

        return contest.publish(params, lambda body: many([body]), many)


async def work(_: SimpleNamespace) -> None:
    tally, done, running = contest.tally(), [], [True]
    contest.on_stop(lambda: running.clear())
    async with await psycopg.AsyncConnection.connect(
        contest.URL, autocommit=True, options=PINNED
    ) as connection:
        contest.gate()
        while running:
            rows = await (await connection.execute(EXCHANGE, (done,), prepare=True, binary=True)).fetchall()
            done = [row[0] for row in rows]
            for _, body in rows:
                tally.saw(json.loads(body)["n"])
            if not rows:
                await asyncio.sleep(0.001)


if __name__ == "__main__":
    contest.main(prepare=prepare, publish=publish, work=lambda p: asyncio.run(work(p)))
