"""Configuration files: what they may say, which key an error names, and that no secret is ever shown."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.cli.root import app as cli
from holdfast.errors import HoldfastError, InvalidSettings
from holdfast.facade import configured
from holdfast.transports import MemoryBroker, RabbitMQ
from tests.cli.runner import CliRunner
from tests.transports.conftest import rabbitmq, rabbitmq_version

__all__ = ["rabbitmq", "rabbitmq_version"]

WHOLE = """
[tool.holdfast]
app = "shop:app"
url = "sqlite:///shop.db"
[tool.holdfast.settings]
lease = 60
poll_max = 1.0
[tool.holdfast.brokers.rabbit]
url = "amqp://shop@broker/"
password = "env:RABBIT_PASSWORD"
confirm_seconds = 5
exchanges = [{ name = "vstep.exchange", kind = "direct" }]
[[tool.holdfast.brokers.rabbit.queues]]
name = "grading.request"
bind = { "vstep.exchange" = ["grading.request"] }
dead_letters = { exchange = "vstep.dlx", queue = "grading.dlq" }
[tool.holdfast.brokers.trial]
transport = "memory"
[tool.holdfast.destinations.grading]
broker = "rabbit"
types = ["grading.*"]
to = "vstep.exchange"
key = "{type}"
batch = 100
mode = "plain"
rate = "200/s"
[tool.holdfast.destinations.audit]
broker = "trial"
types = ["grading.*", "order.placed"]
[tool.holdfast.inboxes.callbacks]
broker = "trial"
queue = "shop.callbacks"
bind = { "vstep.exchange" = "grading.done" }
stream = "{subject}"
dedupe = 86400
backlog = 1000
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("HOLDFAST_APP", "HOLDFAST_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def write(text: str, name: str = "pyproject.toml") -> None:
    Path(name).write_text(text)


def opened(text: str, **options: Any) -> Holdfast:
    write(text)
    return Holdfast.from_config(**options)


# --- What it says -------------------------------------------------------------------------------------------------


@pytest.mark.covers("V12", "V13", "X24", "C31")
def test_a_whole_file() -> None:
    app = opened(WHOLE)
    assert (app.url, app.settings.lease, app.settings.poll_max) == ("sqlite:///shop.db", 60, 1.0)
    destinations = app.operations.destinations.declared
    grading: Any = destinations["grading"]
    assert (grading.patterns, grading.to.text, grading.batch, grading.mode) == (
        ("grading.*",), "vstep.exchange", 100, "plain",
    )  # fmt: skip
    rabbit = grading.connector
    assert isinstance(rabbit, RabbitMQ)
    assert (rabbit.confirm_seconds, [each.name for each in rabbit.declare]) == (
        5,
        ["vstep.exchange", "grading.request"],
    )
    audit: Any = destinations["audit"]
    inbox = app.inboxes["callbacks"]
    assert isinstance(audit.connector, MemoryBroker)
    assert audit.connector is inbox.connector  # one broker, however many use it
    assert (inbox.source.queue, inbox.source.bind, inbox.window, inbox.backlog) == (
        "shop.callbacks", {"vstep.exchange": ("grading.done",)}, 86400, 1000,
    )  # fmt: skip
    app.close()


def test_each_destination_gets_the_types_of_its_patterns(here: Path) -> None:
    app = opened(WHOLE.replace('broker = "rabbit"\ntypes', 'broker = "trial"\ntypes'))
    app.migrate()
    app.publish("grading.request", {})
    app.publish("order.placed", {})
    with sqlite3.connect("shop.db") as database:
        rows = database.execute("select queue, type from holdfast_message order by 1, 2").fetchall()
    assert rows == [("audit", "grading.request"), ("audit", "order.placed"), ("grading", "grading.request")]
    app.close()


def test_what_is_given_in_code_wins() -> None:
    app = opened(WHOLE, lease=45)
    assert (app.settings.lease, app.settings.poll_max) == (45, 1.0)
    app.close()


def test_the_nearest_file_is_taken_and_its_own_name_comes_first(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(WHOLE)
    below = here / "src" / "shop"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    found = configured.find()
    assert found is not None
    assert found.app == "shop:app"
    write("[project]\nname = 'shop'\n")  # has no table of ours
    assert configured.find() == found
    write('url = "sqlite:///own.db"\n', "holdfast.toml")
    own = configured.find()
    assert own is not None
    assert (own.url, own.app) == ("sqlite:///own.db", None)


def test_without_a_file(here: Path) -> None:
    write("[project]\nname = 'shop'\n")
    with pytest.raises(
        InvalidSettings, match=r"no holdfast.toml, and no pyproject.toml with \[tool.holdfast\]"
    ):
        Holdfast.from_config()
    with pytest.raises(InvalidSettings, match=r"elsewhere\.toml cannot be read"):
        Holdfast.from_config("elsewhere.toml")


# --- Mistakes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "lease = 60",
            "lease = -1",
            "tool.holdfast.settings.lease: Setting lease=-1 must be a positive number",
        ),
        ("lease = 60", "leese = 60", "tool.holdfast.settings.leese: There is no setting 'leese'"),
        (
            "batch = 100",
            'batch = "many"',
            "tool.holdfast.destinations.grading.batch: expected int | null, got str",
        ),
        (
            "batch = 100",
            "batch = 501",
            "tool.holdfast.destinations.grading: Destination 'grading': batch=501",
        ),
        (
            "batch = 100",
            "bach = 100",
            "tool.holdfast.destinations.grading.bach is not known; there are: broker, types",
        ),
        (
            'mode = "plain"',
            'mode = "fast"',
            "grading.mode: it is none of the values that are allowed: binary",
        ),
        ('types = ["grading.*"]', "", "tool.holdfast.destinations.grading.types is missing"),
        (
            'types = ["grading.*"]',
            "types = []",
            "tool.holdfast.destinations.grading: Destination 'grading': types=",
        ),
        (
            'broker = "rabbit"',
            'broker = "rabit"',
            "grading.broker names 'rabit', which is no broker; there are: rabbit",
        ),
        (
            'queue = "shop.callbacks"',
            "queue = 5",
            "tool.holdfast.inboxes.callbacks.queue: expected str, got int",
        ),
        ("backlog = 1000", "backlog = 0", "tool.holdfast.inboxes.callbacks: Inbox 'callbacks': backlog=0"),
        (
            'transport = "memory"',
            'transport = "kafka"',
            ".trial.transport: it is none of the values that are allowed: rabbit",
        ),
        ('url = "amqp://shop@broker/"', "", "tool.holdfast.brokers.rabbit.url is missing"),
        (
            'url = "amqp://shop@broker/"',
            'url = "http://broker/"',
            "holdfast.brokers.rabbit: RabbitMQ's URL cannot be used",
        ),
        ('kind = "direct"', 'kynd = "direct"', "tool.holdfast.brokers.rabbit.exchanges[0].kynd is not known"),
        ('name = "grading.request"', "", "tool.holdfast.brokers.rabbit.queues[0].name is missing"),
        ('app = "shop:app"', "ap = 1", "tool.holdfast.ap is not known; there are: app, brokers"),
        ('url = "sqlite:///shop.db"', "", "tool.holdfast.url is missing"),
        (
            'url = "sqlite:///shop.db"',
            'url = "env:NOT_THERE"',
            "holdfast.url: The secret in the environment variable NOT",
        ),
        (
            "[tool.holdfast.inboxes.callbacks]\n",
            "[tool.holdfast.inboxes]\nc = 5\n[tool.other]\n",
            "inboxes.c: expected object",
        ),
        ('mode = "plain"', "mode = plain", "pyproject.toml is not TOML (at line"),
    ],
)
def test_an_error_names_the_key(old: str, new: str, said: str) -> None:
    assert old in WHOLE
    with pytest.raises(InvalidSettings) as error:
        opened(WHOLE.replace(old, new, 1))
    assert said in str(error.value)
    assert str(error.value).startswith("pyproject.toml")


