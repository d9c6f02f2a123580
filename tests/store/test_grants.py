"""Who may do what (S32): the matrix of roles and rights, what each role can do with it, and that migrations keep it.

On PostgreSQL 15 a deferred trigger runs as whoever commits, on 18 as whoever inserted. Both come by here.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, LiteralString, cast
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg
import pytest

from holdfast import Context, Flow, Holdfast, IdTaken, InstanceExists, VersionConflict
from holdfast.errors import InvalidSettings, NotPermitted
from holdfast.requests import verbs
from holdfast.store.grants import COLUMNS, PRODUCES, identifier, script, sequences, tables
from holdfast.store.plans import requests
from holdfast.store.scripts import FUNCTION, functions

pytestmark = [pytest.mark.covers("X63")]

RIGHTS = ("select", "insert", "update", "delete", "truncate", "references", "trigger")
KINDS = ("owner", "worker", "producer", "viewer", "stranger")


QUESTIONS: tuple[LiteralString, ...] = (
    """select 'holdfast.' || c.relname || ' ' || r from pg_class c cross join unnest(%(rights)s::text[]) r
        where c.relnamespace = 'holdfast'::regnamespace and c.relkind = 'r'
          and has_table_privilege(%(role)s, c.oid, r)""",
    """select 'column ' || a.attname || ' ' || r
         from pg_attribute a cross join unnest('{select,insert,update}'::text[]) r
        where a.attrelid = 'holdfast.message'::regclass and a.attnum > 0
          and has_column_privilege(%(role)s, a.attrelid, a.attnum, r)""",
    """select 'holdfast.' || c.relname || ' ' || r from pg_class c cross join unnest('{usage,select,update}'::text[]) r
        where c.relnamespace = 'holdfast'::regnamespace and c.relkind = 'S'
          and has_sequence_privilege(%(role)s, c.oid, r)""",
    """select 'execute ' || p.proname from pg_proc p
        where p.pronamespace = 'holdfast'::regnamespace and has_function_privilege(%(role)s, p.oid, 'execute')""",
)


@dataclass
class Roles:
    """A migrated database with all roles in it, each of which may log in."""

    dsn: str
    suffix: str

    def name(self, kind: str) -> str:
        return f"hf_{kind}_{self.suffix}"

    def url(self, kind: str) -> str:
        parts = urlsplit(self.dsn)
        return urlunsplit(parts._replace(netloc=f"{self.name(kind)}@{parts.netloc.rpartition('@')[2]}"))

    def run(self, text: str, kind: str | None = None) -> list[Any]:
        url = self.dsn if kind is None else self.url(kind)
        with psycopg.connect(url, autocommit=True) as db:
            found = db.execute(cast(LiteralString, text))
            return found.fetchall() if found.description else []

    def script(self) -> str:
        named = {kind: self.name(kind) for kind in ("worker", "producer", "viewer")}
        return script(named, self.name("owner"))  # type: ignore[arg-type]

    def matrix(self) -> dict[str, set[str]]:
        """All that each role may do with what is in the schema."""
        found: dict[str, set[str]] = {kind: set() for kind in KINDS}
        with psycopg.connect(self.dsn) as db:
            for kind in KINDS:
                for question in QUESTIONS:
                    rows = db.execute(question, {"role": self.name(kind), "rights": list(RIGHTS)})
                    found[kind] |= {text for (text,) in rows}
        return found


@pytest.fixture
def roles(postgres_dsn: str) -> Iterator[Roles]:
    made = Roles(postgres_dsn, secrets.token_hex(4))
    app = Holdfast(postgres_dsn)
    app.migrate()
    app.close()
    for kind in KINDS:
        made.run(f"create role {made.name(kind)} login")
    try:
        made.run(made.script())
        yield made
    finally:
        for kind in KINDS:
            made.run(f"reassign owned by {made.name(kind)} to current_user; drop owned by {made.name(kind)}")
            made.run(f"drop role {made.name(kind)}")


def expected() -> dict[str, set[str]]:
    ours = [f"holdfast.{name}" for name in tables()]
    written = [name for name in ours if name != "holdfast.schema_version"]
    numbers = [f"holdfast.{name}" for name in sequences()]
    every = {f"execute {name}" for name in FUNCTION.findall(functions()[0])}
    columns = {f"column {name} {right}" for name in MESSAGE for right in ("select", "insert", "update")}
    return {
        "owner": {f"{name} {right}" for name in ours for right in RIGHTS}
        | {f"{name} {right}" for name in numbers for right in ("usage", "select", "update")}
        | every
        | columns,
        "worker": {
            f"{name} {right}" for name in written for right in ("select", "insert", "update", "delete")
        }
        | {"holdfast.schema_version select"}
        | {f"{name} {right}" for name in numbers for right in ("usage", "select", "update")}
        | every
        | columns,
        "producer": {
            f"holdfast.{name} select" for name in ("queue", "rename", "subscription", "schema_version")
        }
        | {f"column {name} insert" for name in COLUMNS}
        | {f"execute {name}" for name in PRODUCES},
        "viewer": {f"{name} select" for name in [*ours, *numbers]}
        | {f"column {name} select" for name in MESSAGE},
        "stranger": set(),
    }


MESSAGE = (
    "seq", "position", "claimable_at", "created_at", "due_at", "deadline", "id", "xact", "status", "epoch", "attempts",
    "failures", "vanished", "refunds", "redrives", "reason", "head", "queue", "type", "stream", "subject", "dedupe",
    "target", "traceback",
    "errors", "headers", "body", "plain",
)  # fmt: skip


def test_the_matrix(roles: Roles) -> None:
    found = roles.matrix()
    for kind, rights in expected().items():
        assert found[kind] == rights, kind


def test_a_migration_that_makes_functions_anew_keeps_it(roles: Roles) -> None:
    """Also one that brings a table, here one that was taken away; and it is the owner who migrates."""
    before = roles.matrix()
    roles.run("update holdfast.schema_version set number = number - 1, functions = 'others'")
    roles.run(f"revoke all on holdfast.slot from {roles.name('worker')}, {roles.name('viewer')}")
    roles.run("grant execute on function holdfast.exchange to public")
    app = Holdfast(roles.url("owner"))
    assert app.migrate() == [-1]
    app.close()
    assert roles.matrix() == before


def test_the_script_may_be_run_again_and_takes_what_is_not_theirs(roles: Roles) -> None:
    before = roles.matrix()
    roles.run(
        f"grant all on all tables in schema holdfast to {roles.name('producer')}, {roles.name('viewer')}"
    )
    roles.run(f"grant select (body) on holdfast.message to {roles.name('producer')}")
    roles.run(f"grant all on all functions in schema holdfast to {roles.name('viewer')}")
    roles.run(roles.script())
    assert roles.matrix() == before


def test_rights_given_by_hand_before_there_were_scripts_go_on(roles: Roles) -> None:
    """Whoever had rights on tables could call all functions; now he must be given them."""
    hand = roles.name("stranger")
    roles.run(
        f"grant usage on schema holdfast to {hand}; grant insert (type, body, stream) on holdfast.message to {hand}"
    )
    roles.run("update holdfast.schema_version set number = number - 1, functions = 'others'")
    app = Holdfast(roles.url("owner"))
    app.migrate()
    app.close()
    found = roles.matrix()
    assert {each for each in found["stranger"] if each.startswith("execute")} == {
        f"execute {each}" for each in PRODUCES
    }


def test_one_who_may_read_a_table_does_not_become_a_viewer(roles: Roles) -> None:
    hand = roles.name("stranger")
    roles.run(f"grant usage on schema holdfast to {hand}; grant select on holdfast.message to {hand}")
    roles.run("update holdfast.schema_version set number = number - 1, functions = 'others'")
    app = Holdfast(roles.url("owner"))
    app.migrate()
    app.close()
    assert {each for each in roles.matrix()["stranger"] if not each.startswith("column")} == {
        "holdfast.message select"
    }


# --- What they can do with it -----------------------------------------------------------------------------------------


def shop(url: str) -> tuple[Holdfast, list[str]]:
    app, done = Holdfast(url, retry="immediate"), list[str]()

    @app.handler("order.placed", "late")
    async def receipt(order: dict[str, Any], ctx: Context) -> None:
        ctx.publish("receipt.sent", {}, stream="r")
        async with ctx.transaction() as db:
            await db.execute("select 1")
        done.append(str(order["n"]))

    @app.handler("receipt.sent", ordered=False)
    async def filed(receipt: dict[str, Any]) -> None: ...

    @app.handler("order.bad")
    async def bad(order: dict[str, Any]) -> None:
        raise ValueError("no")

    return app, done


@pytest.fixture
def subscribed(roles: Roles) -> Roles:
    app, _ = shop(roles.url("worker"))
    app.prepare()
    app.close()
    return roles


def test_a_producer_publishes_in_every_way(subscribed: Roles) -> None:
    """Also an application that has handlers of its own, whose subscriptions are stored already."""
    app, _ = shop(subscribed.url("producer"))
    own = uuid4()
    app.publish("order.placed", {"n": 1})
    app.publish("order.placed", {"n": 2}, stream="s")
    app.publish("order.placed", {"n": 3}, stream="s", dedupe="k")
    assert app.publish("order.placed", {"n": 3}, stream="s", dedupe="k").duplicate
    app.publish("order.placed", {"n": 4}, id=own)
    with pytest.raises(IdTaken):
        app.publish("order.placed", {"n": 4}, id=own)
    app.publish("order.placed", {"n": 5}, stream="e", event=True, expect=0)
    with pytest.raises(VersionConflict):
        app.publish("order.placed", {"n": 5}, stream="e", event=True, expect=0)
    app.publish("late", {"n": 6}, delay=0.01, stream="t")
    app.publish_many([app.message("order.placed", {"n": n}) for n in (7, 8)])
    app.publish("nobody.knows", {})
    with psycopg.connect(subscribed.url("producer")) as db:
        app.publish("order.placed", {"n": 9}, on=db, stream="s")
        app.publish("order.placed", {"n": 10}, on=db, stream="s")
    with psycopg.connect(subscribed.url("producer")) as db:
        app.publish("order.placed", {"n": 11}, on=db, stream="s")
        db.execute(
            "insert into holdfast.message (type, body, stream) values ('order.placed', '{\"n\": 12}', 's')"
        )
        db.execute(
            "insert into holdfast.message (type, body, queue) values ('order.placed', '{\"n\": 13}', 'receipt')"
        )
    app.close()
    worker, done = shop(subscribed.url("worker"))
    drain(worker)
    assert sorted(done, key=int) == [str(n) for n in range(1, 14)]
    assert [n for n in done if n in ("2", "3", "9", "10", "11", "12")] == ["2", "3", "9", "10", "11", "12"]
    worker.close()


def drain(app: Holdfast) -> None:
    async def run() -> None:
        for _ in range(20):
            await app.worker(until_idle=True).run()
            if not any(each.queue for each in app.operations.messages.find()):
                return
            await asyncio.sleep(0.02)

    asyncio.run(run())


FORBIDDEN = [
    "select * from holdfast.message",
    "select id from holdfast.message",
    "select count(*) from holdfast.dead",
    "update holdfast.message set body = '{}'",
    "update holdfast.message set claimable_at = 'infinity'",
    "delete from holdfast.message",
    "delete from holdfast.lease",
    "truncate holdfast.message",
    "begin; lock table holdfast.message in share mode; commit",
    "insert into holdfast.message (type, body, plain) values ('order.placed', '{}', null)",
    "insert into holdfast.message (type, body, status) values ('order.placed', '{}', 3)",
    "insert into holdfast.message (type, body, seq) values ('order.placed', '{}', 1)",
    "insert into holdfast.message (type, body) values ('order.placed', '{}') returning body",
    "insert into holdfast.message (type, body) values ('t', '{}') on conflict (id, queue) do update set body = '{}'",
    "insert into holdfast.subscription (pattern, queue) values ('*', 'mine')",
    "insert into holdfast.dead (id) values (null)",
    "select nextval('holdfast.position')",
    "select setval('holdfast.position', 1)",
    "select holdfast.adopt(1, null)",
    "select holdfast.place(pg_current_xact_id(), now())",
    "select holdfast.recover(1, '{}', '{}', '{}', 1, null)",
    "select * from holdfast.renew(1, '{}', '{}', 1, null)",
    "select holdfast.dead_number(gen_random_uuid(), 'q', 1)",
    "select holdfast.dedupe_new('{}', '{}', '{}', '{}')",
    "create table holdfast.mine (a int)",
    "create function holdfast.mine() returns int language sql as 'select 1'",
    "alter table holdfast.message disable trigger all",
    "drop function holdfast.refuse()",
]


def test_a_producer_starts_signals_and_cancels_orchestrations(roles: Roles) -> None:
    """In its own transaction, too; a worker's role runs them. It sees neither journals nor results."""

    def shop_of(kind: str) -> tuple[Holdfast, Any]:
        app = Holdfast(roles.url(kind))

        @app.orchestration()
        async def waits(flow: Flow) -> str:
            return await flow.signal("word", str)

        return app, waits

    app, _ = shop_of("worker")
    app.prepare()
    low, started = shop_of("producer")
    low.orchestrations.signal("one", "word", "early")
    low.orchestrations.start(started, id="one", attributes={"customer": "17"})
    with psycopg.connect(roles.url("producer")) as db:
        low.orchestrations.start(started, id="two", on=db)
        low.orchestrations.signal("two", "word", "mine", on=db)
    low.orchestrations.start(started, id="three")
    with pytest.raises(InstanceExists):
        low.orchestrations.start(started, id="one")
    low.orchestrations.cancel("three", "no")
    for text in (
        "select holdfast.start_orchestration('waits@1', id => 'four')",
        "select holdfast.signal_orchestration('four', 'word', '\"by SQL\"')",
        "select holdfast.start_orchestration('waits@1', id => 'five')",
        "select holdfast.cancel_orchestration('five', 'no')",
    ):
        roles.run(text, "producer")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        roles.run(
            "select holdfast.tell_instance('four', 'waits@1', gen_random_uuid(), 'x', '1', null)", "producer"
        )
    for text in (
        "select * from holdfast.instance", "select * from holdfast.journal", "delete from holdfast.instance",
        "update holdfast.instance set state = 'completed'", "insert into holdfast.journal values ('x', 0, 1, 0, 'x')",
    ):  # fmt: skip
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            roles.run(text, "producer")
    low.close()
    for _ in range(2):
        drain(app)
    assert app.orchestrations.result("two") == "mine"
    assert app.orchestrations.result("four") == "by SQL"
    assert app.orchestrations.status("five").state == "cancelled"
    assert app.orchestrations.status("three").state == "cancelled"
    assert app.orchestrations.status("one").attributes == {"customer": "17"}
    app.orchestrations.place.memory.forget()
    app.close()


