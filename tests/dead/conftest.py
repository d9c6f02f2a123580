"""Every test of dead letters runs on both databases, in the world of tests/operations."""

from __future__ import annotations

from tests.operations.conftest import pytest_generate_tests, url, world

__all__ = ["pytest_generate_tests", "url", "world"]
