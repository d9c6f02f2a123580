"""Nobody's function runs in place of the system's. Whoever may create one in a schema of the search path could else
make one that fits a call better, and it would run with the rights of a worker (CVE-2018-1058).

Functions pin their search path, or name the schema of each call and operator. Statements and migrations run with that
of the connection: calls and types are named with their schema when a statement is loaded, and operators fit exactly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

import psycopg
import pytest

from holdfast.clock import MovableClock
from holdfast.model.ids import new_id
from holdfast.model.message import NewMessage
from holdfast.model.work import Delta, Look
from holdfast.operations import Operations
from holdfast.requests import verbs
from holdfast.requests.hooks import Pen
from holdfast.requests.verbs import Arrival, Opening
from holdfast.rules import delivery
from holdfast.rules.recurrence import every
from holdfast.schedules import setting
from holdfast.schedules.defining import define
from holdfast.settings import Settings
from holdfast.store import migrate
from holdfast.store.plans import dead_queries, engine, instances
from holdfast.store.postgres import PostgresStore
from holdfast.store.statement import Plan, Statement
from holdfast.store.text import SYNTAX, Text, compile, load
from tests.databases import migrated
from tests.store.box import QUEUE, Box, concluded, dead, done, failed, given_back, names, new
from tests.store.guessing import FLOW, begun, guessed, stand
from tests.store.test_statements import statements
from tests.store.trees import nodes, parse

pytestmark = [pytest.mark.covers("X63"), pytest.mark.one_postgres]

PINNED = "search_path=pg_catalog, pg_temp"
# They become part of the statement that calls them: a setting would prevent it.
INLINED = {
    "covers",
    "dedupe_scope",
    "drafts",
    "is_later",
    "route",
}
STORE = Path(migrate.__file__).parent


@pytest.fixture
def db(postgres_version: str, tmp_path: Path) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(migrated(postgres_version, tmp_path), autocommit=True) as connection:
        yield connection


# --- What is written --------------------------------------------------------------------------------------------------


def test_every_function_pins_its_path_or_is_one_of_the_few_that_are_inlined(
    db: psycopg.Connection[Any],
) -> None:
    found = db.execute(
        "select p.proname, l.lanname, coalesce(p.proconfig, '{}')"
        " from pg_proc p join pg_language l on l.oid = p.prolang where p.pronamespace = 'holdfast'::regnamespace"
    ).fetchall()
    assert len(found) == len(migrate.FUNCTION.findall(migrate.functions()[0])) > 30
    assert {name for name, _, settings in found if PINNED not in settings} == INLINED
    assert {name for name, language, _ in found if language == "sql"} == INLINED


def test_those_that_are_inlined_name_the_schema_of_all_they_call(db: psycopg.Connection[Any]) -> None:
    known = system_functions(db)
    for name in INLINED:
        text = (STORE / "functions" / f"{name}.sql").read_text()
        body = without_literals(text.split("$$")[1])
        assert unqualified(body, known) == [], name
        bare = re.sub(r"operator\(pg_catalog\.\S+?\)", "", body)
        assert re.findall(r"[-+*/<>=~!@#%^&|`?]+(?!\d)", bare) == [], name


def test_they_are_inlined(db: psycopg.Connection[Any]) -> None:
    """The plan has what is in them, and no call."""
    asked = "explain (verbose) select * from holdfast.subscription s where holdfast.covers(s.pattern, 'a.b')"
    plan = "\n".join(line for (line,) in db.execute(asked.encode()))
    assert "starts_with" in plan
    assert "covers(" not in plan
    plan = "\n".join(line for (line,) in db.execute("explain (verbose) select * from holdfast.route('a.b')"))
    assert "starts_with" in plan
    assert "route(" not in plan


def test_every_statement_names_the_schema_of_the_functions_that_it_calls(db: psycopg.Connection[Any]) -> None:
    known = system_functions(db)
    asked = statements("postgres") | conditions()
    found = {
        name: calls for name, text in asked.items() if (calls := unqualified(without_literals(text), known))
    }
    assert found == {}


def conditions() -> dict[str, str]:
    """What is put behind statements about dead letters."""
    texts = dict(dead_queries.CONDITIONS)
    for name, choices in dead_queries.CHOICES.items():
        texts |= {f"{name}={choice}": text for choice, text in choices.items()}
    return {name: load("postgres", (Text(text),)) for name, text in texts.items()}


def test_every_operator_of_a_statement_fits_exactly(db: psycopg.Connection[Any]) -> None:
    """Then the system's own is taken: it comes first in every path that does not say otherwise."""
    operators = {
        oid: (f"{left} {name} {right}", polymorphic)
        for oid, name, left, right, polymorphic in db.execute(
            "select o.oid, o.oprname, o.oprleft::regtype::text, o.oprright::regtype::text,"
            " 'p' in (l.typtype, r.typtype) from pg_operator o"
            " left join pg_type l on l.oid = o.oprleft join pg_type r on r.oid = o.oprright"
        )
    }
    loose, seen = [], 0
    for name, text in statements("postgres").items():
        for used, arguments in operators_of(tree_of(db, name, text)):
            seen += 1
            says, polymorphic = operators[used]
            if polymorphic or any(is_converted(each) for each in arguments):
                loose.append(f"{name}: {says}")
    assert loose == []
    assert seen > 400


