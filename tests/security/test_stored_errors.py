"""What is stored of an error has its secrets masked, in the error history and in the dead letter, on both databases."""

from __future__ import annotations

import re

import pytest

from holdfast import Dead, Holdfast, InvalidSettings, RetryPolicy, StoreUnavailable
from tests.worker.lab import Lab

TWICE = RetryPolicy(attempts_max=2, base=0.0, factor=1.0, cap=0.0)


async def drained(lab: Lab, app) -> None:  # type: ignore[no-untyped-def]
    app.prepare()
    await app.worker(until_idle=True).run()


async def test_no_secret_is_stored_with_an_error(lab: Lab) -> None:
    app = lab.app(redact=["correct horse", re.compile(r"IBAN \w+")])

    @app.handler("pay", retry=TWICE)
    async def pay(body: dict) -> None:
        raise OSError("postgresql://u:hunter2@db refused correct horse for IBAN DE00 and order 17")

    @app.handler("drop")
    async def drop(body: dict) -> Dead:
        return Dead("token=hunter2 is no token")

    app.publish("pay", {})
    app.publish("drop", {})
    await drained(lab, app)
    stored = "\n".join(str(row) for row in lab.rows("dead"))
    assert "postgresql://u:***@db refused *** for *** and order 17" in stored
    assert "Dead: token=*** is no token" in stored
    for secret in ("hunter2", "correct horse", "DE00"):
        assert secret not in stored


async def test_a_worker_by_hand_stores_no_secret_either(lab: Lab) -> None:
    app = lab.app(redact=["correct horse"])

    @app.handler("pay")
    async def pay(body: dict) -> None: ...

    app.publish("pay", {})
    batch = app.process_work_batch(want={"pay": 1})
    app.process_work_batch([app.failed(batch.work[0], 0, "password=hunter2, correct horse")])
    (row,) = lab.rows("message")
    assert "password=***, ***" in str(row["errors"])
    assert "hunter2" not in str(row)


@pytest.mark.one_postgres
def test_a_refused_connection_does_not_tell_the_password() -> None:
    app = Holdfast("postgresql://shop:correcthorse@127.0.0.1:1/shop?connect_timeout=1")
    with pytest.raises(StoreUnavailable) as refusal:
        app.operations.status()
    assert "correcthorse" not in f"{refusal.value!r}{refusal.value}{app!r}{app.store!r}{app.settings!r}"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://shop:correct horse@db/shop",
        "postgresql://shop:correcthorse@db/shop?nonsense=1",
        "postgresql://shop:correct%horse@db/shop",
        "postgresql://shop@db/shop?password=correcthorse&password",
        "mysql://shop:correcthorse@db/shop",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(InvalidSettings) as refusal:
        Holdfast(url)
    assert "horse" not in f"{refusal.value!r} {refusal.value}"
