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

    def lines(self) -> Iterator[str]:
        for layer in sorted({layer for layer, _ in self.numbers}):
            parts = [f"{count} {what}" for (of, what), count in self.numbers.items() if of == layer]
            yield f"{layer}: {', '.join(parts)}"


COUNTS = Counts()
