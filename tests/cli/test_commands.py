"""What each command does, for people and for machines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from holdfast import FailureDescription
from holdfast.model.message import Reason
from tests.cli.conftest import Shell
from tests.operations.world import World


def ids(answer: Any) -> list[UUID]:
    return [UUID(each["id"]) for each in answer]


# -- messages


def test_messages_list(world: World, holdfast: Shell) -> None:
    assert holdfast("messages", "list").out == "No pending message matches.\n"
    assert holdfast("messages", "list", "--json").json == []
    first, second = world.in_stream(2)
    world.fail(world.claim()[0], 600.0, Reason.TRANSPORT_UNAVAILABLE)
    other = world.publish("user.created", queue="users")
    assert ids(holdfast("messages", "list", "--json").json) == [other, second, first]
    assert ids(holdfast("messages", "list", "--oldest", "-n", 1, "--json").json) == [first]
    assert ids(holdfast("messages", "list", "--state", "blocked", "--json").json) == [second]
    assert ids(holdfast("messages", "list", "--type", "user.created", "--json").json) == [other]
    assert ids(holdfast("messages", "list", "-q", "q", "-s", "s", "--json").json) == [second, first]
    for reason in ("1", "transport-unavailable", "TRANSPORT_UNAVAILABLE"):
        (found,) = holdfast("messages", "list", "--reason", reason, "--json").json
        assert (found["id"], found["state"], found["reason"], found["failures"]) == (
            str(first),
            "retrying",
            "transport-unavailable",
            1,
        )
    table = holdfast("messages", "list")
    assert (table.code, table.err) == (0, "")
    assert [line.split()[0] for line in table.out.splitlines()] == ["id", str(other), str(second), str(first)]
    assert "transport unavailable" in table.out


def test_messages_show(world: World, holdfast: Shell) -> None:
    id = world.publish(queue="q", body='{"total": 7}', headers='{"a": "b"}', dedupe="k")
    world.fail(world.claim()[0], 600.0, Reason.HANDLER_EXCEPTION, "no paper")
    shown = holdfast("messages", "show", id, "--json").json
    (pending,) = shown["pending"]
    assert (shown["id"], pending["body"], pending["headers"], pending["dedupe"]) == (
        str(id), {"total": 7}, {"a": "b"}, "k",
    )  # fmt: skip
    assert [(each["reason"], each["text"]) for each in pending["errors"]] == [
        ("handler-exception", "no paper")
    ]
    text = holdfast("messages", "show", id).out
    assert '{"total": 7}' in text
    assert "handler exception: no paper" in text


def test_messages_show_of_the_dead_and_the_done(world: World, holdfast: Shell) -> None:
    done = world.publish(queue="q")
    world.done(world.claim()[0])
    dead = world.publish(queue="q")
    world.die(world.claim()[0])
    assert [each["outcome"] for each in holdfast("messages", "show", done, "--json").json["ended"]] == [
        "done"
    ]
    assert "outcome" in holdfast("messages", "show", done).out
    assert [each["reason"] for each in holdfast("messages", "show", dead, "--json").json["dead"]] == [
        "poison-message"
    ]
    assert "poison message" in holdfast("messages", "show", dead).out


def test_messages_retry_one(world: World, holdfast: Shell) -> None:
    id = world.publish(queue="q")
    world.fail(world.claim()[0], 600.0)
    assert holdfast("messages", "retry", id).out == f"{id} in queue q: claimable now\n"
    assert holdfast("messages", "retry", id, "--reset", "--json").json == [
        {"id": str(id), "queue": "q", "what": "reset and claimable now"}
    ]
    assert world.one(id).attempts == 0


@pytest.mark.covers("W18")
def test_messages_retry_by_reason(world: World, holdfast: Shell) -> None:
    for reason in (1, 2, 1):
        world.publish(queue="q")
        world.fail(world.claim()[0], 600.0, Reason(reason))
    assert (
        holdfast("messages", "retry", "--reason", "transport-unavailable").out == "2 messages claimable now\n"
    )
    assert sorted(world.states().values()) == ["ready", "ready", "retrying"]
    assert holdfast("messages", "retry", "--all", "--json").json == {"changed": 1, "refused": []}


def test_messages_retry_needs_to_know_what(world: World, holdfast: Shell) -> None:
    for arguments in ((), (uuid4(), "--all"), (uuid4(), "--type", "x"), ("--reason", "boredom")):
        answer = holdfast("messages", "retry", *arguments)
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.startswith("holdfast: ")


def test_messages_park_cancel_poison(world: World, holdfast: Shell) -> None:
    first, second, third = world.in_stream(3)
    assert holdfast("messages", "park", first).out == f"{first} in queue q: parked\n"
    assert holdfast("messages", "cancel", second, "--yes").out == f"{second} in queue q: cancelled\n"
    assert (
        holdfast("messages", "poison", first, "--why", "bad", "-y", "--json").json[0]["what"] == "dead letter"
    )
    assert world.order() == [third]


# -- dead


def test_dead_list_show_redrive_discard(world: World, holdfast: Shell) -> None:
    assert holdfast("dead", "list").out == "No dead letter matches.\n"
    first, second = world.in_stream(2)
    world.die(world.claim()[0], halt=True)
    (listed,) = holdfast("dead", "list", "--json").json
    assert (listed["id"], listed["halts"], listed["reason"], listed["last_reason"]) == (
        str(first),
        True,
        "poison-message",
        "handler-exception",
    )
    assert str(first) in holdfast("dead", "list", "--reason", "handler-exception").out
    assert holdfast("dead", "list", "--reason", "1", "--json").json == []
    (shown,) = holdfast("dead", "show", first, "--json").json
    assert shown["body"] == {"n": 1}
    failure = FailureDescription.from_json(json.dumps(shown["failure"]))
    assert (failure.category, failure.retryable, failure.attempt_count) == ("poison", False, 1)
    assert json.loads(json.loads(failure.message)["body"]) == {"n": 1}
    assert (shown["failure_text"], "the end" in shown["failure_text"]) == (str(failure), False)
    assert "the end" in holdfast("dead", "show", first).out
    assert holdfast("dead", "redrive", first).out == f"{first} in queue q: redriven\n"
    assert world.order() == [first, second]
    world.die(world.claim()[0])
    answer = holdfast("dead", "discard", first, "--why", "gone", "--yes")
    assert (answer.code, answer.out) == (0, f"{first} in queue q: discarded\n")
    assert holdfast("dead", "show", first).code == 1


def test_dead_redrive_many_and_now(world: World, holdfast: Shell) -> None:
    found = world.in_stream(3)
    for _ in range(2):
        world.die(world.claim()[0])
    assert holdfast("dead", "redrive").code == 2
    assert holdfast("dead", "redrive", found[0], "--all").code == 2
    assert holdfast("dead", "redrive", found[0], "--now").code == 0
    assert world.order() == [found[2]]
    assert holdfast("dead", "redrive", "--stream", "s", "--json").json == {"changed": 1, "canary": None}
    assert world.order() == [found[2], found[1]]


# -- streams


def test_streams(world: World, holdfast: Shell) -> None:
    assert holdfast("streams", "list").out == "No stream has pending messages.\n"
    first, second, third = world.in_stream(3)
    assert holdfast("streams", "blocked").out == "No stream is blocked.\n"
    world.fail(world.claim()[0], 600.0, Reason.TIMEOUT_EXCEEDED)
    (blocked,) = holdfast("streams", "blocked", "--json").json
    assert (blocked["stream"], blocked["head"], blocked["state"], blocked["waiting"], blocked["is_blocked"]) == (
        "s", str(first), "retrying", 2, True,
    )  # fmt: skip
    assert "timeout exceeded" in holdfast("streams", "blocked").out
    assert holdfast("streams", "release", third, "--yes").out == f"{third} in queue q: released\n"
    shown = holdfast("streams", "show", "q", "s", "--json").json
    assert ids(shown["messages"]) == [first, second, third]
    lines = holdfast("streams", "show", "q", "s").out.splitlines()
    assert [line.split()[0] for line in lines] == ["place", "1", "2", "out"]
    assert holdfast("streams", "set-aside", "q", "s", "--yes").out == f"{first} in queue q: set aside\n"
    assert world.order() == [second]


def test_streams_halt_and_resume(world: World, holdfast: Shell) -> None:
    world.in_stream(2)
    assert holdfast("streams", "halt", "q", "s", "--why", "wait").out == "stream s of queue q: halted\n"
    assert "operator: wait" in holdfast("streams", "show", "q", "s").out
    assert holdfast("streams", "halt", "q", "s", "--why", "wait").code == 1
    assert holdfast("streams", "resume", "q", "s", "--json").json["what"] == "resumed"
    assert holdfast("streams", "resume", "q", "s").out == "stream s of queue q: was not halted\n"


# -- queues


def test_queues(world: World, holdfast: Shell) -> None:
    assert holdfast("queues", "list").out == "There are no queues.\n"
    world.subscribe("old", "order.*")
    world.subscribe("new", "nothing")
    world.publish("order.placed", "s")
    world.publish("order.placed", delay=60.0)
    listed = {each["name"]: each for each in holdfast("queues", "list", "--json").json}
    assert (listed["old"]["depth"], listed["old"]["states"]) == (2, {"ready": 1, "scheduled": 1})
    heading = holdfast("queues", "list").out.splitlines()[0].split()
    # No column without a value.
    assert heading == [
        "queue",
        "depth",
        "ready",
        "scheduled",
        "oldest",
        "workers",
    ]
    assert holdfast("queues", "pause", "old", "--why", "paint").out == "queue old: paused\n"
    assert "paint" in holdfast("queues", "list").out
    assert holdfast("queues", "resume", "old").out == "queue old: resumed\n"
    assert holdfast("queues", "resume", "old").out == "queue old: was not paused\n"
    moved = holdfast("queues", "move", "old", "new", "--yes")
    assert moved.out == "queue old: 2 messages moved to new, 0 already there\n"
    assert holdfast("queues", "drop", "old", "--yes").out == "queue old: dropped, 0 messages discarded\n"
    refused = holdfast("queues", "drop", "new", "--yes")
    assert (refused.code, "2 messages are pending" in refused.err) == (1, True)
    assert holdfast("queues", "drop", "new", "--yes", "--force", "--json").json["ended"] == 2


# -- overview


def test_status(world: World, holdfast: Shell) -> None:
    world.subscribe("q", "order.placed")
    world.worker("w1")
    world.publish()
    text = holdfast("status")
    assert (text.code, "1 ready" in text.out, "w1" in text.out) == (0, True, True)
    answer = holdfast("status", "--check", "--json")
    assert (answer.code, answer.json["depth"], answer.json["problems"]) == (0, 1, [])
    world.publish("nobody.cares")
    answer = holdfast("status", "--check")
    assert (answer.code, "! Nobody subscribes to nobody.cares" in answer.out) == (3, True)
    assert holdfast("status").code == 0
    assert holdfast("status", "--watch", "--json").code == 2


def test_why(world: World, holdfast: Shell) -> None:
    id = world.publish(queue="q")
    world.worker("w1")
    assert holdfast("why", id).out.startswith("In queue q: ready since ")
    assert holdfast("why", id, "--json").json["id"] == str(id)
    unknown = holdfast("why", uuid4())
    assert (unknown.code, unknown.out.startswith("Unknown: ")) == (1, True)


def test_doctor(world: World, holdfast: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    world.publish("nobody.cares")
    answer = holdfast("doctor")
    assert (answer.code, "nobody.cares" in answer.out) == (3, True)
    assert "unrouted" in [each["name"] for each in holdfast("doctor", "--json").json]
    world.worker("w1")
    (each,) = world.operations.messages.find()
    world.operations.messages.cancel(each.id)
    monkeypatch.setattr("holdfast.operations.database.SQLITE_SAFE", (0,))
    answer = holdfast("doctor")
    assert (answer.code, answer.out) == (0, "Nothing is wrong.\n")


# -- setting up and running


def test_init_and_migrate(holdfast: Shell, sqlite_path: Path) -> None:
    assert holdfast("status").code == 1
    assert not sqlite_path.exists()  # a question makes no database
    answer = holdfast("init")
    assert (answer.code, "migrated to version" in answer.out) == (0, True)
    assert sqlite_path.stat().st_mode & 0o777 == 0o600
    assert "up to date" in holdfast("migrate").out
    assert holdfast("migrate", "--json").json["steps"] == []
    assert holdfast("status").code == 0


def test_migrate_prints_the_script(holdfast: Shell, sqlite_path: Path) -> None:
    answer = holdfast("migrate", "--sql")
    assert "create table holdfast_message" in answer.out
    assert "create table holdfast_message" in holdfast("migrate", "--sql", "--json").json["sql"]
    assert not sqlite_path.exists()


def test_worker_and_demo_are_handed_over(
    holdfast: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_shop.py").write_text(
        'from holdfast import Holdfast\napp = Holdfast("sqlite:///shop.db")\n'
        '@app.handler("a")\ndef x(order: dict) -> None: ...\n'
        '@app.handler("b")\ndef y(order: dict) -> None: ...\n'
    )
    monkeypatch.chdir(tmp_path)
    calls: list[Any] = []

    def run_worker(
        app: object,
        target: str,
        *,
        processes: int,
        queues: list[str] | None,
        metrics: str | None,
        metrics_open: bool,
    ) -> int:
        assert metrics_open is False
        calls.append((type(app).__name__, target, processes, queues, metrics))
        return 0

    monkeypatch.setattr("holdfast.processes.supervisor.run_worker", run_worker)
    monkeypatch.setattr("holdfast.telemetry.logs.configure", lambda kind, level: calls.append((kind, level)))
    asked = ("-p", 3, "-q", "x", "-q", "y", "--metrics", ":9464", "--log", "json")
    assert holdfast("worker", "a_shop:app", *asked, database=False).code == 0
    assert holdfast("worker", database=False, HOLDFAST_APP="a_shop:app").code == 0
    assert calls == [
        ("json", None),
        ("Holdfast", "a_shop:app", 3, ["x", "y"], ":9464"),
        (None, None),
        ("Holdfast", "a_shop:app", 1, None, None),
    ]
    wrong = holdfast("worker", "a_shop:app", "-q", "nope", "-q", "x", database=False)
    assert (wrong.code, wrong.err) == (
        2,
        "holdfast: No handler of a_shop:app has the queue nope; its queues: x, y.\n",
    )
    missing = holdfast("worker", database=False, HOLDFAST_DATABASE_URL="sqlite:///x.db")
    assert (missing.code, "Which application?" in missing.err) == (2, True)
    monkeypatch.setattr("holdfast.demo.run", lambda console, **options: calls.append(options) or 1)
    assert holdfast("demo", "--seconds", 2, "--seed", 7, database=False).code == 1
    days: list[Any] = []
    monkeypatch.setattr("holdfast.demo.outage.run", lambda console, **options: days.append(options) or 0)
    assert holdfast("demo", "--scenario", "outage", "--processes", 3, database=False).code == 0
    assert days == [{"processes": 3}]
    assert calls[-1] == {"seconds": 2.0, "seed": 7, "processes": 2}


# -- audit and alerts


def test_audit(world: World, holdfast: Shell) -> None:
    id = world.publish(queue="q")
    assert holdfast("audit").out == "The audit is empty.\n"
    assert holdfast("messages", "park", id, "--as", "anna", "--why", "the customer called").code == 0
    assert holdfast("messages", "retry", id, HOLDFAST_AS="bert").code == 0
    shown = holdfast("audit").out
    assert "anna" in shown
    assert "messages.park" in shown
    assert "parked True" in shown
    (line,) = holdfast("audit", "--by", "anna", "--json").json
    assert (line["who"], line["action"], line["target"]) == ("anna", "messages.park", str(id))
    assert (line["before"]["parked"], line["after"]["parked"]) == (False, True)
    assert [each["who"] for each in holdfast("audit", "--on", id, "--json").json] == ["bert", "anna"]
    assert holdfast("audit", "--since", "1h", "--json").json != []
    assert holdfast("audit", "--since", "2099-01-01", "--json").json == []
    assert holdfast("audit", "--action", "streams", "--json").json == []
    assert holdfast("audit", "--since", "soon").code == 2
    assert holdfast("messages", "park", id, "--as", "evil\x1b[31m").code == 2


SHOP = """
from holdfast import Alert, Holdfast

