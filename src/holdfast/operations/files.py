"""Dead letters in files: exported, imported, archived and restored. One letter a line, as JSON.

A line is complete and says its version, so files can be cut, joined and searched with ordinary tools. An archive's file
is named after its content: `dead-TIME-COUNT-SHA256.jsonl.gz`, with the digest of the lines. So the name
shows whether the file is complete, and archiving the same letters again writes the same file.

Nothing is deleted before the archive was read back and compared. A process that dies in between leaves letters
both in the archive and in the database. They are archived again, and a restore skips what is in the database.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, BinaryIO, cast
from uuid import UUID

import msgspec

from ..alerting.archive import Archive, open_archive, scratch
from ..errors import ArchiveFailed, InvalidMessage, UsageError
from ..rules import retention
from ..store.plans import dead, operator
from ..store.plans import dead_queries as letters
from ..store.plans.audit import Entry
from .dead import Progress, conditions
from .desk import Desk, Tally, log
from .lines import LINE_MAX, read_line, write_line
from .results import Filter

BATCH, BATCH_BYTES = 200, 4 * 1024 * 1024
FILE_LETTERS = 1000
KEYS = 5000  # keys of letters to export that are read at once; each read sorts all of them
FILES_MAX = 1000  # in one command
BATCHES_MAX = 100_000
NAME = re.compile(r"dead-\d{8}T\d{6}Z-(?P<count>\d+)-(?P<digest>[0-9a-f]{64})\.jsonl\.gz")
PASS = 20_000  # letters of a file that are looked up in the history at once
KNOWN_BY = ("id", "queue", "due_at", "created_at", "died_at")
GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import. `known`: letters that are here already, dead or pending again. `ended`: letters that
    have ended since they died, by the history; they were left out.
    """

    lines: int
    stored: int
    known: int
    ended: int = 0


@dataclass(frozen=True, slots=True)
class Archived:
    """What was archived and deleted, and in which files. `kept`: changed in the meantime, so it stayed."""

    count: int
    files: tuple[str, ...]
    kept: int = 0


