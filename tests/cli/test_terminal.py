"""What people see: ids in part, names instead of numbers, one kind of question, and hostile text that stays text."""

from __future__ import annotations

import json
import logging
import os
import pty
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
import typer

from holdfast.cli import completing, show, tables
from holdfast.cli.tables import Page, shortened
from holdfast.model.message import Reason
from holdfast.model.text import counted, safe_json, visible
from holdfast.telemetry.logs import JsonFormatter, Log, TextFormatter
from tests.cli.conftest import Shell
from tests.cli.test_manners import SCRIPT, commands, help_of
from tests.operations.world import World

# -- ids


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show, "width", lambda: 80)


@pytest.mark.usefixtures("narrow")
def test_what_a_table_shows_of_an_id_is_taken_by_every_command(world: World, holdfast: Shell) -> None:
    world.subscribe("q", "order.placed")
    id = world.publish()
    short = holdfast("messages", "list").out.splitlines()[1].split()[0]
    assert short == str(id)[-8:]
    assert holdfast("why", short, "--json").json["id"] == str(id)
    assert holdfast("messages", "show", short, "--json").json["id"] == str(id)
    # Whatever changes something repeats the whole id.
    assert holdfast("messages", "park", short).out == f"{id} in queue q: parked\n"
    assert holdfast("messages", "retry", short).out == f"{id} in queue q: claimable now\n"
    assert (
        holdfast("messages", "poison", short, "--why", "x", "--yes").out == f"{id} in queue q: dead letter\n"
    )
    assert holdfast("dead", "list").out.splitlines()[1].split()[0] == short
    assert holdfast("dead", "hold", short, "--why", "x").out == f"{id} in queue q: held: x\n"
    assert holdfast("dead", "unhold", short).out == f"{id} in queue q: not held any more\n"
    assert holdfast("dead", "redrive", short).out == f"{id} in queue q: redriven\n"
    assert len(holdfast("audit", "--on", short, "--json").json) == 6
    assert str(id) in holdfast("messages", "cancel", short).err  # the question
    assert holdfast("messages", "cancel", short, "--yes").out == f"{id} in queue q: cancelled\n"


def test_an_id_that_several_have_shows_them(world: World, holdfast: Shell) -> None:
    world.subscribe("q", "order.placed")
    like = [f"01a1e164-2605-75af-9fb6-{n:04x}ffffeeee" for n in (1, 2)]
    for id in like:
        world.sql("insert into holdfast.message (id, type, body) values (:id, 'order.placed', '{}')", id=id)
    answer = holdfast("messages", "park", "ffffeeee")
    assert (answer.code, answer.out) == (2, "")
    told, *candidates = answer.err.splitlines()
    assert told == "holdfast: 2 messages have an id like ffffeeee: give more of it."
    assert sorted(each.split()[0] for each in candidates) == like
    assert all("pending in q, order.placed" in each for each in candidates)


# -- words instead of numbers


def test_flags_and_reasons_have_names(world: World, holdfast: Shell) -> None:
    id = world.publish(queue="q", body='{"status": 3}')
    world.fail(world.claim()[0], 600.0, Reason.TIMEOUT_EXCEEDED, flags=1 << 3)
    (pending,) = holdfast("messages", "show", id, "--json").json["pending"]
    assert (pending["reason"], pending["flags"]) == ("timeout-exceeded", ["stored", "failed", "step-1"])
    assert "status" not in pending
    assert pending["body"] == {"status": 3}  # what is the user's stays as it is
    assert "flags         stored, failed, step-1\n" in holdfast("messages", "show", id).out
    holdfast("messages", "poison", id, "--why", "x", "--yes")
    holdfast("dead", "redrive", id)
    assert "reason poison-message" in holdfast("audit", "--action", "dead.redrive").out


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 messages"), (1, "1 message"), (2, "2 messages"), (1204, "1,204 messages")]
)
def test_numbers_agree_with_their_nouns(number: int, said: str) -> None:
    assert counted(number, "message") == said


def test_one_is_not_several(world: World, holdfast: Shell) -> None:
    world.subscribe("q", "order.placed")
    world.subscribe("old", "nothing")
    world.publish()
    world.publish("nobody.cares")
    assert not re.search(
        r"\b1 (messages|streams|attempts|dead letters)\b", holdfast("status").out + holdfast("doctor").out
    )
    world.fail(world.claim()[0], 600.0)
    assert holdfast("messages", "retry", "--all").out == "1 message claimable now\n"
    assert holdfast("queues", "drop", "old", "--yes").out == "queue old: dropped, 0 messages discarded\n"


