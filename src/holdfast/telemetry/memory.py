"""Memory that worker processes share with their supervisor, and that outlives a killed worker."""

from __future__ import annotations

import errno
import os
import tempfile

from ..errors import HoldfastError


def reserved(size: int) -> int:
    """The descriptor of a new file of zeros without a name, to be mapped into memory. Its space is reserved.

    When a write into a mapped file finds no space, Python cannot raise an error: the process dies of SIGBUS.
    """
    try:
        number = _unnamed()
        try:
            _reserve(number, size)
        except BaseException:
            os.close(number)
            raise
        return number
    except OSError as error:
        place = "memory" if IN_MEMORY else f"the temporary folder {_folder()}"
        remedy = "free some" if IN_MEMORY else "make room there, or set TMPDIR to a folder that has some"
        raise HoldfastError(
            f"A worker process needs {size:,} bytes that it shares with its supervisor, and {place} does not give "
            f"them ({error.strerror or error}): {remedy}."
        ) from error


IN_MEMORY = hasattr(os, "memfd_create")  # Linux: no folder is needed


def _unnamed() -> int:
    if IN_MEMORY:
        try:
            return os.memfd_create("holdfast")
        except OSError as error:
            if error.errno not in (errno.ENOSYS, errno.EPERM):
                raise
            # A sandbox forbids it: use a file in the temporary folder.
    with tempfile.TemporaryFile(prefix="holdfast-") as file:
        return os.dup(file.fileno())


def _reserve(number: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(number, 0, size)
    else:  # macOS
        written = 0
        while written < size:
            written += os.pwrite(number, bytes(size - written), written)


def _folder() -> str:
    try:
        return tempfile.gettempdir()
    except OSError:  # no folder can be written to
        return os.environ.get("TMPDIR", "/tmp")  # noqa: S108 - only named
