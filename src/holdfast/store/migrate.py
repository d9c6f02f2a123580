"""Numbered migrations, forward only, that any number of processes may run at once.

A step is one file for each database. PostgreSQL's functions are installed anew whenever their text
changed; they carry no data. The version that a database has reached is a row of its own.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files

from ..errors import NotMigrated
from .statement import DEFAULT_SCHEMA, TOKEN, Dialect, Plan, Statement, in_schema

DROP_FUNCTIONS = """
do $$
declare f record;
begin
    for f in select p.oid::regprocedure as name from pg_proc p
              where p.pronamespace = (select c.relnamespace from pg_class c where c.oid = 'holdfast.message'::regclass)
                and p.prorettype <> 'trigger'::regtype
    loop
        execute 'drop function ' || f.name;
    end loop;
end
$$
"""
STEP = re.compile(r"(\d{4})_\w+\.(sqlite|postgres)\.sql")


def steps(dialect: Dialect) -> list[tuple[int, str]]:
    """The migrations of a database as (version, SQL), in order."""
    found = []
    for file in files("holdfast").joinpath("store", "migrations").iterdir():
        match = STEP.fullmatch(file.name)
        if match and match[2] == dialect:
            found.append((int(match[1]), file.read_text(encoding="utf-8")))
    return sorted(found)


@lru_cache(maxsize=8)
def functions() -> tuple[str, str]:
    """The text of all PostgreSQL functions, and its digest."""
    folder = files("holdfast").joinpath("store", "functions")
    texts = [file.read_text(encoding="utf-8") for file in sorted(folder.iterdir(), key=lambda f: f.name)]
    text = "\n".join(texts)
    return text, hashlib.sha256(text.encode()).hexdigest()[:16]


def latest(dialect: Dialect) -> int:
    return steps(dialect)[-1][0]


def migrate(dialect: Dialect, schema: str = DEFAULT_SCHEMA) -> Plan[list[int]]:
    """Bring the database to the latest version; the answer lists the steps taken (-1: functions only)."""
    if dialect == "sqlite":
        return (yield from _migrate_sqlite())
    return (yield from _migrate_postgres(schema))


def _migrate_sqlite() -> Plan[list[int]]:
    yield Statement(
        "create table if not exists holdfast_schema (version integer primary key, applied_at text not null)"
    )
    ((reached,),) = yield Statement("select coalesce(max(version), 0) from holdfast_schema")
    check_not_newer("sqlite", reached)
    taken = []
    for version, text in steps("sqlite"):
        if version > reached:
            for statement in split(text):
                yield Statement(statement)
            yield Statement(
                "insert into holdfast_schema (version, applied_at) values (:version, datetime('now'))",
                {"version": version},
            )
            taken.append(version)
    return taken


def _migrate_postgres(schema: str) -> Plan[list[int]]:
    # The lock makes a second migrator wait for the first and then find nothing to do.
    yield Statement("select pg_advisory_xact_lock(hashtext(:name))", {"name": f"{schema} migrate"})
    ((present,),) = yield Statement(
        "select to_regclass(:name) is not null", {"name": f"{schema}.schema_version"}
    )
    reached, digest = 0, ""
    if present:
        rows = yield Statement(in_schema("select version, functions from holdfast.schema_version", schema))
        reached, digest = rows[0]
    check_not_newer("postgres", reached)
    taken = []
    yield Statement("set local check_function_bodies = off")
    yield Statement("set local statement_timeout = 0")  # an index of a large backlog takes its time
    for statement in _postgres_statements(schema, reached, digest):
        yield Statement(statement)
    for version, _ in steps("postgres"):
        if version > reached:
            taken.append(version)
    if not taken and digest != functions()[1]:
        taken = [-1]
    return taken


def _postgres_statements(schema: str, reached: int, digest: str) -> Iterator[str]:
    if reached == latest("postgres") and digest == functions()[1]:
        return
    if reached == 0:
        yield f"create schema if not exists {in_schema('holdfast.', schema)[:-1]}"
        yield in_schema(
            "create table holdfast.schema_version (version int not null, functions text not null)", schema
        )
        yield in_schema("insert into holdfast.schema_version values (0, '')", schema)
    for version, text in steps("postgres"):
        if version > reached:
            yield from (in_schema(statement, schema) for statement in split(text))
            yield in_schema(f"update holdfast.schema_version set version = {version}", schema)  # noqa: S608 - an int
    text, current = functions()
    if digest != current:
        # A function with other parameters would stand beside the old one of its name, and calls be ambiguous.
        yield in_schema(DROP_FUNCTIONS, schema)
        yield from (in_schema(statement, schema) for statement in split(text))
        yield in_schema(f"update holdfast.schema_version set functions = '{current}'", schema)  # noqa: S608 - a digest


def check_not_newer(dialect: Dialect, reached: int) -> None:
    if reached > latest(dialect):
        raise NotMigrated(
            f"The database is at schema version {reached} and this Holdfast knows only {latest(dialect)}: "
            "install the newer release; a downgrade is not possible."
        )


def migration_sql(dialect: Dialect, schema: str = DEFAULT_SCHEMA, since: int = 0) -> str:
    """What `migrate` would run, as one script for those who use Alembic, Django migrations or psql."""
    if dialect == "postgres":
        # Not `set local`: psql commits each statement by itself.
        whole = [
            "set check_function_bodies = off",
            *_postgres_statements(schema, since, ""),
            "reset check_function_bodies",
        ]
        return ";\n".join(whole) + ";\n"
    lines = [
        "create table if not exists holdfast_schema (version integer primary key, applied_at text not null)"
    ]
    for version, text in steps("sqlite"):
        if version > since:
            lines += split(text)
            lines.append(
                f"insert into holdfast_schema (version, applied_at) values ({version}, datetime('now'))"  # noqa: S608
            )
    return ";\n".join(lines) + ";\n"


def split(text: str) -> list[str]:
    """The statements of a script. Semicolons in quotes, comments and bodies of functions and triggers do not count."""
    statements, start, depth = [], 0, 0
    for token in TOKEN.finditer(text):
        if token["begin"]:
            depth += 1
        elif token["end"]:
            depth = max(0, depth - 1)
        elif token["semicolon"] and depth == 0:
            statements.append(text[start : token.start()])
            start = token.end()
    statements.append(text[start:])
    return [s.strip() for s in statements if re.sub(r"--[^\n]*", "", s).strip()]
