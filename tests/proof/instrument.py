"""PostgreSQL functions that stop where their source says `-- step: name`.

`install` puts a copy of the engine's functions into a database in which every such comment has become a call of
`proof.pause`. A session that has set `proof.session` to a number tells its client the name of the point (a NOTICE is
sent at once) and then waits for an advisory lock, (session, how many pauses it had so far). Whoever holds these locks
decides when it goes on. Sessions without the setting pass by.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg

from holdfast.store import migrate

STEP = re.compile(r"-- step: (\w+)")
PAUSES = 60  # that one session may reach in one schedule
NOTICE = re.compile(r"proof:(\w+):(\d+)")

SUPPORT = """
create schema if not exists proof;
create table if not exists proof.effect (message uuid not null, by text not null);
create table if not exists proof.business (name text primary key, version int not null);
create or replace function proof.pause(p_name text) returns void language plpgsql as $$
declare
    v_session text := coalesce(current_setting('proof.session', true), '');
    v_number int;
begin
    if v_session = '' or p_name = any (string_to_array(current_setting('proof.passed', true), ',')) then
        return;
    end if;
    v_number := nextval(('proof.pause_' || v_session)::regclass);
    raise notice 'proof:%:%', p_name, v_number;
    perform pg_advisory_xact_lock_shared(v_session::int, v_number);
end
$$
"""


def points(name: str | None = None) -> list[str]:
    """The named points of all functions, or of one."""
    return STEP.findall(migrate.functions()[0]) if name is None else STEP.findall(function_source(name))


def function_source(name: str) -> str:
    return (Path(migrate.__file__).parent / "functions" / f"{name}.sql").read_text()


def instrumented() -> list[str]:
    text = STEP.sub(lambda found: f"perform proof.pause('{found[1]}');", migrate.functions()[0])
    return migrate.split(text)


def install(connection: psycopg.Connection[Any], sessions: int = 3) -> None:
    """Into a database that has been migrated; `connection` commits by itself."""
    with connection.transaction():
        connection.execute(SUPPORT)
        for number in range(1, sessions + 1):
            connection.execute(f"create sequence if not exists proof.pause_{number}".encode())
        connection.execute("set local check_function_bodies = off")
        for statement in instrumented():
            connection.execute(statement.encode())
