"""What the kernel says of a process: its family, CPU and memory. Linux only; elsewhere the figures are zero."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


def family(process: int) -> list[int]:
    """A process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            parent = int(entry.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.parent.name))
    found, look = [], [process]
    while look:
        each = look.pop()
        found.append(each)
        look += children.get(each, [])
    return found


def cpu_seconds(process: int, *, with_ended: bool = False) -> float:
    """User and system time of a process, with that of its children that have ended if asked for."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(ticks) for ticks in fields[11 : 15 if with_ended else 13]) / TICK


def peak_megabytes(process: int) -> float:
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0.0


def describe() -> dict[str, str]:
    """The machine in a few words, for the record."""
    model, memory = "", ""
    with suppress(OSError):
        cpu = Path("/proc/cpuinfo").read_text()
        model = next(
            (line.partition(":")[2].strip() for line in cpu.splitlines() if line.startswith("model name")), ""
        )
    with suppress(OSError):
        memory = f"{int(Path('/proc/meminfo').read_text().split()[1]) / 2**20:.0f} GiB"
    kernel = os.uname()
    return {
        "cpus": str(os.cpu_count()),
        "cpu": model,
        "memory": memory,
        "system": f"{kernel.sysname} {kernel.release}",
    }