class LetterFiles:
    """Commands about dead letters and files."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    # -- export and import

    def export(self, filter: Filter | None, file: BinaryIO, *, progress: Progress | None = None) -> int:
        """Write what matches, one line each; returns how many. Changes nothing."""
        desk, wanted, count = self._desk, conditions(filter), 0
        wanted["until"] = desk.ask(operator.moment())
        place: letters.Cursor | None = None
        for _ in range(BATCHES_MAX):
            rows = self._keys(wanted, place, letters.PLACE, KEYS)
            if not rows:
                break
            for line in self._lines(rows):
                file.write(line)
                count += 1
            last = rows[-1]
            place = (last["place"], last["seq"], str(last["id"]), last["queue"])
            if progress is not None:
                progress(count)
        return count

    def _keys(
        self, wanted: dict[str, Any], place: letters.Cursor | None, order: str, limit: int
    ) -> list[dict[str, Any]]:
        desk = self._desk
        return desk.ask(letters.keys(limit=limit, order=order, place=place, **wanted))

    def _lines(self, rows: Sequence[dict[str, Any]]) -> Iterator[bytes]:
        """The lines of these letters, read in parts that fit in memory; letters that are gone are left out."""
        for piece in _pieces(rows, lambda row: int(row["bytes"])):
            keys = [(row["id"], row["queue"], row["seq"]) for row in piece]
            for row, deaths in self._whole(keys):
                yield write_line(row, deaths)

    def _whole(self, keys: Sequence[dead.Key]) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
        desk = self._desk
        return desk.ask(letters.whole(keys))

    def load(self, file: BinaryIO, *, force: bool = False, progress: Progress | None = None) -> Imported:
        """Store the letters of a file, plain or gzipped. If a line is bad, nothing is stored; the error has its number.

        Letters that are here already are left as they are, so a file may be imported twice. Those that have ended since
        are left out; `force` brings them back, too.
        """
        with scratch() as copy:
            for line in _whole_lines(_unzipped(file)):
                copy.write(line)
            return self._load(copy, Entry("dead.import", why=_forced(force)), force, progress)

    def _load(self, copy: BinaryIO, entry: Entry, force: bool, progress: Progress | None) -> Imported:
        """`copy` is our own file: nothing changes it between the check and the import."""
        copy.seek(0)
        seen: list[dict[str, Any]] = []
        lines, over = 0, set[int]()
        since = self._moment()
        for number, line in enumerate(copy, 1):
            if line.strip():
                row, _ = _read(number, line)
                lines += 1
                if not force:
                    seen.append({name: row[name] for name in KNOWN_BY})
                if len(seen) == PASS:
                    over |= self._over(seen, lines)
        over |= self._over(seen, lines)
        copy.seek(0)
        found = (_read(number, line) for number, line in enumerate(copy, 1) if line.strip())
        left = (each for n, each in enumerate(found) if n not in over)
        stored, ended, tally = 0, len(over), Tally(self._desk, entry)
        for piece in _pieces(left, lambda each: len(each[0]["body"])):
            put, late = self._put(piece, since, force, tally)
            stored += len(put)
            ended += sum((UUID(row["id"]), row["queue"], row["seq"]) in late for row, _ in piece)
            if progress is not None:
                progress(stored)
        log.info(
            "dead.imported",
            "imported %(count)d of %(lines)d dead letters, %(ended)d have ended since and were left out",
            count=stored, lines=lines, ended=ended,
        )  # fmt: skip
        return Imported(lines, stored, lines - stored - ended, ended)

    def _moment(self) -> datetime:
        desk = self._desk
        return desk.ask(operator.moment())

    def _over(self, seen: list[dict[str, Any]], lines: int) -> set[int]:
        """Which of the lines just read have ended in their queue and are not here: one pass over the history."""
        desk, first = self._desk, lines - len(seen)
        found = sorted(desk.ask(dead.over(seen))) if seen else []
        ended = [seen[n] for n in found]
        here = desk.ask(dead.here(ended)) if ended else set()
        seen.clear()
        return {first + n for place, n in enumerate(found) if place not in here}

    def _put(
        self,
        piece: Sequence[tuple[dict[str, Any], list[dict[str, Any]]]],
        since: datetime,
        force: bool,
        tally: Tally,
    ) -> tuple[set[dead.Key], set[dead.Key]]:
        rows, deaths = [row for row, _ in piece], [death for _, all_ in piece for death in all_]
        return tally.command(
            "Dead letters", lambda done: _counted(done[0]), dead.put, rows, deaths, since, force
        )

    # -- archive

    def archive(
        self, *, files: int = FILES_MAX, ordered: bool = True, progress: Progress | None = None
    ) -> Archived:
        """Archive what is too old or too much, and delete it when the archive is known to be complete.

        `ordered`: by an operator, so it gets an audit line; else by housekeeping.
        """
        place = self._place()
        count, kept, written = 0, 0, []
        for _ in range(files):
            rows = self._leaving()
            if not rows:
                break
            written_as = self._write(place, rows)
            if written_as is None:  # another worker archives them, or one is gone: read again
                continue
            name, digest = written_as
            _verify(place, name, digest, len(rows))
            tally = Tally(self._desk, Entry("dead.archive", target=name)) if ordered else None
            gone = self._delete(rows, f"{place.where.rstrip('/')}/{name}", tally)
            log.info(
                "dead.archived", "archived %(count)d dead letters as %(file)s", count=gone, file=name
            )  # fmt: skip
            count, kept = count + gone, kept + len(rows) - gone
            written.append(name)
            if progress is not None:
                progress(count)
            if not gone:
                break
        return Archived(count, tuple(written), kept)

    def names(self) -> list[str]:
        """The files in the archive."""
        return self._place().names()

    def _place(self) -> Archive:
        where = self._desk.settings.archive
        if not where:
            raise UsageError(
                'No archive is configured: Holdfast(url, archive="/var/archive"), or s3://bucket/prefix. '
                "Without one no dead letter is ever deleted."
            )
        return open_archive(where)

    def _leaving(self) -> list[dict[str, Any]]:
        """The oldest letters to archive; never one that is held, halts its stream, or is awaited by an instance."""
        desk, settings = self._desk, self._desk.settings
        total = desk.ask(letters.count())
        rows = self._keys({"held": False, "halts": False, "awaited": False}, None, letters.AGE, FILE_LETTERS)
        now = desk.ask(operator.moment())
        since = [row["since_at"] for row in rows]
        return rows[: retention.leaving(since, total, now, settings.dead_age, settings.dead_count)]

    def _write(self, place: Archive, rows: Sequence[dict[str, Any]]) -> tuple[str, str] | None:
        """Write letters to a file of the archive: returns its name and the digest of its lines. None: some are gone."""
        digest, count = hashlib.sha256(), 0
        with scratch() as file:
            # No time and no name in the gzip header: the same letters make the same file.
            with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as zipped:
                for line in self._lines(rows):
                    digest.update(line)
                    zipped.write(line)
                    count += 1
            if count != len(rows):
                return None
            newest = cast(datetime, rows[-1]["since_at"]).astimezone(UTC)
            name = f"dead-{newest:%Y%m%dT%H%M%S}Z-{count}-{digest.hexdigest()}.jsonl.gz"
            file.seek(0)
            place.put(name, file)
        return name, digest.hexdigest()

    def _delete(self, rows: Sequence[dict[str, Any]], where: str, tally: Tally | None) -> int:
        gone = 0
        for start in range(0, len(rows), BATCH):
            piece = rows[start : start + BATCH]
            seen = {(row["id"], row["queue"], row["seq"]): int(row["epoch"]) for row in piece}
            gone += len(self._archived(seen, where, tally))
        return gone

    def _archived(self, seen: dict[dead.Key, int], where: str, tally: Tally | None) -> Sequence[dead.Key]:
        desk = self._desk
        if tally is None:
            return desk.command("Dead letters", dead.archived, seen, where)
        return tally.command("Dead letters", _counted, dead.archived, seen, where)

    def restore(self, what: str, *, force: bool = False, progress: Progress | None = None) -> Imported:
        """Bring back the letters of an archive's file: its name, path or URL. Their age counts from now on.

        Those that have ended since are left out, as in an import; `force` brings them back, too.
        """
        place, name = self._found(what)
        with scratch() as copy:
            digest, count = hashlib.sha256(), 0
            for line in _whole_lines(_inflated(place.read(name))):
                digest.update(line)
                copy.write(line)
                count += 1
            match = NAME.fullmatch(os.path.basename(name))
            if match and (match["digest"], int(match["count"])) != (digest.hexdigest(), count):
                raise ArchiveFailed(
                    f"{name} in {place.where} is not what was archived, by digest or count: nothing was restored."
                )
            entry = Entry("dead.restore", target=os.path.basename(name), why=_forced(force))
            return self._load(copy, entry, force, progress)

    def _found(self, what: str) -> tuple[Archive, str]:
        if "://" in what:
            where, _, name = what.rpartition("/")
            return open_archive(where), name
        if os.path.isfile(what):
            return open_archive(os.path.dirname(os.path.abspath(what))), os.path.basename(what)
        return self._place(), what


def _forced(force: bool) -> str | None:
    return "--force: also what has ended since" if force else None


def _counted(done: Collection[dead.Key]) -> tuple[int, list[str]]:
    return len(done), sorted(str(id) for id, _, _ in done)


def _verify(place: Archive, name: str, digest: str, count: int) -> None:
    """Read a file back and compare it with what was to be written."""
    found, lines = hashlib.sha256(), 0
    for piece in _inflated(place.read(name)):
        found.update(piece)
        lines += piece.count(b"\n")
    if (found.hexdigest(), lines) != (digest, count):
        raise ArchiveFailed(
            f"{name} in {place.where} does not read back as it was written ({lines} letters of {count}): "
            "no dead letter was deleted. Check that storage, remove that file, and archive again."
        )


def _inflated(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The unzipped content, in parts; a file that ends too early raises ArchiveFailed."""
    reader = zlib.decompressobj(31)
    try:
        for piece in pieces:
            while piece:
                if reader.eof:  # files that were joined
                    reader = zlib.decompressobj(31)
                yield reader.decompress(piece, LINE_MAX)
                piece = reader.unused_data if reader.eof else reader.unconsumed_tail
    except zlib.error as error:
        raise ArchiveFailed(f"The file cannot be unzipped: {error}. Nothing was stored or deleted.") from None
    if not reader.eof:
        raise ArchiveFailed("The file ends too early: it is not complete. Nothing was stored or deleted.")


