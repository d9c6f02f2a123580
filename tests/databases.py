"""Which databases a test runs on. The one plugin for it; tests/conftest.py loads it.

    place             "sqlite", and "old" or "new" for each PostgreSQL asked for
    postgres_version  "old" or "new": for tests of PostgreSQL alone
    postgres_server   the running server of this process and version
    postgres_dsn      a database of the test's own on it, new and empty
    postgres_faulty   a server of the test's own, fsync on, which it may kill and start again
    sqlite_path       where a SQLite file may be made
    url               a migrated and empty database at `place`
    bare_url          a database at `place` without anything in it

`--pg` says which versions: `new` (18), `old` (15), `both`, or `mixed`, which is what `make test` uses: 18 for all
tests, and 15 too for those in which the version can change the result (VERSION_MATTERS).

Making and migrating a database takes half a second. So each process keeps one for each version and empties it before
each test that asks for `url`. A test may change its schema: such a database is dropped and made anew.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest

from holdfast.clock import MovableClock
from holdfast.settings import Settings
from holdfast.store import SqliteStore
from holdfast.store.postgres import PostgresStore
from tests import servers

T = TypeVar("T")
IDS = {"sqlite": "sqlite", "old": f"pg{servers.WANTED_OLD_MAJOR}", "new": f"pg{servers.NEW_MAJOR}"}
VERSIONS = {"both": ("old", "new"), "old": ("old",), "new": ("new",), "mixed": ("new",)}
# SQL and its plans, migrations, and what is left after a kill.
VERSION_MATTERS = ("tests/store/", "tests/proof/kill/")


# --- The choice -------------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--pg",
        choices=sorted(VERSIONS),
        default=os.environ.get("HOLDFAST_TEST_PG", "new"),
        help="PostgreSQL to test on: new (18, the default), old (15), both, or mixed (as `make test`: 18, and 15 too"
        " where the version can change the result)",
    )


def pytest_report_header(config: pytest.Config) -> str:
    return f"PostgreSQL: {config.getoption('--pg')} wanted; {servers.describe()}"


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """With xdist, before its processes begin: a missing server is said once, and packages are fetched once."""
    config = session.config
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        for version in VERSIONS["both" if config.getoption("--pg") == "mixed" else config.getoption("--pg")]:
            or_exit(lambda version=version: servers.find(version))


def pytest_sessionfinish() -> None:
    for kept in _kept.values():
        kept.drop()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for fixture, always in (("place", ("sqlite",)), ("postgres_version", ())):
        if fixture in metafunc.fixturenames:
            params = [parameter(each) for each in (*always, *versions(metafunc.definition))]
            metafunc.parametrize(fixture, params, scope="session")


def parameter(place: str) -> Any:
    return pytest.param(place, id=IDS[place], marks=() if place == "sqlite" else pytest.mark.postgres)


def versions(test: pytest.Item) -> tuple[str, ...]:
    asked = test.config.getoption("--pg")
    if asked == "mixed" and test.nodeid.startswith(VERSION_MATTERS):
        asked = "both"
    return VERSIONS[asked][-1:] if test.get_closest_marker("one_postgres") else VERSIONS[asked]


# --- Fixtures ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def postgres_server(postgres_version: str) -> servers.Server | servers.ExternalServer:
    return server(postgres_version)


@pytest.fixture
def postgres_dsn(postgres_server: servers.Server) -> Iterator[str]:
    with postgres_server.database() as dsn:
        yield dsn


@pytest.fixture
def postgres_faulty(postgres_version: str) -> Iterator[servers.Server]:
    own = or_exit(lambda: servers.own_server(postgres_version, fsync=True))
    yield own
    own.close()


@pytest.fixture
def sqlite_path(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.db"


@pytest.fixture
def url(place: str, sqlite_path: Path) -> str:
    return migrated(place, sqlite_path)


@pytest.fixture
def bare_url(place: str, sqlite_path: Path) -> Iterator[str]:
    if place == "sqlite":
        yield f"sqlite:///{sqlite_path}"
    else:
        with server(place).database() as dsn:
            yield dsn


def or_exit(get: Callable[[], T]) -> T:
    """A server that cannot be had ends the run with one line: a skipped test would look like a passed one."""
    try:
        return get()
    except servers.ServerMissing as missing:
        pytest.exit(str(missing), returncode=pytest.ExitCode.USAGE_ERROR)


def server(version: str) -> servers.Server | servers.ExternalServer:
    """The server of this process, started when first asked for."""
    return or_exit(lambda: servers.shared_server(version))


# --- Migrated databases -----------------------------------------------------------------------------------------------


def migrated(place: str, path: Path) -> str:
    """The URL of a migrated, empty database: a new file at `path`, or this process's own on PostgreSQL."""
    if place == "sqlite":
        path.write_bytes(migrated_file())
        return f"sqlite:///{path}"
    if place not in _kept:
        _kept[place] = Kept(place)
    return _kept[place].emptied()