def test_what_the_test_above_looks_for_is_found(db: psycopg.Connection[Any]) -> None:
    for text in ("select 'a' || l.worker from holdfast.lease l", "select $1::float8 - 1::int"):
        ((_, arguments), *_) = operators_of(tree_of(db, "t", text))
        converted = any(is_converted(each) for each in arguments)
        assert converted or "||" in text
        db.execute("deallocate t")


def system_functions(db: psycopg.Connection[Any]) -> set[str]:
    asked = "select distinct proname from pg_proc where pronamespace = 'pg_catalog'::regnamespace"
    return {name for (name,) in db.execute(asked.encode())}


def without_literals(text: str) -> str:
    return re.sub(r"--[^\n]*|'(?:[^']|'')*'", "''", text)


def unqualified(text: str, known: set[str]) -> list[str]:
    """Calls of the system's functions that do not name its schema. Of several arrays `unnest` is syntax."""
    calls = re.findall(r"(?<![\w.:])(\w+)\((?!\))([^()]*(?:\([^()]*\)[^()]*)*)", text)
    calls += [(name, "") for name in re.findall(r"(?<![\w.:])(\w+)\(\)", text)]
    return [
        name
        for name, arguments in calls
        if name in known and name not in SYNTAX and not (name == "unnest" and "," in arguments)
    ]


def tree_of(db: psycopg.Connection[Any], name: str, text: str) -> Any:
    """How the server understands a statement."""
    said: list[str] = []
    hear: Callable[[Any], None] = lambda notice: said.append(notice.message_detail or "")  # noqa: E731 - to be removed
    db.add_notice_handler(hear)
    db.execute("set client_min_messages = log; set debug_print_parse = on; set debug_pretty_print = off")
    said.clear()
    db.execute(f"prepare {name} as {compile(text, 'numeric').sql}".encode())
    db.execute("reset debug_print_parse; reset client_min_messages")
    db.remove_notice_handler(hear)
    return parse(said[-2] if "QUERY" in said[-2] else said[0])


def operators_of(tree: Any) -> list[tuple[int, list[Any]]]:
    found = []
    for node in nodes(tree):
        if node["kind"] in ("OPEXPR", "SCALARARRAYOPEXPR", "DISTINCTEXPR", "NULLIFEXPR"):
            found.append((int(node["opno"]), node["args"]))
        elif node["kind"] == "ROWCOMPAREEXPR":
            # (a, b) > (c, d): one operator for each pair
            pairs = zip(node["opnos"][1:], node["largs"], node["rargs"], strict=True)
            found += [(int(number), [left, right]) for number, left, right in pairs]
    return found


