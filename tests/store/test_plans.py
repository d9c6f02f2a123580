"""What a plan says of itself holds, and both databases have every verb."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.store import statement
from holdfast.store.plans.engine_postgres import PostgresEngine
from holdfast.store.plans.engine_sqlite import SqliteEngine
from holdfast.store.statement import Alone, Plan, Query, bound, single

PLANS = Path(statement.__file__).parent / "plans"
SOURCES = [*sorted(PLANS.glob("*.py")), PLANS.parent / "given.py"]


def plans() -> Iterator[tuple[str, ast.FunctionDef]]:
    for file in SOURCES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef):
                yield f"{file.stem}.{node.name}", node


def steps(plan: ast.FunctionDef) -> tuple[int, int]:
    """How many places a plan has at which it yields, and how many of them may be passed more than once."""
    loops = [each for each in ast.walk(plan) if isinstance(each, ast.For | ast.While)]
    again = {id(each) for loop in loops for line in loop.body for each in ast.walk(line)}
    found = [each for each in ast.walk(plan) if isinstance(each, ast.Yield | ast.YieldFrom)]
    return len(found), sum(id(each) in again for each in found)


def decorated(plan: ast.FunctionDef, name: str) -> bool:
    return name in [ast.unparse(each) for each in plan.decorator_list]


def test_a_plan_that_says_it_is_a_single_statement_is_one() -> None:
    found = {name: steps(plan) for name, plan in plans() if decorated(plan, "single")}
    assert len(found) > 50
    assert {name: count for name, count in found.items() if count != (1, 0)} == {}


def test_only_a_compare_and_swap_goes_step_by_step() -> None:
    """Each of its statements is a transaction of its own: what it read may be old when it writes."""
    found = {name for name, plan in plans() if decorated(plan, "stepwise")}
    assert found == {"breakers.change", "slots.change"}


def test_no_plan_knows_the_database_or_the_clock() -> None:
    for file in SOURCES:
        if file.stem.endswith(("_sqlite", "_postgres")):
            continue
        text = file.read_text()
        assert not re.search(r"engine_(sqlite|postgres)|(Sqlite|Postgres)Engine|now: Any", text), file.name


def test_both_databases_have_every_verb_with_the_same_arguments() -> None:
    asked = {
        (each.args[0].value, each.args[1].value)
        for _, plan in plans()
        for each in ast.walk(plan)
        if isinstance(each, ast.Call)
        and ast.unparse(each.func) == "Verb"
        and isinstance(each.args[0], ast.Constant)
        and isinstance(each.args[1], ast.Constant)
    }
    assert {("engine", "exchange"), ("operator", "bury")} <= asked
    sqlite, postgres = SqliteEngine(), PostgresEngine()
    for stem, name in sorted(asked):
        ours = [arguments(each._parts[stem], name) for each in (sqlite, postgres)]
        assert ours[0] == ours[1], f"{stem}.{name}"


def arguments(part: object, name: str) -> list[str]:
    """The names, without the time, which SQLite's alone is told."""
    return [each for each in inspect.signature(getattr(part, name)).parameters if each != "now"]


@pytest.mark.parametrize("engine", [SqliteEngine(), PostgresEngine()])
def test_a_plan_runs_with_the_time_that_it_is_given(engine: SqliteEngine | PostgresEngine) -> None:
    @single
    def look() -> Plan[object]:
        return (yield Query(("operator/op_moment",)))

    asked = look()
    assert isinstance(asked, Alone)
    statement_ = next(bound(asked, engine, 7))  # type: ignore[arg-type]
    assert statement_.params == {"now": 7}
    assert ":now" in statement_.sql
