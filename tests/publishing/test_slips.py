"""Slips when publishing: a forgotten `on=`, a queue that nobody has, a driver that is not there."""

from __future__ import annotations

import logging
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.errors import StoreUnavailable, UsageError
from holdfast.store import connecting_sqlite


async def test_require_on_refuses_a_publish_without_it(tmp_path: Path) -> None:
    app = Holdfast(f"sqlite:///{tmp_path}/a.db", require_on=True)

    @app.handler("order.placed")
    async def ship(order: dict) -> None: ...

    with pytest.raises(UsageError, match=r"order\.placed was published without on=.*on=session"):
        app.publish("order.placed", {})
    with pytest.raises(UsageError, match="without on="):
        await app.apublish("order.placed", {})
    with pytest.raises(UsageError, match="without on="):
        app.publish_many([app.message("order.placed", {})])
    with pytest.raises(UsageError, match="without on="):
        ship.publish({})
    with sqlite3.connect(tmp_path / "a.db") as db:
        app.publish("order.placed", {}, on=db)
    assert len(app.operations.messages.find()) == 1
    app.close()


def test_on_sqlite_the_error_after_waiting_names_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting_sqlite, "BUSY_SECONDS", 0.1)
    app = Holdfast(f"sqlite:///{tmp_path}/a.db")
    app.migrate()
    with sqlite3.connect(tmp_path / "a.db") as db:
        db.execute("create table t (n)")
        db.execute("insert into t values (1)")
        with pytest.raises(StoreUnavailable, match=r"publish in it: app\.publish\(\.\.\., on=connection\)"):
            app.publish("a", {})
    app.close()


async def test_a_queue_that_nobody_has_is_told_once(url: str, caplog: pytest.LogCaptureFixture) -> None:
    other, app = Holdfast(url), Holdfast(url)

    @other.handler("mail.sent", name="archive")
    async def archive(mail: dict) -> None: ...

    @app.handler("order.placed", name="crm")
    async def crm(order: dict) -> None: ...

    other.prepare()
    with caplog.at_level(logging.WARNING):
        app.publish("order.placed", {}, queue="crm")
        app.publish("order.placed", {}, queue="archive")  # another application has it
        await app.apublish("order.placed", {}, queue="archive")
        assert caplog.records == []
        await app.apublish("order.placed", {}, queue="crmm")
        app.publish("order.placed", {}, queue="crmm")
    (told,) = caplog.records
    assert "published to queue crmm, which no handler has" in told.getMessage()
    assert "archive, crm" in told.getMessage()
    app.close()
    other.close()


DJANGO = """
import logging, sys
import django
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict
logging.basicConfig(format="%(message)s")
url, other = sys.argv[1], sys.argv[2]
if url.startswith("sqlite"):
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": url.removeprefix("sqlite:///")}
else:
    given = conninfo_to_dict(url)
    database = {"ENGINE": "django.db.backends.postgresql", "NAME": given["dbname"], "USER": given.get("user", ""),
                "PASSWORD": given.get("password", ""), "HOST": given["host"], "PORT": given.get("port", "")}
settings.configure(USE_TZ=True, DATABASES={"default": database})
django.setup()
from django.db import connection, transaction
from holdfast import Holdfast

app, elsewhere = Holdfast(url), Holdfast(other)
elsewhere.publish("outside", {})
app.publish("outside", {})
with transaction.atomic():
    elsewhere.publish("another database", {})
    app.publish("right", {}, on=connection)
with transaction.atomic():
    app.publish("forgotten", {})
"""


def test_inside_an_atomic_block_of_django_a_forgotten_on_is_noticed(url: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DJANGO, url, f"sqlite:///{tmp_path}/other.db"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("forgotten was published without on= inside an atomic block of Django")


def test_a_missing_driver_says_what_to_install() -> None:
    hidden = "import sys; sys.modules['psycopg'] = None; import holdfast; holdfast.Holdfast('postgresql://localhost/shop')"
    done = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, timeout=60)
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        "holdfast.errors.InvalidSettings: postgresql://localhost/shop needs the driver psycopg"
    )
    assert "pip install 'holdfast[postgres]'" in last
