"""Every example runs to its end by itself, in an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pika
import pytest

from tests.docs.blocks import ROOT, text_of
from tests.transports.conftest import rabbitmq, rabbitmq_version

__all__ = ["rabbitmq", "rabbitmq_version"]
EXAMPLES = sorted(each.name for each in (ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES)
def test_it_runs(example: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / example)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout


@pytest.mark.covers("V36", "V37", "V39", "V45", "V46", "V47")
def test_deadlines_pass_and_a_late_grade_is_shown_and_accepted(tmp_path: Path) -> None:
    """Its own assertions look at the tables of the application; here is what a student sees."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "deadlines.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert 's-2: FAILED (TIMEOUT)  [late result, view only: {"score":9.0}]\ns-2: 9.0 points\n' in done.stdout
    assert "s-3: takes longer than usual, until 01:00 at the latest" in done.stdout


def on_broker(example: str, url: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / example)],
        cwd=folder,
        env={**os.environ, "RABBITMQ_URL": url},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "broker: RabbitMQ" in done.stdout
    return done.stdout


@pytest.mark.covers("V14", "V27", "V28", "V31", "V46")
def test_grading_on_a_real_broker(rabbitmq: str, tmp_path: Path) -> None:
    said = on_broker("grading.py", rabbitmq, tmp_path)
    assert "submission s0: waiting" in said
    assert "ticket of vstep: The broker had given it up: rejected" in said
    assert "ticket of grader: Dead: an empty essay" in said
    assert "submission s2: graded" in said
    assert 'submission s4: TIMEOUT, score None [late result, view only: {"request":' in said
    assert "submission s4: graded, score 2\n" in said  # a teacher has accepted it
    with closing(pika.BlockingConnection(pika.URLParameters(rabbitmq))) as connection:
        channel = connection.channel()
        channel.exchange_declare("vstep.dlx", "direct", durable=True)  # refused if it is another
        dead = {"x-dead-letter-exchange": "vstep.dlx", "x-dead-letter-routing-key": "grading.dlq"}
        limit = {"x-delivery-limit": -1} if connection._impl.server_properties["version"] >= "4" else {}
        channel.queue_declare(
            "grading.request", durable=True, arguments={"x-queue-type": "quorum", **dead, **limit}
        )
        channel.confirm_delivery()
        # Raises if no queue takes it.
        channel.basic_publish("vstep.dlx", "grading.dlq", b"{}", mandatory=True)
        channel.basic_publish("vstep.exchange", "grading.request", b"{}", mandatory=True)


def test_orders_on_a_real_broker(rabbitmq: str, tmp_path: Path) -> None:
    said = on_broker("orders.py", rabbitmq, tmp_path)
    assert said.count("20 orders, shipped once each and in order") == 3


@pytest.mark.covers("B45", "B46", "B23", "B1", "B3")
def test_birthdays_arrive_once_after_a_day_without_workers(tmp_path: Path) -> None:
    """The receiver keeps each greeting once, by the key, though one call was made twice; next year's is scheduled."""
    example = str(ROOT / "examples" / "birthdays.py")
    done = subprocess.run([sys.executable, example], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert lines[1] == "Hey, Ada Lovelace it's your birthday (2027-03-14 09:00 Europe/London, on time)"
    assert [line.split(",")[1].split(" ")[1] for line in lines if line.startswith("Hey")] == [
        "Ada", "Yukihiro", "Grace", "Radia", "Anita", "Linus",
    ]  # fmt: skip
    assert lines[-3:] == [
        "Outage 1: no worker ran since 14 March 09:00 UTC, 5 greetings were late, by 13.8 hours on average and "
        "25.0 at most.",
        "The receiver was called 7 times and has 6 greetings.",
        "Ada is greeted again on 2028-03-14.",
    ]


def test_all_are_listed() -> None:
    assert EXAMPLES
    assert [each for each in EXAMPLES if f"({each})" not in text_of("examples/README.md")] == []