app = Holdfast("{url}", alert_dead=1)

@app.on_alert
def tell(alert: Alert) -> None:
    print("heard", alert.what, alert.name)
    if alert.name == "trial" and {deaf}:
        raise ConnectionError("nobody is there")
"""


@pytest.mark.parametrize("deaf", [False, True])
def test_alerts(
    world: World, holdfast: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaf: bool
) -> None:
    name = f"alert_shop_{deaf}"
    (tmp_path / f"{name}.py").write_text(SHOP.format(url=holdfast.url, deaf=deaf))
    monkeypatch.chdir(tmp_path)
    assert holdfast("alerts", "check", f"{name}:app", database=False).out == "No alert is raised.\n"
    assert "No alert is raised." in holdfast("alerts", "list").out
    world.publish(queue="q")
    world.die(world.claim()[0])
    checked = holdfast("alerts", "check", f"{name}:app", database=False)
    assert checked.code == 3
    assert "heard raised dead_letters\ndead_letters since " in checked.out
    again = holdfast("alerts", "check", f"{name}:app", "--json", database=False)
    assert (again.code, [each["name"] for each in again.json]) == (3, ["dead_letters"])
    listed = holdfast("alerts", "list", "--json").json
    assert [each["name"] for each in listed["raised"]] == ["dead_letters"]
    assert listed["news"][0]["sent_to"] == ["log", f"{name}.tell"]
    tried = holdfast("alerts", "test", f"{name}:app", database=False)
    assert tried.code == (1 if deaf else 0)
    assert ("nobody is there" in tried.out) is deaf
    assert holdfast("alerts", "check", database=False).code == 2
    refused = holdfast("alerts", "check", database=False, HOLDFAST_DATABASE_URL=holdfast.url)
    assert (refused.code, "Only the application knows" in refused.err) == (2, True)


def test_release_several(world: World, holdfast: Shell) -> None:
    _, second, third = world.in_stream(3)
    done = holdfast("streams", "release", second, third, "--yes", "--json").json
    assert [each["what"] for each in done] == ["released", "released"]
