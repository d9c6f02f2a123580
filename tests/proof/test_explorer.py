"""Every pair of storage operations in every order of their steps; see explorer.py.

The ordinary suite takes the operations of `CORE` with at most one preemption. `faults` takes pairs of all operations
without a bound, those that its seed chooses, or all with FULL=1: see tests/faults/selection.py. Two operators' commands
of twenty statements each have more schedules than anybody can wait for, so a pair ends after LIMIT of them; those with
few preemptions come first, and among the others the seed chooses. What was found this way has a test of its own here.
"""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import Any

import pytest

from tests.proof.operations import operations

CORE = (
    "publish", "insert", "transaction_ba_rr", "claim_runs", "done_move", "emit_b", "emit_a", "aside", "dead_halt",
    "complete_rr", "renew", "recover", "take_over", "bring", "adopt", "prune_streams", "order_redrive_halted",
    "order_set_aside_free", "publish_last", "done_last", "transaction", "transaction_last",
)  # fmt: skip
ALL = tuple(operations())
LIMIT, FULL_LIMIT = 500, 6000


def pairs(names: tuple[str, ...]) -> list[Any]:
    return [pytest.param(pair, id="-".join(pair)) for pair in combinations_with_replacement(names, 2)]


def test_the_core_is_known() -> None:
    assert set(CORE) <= set(ALL)


@pytest.mark.one_postgres
@pytest.mark.parametrize("pair", pairs(CORE))
def test_pair(explored: Any, pair: tuple[str, str]) -> None:
    explored.check(pair, preemptions=1)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.function is test_pair_in_every_order:
        # `make test` leaves them out. To make five thousand of them would cost each of its processes seconds.
        left_out = "not faults" in metafunc.config.getoption("markexpr")
        metafunc.parametrize("pair", pairs(ALL)[:1] if left_out else pairs(ALL))


@pytest.mark.faults("explorer")
def test_pair_in_every_order(explored: Any, pair: tuple[str, str], pytestconfig: pytest.Config) -> None:
    is_sample = pytestconfig.getoption("--faults-pairs", None) is not None
    seed = pytestconfig.getoption("--faults-seed", 0)
    explored.check(pair, preemptions=None, limit=LIMIT if is_sample else FULL_LIMIT, seed=seed)


# --- Schedules --------------------------------------------------------------------------------------------------------

TICKS = (
    "tick",
    "schedule_set",
    "schedule_drop",
    "schedule_skip",
    "done_move",
    "transaction_ba_rr",
    "emit_a",
    "claim_runs",
)


@pytest.mark.covers("B43", "X18")
@pytest.mark.one_postgres
@pytest.mark.parametrize("other", TICKS)
def test_a_tick_beside_something_else(explored: Any, other: str) -> None:
    """Two ticks, or one beside what changes its schedules or its streams: each occurrence once, all or nothing."""
    explored.check(("tick", other), preemptions=1)


# --- Scheduled messages -----------------------------------------------------------------------------------------------

BRINGS = (
    "bring",
    "bring_two",
    "move_scheduled",
    "move_soon",
    "cancel_scheduled",
    "cancel_later",
    "publish_two",
    "emit_a",
)


@pytest.mark.covers("X62")
@pytest.mark.one_postgres
@pytest.mark.parametrize("other", BRINGS)
def test_what_is_due_is_brought_over_beside_something_else(explored: Any, other: str) -> None:
    """Two workers at once, or one beside who moves or cancels: each is once somewhere, and nobody waits in a circle."""
    for one in ("bring", "bring_two"):
        explored.check((one, other), preemptions=1)


# --- What was found ---------------------------------------------------------------------------------------------------

