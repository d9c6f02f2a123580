"""The application of relay processes in these tests: everything goes to the exchange that the test made."""

from __future__ import annotations

import json
import os

from holdfast import Holdfast
from holdfast.transports import RabbitMQ, Secret

app = Holdfast(os.environ.get("LAB_URL", "sqlite:///:memory:"), lease=3.0, heartbeat=1.0)
app.destination(
    "orders",
    RabbitMQ(Secret("LAB_BROKER_URL"), may_declare=False),
    types=["order.*"],
    to=json.loads(os.environ.get("LAB_EXCHANGE", '""')),
    key="key",
)
