"""Seeds of the simulation. A failure names its seed: `pytest tests/proof/simulation --seed=123` plays it again. The
ordinary suite plays a hundred small ones, always the same; `faults` many more and larger ones, others each time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from tests.proof.counts import COUNTS
from tests.proof.simulation.story import Story
from tests.proof.simulation.world import World

MESSAGES = 14
SEEDS = (*range(100), 206)  # in the last one a move was unheard of, the rarest of all
RARE = (
    "a scheduled message is brought over",
    "a lapsed lease is taken over",
    "a settlement is fenced off",
    "a completion is fenced off",
    "a completion without an answer",
    "an unheard report was done",
    "an unheard report was not done",
    "a move was unheard of",
    "a lane is lost",
    "a suspect is started",
    "starts are spent",
    "a message kills its worker",
    "a supervisor reports a death",
    "death between commit and answer",
    "the answer to a commit is lost",
    "a process is paused for longer than a lease",
    "the database's clock jumps",
    "the database is away for longer than a lease",
    "a run of three or more",
    "a call with a run",
    "an answer behind a failure is not looked at",
    "given back unstarted",
    "set aside",
    "a stream is halted by a death",
    "redriven at the head",
    "redriven at the end",
    "halted by hand",
    "resumed by hand",
    "a handler is stopped: timeout",
    "a handler is stopped: lapsed",
    "a handler is stopped: lost",
    "a handler asks for time",
    "a duplicate is recognised",
    "a worker stops as it should",
    "settled: cancelled",
)


def play(seed: int, messages: int = MESSAGES) -> World:
    world = Story(seed, messages).play()
    if world.wrong:
        story = "\n".join(world.lines[-200:])
        size = (
            ""
            if messages == MESSAGES
            else f" with {messages} messages: `make faults PART=simulation SEED=...` with the run's seed repeats it"
        )
        pytest.fail(
            f"--seed={seed}{size}\n" + "\n".join(world.wrong[:10]) + f"\n{world.faults}\n{story}",
            pytrace=False,
        )
    COUNTS.add("simulation", "seeds")
    COUNTS.add("simulation", "events", len(world.lines))
    return world


def play_all(seeds: Iterable[int], messages: int = MESSAGES) -> Counter[str]:
    hits: Counter[str] = Counter()
    for seed in seeds:
        hits += play(seed, messages).hits
    return hits


def test_seeds(pytestconfig: pytest.Config) -> None:
    chosen = pytestconfig.getoption("--seed", None)
    if chosen is not None:
        play(chosen)
        return
    hits = play_all(SEEDS)
    missing = [state for state in RARE if not hits[state]]
    COUNTS.add("simulation", "rare states hit", len(RARE) - len(missing))
    assert not missing, f"never happened: {missing}"


def test_a_seed_is_a_whole_story() -> None:
    """The same seed twice is the same story, to the last event."""
    for seed in (1, 2, 3, 4, 5, 6):
        first, second = play(seed), play(seed)
        assert first.trace.hexdigest() == second.trace.hexdigest(), f"--seed={seed}"


@pytest.mark.faults("simulation")
@pytest.mark.parametrize("block", range(30))
def test_many_seeds(block: int, pytestconfig: pytest.Config) -> None:
    first = first_seed(pytestconfig) + 100 * block
    play_all(range(first, first + 100))


@pytest.mark.faults("simulation")
@pytest.mark.parametrize("block", range(10))
def test_large_seeds(block: int, pytestconfig: pytest.Config) -> None:
    first = first_seed(pytestconfig) + 5000 + 10 * block
    play_all(range(first, first + 10), messages=150)


def first_seed(config: pytest.Config) -> int:
    """Each seed of `make faults` has ten thousand seeds of the simulation of its own."""
    return 10_000 * (1 + int(config.getoption("--faults-seed", 0)))
