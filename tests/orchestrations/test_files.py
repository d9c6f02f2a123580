"""Journals saved as files and replayed: by a call, by the plugin of pytest, from a database."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import Flow, Holdfast, UsageError
from holdfast.bodies.keys import new_key
from holdfast.errors import BodySealed
from holdfast.orchestrations.files import JournalDiffers, load
from holdfast.testing import replay

SHOP = """
import asyncio
from holdfast import Flow, Holdfast

app = Holdfast("sqlite:///:memory:")

@app.activity()
async def charge(cents: int) -> str:
    return f"receipt-{cents}"

@app.activity()
async def weigh(cents: int) -> str:
    return "heavy"

@app.orchestration(version="1")
async def fulfil(cents: int, flow: Flow) -> str:
    CODE
    await asyncio.sleep(3600)
    return receipt + await flow.signal("who", str)
"""


def make(weighs: bool = False, key: str | None = None) -> Holdfast:
    app = Holdfast("sqlite:///:memory:", keys=None if key is None else [key])

    @app.activity()
    async def charge(cents: int) -> str:
        return f"receipt-{cents}"

    @app.activity()
    async def weigh(cents: int) -> str:
        return "heavy"

    @app.orchestration(version="1")
    async def fulfil(cents: int, flow: Flow) -> str:
        if weighs:
            await weigh(cents)
        return await charge(cents) + await flow.signal("who", str)

    return app


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return save(make(), tmp_path)


def save(app: Holdfast, folder: Path) -> Path:
    with app.testing() as t:
        app.orchestrations.start(app.orchestrations.declared["fulfil@1"], 5, id="order/1")
        app.orchestrations.signal("order/1", "who", "Ann")
        t.drain()
        assert app.orchestrations.result("order/1") == "receipt-5Ann"
        path = t.journal("order/1").save(folder)
    app.close()
    return path


def test_a_saved_journal_is_replayed_against_the_code(saved: Path, tmp_path: Path) -> None:
    assert saved.name == "fulfil_1-order_1-0.journal.json"
    good, changed = make(), make(weighs=True)
    assert replay(good, f"{tmp_path}/*.journal.json") == 1
    with pytest.raises(JournalDiffers, match="asks for activity weigh") as caught:
        replay(changed, f"{tmp_path}/*.journal.json")
    lines = str(caught.value).splitlines()
    assert lines[1] == "- activity charge"
    assert lines[2].startswith("+ activity weigh")
    empty = Holdfast("sqlite:///:memory:")
    with pytest.raises(JournalDiffers, match="the code here has no fulfil@1"):
        replay(empty, str(saved))
    with pytest.raises(UsageError, match="No saved journal matches"):
        replay(good, f"{tmp_path}/*.nothing")
    for each in (good, changed, empty):
        each.close()


def test_a_file_that_is_none_is_refused(saved: Path, tmp_path: Path) -> None:
    for text in (
        "",
        "{}",
        "[]",
        '{"holdfast_journal": 1}',
        saved.read_text().replace('_journal": 1', '_journal": 9'),
    ):
        path = tmp_path / "x.journal.json"
        path.write_text(text)
        with pytest.raises(UsageError, match=r"x\.journal\.json"):
            load(path)


def test_a_sealed_journal_stays_sealed_in_its_file(tmp_path: Path) -> None:
    key = new_key("k")
    path = save(make(key=key), tmp_path)
    assert "receipt-5" not in path.read_text()
    with_key, without = make(key=key), make()
    assert replay(with_key, str(path)) == 1
    with pytest.raises(BodySealed):
        replay(without, str(path))
    with_key.close()
    without.close()


def test_the_plugin_makes_a_test_of_each_file(tmp_path: Path) -> None:
    folder = tmp_path / "journals"
    folder.mkdir()
    good = "receipt = await charge(cents)"
    (tmp_path / "pytest.ini").write_text("[pytest]\nholdfast_app = shop:app\n")
    (tmp_path / "shop.py").write_text(SHOP.replace("CODE", good))
    (tmp_path / "test_shop.py").write_text(
        """
def test_record(holdfast_testing):
    t = holdfast_testing
    app = t.app
    id = app.orchestrations.start(app.orchestrations.declared["fulfil@1"], 5, id="one")
    t.drain()
    t.journal(id).save("journals")
"""
    )

    def run(what: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", what], cwd=tmp_path, text=True,
            capture_output=True, timeout=120, check=False,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_ADDOPTS": ""},
        )  # fmt: skip

    assert run("test_shop.py").returncode == 0
    done = run("journals")
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    (tmp_path / "shop.py").write_text(
        SHOP.replace("CODE", "await weigh(cents)\n    receipt = await charge(cents)")
    )
    done = run("journals")
    assert done.returncode == 1
    assert "1 failed" in done.stdout
    assert "- activity charge" in done.stdout
    assert "Traceback" not in done.stdout
