"""The bad day of docs/operations.md: what `status`, `why` and `doctor` say at each of its moments.

One day with real workers and a real server, in the order of the document. What is shown there is compared with what is
shown here.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.operations.bad_day import Day, blocks, check, excerpt, words
from tests.servers import Server
from tests.worker.lab import until

MANY = 5000
SHOWN = {
    "calm", "killed", "killed-why", "frozen", "away", "away-doctor", "failing", "failing-why", "dead", "dead-groups",
    "poison", "blocked", "blocked-why", "paused", "paused-why", "renamed", "renamed-why",
}  # fmt: skip


@pytest.fixture
def day(postgres_faulty: Server, tmp_path: Path) -> Iterator[Day]:
    shutil.copy(Path(__file__).parent / "bad_day_shop.py", tmp_path / "shop.py")
    postgres_faulty.start()
    day = Day(postgres_faulty, tmp_path)
    yield day
    day.end()


def test_the_document_shows_each_moment_once() -> None:
    assert sorted(blocks()) == sorted(SHOWN)


@pytest.mark.covers("X60")
def test_a_bad_day(day: Day) -> None:
    play(day, away=2.0)


@pytest.mark.faults("storms")
def test_a_bad_day_with_a_long_outage(day: Day) -> None:
    play(day, away=30.0)


def play(day: Day, away: float) -> None:
    in_the_morning(day)
    a_machine_is_killed(day)
    a_machine_is_frozen(day)
    the_database_is_away(day, away)
    everything_fails(day)
    a_message_kills_its_worker(day)
    a_stream_is_blocked(day)
    a_queue_is_paused(day)
    a_handler_is_renamed(day)


def in_the_morning(day: Day) -> None:
    day.start("web-1")
    day.publish("order.placed", *({"n": n} for n in range(5)))
    day.until_empty()
    page = day.type("status --check")
    check("calm", page.partition("\n")[2])
    assert "5 done" in page
    assert "Nothing is wrong." in day.type("doctor")


def a_machine_is_killed(day: Day) -> None:
    ids = day.publish("order.placed", *({"n": n, "waits": True} for n in (10, 11, 12)))
    until(lambda: {10, 11, 12} <= set(day.started()))
    day.machines.pop("web-1").kill_all()
    until(lambda: not day.alive() and day.state("suspect") == 3)
    page = day.type("status --check", 3)
    assert "No worker is running, and 3 messages wait" in words(page)
    assert "has not been seen since" in words(page)
    assert "holds 3 messages" in words(page)
    check("killed", excerpt(page, "! No worker"))
    why = day.type(f"why {ids[0]}")
    assert "the next worker that looks takes it over" in words(why)
    check("killed-why", why)
    assert words(excerpt(page, "! No worker")).replace("! ", "warning: ") in words(day.type("doctor", 3))
    day.mark("go-on")
    day.start("web-2")
    day.until_empty()
    day.is_calm()
    assert "done at" in day.type(f"why {ids[0]}")


def a_machine_is_frozen(day: Day) -> None:
    day.unmark("go-on")
    (id,) = day.publish("order.placed", {"n": 20, "waits": True})
    until(lambda: 20 in day.started())
    day.freeze("web-2")
    until(lambda: not day.alive() and day.state("suspect") == 1)
    check("frozen", excerpt(day.type("status --check", 3), "! No worker"))
    assert "the next worker that looks takes it over" in words(day.type(f"why {id}"))
    day.start("web-3")
    day.mark("go-on")
    day.until_empty()
    assert day.started().count(20) == 2
    day.freeze("web-2", signal.SIGCONT)  # it hands in what it has done: too late
    until(lambda: "was lost to another worker" in day.machines["web-2"].said)
    assert "done at" in (ended := day.type(f"why {id}"))
    assert "2 attempts" in ended
    until(lambda: day.alive() == {"web-2", "web-3"})
    day.is_calm()


def the_database_is_away(day: Day, seconds: float) -> None:
    day.server.stop()
    for line in ("status --check", "doctor", "why 01a1eec7-41bf-7232-9893-0b53ea9d06b8"):
        said = day.type(line, 1)
        assert "The database did not answer" in said
        assert "Workers wait for it" in said
    check("away", said)
    until(lambda: "The database cannot be used at the moment" in day.machines["web-3"].said)
    time.sleep(seconds)
    day.server.start()
    until(lambda: day.alive() == {"web-2", "web-3"})
    until(lambda: "The database can be used again" in day.machines["web-3"].said)
    told = day.machines["web-3"].said.count("The database cannot be used at the moment")
    assert told <= 2, "once for each process: the worker, and the quarantine that may still be there"
    until(lambda: day.type("doctor").count("waited") == 2)
    day.is_calm()
    check("away-doctor", first_of(day.type("doctor")))
    day.publish("order.placed", {"n": 25})
    day.until_empty()


def everything_fails(day: Day) -> None:
    ids = day.publish("invoice.sent", *({"n": n} for n in range(MANY)))
    until(lambda: day.state("retrying") == MANY, day.said, 120)
    page = day.type("status --check", 3)
    assert "5,000 messages of queue charge wait for a retry after the same error: KeyError: 'iban'" in words(
        page
    )
    check("failing", excerpt(page, "! About 5,000", "errors"))
    why = day.type(f"why --verbose {ids[7]}")
    assert "shop.py" in why
    assert 'invoice["iban"]' in why
    assert "KeyError: 'iban'" in why
    check("failing-why", why.replace(str(day.folder), "/srv/shop"))
    assert "wait for a retry" in words(day.type("doctor", 3))
    # The operator believes that it is repaired, and it is not.
    assert f"{MANY:,} messages claimable now" in day.type("messages retry --all -q charge")
    until(lambda: day.app.operations.status().dead == MANY, day.said, 120)
    page = day.type("status --check", 3)
    assert "5,000 messages became dead letters within a day" in words(page)
    check("dead", excerpt(page, "! 5,000", "errors"))
    groups = day.type("dead groups")
    assert "5,000" in groups
    assert len(groups.splitlines()) == 3
    check("dead-groups", groups)
    assert "became dead letters" in words(day.type("doctor", 3))
    # The command that the page names, after the repair.
    day.mark("charge-is-repaired")
    command = words(page).partition("then `holdfast ")[2].partition("`")[0]
    assert command.startswith("dead redrive -q charge --fingerprint ")
    assert f"{MANY:,} dead letters redriven" in day.type(f"{command} --yes")
    until(lambda: day.pending() == 0, day.said, 120)
    day.is_calm()


def a_message_kills_its_worker(day: Day) -> None:
    (id,) = day.publish("invoice.sent", {"n": 1, "kills": True})
    (other,) = day.publish("invoice.sent", {"n": 2})
    until(lambda: day.app.operations.status().dead == 1, day.said)
    until(lambda: day.pending() == 0, day.said)
    why = day.type(f"why {id}")
    assert "poison message (the last failure: worker vanished), after 2 attempts" in words(why)
    check("poison", why)
    assert "attempts     2" in day.type(f"dead show {id}")
    assert "done at" in day.type(f"why {other}"), "nobody else is a dead letter"
    day.is_calm()  # one dead letter: it is shown, and is no alarm
    assert "Poison: handed out" in day.type("status")
    assert "discarded" in day.type(f"dead discard {id} --why 'an attack' --yes")


def a_stream_is_blocked(day: Day) -> None:
    day.mark("mail-server-is-down")
    head, behind = day.publish("order.placed", *({"n": n, "to": "mail"} for n in (30, 31)), stream="order-17")
    for start in (1, 2, 3):
        until(lambda start=start: day.started().count(30) == start)  # type: ignore[misc]
        until(lambda: day.state("retrying") == 1)
        if start < 3:
            day.is_calm()  # a head that has failed once or twice is shown, and is no alarm
            day.type(f"messages retry {head}")
    day.publish("order.placed", {"n": 32, "to": "mail"}, stream="order-17")
    page = day.type("status --check", 3)
    assert f"2 messages wait behind {head}" in words(page)
    check("blocked", excerpt(page, "! Stream order-17", "blocked stream"))
    why = day.type(f"why {behind}")
    assert "ConnectionRefusedError: mail.example.com:25" in words(why)
    check("blocked-why", why)
    assert "is blocked since" in words(day.type("doctor", 3))
    assert head[-8:] in day.type("streams blocked")
    day.unmark("mail-server-is-down")
    assert "1 message claimable now" in day.type("messages retry --reason transport-unavailable")
    day.until_empty()
    assert [n for n in day.started() if n in (30, 31, 32)][-3:] == [30, 31, 32]
    day.is_calm()


def a_queue_is_paused(day: Day) -> None:
    day.type("queues pause send_receipt --why 'the mail server is being moved'")
    (id,) = day.publish("order.placed", {"n": 40})
    page = day.type("status --check")  # somebody wanted it so: shown, and no alarm until messages are late
    check("paused", excerpt(page, "paused queue"))
    why = day.type(f"why {id}")
    assert "by anna (the mail server is being moved)" in words(why)
    check("paused-why", why)
    assert "is paused since" in words(day.type("doctor"))
    day.type("queues resume send_receipt")
    day.until_empty()
    day.is_calm()


def a_handler_is_renamed(day: Day) -> None:
    day.stop("web-2")
    day.stop("web-3")
    day.release = 2
    day.start("web-4")
    (id,) = day.publish("order.placed", {"n": 50})
    until(lambda: 50 in day.started() and day.pending() == 1)
    page = day.type("status --check", 3)
    assert (
        "Queue send_receipt is subscribed to order.placed, and no handler and no live worker has it"
        in words(page)
    )
    check("renamed", excerpt(page, "! Queue send_receipt", "queue"))
    why = day.type(f"why {id}")
    assert "no live worker takes from queue send_receipt" in words(why)
    check("renamed-why", why)
    assert "no handler and no live worker has it" in words(day.type("doctor", 3))
    day.stop("web-4")
    day.release = 3
    day.start("web-5")
    assert "orphaned" not in day.type("status"), "its messages will be moved"
    day.app.operations.subscriptions.follow()  # as a worker does once a minute
    day.until_empty()
    assert day.started().count(50) == 1, "the new queue has handled it: it is not started again"
    day.is_calm()
    done = day.type("audit")
    assert all(each in done for each in ("dead.redrive", "queues.pause", "dead.discard"))


def first_of(findings: str) -> str:
    """The first finding of the doctor, with what to do about it."""
    return findings[: findings.index("\nnote: ", 1) + 1]
