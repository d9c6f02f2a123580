"""The FastAPI and Django snippets of the README, as they are printed, with a database of the test's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg

from tests.docs.blocks import ROOT, blocks_of

USE_WEB = """
import time
from fastapi.testclient import TestClient
import web
with TestClient(web.web) as client:
    answer = client.post("/users", params={"email": "anna@example.com"})
    assert answer.json() == {"email": "anna@example.com"}, answer.text
    end = time.monotonic() + 60
    while web.jobs.operations.status().depth and time.monotonic() < end:
        time.sleep(0.05)
"""

JOBS = """
from holdfast import Holdfast
app = Holdfast("sqlite:///shop.db")

@app.handler("order.placed")
def send_receipt(order: dict) -> None:
    from shop.models import Order
    print("receipt for", Order.objects.get(pk=order["id"]).customer)
"""

MODELS = """
from django.db import models

class Order(models.Model):
    customer = models.TextField()
"""

USE_VIEW = """
import asyncio
import django
from django.conf import settings
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}},
    INSTALLED_APPS=["shop"], DEFAULT_AUTO_FIELD="django.db.models.BigAutoField", ALLOWED_HOSTS=["*"],
)
django.setup()
from django.db import connection
from django.test import RequestFactory
from shop.jobs import app
from shop.models import Order
from shop.views import place_order
with connection.schema_editor() as editor:
    editor.create_model(Order)
assert place_order(RequestFactory().post("/", {"customer": "anna"})).status_code == 200
asyncio.run(app.worker(until_idle=True).run())
app.close()
"""


def printed(beginning: str) -> str:
    """The block of the README that begins so."""
    (found,) = [each.text for each in blocks_of("README.md") if each.text.startswith(beginning)]
    return found


def run(folder: Path, *command: str, **environment: str) -> str:
    path = os.pathsep.join([str(folder), str(ROOT / "src")])
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_fastapi(postgres_dsn: str, tmp_path: Path) -> None:
    text = printed("# web.py")
    theirs = postgres_dsn.replace("postgresql://", "postgresql+psycopg://")
    text = text.replace("postgresql+psycopg://localhost/shop", theirs)
    text = text.replace("postgresql://localhost/shop", postgres_dsn)
    assert "localhost" not in text
    (tmp_path / "web.py").write_text(text)
    with psycopg.connect(postgres_dsn, autocommit=True) as db:
        db.execute("create table users (email text)")
        run(tmp_path, "-m", "holdfast", "migrate", "-a", "web:jobs")
        assert "mail to anna@example.com" in run(tmp_path, "-c", USE_WEB)
        assert db.execute("select email from users").fetchall() == [("anna@example.com",)]


def test_django(tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    shop.mkdir()
    for name, text in (
        ("__init__", ""),
        ("jobs", JOBS),
        ("models", MODELS),
        ("views", printed("# shop/views.py")),
    ):
        (shop / f"{name}.py").write_text(text)
    assert "receipt for anna" in run(tmp_path, "-c", USE_VIEW)
