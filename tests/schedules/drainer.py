"""Processes that tick, two at a time, and are killed on the way.

`python -m tests.schedules.drainer` reads lists of orders, one as JSON in each line, and forks a process for each order.
They begin together: none ticks before all are there. An order says how many ticks, how large they are, and the point at
which the process kills itself with SIGKILL: see tests/proof/kill/child.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import traceback
from datetime import datetime
from pathlib import Path
from typing import Any

from holdfast import Holdfast
from holdfast.clock import MovableClock
from holdfast.errors import StoreUnavailable
from holdfast.rules.rhythm import HELD_MIN, LOOKS_EVERY
from holdfast.schedules import ticker
from tests.proof.kill.child import Points, warm_up, watch_postgres, watch_sqlite

ROOT = Path(__file__).resolve().parents[2]
REFUSED_MAX = 10  # times that the database may end a transaction of one process


def drain(order: dict[str, Any], gate: int) -> None:
    points = Points(order.get("kill_at"))
    if order.get("kill_at") is not None:
        (watch_sqlite if order["url"].startswith("sqlite") else watch_postgres)(points)
    ticker.AT_ONCE = order["at_once"]
    clock = MovableClock(datetime.fromisoformat(order["at"]))
    step = ticker.Ticker(Holdfast(order["url"], clock=clock).store, clock, None, list)
    os.read(gate, 1)  # the end of the pipe: all others are there, too
    points.armed = True
    ticks, refused, held = order.get("ticks", 10**6), 0, 0
    while ticks > 0:
        ticks -= 1
        try:
            done = step()
        except StoreUnavailable:
            # On a busy machine a process may stand still for the 2 s after which PostgreSQL ends its transaction.
            if (refused := refused + 1) > REFUSED_MAX:
                raise
            continue  # as a worker does
        if done.did == 0:
            if done.next_at is None or done.next_at > done.now:
                return
            time.sleep(min(HELD_MIN * 2**held, LOOKS_EVERY))  # as a worker does
            held += 1
        else:
            held = 0


def child(order: dict[str, Any], gate: int) -> None:
    code = 0
    try:
        drain(order, gate)
    except BaseException:
        traceback.print_exc()
        code = 1
    os._exit(code)


def main() -> None:
    warm_up()
    for line in sys.stdin:
        gate, opened = os.pipe()
        pids = []
        for order in json.loads(line):
            if (pid := os.fork()) == 0:
                os.close(opened)
                child(order, gate)
            pids.append(pid)
        os.close(opened)
        os.close(gate)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        print(json.dumps(codes), flush=True)


class Drainers:
    """The process that forks them."""

    def __init__(self) -> None:
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.schedules.drainer"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, *orders: dict[str, Any]) -> list[int]:
        """How each ended: 0, or minus the signal that killed it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(orders) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the process that forks has ended"
        found: list[int] = json.loads(line)
        return found

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)


if __name__ == "__main__":
    main()
