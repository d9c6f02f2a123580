"""Real RabbitMQ servers for the tests: fetched, started on free ports, and never left behind.

Two versions are wanted: "old" (3.10, of Debian 12) and "new" (4.0, of Debian 13). Where they come from, in order:

1. HOLDFAST_TEST_RABBITMQ: one URL, or several with commas. The lowest version is "old", the highest "new".
2. Debian's packages, fetched with apt into a private state and unpacked into the cache, not installed. All that a
   server needs is fetched with it, its C library too, so that either version runs on either Debian, without root and
   without namespaces: every program of Erlang is started by the unpacked loader.

The shared server of a version is started once for a whole run, by the first process that asks. It belongs to a guard
process, which ends it when the run's first process has ended in any way. A test that kills its server makes one of
its own with `own_broker`. As for PostgreSQL, the kernel kills a server whose parent is gone (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import json
import os
import platform
import re
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pika

from tests.servers import ServerMissing, cache_folder, free_port, make_folder_once, say, wait_until

ROOT = Path(__file__).resolve().parent.parent
SUITES = {"old": "bookworm", "new": "trixie"}
LABELS = {"old": "rabbitmq3.10", "new": "rabbitmq4.0"}
START_SECONDS = 90
WAYS_OUT = "name one with HOLDFAST_TEST_RABBITMQ=amqp://guest:guest@host/, or leave out tests/transports"


# --- The packages, unpacked and not installed -------------------------------------------------------------------------


@dataclass(frozen=True)
class Tree:
    """An unpacked RabbitMQ with the Erlang and the C library that it needs."""

    folder: Path
    role: str

    @property
    def home(self) -> Path:
        return next(self.folder.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*"))

    @property
    def version(self) -> str:
        return self.home.name.partition("-")[2]

    @property
    def programs(self) -> Path:
        return self.folder / "usr/lib/erlang/bin"


@functools.cache
def tree(role: str) -> Tree:
    """Fetches it if the cache has none. The network is used the first time only."""
    target = cache_folder() / f"rabbitmq-{SUITES[role]}-{platform.machine()}"
    make_folder_once(target, lambda new: fetch(SUITES[role], new, target))
    return Tree(target, role)


def fetch(suite: str, folder: Path, target: Path) -> None:
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise ServerMissing(
            f"no RabbitMQ of {suite} can be fetched here without apt-get and dpkg; {WAYS_OUT}"
        )
    say(f"fetching RabbitMQ of Debian {suite} with apt (once; unpacked into the cache, not installed)")
    with tempfile.TemporaryDirectory(prefix="holdfast-apt-") as name:
        download(suite, Path(name))
        for package in sorted(Path(name).glob("archives/*.deb")):
            if package.name.startswith(NEEDED) and not package.name.startswith(NOT_NEEDED):
                run_or_miss(["dpkg", "-x", str(package), str(folder)])
    if not list(folder.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server")):
        raise ServerMissing(f"the packages of Debian {suite} have no rabbitmq-server in them; {WAYS_OUT}")
    make_startable(folder, target)


NEEDED = ("rabbitmq-server", "erlang-", "lib", "zlib1g")
NOT_NEEDED = ("libpython", "libperl", "libpam", "libsqlite", "libdb5", "libsemanage")


def download(suite: str, state: Path) -> None:
    """Every package that a bare machine would need. The status file is empty, so apt takes nothing for installed."""
    state.chmod(0o755)
    (state / "lists" / "partial").mkdir(parents=True)
    (state / "archives" / "partial").mkdir(parents=True)
    (state / "status").touch()
    keyring = next((each for each in Path("/usr/share/keyrings").glob("debian-archive-keyring.*")), None)
    signed = f"[signed-by={keyring}] " if keyring else ""
    (state / "sources.list").write_text(f"deb {signed}{debian_mirror()} {suite} main\n")
    options = {
        "Dir::State": state,
        "Dir::State::Lists": state / "lists",
        "Dir::State::status": state / "status",
        "Dir::Cache": state,
        "Dir::Cache::Archives": state / "archives",
        "Dir::Etc::sourcelist": state / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "Dir::Log": state,
        "Debug::NoLocking": "1",
        "APT::Sandbox::User": "",
        "Acquire::Retries": "3",
        "Acquire::Languages": "none",
    }
    apt = ["apt-get", "-q", *(part for key, value in options.items() for part in ("-o", f"{key}={value}"))]
    run_or_miss([*apt, "update"])
    run_or_miss([*apt, "install", "--yes", "--no-install-recommends", "--download-only", "rabbitmq-server"])


def debian_mirror() -> str:
    """Where this Debian gets its own packages: the same place has those of the other release."""
    codename = ""
    with contextlib.suppress(OSError):
        release = platform.freedesktop_os_release()
        codename = release.get("VERSION_CODENAME", "") if release.get("ID") == "debian" else ""
    files = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]
    text = "\n\n".join(each.read_text(errors="replace") for each in files if each.is_file())
    for line in re.findall(r"^deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+(\S+)\s.*\bmain\b", text, re.M):
        if codename and line[1] == codename:
            return str(line[0])
    for block in text.split("\n\n"):
        suites = re.search(r"^Suites:\s*(.+)$", block, re.M)
        uris = re.search(r"^URIs:\s*(\S+)", block, re.M)
        if codename and suites and uris and codename in suites[1].split():
            return uris[1]
    raise ServerMissing(f"RabbitMQ is fetched from Debian's packages and this is no Debian; {WAYS_OUT}")


def run_or_miss(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        last = done.stdout.strip().splitlines()[-1:] or ["it said nothing"]
        raise ServerMissing(f"fetching RabbitMQ failed ({command[0]}: {last[0]}); {WAYS_OUT}")


def make_startable(folder: Path, target: Path) -> None:
    """Puts a script before each program of Erlang, which starts it with the unpacked loader and libraries.

    LD_LIBRARY_PATH would do for our own programs, and break those of this machine that Erlang calls.
    """
    loader = next(each for each in folder.rglob("ld-linux*.so.*") if not each.is_symlink())
    libraries = sorted({each.parent for each in folder.glob("**/*-linux-gnu*/*.so*")})
    path = ":".join(str(target / each.relative_to(folder)) for each in libraries)
    for program in [each for each in (folder / "usr/lib/erlang").rglob("*") if is_program(each)]:
        hidden = program.with_name(f"{program.name}.elf")
        program.rename(hidden)
        command = f'"{target / loader.relative_to(folder)}" --argv0 "$0" --library-path "{path}"'
        program.write_text(f'#!/bin/sh\nexec {command} "{target / hidden.relative_to(folder)}" "$@"\n')
        program.chmod(0o755)
    start = folder / "usr/lib/erlang/bin/erl"
    text = re.sub(r"^(\s*)ROOTDIR=.*$", rf"\1ROOTDIR={target}/usr/lib/erlang", start.read_text(), flags=re.M)
    start.write_text(text)


def is_program(path: Path) -> bool:
    if path.is_symlink() or not path.is_file() or not path.stat().st_mode & 0o111 or ".so" in path.name:
        return False
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


# --- Starting and stopping --------------------------------------------------------------------------------------------

LAUNCHER = """
import ctypes, os, signal, sys
parent, *command = sys.argv[1:]
ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() != int(parent):
    sys.exit(1)
