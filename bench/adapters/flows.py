"""What the contestants of `bench.orchestrations` share: the input of a workflow, and when each began and ended.

A workflow has so many steps, one after another, and each step answers 200 bytes. The tally has one place for each
workflow: `called` is when its code first ran, `started` when it ended. Both are written once: code that is replayed
runs again. In a chain alone the places are those of its steps. Standard library only.
"""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import Any

from bench.adapters import contest

STEPS = int(os.environ.get("BENCH_STEPS", "10"))
KIND = os.environ.get("BENCH_KIND", "queue")
THREADS = int(os.environ.get("BENCH_THREADS", "0"))
ANSWER = "x" * (contest.BODY_BYTES - 2)

tally = contest.tally()


def begun(n: int) -> None:
    if not tally.called[n]:
        tally.called[n] = time.monotonic()


def ended(n: int) -> None:
    if not tally.marks[n]:
        tally.started[n] = time.monotonic()
        tally.marks[n] = 1


def step(n: int, number: int) -> str:
    """A step of a workflow. In some lines its moment counts, and not that of the workflow."""
    if KIND.startswith("chain"):
        ended(number)
    elif KIND.startswith("killed"):
        ended(n * STEPS + number)
    return ANSWER


def inputs(params: SimpleNamespace) -> range:
    return range(params.first, params.first + params.n)


def told(params: SimpleNamespace, begun: float) -> dict[str, Any]:
    return {"seconds": time.monotonic() - begun, "n": params.n}
