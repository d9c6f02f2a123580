"""Turns to have a transaction: so many at once in one process."""

from __future__ import annotations

import os

from holdfast.clock import SystemClock
from holdfast.settings import Settings
from holdfast.store.postgres import PostgresStore


def test_a_child_does_not_inherit_turns_that_its_parent_has_taken() -> None:
    """Found by review: a fork while a handler had its transaction left the child short of a turn for ever."""
    store = PostgresStore("postgresql://nobody@127.0.0.1:1/none", Settings(connections=1), SystemClock())
    with store.turn():
        assert not store.turn().acquire(blocking=False), "there is one, and we have it"
        child = os.fork()
        if child == 0:
            os._exit(0 if store.turn().acquire(blocking=False) else 1)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
