"""`python -m bench [--quick]`: sets everything up, runs the groups round by round, tells what came out.

With `--against REVISION` it compares our own lines with that revision's instead: against.py.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sqlite3
import sys
import time
from importlib.metadata import version
from typing import Any

import psycopg
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from . import against, machine, peers
from .course import Failed
from .lines import GROUPS, Group, Run
from .report import Record, costs_table, document, failures, number, origin, table, write
from .servers import Servers, settings

QUICK_PEERS = ["pgqueuer", "huey"]


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the main lines, fewer messages, two rounds")
    parser.add_argument(
        "--against",
        metavar="REVISION",
        help="our own lines only, here and at that revision of git, in pairs; 1 is returned if one is slower here",
    )
    parser.add_argument(
        "--rounds", type=int, help="how many rounds (3; quick: 2); with --against how many pairs (at least 7)"
    )
    parser.add_argument(
        "--scale", type=float, help="so many times the messages (1.0; quick without --against: 0.4)"
    )
    parser.add_argument(
        "--only", default="", help="groups whose name contains this, with commas; with --against also lines"
    )
    parser.add_argument("--peers", help="these peers only, with commas; 'none'")
    parser.add_argument(
        "--postgres", default="old", choices=["old", "new"], help="which PostgreSQL: 15 (old) or 18 (new)"
    )
    parser.add_argument("--dry", action="store_true", help="write nothing but the table")
    asked = parser.parse_args(given)
    if asked.against is not None:
        if asked.peers:
            parser.error("--peers has no meaning with --against: only our own lines are compared")
        if asked.rounds is not None and asked.rounds < against.LEAST_PAIRS:
            parser.error(f"--rounds is at least {against.LEAST_PAIRS} with --against")
    return asked


def main() -> int:
    asked = arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console(width=None if sys.stdout.isatty() else 180)
    if asked.against is not None:
        return against.main(asked, console)
    names = list(peers.PINS) if not asked.quick else QUICK_PEERS
    if asked.peers:
        names = [name for name in asked.peers.split(",") if name in peers.PINS]
    rounds = asked.rounds or (2 if asked.quick else 3)
    wanted = [part.strip().lower() for part in asked.only.split(",") if part.strip()]
    groups = [group for group in GROUPS if group.quick or not asked.quick]
    if wanted:
        groups = [group for group in GROUPS if any(part in group.name.lower() for part in wanted)]
    source = origin()
    servers = Servers(asked.postgres)
    try:
        run = prepare(servers, names, console, asked)
        record = race(run, groups, rounds, console)
        results = document(record, {**source, **about(servers, run, rounds)})
    finally:
        servers.close()
    console.print(table(results))
    console.print(costs_table(results))
    for line in failures(results):
        console.print(f"[yellow]{line}[/]")
    if not asked.dry:
        whole = (
            not (asked.quick or wanted or asked.peers) and rounds >= 3 and run.scale >= 1 and record.complete
        )
        write(results, console, whole=whole)
    return 1 if any("holdfast" in failed for failed in record.failures.values()) else 0


def prepare(servers: Servers, names: list[str], console: Console, asked: argparse.Namespace) -> Run:
    console.print(f"PostgreSQL {servers.postgres.binaries}; load of the machine {os.getloadavg()[0]:.1f}")
    with console.status("peers") as status:
        if {"celery", "dramatiq"} & set(names):
            status.update("starting RabbitMQ")
            servers.start_rabbitmq()
        made = peers.contestants(names, "" if servers.rabbitmq else servers.no_rabbitmq, status.update)
    for name, peer in made.items():
        if peer.missing:
            console.print(f"[yellow]{name}: {peer.missing}[/]")
    return Run(servers, made, quick=asked.quick, scale=asked.scale or (0.4 if asked.quick else 1.0))


def race(run: Run, groups: list[Group], rounds: int, console: Console) -> Record:
    """Round by round. Whoever interrupts it (Ctrl-C) is told what was measured until then."""
    record = Record()
    try:
        turns(run, groups, rounds, console, record)
    except KeyboardInterrupt:
        record.complete = False
        console.print("[yellow]interrupted[/]")
    return record


def turns(run: Run, groups: list[Group], rounds: int, console: Console, record: Record) -> None:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=sum(min(rounds, group.rounds) for group in groups))
        for run.round in range(rounds):
            for group in groups:
                if run.round >= group.rounds:
                    continue
                progress.update(task, description=f"round {run.round + 1}: {group.name}")
                begun = time.monotonic()
                try:
                    for line, contestant, shown in group.run(run):
                        record.add(run.round, line, contestant, shown)
                        text = f"[red]{shown}[/]" if isinstance(shown, Failed) else number(shown["value"])
                        progress.console.print(f"[dim]{run.round + 1} {line} {contestant}[/] {text}")
                except Failed as failure:  # before any contestant of the group had a line
                    record.add(run.round, group.name, "holdfast", failure)
                    progress.console.print(f"[red]{group.name}: {failure}[/]")
                progress.console.print(
                    f"[dim]{run.round + 1} {group.name}: {time.monotonic() - begun:.0f} s[/]"
                )
                progress.advance(task)


def about(servers: Servers, run: Run, rounds: int) -> dict[str, Any]:
    with psycopg.connect(servers.postgres.dsn) as connection:
        ((server,),) = connection.execute("show server_version").fetchall()
    return {
        "rounds": rounds,
        "quick": run.quick,
        "messages": int(run.n * run.scale),
        "body_bytes": 200,
        "machine": {**machine.describe(), "load": f"{os.getloadavg()[1]:.1f}"},
        "versions": {
            "postgresql": server,
            "sqlite": sqlite3.sqlite_version,
            "rabbitmq": servers.rabbitmq.version if servers.rabbitmq else "",
            "python": platform.python_version(),
            "psycopg": version("psycopg"),
            **{name: peers.versions(name) for name in run.peers},
        },
        "settings": {
            **settings(),
            "share of the messages": {name: peer.share for name, peer in run.peers.items()},
        },
    }


if __name__ == "__main__":
    sys.exit(main())
