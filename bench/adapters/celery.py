"""Celery on RabbitMQ: solo pool (prefork and threads were slower), prefetch 500, no results, gossip or mingle.

Publishes are confirmed and acknowledgements late, so that nothing is lost: the same promise as ours.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from celery import Celery

from bench.adapters import contest

app = Celery("bench", broker=contest.URL)
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,
    task_default_queue=contest.QUEUE,
    worker_prefetch_multiplier=500,
    worker_concurrency=1,
    worker_enable_remote_control=False,
    worker_send_task_events=False,
    broker_transport_options={"confirm_publish": True},
    broker_connection_retry_on_startup=True,
)
tally = contest.tally()


@app.task(name="work")
def handle(body: dict[str, Any]) -> None:
    tally.saw(body["n"])


def publish(params: SimpleNamespace) -> dict[str, Any]:
    with app.connection_for_write() as connection, app.amqp.Producer(connection) as producer:
        return contest.publish(params, lambda body: handle.apply_async((body,), producer=producer))


def work(_: SimpleNamespace) -> None:
    contest.gate()
    app.worker_main(
        [
            "worker",
            "--pool=solo",
            "--without-gossip",
            "--without-mingle",
            "--without-heartbeat",
            "--loglevel=ERROR",
        ]
    )


if __name__ == "__main__":
    contest.main(prepare=lambda _: None, publish=publish, work=work)
