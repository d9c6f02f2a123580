"""`holdfast dead` beyond the first commands: groups, canaries, edits, holds, files, archives."""

from __future__ import annotations

import gzip
import json
import os
import threading
from pathlib import Path
from uuid import UUID

import pytest

from holdfast.model.message import Reason
from tests.cli.conftest import Shell
from tests.operations.world import World

SHOP = """
from dataclasses import dataclass
from holdfast import Holdfast

@dataclass
class Order:
    id: int

app = Holdfast("{url}", archive="{archive}", dead_count=1)

@app.handler("order.placed", name="q")
def handle(order: Order) -> None: ...
"""


def die(world: World, count: int, last: Reason = Reason.HANDLER_EXCEPTION) -> list[UUID]:
    ids = [world.publish(queue="q") for _ in range(count)]
    for leased in world.claim():
        world.die(leased, last=last)
    return ids


def test_groups_and_filters(world: World, holdfast: Shell) -> None:
    assert holdfast("dead", "groups").out == "No dead letter matches.\n"
    die(world, 2)
    die(world, 1, Reason.TIMEOUT_EXCEEDED)
    groups = holdfast("dead", "groups", "--json").json
    assert [(each["count"], each["reason"]) for each in groups] == [
        (2, "handler-exception"),
        (1, "timeout-exceeded"),
    ]
    assert "timeout exceeded" in holdfast("dead", "groups", "--text", "END").out
    found = ("dead", "list", "--json")
    assert len(holdfast(*found, "--died-of", "poison-message", "--not-redriven", "--not-held").json) == 3
    assert holdfast(*found, "--before", "1h").json == []
    assert len(holdfast(*found, "--after", "1h").json) == 3
    assert len(holdfast(*found, "--after", "2020-01-01T00:00", "--before", "2100-01-01T00:00Z").json) == 3
    assert holdfast(*found, "--fingerprint", "000000000000").json == []
    for wrong in (("--before", "soon"), ("--died-of", "boredom")):
        assert holdfast(*found, *wrong).code == 2


def test_redrive_of_several_and_rehearsal(world: World, holdfast: Shell) -> None:
    one, two, three, four = die(world, 4)
    holdfast("dead", "hold", four, "--why", "mine")
    answer = holdfast("dead", "redrive", "--queue", "q", "--dry-run")
    assert answer.out.startswith("3 dead letters would be redriven, 1 held and left alone\n")
    assert holdfast("dead", "redrive", "--all", "--dry-run", "--json").json["count"] == 3
    assert len(world.operations.dead.list()) == 4
    answer = holdfast("dead", "redrive", one, two, four)
    assert (answer.code, answer.out) == (1, "2 dead letters redriven\n")
    assert "1 of them are not dead letters here, are held, or their id is pending" in answer.err
    assert holdfast("dead", "redrive", one, two, "--reason", "1").code == 2
    assert holdfast("dead", "redrive", three, "--over", "soon").code == 2
    answer = holdfast("dead", "redrive", three, "--over", "1h", "--json")
    assert answer.json == {"changed": 1, "canary": None}
    assert holdfast("dead", "redrive", "nonsense", "other").code == 2


@pytest.mark.parametrize("well", [True, False])
def test_canary(world: World, holdfast: Shell, well: bool) -> None:
    die(world, 3)
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.02):
            for leased in world.claim():
                if well:
                    world.done(leased)
                else:
                    world.die(leased)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        answer = holdfast("dead", "redrive", "--all", "--canary", "1", "--patience", "20s")
    finally:
        over.set()
        thread.join()
    if well:
        assert (answer.code, answer.out) == (
            0, "canary: 1 redriven, 1 ended, 0 died again, 0 pending\n3 dead letters redriven\n",
        )  # fmt: skip
    else:
        assert (answer.code, answer.out) == (
            1, "canary: 1 redriven, 0 ended, 1 died again, 0 pending\n1 dead letter redriven\n",
        )  # fmt: skip
        assert "the others stay dead letters" in answer.err