FOUND = {
    # A handler that publishes in its own transaction and completes in it took the rows in two statements as well.
    "what a handler published is placed with what it completes": (
        "complete_publish", "complete_publish_back", "publish_two", "transaction_ab", "transaction_ba_rr",
    ),
    # Rows of event streams were taken before those of streams, behind them, or in the order of the calls.
    "events come before streams, sorted": (
        "publish_event", "transaction_event", "emit_events", "emit_events_back", "publish_events",
        "publish_events_back",
    ),
    # To a REPEATABLE READ producer the row that housekeeping took away is there as well as its own new one: it looked
    # into the old one, and the first message of the stream became no head.
    "a stream whose row comes and goes": ("transaction_new_rr", "complete_emit_rr", "prune_streams", "publish_new"),
    # The key of a settled message was ended before the keys of what it emits were taken.
    "keys are taken together": ("keys_cross", "keys_cross_back", "fan_one", "fan_two", "publish_keys"),
    # A plain INSERT that names its queue has a place in its stream like any other.
    "a producer that names a queue": ("insert_for_one", "insert", "publish", "done_last"),
    # Housekeeping gave a key up between the two looks of a producer, whose message then held none.
    "a key that is given up": ("publish_old_key", "prune_dedupe", "transaction_old_key"),
    # A key with a scope of its own is one key for messages of any type, and for dead letters from the start.
    "keys with a scope": ("publish_scoped", "publish_scoped_back", "bear"),
    # A timer, an unrouted message or one that is moved whose id another message had was deleted, or failed the turn.
    "two messages with one id": ("bring", "bring_two", "same_id_timer"),
    "an adopted message with the id of another": ("adopt", "same_id_unrouted"),
    "a moved message with the id of another": ("order_move", "same_id_moved"),
}  # fmt: skip


@pytest.mark.one_postgres
@pytest.mark.parametrize("names", [pytest.param(names, id=about) for about, names in FOUND.items()])
def test_found(explored: Any, names: tuple[str, ...]) -> None:
    for pair in combinations_with_replacement(names, 2):
        explored.check(pair, preemptions=1)


@pytest.mark.one_postgres
def test_followers_are_looked_up_when_their_head_is_held(explored: Any) -> None:
    """Between the look at a stream and the hold of its head anything may leave it."""
    for name in ("order_release", "order_set_aside_free"):
        explored.check(("claim_runs", name), preemptions=1)


SORTED = (
    ("transaction_ab", "transaction_ba"),
    ("publish_two", "transaction_ab"),
    ("emit_b", "emit_a"),
    ("complete_publish", "complete_publish_back"),
    ("bring", "transaction_ba"),
    ("bring", "emit_a"),
)


@pytest.mark.one_postgres
@pytest.mark.parametrize("pair", [pytest.param(pair, id="-".join(pair)) for pair in SORTED])
def test_rows_of_streams_are_taken_in_one_order(explored: Any, pair: tuple[str, str]) -> None:
    """While somebody holds a row for which both wait, each holds what it took before."""
    explored.check(("hold_stream", *pair), preemptions=1)


TRIPLES = (
    ("done_last", "publish_last", "transaction_last_rr"),
    ("done_last", "publish_last", "claim_other"),
    ("halt_last", "publish_last", "claim_other"),
    ("done", "recover", "claim_suspect"),
    ("done", "take_over", "renew"),
    ("complete_rr", "take_over", "publish"),
    ("emit_b", "emit_a", "transaction_ba"),
    ("bring", "bring_two", "adopt"),
    ("bring", "move_scheduled", "cancel_later"),
    ("publish_keys", "publish_keys_back", "emit_key"),
    ("publish_new", "transaction_new_rr", "prune_streams"),
    ("order_redrive_halted", "order_resume", "publish_halted"),
    ("order_redrive_halted", "order_redrive_out", "order_discard"),
    ("order_halt_free", "claim_runs", "publish"),
    ("order_set_aside", "done", "publish"),
    ("recover_all", "report_death", "renew"),
    ("publish_old_key", "transaction_old_key", "prune_dedupe"),
)


@pytest.mark.faults("explorer")
@pytest.mark.one_postgres
@pytest.mark.parametrize("names", [pytest.param(names, id="-".join(names)) for names in TRIPLES])
def test_triple(explored: Any, names: tuple[str, ...]) -> None:
    explored.check(names, preemptions=1)


@pytest.mark.one_postgres
def test_deliveries_of_one_message_end_its_key_in_one_order(explored: Any) -> None:
    """Two subscribers ended the keys of the same messages, each in the order of its own runs."""
    explored.check(("hold_key", "fan_two", "fan_one"), preemptions=1)