@functools.cache
def migrated_file() -> bytes:
    folder = Path(tempfile.mkdtemp(prefix="holdfast-tests-"))
    store = SqliteStore(str(folder / "empty.db"), Settings(), MovableClock())
    store.migrate()
    store.close()
    content = (folder / "empty.db").read_bytes()
    shutil.rmtree(folder)
    return content


# The schema. A row of the catalog that was replaced has another xmin; that of pg_class is replaced by TRUNCATE as well.
# What belongs to the whole server (roles) is not in it, and sequences run on from test to test.
SHAPE = """
select md5(string_agg(part, ',' order by part)) from (
    select 'class' || c.oid || ':' || concat_ws(' ', c.relname, c.relkind, c.relacl, c.reloptions, c.relrowsecurity,
           c.relforcerowsecurity, c.relreplident, c.relchecks, c.relhasrules) from pg_class c where c.oid >= 16384
    union all select 'column' || a.attrelid || ':' || a.attnum || ':' || a.xmin from pg_attribute a
     where a.attrelid >= 16384
    union all select 'constraint' || c.oid || ':' || c.xmin from pg_constraint c where c.oid >= 16384
    union all select 'default' || d.oid || ':' || d.xmin from pg_attrdef d where d.oid >= 16384
    union all select 'function' || p.oid || ':' || p.xmin from pg_proc p where p.oid >= 16384
    union all select 'policy' || p.oid || ':' || p.xmin from pg_policy p
    union all select 'rule' || r.oid || ':' || r.xmin from pg_rewrite r where r.oid >= 16384
    union all select 'schema' || n.oid || ':' || n.xmin from pg_namespace n where n.nspname !~ '^pg_(toast_)?temp_'
    union all select 'setting' || d.setdatabase || ':' || d.setrole || ':' || d.xmin from pg_db_role_setting d
     where d.setdatabase in (0, (select oid from pg_database where datname = current_database()))
    union all select 'trigger' || t.oid || ':' || t.xmin from pg_trigger t
    union all select 'type' || t.oid || ':' || t.xmin from pg_type t where t.oid >= 16384
    union all select 'version' || v::text from holdfast.schema_version v
) shape (part)
"""
# A worker that was killed may have left a backend that is still busy.
END_OTHERS = """
select pg_terminate_backend(pid, 10000) from pg_stat_activity
 where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
"""
USERS_TABLES = """
select format('%I.%I', schemaname, tablename) from pg_tables
 where schemaname not in ('pg_catalog', 'information_schema', 'holdfast')
"""
TABLES = """
select oid::regclass::text, pg_relation_size(oid) from pg_class
 where relnamespace = 'holdfast'::regnamespace and relkind = 'r' and relname <> 'schema_version'
"""
LARGE = 256 * 1024  # bytes: a table above this is quicker to truncate than to delete from


class Kept:
    """A migrated database that tests use one after another."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.dsn = ""
        self._db: psycopg.Connection[Any] | None = (
            None  # idle while a test runs: to connect costs more than to empty
        )

    def emptied(self) -> str:
        if not self.dsn or not self._empty():
            self._make()
        return self.dsn

    def drop(self) -> None:
        if self.dsn:
            with contextlib.suppress(psycopg.Error):  # a server of ours may be gone already
                self._disconnect()
                server(self.version).drop_database(self.dsn)

    def _connected(self) -> psycopg.Connection[Any]:
        if self._db is None:
            self._db = psycopg.connect(self.dsn, autocommit=True)
        return self._db

    def _disconnect(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _make(self) -> None:
        self.drop()
        self.dsn = server(self.version).create_database()
        store = PostgresStore(self.dsn, Settings(), MovableClock())
        store.migrate()
        store.close()
        self.shape = self._connected().execute(SHAPE).fetchall()

    def _empty(self) -> bool:
        """Whether the database is as it was made. One that a test left in another shape is of no more use."""
        try:
            try:
                self._connected().execute(END_OTHERS)
            except psycopg.OperationalError:  # a test has ended all connections, ours as well
                self._disconnect()
                self._connected().execute(END_OTHERS)
            return self._emptied_by(self._connected())
        except psycopg.Error:
            return False

    def _emptied_by(self, db: psycopg.Connection[Any]) -> bool:
        for (table,) in db.execute(USERS_TABLES).fetchall():
            db.execute(f"drop table {table} cascade".encode())
        if db.execute(SHAPE).fetchall() != self.shape:
            return False
        tables = dict(db.execute(TABLES).fetchall())
        if large := [name for name, size in tables.items() if size > LARGE]:
            db.execute(f"truncate {', '.join(large)}".encode())
        deletions = [f"d{n} as (delete from {name})" for n, name in enumerate(tables) if name not in large]
        db.execute(f"with {', '.join(deletions)} select 1".encode())
        return True


_kept: dict[str, Kept] = {}
