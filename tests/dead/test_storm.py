"""Operators, archivers and workers at once: every letter is somewhere, and none is lost."""

from __future__ import annotations

import gzip
import io
import json
import random
import threading
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from holdfast.errors import ArchiveFailed, HoldfastError
from holdfast.operations import Filter, Operations
from holdfast.settings import Settings
from tests.operations.world import World

LETTERS, ROUNDS = 60, 25
TWICE = "select d.id from holdfast.dead d join holdfast.message m on m.id = d.id and m.queue = d.queue"


@pytest.mark.covers("X3", "X40")
def test_whatever_happens_at_once_every_letter_is_somewhere(world: World, tmp_path: Path) -> None:
    ids = [world.publish(stream=f"s{n % 5}", queue="q") for n in range(LETTERS)]
    while work := world.claim(run=50):
        for leased in work:
            world.die(leased)
    troubles: list[BaseException] = []
    whole = io.BytesIO()
    world.operations.files.export(None, whole)

    def somebody(seed: int) -> None:
        dice = random.Random(seed)
        desk = Operations(world.store, Settings(archive=str(tmp_path / "archive"), dead_count=LETTERS // 3))
        orders: list[Any] = [
            lambda id: desk.dead.redrive(id),
            lambda id: desk.dead.redrive_many(Filter(ids=tuple(dice.sample(ids, 5)))),
            lambda id: desk.dead.hold(id, "mine"),
            lambda id: desk.dead.unhold(id),
            lambda id: desk.dead.edit(id, str(dice.random())),
            lambda id: desk.files.archive(files=1),
            lambda id: [desk.files.restore(name) for name in dice.sample(desk.files.names(), 1)],
            lambda id: desk.files.load(io.BytesIO(whole.getvalue())),
        ]
        try:
            for _ in range(ROUNDS):
                try:
                    dice.choice(orders)(dice.choice(ids))
                except ArchiveFailed:
                    raise
                except (HoldfastError, ValueError):  # it moved, is held, is gone; there is no archive yet
                    pass
        except BaseException as error:
            troubles.append(error)

    over = threading.Event()

    def work_on() -> None:
        try:
            while not over.is_set():
                for leased in world.claim(run=3, total=10):
                    world.die(leased)
        except BaseException as error:
            troubles.append(error)

    def look() -> None:
        """Nobody is in two places at any moment: the next death would cover it up."""
        try:
            while not over.is_set():
                assert world.sql(TWICE) == []
        except BaseException as error:
            troubles.append(error)

    people = [threading.Thread(target=somebody, args=(seed,)) for seed in range(4)]
    others = [threading.Thread(target=work_on), threading.Thread(target=look)]
    for thread in (*people, *others):
        thread.start()
    for thread in people:
        thread.join()
    over.set()
    for thread in others:
        thread.join()
    assert troubles == []

    dead = [each.id for each in world.operations.dead.list(limit=1000)]
    pending = [each.id for each in world.operations.messages.find(limit=1000)]
    archived = {
        UUID(json.loads(line)["id"])
        for file in (tmp_path / "archive").iterdir()
        for line in gzip.decompress(file.read_bytes()).splitlines()
    }
    assert len(dead) + len(pending) == len({*dead, *pending})  # nobody is in two places
    assert {*dead, *pending, *archived} == set(ids)
    world.healthy()
