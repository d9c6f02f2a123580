"""Every test of dead letters runs on both databases, in the world of tests/operations."""

from tests.operations.conftest import world

__all__ = ["world"]
