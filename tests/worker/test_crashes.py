"""Messages that kill the process that handles them: N starts and no more, and nobody else dies of it."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from typing import Any

import pytest

from tests.worker.lab import Lab, until

QUICK = {"lease": 2.0, "heartbeat": 0.5}


def died(lab: Lab) -> list[tuple[Any, int, int, int, int]]:
    letters = [(json.loads(row.body)["n"], row) for row in lab.rows("dead")]
    letters.sort(key=lambda letter: str(letter[0]))
    return [(n, row.reason, row.last_reason, row.attempts, row.failures) for n, row in letters]


def done(lab: Lab) -> int:
    return sum(row.outcome == "done" for row in lab.rows("history"))


@pytest.mark.covers("D1", "D2", "D12", "D13", "D9", "D10", "D55", "D53", "D61", "X39", "W54", "D57")
@pytest.mark.parametrize("starts_max", [1, 3])
@pytest.mark.parametrize("how", ["kill", "segfault", "exit", "exit loudly"])
def test_a_message_that_kills_its_process_starts_so_often_and_no_more(
    lab: Lab, how: str, starts_max: int
) -> None:
    lab.publish(*({"n": n} for n in range(10)))
    lab.publish({"n": "killer", "act": how})
    lab.publish(*({"n": n} for n in range(10, 20)))
    lab.start(starts_max=starts_max, settings=QUICK)
    lab.until_empty()
    attempts = [attempt for n, attempt, _ in lab.starts() if n == "killer"]
    assert attempts == list(range(1, starts_max + 1))
    assert len({process for n, _, process in lab.starts() if n == "killer"}) == starts_max
    if starts_max == 1:
        # Who had started and not been settled may not start again: there X39 yields to X7.
        outcomes = {reason for n, reason, *_ in died(lab)}
        assert outcomes == {8}
        assert ("killer", 8, 8, 2, 0) in died(lab)
        assert done(lab) + len(died(lab)) == 21
        assert set(lab.started().values()) == {1}
    else:
        assert died(lab) == [("killer", 7, 8, 4, 0)]
        assert done(lab) == 20


@pytest.mark.covers("D11", "W54", "D14")
@pytest.mark.parametrize(("how", "reason"), [("recurse", 2), ("memory", 2), ("system exit", 99), ("fail", 2)])
def test_what_python_can_catch_is_a_failure_and_no_death(lab: Lab, how: str, reason: int) -> None:
    lab.publish({"n": "bad", "act": how}, *({"n": n} for n in range(5)))
    worker = lab.start(settings=QUICK)
    lab.until_empty()
    assert died(lab) == [("bad", 7, reason, 3, 3)]
    assert len({process for *_, process in lab.starts()}) == 1, "nobody had to be started again"
    assert "ended with" not in worker.said


@pytest.mark.covers("D14", "D61")
def test_an_endless_loop_that_blocks_the_event_loop_is_killed(lab: Lab) -> None:
    """The heartbeat goes on in its thread; the supervisor sees that the loop does not turn."""
    lab.publish({"n": "endless", "act": "block"}, *({"n": n} for n in range(5)))
    worker = lab.start(starts_max=2, settings=QUICK, options={"timeout": 1.0})
    lab.until_empty()
    assert [attempt for n, attempt, _ in lab.starts() if n == "endless"] == [1, 2]
    assert [each[:3] for each in died(lab)] == [("endless", 7, 8)]
    assert done(lab) == 5
    assert "its event loop has hung" in worker.said


@pytest.mark.covers("D13", "D12")
def test_a_process_killed_from_outside_makes_suspects_of_what_ran(lab: Lab) -> None:
    """Twenty run when somebody kills the process: each runs again, alone, and all of them are innocent."""
    lab.publish(*({"n": n, "reach": f"reached-{n}", "until": "go"} for n in range(20)))
    worker = lab.start(settings=QUICK)
    for n in range(20):
        lab.reached(f"reached-{n}")
    lab.signal("go")
    os.kill(worker.children()[0], signal.SIGSTOP)  # before they can be settled
    for n in range(20):
        assert (lab.folder / f"reached-{n}").exists()
    os.kill(worker.children()[0], signal.SIGKILL)
    lab.until_empty()
    assert died(lab) == []
    assert done(lab) == 20
    assert max(attempt for _, attempt, _ in lab.starts()) <= 3


@pytest.mark.covers("D3", "D7", "D56", "D59", "X38")
def test_the_dead_letter_has_the_whole_message_and_the_log_has_not(lab: Lab) -> None:
    lab.publish({"n": "killer", "act": "kill", "card": "4111-SECRET"}, subject="c1", headers={"trace": "t"})
    worker = lab.start(settings=QUICK)
    lab.until_empty()
    (dead,) = lab.rows("dead")
    assert "4111-SECRET" in dead.body
    assert (dead.subject, dead.type) == ("c1", "trouble")
    assert f"Message {dead.id} of type trouble is poison" in worker.said
    assert "SECRET" not in worker.said


def test_a_worker_that_cannot_begin_is_not_started_in_a_hurry(sqlite_lab: Lab) -> None:
    """Nothing kills it but itself: the pauses between the starts grow."""
    lab = sqlite_lab
    (lab.folder / "broken.py").write_text(
        "import os\nfrom tests.worker.trouble import app\n"
        "def worker(**options):\n    open(os.environ['LAB_FOLDER'] + '/begun', 'a').write('x')\n    os._exit(9)\n"
        "app.worker = worker\n"
    )
    supervisor = lab.start(target="broken:app")
    until(lambda: (lab.folder / "begun").exists() and len((lab.folder / "begun").read_text()) >= 4, lab.said)
    begun = len((lab.folder / "begun").read_text())
    assert begun <= 6
    supervisor.send(signal.SIGTERM)
    assert supervisor.wait() == 0


def mayhem(lab: Lab, *, killers: int, total: int, streams: int) -> None:
    """Killers among innocents in many streams, two processes, large batches."""
    dice = random.Random(7)
    bad = set(dice.sample(range(total), killers))
    bodies = [{"n": n, **({"act": "kill"} if n in bad else {})} for n in range(total)]
    lab.publish(*bodies, stream=lambda body: f"s{body['n'] % streams}")
    lab.start(processes=2, settings={"lease": 10.0, "heartbeat": 3.0})
    lab.until_empty(600)
    assert {n for n, *_ in died(lab)} == bad, "all of them, and no innocent"
    assert {(reason, last) for _, reason, last, *_ in died(lab)} == {(7, 8)}
    assert done(lab) == total - killers
    counts = lab.started()
    assert {counts[n] for n in bad} == {3}, "exactly N starts"
    assert all(1 <= counts[n] <= 3 for n in range(total))
    last: dict[int, int] = {n: place for place, (n, *_) in enumerate(lab.starts())}
    for stream in range(streams):
        order = [last[n] for n in range(stream, total, streams)]
        assert order == sorted(order), "a stream's last starts are in its order"


@pytest.mark.covers("X39", "D5", "D54", "D58", "D61", "D57")
def test_ten_killers_among_three_hundred(lab: Lab) -> None:
    mayhem(lab, killers=10, total=300, streams=25)


@pytest.mark.faults("storms")
@pytest.mark.covers("X39", "D5", "D54", "D61", "D57")
def test_sixty_killers_among_twelve_hundred(lab: Lab) -> None:
    mayhem(lab, killers=60, total=1200, streams=100)


@pytest.mark.covers("X39")
def test_innocents_beside_many_killers_keep_a_start(lab: Lab) -> None:
    """With two starts allowed, nobody may lose both to the deaths of others."""
    bodies: list[dict[str, Any]] = [{"n": n, **({"act": "kill"} if n % 10 == 5 else {})} for n in range(100)]
    lab.publish(*bodies)
    lab.start(starts_max=2, settings={"lease": 10.0, "heartbeat": 3.0})
    lab.until_empty()
    assert {n for n, *_ in died(lab)} == {n for n in range(100) if n % 10 == 5}
    assert Counter(lab.started()[n] for n in range(5, 100, 10)) == {2: 10}


@pytest.mark.covers("D12", "X13")
def test_the_power_fails_and_nobody_is_left_to_tell(lab: Lab) -> None:
    """Supervisor and workers at once: leases lapse, all of a lapsed run counts, and nothing is lost."""
    lab.publish(
        *({"n": n, "reach": f"reached-{n}", "until": "go"} for n in range(8)),
        stream=lambda body: f"s{body['n'] % 4}",
    )
    first = lab.start(settings=QUICK)
    for n in range(4):
        lab.reached(f"reached-{n}")
    first.kill_all()
    lab.signal("go")
    lab.start(settings=QUICK)
    lab.until_empty()
    assert died(lab) == []
    assert done(lab) == 8
    assert max(lab.started().values()) == 2
