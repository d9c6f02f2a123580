"""Who is measured by `python -m bench.delivery`, each in a process of its own: raw clients, the relay, the inbox.

Each prints one line of JSON: how many messages, seconds from the first to the last, CPU seconds, and its largest size
in memory: `resident`, and `megabytes` without the parts of files that it has mapped. SQLite maps up to 256 MB of its
database, which are pages of the system's cache and go when somebody needs the memory. Raw pika is what the relay is
built on: callbacks only, 500 messages in a batch, two batches under way. Raw aio-pika gathers 500 publishes at a time,
as its documentation shows.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

BATCH, FLYING, PREFETCH = 500, 2, 2000


def told(count: int, begun: float, ended: float, cpu: float, **more: float) -> None:
    # ru_maxrss begins with the size of the process that started this one.
    sizes = {"megabytes": max(own, size_of("RssAnon")), "resident": size_of("VmHWM")}
    sys.stdout.write(
        json.dumps({"count": count, "seconds": ended - begun, "cpu": cpu, **sizes, **more}) + "\n"
    )


def size_of(what: str) -> float:
    """Of this process, in megabytes."""
    return int(Path("/proc/self/status").read_text().partition(f"{what}:")[2].split()[0]) / 1024


own = 0.0  # the most memory of its own that was seen


def watch_size() -> None:
    """The system keeps the highest value of all resident memory only."""
    global own
    while True:
        own = max(own, size_of("RssAnon"))
        time.sleep(0.02)


def body_of(size: int) -> bytes:
    return json.dumps({"text": "x" * (size - 12)}).encode()


# --- Raw clients ------------------------------------------------------------------------------------------------------


async def opened(url: str) -> Any:
    """A channel of pika's own asyncio adapter."""
    import pika
    from pika.adapters.asyncio_connection import AsyncioConnection

    ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    AsyncioConnection(
        pika.URLParameters(url),
        on_open_callback=lambda connection: connection.channel(on_open_callback=ready.set_result),
    )
    return await ready


async def raw_send(url: str, exchange: str, count: int, size: int) -> None:
    import pika

    channel = await opened(url)
    loop, done, body = asyncio.get_running_loop(), 0, body_of(size)
    waiting: list[tuple[int, asyncio.Future[None]]] = []

    def answered(frame: Any) -> None:
        nonlocal done
        if frame.method.multiple:
            done = max(done, frame.method.delivery_tag)
            single.difference_update({each for each in single if each <= done})
        else:
            single.add(frame.method.delivery_tag)
        while done + 1 in single:
            done += 1
            single.discard(done)
        for upto, future in list(waiting):
            if upto <= done and not future.done():
                future.set_result(None)

    single: set[int] = set()
    confirming: asyncio.Future[Any] = loop.create_future()
    channel.confirm_delivery(answered, callback=confirming.set_result)
    await confirming
    begun, cpu = time.monotonic(), time.process_time()
    for start in range(0, count, BATCH):
        for n in range(start, min(start + BATCH, count)):
            properties = pika.BasicProperties(message_id=str(n), delivery_mode=2, type="order.placed")
            channel.basic_publish(exchange, "order.placed", body, properties, True)
        waiting.append((min(start + BATCH, count), loop.create_future()))
        if len(waiting) == FLYING:
            await waiting[0][1]
            waiting.pop(0)
    for _, future in waiting:
        await future
    told(count, begun, time.monotonic(), time.process_time() - cpu)


async def aio_send(url: str, exchange: str, count: int, size: int) -> None:
    import aio_pika

    connection = await aio_pika.connect(url)
    channel = await connection.channel(publisher_confirms=True)
    to, body = await channel.get_exchange(exchange), body_of(size)
    begun, cpu = time.monotonic(), time.process_time()
    for start in range(0, count, BATCH):
        await asyncio.gather(
            *(
                to.publish(aio_pika.Message(body, message_id=str(n), delivery_mode=2), "order.placed")
                for n in range(start, min(start + BATCH, count))
            )
        )
    told(count, begun, time.monotonic(), time.process_time() - cpu)
    await connection.close()


async def raw_receive(url: str, queue: str, count: int) -> None:
    channel = await opened(url)
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    came, begun, cpu = 0, 0.0, 0.0

    def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        nonlocal came, begun, cpu
        if not came:
            begun, cpu = time.monotonic(), time.process_time()
        came += 1
        if came % BATCH == 0 or came == count:
            channel.basic_ack(method.delivery_tag, multiple=True)
        if came == count:
            over.set_result(None)

    limited: asyncio.Future[Any] = loop.create_future()
    channel.basic_qos(prefetch_count=PREFETCH, callback=limited.set_result)
    await limited
    channel.basic_consume(queue, on_message)
    await over
    told(count, begun, time.monotonic(), time.process_time() - cpu)


