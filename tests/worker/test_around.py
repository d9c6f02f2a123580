"""Connections that a framework binds to threads: Django's are looked at around each call, others have a hook."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast import Holdfast, RetryPolicy
from tests import servers

# A service with Django as its users have it: connections are kept as long as a thread lives.
SERVICE = """
import asyncio, sys, threading
import django
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

url = sys.argv[1]
given = conninfo_to_dict(url)
settings.configure(USE_TZ=True, DATABASES={"default": {
    "ENGINE": "django.db.backends.postgresql", "NAME": given["dbname"], "USER": given.get("user", ""),
    "PASSWORD": given.get("password", ""), "HOST": given["host"], "PORT": given.get("port", ""),
    "CONN_MAX_AGE": None,
}})
django.setup()
from django.db import connection
from holdfast import Holdfast, RetryPolicy

app = Holdfast(url, threads=8)
together = threading.Barrier(8)
kept = set()

@app.handler("first")
def warm(n: int) -> None:
    together.wait(20)
    look(n)
    kept.add(id(connection.connection))

@app.handler("second", retry=RetryPolicy(attempts_max=1))
def look(n: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("select 1")

async def main():
    app.migrate()
    async with app.running():
        for type, count in (("first", 8), ("second", 20)):
            app.publish_many([app.message(type, n) for n in range(count)])
            while any(each.depth for each in app.operations.queues.list()):
                await asyncio.sleep(0.05)
            print(type, "dead:", app.operations.dead.count(), "kept:", len(kept), flush=True)
            if type == "first":
                await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main())
"""


@pytest.mark.one_postgres
def test_django_in_def_handlers_survives_a_restart_of_the_database(
    postgres_faulty: servers.Server, tmp_path: Path
) -> None:
    (tmp_path / "service.py").write_text(SERVICE)
    with subprocess.Popen(
        [sys.executable, "service.py", postgres_faulty.create_database()],
        cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as service:  # fmt: skip
        assert service.stdin is not None
        assert service.stdout is not None
        try:
            assert service.stdout.readline() == "first dead: 0 kept: 8\n"
            postgres_faulty.kill9()
            postgres_faulty.start()
            service.stdin.write("go on\n")
            service.stdin.flush()
            assert service.stdout.readline().startswith("second dead: 0 ")
        finally:
            service.kill()


def test_a_connection_inside_an_atomic_block_is_left_alone(tmp_path: Path) -> None:
    script = """
import django
from django.conf import settings
settings.configure(USE_TZ=True, DATABASES={"default": {
    "ENGINE": "django.db.backends.sqlite3", "NAME": "a.db", "CONN_MAX_AGE": 0}})
django.setup()
from django.db import connection, transaction
from holdfast.worker.around import called

def inside():
    with transaction.atomic():
        connection.cursor().execute("create table t (n int)")
        before = connection.connection
        called(lambda: None, [])
        assert connection.connection is before, "closed inside the block"
        assert connection.in_atomic_block

inside()
connection.ensure_connection()
called(lambda: None, [])
assert connection.connection is None, "CONN_MAX_AGE is over"
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("batch", [0, 5])
def test_a_hook_surrounds_each_call_in_its_own_thread(batch: int) -> None:
    app = Holdfast("sqlite:///never-opened.db")
    seen: list[tuple[str, int]] = []

    @app.around_call
    @contextmanager
    def session() -> Iterator[None]:
        seen.append(("open", threading.get_ident()))
        try:
            yield
        finally:
            seen.append(("close", threading.get_ident()))

    def note() -> None:
        seen.append(("call", threading.get_ident()))
        if len(seen) < 3:
            raise ConnectionError("once")

    if batch:
        app.handler("a", batch=batch, retry=RetryPolicy(attempts_max=2, base=0.0, cap=0.0))(_many(note))
    else:

        @app.handler("a", retry=RetryPolicy(attempts_max=2, base=0.0, cap=0.0))
        def work(body: dict) -> None:
            note()

    @app.handler("b")
    async def other(body: dict) -> None:
        await asyncio.sleep(0)

    with app.testing() as t:
        app.publish("a", {})
        app.publish("b", {})
        t.drain()
    assert [what for what, _ in seen] == ["open", "call", "close"] * 2, "and not around the async handler"
    assert len({ident for _, ident in seen[:3]}) == 1
    assert seen[0][1] != threading.get_ident()


def _many(note):  # type: ignore[no-untyped-def]
    def work(bodies: list[dict]) -> None:
        note()

    return work


def test_what_a_hook_raises_is_a_failure_of_the_message() -> None:
    app = Holdfast("sqlite:///never-opened.db")

    @app.around_call
    @contextmanager
    def session() -> Iterator[None]:
        raise ConnectionError("no session")
        yield

    @app.handler("a")
    def work(body: dict) -> None:
        raise AssertionError("it was called")

    with app.testing() as t:
        app.publish("a", {})
        with pytest.raises(ExceptionGroup) as caught:
            t.drain()
        assert caught.group_contains(ConnectionError, match="no session")
