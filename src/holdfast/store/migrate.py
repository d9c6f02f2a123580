"""Numbered migrations, forward only, that any number of processes may run at once.

A step is one file for each database. PostgreSQL's functions are installed again whenever their number
rose; they carry no data. The version that a database has reached is a row of its own, with the installed functions
(installed.py). A migration changes only what migrations made: a foreign object with a name that it needs stops it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.resources import files

from ..errors import NotMigrated, Refused
from . import grants, installed
from .installed import Installed
from .scripts import CREATED, FUNCTION, array, functions, part, quoted, split, steps, written
from .statement import Plan, Statement
from .text import DEFAULT_SCHEMA, Dialect, in_schema, load

NUMBERED = 7  # the schema version from which on a database knows its functions
PATH = "pg_catalog, pg_temp"
VERSION, FOREIGN = ("migrate/op_version",), ("migrate/migrate_foreign",)


def latest(dialect: Dialect) -> int:
    return steps(dialect)[-1][0]


def release() -> Installed:
    """The version and the functions that this release brings to PostgreSQL."""
    current = installed.numbers()[-1]
    return Installed(latest("postgres"), functions()[1], current.number, current.compatible_from)


def former(reached: int, schema: str) -> list[str]:
    """The functions that migrations had made in a database that does not know them itself."""
    if not 0 < reached < NUMBERED:
        return []
    text = files("holdfast").joinpath("store", "functions", "former.txt").read_text(encoding="utf-8")
    to_come = {
        name for version, text in steps("postgres") if version > reached for name in FUNCTION.findall(text)
    }
    lines = [line for line in text.splitlines() if line.startswith("holdfast.")]
    return [
        in_schema(line, schema) for line in lines if line[len("holdfast.") : line.index("(")] not in to_come
    ]


def names(dialect: Dialect, reached: int) -> list[str]:
    """The names that the steps to come give to tables, indexes and the like, and that no earlier one gave."""
    given = {name for version, text in steps(dialect) if version <= reached for name in CREATED.findall(text)}
    return [
        name
        for version, text in steps(dialect)
        if version > reached
        for name in CREATED.findall(text)
        if name not in given
    ]


def migrate(dialect: Dialect, schema: str = DEFAULT_SCHEMA) -> Plan[list[int]]:
    """Migrate the database to the latest version; returns the steps taken (-1: functions only)."""
    if dialect == "sqlite":
        return (yield from _migrate_sqlite())
    return (yield from _migrate_postgres(schema))


def _migrate_sqlite() -> Plan[list[int]]:
    yield Statement(
        "create table if not exists holdfast_schema (version integer primary key, applied_at text not null)"
    )
    ((reached,),) = yield Statement("select coalesce(max(version), 0) from holdfast_schema")
    check_not_newer("sqlite", reached)
    to_come = set(names("sqlite", reached))
    present = yield Statement("select type || ' ' || name, name from sqlite_master order by 1")
    refuse_foreign(
        [found for found, name in present if name in to_come],
        "The file",
        "Rename it, or give Holdfast a file of its own",
    )
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
    yield Statement(f"set local search_path = {PATH}")  # so that names mean the system's functions and types
    # The lock makes a second migrator wait for the first and then find nothing to do.
    yield Statement("select pg_advisory_xact_lock(hashtext(:name))", {"name": f"{schema} migrate"})
    ((present,),) = yield Statement(
        "select to_regclass(:name) is not null", {"name": f"{schema}.schema_version"}
    )
    found = Installed(0, "")
    if present:
        found = installed.read((yield Statement(load("postgres", VERSION, schema))), schema)
    installed.check_migration(found, release())
    if installed.compare(found, release()) == "same":
        return []
    made = [*found.made, *former(found.version, schema)]
    foreign = yield Statement(
        load("postgres", FOREIGN),
        {
            "schema": schema,
            "functions": FUNCTION.findall(functions()[0]),
            "made": made,
            "names": [*names("postgres", found.version), *(() if present else ("schema_version",))],
        },
    )
    refuse_foreign(
        [text for (text,) in foreign],
        f"Schema {schema}",
        "Rename it, or choose another schema for Holdfast with ?schema=NAME in the URL",
    )
    yield Statement("set local check_function_bodies = off")
    yield Statement("set local statement_timeout = 0")  # an index of a large backlog takes its time
    for statement in _postgres_statements(schema, found.version):
        yield Statement(statement)
    return [version for version, _ in steps("postgres") if version > found.version] or [-1]


def drop_schema(schema: str) -> Plan[None]:
    """Remove a schema with all that is in it. Refused for the default one, which a test never makes."""
    if schema == DEFAULT_SCHEMA:
        raise Refused(f"Schema {schema} is not dropped: only schemas that a test made are.")
    yield Statement("set local statement_timeout = 0")
    yield Statement(f"drop schema if exists {in_schema('holdfast.', schema)[:-1]} cascade")


def refuse_foreign(found: Sequence[str], where: str, remedy: str) -> None:
    if found:
        more = f" and {len(found) - 5} more" if len(found) > 5 else ""
        raise NotMigrated(
            f"Nothing was migrated. {where} holds what Holdfast did not make and needs the name of: "
            f"{', '.join(found[:5])}{more}. {remedy}."
        )


def _postgres_statements(schema: str, reached: int) -> Iterator[str]:
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
    text, ours = functions()[0], release()
    yield part("drop_functions", schema, former=array(former(reached, schema)))
    yield from (in_schema(statement, schema) for statement in split(text))
    yield part(
        "remember_functions",
        schema,
        digest=quoted(ours.digest),
        number=str(ours.number),
        compatible_from=str(ours.compatible_from),
        functions=array(FUNCTION.findall(text)),
    )
    yield grants.again(schema)


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
            part("script_begin", schema),
            "set check_function_bodies = off",
            *_script_guards(schema, since),
            *_postgres_statements(schema, since),
            "reset check_function_bodies",
            part("script_end", schema),
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


def _script_guards(schema: str, since: int) -> Iterator[str]:
    """The checks of `migrate` before it begins, as statements that fail."""
    ours = release()
    yield part("script_guard", schema, since=str(since), number=str(ours.number), digest=quoted(ours.digest))
    if since < NUMBERED:
        made = array(former(since, schema))
    else:
        made = in_schema("(select v.made from holdfast.schema_version v)", schema)
    values = {
        "schema": quoted(schema),
        "functions": array(FUNCTION.findall(functions()[0])),
        "made": made,
        "names": array([*names("postgres", since), *(() if since else ("schema_version",))]),
    }
    yield part("script_refuse", schema, question=written(load("postgres", FOREIGN), values))
