"""The `lab` of the worker's tests: a database on SQLite and on each PostgreSQL asked for."""

from tests.worker.conftest import lab, sqlite_lab

__all__ = ["lab", "sqlite_lab"]
