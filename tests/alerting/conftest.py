"""Every test of alerts runs on both databases, in the world of operations."""

from tests.operations.conftest import world

__all__ = ["world"]
