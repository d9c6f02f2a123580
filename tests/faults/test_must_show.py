"""What operators must be able to rely on, in full size: killers among innocents, a database killed again and again,
a backlog of a million. Long: `make faults`."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.store.statement import Plan, Statement
from holdfast.work import Report, Want
from tests import servers
from tests.conftest import or_exit
from tests.store.state import check_invariants
from tests.worker.lab import Lab, until

pytestmark = pytest.mark.faults

MESSAGES, KILLERS, STREAMS = 1200, 60, 100


@pytest.fixture(params=["sqlite", "new"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    if request.param == "sqlite":
        lab = Lab(f"sqlite:///{tmp_path / 'lab.db'}", tmp_path)
        yield lab
        finish(lab)
    else:
        with or_exit(lambda: servers.shared_server(request.param)).database() as dsn:
            Holdfast(dsn).migrate()
            lab = Lab(dsn, tmp_path)
            yield lab
            finish(lab)


def finish(lab: Lab) -> None:
    lab.end_processes()
    check_invariants(lab.store)
    lab.close()


def stream_of(body: dict[str, object]) -> str:
    return f"stream-{int(str(body['n'])) % STREAMS}"


@pytest.mark.covers("X39", "D54", "D57", "D5", "D61")
@pytest.mark.timeout(900)
def test_sixty_killers_among_twelve_hundred(lab: Lab) -> None:
    """All that kill their process are dead letters, no innocent is, and every stream keeps its order."""
    killers = set(random.Random(60).sample(range(MESSAGES), KILLERS))
    bodies = [{"n": n, "act": "kill"} if n in killers else {"n": n} for n in range(MESSAGES)]
    lab.publish(*bodies, stream=stream_of)
    lab.start(processes=2, starts_max=3)
    lab.until_empty(800)
    dead = {json.loads(row["body"])["n"]: row for row in lab.rows("dead")}
    assert set(dead) == killers
    assert {row["reason"] for row in dead.values()} == {7}
    started = lab.started()
    assert {n: started[n] for n in killers} == dict.fromkeys(killers, 3)
    assert set(started) == set(range(MESSAGES))
    last: dict[str, list[int]] = defaultdict(list)
    for n, *_ in lab.starts():
        if n not in killers:
            last[stream_of({"n": n})].append(n)
    for stream, seen in last.items():
        ends = [n for at, n in enumerate(seen) if n not in seen[at + 1 :]]
        assert ends == sorted(ends), stream


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


@pytest.mark.timeout(1800)
def test_a_backlog_of_a_million(tmp_path: Path) -> None:
    """The memory of a worker stays under 150 MB, and a claim costs at most twice what it costs at a thousand."""
    with or_exit(lambda: servers.shared_server("new")).database() as dsn:
        Holdfast(dsn).migrate()
        lab = Lab(dsn, tmp_path)
        fill(dsn, 1000)
        small = claim_blocks(lab)
        fill(dsn, 1_000_000)
        large = claim_blocks(lab)
        worker = lab.start(processes=1, target="tests.faults.ledger:app")
        until(lambda: len(lab.query("select 1 from {history} limit 100000")) >= 100_000, lab.said, 600)
        memory = max(resident(pid) for pid in worker.children())
        assert memory < 150_000_000
        assert large <= 2 * small, (small, large)
        lab.end_processes()
        lab.close()


def fill(dsn: str, count: int) -> None:
    with psycopg.connect(dsn) as db:
        db.execute("truncate holdfast.message, holdfast.lease")
        db.execute(
            "insert into holdfast.message (queue, type, body)"
            " select 'nothing', 'nothing', json_build_object('x', repeat('x', 200)) from generate_series(1, %s)",
            (count,),
        )


def claim_blocks(lab: Lab) -> int:
    """How many blocks an exchange touches that claims a hundred: what it costs, whatever else the machine does."""
    worker = lab.query("insert into {worker} (name) values ('measure') returning id")[0][0]
    report = Report(worker, want=[Want("nothing", 100)], total=100)
    statement = next(lab.store.plans.exchange(report, None))  # type: ignore[arg-type]
    explained = Statement(f"explain (analyze, buffers, format json) {statement.sql}", statement.params)

    def explain(_: object) -> Plan[int]:
        ((plan,),) = yield explained
        top = (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]
        return int(top["Shared Hit Blocks"]) + int(top["Shared Read Blocks"])

    blocks = [lab.store.run(explain, one=True) for _ in range(3)]
    lab.store.run(lambda now: lab.store.plans.recover(now, worker=worker, count=10_000))  # type: ignore[arg-type]
    return min(blocks)


def resident(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0
