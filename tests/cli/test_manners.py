"""How the command line behaves: targets, secrets, errors, questions, exit codes, foreign text."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import typer.main

from holdfast.cli import show
from holdfast.cli.filters import StateName
from holdfast.cli.root import app
from holdfast.operations import STATES
from tests.cli.conftest import Shell
from tests.cli.runner import CliRunner
from tests.operations.world import World
from tests.test_tidy import BANNED_WORDS

SCRIPT = Path(sys.executable).with_name("holdfast")


def commands() -> list[tuple[str, ...]]:
    found = [(each.callback.__name__,) for each in app.registered_commands if each.callback is not None]
    for group in app.registered_groups:
        assert group.typer_instance is not None
        for each in group.typer_instance.registered_commands:
            assert each.callback is not None
            found.append((str(group.name), each.name or each.callback.__name__))
    return found


def test_all_commands_are_there() -> None:
    assert {" ".join(each) for each in commands()} >= {
        "demo", "init", "migrate", "worker", "status", "why", "doctor",
        "messages list", "messages show", "messages retry", "messages park", "messages cancel", "messages poison",
        "dead list", "dead show", "dead redrive", "dead discard",
        "streams list", "streams blocked", "streams show", "streams set-aside", "streams release", "streams halt",
        "streams resume",
        "queues list", "queues pause", "queues resume", "queues move", "queues drop",
    }  # fmt: skip


WITHOUT_DATABASE = (("demo",), ("worker",), ("keys", "new"), ("schedules", "explain"))


@pytest.mark.one_postgres
def test_a_rule_is_explained_without_a_database(holdfast: Shell) -> None:
    asked = ("schedules", "explain", "daily 02:30 in Europe/Berlin", "--after", "2026-03-28 12:00", "-n", "1")
    answer = holdfast(*asked, database=False)
    assert answer.code == 0
    assert "03:00 Europe/Berlin" in answer.out
    assert "02:30 does not exist" in answer.out
    assert holdfast("schedules", "explain", "0 25 * * *", database=False).code == 2


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_explains_itself(holdfast: Shell, command: tuple[str, ...]) -> None:
    answer = holdfast(*command, "--help", database=False)
    assert answer.code == 0
    assert len(answer.out.splitlines()[2].strip()) > 20
    if command not in WITHOUT_DATABASE:
        for option in ("--json", "--url", "--app"):
            assert option in answer.out


@pytest.mark.parametrize("group", ["", *sorted(str(each.name) for each in app.registered_groups)])
def test_no_line_of_a_list_of_commands_is_cut_in_80_columns(
    holdfast: Shell, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first sentence of a command's help is what the list shows: it must fit."""
    monkeypatch.setenv("COLUMNS", "80")
    answer = holdfast(*filter(None, [group]), "--help", database=False)
    _, found, listed = answer.out.partition("Commands:")
    assert found
    assert [line for line in listed.splitlines() if line.endswith("...")] == []


def test_the_usage_of_a_command_has_one_pair_of_brackets_for_each_argument() -> None:
    said = [help_of(" ".join(command)).splitlines()[0] for command in commands()]
    assert [line for line in said if "[[" in line or "...]..." in line] == []


def test_no_command_has_one_option_twice() -> None:
    """Of two options with one name the last wins, and nobody says so."""

    def walk(command: Any, path: str) -> Iterator[tuple[str, str]]:
        for parameter in command.params:
            if parameter.param_type_name == "option":
                yield from ((path, name) for name in (*parameter.opts, *parameter.secondary_opts))
        for name, each in getattr(command, "commands", {}).items():
            yield from walk(each, f"{path} {name}")

    found = Counter(walk(typer.main.get_command(app), "holdfast"))
    assert len(found) > 200
    assert [each for each, count in found.items() if count > 1] == []


def test_commands_and_options_use_our_words() -> None:
    """Docs may say job or workflow, which is what people search for; what they type is one word per thing."""
    said = {" ".join(command): [] for command in commands()}
    for command, words in said.items():
        words += [*command.split(), *re.findall(r"--[a-z-]+", help_of(command))]
    wrong = [
        (command, word)
        for command, words in said.items()
        for word in words
        if set(re.findall(r"[a-z]+", word)) & BANNED_WORDS.keys()
    ]
    assert wrong == []


def help_of(command: str) -> str:
    return CliRunner().invoke(app, [*command.split(), "--help"]).stdout


def test_the_states_are_those_of_operations() -> None:
    assert {each.value for each in StateName} == set(STATES)


