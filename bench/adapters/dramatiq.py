"""Dramatiq on RabbitMQ: 8 threads, prefetch 1000, its default middleware; publishes are confirmed."""

from __future__ import annotations

import os
import threading
from types import SimpleNamespace
from typing import Any

os.environ["dramatiq_queue_prefetch"] = "1000"  # noqa: SIM112 - its name; read when it is imported

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker

from bench.adapters import contest

broker = RabbitmqBroker(url=contest.URL, confirm_delivery=True)
dramatiq.set_broker(broker)
tally = contest.tally()


@dramatiq.actor(queue_name=contest.QUEUE)
def handle(body: dict[str, Any]) -> None:
    tally.saw(body["n"])


def publish(params: SimpleNamespace) -> dict[str, Any]:
    return contest.publish(params, handle.send)


def work(_: SimpleNamespace) -> None:
    worker = dramatiq.Worker(broker, worker_threads=8)
    stop = threading.Event()
    contest.on_stop(stop.set)
    contest.gate()
    worker.start()
    stop.wait()
    worker.stop()


if __name__ == "__main__":
    contest.main(prepare=lambda _: None, publish=publish, work=work)
