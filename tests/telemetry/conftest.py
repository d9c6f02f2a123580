"""The `lab` of the worker's tests: a database on SQLite and on each PostgreSQL asked for."""

from tests.worker.conftest import lab, place, pytest_generate_tests, sqlite_lab  # noqa: F401
