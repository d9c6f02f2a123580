"""A real PgBouncer before a server of the tests, in transaction mode.

It comes from the system, or from the distribution's packages, which are fetched into the cache and unpacked there, not
installed (tests/servers.py).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg

from tests import servers

START_SECONDS = 10
# Sessions of the server go from hand to hand: what one client leaves in one, another one meets.
CONFIGURATION = """
[databases]
* = host={host} port={port}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own_port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users.txt
pool_mode = transaction
server_round_robin = 1
default_pool_size = 12
max_client_conn = 200
query_wait_timeout = 20
ignore_startup_parameters = {ignored}
"""


def program() -> tuple[Path, str]:
    """PgBouncer, and where its libraries are."""
    for known in (shutil.which("pgbouncer"), "/usr/sbin/pgbouncer"):
        if known and Path(known).exists():
            return Path(known), ""
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise servers.ServerMissing("there is no PgBouncer here: install it with your package manager")
    target = servers.cache_folder() / f"{servers.platform_release()}-pgbouncer"
    servers.make_folder_once(target, lambda new: servers.fetch_debian_packages(new, "pgbouncer"))
    found = next(iter(target.glob("usr/*bin/pgbouncer")), None)
    if found is None:
        raise servers.ServerMissing(
            f"there is no pgbouncer in {target}: remove that folder to fetch it again"
        )
    return found, ":".join(str(each) for each in sorted(servers.library_folders(target)))


@contextlib.contextmanager
def pooled(dsn: str, ignored: str = "extra_float_digits") -> Iterator[str]:
    """The same database through a pooler. `ignored`: parameters of a connection that it drops in silence."""
    parts = urlsplit(dsn)
    command, libraries = program()
    folder, port = servers.temporary_folder(), servers.free_port()
    written = CONFIGURATION.format(
        host=parts.hostname, port=parts.port, own_port=port, folder=folder, ignored=ignored
    )
    (folder / "pgbouncer.ini").write_text(written)
    (folder / "users.txt").write_text(f'"{parts.username}" ""\n')
    if user := servers.server_user():
        for each in (folder, *folder.iterdir()):
            os.chown(each, user.pw_uid, user.pw_gid)
    url = urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}"))
    with open(folder / "log", "ab") as log:
        process = servers.launch([command, folder / "pgbouncer.ini"], libraries, log)
    try:
        started = servers.wait_until(lambda: process.poll() is not None or _answers(url), START_SECONDS)
        if not started or process.poll() is not None:
            raise RuntimeError(f"PgBouncer did not start:\n{(folder / 'log').read_text()[-2000:]}")
        yield url
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGQUIT)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=5).close()
    except psycopg.Error:
        return False
    return True
