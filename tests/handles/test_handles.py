"""A plan runs inside the caller's transaction, on every kind of handle: both are stored, or neither."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import NotMigrated, WrongHandle
from holdfast.store.statement import Plan, Rows, Statement
from tests import servers
from tests.handles import kinds
from tests.handles.kinds import Opener, Undo, publish, publish_and_fail, stored

Kind = tuple[Opener, str]


def ask(sql: str, **params: object) -> Plan[Rows]:
    return (yield Statement(sql, params))


@pytest.fixture(autouse=True)
def django_lets_us(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests are coroutines so that one text serves both kinds of handles."""
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")


class Scenarios:
    async def test_both_are_committed(self, kind: Kind) -> None:
        opener, target = kind
        async with opener(target) as subject:
            await subject.execute("insert into orders values (1)")
            assert await subject.publish("a") == 0
            assert await subject.publish("b") == 1
            await subject.execute("insert into orders values (2)")
            assert stored(target) == ([], [])
        assert stored(target) == ([1, 2], ["a", "b"])

    async def test_both_are_rolled_back(self, kind: Kind) -> None:
        opener, target = kind
        async with opener(target) as subject:
            await subject.execute("insert into orders values (1)")
            await subject.publish("a")
            raise Undo
        assert stored(target) == ([], [])

    async def test_what_is_published_first_is_rolled_back_too(self, kind: Kind) -> None:
        opener, target = kind
        async with opener(target) as subject:
            await subject.publish("a")
            await subject.execute("insert into orders values (1)")
            raise Undo
        assert stored(target) == ([], [])

    async def test_a_publish_alone_is_committed_with_the_transaction(self, kind: Kind) -> None:
        opener, target = kind
        async with opener(target) as subject:
            await subject.publish("a")
            assert stored(target) == ([], [])
        assert stored(target) == ([], ["a"])

    async def test_a_savepoint_takes_back_only_what_is_inside(self, kind: Kind) -> None:
        opener, target = kind
        async with opener(target) as subject:
            await subject.execute("insert into orders values (1)")
            await subject.publish("before")
            async with subject.savepoint():
                await subject.execute("insert into orders values (2)")
                await subject.publish("inside")
                raise Undo
            async with subject.savepoint():
                await subject.execute("insert into orders values (3)")
                await subject.publish("kept")
            await subject.publish("last")
        assert stored(target) == ([1, 3], ["before", "kept", "last"])

    async def test_a_whole_transaction_takes_back_a_kept_savepoint(self, kind: Kind) -> None:
        opener, target = kind
        async with opener(target) as subject:
            await subject.execute("insert into orders values (1)")
            async with subject.savepoint():
                await subject.publish("inside")
            raise Undo
        assert stored(target) == ([], [])

    async def test_the_wrong_way_to_call_is_named(self, kind: Kind) -> None:
        opener, target = kind
        async with opener(target) as subject:
            known = subject.known
            if known.is_async:
                with pytest.raises(WrongHandle, match=r"^publish\(\) blocks.*`await apublish\(\.\.\.\)`"):
                    known.run(publish("a"))
            else:
                with pytest.raises(WrongHandle, match=r"^apublish\(\) .*`publish\(\.\.\.\)`.* no await"):
                    await known.arun(publish("a"))
        assert stored(target) == ([], [])

    async def test_missing_tables_are_named_with_the_command_to_run(self, kind: Kind) -> None:
        opener, target = kind
        async with opener(target) as subject:
            sqlite = subject.known.dialect == "sqlite"
            with pytest.raises(NotMigrated, match="run `holdfast migrate`") as raised:
                await subject.run(ask(f"select 1 from holdfast{'_' if sqlite else '.'}message"))
            assert raised.value.__cause__ is not None
            raise Undo

    async def test_an_error_of_the_driver_passes_as_it_is(self, kind: Kind) -> None:
        opener, target = kind
        async with opener(target) as subject:
            await subject.publish("a")
            with pytest.raises(Exception) as raised:  # noqa: PT011 - each library has its own
                await subject.publish("a")
            assert not type(raised.value).__module__.startswith("holdfast")
            assert type(raised.value).__name__ in (
                "IntegrityError",
                "UniqueViolation",
                "UniqueViolationError",
            )
            raise Undo
        assert stored(target) == ([], [])

    async def test_a_plan_without_parameters_may_have_a_percent_sign(self, kind: Kind) -> None:
        opener, target = kind
        async with opener(target) as subject:
            assert await subject.run(ask("select 'a%b', 7 % 4")) == [("a%b", 3)]

    async def test_a_statement_that_gives_no_rows_gives_an_empty_list(self, kind: Kind) -> None:
        opener, target = kind
        async with opener(target) as subject:
            assert await subject.run(ask("insert into toy values ('x')")) == []
            assert await subject.run(ask("select 1 from toy where name = 'y'")) == []
            assert await subject.run(
                ask("update toy set name = :n where name = 'x' returning name", n="z")
            ) == [("z",)]