# --- Secrets --------------------------------------------------------------------------------------------------------

CANARY = "canary-Xy7-4711"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('password = "env:RABBIT_PASSWORD"', f'password = "{CANARY}"'),
        ('password = "env:RABBIT_PASSWORD"', f'password = "env:{CANARY}!"'),
        ('password = "env:RABBIT_PASSWORD"', f'pasword = "{CANARY}"'),
        ('password = "env:RABBIT_PASSWORD"', f'password = ["{CANARY}"]'),
        ('password = "env:RABBIT_PASSWORD"', f'password = {CANARY}'),
        ('url = "amqp://shop@broker/"', f'url = "amqp://shop:{CANARY}@broker/"'),
        ('url = "amqp://shop@broker/"', f'url = "amqp://shop:{CANARY}@broker:port/"'),
        ('url = "sqlite:///shop.db"', f'url = "postgresql://shop:{CANARY}@db/shop"'),
        ('url = "sqlite:///shop.db"', f'url = "postgresql://db/shop?password={CANARY}"'),
    ],
)  # fmt: skip
def test_a_secret_in_the_file_is_refused_and_not_quoted(old: str, new: str) -> None:
    assert old in WHOLE
    with pytest.raises(InvalidSettings) as error:
        opened(WHOLE.replace(old, new, 1))
    assert CANARY not in str(error.value)
    assert error.value.__cause__ is None


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield text
    root.setLevel(before)
    root.removeHandler(handler)


