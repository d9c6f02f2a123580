"""Every statement in sql/ is one that the database itself accepts: PREPARE on each PostgreSQL, EXPLAIN on SQLite."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from holdfast.store import statement
from holdfast.store.text import Dialect, Text, compile, load, names
from tests.databases import migrated, migrated_file

STORE = Path(statement.__file__).parent
SQL = STORE / "sql"
# Files that are no statement alone: how the store puts them together.
COMPOSED = {
    "op_ended_find": ("op_ended_find", " where true", "op_subject"),
    "op_ended_late": ("op_ended_find", " where true", "op_ended_late"),
    "op_dead_groups": ("op_dead_found", " where true", "op_dead_text", ")", "op_dead_groups"),
    "op_find": ("op_delivery", "", "op_find"),
    "op_show": ("op_delivery", "", "op_show"),
    "op_poison": ("op_delivery", "", "op_find", "op_poison"),
    "op_stuck": ("op_delivery", "", "op_find", "op_stuck"),
}
PARTS = {name for parts in COMPOSED.values() for name in parts}


def statements(dialect: Dialect) -> dict[str, str]:
    """Every statement by name."""
    places = {each.partition("/")[2]: each for each in names(dialect)}
    assert PARTS - {"", " where true", ")"} <= places.keys()
    whole = {name: load(dialect, (place,)) for name, place in places.items() if name not in PARTS}
    for name, parts in COMPOSED.items():
        whole[name] = load(dialect, tuple(places.get(part) or Text(part) for part in parts))
    return whole


def test_each_statement_has_one_name_and_stands_with_the_plans_that_use_it() -> None:
    everywhere = {*names("sqlite"), *names("postgres")}
    assert len({each.partition("/")[2] for each in everywhere}) == len(everywhere)
    folders = {each.partition("/")[0] for each in everywhere}
    assert folders - {file.stem for file in (STORE / "plans").glob("*.py")} == {"given", "migrate"}


def test_what_is_written_once_has_no_twin() -> None:
    for file in SQL.rglob("*.sql"):
        name, *only, _ = file.name.split(".")
        twins = [file.with_name(f"{name}.{dialect}.sql").exists() for dialect in ("sqlite", "postgres")]
        assert any(twins) if only else not any(twins), file.name


def test_postgresql_prepares_every_statement(postgres_version: str, tmp_path: Path) -> None:
    """A syntax, function or type that one version does not have is found here, also where no other test goes."""
    refused = []
    with psycopg.connect(migrated(postgres_version, tmp_path), autocommit=True) as db:
        for name, text in statements("postgres").items():
            try:
                db.execute(f"prepare {name} as {compile(text, 'numeric').sql}".encode())
            except psycopg.Error as error:
                refused.append(f"{name}: {error}")
        ((count,),) = db.execute("select count(*) from pg_prepared_statements").fetchall()
    assert refused == []
    assert count == len(statements("postgres")) > 100


@pytest.mark.parametrize("name", ["message", "nothing_like_it"])
def test_a_statement_that_is_wrong_is_refused(postgres_version: str, tmp_path: Path, name: str) -> None:
    """PREPARE looks for tables and columns: what passes above was really looked at."""
    with psycopg.connect(migrated(postgres_version, tmp_path), autocommit=True) as db:
        ask = f"prepare {name} as select count(*) from holdfast.{name} where queue = $1".encode()
        if name == "message":
            db.execute(ask)
        else:
            with pytest.raises(psycopg.errors.UndefinedTable):
                db.execute(ask)


def test_sqlite_explains_every_statement(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.db"
    file.write_bytes(migrated_file())
    refused = []
    with closing(sqlite3.connect(file)) as db:
        for name, text in statements("sqlite").items():
            compiled = compile(text, "named")
            try:
                db.execute(f"explain {compiled.sql}", dict.fromkeys(compiled.names)).fetchall()
            except sqlite3.Error as error:
                refused.append(f"{name}: {error}")
    assert refused == []