# --- Holdfast ---------------------------------------------------------------------------------------------------------


async def relay(database: str, url: str, exchange: str, count: int) -> None:
    """Sends what is stored; the time is from the first call of the relay to the last message that is done."""
    from holdfast.transports import relay as relays

    app = made(database)
    app.destination("out", rabbit(url, exchange), types=["order.*"], to=exchange)
    moments: list[float] = []
    call_runs, cpu = relays.Relay.call_runs, 0.0

    async def timed(self: Any, *given: Any) -> Any:
        nonlocal cpu
        if not moments:
            cpu = time.process_time()
        moments.append(time.monotonic())
        return await call_runs(self, *given)

    relays.Relay.call_runs = timed  # type: ignore[method-assign]
    worker = app.worker()
    running = asyncio.create_task(worker.run())
    while not moments or is_pending(app):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    told(count, moments[0], time.monotonic(), time.process_time() - cpu)
    worker.stop()
    await running


async def inbox(database: str, url: str, exchange: str, queue: str, count: int, stream: str) -> None:
    """Stores what the broker has, with its dedupe keys; the handler's queue is paused."""
    from holdfast.inboxes import intake

    app = made(database)
    app.inbox("in", rabbit(url, exchange), queue=queue, stream=stream or None)

    @app.handler("order.placed")
    async def bill(body: dict[str, Any]) -> None: ...

    app.prepare()
    app.operations.queues.pause("bill", "measured without it")
    keep, over, stored = intake.Intake._keep, asyncio.Event(), 0
    begun = cpu = 0.0

    async def timed(self: Any, batch: Any) -> Any:
        nonlocal stored, begun, cpu
        if not stored:
            begun, cpu = time.monotonic(), time.process_time()
        ahead = await keep(self, batch)
        stored += len(batch)
        if stored >= count:
            over.set()
        return ahead

    intake.Intake._keep = timed  # type: ignore[method-assign]
    worker = app.worker()
    running = asyncio.create_task(worker.run())
    await over.wait()
    told(count, begun, time.monotonic(), time.process_time() - cpu)
    worker.stop()
    await running


async def latency(database: str, url: str, exchange: str, queue: str, count: int) -> None:
    """50 a second, each in a commit of its own, to a relay in this process; received by a raw consumer.

    Measured from when the publisher knows that its message is committed, as the latencies of `make bench` are.
    """
    app = made(database)
    app.destination("out", rabbit(url, exchange), types=["order.*"], to=exchange)
    app.prepare()
    channel = await opened(url)
    committed: dict[int, float] = {}
    came: dict[int, float] = {}

    def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        came[json.loads(body)["n"]] = time.monotonic()
        channel.basic_ack(method.delivery_tag)

    def publish(n: int) -> None:
        app.publish("order.placed", {"n": n})
        committed[n] = time.monotonic()

    channel.basic_consume(queue, on_message)
    worker = app.worker()
    running = asyncio.create_task(worker.run())
    await worker.started.wait()
    await asyncio.sleep(1.0)
    begun, cpu = time.monotonic(), time.process_time()
    for n in range(count):
        await asyncio.sleep(max(0.0, begun + n / 50 - time.monotonic()))
        await asyncio.to_thread(publish, n)
    while len(came) < count:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    ranked = sorted(came[n] - committed[n] for n in range(20, count))
    p50, p99 = ranked[len(ranked) // 2] * 1000, ranked[len(ranked) * 99 // 100] * 1000
    told(count, begun, time.monotonic(), time.process_time() - cpu, p50=p50, p99=p99)
    worker.stop()
    await running


def made(database: str) -> Any:
    from holdfast import Holdfast

    return Holdfast(database)


def rabbit(url: str, exchange: str) -> Any:
    from holdfast.transports import RabbitMQ

    return RabbitMQ(url, may_declare=False)


def is_pending(app: Any) -> bool:
    from holdfast.store.plans import queries

    return bool(app.store.run(queries.queue_pending("out", 1))[0])


ROLES = {each.__name__: each for each in (raw_send, aio_send, raw_receive, relay, inbox, latency)}

if __name__ == "__main__":
    role, arguments = ROLES[sys.argv[1]], json.loads(sys.argv[2])
    threading.Thread(target=watch_size, daemon=True).start()
    asyncio.run(role(**arguments))