class TestSqlite(Scenarios):
    @pytest.fixture(params=[pytest.param(opener, id=name) for name, opener in kinds.SQLITE])
    def kind(self, request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
        target = str(tmp_path / "toy.db")
        kinds.make_tables(target)
        return request.param, target

    async def test_a_plan_that_fails_half_way_leaves_nothing_of_itself(self, kind: Kind) -> None:
        opener, target = kind
        async with opener(target) as subject:
            await subject.execute("insert into orders values (1)")
            await subject.publish("before")
            with pytest.raises(Exception, match="no such table: a_table"):
                await subject.run(publish_and_fail("half"))
            await subject.publish("after")
        assert stored(target) == ([1], ["after", "before"])

    async def test_scalars_come_back_as_they_went(self, kind: Kind) -> None:
        opener, target = kind
        values = [0, -(2**63), 2**63 - 1, 0.1, -0.0, 1e308, "", "é😀\u2028%s:x?", b"\x00\xff", None]
        async with opener(target) as subject:
            for value in values:
                [(got,)] = await subject.run(ask("select :value", value=value))
                assert (got, type(got)) == (value, type(value))


class TestPostgres(Scenarios):
    @pytest.fixture(scope="class")
    @classmethod
    def database(cls, postgres_server: servers.Server) -> Iterator[str]:
        with postgres_server.database() as dsn:
            kinds.make_tables(dsn)
            yield dsn
            kinds.observer(dsn).close()

    @pytest.fixture(params=[pytest.param(opener, id=name) for name, opener in kinds.POSTGRES])
    def kind(self, request: pytest.FixtureRequest, database: str) -> Kind:
        kinds.observer(database).execute("with o as (delete from orders) delete from toy")
        return request.param, database

    @pytest.mark.parametrize(
        ("cast", "value"),
        [
            (
                "text[]",
                ["a", "", "NULL", "null", "q\"uo'te", "back\\slash", "{br,ace}", "é😀\u2028", " %s :x $1 ? "],
            ),
            ("text[]", ["a", None, "b"]),
            ("text[]", [None, None]),
            ("text[]", []),
            ("uuid[]", [str(uuid.UUID(int=n)) for n in (0, 1, 2**128 - 1)]),
            ("uuid[]", [None, str(uuid.UUID(int=7))]),
            ("uuid[]", []),
            ("timestamptz[]", [datetime(2026, 1, 1, 12, 30, 0, 123456, UTC), None]),
            ("timestamptz[]", [datetime(1970, 1, 1, tzinfo=timezone(timedelta(hours=-9, minutes=-30)))]),
            ("timestamptz[]", []),
            ("float8[]", [0.1, -0.5, 1e308, 5e-324, None]),
            ("float8[]", []),
            ("int[]", [0, 1, -(2**31), 2**31 - 1, None]),
            ("int[]", [1, 2, 3]),
            ("int[]", []),
            ("bigint[]", [1, 2**63 - 1, -(2**63)]),
            ("smallint[]", [1, 32767]),
            ("bool[]", [True, False, None]),
            ("bytea[]", [b"", b"\x00\xff", None]),
        ],
        ids=str,
    )
    async def test_arrays_arrive_whole(self, kind: Kind, cast: str, value: list[Any]) -> None:
        opener, target = kind
        async with opener(target) as subject:
            # Taken apart by the server, so that it is the server's view that is compared.
            back = "::text" if cast == "uuid[]" else ""
            rows = await subject.run(
                ask(
                    f"select each{back} from unnest(:value::{cast}) with ordinality as t(each, n) order by n",
                    value=value,
                )
            )
            got = [bytes(row[0]) if isinstance(row[0], memoryview) else row[0] for row in rows]
            assert got == value
            assert [repr(each) for each in got if isinstance(each, float)] == [
                repr(each) for each in value if isinstance(each, float)
            ]

    async def test_scalars_arrive_whole(self, kind: Kind) -> None:
        opener, target = kind
        summer = datetime(2026, 7, 1, 12, 0, 0, 1, timezone(timedelta(hours=2)))
        values: list[tuple[str, object]] = [
            ("text", "é😀\u2028%s:x?"),
            ("text", None),
            ("uuid", None),
            ("int", 2**31 - 1),
            ("bigint", -(2**63)),
            ("float8", 0.1),
            ("bool", True),
            ("timestamptz", summer),
            ("timestamptz", None),
            ("bytea", b"\x00\xff"),
        ]
        async with opener(target) as subject:
            for cast, value in values:
                [(got,)] = await subject.run(ask(f"select :value::{cast}", value=value))
                got = bytes(got) if isinstance(got, memoryview) else got
                assert (got, type(got)) == (value, type(value))
                if isinstance(got, datetime):
                    assert got.tzinfo is not None

    async def test_many_rows_in_one_statement(self, kind: Kind) -> None:
        opener, target = kind
        names = [f"{random.Random(n).random()}" for n in range(2000)]
        async with opener(target) as subject:
            sql = "insert into toy (name) select * from unnest(:names::text[]) on conflict do nothing returning name"
            assert len(await subject.run(ask(sql, names=names))) == 2000
        assert stored(target)[1] == sorted(names)

    async def test_functions_and_schemas_that_are_missing_are_ours_to_name(self, kind: Kind) -> None:
        opener, target = kind
        for sql in ("select holdfast.append(1)", "insert into holdfast.message values (1)"):
            async with opener(target) as subject:
                with pytest.raises(NotMigrated, match="holdfast"):
                    await subject.run(ask(sql))
                raise Undo

    async def test_a_wrong_operator_is_no_missing_table(self, kind: Kind) -> None:
        opener, target = kind
        async with opener(target) as subject:
            with pytest.raises(Exception, match="operator does not exist") as raised:
                await subject.run(ask("select 1 where 'a'::text = 1::int"))
            assert not isinstance(raised.value, NotMigrated)
            raise Undo
