"""`:name` in a statement becomes what each driver wants, and nothing else in the text is touched."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from holdfast.errors import InvalidSettings
from holdfast.store.migrate import split
from holdfast.store.statement import Plan, Rows, Statement, adrive, drive
from holdfast.store.text import Compiled, compile, in_schema

LITERALS = [
    "select ':no' , :yes",
    "select 'it''s :no', :yes",
    r"select E'it\'s :no', :yes",
    'select ":no", :yes',
    "select $$ :no $$, :yes",
    "select $body$ $$ :no $$ $body$, :yes",
    "select 1 -- :no\n, :yes",
    "select 1 /* :no\n :no */, :yes",
    "select a[1:no], :yes",
]


@pytest.mark.parametrize("sql", LITERALS)
@pytest.mark.parametrize(
    ("style", "placeholder"), [("named", ":yes"), ("pyformat", "(%(yes)s)"), ("numeric", "$1")]
)
def test_literals_and_comments_are_left_alone(sql: str, style: str, placeholder: str) -> None:
    text = sql.replace(":yes", placeholder)
    assert compile(sql, style) == Compiled(text, text.encode(), ("yes",))  # type: ignore[arg-type]


def test_casts_are_left_alone() -> None:
    sql = "select :ids::uuid[], 'x'::text, :at ::timestamptz, (:n)::int"
    assert compile(sql, "named").sql == sql
    assert compile(sql, "pyformat").sql == (
        "select (%(ids)s)::uuid[], 'x'::text, (%(at)s) ::timestamptz, ((%(n)s))::int"
    )
    assert compile(sql, "numeric").sql == "select $1::uuid[], 'x'::text, $2 ::timestamptz, ($3)::int"


def test_a_name_used_twice_has_one_number() -> None:
    compiled = compile("select :b, :a, :b", "numeric")
    assert compiled.sql == "select $1, $2, $1"
    assert compiled.arguments({"a": 1, "b": 2, "unused": 3}) == (2, 1)


def test_a_percent_sign_is_doubled_only_where_it_means_something() -> None:
    sql = "select a % :n, 'x%' -- 5%"
    assert compile(sql, "pyformat").sql == "select a %% (%(n)s), 'x%%' -- 5%%"
    assert compile(sql, "named").sql == sql
    assert compile(sql, "numeric").sql == "select a % $1, 'x%' -- 5%"


def test_another_schema_replaces_the_qualifier_and_nothing_else() -> None:
    sql = "select holdfast.f('holdfast.t'::regclass) from holdfast.t -- my_holdfast.x a.holdfast.b"
    other = "select jobs.f('jobs.t'::regclass) from jobs.t -- my_holdfast.x a.holdfast.b"
    assert in_schema(sql, "holdfast") == sql
    assert in_schema(sql, "jobs") == other


@pytest.mark.parametrize("schema", ["", "Jobs", "1a", "a-b", 'a"b', "a;drop", "a.b", "a\n", "a" * 49, "é"])
def test_a_schema_that_is_no_identifier_never_reaches_sql(schema: str) -> None:
    with pytest.raises(InvalidSettings, match="1 to 48"):
        in_schema("select holdfast.x", schema)


def add(numbers: list[int]) -> Plan[int]:
    total = 0
    for number in numbers:
        rows = yield Statement("select :n", {"n": number})
        total += rows[0][0]
    return total


def echo(statement: Statement) -> Rows:
    return [(statement.params["n"],)]


async def test_a_plan_gives_the_same_on_both_drivers() -> None:
    async def aecho(statement: Statement) -> Rows:
        return echo(statement)

    assert drive(add([1, 2, 3]), echo) == await adrive(add([1, 2, 3]), aecho) == 6
    assert drive(add([]), echo) == await adrive(add([]), aecho) == 0


def test_a_plan_whose_statement_fails_is_closed_and_the_error_passes() -> None:
    closed = []

    def plan() -> Generator[Statement, Rows, None]:
        try:
            yield Statement("x")
        finally:
            closed.append(True)

    def fail(statement: Statement) -> Rows:
        raise ZeroDivisionError

    running = plan()
    with pytest.raises(ZeroDivisionError):
        drive(running, fail)
    assert closed == [True]


@pytest.mark.parametrize(
    "statement",
    [
        "select ';'",
        'select "a;b" from t',
        "select 1 /* one; two */",
        "select 1 -- one; two\n + 1",
        r"select E'it\'s; so'",
        "do $a$ begin perform $b$;$b$; end; $a$",
        "create trigger t after insert on m begin delete from a; delete from b; end",
    ],
)
def test_a_script_is_split_where_its_statements_end_and_nowhere_else(statement: str) -> None:
    assert split(f"{statement};\n\nselect 2;\n-- the end;\n") == [statement, "select 2"]
