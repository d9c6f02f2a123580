"""A failure as a value: category, retryability, the whole message, and a text without it."""

from __future__ import annotations

import json
import pickle
from uuid import UUID

import pytest

from holdfast.errors import InvalidMessage, PoisonError
from holdfast.model.failure import Category, FailureDescription, category_of, is_retryable
from holdfast.model.message import Reason
from holdfast.rules.delivery import Died, Raised, Returned, StartsSpent, Unreadable, failure_of
from tests.rules.cases import NOW, handler, lease, settle

BRISK = handler("brisk")


def poison() -> FailureDescription:
    leased = lease(attempts=5, vanished=1, body='{"card":"4111\\ud83d"}')
    found = failure_of(settle(StartsSpent(), leased, BRISK), BRISK)
    assert found is not None
    return found


@pytest.mark.covers("D7", "D28", "D29", "D32", "X38")
def test_poison_carries_the_whole_message_and_its_text_does_not() -> None:
    failure = poison()
    assert (failure.category, failure.reason, failure.last_reason) == ("poison", 7, 8)
    assert (failure.attempt_count, failure.max_attempts) == (6, 5)
    assert (failure.message_type, failure.message_id) == ("order.placed", str(UUID(int=7)))
    carried = json.loads(failure.message)
    assert (carried["body"], carried["stream"], carried["created_at"]) == (
        '{"card":"4111\\ud83d"}',
        "order-1",
        NOW.isoformat(),
    )
    assert "4111" not in str(failure)
    assert "\n" not in str(failure)
    assert str(failure) == (
        f"poison: message {UUID(int=7)} of type order.placed in queue send_receipt failed: poison message, "
        "the last time worker vanished; 5 of 5 attempts."
    )


@pytest.mark.covers("D29", "D36")
def test_a_description_and_its_error_survive_the_way_through_text() -> None:
    failure = poison()
    assert FailureDescription.from_json(failure.to_json()) == failure
    error = failure.error
    assert isinstance(error, PoisonError)
    for again in (PoisonError(**error.to_dict()), pickle.loads(pickle.dumps(error))):  # type: ignore[arg-type]
        assert (again.to_dict(), str(again)) == (error.to_dict(), str(error))
    assert (error.attempt_count, error.max_attempts, error.category, error.retryable) == (
        6,
        5,
        "poison",
        False,
    )
    assert "4111" in error.message
    assert "4111" not in str(error)


@pytest.mark.covers("D28", "D33")
@pytest.mark.parametrize(
    ("reason", "category", "retryable"),
    [
        (1, "infrastructure", True),
        (2, "application", True),
        (3, "application", False),
        (4, "infrastructure", True),
        (5, "application", False),
        (6, "infrastructure", True),
        (7, "poison", False),
        (8, "infrastructure", True),
        (9, "configuration", False),
        (10, "application", False),
        (11, "application", False),
        (99, "application", True),
    ],
)
def test_every_reason_has_a_category(reason: int, category: str, retryable: bool) -> None:
    assert category_of(Reason(reason)) == category
    assert is_retryable(Reason(reason)) is retryable


@pytest.mark.covers("D33")
@pytest.mark.parametrize("category", [Category.POISON, Category.CONFIGURATION])
def test_poison_and_configuration_are_never_retryable(category: Category) -> None:
    told = json.loads(poison().to_json()) | {"category": category, "retryable": True}
    with pytest.raises(InvalidMessage, match=f"category {category} is never"):
        FailureDescription(**told)


@pytest.mark.covers("W90", "V17")
@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        (Unreadable(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid")), 5),  # malformed
        (Raised(type("ValidationError", (Exception,), {})()), 3),  # validation
        (Raised(type("TooLarge", (Exception,), {"status": 413})()), 11),  # too large
        (Died("no such customer"), 3),
    ],
)
def test_what_can_never_be_handled_is_dead_at_once(ending: Unreadable | Raised | Died, reason: int) -> None:
    settlement = settle(ending, lease(), BRISK)
    failure = failure_of(settlement, BRISK)
    assert failure is not None
    assert (settlement.outcome, failure.reason, failure.category) == ("dead", reason, "application")
    assert not failure.retryable
    assert failure.error is None


@pytest.mark.covers("W90")
def test_a_dependency_that_stays_down_ends_as_poison_with_its_reason() -> None:
    settlement = settle(Raised(ConnectionError()), lease(attempts=4), BRISK)
    failure = failure_of(settlement, BRISK)
    assert failure is not None
    assert (failure.category, failure.last_reason, failure.attempt_count) == ("poison", 1, 5)


def test_what_went_well_has_no_failure() -> None:
    assert failure_of(settle(Returned()), BRISK) is None
