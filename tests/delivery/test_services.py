"""Two services in two processes over RabbitMQ, with everything between them killed and cut."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests import brokers
from tests.delivery.storm import Course, storm
from tests.transports.conftest import shared

SMALL = Course(messages=400, streams=20, batches=8, cuts=4, service_kills=1)
WHOLE = Course(messages=10_000, streams=100, batches=100, cuts=50, service_kills=3, broker_kills=2)


@pytest.mark.covers("X23", "X51", "X53")
@pytest.mark.timeout(180)
def test_two_services_in_a_small_storm(place: str, tmp_path: Path) -> None:
    """Each database with one of the brokers; every pair of them is in `make faults`."""
    with storm(place, tmp_path, shared("old" if place == "sqlite" else "new"), SMALL) as it:
        it.run()
        it.check()
    assert sum(each.wire.cut_unconfirmed for each in it.both) == SMALL.cuts
    it.count()


@pytest.mark.faults("delivery")
@pytest.mark.covers("X23", "X51", "X53", "W104", "V1", "V3")
@pytest.mark.timeout(900)
def test_two_services_in_a_storm(place: str, own_broker: brokers.Broker, tmp_path: Path) -> None:
    with storm(place, tmp_path, own_broker.url, WHOLE, own_broker) as it:
        time.sleep(2)  # RabbitMQ writes down a little later that it has the queues
        it.run()
        it.check()
    assert sum(each.wire.cut_unconfirmed for each in it.both) == WHOLE.cuts
    assert (it.broker_kills, [each.kills for each in it.both]) == (2, [3, 3])
    it.count()
