"""DBOS queues: worker_concurrency 200, polling every 10 ms (the default is 1 s), 32 threads, a pool of 20."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from dbos import DBOS, DBOSClient

from bench.adapters import contest

URL = contest.URL if "://" in contest.URL else f"sqlite:///{contest.URL}"
tally = contest.tally()


@DBOS.workflow(name="work")
def handle(body: dict[str, Any]) -> None:
    tally.saw(body["n"])


def launch() -> None:
    DBOS(
        config={
            "name": "bench",
            "system_database_url": URL,
            "sys_db_pool_size": 20,
            "max_executor_threads": 32,
            "application_version": "1",
            "log_level": "ERROR",
        }
    )
    DBOS.launch()


def prepare(_: SimpleNamespace) -> None:
    launch()
    DBOS.destroy()


def publish(params: SimpleNamespace) -> dict[str, Any]:
    client = DBOSClient(system_database_url=URL)

    def one(body: dict[str, Any]) -> None:
        client.enqueue({"queue_name": "work", "workflow_name": "work", "app_version": "1"}, body)

    return contest.publish(params, one)


def work(_: SimpleNamespace) -> None:
    contest.gate()
    launch()
    DBOS.register_queue("work", worker_concurrency=200, polling_interval_sec=0.01)
    stop = threading.Event()
    contest.on_stop(stop.set)
    stop.wait()
    DBOS.destroy(workflow_completion_timeout_sec=1)


if __name__ == "__main__":
    contest.main(prepare=prepare, publish=publish, work=work)