def test_why_shows_what_a_dead_letter_died_of(world: World, holdfast: Shell) -> None:
    id = world.publish(queue="q")
    world.die(world.claim()[0])
    assert "Its error: the end." in holdfast("why", id).out


# -- questions


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_yes_is_taken_by_every_command_that_changes_something(command: tuple[str, ...]) -> None:
    """Who writes a script need not know which of them ask."""
    told = help_of(" ".join(command))
    changes = "--as" in told
    assert ("--yes" in told) == changes
    assert changes == (command not in READING)


READING = {
    ("demo",), ("worker",), ("status",), ("why",), ("doctor",), ("metrics",), ("audit",), ("grants",),
    ("messages", "list"), ("messages", "show"), ("dead", "list"), ("dead", "groups"), ("dead", "show"),
    ("dead", "export"), ("subscriptions", "list"), ("streams", "list"), ("streams", "blocked"),
    ("streams", "show"), ("queues", "list"),
    *((group, each) for group in ("destinations", "inboxes") for each in ("list", "show", "test")),
    *((group, each) for group in ("requests", "outages") for each in ("list", "show")), ("messages", "stuck"),
    *(("schedules", each) for each in ("list", "show", "next", "why", "explain")),
    *(("orchestrations", each) for each in ("list", "show", "journal", "result", "check", "export")),
    ("breakers", "list"), ("keys", "new"), ("keys", "list"), ("alerts", "list"), ("alerts", "check"),
}  # fmt: skip


# -- the width of a terminal


def test_a_name_loses_its_middle_and_a_sentence_its_end() -> None:
    assert shortened("customer.registered.by.partner", 15) == "custome…partner"
    assert shortened("a sentence that is too long", 12, at_end=True) == "a sentence…"
    assert shortened("short", 10) == "short"
    assert shortened("漢字漢字漢字", 7) == "漢…字"  # wide characters count twice


def test_a_pipe_gets_whole_ids_and_times(world: World, holdfast: Shell) -> None:
    world.subscribe("q" * 60, "order.placed")
    id = world.publish()
    heading, line = holdfast("messages", "list", COLUMNS="80").out.splitlines()
    assert str(id) in line
    assert "q" * 60 in line
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", line)
    assert heading.split() == ["id", "queue", "type", "state", "claimable"]  # and no column without a value


def test_columns_give_way_in_order() -> None:
    id = UUID(int=7)
    columns, row = ("id", "queue", "stream", "error"), (id, "q" * 30, "s" * 30, "e" * 90)
    for width, shown in ((200, 4), (80, 4), (60, 4), (50, 3)):
        lines, gone = tables.lines(Page(width), columns, [row], ("stream",))
        assert max(map(len, lines)) <= width
        assert len(lines[0].split()) == shown
        assert gone == ["stream"][: 4 - shown]
        assert lines[1].startswith(str(id)[-8:])


def test_a_long_text_in_a_column_of_ids_gives_way_and_the_ids_do_not() -> None:
    """As in the audit, where a command was about one message or about a filter."""
    id = UUID("01a1e164-2605-75af-9fb6-9e3779b97f4a")
    rows = [
        (id, "short"),
        ("queue charge, fingerprint f067c3ec8f1a and more of it", "the mail server is being moved"),
    ]
    made, left_out = tables.lines(Page(40), ("on", "why"), rows)
    assert left_out == []
    assert all(len(line) <= 40 for line in made)
    assert made[1].startswith(str(id)[-8:])


def test_on_a_real_terminal(tmp_path: Path) -> None:
    """Its width, colours, and NO_COLOR: nobody has patched anything here."""
    url = "sqlite:///p.db"
    subprocess.run([SCRIPT, "init", "--url", url], cwd=tmp_path, check=True, capture_output=True)

    def typed(**environment: str) -> str:
        ours, theirs = pty.openpty()
        environment = {"COLUMNS": "44", "LINES": "20", "TERM": "xterm"} | environment
        subprocess.run(
            [SCRIPT, "status", "--url", url], cwd=tmp_path, check=True, stdout=theirs, stderr=theirs,
            env={**{k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}, **environment},
        )  # fmt: skip
        os.close(theirs)
        text = b""
        while True:
            try:
                read = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            text += read
        os.close(ours)
        return text.decode().replace("\r\n", "\n")

    coloured, plain = typed(), typed(NO_COLOR="1")
    assert "\x1b[32mNothing is wrong." in coloured
    assert "\x1b" not in plain
    assert "Nothing is wrong." in plain


