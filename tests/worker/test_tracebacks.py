"""Tracebacks: kept with the message and the dead letter, logged, traced; masked, bounded, and of any exception."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from io import BytesIO
from typing import Any

import pytest
from typer.testing import CliRunner

from holdfast import Context, DeadLetter, Holdfast
from holdfast.cli.root import app as commands
from holdfast.rules import traces as rules
from holdfast.rules.redact import DEFAULT, redactor
from holdfast.worker.traces import LIBRARIES, Traces
from tests.security.test_encryption import key
from tests.worker.lab import Lab


def charge(order: dict[str, int]) -> int:
    return order["nothere"]


def caught(function: Any, *args: Any) -> BaseException:
    try:
        function(*args)
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def text_of(error: BaseException, told: str = "told", masking: Any = DEFAULT) -> str:
    text = Traces().text(error, told, masking)
    assert text is not None
    return text


def run_until_idle(app: Holdfast) -> None:
    app.prepare()
    asyncio.run(app.worker(until_idle=True).run())


def failing(lab: Lab, **settings: Any) -> tuple[Holdfast, str]:
    """An application whose handler fails once, with a retry far away, or for good."""
    app = lab.app(**settings)

    @app.handler("order.placed", retry="patient")
    async def place(body: dict[str, int]) -> None:
        charge(body)

    id = app.publish("order.placed", {"a": 1}).id
    run_until_idle(app)
    return app, str(id)


@pytest.mark.covers("X60")
def test_the_last_traceback_is_kept_with_the_message_and_the_dead_letter(lab: Lab) -> None:
    app, id = failing(lab)
    ((_, content),) = app.operations.messages.show(id).pending
    assert content.traceback is not None
    assert "in charge" in content.traceback
    assert 'return order["nothere"]' in content.traceback
    assert content.traceback.endswith("KeyError: 'nothere'")
    assert "holdfast/worker" not in content.traceback  # the engine's own frames are left out
    assert app.operations.tracebacks(id) == [content.traceback]
    app.operations.messages.poison(id, "by hand")
    ((_, dead),) = app.operations.dead.show(id)
    assert dead.traceback == content.traceback
    app.operations.dead.redrive(id)
    ((_, back),) = app.operations.messages.show(id).pending
    assert (back.traceback, len(back.errors)) == (content.traceback, 2)  # as the errors are


@pytest.mark.covers("X60")
def test_a_death_keeps_its_traceback_in_files_too(lab: Lab) -> None:
    app = lab.app()

    @app.handler("order.placed", retry="immediate")
    async def place(body: dict[str, int]) -> None:
        charge(body)

    id = app.publish("order.placed", {"a": 1}).id
    run_until_idle(app)
    ((_, before),) = app.operations.dead.show(id)
    assert before.traceback is not None
    assert "in charge" in before.traceback
    file = BytesIO()
    app.operations.files.export(None, file)
    app.operations.dead.discard(id, "gone")
    app.operations.files.load(BytesIO(file.getvalue()), force=True)
    ((_, after),) = app.operations.dead.show(id)
    assert after.traceback == before.traceback


@pytest.mark.covers("X60")
def test_one_setting_turns_tracebacks_off(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    app, id = failing(lab, tracebacks=False)
    ((_, content),) = app.operations.messages.show(id).pending
    assert content.traceback is None
    assert all(record.exc_text is None for record in caplog.records)


@pytest.mark.covers("X60")
def test_it_is_logged_whole_once_for_each_cause_and_minute(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    app, _clock = lab.still()

    @app.handler("order.placed", retry="patient")
    async def place(body: dict[str, int]) -> None:
        charge(body)

    @app.handler("other", retry="patient")
    async def other(body: dict[str, int]) -> None:
        raise KeyError("nothere")

    for _ in range(3):
        app.publish("order.placed", {"a": 1})
    app.publish("other", {"a": 1})
    run_until_idle(app)
    failed = [record for record in caplog.records if getattr(record, "event", "") == "message.failed"]
    assert len(failed) == 4
    whole = [record for record in failed if record.exc_text]
    assert sorted("in charge" in str(record.exc_text) for record in whole) == [False, True]
    assert all(f"{__name__}.charge, line" in r.getMessage() for r in failed if r.type == "order.placed")  # type: ignore[attr-defined]
    told = logging.Formatter("%(message)s").format(whole[0])
    assert told.endswith("\nKeyError: 'nothere'")
    assert "Traceback (most recent call last)" in told


def test_whether_a_cause_is_due() -> None:
    told = rules.LoggedCauses()
    assert told.is_due("a", 0.0)
    assert not told.is_due("a", 59.0)
    assert told.is_due("b", 59.0)
    assert told.is_due("a", 60.0)
    for number in range(2 * rules.CAUSES_KNOWN):
        told.is_due(str(number), 61.0)
    assert len(told.at) == rules.CAUSES_KNOWN


def failed_with(secret: str) -> None:
    try:
        raise ValueError(f"cannot connect to postgresql://shop:{secret}@db/shop")
    except ValueError as error:
        error.add_note(f"password={secret}")
        raise RuntimeError("outer") from error


@pytest.mark.covers("X60")
def test_texts_are_masked_chained_ones_and_notes_too_and_no_value_of_a_frame_is_shown() -> None:
    text = text_of(caught(failed_with, "hunter2hunter2"))
    assert "hunter2" not in text
    assert "shop:***@db" in text
    assert rules.BECAUSE in text
    own = text_of(caught(failed_with, "x"), masking=redactor([lambda text: text.replace("connect", "[own]")]))
    assert "cannot [own] to" in own
    assert text.index("ValueError: ") < text.index(rules.BECAUSE) < text.index("told")


def nested_chain(depth: int) -> BaseException:
    error: BaseException = ValueError("first")
    for number in range(depth):
        outer = RuntimeError(f"number {number}")
        outer.__cause__, error = error, outer
    return error


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


class Endless(Exception):
    @property
    def __cause__(self) -> BaseException:  # type: ignore[override]
        return Endless("again")


def deep(left: int) -> None:
    if not left:
        raise ValueError("the bottom")
    deep(left - 1)


def deepest() -> None:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        deep(10_000)
    finally:
        sys.setrecursionlimit(before)


def thrown(error: BaseException) -> None:
    raise error


def nested_groups(depth: int) -> BaseException:
    error: Exception = ValueError("inside")
    for _ in range(depth):
        error = ExceptionGroup("group", [error])
    return error


@pytest.mark.covers("X60")
@pytest.mark.parametrize(
    "make",
    [
        lambda: ValueError("x" * 10_000_000),
        lambda: ValueError("\u20ac" * 10_000_000),
        lambda: ValueError("line\n" * 1_000_000),
        lambda: nested_chain(10_000),
        lambda: Unspeakable(),
        lambda: Endless("x"),
        lambda: ExceptionGroup("many", [ValueError(str(n)) for n in range(1000)]),
        lambda: ExceptionGroup("many", [Unspeakable() for n in range(1000)]),
        lambda: nested_groups(5_000),
        lambda: ValueError("\x1b[31mred\x07 \u202e \x9b \ud800 \x00 \r\nTraceback\n  File forged"),
    ],
)  # fmt: skip
def test_hostile_exceptions_are_bounded_and_safe(make: Any) -> None:
    error = caught(thrown, make())
    outer = caught(thrown, RuntimeError("outer"))
    outer.__context__ = error
    for each, told in ((error, "told " * 400), (outer, "\u20ac" * 2000)):
        text = text_of(each, told)
        assert len(text.encode()) <= rules.BYTES_MAX
        assert not [c for c in text if ord(c) < 32 and c != "\n"]
        assert "\u202e" not in text
        assert not any(line.startswith(("File", "  File forged")) for line in text.split("\n"))
        place = rules.place_of(each, LIBRARIES)
        assert place is not None
        assert place.name == f"{__name__}.thrown"


@pytest.mark.covers("X60")
def test_a_deep_recursion_keeps_its_ends() -> None:
    error = caught(deepest)
    text = text_of(error)
    assert len(text.encode()) <= rules.BYTES_MAX
    assert "frames left out" in text
    assert "in deepest" in text
    assert text.count("in deep\n") <= rules.FRAMES_FIRST + rules.FRAMES_LAST


@pytest.mark.covers("X60")
def test_members_of_a_group_are_shown_and_give_it_its_place_if_it_is_one() -> None:
    one = caught(charge, {})
    group = caught(thrown, ExceptionGroup("both", [one, caught(charge, {})]))  # type: ignore[list-item]
    text = text_of(group)
    assert "  |     return order" in text
    assert "KeyError" in text
    place = rules.place_of(group, LIBRARIES)
    assert place is not None
    assert place.name == f"{__name__}.charge"
    mixed = caught(thrown, ExceptionGroup("both", [one, caught(failed_with, "x")]))  # type: ignore[list-item]
    assert rules.place_of(mixed, LIBRARIES) == rules.walk(mixed, LIBRARIES).place


def parse(text: str) -> Any:
    return json.loads(text)


@pytest.mark.covers("X60")
def test_the_place_is_in_the_users_code_not_in_a_library() -> None:
    place = rules.place_of(caught(parse, "{"), LIBRARIES)
    assert place is not None
    assert place.name == f"{__name__}.parse"
    # An application that is installed as a package itself: its own package counts.
    installed = rules.place_of(caught(parse, "{"), ("/",))
    assert installed is not None
    assert installed.name == f"{__name__}.parse"


@pytest.mark.covers("X60")
def test_deaths_at_two_places_have_two_causes_and_lines_do_not_count(lab: Lab) -> None:
    app = lab.app()

    @app.handler("first", "second", "third", retry="immediate")
    async def handle(body: str) -> None:
        if body == "one":
            raise ValueError("bad 1")
        if body == "two":
            raise ValueError("bad 2")
        thrown(ValueError("bad 3"))

    ids = [app.publish("first", body).id for body in ("one", "two", "three")]
    run_until_idle(app)
    prints = [app.operations.dead.show(id)[0][0].fingerprint for id in ids]
    assert prints[0] == prints[1] != prints[2]


@pytest.mark.covers("X60")
def test_a_handler_that_ran_too_long_says_where_it_waited(lab: Lab) -> None:
    app = lab.app(timeout=0.05)

    async def slow_call() -> None:
        await asyncio.sleep(30)

    @app.handler("a", retry="patient")
    async def wait(body: str) -> None:
        await slow_call()

    id = app.publish("a", "x").id
    run_until_idle(app)
    ((_, content),) = app.operations.messages.show(id).pending
    assert content.traceback is not None
    assert "in test_a_handler_that_ran_too_long" in content.traceback
    assert content.traceback.splitlines()[-1].startswith("TimedOut: ")


@pytest.mark.covers("X60")
def test_the_command_line_shows_it(lab: Lab) -> None:
    app, id = failing(lab)
    runner = CliRunner()
    told = runner.invoke(commands, ["messages", "show", id, "--url", lab.url])
    assert told.exit_code == 0
    assert 'return order["nothere"]' in told.output
    told = runner.invoke(commands, ["why", id, "--url", lab.url])
    assert "KeyError: 'nothere'" in told.output
    assert "return order" not in told.output
    told = runner.invoke(commands, ["why", id, "--verbose", "--url", lab.url])
    assert 'return order["nothere"]' in told.output
    told = runner.invoke(commands, ["messages", "show", id, "--json", "--url", lab.url])
    assert "in charge" in json.loads(told.output)["pending"][0]["traceback"]
    app.operations.messages.poison(id, "by hand")
    told = runner.invoke(commands, ["dead", "show", id, "--url", lab.url])
    assert 'return order["nothere"]' in told.output


@pytest.mark.covers("X60")
def test_a_worker_by_hand_keeps_it_too(lab: Lab) -> None:
    app = lab.app()

    @app.handler("a", name="q", retry="patient")
    async def handle(body: str) -> None: ...

    id = app.publish("a", "x").id
    batch = app.process_work_batch([], {"q": 1})
    app.process_work_batch([app.failed(batch.work[0], 0, caught(charge, {}))], {})
    ((_, content),) = app.operations.messages.show(id).pending
    assert content.traceback is not None
    assert "in charge" in content.traceback


@pytest.mark.covers("X62")
def test_a_producer_cannot_set_it(lab: Lab) -> None:
    app = lab.app()
    app.prepare()
    with pytest.raises(Exception, match="leave out traceback"):
        lab.query("insert into {message} (type, body, traceback) values ('a', '1', 'x')")


# -- what the log and traces show of it


SECRET = "4111-blue-horse"


def logged(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(record.exc_text for record in caplog.records if record.exc_text)


@pytest.mark.covers("X60", "X38")
@pytest.mark.parametrize("keys", [None, key("k1")], ids=["plain", "sealed"])
def test_the_log_shows_masked_texts_and_nothing_of_the_message(
    lab: Lab, caplog: pytest.LogCaptureFixture, keys: Any
) -> None:
    app = lab.app(keys=keys)

    @app.handler("order.placed", retry="patient")
    async def place(body: dict[str, Any], ctx: Context) -> None:
        try:
            raise LookupError(
                f"no customer {body['name']}, {body['number']}, {ctx.headers['tenant']}: {body}"
            )
        except LookupError as error:
            raise RuntimeError("cannot reach https://shop:hunter2hunter2@bank/") from error

    body = {
        "name": SECRET,
        "number": 1234567,
        "nested": [{"deep": 'with "quotes"\n and €'}],
        "long": "z" * 500,
    }
    id = app.publish("order.placed", body, headers={"tenant": "acme-corp"}).id
    run_until_idle(app)
    text = logged(caplog)
    assert "LookupError: no customer ***, ***, ***: " in text
    assert text.endswith("RuntimeError: cannot reach https://shop:***@bank/")
    # Without the lines of the source.
    said = [line for line in text.splitlines() if not line.startswith("    ")]
    for each in (SECRET, "1234567", "acme-corp", "quotes", "zzzz", "hunter2"):
        assert each not in "\n".join(said)
    ((_, content),) = app.operations.messages.show(id).pending
    assert SECRET in str(content.traceback), "stored with the message, for those who may read it"


@pytest.mark.covers("X38")
@pytest.mark.parametrize("how", ["batch", "large"])
def test_where_it_cannot_be_told_apart_exceptions_have_their_types_alone(
    lab: Lab, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    app = lab.app()
    if how == "batch":

        @app.handler("a", batch=10, retry="patient")
        async def many(bodies: list[dict[str, str]]) -> None:
            raise ValueError(str(bodies))

    else:

        @app.handler("a", retry="patient")
        async def one(body: dict[str, str]) -> None:
            raise ValueError(str(body)[-40:])

    for n in range(2):
        app.publish("a", {"room": "x" * (70_000 if how == "large" else 1), "secret": f"{SECRET}-{n}"})
    run_until_idle(app)
    assert SECRET not in logged(caplog)
    assert logged(caplog).endswith("\nValueError")


@pytest.mark.covers("X38")
def test_a_hook_that_quotes_its_letter_logs_nothing_of_it(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    """The letter, its failure and PoisonError carry the whole message."""
    app = lab.app()

    @app.handler("a", retry="immediate")
    async def fails(body: dict[str, str]) -> None:
        raise ValueError("no")

    @app.on_dead_letter
    async def open_ticket(letter: DeadLetter) -> None:
        raise RuntimeError(f"{letter.failure!r} {letter.failure} {letter}")

    app.publish("a", {"name": SECRET})
    run_until_idle(app)
    text = logged(caplog)
    assert "RuntimeError: " in text
    assert SECRET not in text
