"""`rabbitmq_version`: "old" (3.10) and "new" (4.0); `own_broker`: one that may be killed."""

from __future__ import annotations

from tests.transports.conftest import own_broker, rabbitmq, rabbitmq_version
from tests.worker.conftest import lab, sqlite_lab

__all__ = ["lab", "own_broker", "rabbitmq", "rabbitmq_version", "sqlite_lab"]
