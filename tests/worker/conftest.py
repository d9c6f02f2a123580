"""`lab`: a database on SQLite and on each PostgreSQL asked for, with workers in it.

The invariants of the store are checked when the test has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.databases import migrated
from tests.store.state import check_invariants
from tests.worker.lab import Lab


@pytest.fixture
def lab(place: str, tmp_path: Path) -> Iterator[Lab]:
    yield from lab_at(place, tmp_path)


@pytest.fixture
def sqlite_lab(tmp_path: Path) -> Iterator[Lab]:
    yield from lab_at("sqlite", tmp_path)


@pytest.fixture
def pg_lab(postgres_version: str, tmp_path: Path) -> Iterator[Lab]:
    yield from lab_at(postgres_version, tmp_path)


def lab_at(place: str, folder: Path) -> Iterator[Lab]:
    lab = Lab(migrated(place, folder / "lab.db"), folder)
    yield lab
    lab.end_processes()
    check_invariants(lab.store)
    lab.close()
