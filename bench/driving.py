"""What it costs to drive orchestrations, without a store: `python -m bench.driving`. The best of several rounds each.

CPU time. chain: 10 activities one after the other, in a live instance (11 turns), or with each turn replayed from the
journal alone. fan-out: n calls in one gather, answered in runs of 500. parked: an instance that waits for a call.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
import timeit
import tracemalloc
from collections.abc import Callable
from typing import Any

from holdfast.clock import MovableClock
from holdfast.orchestrations import Flow, Instance, Program, Turn, activity, orchestration
from holdfast.orchestrations.journal import Answered, Arrival, Row, Started, decode, encode

NOW = MovableClock().instant
RUN = 500


@activity()
async def work(value: dict[str, Any]) -> dict[str, Any]:
    return value


@orchestration()
async def chain(value: dict[str, Any], flow: Flow) -> dict[str, Any]:
    for _ in range(10):
        value = await work(value)
    return value


@orchestration()
async def fan(count: int, flow: Flow) -> int:
    return len(await asyncio.gather(*(work({"n": number}) for number in range(count))))


BODY = '{"text":"%s"}' % ("x" * 180)


def taken(instance: Instance, arrivals: list[Arrival]) -> Turn:
    turn = instance.turn(arrivals, NOW)
    assert isinstance(turn, Turn), turn
    return turn


def answer(number: int, body: str = BODY) -> Answered:
    return Answered(f"01900000-0000-7000-8000-{number:012d}", number, 0, number, body)


def live_chain() -> list[Row]:
    instance = Instance(chain.program, "i")
    rows = [taken(instance, [Started("m", 1, BODY, "i/0")]).row]
    rows += [taken(instance, [answer(number)]).row for number in range(1, 11)]
    assert instance.ended is not None
    instance.close()
    return rows


def cold_chain(texts: list[str]) -> None:
    arrivals: list[Arrival] = [Started("m", 1, BODY, "i/0"), *(answer(number) for number in range(1, 11))]
    for turn, arrival in enumerate(arrivals):
        instance = cold(chain.program, texts[:turn])
        taken(instance, [arrival])
        instance.close()


def cold(program: Program, texts: list[str]) -> Instance:
    instance = Instance(program, "i")
    instance.load((decode("i", 0, turn, 0, text) for turn, text in enumerate(texts, 1)), sum(map(len, texts)))
    instance.catch_up()
    return instance


def live_fan(count: int) -> list[str]:
    instance = Instance(fan.program, "i")
    texts = [taken(instance, [Started("m", 1, str(count), "i/0")]).text]
    for first in range(1, count + 1, RUN):
        run: list[Arrival] = [answer(number) for number in range(first, min(first + RUN, count + 1))]
        texts.append(taken(instance, run).text)
    assert instance.ended is not None
    instance.close()
    return texts


def parked(count: int = 1000) -> float:
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    held = [Instance(chain.program, str(number)) for number in range(count)]
    for number, instance in enumerate(held):
        taken(instance, [Started("m", 1, BODY, f"{number}/0")])
    gc.collect()
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    for instance in held:
        instance.close()
    return used / count


def best(function: Callable[[], object], times: int, rounds: int = 7) -> float:
    """Microseconds."""
    return min(timeit.repeat(function, number=times, repeat=rounds, timer=time.process_time)) / times * 1e6


def main() -> None:
    texts = [encode(row) for row in live_chain()]
    say("chain of 10, live", best(live_chain, 100))
    say("chain of 10, each of 11 turns replayed", best(lambda: cold_chain(texts), 20))
    say("replay of 11 entries", best(lambda: cold(chain.program, texts[:-1]).close(), 100))
    fans = {count: live_fan(count) for count in (1_000, 10_000)}
    for count, rows in fans.items():
        rounds = 3 if count > 1_000 else 7
        say(f"fan-out of {count:,}, live", best(lambda count=count: live_fan(count), 1, rounds))  # type: ignore[misc]
        say(
            f"fan-out of {count:,}, replayed",
            best(lambda rows=rows: cold(fan.program, rows[:-1]).close(), 1, rounds),
        )  # type: ignore[misc]
    sys.stdout.write(f"{'parked instance':45} {parked():>12,.0f} bytes\n")


def say(what: str, micros: float) -> None:
    sys.stdout.write(f"{what:45} {micros:>12,.1f} us\n")


if __name__ == "__main__":
    main()
