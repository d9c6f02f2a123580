"""The demo's worker processes: what `holdfast worker` runs, and a hand that kills one of them when it is told to.

`python -m holdfast.demo.workers module:app PROCESSES`. Reads `kill` lines, answers each with `PID RUNNING`. When its
input ends, because the demo is over or was killed itself, it stops.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from ..child import load_app
from ..supervisor import Child, Supervisor

LOOKS = 100


def obey(supervisor: Supervisor) -> None:
    for line in sys.stdin:
        if line.strip() == "kill":
            print(*kill_one(supervisor), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)


def kill_one(supervisor: Supervisor) -> tuple[int, int]:
    """kill -9 the worker process with the most in its hands; wait a little if all of them are idle."""
    for look in range(LOOKS):
        living = [(running(child), child.process) for child in supervisor.children if alive(child)]
        busiest = max(living, key=lambda each: each[0], default=None)
        if busiest is not None and busiest[1] is not None and (busiest[0] or look == LOOKS - 1):
            os.kill(busiest[1].pid, signal.SIGKILL)
            return busiest[1].pid, busiest[0]
        time.sleep(0.01)
    return 0, 0


def alive(child: Child) -> bool:
    return child.process is not None and child.process.poll() is None


def running(child: Child) -> int:
    return len(child.board.read()[1])


def main() -> int:
    target, processes = sys.argv[1:]
    supervisor = Supervisor(load_app(target), target, int(processes))
    threading.Thread(target=obey, args=(supervisor,), daemon=True).start()
    return supervisor.run()


if __name__ == "__main__":
    sys.exit(main())
