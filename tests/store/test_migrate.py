"""Migrations: by any number of processes at once, as a printed script, into another schema, never backwards."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from holdfast.clock import MovableClock
from holdfast.errors import NotMigrated
from holdfast.settings import Settings
from holdfast.store import SqliteStore, Store
from holdfast.store.migrate import latest, migration_sql, split, steps
from holdfast.store.plans import breakers, slots
from holdfast.store.postgres import PostgresStore
from holdfast.store.text import Dialect
from tests import servers
from tests.databases import server
from tests.store.box import QUEUE, Box, done, names, new
from tests.store.state import check_invariants

Open = Callable[..., Store]


@pytest.fixture
def url(place: str, tmp_path: Path) -> Iterator[str]:
    """A database without anything in it."""
    if place == "sqlite":
        yield str(tmp_path / "new.db")
    else:
        with server(place).database() as dsn:
            yield dsn


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = open_store(url)
    yield store
    store.close()


def open_store(url: str, schema: str = "holdfast") -> Store:
    if url.startswith("postgresql:"):
        return PostgresStore(url, Settings(), MovableClock(), schema)
    return SqliteStore(url, Settings(), MovableClock())


def dialect(url: str) -> Dialect:
    return "postgres" if url.startswith("postgresql:") else "sqlite"


def all_steps(url: str) -> list[int]:
    return [version for version, _ in steps(dialect(url))]


# --- Where a database stands ------------------------------------------------------------------------------------------


def test_a_second_migration_finds_nothing_to_do(store: Store, url: str) -> None:
    assert store.migrate() == all_steps(url)
    assert store.migrate() == []
    store.check()


def test_before_the_migration_every_verb_says_what_to_do(store: Store) -> None:
    box = Box(store, MovableClock())
    for verb in (box.send, box.claim, box.recover, lambda: box.subscribe("q", "t"), box.renew):
        with pytest.raises(NotMigrated, match="holdfast migrate"):
            verb()


def test_a_check_refuses_or_makes_what_is_missing(store: Store, place: str) -> None:
    """SQLite is the embedded default: a file of its own needs no ceremony."""
    if place == "sqlite":
        store.check()
        assert store.migrate() == []
    else:
        with pytest.raises(NotMigrated, match="holdfast migrate"):
            store.check()


def test_a_newer_schema_is_refused(store: Store, url: str) -> None:
    store.migrate()
    newer = latest(dialect(url)) + 1
    if dialect(url) == "sqlite":
        execute(url, f"insert into holdfast_schema (version, applied_at) values ({newer}, 'later')")
    else:
        execute(url, f"update holdfast.schema_version set version = {newer}")
    with pytest.raises(NotMigrated, match=f"version {newer}.*newer release|version {newer} "):
        store.check()
    with pytest.raises(NotMigrated, match="install the newer release"):
        store.migrate()


@pytest.mark.postgres
def test_other_functions_are_replaced(postgres_dsn: str) -> None:
    store = open_store(postgres_dsn)
    store.migrate()
    execute(
        postgres_dsn,
        "create function holdfast.adopt(p_limit int) returns int language sql as 'select 1';"
        "update holdfast.schema_version set functions = 'of an older release', number = number - 1,"
        " made = made || 'holdfast.adopt(integer)'::text",
    )
    with pytest.raises(NotMigrated, match="run `holdfast migrate`"):
        store.check()
    assert store.migrate() == [-1]
    store.check()
    assert store.migrate() == []
    with psycopg.connect(postgres_dsn) as db:
        assert db.execute("select to_regprocedure('holdfast.adopt(int)')").fetchone() == (None,)
    store.close()


def execute(url: str, sql: str) -> None:
    if dialect(url) == "sqlite":
        with closing(sqlite3.connect(url)) as db, db:
            db.execute(sql)
    else:
        with psycopg.connect(url) as connection:
            connection.execute(sql.encode())


# --- Many at once -----------------------------------------------------------------------------------------------------

MIGRATE = """
import sys
from holdfast.clock import SystemClock
from holdfast.settings import Settings
from holdfast.store import open_store
store = open_store(sys.argv[1], Settings(), SystemClock())
print("ready", flush=True)
sys.stdin.readline()
print(store.migrate())
store.check()
store.close()
"""


def test_several_processes_at_once(url: str) -> None:
    """One of them migrates, the others wait for it and find nothing to do."""
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", MIGRATE, url if dialect(url) == "postgres" else f"sqlite:///{url}"]
    started = [
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=root,
        )
        for _ in range(3)
    ]
    for each in started:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    said = []
    for each in started:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.flush()
    for each in started:
        out, err = each.communicate(timeout=60)
        assert each.returncode == 0, err
        said.append(out.strip())
    assert sorted(said) == [str(all_steps(url)), "[]", "[]"]


# --- As a script ------------------------------------------------------------------------------------------------------


def test_the_printed_script_makes_the_same_schema_with_the_databases_own_shell(
    place: str, url: str, tmp_path: Path
) -> None:
    script = tmp_path / "holdfast.sql"
    script.write_text(migration_sql(dialect(url)))
    if place == "sqlite":
        with closing(sqlite3.connect(url)) as db:
            db.executescript(script.read_text())
    else:
        run_psql(place, url, script)
    printed = open_store(url)
    printed.check()
    assert printed.migrate() == []
    assert try_out(Box(printed, printed.clock, url)) == ["a", "b"]  # type: ignore[arg-type]
    printed.close()
    assert schema_of(url) == schema_of_a_migrated_one(place, tmp_path)


def run_psql(place: str, dsn: str, script: Path) -> None:
    found = server(place)
    psql = found.binaries.folder / "psql" if isinstance(found, servers.Server) else Path("psql")
    command = [
        psql if psql.exists() else "psql",
        "--no-psqlrc",
        "-v",
        "ON_ERROR_STOP=1",
        "-q",
        "-f",
        script,
        dsn,
    ]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")


def try_out(box: Box) -> list[str]:
    box.subscribe()
    with box.connection() as db:
        box.publish_on(db, new("a", stream="s"))
        db.commit()
    box.send("b", stream="s")
    work = box.claim()
    box.settle(*map(done, work))
    check_invariants(box.store)
    return names(work)


def schema_of_a_migrated_one(place: str, tmp_path: Path) -> list[tuple[str, ...]]:
    if place == "sqlite":
        other = str(tmp_path / "other.db")
        store = open_store(other)
        store.migrate()
        store.close()
        return schema_of(other)
    with server(place).database() as dsn:
        store = open_store(dsn)
        store.migrate()
        store.close()
        return schema_of(dsn)


POSTGRES_SCHEMA = """
    select 'column', table_name, column_name, data_type, coalesce(column_default, ''), is_nullable
      from information_schema.columns where table_schema = %(schema)s
    union all select 'index', tablename, indexname, indexdef, '', '' from pg_indexes where schemaname = %(schema)s
    union all select 'function', p.proname, pg_get_functiondef(p.oid), '', '', '' from pg_proc p
      where p.pronamespace = %(schema)s::regnamespace
    union all select 'trigger', tgname, pg_get_triggerdef(oid), '', '', '' from pg_trigger where not tgisinternal
    union all select 'version', version::text, functions, '', '', '' from {schema}.schema_version
    order by 1, 2, 3
