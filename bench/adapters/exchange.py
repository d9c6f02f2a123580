"""Single exchanges through the public door: one that finds nothing, with one queue and with many; and a claim."""

from __future__ import annotations

import statistics
import time
from types import SimpleNamespace
from typing import Any

from bench.adapters import contest
from bench.adapters.holdfast import app


def prepare(_: SimpleNamespace) -> None:
    app.migrate()


def milliseconds(want: dict[str, int]) -> float:
    begun = time.perf_counter()
    app.process_work_batch([], want)
    return (time.perf_counter() - begun) * 1000


def empty(params: SimpleNamespace) -> dict[str, Any]:
    """Median milliseconds of an exchange that finds nothing, with one queue and with all, taking turns."""
    queues = dict.fromkeys(app.handlers.subscriptions(), 1)
    few = dict(list(queues.items())[:1])
    times = [(milliseconds(few), milliseconds(queues)) for _ in range(params.turns)][10:]
    return {
        "one": statistics.median(t[0] for t in times),
        "many": statistics.median(t[1] for t in times),
        "queues": len(queues),
    }


def claim(params: SimpleNamespace) -> dict[str, Any]:
    """Median milliseconds of exchanges that hand in what they got before and claim the next `heads`."""
    times, settlements = [], []
    for _ in range(params.turns):
        begun = time.perf_counter()
        batch = app.process_work_batch(settlements, {"work0": params.heads})
        times.append((time.perf_counter() - begun) * 1000)
        settlements = [app.done(leased) for leased in batch.work]
        if len(settlements) != params.heads:
            raise SystemExit(f"claimed {len(settlements)} instead of {params.heads}")
    app.process_work_batch(settlements)
    return {"milliseconds": statistics.median(times[3:])}


if __name__ == "__main__":
    contest.main(prepare=prepare, empty=empty, claim=claim)