# -- hostile text

HOSTILE = "order\x1b[2J\n2026-01-01 CRITICAL holdfast forged line\x9b31m\u202e\x07"
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def test_a_terminal_obeys_nothing_that_came_with_a_message(world: World, holdfast: Shell) -> None:
    world.sql("insert into holdfast.queue (name) values ('q')")
    id = world.publish(
        HOSTILE, queue="q", subject=HOSTILE, stream=HOSTILE, headers=json.dumps({"x": HOSTILE})
    )
    world.fail(world.claim()[0], 600.0, text=HOSTILE)
    other = world.publish(HOSTILE, queue="q")
    world.die(world.claim()[0])
    world.publish(HOSTILE)
    asked = [
        ("status",), ("doctor",), ("messages", "list"), ("messages", "show", id), ("why", id), ("why", other),
        ("dead", "list"), ("dead", "groups"), ("dead", "show", other), ("streams", "list"), ("queues", "list"),
        ("audit",), ("metrics",),
    ]  # fmt: skip
    for command in asked:
        for form in ((), ("--json",)):
            answer = holdfast(*command, *form)
            assert OBEYED.findall(answer.out + answer.err) == [], (command, form)
            assert not any(line.startswith("2026-01-01 CRITICAL") for line in answer.out.splitlines())
    found = holdfast("messages", "list", "--json").json
    assert {each["type"] for each in found} == {HOSTILE}  # a program gets what there is


def test_json_is_the_same_document_when_it_is_made_safe() -> None:
    value = {"a": HOSTILE, "b": ["\u2028", "\ud800"[:0], "tab\there", "é漢"]}
    text = json.dumps(value, ensure_ascii=False, indent=1)
    assert json.loads(safe_json(text)) == value
    assert OBEYED.findall(safe_json(text)) == []


def test_a_line_of_the_log_stays_one_line(caplog: pytest.LogCaptureFixture) -> None:
    log = Log("holdfast.test")
    with caplog.at_level(logging.INFO, "holdfast"):
        log.info(
            "test.event",
            "Message of type %(type)s failed: %(error)s",
            type=HOSTILE,
            error=ValueError(HOSTILE),
        )
    (record,) = caplog.records
    assert record.type == HOSTILE  # type: ignore[attr-defined]  # fields stay as they are
    for formatter in (
        TextFormatter("%(levelname)s %(message)s"),
        logging.Formatter("%(message)s"),
        JsonFormatter(),
    ):
        line = formatter.format(record)
        assert OBEYED.findall(line) == []
        assert "\n" not in line
    assert json.loads(JsonFormatter().format(record))["type"] == HOSTILE


def test_the_traceback_of_a_log_cannot_pass_for_a_record() -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError as error:
        record = logging.makeLogRecord(
            {
                "msg": "it %s",
                "args": ("failed\nERROR forged",),
                "exc_info": (ValueError, error, error.__traceback__),
            }
        )
    first, *others = TextFormatter("%(message)s").format(record).split("\n")
    assert first == "it failed\\nERROR forged"
    assert all(each.startswith("    ") for each in others)
    assert OBEYED.findall("".join(others)) == []


def test_what_is_not_safe_is_written_out() -> None:
    assert visible("a\x1b[31m\n\u202eb\x9b") == "a\\x1b[31m\\n\\u202eb\\x9b"
    assert visible("é 漢 \u200d emoji") == "é 漢 \u200d emoji"


# -- the user's module


