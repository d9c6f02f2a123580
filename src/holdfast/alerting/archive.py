"""Where dead letters are archived: a folder, or an object store (S3 and similar, through obstore).

An archive knows only the names of files. An existing file is never overwritten: names are derived from the content
(operations/files.py), so a file with the same name has the same content.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from ..errors import ArchiveFailed, NotFound, UsageError

CHUNK = 1024 * 1024
NAMES_MAX = 100_000
# An archive that does not answer must not delay housekeeping or a worker that stops. (A request has 30 s; setting that
# here would override options from the environment, such as AWS_ALLOW_HTTP.)
RETRIES: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=60)}


class Archive(Protocol):
    """A place for files."""

    where: str

    def put(self, name: str, file: BinaryIO) -> None:
        """Store a file, unless one with this name exists."""

    def read(self, name: str) -> Iterator[bytes]:
        """The content of a file, piece by piece."""

    def names(self) -> list[str]:
        """The names of all files."""


def open_archive(where: str) -> Archive:
    """The archive at a path or a URL: `/var/archive`, `file:///var/archive`, `s3://bucket/prefix`, `gs://`, `az://`."""
    if "://" not in where:
        return FolderArchive(where)
    if where.startswith("file://"):
        return FolderArchive(where.removeprefix("file://"))
    return ObjectArchive(where)


class FolderArchive:
    """Files in a folder, readable by their owner only: they hold the bodies of messages."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder).absolute()  # readers of the history may have another working directory
        self.where = str(self._folder)

    def put(self, name: str, file: BinaryIO) -> None:
        with _attempt("write", self.where, name):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if (self._folder / name).exists():
                return
            number, part = tempfile.mkstemp(dir=self._folder, prefix=".")
            try:
                with open(number, "wb") as copy:
                    while piece := file.read(CHUNK):
                        copy.write(piece)
                    copy.flush()
                    os.fsync(copy.fileno())
                os.replace(part, self._folder / name)
            except BaseException:
                os.unlink(part)
                raise
            folder = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(folder)  # the name must be on the disk too before dead letters are deleted
            finally:
                os.close(folder)

    def read(self, name: str) -> Iterator[bytes]:
        with _attempt("read", self.where, name), open(self._folder / name, "rb") as file:
            while piece := file.read(CHUNK):
                yield piece

    def names(self) -> list[str]:
        with _attempt("list", self.where, ""):
            if not self._folder.is_dir():
                return []
            return sorted(each.name for each in self._folder.iterdir() if not each.name.startswith("."))


class ObjectArchive:
    """Objects under a prefix. Credentials come from the environment, as for the provider's own tools."""

    def __init__(self, url: str) -> None:
        try:
            import obstore
            from obstore.store import from_url
        except ImportError:
            raise UsageError(
                f"The archive {url} is an object store, which needs obstore: pip install 'holdfast[archive]'."
            ) from None
        self.where, self._obstore = url, obstore
        with _attempt("open", url, ""):
            self._store: Any = from_url(url, retry_config=RETRIES)

    def put(self, name: str, file: BinaryIO) -> None:
        with _attempt("write", self.where, name):
            try:
                # Mode "create" never overwrites a file, also when two processes write at the same time.
                self._obstore.put(self._store, name, file, mode="create")
            except self._obstore.exceptions.AlreadyExistsError:
                return

    def read(self, name: str) -> Iterator[bytes]:
        with _attempt("read", self.where, name):
            for piece in self._obstore.get(self._store, name):
                yield bytes(piece)

    def names(self) -> list[str]:
        found: list[str] = []
        with _attempt("list", self.where, ""):
            for batch in self._obstore.list(self._store):
                found += [each["path"] for each in batch]
                if len(found) >= NAMES_MAX:
                    break
        return sorted(found)


NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}


@contextmanager
def scratch() -> Iterator[BinaryIO]:
    """A temporary file without a name. ArchiveFailed if there is no room for it."""
    made = False
    try:
        with tempfile.TemporaryFile() as file:
            made = True
            yield file
    except OSError as error:
        if made and error.errno not in NO_ROOM:
            raise
        folder = tempfile.tempdir or os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - only named
        raise ArchiveFailed(
            f"The temporary folder {folder} has no room for the dead letters to archive ({error.strerror or error}): "
            "make room there, or set TMPDIR to a folder that has some. Nothing was deleted."
        ) from error


@contextmanager
def _attempt(verb: str, where: str, name: str) -> Iterator[None]:
    """Turn the archive's errors into ours. A provider's error may hold a whole response: its first line is kept."""
    try:
        yield
    except (ArchiveFailed, UsageError, NotFound, GeneratorExit):
        raise
    except Exception as error:
        if verb == "read" and isinstance(error, FileNotFoundError):
            raise NotFound(f"There is no {name} in the archive {where}.") from None
        first = (str(error).splitlines() or [""])[0][:300]
        raise ArchiveFailed(
            f"The archive {where} cannot {verb} {name}".rstrip()
            + f": {type(error).__name__}: {first}. Nothing was deleted; check its address and credentials."
        ) from error