@pytest.mark.one_postgres
def test_a_producer_asks_and_answers_requests(roles: Roles) -> None:
    """In its own transaction, too; it sees neither bodies nor results. What it stores by hand stops no worker."""

    def school_of(kind: str) -> tuple[Holdfast, Any, list[str]]:
        app, heard = Holdfast(roles.url(kind)), list[str]()
        grading = app.request_kind("grading", sla=60)
        grading.completed(lambda request: heard.append("completed"))
        grading.failed(lambda request: heard.append("failed"))
        return app, grading, heard

    app, _, heard = school_of("worker")
    app.prepare()
    low, grading, _ = school_of("producer")
    first = low.request(grading, 1).id
    with psycopg.connect(roles.url("producer")) as db:
        second = low.request(grading, 2, on=db).id
        low.resolve(second, 2, on=db)
    low.requests.extend(first, 60)
    low.requests.cancel(first)
    early = low.requests.arrival(uuid4(), 1, None, source=uuid4())
    app.store.run(verbs.resolve([early], app.requests.pen, keeps_early=True))
    low.request(grading, 3, id=early.request)
    for text in (
        "select * from holdfast.request", "select * from holdfast.request_result", "delete from holdfast.request",
        "update holdfast.request set state = 'completed'",
    ):  # fmt: skip
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            roles.run(text, "producer")
    opened = f"select holdfast.request_open('{uuid4()}', 'grading', null, null, null, null, '1', now(), "
    for times in ("'infinity', null, now())", "now() + interval '1 hour', null, '-infinity')"):
        with pytest.raises(psycopg.errors.CheckViolation):
            roles.run(opened + times, "producer")
    odd = uuid4()  # it is due long before it has anything to do
    by_hand = f"select holdfast.request_open('{odd}', 'grading', null, null, null, null, 'no json', now(), "
    roles.run(by_hand + "now() + interval '1 hour', null, now() - interval '1 hour')", "producer")
    for _ in range(2):
        asyncio.run(app.worker(until_idle=True).run())
    assert sorted(heard) == ["completed", "completed", "failed"]
    (following,) = [each for each in app.operations.requests.list(state="open") if each.id == odd]
    now, due = app.store.read(requests.next_due())
    assert due == following.deadline
    assert due > now
    low.close()
    app.close()


