"""`make demo SCENARIO=services`: the demo of two services with a RabbitMQ of its own, if one can be had here.

The broker comes from where the tests have theirs (tests/brokers.py): it is unpacked, not installed, and started on a
free port. Where that is not possible, the demo uses a broker in memory and says so.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

from holdfast.demo import services

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests import brokers
from tests.servers import ServerMissing


class Own:
    """A server of the demo's own."""

    def __init__(self, broker: brokers.Broker) -> None:
        self._broker = broker
        self.name = f"RabbitMQ {broker.tree.version} of the demo's own, killed with -9"
        self.url = broker.url

    def kill(self) -> None:
        self._broker.kill9()

    def start(self) -> None:
        self._broker.start()


def main() -> int:
    console = Console()
    for role in ("new", "old"):
        try:
            broker = brokers.own_broker(role)
        except (ServerMissing, RuntimeError, OSError) as why:
            console.print(f"No RabbitMQ: {str(why).splitlines()[0]}", soft_wrap=True, markup=False)
            continue
        try:
            return services.run(console, Own(broker))
        finally:
            broker.close()
    return services.run(console)


if __name__ == "__main__":
    sys.exit(main())