def _unzipped(file: BinaryIO) -> Iterator[bytes]:
    first = file.read(len(GZIP))

    def pieces() -> Iterator[bytes]:
        yield first
        while piece := file.read(BATCH_BYTES):
            yield piece

    return _inflated(pieces()) if first == GZIP else pieces()


def _whole_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Lines with their line ends. A line that is too long is refused before it fills the memory."""
    rest, number = b"", 0
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            number += 1
            yield line + b"\n"
        if len(rest) > LINE_MAX:
            raise UsageError(f"Line {number + 1} is longer than {LINE_MAX:,} bytes: nothing was imported.")
    if rest:
        yield rest + b"\n"


def _read(number: int, line: bytes) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    try:
        return read_line(line)
    except RecursionError:
        raise UsageError(
            f"Line {number} is not a dead letter, so nothing was imported: it is nested too deep."
        ) from None
    except (InvalidMessage, msgspec.DecodeError, ValueError) as error:
        raise UsageError(f"Line {number} is not a dead letter, so nothing was imported: {error}") from None


def _pieces(found: Iterable[Any], size: Any) -> Iterator[list[Any]]:
    """Groups of at most so many lines and so many bytes; a line that is larger is a group of its own."""
    piece: list[Any] = []
    room = BATCH_BYTES
    for each in found:
        if piece and (len(piece) >= BATCH or size(each) > room):
            yield piece
            piece, room = [], BATCH_BYTES
        piece.append(each)
        room -= size(each)
    if piece:
        yield piece
