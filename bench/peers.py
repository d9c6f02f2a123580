"""The peers: which versions, in which environment of their own, and why one cannot be measured here."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from .course import ROOT, Contestant

HOME = ROOT / ".bench"

# What each peer is installed from. The drivers are pinned too: they decide as much as the peer does.
PINS = {
    "pgqueuer": ["pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"],
    "procrastinate": ["procrastinate==3.10.0", "psycopg[binary]==3.3.8", "uvloop==0.23.0"],
    "dbos": ["dbos==3.3.0", "psycopg[binary]==3.3.8", "sqlalchemy==2.1.8"],
    "huey": ["huey==3.5.4"],
    "celery": ["celery==5.7.0", "kombu==5.7.0", "amqp==5.4.2"],
    "dramatiq": ["dramatiq[rabbitmq]==2.2.1", "pika==1.4.4"],
}
CLIENTS = {  # measured by bench/delivery.py and bench/orchestrations.py alone
    "aio-pika": ["aio-pika==10.2.1"],
    "absurd": ["absurd-sdk==0.5.1", "absurdctl==0.5.1", "psycopg[binary]==3.3.8"],
}
INSTALL_SECONDS = 600


def python_of(peer: str) -> Path:
    return HOME / "venvs" / peer / "bin" / "python"


def make_home() -> None:
    """The folder for what the benchmark sets up. It tells git to ignore it."""
    HOME.mkdir(exist_ok=True)
    (HOME / ".gitignore").write_text("*\n")


def install(peer: str) -> str:
    """Make the peer's environment if it is not there. The answer is empty, or says why it cannot be."""
    home = HOME / "venvs" / peer
    stamp = home / "pins.json"
    pins = PINS.get(peer) or CLIENTS[peer]
    wanted = json.dumps([sys.version, *pins])
    if stamp.exists() and stamp.read_text() == wanted:
        return ""
    make_home()
    for line in (
        [sys.executable, "-m", "venv", "--clear", str(home)],
        [str(python_of(peer)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *pins],
    ):
        try:
            done = subprocess.run(line, capture_output=True, text=True, timeout=INSTALL_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"cannot be installed here: {error}"[:200]
        if done.returncode:
            said = [each for each in done.stderr.splitlines() if each.strip()] or ["pip said nothing"]
            return f"cannot be installed here: {said[-1].strip()}"[:200]
    stamp.write_text(wanted)
    return ""


def versions(peer: str) -> list[str]:
    if not python_of(peer).exists():
        return []
    done = subprocess.run([str(python_of(peer)), "-m", "pip", "freeze"], capture_output=True, text=True)
    return done.stdout.split()


def contestants(names: list[str], no_rabbitmq: str, say: Callable[[str], None]) -> dict[str, Contestant]:
    """The peers by name, installed where that was possible."""
    shapes = {
        "pgqueuer": ("postgres", 0.6, 1000),
        "procrastinate": ("postgres", 0.06, 1000),
        "dbos": ("postgres", 0.04, 1),
        "huey": ("sqlite", 0.15, 1),
        "celery": ("rabbitmq", 0.12, 1),
        "dramatiq": ("rabbitmq", 0.2, 1),
    }
    made = {}
    for name in names:
        database, share, chunk = shapes[name]
        say(f"installing {name}")
        missing = no_rabbitmq if database == "rabbitmq" and no_rabbitmq else install(name)
        made[name] = Contestant(name, name, database, python_of(name), share, chunk, missing)
    return made
