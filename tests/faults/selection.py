"""A pytest plugin of tools/faults.py: which of the long tests belong to a part, which pairs the explorer takes, and on
which PostgreSQL.

The choice follows from the seed alone, so that all processes of xdist make the same one.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping

import pytest

SAMPLED = "test_pair_in_every_order"
KILLED = "test_all_or_nothing_and_finished"
Subject = tuple[str, ...]  # a pair of operations, or a verb


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("faults")
    group.addoption("--faults-part", help="only the long tests of this part")
    group.addoption(
        "--faults-seed", type=int, default=0, help="chooses the pairs and the seeds of the simulation"
    )
    group.addoption(
        "--faults-pairs",
        type=int,
        help="how many pairs of operations; without it everything, on all PostgreSQLs",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Before -k: the same seed makes the same choice, whatever else is asked for."""
    part = config.getoption("--faults-part")
    kept = [item for item in items if part is None or part_of(item) == part]
    kept = list(sampled(kept, config.getoption("--faults-pairs"), config.getoption("--faults-seed")))
    taken = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in taken])
    items[:] = kept


def part_of(item: pytest.Item) -> str | None:
    mark = item.get_closest_marker("faults")
    return str(mark.args[0]) if mark and mark.args else None


def sampled(items: list[pytest.Item], count: int | None, seed: int) -> Iterator[pytest.Item]:
    """So many of the pairs, and all verbs that are killed, each on one PostgreSQL; of the others all."""
    left: set[pytest.Item] = set()
    if count is not None:
        left |= left_out(by_subject(items, SAMPLED, "pair"), count, seed)
        left |= left_out(by_subject(items, KILLED, "name"), None, seed)
    yield from (item for item in items if item not in left)


def by_subject(items: Iterable[pytest.Item], test: str, parameter: str) -> dict[Subject, list[pytest.Item]]:
    """The tests of this name on PostgreSQL: one for each version."""
    found: dict[Subject, list[pytest.Item]] = {}
    for item in items:
        if getattr(item, "originalname", "") == test:
            params = item.callspec.params  # type: ignore[attr-defined]
            if params.get("place") != "sqlite":
                subject = params[parameter]
                found.setdefault((subject,) if isinstance(subject, str) else subject, []).append(item)
    return found


def left_out(tests: Mapping[Subject, list[pytest.Item]], count: int | None, seed: int) -> set[pytest.Item]:
    """All but the chosen ones, each on one PostgreSQL."""
    wanted = chosen(tests, count, seed)
    taken = {versions[wanted[each] % len(versions)] for each, versions in tests.items() if each in wanted}
    return {item for versions in tests.values() for item in versions} - taken


def chosen(subjects: Iterable[Subject], count: int | None, seed: int) -> dict[Subject, int]:
    """So many, or all, in which every operation occurs; by turns 0 and 1, for the PostgreSQL to use.

    Every operation occurs as long as there is room: the first ones are those that bring one that was not there yet.
    """
    mixed = sorted(set(subjects))
    random.Random(seed).shuffle(mixed)
    seen: set[str] = set()
    first, others = [], []
    for each in mixed:
        (others if seen.issuperset(each) else first).append(each)
        seen.update(each)
    return {each: at % 2 for at, each in enumerate([*first, *others][:count])}
