"""Huey on SQLite: fsync on (synchronous=FULL), one thread (two were slower), no results, the shortest waits.

It deletes a message before its handler runs: at most once, where the others deliver at least once.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from huey import SqliteHuey

from bench.adapters import contest

huey = SqliteHuey("bench", filename=contest.URL, fsync=True, results=False)
tally = contest.tally()


@huey.task(name="work")
def handle(body: dict[str, Any]) -> None:
    tally.saw(body["n"])


def prepare(_: SimpleNamespace) -> None:
    huey.storage.initialize_schema()


def publish(params: SimpleNamespace) -> dict[str, Any]:
    return contest.publish(params, handle)


def work(_: SimpleNamespace) -> None:
    consumer = huey.create_consumer(
        workers=1, worker_type="thread", initial_delay=0.005, max_delay=0.02, periodic=False
    )
    contest.gate()
    consumer.run()  # until SIGTERM


if __name__ == "__main__":
    contest.main(prepare=prepare, publish=publish, work=work)