"""


def schema_of(url: str, schema: str = "holdfast") -> list[tuple[str, ...]]:
    """Everything that a migration makes, in words."""
    if dialect(url) == "sqlite":
        with closing(sqlite3.connect(url)) as db:
            made = db.execute("select type, name, sql from sqlite_master order by 1, 2").fetchall()
            return made + db.execute("select 'version', version from holdfast_schema").fetchall()
    with psycopg.connect(url) as connection:
        return connection.execute(
            POSTGRES_SCHEMA.format(schema=schema).encode(), {"schema": schema}
        ).fetchall()


# --- Another schema ---------------------------------------------------------------------------------------------------


@pytest.mark.postgres
def test_schemas_in_one_database_know_nothing_of_each_other(postgres_dsn: str) -> None:
    boxes = []
    for schema in ("tenant_a", "tenant_b"):
        store = open_store(postgres_dsn, schema)
        with pytest.raises(NotMigrated):
            store.check()
        assert store.migrate() == all_steps(postgres_dsn)
        store.check()
        boxes.append(Box(store, store.clock, postgres_dsn))  # type: ignore[arg-type]
    a, b = boxes
    a.send("unrouted", stream="s")
    assert b.messages() == []
    assert try_out(b) == ["a", "b"]
    a.subscribe()
    assert try_out(a) == ["unrouted", "a", "b"]
    execute(
        postgres_dsn,
        "insert into tenant_a.message (type, body, stream) values ('order.placed', '1', 'plain')",
    )
    assert [m.queue for m in a.messages()] == [QUEUE]
    assert b.messages() == []
    with psycopg.connect(postgres_dsn) as connection:
        (found,) = connection.execute(
            "select count(*) from pg_namespace where nspname = 'holdfast'"
        ).fetchone() or (None,)
        assert found == 0
    for box in boxes:
        check_invariants(box.store)
        box.store.close()


@pytest.mark.postgres
def test_a_printed_script_for_another_schema_names_no_other(postgres_dsn: str) -> None:
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute(migration_sql("postgres", "tenant_a").encode())
    store = open_store(postgres_dsn, "tenant_a")
    store.check()
    made = [row for row in schema_of(postgres_dsn, "tenant_a") if any("holdfast." in text for text in row)]
    assert made == []
    store.close()


# -- what a step makes of what is there

OLD_SLOTS = '[[7,3,30.0,["mail","post"]],[8,0,30.0,["post"]]]'


def test_slots_leave_the_breakers_table(store: Store, url: str) -> None:
    """0008: a holder keeps its slots, and a breaker stays a breaker."""
    store.migrate()
    is_sqlite = dialect(url) == "sqlite"
    schema, moment, no = ("holdfast_", "1", "0") if is_sqlite else ("holdfast.", "now()", "false")
    execute(url, f"drop table {schema}slot")
    execute(url, f"drop index {schema}queue_paused")
    columns = "name, version, era, state, forced, calls, trials_left, successes, changed_at"
    for name, calls in (("holdfast/slots/smtp", OLD_SLOTS), ("llm", ".x"), ("holdfast/slots/idle", "")):
        values = f"'{name}', 41, 0, 'closed', {no}, '{calls}', 0, 0, {moment}"
        execute(url, f"insert into {schema}breaker ({columns}) values ({values})")
    for statement in split(dict(steps(dialect(url)))[8]):
        execute(url, statement)
    smtp = store.read(slots.look("smtp"))
    assert smtp == (41, [(7, 3, 30.0, ("mail", "post")), (8, 0, 30.0, ("post",))])
    assert store.read(slots.look("idle")) == (41, [])
    assert [row.name for row, _ in store.read(breakers.known(10))] == ["llm"]
