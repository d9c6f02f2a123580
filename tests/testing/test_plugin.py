"""The plugin of pytest, in a folder of a user, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

SHOP = """
from holdfast import Holdfast
app = Holdfast("sqlite:///production.db")
sent = []

@app.handler("order.placed")
def ship(order: dict) -> None:
    sent.append(order["id"])
"""
TEST = """
import shop

def test_ships(holdfast_testing, holdfast_clock):
    shop.app.publish("order.placed", {"id": 1}, delay=60)
    holdfast_testing.drain()
    assert shop.sent == []
    holdfast_clock.advance(minutes=1)
    holdfast_testing.drain()
    assert shop.sent == [1]
    assert shop.app.url.startswith("SCHEME")

def test_each_begins_empty(holdfast_testing):
    assert holdfast_testing.drain().done == 0
"""


def run(folder: Path, *options: str, configuration: str = 'holdfast_app = "shop:app"\n') -> str:
    (folder / "pyproject.toml").write_text(f"[tool.pytest.ini_options]\n{configuration}")
    (folder / "shop.py").write_text(SHOP)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.stdout + done.stderr


def test_it_is_found_by_itself() -> None:
    assert [each.value for each in entry_points(group="pytest11", name="holdfast")] == [
        "holdfast.testing.plugin"
    ]


def test_fixtures(tmp_path: Path) -> None:
    (tmp_path / "test_shop.py").write_text(TEST.replace("SCHEME", "sqlite:"))
    assert "2 passed" in run(tmp_path)
    assert not (tmp_path / "production.db").exists()


@pytest.mark.one_postgres
def test_on_a_server(tmp_path: Path, postgres_dsn: str) -> None:
    (tmp_path / "test_shop.py").write_text(TEST.replace("SCHEME", "postgresql:"))
    assert "2 passed" in run(tmp_path, "--holdfast-url", postgres_dsn)


def test_without_an_application_it_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "test_shop.py").write_text(TEST)
    assert 'write holdfast_app = "MODULE:APP"' in run(tmp_path, configuration="")
