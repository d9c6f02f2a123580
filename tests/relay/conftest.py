"""`lab`: a database on SQLite and on each PostgreSQL asked for. `rabbitmq`: a broker of each version."""

from __future__ import annotations

from tests.transports.conftest import own_broker, rabbitmq, rabbitmq_version, wire
from tests.worker.conftest import lab, sqlite_lab

__all__ = ["lab", "own_broker", "rabbitmq", "rabbitmq_version", "sqlite_lab", "wire"]