# -- targets


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with an application, in the folder of the test."""
    name = f"shop_{uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(
        'from holdfast import Holdfast\napp = Holdfast("sqlite:///shop.db")\nother = 1\n'
        '@app.handler("order.placed")\ndef keep(order: dict) -> None: ...\n'
    )
    monkeypatch.chdir(tmp_path)
    return name


def test_an_application_by_argument_option_or_environment(holdfast: Shell, shop: str, tmp_path: Path) -> None:
    assert holdfast("init", f"{shop}:app", database=False).out.startswith(
        "sqlite:///shop.db: migrated to version "
    )
    assert (tmp_path / "shop.db").exists()
    assert "keep" in holdfast("status", f"{shop}:app", database=False).out
    assert "keep" in holdfast("status", shop, database=False).out  # `app` is the usual name
    assert "keep" in holdfast("queues", "list", "-a", f"{shop}:app", database=False).out
    assert "keep" in holdfast("queues", "list", database=False, HOLDFAST_APP=f"{shop}:app").out


def test_what_is_said_comes_before_the_environment(world: World, holdfast: Shell, shop: str) -> None:
    world.publish(queue="here")
    assert "here" in holdfast("queues", "list", HOLDFAST_APP=f"{shop}:app").out
    assert "here" in holdfast("queues", "list", database=False, HOLDFAST_DATABASE_URL=holdfast.url).out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["status"], "Which database?"),
        (["status", "no_such_module:app"], "no module no_such_module"),
        (["status", ":app"], "does not name an application"),
        (["status", "{shop}:nothing"], "has no nothing"),
        (["status", "{shop}:other"], "is a int and not a Holdfast application"),
        (["status", "{shop}:app", "-a", "{shop}:other"], "Two applications"),
        (["status", "{shop}:app", "--url", "sqlite:///x.db"], "Both an application and a URL"),
        (["status", "--url", "mysql://x"], "not a database that Holdfast knows"),
    ],
)
def test_targets_that_cannot_be_meant(holdfast: Shell, shop: str, arguments: list[str], told: str) -> None:
    answer = holdfast(*(each.replace("{shop}", shop) for each in arguments), database=False)
    assert (answer.code, answer.out) == (2, "")
    assert told in answer.err
    assert len(answer.err.splitlines()) == 1


# -- secrets


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:hunter2@db/x",
        "postgresql://ann@db/x?password=hunter2",
        "postgresql://ann@db/x?sslkey=k.pem&sslpassword=hunter2",
        "postgresql://ann@db/x?SSLPassword=hunter2",
        "postgresql://[ann:hunter2@db/x",
    ],
)
def test_a_password_on_the_command_line_is_refused_and_not_repeated(holdfast: Shell, url: str) -> None:
    """RELIABILITY S37."""
    answer = holdfast("status", "--url", url, database=False)
    assert (answer.code, answer.out) == (2, "")
    assert "HOLDFAST_DATABASE_URL" in answer.err
    assert "hunter2" not in answer.err


def test_a_password_in_the_environment_is_never_shown(holdfast: Shell) -> None:
    answer = holdfast("init", database=False, HOLDFAST_DATABASE_URL="postgresql://ann:hunter2@127.0.0.1:1/x")
    assert answer.code == 1
    assert "hunter2" not in answer.err + answer.out


# -- errors and exit codes


def test_errors_are_one_line_on_standard_error(world: World, holdfast: Shell) -> None:
    id = world.publish(queue="q")
    world.claim()
    answer = holdfast("messages", "park", id, "--json")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith(f"holdfast: Message {id} in queue q is leased by w1 until ")
    assert len(answer.err.splitlines()) == 1


def test_no_tables(holdfast: Shell, sqlite_path: Path) -> None:
    sqlite_path.touch()
    answer = holdfast("messages", "list")
    assert (answer.code, "holdfast migrate" in answer.err) == (1, True)


def test_unknown_options_and_states_are_wrong_calls(world: World, holdfast: Shell) -> None:
    assert holdfast("messages", "list", "--nonsense").code == 2
    assert holdfast("messages", "list", "--state", "lost").code == 2
    assert holdfast("messages", "park").code == 2
    assert holdfast("messages", "park", "12").code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("streams", "show", "q", "\udcff"),
        ("dead", "export", "\udcff.jsonl"),
        ("dead", "list", "--reason", "²"),
        ("dead", "list", "--reason", "9" * 30),
        ("dead", "list", "--before", "9999999d"),
        ("dead", "show", "01a1e164-2605-75af-9fb6-000000000001", "--number", "9" * 30),
        ("outages", "show", "9" * 30),
        ("orchestrations", "show", "one", "--execution", "9" * 30),
        ("orchestrations", "export", "journals", "--sample", "9" * 30),
    ],
    ids=" ".join,
)
def test_what_no_database_can_hold_is_a_wrong_call(
    world: World, holdfast: Shell, arguments: tuple[str, ...]
) -> None:
    answer = holdfast(*arguments)
    assert (answer.code, answer.out) == (2, "")
    assert "Traceback" not in answer.err


def test_a_file_that_cannot_be_used_is_named(world: World, holdfast: Shell, tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    answer = holdfast("orchestrations", "export", tmp_path / "taken")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err == f"holdfast: {tmp_path / 'taken'} cannot be used: File exists.\n"


# -- questions

DESTRUCTIVE = [
    ("messages", "cancel", "{id}"),
    ("messages", "poison", "{id}", "--why", "x"),
    ("dead", "discard", "{dead}", "--why", "x"),
    ("streams", "set-aside", "q", "s"),
    ("streams", "release", "{id}"),
    ("queues", "move", "q", "doomed"),
    ("queues", "drop", "q", "--force"),
]


@pytest.mark.parametrize("command", DESTRUCTIVE, ids=lambda each: " ".join(each[:2]))
def test_what_destroys_is_refused_when_nobody_can_be_asked(
    world: World, holdfast: Shell, command: tuple[str, ...]
) -> None:
    (id,) = world.in_stream(1)
    dead = world.publish(queue="doomed")
    world.die(world.claim("doomed", name="w2")[0])
    filled = [each.format(id=id, dead=dead) for each in command]
    before = (world.operations.messages.find(), world.operations.dead.list())
    answer = holdfast(*filled)
    assert (answer.code, answer.out) == (2, "")
    assert "add --yes" in answer.err
    assert (world.operations.messages.find(), world.operations.dead.list()) == before
    world.sql("update holdfast.worker set seen_at = 0")
    assert holdfast(*filled, "--yes").code == 0
    assert (world.operations.messages.find(), world.operations.dead.list()) != before


def test_on_a_terminal_somebody_is_asked(
    world: World, holdfast: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = world.publish(queue="q")
    answers = iter([False, True])

    def confirm(question: str, abort: bool) -> None:
        assert str(id) in question
        if not next(answers):
            import typer

            raise typer.Abort

    monkeypatch.setattr(show, "nobody_is_there", lambda: False)
    monkeypatch.setattr("typer.confirm", confirm)
    assert holdfast("messages", "cancel", id).code == 1
    assert world.states() == {id: "ready"}
    assert holdfast("messages", "cancel", id).code == 0
    assert world.outcome(id) == ["cancelled"]


# -- foreign text

HOSTILE = "\x1b[31mred\x1b]0;title\x07 [bold]markup[/] \u202eevil\nline :smile:"


def test_foreign_text_is_shown_and_not_obeyed(world: World, holdfast: Shell) -> None:
    id = world.publish("type." + HOSTILE, queue="q", subject=HOSTILE, body=json.dumps({"x": HOSTILE}))
    world.fail(world.claim()[0], 600.0, text=HOSTILE)
    for command in (("messages", "list"), ("messages", "show", id), ("why", id), ("status",)):
        out = holdfast(*command).out
        assert not any(sign in out for sign in "\x1b\x07\u202e")
    assert "[bold]markup[/]" in holdfast("messages", "list").out
    assert ":smile:" in holdfast("messages", "list").out
    (found,) = holdfast("messages", "list", "--json").json
    assert found["type"] == "type." + HOSTILE


# -- as a process


def test_as_a_process(tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [SCRIPT, *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "COLUMNS": "40"},
        )

    assert run("--version").stdout.startswith("holdfast ")
    url = "sqlite:///p.db"
    assert run("init", "--url", url).returncode == 0
    answer = run("status", "--url", url, "--json")
    assert (answer.returncode, json.loads(answer.stdout)["depth"], answer.stderr) == (0, 0, "")
    answer = run("why", str(uuid4()), "--url", url)
    assert (answer.returncode, answer.stdout.count("\n")) == (1, 1)
    answer = run("messages", "show", str(uuid4()), "--url", url)
    assert (answer.returncode, answer.stdout, answer.stderr.count("\n")) == (1, "", 1)
    assert "Traceback" not in answer.stderr


def test_watching_ends_quietly(tmp_path: Path) -> None:
    url = "sqlite:///p.db"
    subprocess.run([SCRIPT, "init", "--url", url], cwd=tmp_path, check=True, capture_output=True)
    watching = subprocess.Popen(
        [SCRIPT, "status", "--watch", "--url", url],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever runs the tests in the background has told us to ignore it, which a child inherits.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        assert watching.stdout is not None
        while "No worker is known." not in watching.stdout.readline():
            assert watching.poll() is None
        watching.send_signal(signal.SIGINT)
        assert watching.wait(30) == 0
        assert watching.stderr is not None
        assert watching.stderr.read() == ""
    finally:
        watching.kill()
        watching.communicate()


@pytest.mark.one_postgres
def test_on_postgresql(postgres_dsn: str) -> None:
    holdfast = Shell(postgres_dsn)
    assert "holdfast migrate" in holdfast("status").err
    assert "migrated to version" in holdfast("init").out
    assert holdfast("status", "--json").json["depth"] == 0
    assert "create table holdfast.message" in holdfast("migrate", "--sql").out
    assert holdfast("queues", "list").out == "There are no queues.\n"
    assert holdfast("why", uuid4()).code == 1
