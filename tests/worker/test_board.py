"""What a supervisor reads after the death of a worker."""

from __future__ import annotations

import os

import pytest

from holdfast.worker.board import Begun, Board


def test_begun_ended_and_settled_are_told_apart() -> None:
    board = Board.create(10)
    board.sign(7)
    for seq in (11, 12, 13, 14):
        board.began(seq)
    board.ended(12, frail=False)
    board.ended(13, frail=True)
    board.ended(14, frail=False)
    board.settled(14)
    worker, running, ended, frail = board.read()
    assert (worker, running, sorted(ended), frail) == (7, [11], [12, 13], [13])
    board.wipe()
    assert board.read() == Begun(0, [], [], [])
    board.close()


def test_slots_are_used_again() -> None:
    board = Board.create(3)
    for seq in range(100):
        board.began(seq)
        board.ended(seq, frail=False)
        board.settled(seq)
    board.began(100)
    assert board.read().running == [100]
    board.close()


def test_more_than_it_holds_is_left_out() -> None:
    board = Board.create(2)
    for seq in range(5):
        board.began(seq)
    for seq in range(5):
        board.ended(seq, frail=False)
        board.settled(seq)
    assert board.read() == Begun(0, [], [], [])
    board.close()


def test_another_process_reads_what_a_killed_one_wrote() -> None:
    board = Board.create(10)
    pid = os.fork()
    if pid == 0:
        writer = Board(board.fileno, board.capacity)
        writer.sign(3)
        writer.began(42)
        writer.turned(5.5)
        writer.suspects_wait(True)
        writer.deaths_reported()
        os.kill(os.getpid(), 9)
    os.waitpid(pid, 0)
    assert board.read() == Begun(3, [42], [], [])
    assert (board.turned_at, board.suspects, board.has_reported_deaths) == (5.5, True, True)
    board.close()


@pytest.mark.parametrize("seq", [0, 1, 2**62])
def test_numbers_as_large_as_they_get(seq: int) -> None:
    board = Board.create(1)
    board.began(seq)
    assert board.read().running == [seq]
    board.close()
