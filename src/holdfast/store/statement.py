"""Statements and plans. A plan is a generator that yields steps and receives their results.

A step is a statement by its name, with parameters; its text is in `sql/`, and a plan knows neither the database nor
the time. Or it is a verb: something that the two databases do in different ways (plans/engine.py). `bound` makes SQL of
the steps, for one database at one time. It then runs on a connection: the store's own, or the caller's handle in
any of the drivers (handles.py).
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Generator, Mapping
from functools import wraps
from typing import Any, Generic, ParamSpec, Protocol, TypeAlias, TypeVar

import msgspec

from .text import Dialect, Text

DATABASE = "holdfast.database"  # audited before each plan: the code of an orchestration may run none

T = TypeVar("T")
Answer = TypeVar("Answer", covariant=True)
P = ParamSpec("P")
Now = TypeVar("Now", contravariant=True)

Row: TypeAlias = tuple[Any, ...]
Rows: TypeAlias = list[Row]
Enough: TypeAlias = Callable[[Row], bool]


class Statement(msgspec.Struct, frozen=True):
    """One statement as it is executed, with values that every driver understands.

    SQLite takes int, float, str, bytes and None; PostgreSQL also bool, aware datetimes and lists of one type,
    which the SQL casts (`:ids::uuid[]`), because drivers guess the types of arrays differently. `enough` is called
    after each row when rows are read one by one, on our own SQLite; if it returns True, no more rows are read. A `raw`
    statement on our own connection to PostgreSQL returns times as they are sent, in microseconds since 2000, and its
    rows are a sequence of which all but the first are decoded on first use.
    """

    sql: str
    params: Mapping[str, object] = {}
    enough: Enough | None = None
    is_raw: bool = False


class Query(msgspec.Struct, frozen=True):
    """A statement by the names of its files (`slots/slot_look`), mostly one, and its parameters.

    Parameters are plain values, UUIDs, aware datetimes and lists of those; they are converted for each database. Each
    of `documents` becomes one JSON text, with instants in the database's format. `:now` is bound when it runs. For
    `enough` and `is_raw` see `Statement`.
    """

    parts: tuple[str | Text, ...]
    params: Mapping[str, object] = {}
    enough: Enough | None = None
    is_raw: bool = False
    documents: Mapping[str, object] = {}

    def with_documents(self, **documents: object) -> Query:
        return msgspec.structs.replace(self, documents=documents)

    def raw(self) -> Query:
        return msgspec.structs.replace(self, is_raw=True)

    def until(self, enough: Enough) -> Query:
        return msgspec.structs.replace(self, enough=enough)


class Verb(msgspec.Struct, Generic[T], frozen=True):
    """Something that the two databases do differently: a method of their `engine` or their `operator`.

    It is a step of a plan, and a plan itself. `is_alone`: it needs no transaction around it.
    """

    stem: str
    name: str
    args: tuple[Any, ...] = ()
    options: Mapping[str, Any] = {}
    is_alone: bool = False

    def __iter__(self) -> Plan[T]:
        answer: T = yield self
        return answer


Bound: TypeAlias = Generator["Statement", Rows, T]
Step: TypeAlias = Query | Verb[Any] | Statement
Plan: TypeAlias = Generator[Step, Any, T]


class Alone(Generic[Answer]):
    """A plan that needs no transaction around it: it is a single statement, or each of its statements stands alone."""

    __slots__ = ("plan",)
    is_alone = True

    def __init__(self, plan: Plan[Answer]) -> None:
        self.plan = plan

    def __iter__(self) -> Plan[Answer]:
        return self.plan


Runnable: TypeAlias = Plan[T] | Alone[T] | Verb[T]


def single(make: Callable[P, Plan[T]]) -> Callable[P, Alone[T]]:
    """Marks a plan as a single statement: on PostgreSQL one round trip, without BEGIN and COMMIT."""

    @wraps(make)
    def made(*args: P.args, **options: P.kwargs) -> Alone[T]:
        return Alone(make(*args, **options))

    return made


def stepwise(make: Callable[P, Plan[T]]) -> Callable[P, Alone[T]]:
    """Marks a plan in which each statement may be a transaction of its own, as in a compare and swap."""
    return single(make)


def statements(folder: str) -> Callable[..., Query]:
    """Names the statements of one folder in `sql/`: `sql = statements("slots")`, then `sql("slot_look", ...)`."""

    def sql(name: str, /, **params: object) -> Query:
        return Query((f"{folder}/{name}",), params)

    return sql


class Engine(Protocol[Now]):
    """Makes SQL of steps, for one database at one time."""

    @property
    def dialect(self) -> Dialect: ...

    def bind(self, query: Query, now: Now) -> Statement:
        """The statement with its text, its values as the database takes them, and the time."""

    def perform(self, verb: Verb[T], now: Now) -> Plan[T]:
        """The plan of a verb."""


def stands_alone(plan: Runnable[Any]) -> bool:
    """Whether a plan needs no transaction around it."""
    return getattr(plan, "is_alone", False)


def bound(plan: Runnable[T], engine: Engine[Now], now: Now) -> Bound[T]:
    """The plan in the SQL of one database, at one time."""
    steps = engine.perform(plan, now) if isinstance(plan, Verb) else iter(plan)
    return _bound(steps, engine, now)


def _bound(steps: Plan[T], engine: Engine[Now], now: Now) -> Bound[T]:
    try:
        step = next(steps)
        while True:
            try:
                if type(step) is Query:
                    answer: Any = yield engine.bind(step, now)
                elif type(step) is Verb:
                    answer = yield from bound(engine.perform(step, now), engine, now)
                else:
                    assert isinstance(step, Statement)
                    answer = yield step
            except Exception as error:  # the plan may raise a clearer error
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()


def drive(plan: Bound[T], execute: Callable[[Statement], Rows]) -> T:
    """Run a plan to its end on a blocking connection."""
    sys.audit(DATABASE)
    try:
        statement = next(plan)
        while True:
            try:
                rows = execute(statement)
            except Exception as error:
                statement = plan.throw(error)
            else:
                statement = plan.send(rows)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        plan.close()


async def adrive(plan: Bound[T], execute: Callable[[Statement], Awaitable[Rows]]) -> T:
    """Run a plan to its end on an async connection."""
    sys.audit(DATABASE)
    try:
        statement = next(plan)
        while True:
            try:
                rows = await execute(statement)
            except Exception as error:
                statement = plan.throw(error)
            else:
                statement = plan.send(rows)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        plan.close()
