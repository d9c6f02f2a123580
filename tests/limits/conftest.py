"""`lab` and `place` of the worker's tests: a database of the test's own, on both kinds, with workers in it."""

from tests.worker.conftest import lab, place, pytest_generate_tests, sqlite_lab

__all__ = ["lab", "place", "pytest_generate_tests", "sqlite_lab"]
