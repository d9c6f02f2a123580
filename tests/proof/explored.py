"""Operations set against each other in one database, every outcome checked."""

from __future__ import annotations

from collections.abc import Sequence

from tests.proof import invariants
from tests.proof.counts import COUNTS
from tests.proof.explorer import Explorer
from tests.proof.operations import operations
from tests.proof.world import World

SHOWN = 3


class Explored:
    """A world and an explorer of it."""

    def __init__(self, dsn: str) -> None:
        self.world = World(dsn)
        self.explorer = Explorer(dsn)
        self.operations = operations()
        self.before = self.world.turn()
        assert invariants.broken(self.before, self.before, [], self.world.names) == []

    def close(self) -> None:
        self.explorer.close()
        self.world.close()

    def check(
        self, names: Sequence[str], preemptions: int | None, limit: int = 100_000, seed: int = 0
    ) -> int:
        """The schedules of these operations, at most `limit` of them; fails with the first ones that broke something.
        Answers how many there were."""
        chosen = [self.operations[name] for name in names]
        count = conflicts = strayed = 0
        wrong: list[str] = []
        for run in self.explorer.explore(chosen, self.world, preemptions, seed):
            if count == limit:
                COUNTS.add("explorer", f"of them ended after {limit} schedules")
                break
            count += 1
            conflicts += run.conflicts
            strayed += run.strayed
            faults = run.faults + invariants.broken(self.before, run.left, run.results, self.world.names)
            if faults:
                story = "\n    ".join(run.trace)
                wrong.append(f"schedule {run.schedule}:\n  " + "\n  ".join(faults) + f"\n    {story}")
                if len(wrong) == SHOWN:
                    break
            self.world.forget_new()
        COUNTS.add("explorer", "pairs" if len(names) == 2 else "triples")
        COUNTS.add("explorer", "schedules", count)
        COUNTS.add("explorer", "repeated after a documented conflict", conflicts)
        COUNTS.add("explorer", "in which the server chose another order", strayed)
        assert not wrong, f"{' x '.join(names)}, the first of {count} schedules:\n" + "\n".join(wrong)
        return count