os.execve(command[0], command, os.environ)
"""

# The parent-death signal comes when the *thread* dies that started the child: all children come from this one.
_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rabbitmq-starter")
_running: set[Broker] = set()


@dataclass(eq=False)
class Broker:
    """A RabbitMQ of our own: ports and data are kept from `stop` or `kill9` to the next `start`."""

    tree: Tree
    settings: dict[str, str] = field(default_factory=dict)  # lines of rabbitmq.conf
    port: int = 0
    folder: Path = Path()
    process: subprocess.Popen[bytes] | None = None
    _epmd: subprocess.Popen[bytes] | None = None
    _epmd_port: int = 0

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    @property
    def log(self) -> str:
        """What the server wrote, for the message of a failing test."""
        return (self.folder / "log").read_text(errors="replace")

    def start(self) -> Broker:
        if self.process is not None:
            return self
        fresh = not self.folder.name
        if fresh:
            self.folder = temporary_folder(f"own-{secrets.token_hex(3)}")
            _running.add(self)
        for _ in range(3):
            if fresh:  # afterwards clients know the port
                self.port, self._epmd_port = free_port(), free_port()
            if self._start_once():
                return self
        raise RuntimeError(f"RabbitMQ {self.tree.version} did not start:\n{self.log[-3000:]}")

    def _start_once(self) -> bool:
        settings = {
            "listeners.tcp.1": f"127.0.0.1:{self.port}",
            "disk_free_limit.absolute": "1MB",
            "vm_memory_high_watermark.absolute": "4GiB",
            "log.file.level": "warning",
            **self.settings,
        }
        lines = "".join(f"{name} = {value}\n" for name, value in settings.items())
        (self.folder / "rabbitmq.conf").write_text(lines)
        (self.folder / "plugins").write_text("[].\n")
        if self._epmd is None:
            address = ["-address", "127.0.0.1", "-port", str(self._epmd_port)]
            self._epmd = self._launch(
                [next(self.tree.folder.glob("usr/lib/erlang/erts-*/bin/epmd")), *address]
            )
        process = self.process = self._launch([self.tree.home / "sbin/rabbitmq-server"])
        wait_until(lambda: process.poll() is not None or self._answers(), START_SECONDS)
        if process.poll() is None and self._answers():
            return True
        self.stop()
        return False

    def environment(self) -> dict[str, str]:
        """What the server and its command line need. Nothing of the system's own RabbitMQ is read."""
        return {
            "PATH": f"{self.tree.programs}:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(self.folder),
            "LC_ALL": "C.UTF-8",
            "RUNNING_UNDER_SYSTEMD": "true",  # the script becomes the server instead of watching it
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": "holdfast@localhost",
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self.folder / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "logs"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(self.folder / "generated"),
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 +A 8 -kernel inet_dist_use_interface {127,0,0,1}",
        }

    @functools.cached_property
    def _distribution_port(self) -> int:
        return free_port()

    def _launch(self, command: list[str | Path]) -> subprocess.Popen[bytes]:
        line = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(os.getpid()), *map(str, command)]

        def start() -> subprocess.Popen[bytes]:
            with open(self.folder / "log", "ab") as log:
                return subprocess.Popen(
                    line,
                    env=self.environment(),
                    cwd=self.folder,
                    start_new_session=True,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )

        return _starter.submit(start).result()

    def _answers(self) -> bool:
        """Whether it speaks AMQP: it listens before it does."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 2) as client:
            client.settimeout(2)
            client.sendall(b"AMQP\x00\x00\x09\x01")
            return client.recv(1) == b"\x01"
        return False

    def ctl(self, *arguments: str) -> str:
        """`rabbitmqctl ...` on this server, and what it says. Takes more than a second."""
        command = [str(self.tree.home / "sbin/rabbitmqctl"), *arguments]
        done = subprocess.run(command, env=self.environment(), capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise RuntimeError(f"rabbitmqctl {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def kill9(self) -> None:
        """What the machine's power switch does. The data stays."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> None:
        """An orderly shutdown, if it is quick."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        self.kill9()

    def close(self) -> None:
        """Ends it for good and removes its data."""
        self.kill9()
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
        _running.discard(self)


def temporary_folder(name: str, owner: int | None = None) -> Path:
    """Named after the process that it is for, so that a later run can remove what a killed one left."""
    base = Path(tempfile.gettempdir())
    for left in base.glob("holdfast-rabbitmq-*-*"):
        with contextlib.suppress(ValueError, OSError):
            if not Path(f"/proc/{int(left.name.split('-')[2])}").exists() and Path("/proc/self").exists():
                shutil.rmtree(left, ignore_errors=True)
    folder = base / f"holdfast-rabbitmq-{owner or os.getpid()}-{name}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def close_all(owner: int = os.getpid()) -> None:
    """`owner` is bound once, so that a child that was forked closes nothing."""
    if os.getpid() == owner:
        for broker in list(_running):
            broker.close()


atexit.register(close_all)


def own_broker(role: str, **settings: str) -> Broker:
    """A server for one test or one module, which may kill it. Call `close()` in the end."""
    return Broker(tree(role), settings=dict(settings)).start()


# --- One of each for the run ------------------------------------------------------------------------------------------


def external_urls() -> list[str]:
    return [each.strip() for each in os.environ.get("HOLDFAST_TEST_RABBITMQ", "").split(",") if each.strip()]


@functools.cache
def external_url(role: str) -> str:
    by_version: list[tuple[list[int], str]] = []
    for url in external_urls():
        try:
            connection = pika.BlockingConnection(pika.URLParameters(url))
        except (pika.exceptions.AMQPError, OSError) as error:
            why = type(error).__name__
            raise ServerMissing(
                f"HOLDFAST_TEST_RABBITMQ names a server that does not answer ({why})"
            ) from None
        version = connection._impl.server_properties["version"]
        by_version.append(([int(each) for each in re.findall(r"\d+", version)], url))
        connection.close()
    return (min if role == "old" else max)(by_version)[1]


@functools.cache
def shared_url(role: str) -> str:
    """The URL of the run's server of that role. Do not kill it: see `own_broker`."""
    if external_urls():
        return external_url(role)
    tree(role)  # a version that cannot be had is told here
    run = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    folder = temporary_folder("shared", owner=run)
    told = folder / f"{role}.json"
    with open(folder / f"{role}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the first process starts it, the others find it
        if not told.exists():
            start_guard(role, run, told)
    return str(json.loads(told.read_text())["url"])


def start_guard(role: str, run: int, told: Path) -> None:
    with open(told.with_suffix(".log"), "wb") as log:
        guard = subprocess.Popen(
            [sys.executable, "-m", "tests.brokers", role, str(run), str(told)],
            cwd=ROOT,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    _guards.append(guard)
    if (
        not wait_until(lambda: told.exists() or guard.poll() is not None, START_SECONDS * 3)
        or not told.exists()
    ):
        raise RuntimeError(f"RabbitMQ did not start:\n{told.with_suffix('.log').read_text()[-3000:]}")


_guards: list[subprocess.Popen[bytes]] = []


def guard(role: str, run: int, told: Path) -> None:
    """Keeps a server as long as the process `run` lives."""
    watched = os.pidfd_open(run)
    broker = own_broker(role)
    new = told.with_suffix(".new")
    new.write_text(json.dumps({"url": broker.url, "version": broker.tree.version}))
    new.rename(told)
    while not select.select([watched], [], [], 5)[0]:
        if broker.process is None or broker.process.poll() is not None:
            break
    broker.close()
    shutil.rmtree(told.parent, ignore_errors=True)


if __name__ == "__main__":
    guard(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
