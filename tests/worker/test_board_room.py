"""The memory that a worker shares with its supervisor is there before anybody writes to it, or it is told."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError
from holdfast.telemetry import memory
from holdfast.telemetry.sheet import Sheet
from holdfast.worker.board import Begun, Board


@pytest.fixture
def in_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """As where files in memory are not to be had: in the temporary folder."""
    monkeypatch.setattr(memory, "IN_MEMORY", False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_a_full_temporary_folder_is_no_trouble_where_memory_has_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not memory.IN_MEMORY:
        pytest.skip("no files in memory here")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    made = Board.create(10)
    made.wipe()
    made.close()
    Sheet.create().close()


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM])
def test_where_a_sandbox_forbids_files_in_memory_a_file_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int
) -> None:
    def forbidden(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "memfd_create", forbidden, raising=False)
    monkeypatch.setattr(memory, "IN_MEMORY", True)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = Board.create(10)
    made.wipe()
    made.close()


@pytest.mark.parametrize("make", [lambda: Board.create(4100), Sheet.create])
def test_a_full_folder_is_told_before_anything_begins(in_folder: Path, make: object) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        with pytest.raises(HoldfastError, match=f"temporary folder {in_folder} .*No space left.*TMPDIR"):
            make()  # type: ignore[operator]
    make().close()  # type: ignore[operator]


def test_a_folder_that_cannot_be_written_to(in_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(in_folder / "nowhere"))
    with pytest.raises(HoldfastError, match="set TMPDIR"):
        Board.create(10)


def test_the_space_is_reserved(in_folder: Path) -> None:
    """A sparse file has no blocks: the first write would need one, and die without it."""
    made = Board.create(4100)
    size = os.fstat(made.fileno)
    assert size.st_blocks * 512 >= size.st_size > 4100 * 16
    assert made.read() == Begun(0, [], [], [])
    made.close()


def test_where_space_cannot_be_reserved_it_is_written(
    in_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "posix_fallocate")
    test_the_space_is_reserved(in_folder)


@pytest.mark.parametrize("in_memory", [True, False])
def test_no_room_is_an_error_and_not_the_death_of_the_process(in_memory: bool, tmp_path: Path) -> None:
    """For real: the process may have no files larger than a few blocks."""
    code = (
        "import sys; from holdfast.errors import HoldfastError\n"
        "from holdfast.telemetry import memory; from holdfast.worker import board\n"
        f"memory.IN_MEMORY = memory.IN_MEMORY and {in_memory}\n"
        "try:\n    board.Board.create(4100).wipe()\n"
        "except HoldfastError as error:\n    print(error); sys.exit(9)\n"
    )

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

    ended = subprocess.run(
        [sys.executable, "-B", "-c", code],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        preexec_fn=limited,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 9, (ended.returncode, ended.stderr)
    assert "needs 65,632 bytes" in ended.stdout
