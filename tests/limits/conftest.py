"""`lab` of the worker's tests, and `cluster`: processes that share a database and a clock that is moved by hand."""

from tests.limits.cluster import cluster
from tests.worker.conftest import lab, sqlite_lab

__all__ = ["cluster", "lab", "sqlite_lab"]
