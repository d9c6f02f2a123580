"""Two applications in processes of their own: a shop that sends orders and hears of bills, and a billing service.

Everything that a handler does is in the transaction that settles its message; so an effect that is there twice, or not
at all, is a mistake of the delivery.
"""

from __future__ import annotations

import json
import logging
import os
from typing import Any

from holdfast import Context, Holdfast, RetryPolicy
from holdfast.transports import Exchange, Queue, RabbitMQ

URL = os.environ.get("LAB_URL", "sqlite:///:memory:")
# Of the exchange, and before the names of the queues.
NAME: str = json.loads(os.environ.get("LAB_NAME", '"storm"'))
BROKER: str = json.loads(os.environ.get("LAB_BROKER", '"amqp://guest@127.0.0.1/"'))
EFFECT = "insert into effect (stream, n) values (?, ?)"
if not URL.startswith("sqlite"):
    EFFECT = EFFECT.replace("?", "%s")
SOON = RetryPolicy(attempts_max=50, base=0.05, factor=1.0, cap=0.05)
TYPES = {"billing": "order.placed", "shop": "order.billed"}  # what each service hears
LEASE = float(json.loads(os.environ.get("LAB_LEASE", "3.0")))
if "LAB_BROKER" in os.environ:  # a process of its own, not the tests that import this
    logging.getLogger("pika").setLevel(logging.CRITICAL)  # it says at length what a cut connection is


def broker(url: str, name: str) -> RabbitMQ:
    """With the exchange and both queues: whoever comes first declares them."""
    queues = [
        Queue(f"{name}.{service}", {name: [heard]}, is_single_active=True) for service, heard in TYPES.items()
    ]
    return RabbitMQ(url, declare=[Exchange(name), *queues])


def service(own: str, sends: str, url: str = URL, broker_url: str = BROKER, name: str = NAME) -> Holdfast:
    """One of the two services, without its handler."""
    app = Holdfast(url, lease=LEASE, heartbeat=LEASE / 3)
    rabbit = broker(broker_url, name)
    app.destination("out", rabbit, types=[sends], to=name, key="{type}", source=f"/{own}")
    app.inbox(own, rabbit, queue=f"{name}.{own}", stream="{partitionkey}")
    return app


shop = service("shop", sends="order.placed")
billing = service("billing", sends="order.billed")


@billing.handler("order.placed", retry=SOON)
def bill(order: dict[str, Any], ctx: Context) -> None:
    ctx.publish("order.billed", order, stream=order["stream"])
    with ctx.transaction() as db:
        db.execute(EFFECT, (order["stream"], order["n"]))


@shop.handler("order.billed", retry=SOON)
def note(order: dict[str, Any], ctx: Context) -> None:
    with ctx.transaction() as db:
        db.execute(EFFECT, (order["stream"], order["n"]))
