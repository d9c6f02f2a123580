"""What all contestants share: the body, the tally of what was handled, the starting gate, the command line.

The tally is a file in shared memory with one byte for each message, which counts how often it was handled, and three
instants (CLOCK_MONOTONIC, the same for all processes): when its publish was called, when that returned, and when its
handler began. It outlives a process that is killed. Standard library only: it runs in everybody's environment.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

URL = os.environ.get("BENCH_URL", "")
QUEUE = os.environ.get("BENCH_QUEUE", "work")
BODY_BYTES = 200


class Tally:
    """Which messages were handled, how often and when. Everybody maps the same file."""

    def __init__(self, path: str | Path, n: int) -> None:
        self.n = n
        room = -(-n // 8) * 8
        with open(path, "r+b") as file:
            file.truncate(max(file.seek(0, 2), room + 24 * n))
            self.map = mmap.mmap(file.fileno(), room + 24 * n)
        view = memoryview(self.map)
        self.marks = view[:n]
        self.called = view[room : room + 8 * n].cast("d")
        self.published = view[room + 8 * n : room + 16 * n].cast("d")
        self.started = view[room + 16 * n :].cast("d")

    def saw(self, n: int) -> None:
        self.marks[n] += 1
        self.started[n] = time.monotonic()

    def handled(self) -> int:
        return self.n - bytes(self.marks).count(0)

    def faults(self, first: int = 0, count: int | None = None) -> str | None:
        """What is wrong with messages first .. first+count: lost or doubled ones. None: each was handled once."""
        marks = bytes(self.marks[first : self.n if count is None else first + count])
        lost, doubled = marks.count(0), len(marks) - marks.count(0) - marks.count(1)
        return (
            f"of {len(marks)} messages {lost} were not handled, {doubled} more than once"
            if lost or doubled
            else None
        )


def tally() -> Tally:
    return Tally(os.environ["BENCH_TALLY"], int(os.environ["BENCH_COUNT"]))


def body(n: int) -> dict[str, Any]:
    """A body of 200 bytes of JSON."""
    return {"n": n, "text": "x" * (BODY_BYTES - 19 - len(str(n)))}


def chunks(params: SimpleNamespace) -> Iterator[list[dict[str, Any]]]:
    end = params.first + params.n
    for start in range(params.first, end, params.chunk):
        yield [body(n) for n in range(start, min(start + params.chunk, end))]


def publish(
    params: SimpleNamespace,
    one: Callable[[dict[str, Any]], Any],
    many: Callable[[Sequence[Any]], Any] | None = None,
) -> dict[str, Any]:
    """Publish n bodies one by one (`pause` seconds apart), or chunk by chunk; the seconds it took.

    With `keep`, a chunk waits until fewer messages than that are left to handle: the backlog keeps its size.
    """
    seen = tally()
    begun = time.monotonic()
    if params.chunk > 1 and many is not None:
        for part in chunks(params):
            while params.keep and part[0]["n"] - seen.handled() >= params.keep:
                time.sleep(0.0005)
            many(part)
    else:
        for n in range(params.first, params.first + params.n):
            if params.pause:
                time.sleep(max(0.0, begun + (n - params.first) * params.pause - time.monotonic()))
            seen.called[n] = time.monotonic()
            one(body(n))
            seen.published[n] = time.monotonic()
    return {"seconds": time.monotonic() - begun, "n": params.n}


async def apublish(
    params: SimpleNamespace,
    one: Callable[[dict[str, Any]], Awaitable[Any]],
    many: Callable[[Sequence[Any]], Awaitable[Any]] | None = None,
) -> dict[str, Any]:
    """The same for contestants that are async."""
    seen = tally()
    begun = time.monotonic()
    if params.chunk > 1 and many is not None:
        for part in chunks(params):
            await many(part)
    else:
        for n in range(params.first, params.first + params.n):
            if params.pause:
                await asyncio.sleep(max(0.0, begun + (n - params.first) * params.pause - time.monotonic()))
            seen.called[n] = time.monotonic()
            await one(body(n))
            seen.published[n] = time.monotonic()
    return {"seconds": time.monotonic() - begun, "n": params.n}


def gate() -> None:
    """Say that this worker is ready and wait until all are, so that several begin together."""
    folder = Path(os.environ["BENCH_GATE"])
    (folder / f"ready-{os.getpid()}").touch()
    while not (folder / "open").exists():
        time.sleep(0.001)


def on_stop(stop: Callable[[], object]) -> None:
    """Call `stop` when the course asks the worker to end."""
    signal.signal(signal.SIGTERM, lambda *_: stop())


def main(**verbs: Callable[[SimpleNamespace], Any]) -> None:
    """Run the verb that the command line names, with its parameters; print its answer as one line of JSON.

    `--against` runs the adapters of older revisions with the course of today. So the course may ask for new verbs,
    parameters and BENCH_* variables, but must not drop or change the ones that it has. The same goes for the answers
    and for the layout of the tally.
    """
    verb, params = sys.argv[1], json.loads(sys.argv[2])
    answer = verbs[verb](SimpleNamespace(**params))
    print(json.dumps(answer or {}), flush=True)
