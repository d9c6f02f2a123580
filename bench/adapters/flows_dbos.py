"""DBOS workflows. BENCH_THREADS=0: by its queue (as in dbos.py); else so many threads of ours call them directly."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

from dbos import DBOS, DBOSClient

from bench.adapters import contest, flows

URL = contest.URL if "://" in contest.URL else f"sqlite:///{contest.URL}"


@DBOS.step()
def step(n: int, number: int) -> str:
    return flows.step(n, number)


@DBOS.workflow(name="flow")
def flow(n: int) -> int:
    if flows.KIND != "chain":
        flows.begun(n)
    for number in range(flows.STEPS):
        step(n, number)
    if flows.KIND != "chain":
        flows.ended(n)
    return n


def launch() -> None:
    DBOS(
        config={
            "name": "bench",
            "system_database_url": URL,
            "sys_db_pool_size": max(20, flows.THREADS),
            "max_executor_threads": flows.THREADS or 32,
            "application_version": "1",
            "log_level": "ERROR",
        }
    )
    DBOS.launch()


def prepare(_: SimpleNamespace) -> None:
    launch()
    DBOS.destroy()


def publish(params: SimpleNamespace) -> dict[str, Any]:
    begun = time.monotonic()
    if not flows.THREADS:
        client = DBOSClient(system_database_url=URL)
        for n in flows.inputs(params):
            client.enqueue({"queue_name": "flow", "workflow_name": "flow", "app_version": "1"}, n)
    return flows.told(params, begun)


def work(_: SimpleNamespace) -> None:
    stop = threading.Event()
    contest.on_stop(stop.set)
    launch()
    contest.gate()
    if flows.THREADS:
        with ThreadPoolExecutor(flows.THREADS) as pool:
            count = 1 if flows.KIND == "chain" else flows.tally.n
            for each in [pool.submit(flow, n) for n in range(count)]:
                each.result()
    else:
        DBOS.register_queue("flow", worker_concurrency=200, polling_interval_sec=0.01)
    stop.wait()
    DBOS.destroy(workflow_completion_timeout_sec=1)


if __name__ == "__main__":
    contest.main(prepare=prepare, publish=publish, work=work)