def is_converted(argument: Any) -> bool:
    """By the server, because no operator took it as it was (an implicit cast is format 2)."""
    return "2" in [argument.get(key) for key in ("funcformat", "relabelformat", "coerceformat")]


# --- What happens -----------------------------------------------------------------------------------------------------

# For each name of a function and each operator that the engine uses, one for all types that it uses.
TYPES = [
    "text",
    "text[]",
    "int",
    "int[]",
    "bigint",
    "bigint[]",
    "timestamptz",
    "uuid",
    "uuid[]",
    "json",
    "jsonb",
]
TYPES += ["float8", "boolean", "interval"]
OPERATORS = ["=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "||", "&&", "&", "|", "->", "->>"]
MAKE_HOSTILE = """
do $$
declare
    v_types text[] := %s; v_left text; v_right text; v_name text; v_n int := 0;
    v_body text := 'begin raise exception ''hijacked: %%''; end';
begin
    create schema hostile;
    foreach v_left in array v_types loop
        for v_name in select distinct p.proname from pg_proc p where p.proname = any (%s) and p.pronargs = 1 loop
            execute format('create function hostile.%%I(%%s) returns text language plpgsql as %%L', v_name, v_left,
                           replace(v_body, '%%', v_name));
        end loop;
        foreach v_right in array v_types loop
            v_n := v_n + 1;
            execute format('create function hostile.o%%s(%%s, %%s) returns boolean language plpgsql as %%L', v_n,
                           v_left, v_right, replace(v_body, '%%', 'an operator of ' || v_left || ' and ' || v_right));
            foreach v_name in array %s::text[] loop
                execute format('create operator hostile.%%s (leftarg = %%s, rightarg = %%s, function = hostile.o%%s)',
                               v_name, v_left, v_right, v_n);
            end loop;
            for v_name in select distinct p.proname from pg_proc p where p.proname = any (%s) and p.pronargs = 2 loop
                execute format('create function hostile.%%I(%%s, %%s) returns text language plpgsql as %%L', v_name,
                               v_left, v_right, replace(v_body, '%%', v_name));
            end loop;
        end loop;
    end loop;
end
$$
"""
DOMAINS = "".join(
    f"create domain hostile.{name} as pg_catalog.{name} check (hostile.refuse());"
    for name in ("text", "timestamptz", "uuid", "json", "float8", "int8", "int4", "bool")
)


def hostile(dsn: str) -> None:
    """A schema with a function for every call and an operator for every pair, which say that they were called."""
    texts = [*(STORE / "functions").glob("*.sql"), *(STORE / "sql").rglob("*.sql")]
    texts += [*(STORE / "migrations").rglob("*.sql"), *STORE.glob("*.py")]
    used = {name for file in texts for name in re.findall(r"\b(\w+)\(", file.read_text())}
    with psycopg.connect(dsn, autocommit=True) as db:
        called = sorted(used & system_functions(db))
        assert {"cardinality", "array_agg", "count", "to_json", "unnest", "strpos"} <= set(called)
        arrays = [
            f"array[{', '.join(repr(each) for each in texts)}]"
            for texts in (TYPES, called, OPERATORS, called)
        ]
        db.execute((MAKE_HOSTILE % tuple(arrays)).encode())
        db.execute(
            "create function hostile.refuse() returns boolean language plpgsql as"
            " 'begin raise exception ''hijacked: a type''; end'"
        )


@pytest.fixture
def victim(postgres_dsn: str) -> Iterator[Callable[[str], PostgresStore]]:
    """Stores whose connections have the path given."""
    hostile(postgres_dsn)
    opened: list[PostgresStore] = []

    def open_store(path: str) -> PostgresStore:
        url = f"{postgres_dsn}?options={quote(f'-c search_path={path} -c track_functions=all')}"
        opened.append(PostgresStore(url, Settings(), MovableClock()))
        return opened[-1]

    yield open_store
    for each in opened:
        each.close()


def test_the_hostile_schema_is_one(postgres_dsn: str) -> None:
    """Without names for the system's own, its functions are called."""
    hostile(postgres_dsn)
    with psycopg.connect(postgres_dsn, autocommit=True) as db:
        db.execute("set search_path = hostile, public")
        for sql in (
            "select cardinality(array['a'])",
            "select array_agg(x) from unnest(array['a'], array['b']) u (x, y)",
            "select 'a'::text || 1::bigint",
            "select array['a'] = array['b']",
            "select count(1::int)",
        ):
            with pytest.raises(psycopg.errors.RaiseException, match="hijacked"):
                db.execute(sql.encode())


def test_the_engine_calls_none_of_it(victim: Callable[[str], PostgresStore], postgres_dsn: str) -> None:
    """Migrating, and every verb: each function of ours is called at least once."""
    store = victim("hostile,public")
    assert store.migrate() == [version for version, _ in migrate.steps("postgres")]
    store.check()
    box = Box(store, store.clock, store.url)
    everything(box)
    plain_later(box)
    operate(box)
    turn(box)
    by_sql(box)
    ask(box)
    store.close()
    with psycopg.connect(postgres_dsn, autocommit=True) as db:
        wait_until_ended(db)
        called = {
            name for (name,) in db.execute("select funcname from pg_stat_user_functions where calls > 0")
        }
        # What raises is not counted.
        expected = (
            set(migrate.FUNCTION.findall(migrate.functions()[0])) - INLINED - {"refuse", "refuse_stale"}
        )
        assert expected - called == set()
        look_at_all(db)


def plain_later(box: Box) -> None:
    """A plain INSERT of something that is due later."""
    box.query(
        "insert into {message} (type, body, due_at)"
        " values ('order.placed', '1', pg_catalog.clock_timestamp() operator(pg_catalog.+) interval '1 hour')"
    )
    box.query("delete from {scheduled} where body operator(pg_catalog.=) '1'")


def turn(box: Box) -> None:
    """The first turn of an orchestration, which starts another and withdraws a timer."""
    start = NewMessage(new_id(), "holdfast.start", "{}", stream="one", queue="q@1")
    assert box.store.run(instances.begin(start))
    assert not box.store.run(instances.begin(start))
    assert box.store.run(instances.queue_of("one")) == ("q@1", "running")
    row = {
        "id": "one", "execution": 0, "turn": 1, "part": 0, "body": "{}", "begin": "{}", "state": "running",
        "mark": str(new_id()), "entries": 1, "size": 2, "result": None, "status": None, "timers": [str(new_id())],
        "calls": [str(new_id())],
        "starts": [{"id": "two", "queue": "q@1", "start": str(new_id()), "reply": None}],
    }  # fmt: skip
    box.send("x", queue="turns")
    leased = box.claim_one("turns")
    assert box.settle(concluded(leased, delivery.Returned(delta=Delta("turns", (row,))))) == set()
    fits, late = begun(box, "ahead", "late")
    box.publish(new("signal", queue=FLOW, stream="late"))
    assert box.settle(guessed(fits), guessed(late)) == set()
    assert (stand(box, "ahead").turn, stand(box, "late").turn) == (2, 1)


def by_sql(box: Box) -> None:
    """Orchestrations started, signalled and cancelled by plain SQL."""
    with box.connection() as db:
        db.execute("insert into holdfast.queue (name) values ('q@1') on conflict (name) do nothing")
        for call in (
            "start_orchestration('q@1', '1', 'three', now(), '{\"a\": \"b\"}')",
            "signal_orchestration('three', 'go', '1')", "cancel_orchestration('three', 'no')",
        ):  # fmt: skip
            db.execute(f"select holdfast.{call}")
        db.commit()


def ask(box: Box) -> None:
    """Requests: asked, given more time, answered, timed out, accepted; the triggers of both tables."""
    pen = Pen(None)
    ids = [new_id(), new_id()]
    for id in ids:
        opening = Opening(id, "grading", None, None, "1", timedelta(seconds=60), None, 0.5, new("sent"))
        assert box.store.run(verbs.open_(opening, pen))[0]
    box.store.run(verbs.extend(ids[0], timedelta(seconds=1)))
    (answer,) = box.store.run(verbs.resolve([Arrival(new_id(), ids[0], None, "1")], pen))
    assert answer is not None
    box.clock.advance(hours=1)
    assert box.store.run(verbs.sweep(pen)).ended == 1
    box.store.run(verbs.resolve([Arrival(new_id(), ids[1], None, "1")], pen))
    box.store.run(verbs.accept(ids[1], None, "anna", pen))

    def resealed() -> Plan[None]:
        yield Statement("update holdfast.request_result set body = '2'")

    box.store.run(resealed())


def wait_until_ended(db: psycopg.Connection[Any]) -> None:
    """Connections that were closed have told what they counted when they are gone."""
    asked = "select 1 from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    while db.execute(f"{asked} and backend_type = 'client backend'".encode()).fetchall():
        pass


def look_at_all(db: psycopg.Connection[Any]) -> None:
    """Every statement, as the server understands it with that path."""
    db.execute("set search_path = hostile, public")
    theirs = set(
        db.execute(
            "select p.oid::text from pg_catalog.pg_proc p where p.pronamespace operator(pg_catalog.=)"
            " 'hostile'::regnamespace::oid union all select o.oid::text from pg_catalog.pg_operator o"
            " where o.oprnamespace operator(pg_catalog.=) 'hostile'::regnamespace::oid"
        )
    )
    assert len(theirs) > 2000
    caught = []
    for name, text in statements("postgres").items():
        for node in nodes(tree_of(db, name, text)):
            used = [node.get(key) for key in ("funcid", "opno", "aggfnoid", "winfnoid")]
            if any((each,) in theirs for each in used):
                caught.append(name)
    assert caught == []


def everything(box: Box) -> None:
    """Every verb of the store, so that every function of ours is called."""
    box.subscribe()
    box.subscribe_unordered("loose", "loose.*")
    box.send("a", stream="s")
    box.send_all("b", "c")
    box.send("keyed", dedupe="k")
    box.publish_deferred(new("d", stream="s"), new("e", stream="t", dedupe="k2"), new("f", queue=QUEUE))
    assert [
        p.duplicate for p in box.publish(new("again", dedupe="k"), new("x", type="loose.one", stream="z"))
    ] == [True, False]
    box.send("later", stream="s", delay=60.0)
    box.publish(new("event", stream="log", event=True))
    box.publish(new("own", id=UUID(int=60), id_is_given=True))
    publish_as_a_user(box)
    box.send("unrouted", type="nobody.yet", stream="u")
    for name in ("first", "second"):  # of one id: the second is a dead letter when they are adopted
        box.publish(new(name, type="nobody.yet", id=UUID(int=61)))
    box.subscribe("late", "nobody.*")
    work = box.claim(QUEUE, "loose", "late", run=10, asleep=True)
    assert len(work) > 10
    assert box.exchange(looks=[Look("families")]).found["families"].queues == ()
    first, second, third, fourth, *rest = work
    box.renew(*work)
    box.settle(done(first, new("emitted", dedupe="k3", stream="s"), new("logged", stream="log", event=True)))
    box.settle(failed(second), dead(third), given_back(fourth))
    with box.store.transaction() as (_, run):
        run(engine.settle([done(rest[0])], ()))
    with (
        pytest.raises(psycopg.errors.RaiseException, match="another worker"),
        box.store.transaction() as (_, run),
    ):
        run(engine.refuse())
    box.clock.advance(seconds=90)
    assert box.recover() > 0
    assert box.claim_suspect() is not None
    box.clock.advance(seconds=600)
    box.recover()
    box.turn(peek=True, queues=[QUEUE, *(f"q{n}" for n in range(20))])
    assert box.store.run(engine.read_events("log", 0, 10))


def publish_as_a_user(box: Box) -> None:
    """In his own transaction with the path that he has."""
    with box.connection() as db:
        box.publish_on(db, new("g", stream="s"))
        box.publish_on(db, new("h", stream="s"), new("i", stream="t"))
        box.publish_on(db, new("j"), new("k"))
        box.publish_on(db, NewMessage(new().id, "order.placed", '"l"', stream="log", event=True, expect=None))
        db.execute("insert into holdfast.message (type, body, stream) values ('order.placed', '\"m\"', 's')")
        path = db.execute("show search_path").fetchone()
        db.commit()
        assert "hostile" in path[0]


def operate(box: Box) -> None:
    """What operators ask, where conditions are put together."""
    found = Operations(box.store)
    box.store.run(setting.put(define(Settings(), "x", every(seconds=60), "order.placed", {}), None))
    found.schedules.trigger("x")
    found.doctor()
    assert "hijacked" not in str(found.status())
    wanted: dict[str, Any] = {
        "queue": QUEUE, "type": "order.placed", "stream": "s", "reason": 1, "died_of": 1, "fingerprint": "f",
        "text": "no",
        "died_before": box.now, "died_after": box.now, "here_before": box.now, "until": box.now, "redrives_below": 3,
        "ids": [new().id], "place": (1, 1, str(new().id), "q"), "redriven": True, "held": True, "halts": False,
        "awaited": False,
    }  # fmt: skip
    assert wanted.keys() == {*dead_queries.CONDITIONS, *dead_queries.CHOICES, "text"}
    assert box.store.run(dead_queries.letters(**wanted)) == []
    assert box.store.run(dead_queries.count(text="no")) == 2
    assert box.store.run(dead_queries.groups(5, text="no"))
    found.queues.pause("late")
    found.queues.move("late", QUEUE)


def test_publishing_and_working_are_safe_in_any_path(
    victim: Callable[[str], PostgresStore], postgres_dsn: str
) -> None:
    """Even where somebody's schema stands before the system's, and his `text` and `=` before the system's."""
    box = Box(ready := victim("public"), ready.clock, ready.url)
    ready.migrate()
    box.subscribe()
    worker = box.worker()
    with psycopg.connect(postgres_dsn, autocommit=True) as db:
        db.execute(DOMAINS.encode())
    store = victim("hostile,pg_catalog,public")
    store.clock = ready.clock
    attacked = Box(store, store.clock, store.url)
    attacked.workers["one"] = worker
    with attacked.connection() as db, pytest.raises(psycopg.errors.RaiseException, match="hijacked"):
        db.execute("select 'a'::text")
    attacked.send("a", stream="s")
    attacked.send_all("b", "c")
    publish_as_a_user(attacked)
    work = attacked.claim(run=10)
    assert {"a", "b", "c", "g", "h"} <= set(names(work))
    attacked.renew(*work)
    attacked.settle(*(done(each) for each in work[:2]), failed(work[2]), dead(work[3]))
    with attacked.store.transaction() as (_, run):
        assert run(engine.settle([done(work[4])], ())) == {work[4].message.seq}
    store.clock.advance(seconds=90)  # type: ignore[attr-defined]
    assert attacked.recover() > 0


def test_what_a_handler_sees_is_his_own_path(victim: Callable[[str], PostgresStore]) -> None:
    """The engine's functions pin the path for themselves: the session of `ctx.transaction()` is as it was."""
    store = victim("public")
    store.migrate()
    box = Box(store, store.clock, store.url)
    box.subscribe()
    box.send("a")
    (work,) = box.claim()
    with store.transaction() as (db, run):
        run(engine.settle([done(work)], ()))
        assert db.execute("show search_path").fetchone() == ("public",)
