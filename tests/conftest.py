"""Every test may use what these two plugins give: databases, and the record of what a run has shown."""

from __future__ import annotations

import gc

pytest_plugins = ["tests.databases", "tests.reporting"]


def pytest_configure() -> None:
    """Collecting makes a million objects that all stay. To look for garbage among them takes 40 % of its time."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Nor is there anything to be found among them later."""
    gc.collect()
    gc.freeze()
    gc.enable()
