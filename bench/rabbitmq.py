"""A RabbitMQ of our own for Celery and Dramatiq: the system's binaries, or the distribution's packages unpacked.

Nothing is installed and no service is touched: own port, own node name, own name server, own folder.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.servers import ServerMissing, cache_folder, free_port, make_folder_once, platform_release

START_SECONDS = 60.0

# Name server and broker, in a group of their own that ends when our end of the pipe closes, however we end.
KEEPER = """
import os, signal, subprocess, sys, threading
names, server = [subprocess.Popen([each], stdin=subprocess.DEVNULL) for each in sys.argv[1:]]
def stop():
    sys.stdin.buffer.read()
    server.terminate()
threading.Thread(target=stop, daemon=True).start()
server.wait()
os.killpg(0, signal.SIGKILL)
"""


class Unavailable(Exception):
    """RabbitMQ cannot be had here; the text says why."""


class RabbitMQ:
    """A running server. Every contestant gets a queue of its own name on it."""

    def __init__(self, folder: Path) -> None:
        root = installed() or unpacked()
        self.version = next(
            (each.name.rpartition("-")[2] for each in root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*")), ""
        )
        self.folder, self.port = folder, free_port()
        folder.mkdir(parents=True)
        names_port = str(free_port())
        erlang = root / "usr/lib/erlang"
        environment = {
            "PATH": f"{erlang}/bin:/usr/bin:/bin",
            "HOME": str(folder),
            "LC_ALL": "C.UTF-8",
            "ERL_EPMD_PORT": names_port,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"bench{os.getpid()}@localhost",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
        }
        (folder / "plugins").write_text("[].\n")
        (folder / "rabbitmq.conf").write_text("log.console = false\n")
        command = [erlang / "bin/epmd", root / "usr/lib/rabbitmq/bin/rabbitmq-server"]
        with open(folder / "output", "ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", KEEPER, *map(str, command)], env=environment, stdin=subprocess.PIPE,
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        self._wait()

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2f"

    def _wait(self) -> None:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            try:
                with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                    connection.sendall(b"AMQP\x00\x00\x09\x01")
                    if connection.recv(8):
                        return
            except OSError:
                time.sleep(0.1)
        said = (self.folder / "output").read_text(errors="replace").strip().splitlines()[-1:] or [
            "it said nothing"
        ]
        self.close()
        raise Unavailable(f"RabbitMQ did not start: {said[0][:200]}")

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)


def installed() -> Path | None:
    there = (
        Path("/usr/lib/rabbitmq/bin/rabbitmq-server").exists() and Path("/usr/lib/erlang/bin/erl").exists()
    )
    return Path("/") if there else None


def unpacked() -> Path:
    """The distribution's packages in the cache of test servers. The network is used the first time only."""
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise Unavailable("no RabbitMQ here and no apt-get to fetch one with; install rabbitmq-server")
    try:
        target = cache_folder() / f"{platform_release()}-rabbitmq"
        make_folder_once(target, fetch)
    except ServerMissing as why:
        raise Unavailable(str(why)) from None
    return target


def fetch(target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-apt-") as name:
        state = Path(name)
        state.chmod(0o755)
        for each in ("lists", "archives"):
            (state / each / "partial").mkdir(parents=True)
        options = {
            "Dir::State::Lists": state / "lists",
            "Dir::Cache": state,
            "Dir::Cache::Archives": state / "archives",
            "Dir::State::extended_states": state / "extended_states",
            "Dir::State::status": "/var/lib/dpkg/status",
            "Dir::Log": state,
            "Debug::NoLocking": "1",
            "APT::Sandbox::User": "",
            "Acquire::Retries": "3",
            "Acquire::Languages": "none",
        }
        apt = [
            "apt-get",
            "-q",
            *itertools.chain(*(("-o", f"{key}={value}") for key, value in options.items())),
        ]
        run([*apt, "update"])
        run([*apt, "install", "--yes", "--no-install-recommends", "--download-only", "rabbitmq-server"])
        for each in sorted((state / "archives").glob("*.deb")):
            if re.match(r"erlang|rabbitmq", each.name):
                run(["dpkg", "-x", str(each), str(target)])
    erl = target / "usr/lib/erlang/bin/erl"  # the one script that knows only the place where it is installed
    here = 'ROOTDIR=$(dirname "$(dirname "$(readlink -f "$0")")")'
    erl.write_text(erl.read_text().replace("ROOTDIR=/usr/lib/erlang\n", here + "\n"))


def run(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        last = done.stdout.strip().splitlines()[-1:] or ["it said nothing"]
        raise Unavailable(f"fetching RabbitMQ failed ({command[0]}: {last[0][:200]})")
