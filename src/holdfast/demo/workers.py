"""Runs a `holdfast worker` for the demo, and ends it when the demo is over or dies itself.

`python -m holdfast.demo.workers module:app PROCESSES`: its standard input stays open as long as the demo runs.
"""

from __future__ import annotations

import select
import subprocess
import sys

LOOK = 0.2  # seconds between two looks


def main() -> int:
    target, processes = sys.argv[1:]
    command = [sys.executable, "-c", "from holdfast.cli import main; main()"]
    worker = subprocess.Popen(
        [*command, "worker", target, "--processes", processes], stdin=subprocess.DEVNULL
    )
    while worker.poll() is None:
        readable, _, _ = select.select([sys.stdin], [], [], LOOK)
        if readable:  # nothing is ever written: it was closed
            worker.terminate()
            return worker.wait()
    return worker.returncode


if __name__ == "__main__":
    sys.exit(main())
