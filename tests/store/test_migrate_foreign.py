"""A migration touches only what migrations made, and never runs backwards."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.clock import MovableClock
from holdfast.errors import NotMigrated
from holdfast.settings import Settings
from holdfast.store import SqliteStore, installed, migrate
from holdfast.store.installed import Installed
from holdfast.store.migrate import migration_sql, split, steps
from holdfast.store.postgres import PostgresStore
from tests.store.box import Box
from tests.store.test_migrate import execute, schema_of, try_out

pytestmark = pytest.mark.covers("X63")

SCHEMA = "shop"
VAT = f"create function {SCHEMA}.vat(cents int) returns int language sql as 'select cents * 19 / 100'"


@pytest.fixture
def dsn(postgres_dsn: str) -> str:
    """A database in which the application has a schema of its own, and a function in it."""
    execute(postgres_dsn, f"create schema {SCHEMA}; {VAT}")
    return postgres_dsn


@pytest.fixture
def store(dsn: str) -> Iterator[PostgresStore]:
    store = PostgresStore(dsn, Settings(), MovableClock(), SCHEMA)
    yield store
    store.close()


def ask(dsn: str, sql: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as db:
        return db.execute(sql.encode()).fetchall()


def everything(dsn: str) -> list[tuple[Any, ...]]:
    """Each function, table, index, sequence and type in the schema, and whether it was written again."""
    inside = f"= '{SCHEMA}'::regnamespace"
    return ask(
        dsn,
        f"select 'function', oid::regprocedure::text, xmin::text from pg_proc where pronamespace {inside}"
        f" union all select 'class', relname::text, oid::text from pg_class where relnamespace {inside}"
        f" union all select 'type', typname::text, xmin::text from pg_type where typnamespace {inside} order by 1, 2",
    )


# --- What the application made --------------------------------------------------------------------------------------


def test_functions_of_the_application_stay(store: PostgresStore, dsn: str) -> None:
    """Also when the functions are replaced later, and by the printed script."""
    store.migrate()
    assert ask(dsn, f"select {SCHEMA}.vat(100)") == [(19,)]
    execute(dsn, f"update {SCHEMA}.schema_version set number = number - 1, functions = 'older'")
    assert store.migrate() == [-1]
    assert ask(dsn, f"select {SCHEMA}.vat(100)") == [(19,)]
    execute(dsn, f"update {SCHEMA}.schema_version set number = number - 1, functions = 'older'")
    execute(dsn, migration_sql("postgres", SCHEMA, migrate.latest("postgres")))
    store.check()
    assert ask(dsn, f"select {SCHEMA}.vat(100)") == [(19,)]
    assert try_out(Box(store, store.clock, dsn)) == ["a", "b"]  # type: ignore[arg-type]


MINE = {
    "the same function": (
        "create function {s}.covers(text, text) returns boolean language sql as 'select true'",
        "function shop.covers(text,text)",
    ),
    "a function of that name": (
        "create function {s}.place(text) returns int language sql as 'select 1'",
        "function shop.place(text)",
    ),
    "a trigger function": (
        "create function {s}.receive() returns trigger language plpgsql as 'begin return new; end'",
        "function shop.receive()",
    ),
    "an aggregate": (
        "create aggregate {s}.settle(int) (sfunc = int4pl, stype = int)",
        "function shop.settle(integer)",
    ),
    "a procedure": ("create procedure {s}.claim() language sql as 'select 1'", "function shop.claim()"),
    "a table": ("create table {s}.message (mine int)", "table shop.message"),
    "a view": ("create view {s}.queue as select 1 as mine", "view shop.queue"),
    "a sequence": ("create sequence {s}.position", 'sequence shop."position"'),
    "a type": ("create type {s}.draft as enum ('mine')", "type shop.draft"),
    "an index": ("create table {s}.t (n int); create index dead_died on {s}.t (n)", "index shop.dead_died"),
    "a type like a table": ("create domain {s}.lease as int", "type shop.lease"),
    "another tool's schema_version": (
        "create table {s}.schema_version (version text, installed_by text);"
        "insert into {s}.schema_version values ('1.1', 'me')",
        "table schema_version that is not Holdfast's",
    ),
}  # fmt: skip


@pytest.mark.one_postgres
@pytest.mark.parametrize("what", MINE)
def test_what_the_application_made_is_not_replaced(store: PostgresStore, dsn: str, what: str) -> None:
    made, said = MINE[what]
    execute(dsn, made.format(s=SCHEMA))
    before = everything(dsn)
    with pytest.raises(NotMigrated) as refused:
        store.migrate()
    assert said in str(refused.value)
    assert "?schema=NAME" in str(refused.value)
    with pytest.raises(psycopg.errors.RaiseException, match="nothing was migrated") as printed:
        execute(dsn, migration_sql("postgres", SCHEMA))
    assert said in str(printed.value)
    assert everything(dsn) == before
    with pytest.raises(NotMigrated):
        store.check()


@pytest.mark.one_postgres
@pytest.mark.parametrize("signature", ["covers(text, text)", "covers(int)"])
def test_nor_when_it_came_after_the_first_migration(store: PostgresStore, dsn: str, signature: str) -> None:
    store.migrate()
    execute(
        dsn,
        f"update {SCHEMA}.schema_version set number = number - 1, functions = 'older',"
        f" made = array_remove(made, '{SCHEMA}.covers(text,text)');"
        f" create or replace function {SCHEMA}.{signature.replace('text,', 'p_pattern text, p_type')}"
        " returns boolean language sql as 'select true'",
    )
    before = everything(dsn)
    with pytest.raises(NotMigrated, match=r"did not make and needs the name of: function shop.covers"):
        store.migrate()
    with pytest.raises(psycopg.Error, match=r"did not make and needs the name of: function shop.covers"):
        execute(dsn, migration_sql("postgres", SCHEMA, migrate.latest("postgres")))
    assert everything(dsn) == before


@pytest.mark.parametrize(
    "made",
    [
        "create table holdfast_message (mine int)",
        "create view holdfast_queue as select 1 as mine",
        "create table t (n int); create index holdfast_dead_died on t (n)",
    ],
)
def test_nor_on_sqlite(sqlite_path: Path, made: str) -> None:
    with closing(sqlite3.connect(sqlite_path)) as db:
        db.executescript(made)
        before = db.execute("select * from sqlite_master").fetchall()
    store = SqliteStore(str(sqlite_path), Settings(), MovableClock())
    for verb in (store.migrate, store.check):
        with pytest.raises(NotMigrated, match=r"did not make and needs the name of: .*holdfast_"):
            verb()
    store.close()
    with closing(sqlite3.connect(sqlite_path)) as db:
        assert db.execute("select * from sqlite_master").fetchall() == before


# --- From every older version ---------------------------------------------------------------------------------------


def at_version(dsn: str, version: int) -> None:
    """A database as an older release left it: its steps, and every function that there ever was, with other results."""
    statements = [
        "set check_function_bodies = off",
        f"create table {SCHEMA}.schema_version (version int not null, functions text not null)",
        f"insert into {SCHEMA}.schema_version values ({version}, 'of an older release')",
    ]
    for number, text in migrate.steps("postgres"):
        if number <= version:
            statements += [migrate.in_schema(each, SCHEMA) for each in migrate.split(text)]
    triggers = ("receive()", "place_mine()", "record_death()")
    for signature in migrate.former(version, SCHEMA):
        if not signature.endswith(triggers):
            statements.append(f"create function {signature} returns date language sql as 'select null::date'")
    execute(dsn, "; ".join(statements))


@pytest.mark.parametrize(
    ("by", "version"), [*(("migrate", n) for n in range(1, migrate.NUMBERED)), ("script", 1), ("script", 6)]
)
def test_an_upgrade_replaces_what_older_releases_made_and_nothing_else(
    store: PostgresStore, dsn: str, by: str, version: int
) -> None:
    at_version(dsn, version)
    with pytest.raises(NotMigrated, match="run `holdfast migrate`"):
        store.check()
    if by == "migrate":
        assert store.migrate() == [number for number, _ in migrate.steps("postgres") if number > version]
    else:
        execute(dsn, migration_sql("postgres", SCHEMA, version))
    store.check()
    assert store.migrate() == []
    ours = {row[1] for row in schema_of(dsn, SCHEMA) if row[0] == "function"}
    assert ours == {"vat", *migrate.FUNCTION.findall(migrate.functions()[0])}
    assert ask(dsn, f"select count(*) from pg_proc where pronamespace = '{SCHEMA}'::regnamespace") == [
        (len(ours),)
    ]
    assert ask(dsn, f"select {SCHEMA}.vat(100)") == [(19,)]
    assert try_out(Box(store, store.clock, dsn)) == ["a", "b"]  # type: ignore[arg-type]


@pytest.mark.one_postgres
def test_a_name_that_a_later_step_gives_may_be_taken_by_the_application(
    store: PostgresStore, dsn: str
) -> None:
    at_version(dsn, 2)
    execute(dsn, f"create function {SCHEMA}.record_death() returns int language sql as 'select 1'")
    before = everything(dsn)
    with pytest.raises(NotMigrated, match=r"function shop.record_death"):
        store.migrate()
    assert everything(dsn) == before


# --- Releases side by side ------------------------------------------------------------------------------------------

OURS = Installed(7, "ours", 5, 3)


@pytest.mark.parametrize(
    ("found", "standing"),
    [
        (OURS, "same"),
        (Installed(0, ""), "behind"),
        (Installed(6, "ours"), "behind"),
        (Installed(7, "older", 4, 1), "behind"),
        (Installed(7, "other", 5, 3), "other"),
        (Installed(7, "newer", 6, 5), "compatible"),
        (Installed(8, "newer", 6, 5), "compatible"),
        (Installed(7, "newer", 6, 6), "ahead"),
        (Installed(8, "newer", 6, 6), "ahead"),
        (Installed(8, "ours", 5, 3), "ahead"),
    ],
)
def test_how_a_database_stands_to_a_release(found: Installed, standing: str) -> None:
    assert installed.compare(found, OURS) == standing


@pytest.mark.one_postgres
@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("compatible", [True, False])
def test_an_older_release_changes_nothing_and_starts_if_it_still_works(
    store: PostgresStore, dsn: str, version: int, compatible: bool
) -> None:
    store.migrate()
    number = migrate.release().number
    execute(
        dsn,
        f"update {SCHEMA}.schema_version set number = {number + 1}, functions = 'newer', version = version + {version},"
        f" compatible_from = {number if compatible else number + 1}",
    )
    before = everything(dsn)
    with pytest.raises(NotMigrated, match=r"Nothing was migrated.*install the newer release here"):
        store.migrate()
    with pytest.raises(psycopg.Error, match="nothing was migrated"):
        execute(dsn, migration_sql("postgres", SCHEMA, migrate.latest("postgres")))
    assert everything(dsn) == before
    if compatible:
        store.check()
        assert try_out(Box(store, store.clock, dsn)) == ["a", "b"]  # type: ignore[arg-type]
    else:
        with pytest.raises(NotMigrated, match=r"no longer works with this one.*install the newer release"):
            store.check()


@pytest.mark.one_postgres
def test_two_builds_with_one_number_do_not_replace_each_other(
    store: PostgresStore, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.migrate()
    before = everything(dsn)
    text, _ = migrate.functions()
    monkeypatch.setattr(
        migrate, "functions", lambda: (text.replace("order by 1", "order by 1 desc"), "0" * 16)
    )
    for verb in (store.migrate, store.check):
        with pytest.raises(NotMigrated, match="another text"):
            verb()
    assert everything(dsn) == before


def test_the_numbers_rise_and_the_last_one_is_that_of_the_functions_here() -> None:
    """Whoever changes a function or adds a step adds a line to store/functions/numbers.txt (CONTRIBUTING.md)."""
    numbers = installed.numbers()
    assert [each.number for each in numbers] == list(range(1, len(numbers) + 1))
    assert all(1 <= each.compatible_from <= each.number for each in numbers)
    assert all(
        a.compatible_from <= b.compatible_from and a.version <= b.version
        for a, b in itertools.pairwise(numbers)
    )
    last, here = numbers[-1], migrate.release()
    line = f"{last.number + 1} {last.compatible_from} {here.version} {here.digest}"
    assert (last.version, last.digest) == (here.version, here.digest), (
        f"the functions or the steps have changed: add the line `{line}` to store/functions/numbers.txt, "
        f"with {last.number + 1} in the second place too if older processes cannot work with them"
    )


# --- A row that is not there, and a path that is put back -------------------------------------------------------------


@pytest.mark.one_postgres
def test_a_row_that_was_not_restored_is_told(store: PostgresStore, dsn: str) -> None:
    store.migrate()
    execute(dsn, f"delete from {SCHEMA}.schema_version")
    for verb in (store.migrate, store.check):
        with pytest.raises(NotMigrated, match="schema_version is empty"):
            verb()


@pytest.mark.one_postgres
def test_a_script_for_another_version_is_refused(store: PostgresStore, dsn: str) -> None:
    store.migrate()
    before = everything(dsn)
    with pytest.raises(
        psycopg.Error,
        match=f"the database is at schema version {migrate.release().version}, and this script is for version 0",
    ):
        execute(dsn, migration_sql("postgres", SCHEMA))
    assert everything(dsn) == before


@pytest.mark.one_postgres
def test_a_script_leaves_the_search_path_as_it_was(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute('set search_path = shop, "Odd name", public')
        db.execute(migration_sql("postgres", SCHEMA).encode())
        assert db.execute("show search_path").fetchone() == ('shop, "Odd name", public',)
        assert db.execute("show check_function_bodies").fetchone() == ("on",)


def test_views_and_triggers_of_the_application_stay_on_sqlite(sqlite_path: Path) -> None:
    """Tables that are made anew were renamed before, and with them their names in views of others."""
    with closing(sqlite3.connect(sqlite_path, isolation_level=None)) as db:
        db.execute("create table holdfast_schema (version integer primary key, applied_at text not null)")
        for version, text in steps("sqlite"):
            if version <= 6:
                for statement in split(text):
                    db.execute(statement)
        db.execute("insert into holdfast_schema values (6, 'before')")
        db.execute(
            "create view my_dead as select d.id, x.died_at from holdfast_dead d join holdfast_death x using (id)"
        )
        db.execute("create table my_count (n)")
        db.execute(
            "create trigger my_trigger after insert on my_count begin insert into my_count"
            " select count(*) from holdfast_dead where new.n is null; end"
        )
        theirs = "select name, sql from sqlite_master where name like 'my_%' order by 1"
        before = db.execute(theirs).fetchall()
        store = SqliteStore(str(sqlite_path), Settings(), MovableClock())
        assert store.migrate()[0] == 7
        store.close()
        assert db.execute(theirs).fetchall() == before
        assert db.execute("select * from my_dead").fetchall() == []
        db.execute("insert into my_count values (null)")
