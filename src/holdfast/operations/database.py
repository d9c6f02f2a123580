"""What the doctor checks of the database and its machine: settings that lose commits, and what slows it down."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from ..clock import wall_clock
from ..store.plans import doctor as plans
from .desk import Desk
from .results import Finding

# The WAL-reset bug: fixed in 3.51.3; 3.52.0 was withdrawn.
SQLITE_SAFE = (3, 51, 3)
OPEN_SECONDS = 600.0
SLOT_TRANSACTIONS = 1_000_000
SHOWN = 5
WAL_BYTES = 256 * 1024 * 1024  # four times what the writer lets it grow to
SKEW_SECONDS = 5.0
REMOTE = {
    "nfs",
    "nfs4",
    "cifs",
    "smb",
    "smb2",
    "smb3",
    "smbfs",
    "afs",
    "ceph",
    "lustre",
    "glusterfs",
    "9p",
    "vboxsf",
}
MOUNTS = "/proc/self/mountinfo"


def examine(desk: Desk) -> Iterator[Finding]:
    """Findings about the database, PostgreSQL or SQLite."""
    server = desk.ask(plans.server())
    if "journal_mode" in server:
        yield from sqlite(server)
        path = getattr(desk.store, "path", ":memory:")
        if path != ":memory:":
            yield from file(path, file_system(path), _size(f"{path}-wal"))
    else:
        yield from postgres(server)
        yield from holding(desk.ask(plans.holding(SLOT_TRANSACTIONS, SHOWN)))
    yield from clocks(desk, desk.store.clock.now() or wall_clock())


# -- PostgreSQL


def postgres(server: dict[str, Any]) -> Iterator[Finding]:
    for name in ("fsync", "full_page_writes"):
        if server[name] == "off":
            yield Finding(
                "error",
                name,
                f"PostgreSQL runs with {name} = off: a crash of the machine can lose or corrupt everything.",
                f"Set {name} = on, unless this is a database for tests.",
            )
    if server["synchronous_commit"] == "off":
        yield Finding(
            "error",
            "synchronous_commit",
            "synchronous_commit is off: what was committed just before a crash can be lost.",
            "Set synchronous_commit = on for this database or role.",
        )
    if server["autovacuum"] == "off":
        yield Finding(
            "warning",
            "autovacuum",
            "autovacuum is off: rows of ended messages stay in the tables, and claims become slower all the time.",
            "Set autovacuum = on.",
        )


def holding(rows: Iterable[dict[str, Any]]) -> Iterator[Finding]:
    """What keeps vacuum from removing dead rows."""
    for row in rows:
        seconds, name, owner = row["seconds"], row["name"], row["owner"]
        if row["kind"] == "slot":
            yield Finding(
                "warning",
                "replication-slot",
                f"Replication slot {name} ({row['state']}) is more than {SLOT_TRANSACTIONS:,} transactions behind: "
                "dead rows stay in the tables.",
                "Let its consumer catch up, or drop the slot: select pg_drop_replication_slot(NAME).",
            )
        elif seconds is None or seconds <= OPEN_SECONDS:
            continue
        elif row["kind"] == "prepared":
            yield Finding(
                "warning",
                "prepared-transaction",
                f"Prepared transaction {name} of {owner} is {seconds / 60:.0f} minutes old: "
                "dead rows stay in the tables.",
                "End it with COMMIT PREPARED or ROLLBACK PREPARED.",
            )
        else:
            yield Finding(
                "warning",
                "long-transaction",
                f"A transaction has been open for {seconds / 60:.0f} minutes "
                f"(process {name}, {owner}, {row['state']}): dead rows stay in the tables.",
                f"End it: find out in pg_stat_activity what it does, or select pg_terminate_backend({name}).",
            )


# -- SQLite


def sqlite(server: dict[str, Any]) -> Iterator[Finding]:
    if tuple(int(part) for part in server["version"].split(".")[:3]) < SQLITE_SAFE:
        yield Finding(
            "warning",
            "sqlite-version",
            f"SQLite {server['version']} can corrupt a WAL file when two connections checkpoint at one instant "
            "(fixed in 3.51.3). Holdfast lets only its writer do it.",
            "Use a Python with SQLite 3.51.3 or newer, or set wal_autocheckpoint=0 on your own connections.",
        )
    if server["journal_mode"] not in ("wal", "memory"):
        yield Finding(
            "error",
            "journal-mode",
            f"The database is in journal mode {server['journal_mode']}: readers and the writer block each other.",
            "Let Holdfast open it, which sets WAL, and do not change it on other connections.",
        )
    if server["synchronous"] < 2:
        yield Finding(
            "error",
            "synchronous",
            "SQLite commits without waiting for the disk: what was committed just before a crash can be lost.",
            "Holdfast sets synchronous=FULL on its own connections; find out what changes it.",
        )
    weak = [each for each in server["options"] if each in WEAK]
    if weak:
        yield Finding(
            "warning",
            "synchronous-default",
            f"This SQLite was built with {' and '.join(sorted(weak))}: a commit on your own connection does not wait "
            "for the disk, and with it what you publish there.",
            "Say `pragma synchronous=full` on the connections on which you publish.",
        )


WEAK = {f"DEFAULT_{name}SYNCHRONOUS={value}" for name in ("", "WAL_") for value in (0, 1)}


def file(path: str, kind: str | None, wal_bytes: int) -> Iterator[Finding]:
    """Findings about the file of a SQLite database: the kind of its file system, the size of its WAL."""
    if kind is not None and (kind in REMOTE or kind.startswith("fuse.sshfs")):
        yield Finding(
            "error",
            "network-file-system",
            f"{path} lies on a network file system ({kind}): locks and shared memory do not hold there, and the file "
            "will be corrupted.",
            "Move the file to a disk of this machine, or use PostgreSQL.",
        )
    if wal_bytes > WAL_BYTES:
        yield Finding(
            "warning",
            "wal-size",
            f"The WAL file of {path} has {wal_bytes / 1024 / 1024:.0f} MiB: a read transaction has been open for so "
            "long that the file cannot be written back.",
            "End long read transactions; a cursor that is not read to its end is one.",
        )


def file_system(path: str, mounts: str = MOUNTS) -> str | None:
    """The kind of file system that a file is on; None if it cannot be found out."""
    try:
        with open(mounts, encoding="utf-8", errors="replace") as lines:
            listed = [line.split(" - ", 1) for line in lines]
    except OSError:  # not Linux
        return None
    folder = os.path.realpath(path)
    kinds = {_unescaped(left.split()[4]): right.split()[0] for left, right in listed}
    while folder not in kinds and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    return kinds.get(folder)


def _unescaped(text: str) -> str:
    return text.replace(r"\040", " ").replace(r"\011", "\t").replace(r"\134", "\\")


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


# -- clocks


def clocks(desk: Desk, here: datetime) -> Iterator[Finding]:
    """Delays, deadlines and leases use clocks; no guarantee depends on them. `here`: this machine's time."""
    there, latest = desk.ask(plans.times())
    skew = (here - there).total_seconds()
    if abs(skew) > SKEW_SECONDS:
        yield Finding(
            "warning",
            "clock-skew",
            f"This machine's clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the database's: times "
            "given as instants mean something else there.",
            "Let both keep time with NTP or chrony.",
        )
    ahead = 0.0 if latest is None else (latest - there).total_seconds()
    if ahead > SKEW_SECONDS:
        yield Finding(
            "warning",
            "clock-set-back",
            f"Something is recorded {ahead:.0f} s in the future, by the database's clock: that clock was set back, or "
            "another machine's is ahead. Due messages and the leases of dead workers wait that much longer.",
            "Let all machines keep time with NTP or chrony, which slow a clock down instead of setting it back.",
        )
