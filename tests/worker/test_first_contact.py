"""What the README opens with, exactly so, in a folder of its own with the commands that a person types."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.worker.lab import children_of, until

SHOP = """# shop.py
import sqlite3
from holdfast import Holdfast

app = Holdfast("sqlite:///shop.db")                  # later: postgresql://...

@app.handler("order.placed", retry="api")
async def send_receipt(order: dict) -> None:
    print("receipt for", order["id"])

def place(order_id: int) -> None:
    with sqlite3.connect("shop.db") as db:           # your transaction
        db.execute("create table if not exists orders (id integer primary key)")
        db.execute("insert into orders values (?)", (order_id,))
        app.publish("order.placed", {"id": order_id}, stream=f"order-{order_id}", on=db)

if __name__ == "__main__":
    place(1)
"""

SLOW = SHOP.replace(
    '    print("receipt for", order["id"])',
    '    import time\n    time.sleep(0.02)\n    print("receipt for", order["id"], flush=True)',
)


class Shop:
    """A folder with shop.py, and a terminal in it."""

    def __init__(self, folder: Path, text: str) -> None:
        self.folder = folder
        (folder / "shop.py").write_text(text)
        self.workers: list[subprocess.Popen[bytes]] = []

    def python(self, *arguments: str) -> str:
        command = [sys.executable, *arguments]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def worker(self, *options: str) -> subprocess.Popen[bytes]:
        command = [str(Path(sys.executable).parent / "holdfast"), "worker", "shop:app", *options]
        with open(self.folder / "log", "ab") as log:
            worker = subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=log, stderr=log)
        self.workers.append(worker)
        return worker

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONUNBUFFERED": "1"}

    @property
    def said(self) -> str:
        return (self.folder / "log").read_text()

    def count(self, what: str) -> int:
        with closing(sqlite3.connect(self.folder / "shop.db", timeout=30)) as db:
            number: int = db.execute(f"select count(*) from {what}").fetchone()[0]
            return number

    def close(self) -> None:
        for worker in self.workers:
            for pid in (worker.pid, *children_of(worker.pid)):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            worker.wait()


@pytest.fixture
def shop(tmp_path: Path) -> object:
    made: list[Shop] = []

    def make(text: str) -> Shop:
        made.append(Shop(tmp_path, text))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_the_first_example_works_as_it_is_written(shop: object) -> None:
    here: Shop = shop(SHOP)  # type: ignore[operator]
    here.python("shop.py")
    assert (here.count("orders"), here.count("holdfast_message")) == (1, 1)
    worker = here.worker()
    until(lambda: "receipt for 1" in here.said, lambda: here.said)
    until(lambda: here.count("holdfast_message") == 0, lambda: here.said)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(30) == 0
    assert here.said.count("receipt for 1") == 1


def test_kill_it_in_the_middle_and_start_it_again(shop: object) -> None:
    """With -9, supervisor and workers: nothing is lost."""
    here: Shop = shop(SLOW)  # type: ignore[operator]
    here.python("-c", "import shop\nfor n in range(1, 61): shop.place(n)")
    worker = here.worker()
    until(lambda: here.said.count("receipt for") >= 10, lambda: here.said)
    for pid in (worker.pid, *children_of(worker.pid)):
        os.kill(pid, signal.SIGKILL)
    worker.wait()
    assert here.count("holdfast_message") > 0, "it was in the middle"
    with closing(sqlite3.connect(here.folder / "shop.db", timeout=30)) as db, db:
        db.execute("update holdfast_lease set until = 0")  # half a minute passes
    here.worker()
    until(lambda: here.count("holdfast_message") == 0, lambda: here.said[-2000:])
    receipts = {line.split()[-1] for line in here.said.splitlines() if line.startswith("receipt for")}
    assert receipts == {str(n) for n in range(1, 61)}
    assert here.count("holdfast_dead") == 0


def test_a_worker_says_what_it_runs_and_that_it_has_ended(shop: object) -> None:
    here: Shop = shop(SHOP)  # type: ignore[operator]
    here.python("shop.py")
    worker = here.worker("--metrics", "127.0.0.1:0")
    until(lambda: "receipt for 1" in here.said, lambda: here.said)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(30) == 0
    first, *_, last = here.said.splitlines()
    assert re.fullmatch(
        r"holdfast \d+\.\d+\.\d+: worker of shop:app on sqlite:///shop\.db, queues send_receipt, 1 process, "
        r"metrics at http://127\.0\.0\.1:\d+/metrics",
        first,
    )
    assert re.fullmatch(r"holdfast: worker of shop:app ended after \d+ s: none of its processes died", last)


def test_a_worker_whose_log_is_json_says_it_in_json(shop: object) -> None:
    here: Shop = shop(SHOP)  # type: ignore[operator]
    here.python("shop.py")
    worker = here.worker("--log", "json", "-p", "2")
    until(lambda: "receipt for 1" in here.said, lambda: here.said)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(30) == 0
    lines = [json.loads(line) for line in here.said.splitlines() if line.startswith("{")]
    assert (lines[0]["event"], lines[-1]["event"]) == ("worker.began", "worker.finished")
    assert (lines[0]["application"], lines[0]["queues"], lines[0]["processes"]) == (
        "shop:app", "send_receipt", "2 processes",
    )  # fmt: skip