def test_an_error_in_the_users_module_shows_the_users_frames_first(
    holdfast: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_shop.py").write_text("import broken_parts\n")
    (tmp_path / "broken_parts.py").write_text("def load():\n    return {}['TOKEN']\n\nload()\n")
    monkeypatch.chdir(tmp_path)
    answer = holdfast("status", "broken_shop:app", database=False)
    assert (answer.code, answer.out) == (1, "")
    told, *trace = answer.err.splitlines()
    assert told == "holdfast: Module broken_shop cannot be loaded: KeyError: 'TOKEN'"
    frames = [line for line in trace if line.lstrip().startswith("File ")]
    assert [re.search(r'(\w+)\.py", line \d+, in (\S+)', each).groups() for each in frames] == [  # type: ignore[union-attr]
        ("broken_shop", "<module>"), ("broken_parts", "<module>"), ("broken_parts", "load"),
    ]  # fmt: skip


def test_a_syntax_error_names_its_line(
    holdfast: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "crooked_shop.py").write_text("x = 1\ndef (:\n")
    monkeypatch.chdir(tmp_path)
    answer = holdfast("worker", "crooked_shop:app", database=False)
    assert answer.code == 1
    assert 'crooked_shop.py", line 2' in answer.err
    assert "importlib" not in answer.err


# -- the shell's completion


@pytest.fixture
def stocked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holdfast: Shell, world: World) -> World:
    """A database with two queues and a message."""
    world.subscribe("send_receipt", "order.placed")
    world.subscribe("refund", "order.cancelled", "money.*")
    world.publish()
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", holdfast.url)
    monkeypatch.delenv("HOLDFAST_APP", raising=False)
    return world


def offered(
    complete: Callable[[typer.Context, str], list[tuple[str, str]]], begun: str, group: str = "why"
) -> list[str]:
    parent = typer.Context(typer.core.TyperGroup(name=group), info_name=group)
    return [text for text, _ in complete(typer.Context(typer.core.TyperCommand("x"), parent=parent), begun)]


def test_the_shell_completes_queues_types_reasons_and_ids(stocked: World) -> None:
    ((id, _),) = stocked.states().items()
    assert offered(completing.queues, "") == ["refund", "send_receipt"]
    assert offered(completing.queues, "s") == ["send_receipt"]
    assert offered(completing.types, "order.") == ["order.cancelled", "order.placed"]
    assert completing.reasons("p") == ["poison-message", "payload-too-large"]
    assert offered(completing.ids, str(id)[-8:-4]) == [str(id)[-8:]]
    assert offered(completing.ids, str(id)[:9], "messages") == [str(id)]  # a whole id was begun
    assert offered(completing.ids, "", "dead") == []


def test_a_completion_says_nothing_when_it_cannot_ask(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOLDFAST_APP", "nobody_has:this")
    assert offered(completing.queues, "") == []
    assert capfd.readouterr() == ("", "")


def test_the_shell_is_wired_to_it(stocked: World, tmp_path: Path, holdfast: Shell) -> None:
    asked = {
        "_HOLDFAST_COMPLETE": "complete_bash",
        "COMP_WORDS": "holdfast messages list -q s",
        "COMP_CWORD": "4",
    }
    done = subprocess.run([SCRIPT], capture_output=True, text=True, timeout=60, env={**os.environ, **asked})
    assert (done.stdout.split(), done.stderr) == (["send_receipt"], "")


# -- exit codes


def test_an_open_breaker_is_never_nothing_is_wrong(world: World, holdfast: Shell) -> None:
    world.worker("w1", "q")
    assert holdfast("status", "--check").code == 0
    assert "Nothing is wrong." in holdfast("status").out
    world.breakers.get("bank")
    world.operations.by("anna").breakers.trip("bank", why="it burns")
    status, doctor = holdfast("status", "--check"), holdfast("doctor")
    assert (status.code, doctor.code) == (3, 3)
    for answer in (status, doctor):
        assert "Breaker bank is open" in answer.out
        assert "`holdfast breakers reset bank`" in answer.out
        assert "Nothing is wrong." not in answer.out
    assert [each["name"] for each in holdfast("status", "--json").json["problems"]] == ["breaker-open"]
    world.breakers.close()


def test_problems_that_are_alike_are_counted(world: World, holdfast: Shell) -> None:
    """A page stays a page: three of a kind, and how many more."""
    world.worker("w1", "q")
    for n in range(5):
        world.publish(f"nobody.cares.{n}")
    out = holdfast("status").out
    assert out.count("! Nobody subscribes to") == 3
    assert "! 2 more like that: `holdfast doctor` lists them." in out
    assert holdfast("doctor").out.count("Nobody subscribes to") == 5