def test_a_producer_can_neither_see_nor_change_anything(subscribed: Roles) -> None:
    """The defect sec_producer_rights."""
    app, _ = shop(subscribed.url("worker"))
    app.publish("order.placed", {"card": "4111"}, stream="s")
    before = subscribed.run("select m::text from holdfast.message m")
    for text in FORBIDDEN:
        with pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.WrongObjectType)):
            subscribed.run(text, "producer")
    assert subscribed.run("select m::text from holdfast.message m") == before
    app.close()


def test_a_viewer_sees_and_a_stranger_does_not(subscribed: Roles) -> None:
    app, _ = shop(subscribed.url("worker"))
    app.publish("order.bad", {"n": 1})
    app.publish("order.placed", {"n": 2}, stream="s", delay=3600)
    asyncio.run(app.worker(until_idle=True).run())
    view = Holdfast(subscribed.url("viewer")).operations
    assert view.status().dead == 1
    assert [each.name for each in view.doctor() if each.severity == "error"] in (
        [],
        ["fsync", "full_page_writes"],
    )
    ((letter, content),) = view.dead.show(view.dead.list()[0].id)
    assert (letter.queue, content.body) == ("bad", '{"n":1}')
    (pending,) = [each for each in view.messages.find() if each.queue]
    assert view.why(pending.id)
    assert view.audit() == []
    with pytest.raises(NotPermitted, match="`holdfast grants`"):
        view.dead.redrive(letter.id)
    with pytest.raises(NotPermitted):
        Holdfast(subscribed.url("viewer")).publish("order.placed", {})
    with pytest.raises(NotPermitted, match="permission denied for schema"):
        Holdfast(subscribed.url("stranger")).publish("order.placed", {})
    app.close()


