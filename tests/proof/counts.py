"""What the layers of proof have looked at, for the last lines of a test run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Counts:
    numbers: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, layer: str, what: str, count: int = 1) -> None:
        self.numbers[layer, what] += count

    def take(self) -> list[tuple[str, str, int]]:
        """What was counted since the last call; begins anew at nothing."""
        taken = [(layer, what, count) for (layer, what), count in self.numbers.items()]
        self.numbers.clear()
        return taken

    def by_layer(self) -> dict[str, dict[str, int]]:
        layers: dict[str, dict[str, int]] = {}
        for (layer, what), count in sorted(self.numbers.items()):
            layers.setdefault(layer, {})[what] = count
        return layers

    def lines(self) -> Iterator[str]:
        for layer, counts in self.by_layer().items():
            yield f"{layer}: {', '.join(f'{count} {what}' for what, count in counts.items())}"


COUNTS = Counts()