@pytest.mark.parametrize("kind", ["env", "file", "url"])
def test_canary_secrets_are_found_nowhere(
    here: Path, rabbitmq: str, kind: str, monkeypatch: pytest.MonkeyPatch, logged: io.StringIO
) -> None:
    """A password that the broker refuses: looked for in texts, errors, logs, --json and every byte of the database."""
    host = rabbitmq.rpartition("@")[2].partition("/")[0]
    url, password = f"amqp://guest@{host}/", ""
    monkeypatch.setenv("CANARY", f"amqp://guest:{CANARY}@{host}/" if kind == "url" else CANARY)
    (here / "secret").write_text(CANARY + "\n")
    if kind == "url":
        url = "env:CANARY"
    else:
        password = f'password = "{"env:CANARY" if kind == "env" else f"file:{here}/secret"}"'
    app = opened(
        f"""
[tool.holdfast]
url = "sqlite:///shop.db"
[tool.holdfast.brokers.rabbit]
url = "{url}"
{password}
[tool.holdfast.destinations.orders]
broker = "rabbit"
types = ["order.*"]
to = "amq.topic"
[tool.holdfast.inboxes.billing]
broker = "rabbit"
queue = "shop.billing"
"""
    )
    app.migrate()
    monkeypatch.setattr("holdfast.worker.standings.LOOKS_EVERY", 0.02)
    app.publish("order.placed", {})
    asyncio.run(refused(app))
    told = [
        logged.getvalue(),
        repr(app),
        repr(app.inboxes),
        repr(list(app.handlers)),
        repr(configured.find()),
    ]
    with pytest.raises(HoldfastError) as error:
        raise HoldfastError(app.operations.destinations.show("orders").why)
    assert "refused" in str(error.value).lower()
    told.append(str(error.value))
    for words in ("destinations list", "destinations show orders", "destinations test orders", "inboxes list",
                  "inboxes test billing", "status", "doctor", "messages list", "audit"):  # fmt: skip
        for extra in ([], ["--json"]):
            result = CliRunner().invoke(cli, [*words.split(), *extra])
            assert result.exit_code in (0, 1, 3), result.output
            told.append(result.output + result.stderr)
            if extra:
                json.loads(result.stdout)
    app.close()
    told += [file.read_bytes().decode(errors="replace") for file in here.glob("shop.db*")]
    assert len(told) > 20
    assert [text for text in told if CANARY in text] == []


async def refused(app: Holdfast) -> None:
    """Until both connections were refused, and operators told."""
    async with app.running(), asyncio.timeout(30):
        while not all(  # noqa: ASYNC110
            each and each[0].connections and each[0].connections[0].tries
            for each in (app.operations.destinations.list(), app.operations.inboxes.list())
        ):
            await asyncio.sleep(0.02)


# --- The command line -------------------------------------------------------------------------------------------------


def test_the_command_line_finds_the_application_of_the_file(here: Path) -> None:
    write('[tool.holdfast]\napp = "fileshop:app"\n')
    (here / "fileshop.py").write_text(
        "from holdfast import Holdfast\napp = Holdfast('sqlite:///own.db')\napp.migrate()\n"
    )
    result = CliRunner().invoke(cli, ["queues", "list"])
    assert (result.exit_code, result.stdout) == (0, "There are no queues.\n")


def test_without_an_application_the_file_is_one(here: Path) -> None:
    app = opened(
        WHOLE.replace('app = "shop:app"\n', "").replace('broker = "rabbit"\ntypes', 'broker = "trial"\ntypes')
    )
    app.migrate()
    app.close()
    result = CliRunner().invoke(cli, ["destinations", "list", "--json"])
    assert [each["name"] for each in json.loads(result.stdout)] == ["audit", "grading"]
    result = CliRunner().invoke(cli, ["destinations", "test", "audit"])
    assert "destination audit: can be used" in result.stdout


def test_a_mistake_in_the_file_is_one_line(here: Path) -> None:
    write("[tool.holdfast]\nulr = 5\n")
    result = CliRunner().invoke(cli, ["status"])
    assert (result.exit_code, result.stderr) == (
        2,
        "holdfast: pyproject.toml: tool.holdfast.ulr is not known; there are: app, brokers, destinations, inboxes, "
        "settings, url.\n",
    )
