"""A message in a worker's hands, and what a store does with a settlement, as far as the counters go."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from holdfast.model.message import Y2000, Flag, Message, NewMessage
from holdfast.model.work import Leased, Settlement
from holdfast.rules import delivery
from holdfast.rules.delivery import Ending
from holdfast.rules.policy import HandlerPolicy
from holdfast.rules.retry import policy
from tests.rules.purity import pure

conclude = pure(delivery.conclude)  # as all tests of rules call it

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOW_RAW = (NOW - Y2000) // timedelta(microseconds=1)
MESSAGE = Message(
    seq=7,
    id=UUID(int=7),
    queue="send_receipt",
    type="order.placed",
    body='{"id":1,"card":"4111"}',
    stream="order-1",
    position=70,
    subject=None,
    headers=None,
    status=int(Flag.STORED),
    attempts=0,
    failures=0,
    vanished=0,
    refunds=0,
    created_raw=NOW_RAW,
    due_raw=None,
    deadline_raw=None,
)
EMITTED = NewMessage(id=UUID(int=8), type="receipt.sent", body="{}")


def lease(message: Message = MESSAGE, **changes: Any) -> Leased:
    message = replace(message, **changes)
    return Leased(message, epoch=1, attempt=message.attempts + 1, run=message.seq, run_epoch=1)


def handler(retry: str = "patient", **changes: Any) -> HandlerPolicy:
    return HandlerPolicy(retry=policy(retry), **changes)


def settle(
    ending: Ending, leased: Leased | None = None, how: HandlerPolicy | None = None, roll: float = 0.5
) -> Settlement:
    settlement = conclude(leased or lease(), ending, how or HandlerPolicy(), NOW, roll)
    assert settlement is not None
    return settlement


def applied(settlement: Settlement) -> Message:
    """The message after the store has applied the settlement."""
    message = settlement.leased.message
    return replace(
        message,
        status=message.status | settlement.flags,
        attempts=message.attempts + settlement.counted,
        failures=message.failures + settlement.failed,
        refunds=message.refunds + settlement.refunded,
        position=None if settlement.aside else message.position,
    )
