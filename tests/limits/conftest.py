"""`lab` of the worker's tests: a database on SQLite and on each PostgreSQL asked for, with workers in it."""

from tests.worker.conftest import lab, sqlite_lab

__all__ = ["lab", "sqlite_lab"]
