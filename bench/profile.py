"""Where our time goes: `python -m bench.profile [--streams 1000] [--plans] [--sqlite]`.

On PostgreSQL, what each statement inside the functions costs (pg_stat_statements) and, with --plans, how it is
executed (auto_explain, nested). In the worker, which functions burn the CPU: by py-spy if it is installed, else by
cProfile, which exaggerates small functions.
"""

from __future__ import annotations

import argparse
import collections
import re
import shutil
import subprocess
import time
from pathlib import Path

import psycopg

from .course import Contestant, Stand, cpu_of, stand
from .servers import Servers

LOADED = {
    "shared_preload_libraries": "pg_stat_statements,auto_explain",
    "pg_stat_statements.track": "all",
    "pg_stat_statements.track_planning": "on",
}
PLANS = {
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_nested_statements": "on",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_buffers": "on",
    "auto_explain.log_wal": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.sample_rate": "0.02",
}
STATEMENTS = """
select calls, rows, total_exec_time * 1000 as us, total_plan_time * 1000 as planning,
       shared_blks_hit + shared_blks_read as blocks, wal_bytes, query
  from pg_stat_statements s join pg_database d on d.oid = s.dbid
 where d.datname = current_database() and calls > 0 and query !~ 'pg_stat_statements'
 order by total_exec_time desc limit 40
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=50_000)
    parser.add_argument("--streams", type=int, default=0)
    parser.add_argument("--kind", default="async", help="async, sync, transaction, poison")
    parser.add_argument("--plans", action="store_true")
    parser.add_argument("--sqlite", action="store_true")
    parser.add_argument("--publish", action="store_true", help="the publishing, instead of the draining")
    asked = parser.parse_args()
    servers = Servers(extra={**LOADED, **(PLANS if asked.plans else {})})
    contestant = Contestant(
        "holdfast",
        "holdfast",
        "sqlite" if asked.sqlite else "postgres",
        environment={"BENCH_KIND": asked.kind},
    )
    try:
        with stand(servers, contestant, asked.n) as s:
            profile(s, asked)
        if asked.plans:
            print_plans(servers.postgres.log)
    finally:
        servers.close()


def profile(s: Stand, asked: argparse.Namespace) -> None:
    postgres = s.contestant.database == "postgres"
    if postgres:
        with psycopg.connect(s.url, autocommit=True) as connection:
            connection.execute("create extension pg_stat_statements")
            connection.execute("create table business (n integer)")
    begun = s.servers.cpu(s.contestant.database)
    seconds = s.publish(asked.n, streams=asked.streams)["seconds"]
    server = (s.servers.cpu(s.contestant.database) - begun) / asked.n * 1e6
    print(f"published {asked.n / seconds:,.0f}/s, server {server:.1f} us/message")
    if asked.publish:
        statements(s, asked.n)
        return
    s.checkpoint()
    if postgres:
        with psycopg.connect(s.url, autocommit=True) as connection:
            connection.execute("select pg_stat_statements_reset()")
    workers = s.work()
    spy = watch(workers[0].pid, s.folder / "spy")
    s.open_gate()
    s.wait_for(1, workers)
    client, server, before = cpu_of(workers), s.servers.cpu(s.contestant.database), s.handled()
    s.wait_for(asked.n, workers)
    count = s.handled() - before
    client, server = cpu_of(workers) - client, s.servers.cpu(s.contestant.database) - server
    if spy is not None:
        spy.send_signal(2)
        spy.wait()
    s.stop(workers)
    began = sorted(at for at in s.tally.started if at)
    rate, client, server = len(began) / (began[-1] - began[0]), client / count * 1e6, server / count * 1e6
    print(f"drained {rate:,.0f}/s, CPU a message: client {client:.1f} us, server {server:.1f} us")
    if postgres:
        statements(s, asked.n)
    if spy is not None:
        print_spy(s.folder / "spy")


def statements(s: Stand, n: int) -> None:
    with psycopg.connect(s.url) as connection:
        rows = connection.execute(STATEMENTS).fetchall()
    names = ("us/msg", "calls", "us/call", "rows/call", "blocks/msg", "WAL/msg", "planning")
    print(" ".join(f"{name:>10}" for name in names))
    for calls, count, us, planning, blocks, wal, query in rows:
        text = re.sub(r"\s+", " ", query)[:130]
        figures = (us / n, calls, us / calls, count / calls, blocks / n, wal / n, planning / n)
        print(" ".join(f"{figure:10.2f}" for figure in figures), text)


def watch(process: int, out: Path) -> subprocess.Popen[bytes] | None:
    spy = shutil.which("py-spy")
    if spy is None:
        print("py-spy is not installed: nothing about the worker's functions")
        return None
    how = ["--function", "--nonblocking", "--rate=500", "--duration=300", "--format=raw"]
    line = [spy, "record", *how, "--output", str(out), "--pid", str(process)]
    started = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(1.0)
    return started


def print_spy(path: Path) -> None:
    own: collections.Counter[str] = collections.Counter()
    whole: collections.Counter[str] = collections.Counter()
    for line in path.read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        frames = [re.sub(r"\s+", " ", frame) for frame in stack.split(";")]
        if frames[-1].startswith(("select", "gate", "wait (threading")) or "Thread" in stack.split(";")[0]:
            continue
        own[frames[-1]] += int(count)
        for frame in set(frames):
            whole[frame] += int(count)
    total = sum(own.values()) or 1
    print(f"{total} samples of the worker's CPU. Own time, then with what it calls:")
    for (a, x), (b, y) in zip(own.most_common(30), whole.most_common(30), strict=False):
        print(f"{x / total * 100:5.1f} % {a[:60]:60} {y / total * 100:5.1f} % {b[:60]}")


def print_plans(log: str) -> None:
    """The last plan of each statement that was caught."""
    seen: dict[str, str] = {}
    for part in re.split(r"\n(?=\d{4}-\d\d-\d\d )", log):
        if "plan:" in part and "Query Text" in part:
            text = part.partition("Query Text:")[2]
            seen[re.sub(r"\s+", " ", text[:160])] = text
    for text in seen.values():
        print("-" * 100)
        print(text.strip()[:6000])


if __name__ == "__main__":
    main()
