"""A database that is killed again and again under load, and handlers whose effects are in its transactions."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from holdfast import Holdfast
from tests import servers
from tests.store.state import check_invariants
from tests.worker.lab import Lab, until

pytestmark = pytest.mark.faults("storms")


def finish(lab: Lab) -> None:
    lab.end_processes()
    check_invariants(lab.store)
    lab.close()


@pytest.mark.covers("W103")
@pytest.mark.timeout(900)
def test_postgres_killed_again_and_again(tmp_path: Path) -> None:
    """Killed with -9 under load: nothing committed is lost, effects are once, and work goes on by itself."""
    server = servers.own_server("new", fsync=True)
    try:
        dsn = server.create_database()
        Holdfast(dsn).migrate()
        with psycopg.connect(dsn, autocommit=True) as db:
            db.execute("create table effect (n int)")
        lab = Lab(dsn, tmp_path)
        lab.start(processes=2, target="tests.faults.ledger:app")
        committed: list[int] = []
        number, kills = 0, 0
        while kills < 10:
            for _ in range(40):
                number += 1
                if publish(lab, number):
                    committed.append(number)
            server.kill9()
            kills += 1
            server.start()
        until(lambda: done(dsn) >= set(committed), lab.said, 120)
        lab.until_empty(120)
        with psycopg.connect(dsn) as db:
            effects = [n for (n,) in db.execute("select n from effect")]
        assert len(effects) == len(set(effects))
        assert lab.rows("dead") == []
        finish(lab)
    finally:
        server.close()


def publish(lab: Lab, number: int) -> bool:
    """Whether the publish is known to be committed."""
    try:
        lab.publish({"n": number}, type="ledger", queue="book", stream=f"s{number % 7}")
    except Exception:  # whatever the driver says: the answer never came
        return False
    return True


def done(dsn: str) -> set[int]:
    try:
        with psycopg.connect(dsn) as db:
            return {n for (n,) in db.execute("select n from effect")}
    except psycopg.Error:
        return set()