def test_what_a_producer_calls_by_hand_stops_no_worker(subscribed: Roles) -> None:
    """The functions do not check as a plain INSERT is checked: what no handler can read becomes a dead letter."""
    hostile = [
        "select holdfast.append_one(gen_random_uuid(), 'order.placed', 'no json', 's1', null, null, null)",
        "select holdfast.append_one(gen_random_uuid(), 'order.placed', '{}', 's2', null, 'no headers', null)",
        "select holdfast.append_one(gen_random_uuid(), 'order.placed', '{}', repeat('s', 2000), null, null, null)",
        "select holdfast.append_one(gen_random_uuid(), 'order.placed', '{}', null, null, null, '-infinity')",
        "select holdfast.append_plain(array[gen_random_uuid()], 'order.placed', '{[}', array[e'\\x1b[2J'], null, null)",
        "select holdfast.append(array[gen_random_uuid()], '{order.placed}', '{\"{}\"}', '{s3}', null, null, null,"
        " '{-infinity}', null, '{-infinity}', '{receipt}', null, null, true, null)",
        "select holdfast.append(array[gen_random_uuid()], '{order.placed}', '{\"{}\"}', null, null, null, null,"
        " null, '{-1e15}', null, '{holdfast/timer}', null, null, false, null)",
        "set holdfast.unplaced = '1';"
        " insert into holdfast.message (type, body, stream) values ('order.placed', '{}', 's')",
    ]  # fmt: skip
    for text in hostile:
        with contextlib.suppress(psycopg.Error):
            subscribed.run(text, "producer")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="no flag but that of an event"):
        subscribed.run(
            "select holdfast.append(array[gen_random_uuid()], '{order.placed}', '{\"{}\"}', null, null, null, null,"
            " null, null, null, null, '{65535}', null, false, null)",
            "producer",
        )
    app, done = shop(subscribed.url("worker"))
    app.publish("order.placed", {"n": 1}, stream="s")
    drain(app)
    assert "1" in done
    assert app.operations.status().dead > 0
    app.close()


@pytest.mark.parametrize(
    "role",
    ["", "public", "PUBLIC", "none", "pg_monitor", "a b", 'a"b', "a'b", "a;b", "ä", "x" * 64, "1a", "a\n"],
)
def test_names_that_are_no_roles(role: str) -> None:
    with pytest.raises(InvalidSettings, match="cannot be used"):
        identifier(role)
    with pytest.raises(InvalidSettings, match="cannot be used"):
        script({"worker": role})
    with pytest.raises(InvalidSettings, match="cannot be used"):
        script({}, role)


def test_another_schema_has_its_own(roles: Roles) -> None:
    app = Holdfast(f"{roles.dsn}?schema=other")
    app.migrate()
    app.close()
    text = script({"producer": roles.name("producer")}, schema="other")
    assert not re.search(r"\bholdfast\.(?!now|unplaced)\w", re.sub(r"--.*|`.*?`|'holdfast: ", "", text))
    roles.run(text)
    low = Holdfast(f"{roles.url('producer')}?schema=other")
    low.publish("a.b", {})
    low.close()
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        roles.run("select * from other.message", "producer")
    roles.run("drop schema other cascade")
