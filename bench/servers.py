"""The servers of a run: a durable PostgreSQL of its own, RabbitMQ if it can be had, folders for SQLite files."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from tests import servers as postgres_servers

from .machine import cpu_seconds, family
from .rabbitmq import RabbitMQ, Unavailable

POSTGRES = {
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "synchronous_commit": "on",
    "checkpoint_timeout": "30min",
}


class Servers:
    """Gives each contestant a fresh place, and takes it away again."""

    def __init__(self, postgres: str = "old", extra: dict[str, str] | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
        self.postgres = postgres_servers.own_server(postgres, fsync=True, **POSTGRES, **(extra or {}))
        self.rabbitmq: RabbitMQ | None = None
        self.no_rabbitmq = "not asked for"

    def start_rabbitmq(self) -> None:
        try:
            self.rabbitmq = RabbitMQ(self.folder / "rabbitmq")
        except Unavailable as why:
            self.no_rabbitmq = str(why)

    def place(self, database: str, folder: Path, template: str | None = None) -> str:
        """The address of a fresh database; `template` is the address of one to copy."""
        if database == "postgres":
            return self.postgres.create_database(template.rpartition("/")[2] if template else None)
        if database == "rabbitmq":
            assert self.rabbitmq is not None
            return self.rabbitmq.url
        if template is not None:
            shutil.copy(template, folder / "messages.db")
        return str(folder / "messages.db")

    def leave(self, database: str, url: str, folder: Path) -> None:
        if database == "postgres":
            self.postgres.drop_database(url)
        shutil.rmtree(folder, ignore_errors=True)

    def cpu(self, database: str) -> float:
        """CPU seconds of the server so far, with its ended children."""
        process = None
        if database == "postgres" and self.postgres.process is not None:
            process = self.postgres.process.pid
        elif database == "rabbitmq" and self.rabbitmq is not None:
            process = self.rabbitmq.process.pid
        if process is None:
            return 0.0
        return sum(cpu_seconds(each, with_ended=each == process) for each in family(process))

    def close(self) -> None:
        if self.rabbitmq is not None:
            self.rabbitmq.close()
        self.postgres.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def settings() -> dict[str, dict[str, str]]:
    return {
        "postgres": {**POSTGRES, "fsync": "on", "transport": "TCP on the loopback"},
        "sqlite": {"journal_mode": "wal", "synchronous": "full"},
        "process": {"nice": str(os.nice(0))},
    }
