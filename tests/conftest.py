"""Every test may use what these two plugins give: databases, and the record of what a run has shown."""

from __future__ import annotations

import gc

from hypothesis import settings

pytest_plugins = ["tests.databases", "tests.reporting"]


def pytest_configure() -> None:
    """Collecting makes a million objects that all stay. To look for garbage among them takes 40 % of its time."""
    gc.disable()
    # A property holds or not; how long an example takes says something about the machine only.
    settings.register_profile("holdfast", deadline=None)
    settings.load_profile("holdfast")


def pytest_collection_finish() -> None:
    """Nor is there anything to be found among them later."""
    gc.collect()
    gc.freeze()
    gc.enable()
