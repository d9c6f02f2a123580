"""`holdfast demo --scenario services`: played quickly in memory; a lost or doubled effect fails its proof."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from holdfast.demo import services
from holdfast.transports import Fault


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "ORDERS", 200)
    monkeypatch.setattr(services, "AWAY", 0.5)


def played(broker: services.InMemory | None = None) -> tuple[int, str]:
    out = io.StringIO()
    code = services.run(Console(file=out, width=80), broker, limit=5.0)
    return code, out.getvalue()


@pytest.mark.usefixtures("quick")
def test_everything_arrives_once_and_in_order() -> None:
    code, said = played()
    assert code == 0, said
    assert "a broker in memory" in said
    assert said.count("the broker is killed") == 2
    assert said.count("0 lost, 0 twice") == 2
    assert max(map(len, said.splitlines())) <= 80


@pytest.mark.usefixtures("quick")
def test_the_proof_fails_when_a_message_is_not_delivered() -> None:
    broker = services.InMemory()
    broker.broker.fail(Fault.TOO_LARGE)
    code, said = played(broker)
    assert code == 1
    assert "1 lost" in said
    assert "FAILED" in said
