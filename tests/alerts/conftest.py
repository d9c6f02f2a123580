"""Every test of alerts runs on both databases, in the world of operations."""

from tests.operations.conftest import pytest_generate_tests, url, world

__all__ = ["pytest_generate_tests", "url", "world"]
