"""A dead letter as a line of JSON: complete, versioned, the same from both databases. Reading a line is strict."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec

from ..errors import InvalidMessage
from ..rules.delivery import NUMBER_MAX

VERSION = 1
DEPTH_MAX = 16  # levels of nesting in an error history; the engine writes two
LINE_MAX = 64 * 1024 * 1024  # bytes; a body of 1 MiB with its copies in earlier deaths is far smaller

# The range of a counter, a status and a place. A worker could not raise a counter or restore a place above it.
Number = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
Status = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
Large = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
Small = Annotated[int, msgspec.Meta(ge=0, le=32_767)]
Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class _Trouble(msgspec.Struct):
    at: Moment
    text: str
    reason: Small | None = None


class _Death(msgspec.Struct, forbid_unknown_fields=True):
    died_at: Moment
    type: str
    reason: Small
    last_reason: Small | None
    fingerprint: str | None
    worker: str | None
    error: str | None
    body: str | None
    seq: Large | None = None  # None: written before deaths had numbers


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """Everything that is known of a dead letter, except the database in which it is."""

    holdfast: int
    id: UUID
    queue: str
    seq: Large
    type: str
    stream: str | None
    position: Large | None
    subject: str | None
    dedupe: str | None
    status: Status
    epoch: Number
    attempts: Number
    failures: Number
    vanished: Number
    refunds: Number
    redrives: Number
    reason: Small
    last_reason: Small | None
    worker: str | None
    created_at: Moment
    due_at: Moment | None
    deadline: Moment | None
    died_at: Moment
    fingerprint: str | None
    held_at: Moment | None
    held_why: str | None
    errors: list[dict[str, Any]] | None
    headers: str | None
    body: str
    deaths: list[_Death]
    traceback: str | None = None  # None: there is none, or it was written before they were kept


_writer = msgspec.json.Encoder()
_reader = msgspec.json.Decoder(_Line)
_FIELDS = [name for name in _Line.__struct_fields__ if name not in ("holdfast", "deaths")]
_DEATH = list(_Death.__struct_fields__)
_ERROR = ("at", "reason", "text")


def write_line(row: dict[str, Any], deaths: list[dict[str, Any]]) -> bytes:
    """One letter and all its deaths, with the line's end."""
    line = {"holdfast": VERSION} | {name: _plain(row[name]) for name in _FIELDS}
    if line["errors"] is not None:  # each database keeps the keys in its own order
        line["errors"] = [
            {key: each[key] for key in (*_ERROR, *sorted(each.keys() - {*_ERROR})) if key in each}
            for each in line["errors"]
        ]
    line["deaths"] = [{name: _plain(each[name]) for name in _DEATH} for each in deaths]
    return _writer.encode(line) + b"\n"


def read_line(line: bytes) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A letter and its deaths as rows for the store; raises an error that says what is wrong."""
    version = msgspec.json.decode(line, type=dict[str, Any]).get("holdfast")
    if version != VERSION:
        newer = isinstance(version, int) and version > VERSION
        raise InvalidMessage(
            f"it has version {version}, and this release reads {VERSION}: use the newer release."
            if newer
            else 'every dead letter must begin with "holdfast": 1.'
        )
    found = _reader.decode(line)
    if not _is_shallow(found.errors or [], DEPTH_MAX):
        raise InvalidMessage("its error history is nested too deep.")
    msgspec.convert(found.errors or [], list[_Trouble], strict=False)
    # All that a plain INSERT can store must be importable, so names are not checked. But no database stores NUL.
    if b"\\u0000" in line and any("\x00" in each for each in _texts(msgspec.to_builtins(found))):
        raise InvalidMessage("a text in it holds the character NUL.")
    if not (found.queue and found.type):
        raise InvalidMessage("its queue or type is empty.")
    row = {name: getattr(found, name) for name in _FIELDS}
    earlier = [
        {"id": str(found.id), "queue": found.queue}
        | {name: getattr(each, name) for name in _DEATH}
        | {"seq": (found.seq if each.died_at == found.died_at else 0) if each.seq is None else each.seq}
        for each in found.deaths
    ]
    return row | {"id": str(found.id)}, earlier


def _is_shallow(value: Any, depth: int) -> bool:
    if not isinstance(value, dict | list):
        return True
    parts = value.values() if isinstance(value, dict) else value
    return depth > 0 and all(_is_shallow(each, depth - 1) for each in parts)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return value