def test_edit_is_checked_by_the_handler_of_the_application(
    world: World, holdfast: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (id,) = die(world, 1)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "editshop.py").write_text(SHOP.format(url=holdfast.url, archive=tmp_path / "archive"))

    def edit(*given: str) -> object:
        return holdfast("dead", "edit", id, *given, "-a", "editshop:app", database=False)

    answer = edit("--body", '{"id": "seventeen"}')
    assert answer.code == 2  # type: ignore[attr-defined]
    assert "Handler q cannot read this body, so it is not stored: Expected `int`, got `str`" in answer.err  # type: ignore[attr-defined]
    assert edit().code == 2  # type: ignore[attr-defined]
    (tmp_path / "body.json").write_text('{"id": 17}')
    assert (
        edit("--file", str(tmp_path / "body.json"), "--redrive").out
        == f"{id} in queue q: edited and redriven\n"
    )  # type: ignore[attr-defined]
    (leased,) = world.claim()
    assert json.loads(leased.message.body) == {"id": 17}
    world.die(leased)
    shown = holdfast("dead", "show", id).out
    assert 'its body was then: {"n": 1}' in shown
    assert [each["body"] for each in holdfast("dead", "show", id, "--json").json[0]["deaths"]] == [
        '{"n": 1}',
        None,
    ]


def test_hold_and_unhold(world: World, holdfast: Shell) -> None:
    (id,) = die(world, 1)
    assert holdfast("dead", "hold", id, "--why", "the auditor").out == f"{id} in queue q: held: the auditor\n"
    answer = holdfast("dead", "redrive", id)
    assert (answer.code, "is held" in answer.err) == (1, True)
    assert holdfast("dead", "list", "--held", "--json").json[0]["held_why"] == "the auditor"
    assert holdfast("dead", "unhold", id, "--json").json[0]["what"] == "not held any more"
    assert holdfast("dead", "redrive", id).code == 0


def test_export_and_import(world: World, holdfast: Shell, tmp_path: Path) -> None:
    ids = die(world, 3)
    plain, zipped = tmp_path / "letters.jsonl", tmp_path / "letters.jsonl.gz"
    assert holdfast("dead", "export", plain).out == f"3 dead letters exported to {plain}\n"
    assert holdfast("dead", "export", zipped, "--json").json == {"file": str(zipped), "count": 3}
    assert gzip.decompress(zipped.read_bytes()) == plain.read_bytes()
    assert holdfast("dead", "export", "-").out == plain.read_text()
    assert holdfast("dead", "export", "-", "--json").code == 2
    assert oct(plain.stat().st_mode)[-3:] == "600"
    assert holdfast("dead", "export", plain).code == 2  # is there already
    assert holdfast("dead", "import", zipped).out == "0 of 3 stored, 3 were here already\n"
    for id in ids[:2]:
        holdfast("dead", "discard", id, "--why", "x", "--yes")
    told = "0 of 3 stored, 1 were here already, 2 have ended since and were left out (see --force)\n"
    assert holdfast("dead", "import", plain).out == told
    answer = holdfast("dead", "import", plain, "--force", "--json")
    assert answer.json == {"lines": 3, "stored": 2, "known": 1, "ended": 0}
    plain.write_bytes(plain.read_bytes() + b"{}\n")
    answer = holdfast("dead", "import", plain)
    assert (answer.code, answer.out) == (2, "")
    assert "Line 4 is not a dead letter, so nothing was imported" in answer.err
    assert holdfast("dead", "import", tmp_path / "nothing").code == 2
    assert holdfast("dead", "export", tmp_path / "no" / "folder").code == 2


def test_archive_and_restore(
    world: World, holdfast: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = holdfast("dead", "archive")
    assert (answer.code, "No archive is configured" in answer.err) == (2, True)
    ids = die(world, 3)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "archiveshop.py").write_text(SHOP.format(url=holdfast.url, archive=tmp_path / "archive"))
    shop = ("-a", "archiveshop:app")
    answer = holdfast("dead", "archive", *shop, database=False)
    name, told = answer.out.splitlines()
    assert told == "2 dead letters archived"
    assert holdfast("dead", "archive", "--list", *shop, database=False).out == f"{name}\n"
    assert holdfast("dead", "archive", "--list", "--json", *shop, database=False).json == [name]
    assert holdfast("dead", "restore", name, *shop, database=False).out == "2 of 2 stored\n"
    path = tmp_path / "archive" / name
    assert holdfast("dead", "restore", path, "--json").json == {
        "lines": 2,
        "stored": 0,
        "known": 2,
        "ended": 0,
    }
    holdfast("dead", "discard", ids[0], "--why", "x", "--yes")
    assert holdfast("dead", "restore", path, "--json").json["ended"] == 1
    assert holdfast("dead", "restore", path, "--force", "--json").json["stored"] == 1
    assert {each.id for each in world.operations.dead.list()} == set(ids)
    os.truncate(path, 100)
    answer = holdfast("dead", "restore", path)
    assert (answer.code, answer.err.startswith("holdfast: The file ends too early")) == (1, True)
